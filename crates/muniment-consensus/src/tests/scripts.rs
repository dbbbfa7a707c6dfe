//! Scenarios as text: `tests/scripts/*.txt`, one per file. A line that begins with `>` is a command, one that
//! begins with `#` is a comment, and all others are the expected events of the command before them.
//! `MUNIMENT_UPDATE_SCRIPTS=1` writes the files anew. Read the changes before you commit them.
//!
//! Members sync their records and tell the core of those of their door at once, unless the script says
//! otherwise (`slow`, `late`). Messages move only by `deliver` and `run`.

use crate::tests::cluster::{Cluster, arbiter, member};
use crate::*;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

struct Script {
    cluster: Cluster,
}

/// The next word as a number.
fn number(word: Option<&&str>) -> u64 {
    let word = word.expect("a number is missing");
    word.parse().unwrap_or_else(|_| panic!("{word}: no number"))
}

/// `1=x` as (1, x).
fn pair(word: &str) -> (u64, &str) {
    let (id, value) = word.split_once('=').unwrap_or((word, ""));
    (id.parse().expect("a member's number"), value)
}

impl Script {
    fn new() -> Script {
        let options = Options {
            times: Times::of(10),
            seed: 1,
        };
        Script {
            cluster: Cluster::new(options),
        }
    }

    fn command(&mut self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, args) = words.split_first().expect("a command");
        let first = || number(args.first());
        let second = || number(args.get(1));
        let c = &mut self.cluster;
        match *name {
            "set" => c.set_up(&config(args)),
            "join" => c.join(&LocalState::joining(first())),
            // The member has nothing, and knows the configuration from another one.
            "empty" => {
                let config = c.nodes[&second()].state().in_force.config;
                let in_force = InForce {
                    config,
                    ..InForce::default()
                };
                c.join(&LocalState {
                    in_force,
                    ..LocalState::joining(first())
                });
            }
            "tick" => {
                for id in Script::ids(c, args.first()) {
                    for _ in 0..second() {
                        c.with(id, |n| n.tick());
                    }
                }
            }
            // All members pass this many ticks, and all messages are delivered after each.
            "run" => {
                for _ in 0..first() {
                    for id in Script::ids(c, None) {
                        c.with(id, |n| n.tick());
                    }
                    c.deliver(None);
                }
            }
            "deliver" => c.deliver(args.first().map(|_| first())),
            "drop" => {
                let only = args.first().map(|_| first());
                c.on_the_way
                    .retain(|(_, to, _)| only.is_some_and(|only| only != *to));
            }
            "trace" => c.trace = args == ["on"],
            "slow" => drop(c.slow.insert(first())),
            "fast" => {
                c.slow.remove(&first());
                c.with(first(), |_| {});
            }
            "sync" => {
                let to = args.get(1).map_or(u64::MAX, |_| second());
                c.with(first(), |n| n.sync(to));
            }
            "late" => drop(c.late.insert(first())),
            "tell" => {
                c.late.remove(&first());
                c.with(first(), |_| {});
            }
            "write" => {
                for value in args.iter().skip(1) {
                    let mut index = None;
                    c.with(first(), |n| index = n.write(value));
                    if index.is_none() {
                        c.lines.push(format!("{}: is not writable", first()));
                    }
                }
            }
            "partition" => {
                let sides: Vec<&[&str]> = args.split(|w| *w == "|").collect();
                let side = |id: &u64| {
                    let is_in = |s: &&[&str]| s.iter().any(|w| w.parse() == Ok(*id));
                    sides.iter().position(is_in)
                };
                let ids: Vec<u64> = c.nodes.keys().copied().collect();
                for a in &ids {
                    for b in ids.iter().filter(|b| side(a) != side(b)) {
                        c.cut_off.insert((*a, *b));
                    }
                }
            }
            // Messages are lost in one direction only.
            "mute" => drop(c.cut_off.insert((first(), second()))),
            "heal" => c.cut_off.clear(),
            "crash" => {
                let keep = args.get(1).map_or(0, |_| second());
                c.with(first(), |n| n.crash(keep));
            }
            "start" => c.with(first(), |n| n.start()),
            // The member crashes before the effect after this many.
            "fuse" => {
                let effects = second();
                c.with(first(), |n| n.fuse = u32::try_from(effects).ok());
            }
            // The member is down, and its log ends here, whatever it has acknowledged.
            "lose" => {
                let last = second();
                c.with(first(), |n| {
                    n.crash(0);
                    n.log.truncate((last - n.base) as usize);
                    n.durable = last;
                });
            }
            "campaign" => c.with(first(), |n| {
                n.input(|core| {
                    core.campaign();
                    Ok(())
                });
            }),
            "freeze" => {
                let ticks = second();
                c.with(first(), |n| {
                    n.input(|core| {
                        core.freeze(ticks);
                        Ok(())
                    });
                });
            }
            // ID WHOM: ID sees that WHOM has ended.
            "gone" => {
                let whom = second();
                c.with(first(), |n| {
                    n.input(|core| {
                        core.gone(whom);
                        Ok(())
                    });
                });
            }
            // ID WHOM [no]: ID hears that WHOM has no room on its disk.
            "full" => {
                let (whom, full) = (second(), args.get(2) != Some(&"no"));
                c.with(first(), |n| {
                    n.input(|core| {
                        core.full(whom, full);
                        Ok(())
                    });
                });
            }
            // ID WHOM [again]: ID hears that WHOM does not campaign, or does so again.
            "abstain" => {
                let (whom, abstains) = (second(), args.get(2) != Some(&"again"));
                c.with(first(), |n| {
                    n.input(|core| {
                        core.abstain(whom, abstains);
                        Ok(())
                    });
                });
            }
            "withdraw" => c.with(first(), |n| {
                n.input(|core| {
                    core.withdraw();
                    Ok(())
                });
            }),
            "stepdown" => {
                let (patience, freeze) = (second(), number(args.get(2)));
                let force = args.get(3) == Some(&"force");
                c.with(first(), |n| {
                    n.input(|core| {
                        core.step_down(1, patience, freeze, force);
                        Ok(())
                    });
                });
            }
            "takeback" => c.with(first(), |n| {
                n.input(|core| {
                    core.take_back(1);
                    Ok(())
                });
            }),
            "handover" => {
                let to = second();
                c.with(first(), |n| {
                    n.input(|core| {
                        core.hand_over(1, to, 20);
                        Ok(())
                    });
                });
            }
            "reconfig" => {
                let now = c.nodes[&first()].state().in_force.config;
                let new = edit(&now, args.get(1..).unwrap_or_default());
                c.with(first(), |n| {
                    n.input(|core| {
                        core.reconfigure(2, new);
                        Ok(())
                    });
                });
            }
            "force" => {
                let mut state = c.nodes[&first()].state();
                let new = edit(&state.in_force.config, args.get(1..).unwrap_or_default());
                state.force(new);
                c.with(first(), |n| {
                    n.crash(u64::MAX >> 1);
                    n.saved = state.encode();
                    n.start();
                });
            }
            // ID FROM: ID hears of the configuration that was forced on FROM.
            "hear" => {
                let newer = c.nodes[&second()].state().in_force;
                let mut state = c.nodes[&first()].state();
                state.force(newer.config);
                c.with(first(), |n| {
                    n.crash(u64::MAX >> 1);
                    n.saved = state.encode();
                    n.start();
                });
            }
            "read" => {
                let mut taken = false;
                c.with(first(), |n| {
                    n.input(|core| {
                        taken = core.read(3);
                        Ok(())
                    });
                });
                if !taken {
                    c.lines.push(format!("{}: no read", first()));
                }
            }
            "trim" => {
                let first_left = second();
                c.with(first(), |n| {
                    while n.base + 1 < first_left {
                        let gone = n.log.pop_front().expect("a record to trim");
                        (n.base, n.base_term) = (gone.index, gone.term);
                    }
                    n.input(|core| {
                        core.trimmed(first_left);
                        Ok(())
                    });
                });
            }
            "resync" => Script::resync(c, first(), second(), 0),
            // ID LEADER PLACE: a member that has nothing is filled, and waits until this place is committed.
            "fill" => Script::resync(c, first(), second(), number(args.get(2))),
            // LEADER ID: tells whether the leader can commit nothing without ID, and lets the leader ask the
            // others whether it leads.
            "confirm" => {
                let (whom, mut needed) = (second(), false);
                c.with(first(), |n| {
                    n.input(|core| {
                        needed = core.needs(whom);
                        core.forget(whom);
                        core.confirm(4);
                        Ok(())
                    });
                });
                let not = if needed { "" } else { "not " };
                c.lines
                    .push(format!("{}: member {whom} is {not}needed", first()));
            }
            "check" => {
                let text = Script::check(c, args);
                c.lines.push(text);
            }
            "status" => {
                for (id, node) in &c.nodes {
                    let text = match &node.core {
                        None => "down".to_owned(),
                        Some(core) => format!(
                            "{:?} in term {}, committed {}, durable {}",
                            core.role(),
                            core.term(),
                            core.committed(),
                            node.durable
                        )
                        .to_lowercase(),
                    };
                    let records: Vec<_> = node.log.iter().map(ToString::to_string).collect();
                    c.lines
                        .push(format!("{id}: {text}: {}", records.join(", ")));
                }
            }
            other => panic!("{other}: no such command"),
        }
        std::mem::take(&mut c.lines)
    }

    fn ids(c: &Cluster, which: Option<&&str>) -> Vec<MemberId> {
        match which {
            None | Some(&"all") => c.nodes.keys().copied().collect(),
            some => vec![number(some)],
        }
    }

    /// Makes the member's data a copy of another's as of that member's commit point.
    fn resync(c: &mut Cluster, id: MemberId, from: MemberId, waits: u64) {
        let source = &c.nodes[&from];
        let core = source.core.as_ref().expect("the source is up");
        let at = core.committed();
        let term = match source.record(at) {
            Some(record) => record.term,
            None => source.base_term,
        };
        let in_force = (**core.in_force()).clone();
        let led = (from, core.term());
        c.with(id, |n| {
            n.crash(0);
            let synced = n.state().synced(at, term, in_force, led, waits);
            n.saved = synced.encode();
            n.log.clear();
            (n.base, n.base_term, n.durable) = (at, term, at);
            n.start();
        });
    }

    /// `check ID INDEX CONCERN [j]`
    fn check(c: &Cluster, args: &[&str]) -> String {
        let core = c.nodes[&number(args.first())].core.as_ref();
        let core = core.expect("it is up");
        let index = number(args.get(1));
        let what = args.get(2).expect("a concern");
        let w = match (what.parse(), *what) {
            (Ok(n), _) => W::Members(n),
            (_, "majority") => W::Majority,
            (_, mode) => W::Mode(mode.to_owned()),
        };
        let journaled = args.get(3) == Some(&"j");
        let concern = Concern { w, journaled };
        let progress = Progress {
            members: core.members(),
            committed: core.committed(),
        };
        match concern.check(core.members()) {
            Err(e) => format!("{}: {}", e.code().0, e.message()),
            Ok(()) if concern.is_satisfied(index, progress) => "satisfied".into(),
            Ok(()) => "not yet".into(),
        }
    }
}

/// A configuration from words such as `1 2 3`, followed by words as [`edit`] takes them.
fn config(args: &[&str]) -> Config {
    let ids = args.iter().map_while(|w| w.parse().ok());
    let members: Vec<Member> = ids.map(member).collect();
    let next_id = members.iter().map(|m| m.id + 1).max().unwrap_or(1);
    let all = Config {
        version: 0,
        next_id,
        members,
        ..Config::default()
    };
    edit(&all, args.get(all.members.len()..).unwrap_or_default())
}

/// Edits a configuration by pairs of words: `add KEY`, `arbiter KEY` (changes or adds the member), `silent
/// KEY` (no vote), `vote KEY`, `remove KEY`, `priority KEY=N`, `tag KEY=NAME:VALUE`, `mode NAME=TAG:N`.
fn edit(now: &Config, args: &[&str]) -> Config {
    let mut new = now.clone();
    new.version += 1;
    for words in args.chunks(2) {
        let (what, arg) = (words[0], words.get(1).copied().unwrap_or_default());
        if what == "mode" {
            let (name, wanted) = arg.split_once('=').expect("a mode");
            let (tag, n) = wanted.split_once(':').expect("a tag and a number");
            let tags = new.modes.entry(name.to_owned()).or_default();
            tags.insert(tag.to_owned(), n.parse().expect("a number"));
            continue;
        }
        let (key, value) = pair(arg);
        let known = new.members.iter_mut().find(|m| m.key == key as i32);
        match (what, known) {
            ("add", _) => new.members.push(member(key)),
            ("arbiter", Some(m)) => *m = arbiter(key),
            ("arbiter", None) => new.members.push(arbiter(key)),
            ("remove", _) => new.members.retain(|m| m.key != key as i32),
            ("silent", Some(m)) => m.votes = false,
            ("vote", Some(m)) => m.votes = true,
            ("priority", Some(m)) => m.priority = value.parse().expect("a number"),
            ("tag", Some(m)) => {
                let (tag, value) = value.split_once(':').expect("a tag and its value");
                m.tags.insert(tag.to_owned(), value.to_owned());
            }
            other => panic!("{other:?}: no such change"),
        }
    }
    // The configuration gives new members their numbers.
    match now.version {
        0 => new,
        _ => now.number(new),
    }
}

fn replay(text: &str) -> String {
    let mut script = Script::new();
    let mut out = String::new();
    let mut after_output = false;
    for line in text.lines() {
        let command = line.strip_prefix('>');
        if command.is_none() && !line.starts_with('#') {
            continue;
        }
        let starts_block = line.starts_with('#') && !out.is_empty() && !out.ends_with("\n\n");
        let in_prose = out.lines().last().is_some_and(|l| l.starts_with('#'));
        if after_output || (starts_block && !in_prose) || (in_prose && command.is_some()) {
            out.push('\n');
        }
        let _ = writeln!(out, "{line}");
        let lines = command.map_or(Vec::new(), |c| script.command(c));
        after_output = !lines.is_empty();
        for line in lines {
            let _ = writeln!(out, "{line}");
        }
    }
    out
}

#[test]
fn all_scripts() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let update = std::env::var_os("MUNIMENT_UPDATE_SCRIPTS").is_some();
    let files = std::fs::read_dir(&dir).expect("the scripts");
    let mut paths: Vec<_> = files.map(|f| f.expect("a file").path()).collect();
    paths.sort();
    let mut wrong = BTreeMap::new();
    for path in &paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(path).expect("a script");
        let got = std::panic::catch_unwind(|| replay(&text));
        let got = got.unwrap_or_else(|_| panic!("{name}: panicked"));
        if got == text {
            continue;
        }
        if update {
            std::fs::write(path, &got).expect("writing a script");
            continue;
        }
        let first = got.lines().zip(text.lines()).position(|(a, b)| a != b);
        let line = first.unwrap_or(got.lines().count().min(text.lines().count()));
        let at = |t: &str| t.lines().nth(line).unwrap_or("nothing").to_owned();
        let (is, want) = (at(&got), at(&text));
        wrong.insert(
            name.into_owned(),
            format!("line {}: {is}, not {want}", line + 1),
        );
    }
    assert!(paths.len() >= 20, "scripts are missing");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
