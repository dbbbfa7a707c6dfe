//! Commands of every kind that change the catalog, valid and nearly valid, on a set of three whose members
//! are killed meanwhile: no process ends by itself, every member applies what the primary has accepted, every
//! directory can be opened again, and `validate` finds nothing.
//!
//! `MUNIMENT_LONG=1` runs for twenty minutes. `MUNIMENT_SEED=n` draws the same commands again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::{Rng, long, seed};
use muniment_value::{Doc, DocBuf, Value, doc};
use muniment_wire::Connection;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Grammar, Set, shell_text};

const DATABASES: [&str; 2] = ["fa", "fb"];
const CLIENTS: u64 = 2;

/// The last commands that a client has sent, which are printed if the test fails.
struct Sent(u64, VecDeque<String>);

impl Drop for Sent {
    fn drop(&mut self) {
        // A test that passes has emptied the list.
        for one in &self.1 {
            println!("client {}: {one}", self.0);
        }
    }
}

/// Ends the clients, even if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// The counts of the clients.
#[derive(Default)]
struct Figures {
    sent: AtomicU64,
    accepted: AtomicU64,
}

/// Sends commands to the primary, whichever member that is.
fn client(sent: &mut Sent, hosts: &[String], rng: &mut Rng, stop: &AtomicBool, figures: &Figures) {
    let grammar = Grammar::new(&DATABASES);
    let (mut at, mut connection) = (0, None);
    while !stop.load(SeqCst) {
        let Some(c) = &mut connection else {
            at = (at + 1) % hosts.len();
            connection = Connection::connect_timeout(&hosts[at], Duration::from_secs(1)).ok();
            if let Some(c) = &mut connection {
                c.set_timeout(Some(Duration::from_secs(30))).unwrap();
            } else {
                std::thread::sleep(Duration::from_millis(20));
            }
            continue;
        };
        let mut drawn = grammar.command(&mut |n| rng.below(n));
        let text = shell_text(Value::Document(drawn.body.as_doc()));
        let short: String = text.chars().take(300).collect();
        // A write would otherwise wait for a member that may be down.
        drawn.body.append("writeConcern", doc! { "w": 1 });
        if ["profile", "validate"].contains(&drawn.body.as_doc().first().unwrap().name()) {
            drawn.body = without_concern(drawn.body.as_doc());
        }
        let reply = c.command_raw(&drawn.db, &drawn.body);
        figures.sent.fetch_add(1, SeqCst);
        let code = match &reply {
            Ok(reply) => {
                let code = reply.as_doc().get("code").and_then(|v| v.as_i64_exact());
                code.unwrap_or(0)
            }
            Err(_) => -1,
        };
        sent.1.push_back(format!("{} {short} -> {code}", drawn.db));
        if sent.1.len() > 60 {
            sent.1.pop_front();
        }
        match code {
            0 => drop(figures.accepted.fetch_add(1, SeqCst)),
            // An internal error is a bug, whatever was sent.
            1 => panic!("{} {text}: {:?}", drawn.db, reply),
            -1 | 91 | 189 | 10107 | 11600 | 11602 | 13435 | 13436 => connection = None,
            _ => {}
        }
    }
}

fn without_concern(d: Doc<'_>) -> DocBuf {
    let mut out = DocBuf::new();
    for e in d.iter().filter(|e| e.name() != "writeConcern") {
        out.append_elem(e);
    }
    out
}

/// Runs a command on a member, primary or not.
fn ask(c: &mut Connection, db: &str, mut command: DocBuf) -> DocBuf {
    command.append("$readPreference", doc! { "mode": "secondaryPreferred" });
    c.command(db, &command).unwrap()
}

fn batch(reply: &DocBuf) -> Vec<DocBuf> {
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let all = cursor.get_array("firstBatch").unwrap().values();
    all.map(|v| v.as_doc().unwrap().to_buf()).collect()
}

/// The collections of a database as a member lists them, by name.
fn collections(c: &mut Connection, db: &str) -> BTreeMap<String, DocBuf> {
    let list = doc! { "listCollections": 1, "cursor": doc! { "batchSize": 10_000 } };
    let all = batch(&ask(c, db, list)).into_iter();
    all.map(|d| (d.as_doc().get_str("name").unwrap().to_string(), d))
        .collect()
}

fn is_stored(d: &DocBuf) -> bool {
    d.as_doc().get_str("type") != Some("view")
}

/// The databases as a member shows them.
fn state(c: &mut Connection) -> String {
    let mut out = String::new();
    for db in DATABASES {
        for (name, d) in collections(c, db) {
            // These records belong to each member alone.
            if name == "system.profile" {
                continue;
            }
            writeln!(out, "{db}: {d:?}").unwrap();
            if is_stored(&d) {
                let list = doc! { "listIndexes": &*name };
                let mut command = list;
                command.append("$readPreference", doc! { "mode": "secondaryPreferred" });
                let reply = c.command_raw(db, &command).unwrap();
                // The collection may have been dropped by now.
                if let Some(cursor) = reply.as_doc().get_doc("cursor") {
                    writeln!(out, "  {cursor:?}").unwrap();
                }
            }
        }
        let hashes = ask(c, db, doc! { "dbHash": 1 });
        writeln!(out, "{db}: {:?}", hashes.as_doc().get_doc("collections")).unwrap();
    }
    out
}

/// Checks every collection of a member with `validate`.
fn validate(set: &Set, i: usize) {
    let mut c = set.connect(i);
    for db in DATABASES {
        for (name, d) in collections(&mut c, db) {
            if !is_stored(&d) {
                continue;
            }
            let mut command = doc! { "validate": &*name, "full": true };
            command.append("$readPreference", doc! { "mode": "secondaryPreferred" });
            let reply = c.command_raw(db, &command).unwrap();
            let r = reply.as_doc();
            let valid = r.get("valid").is_some_and(|v| v.truthy());
            // A collection may expire or be dropped by its own rule.
            let gone = r.get("code").and_then(|v| v.as_i64_exact()) == Some(26);
            assert!(valid || gone, "member {i}, {db}.{name}: {reply:?}");
        }
    }
}

fn check(set: &Set) {
    set.settle();
    let mut states = Vec::new();
    set.until("the members differ", || {
        states = (0..3).map(|i| state(&mut set.connect(i))).collect();
        let same = states.iter().all(|s| *s == states[0]);
        if !same {
            let mut lines = states[0]
                .lines()
                .zip(states[1].lines())
                .zip(states[2].lines());
            let differ = lines.find(|((a, b), c)| a != b || a != c);
            println!("differ: {differ:?}");
        }
        same.then_some(())
    });
    (0..3).for_each(|i| validate(set, i));
}

#[test]
fn whatever_is_accepted_is_applied_and_opens_again() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut set = Set::start(3);
    let hosts: Vec<String> = (0..3).map(|i| set.host(i)).collect();
    let figures = Figures::default();
    let begin = Instant::now();
    let span = Duration::from_secs(if long() { 1200 } else { 15 });
    let mut sent: Vec<Sent> = (0..CLIENTS).map(|i| Sent(i, VecDeque::new())).collect();
    let mut rngs: Vec<Rng> = (0..CLIENTS).map(|i| Rng::new(seed ^ (0x51 + i))).collect();
    let (mut kills, mut rounds) = (0, 0);
    while begin.elapsed() < span {
        rounds += 1;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let clients: Vec<_> = sent
                .iter_mut()
                .zip(&mut rngs)
                .map(|(sent, rng)| {
                    let (hosts, stop, figures) = (&hosts, &stop, &figures);
                    scope.spawn(move || client(sent, hosts, rng, stop, figures))
                })
                .collect();
            let _stop = Stop(&stop);
            for _ in 0..2 {
                std::thread::sleep(Duration::from_millis(300 + rng.below(1500)));
                let members = match rng.below(4) {
                    0 => 0..3,
                    _ => {
                        let i = rng.below(3) as usize;
                        i..i + 1
                    }
                };
                for i in members.clone() {
                    let m = &mut set.members[i];
                    assert!(m.is_running(), "member {i} ended by itself:\n{}", m.log());
                    m.kill9();
                    kills += 1;
                }
                for i in members {
                    set.members[i].start_again();
                }
                if clients.iter().any(|c| c.is_finished()) {
                    break;
                }
            }
            std::thread::sleep(Duration::from_millis(rng.below(1500)));
        });
        for (i, m) in set.members.iter_mut().enumerate() {
            assert!(m.is_running(), "member {i} ended by itself:\n{}", m.log());
        }
        check(&set);
    }
    let (n, accepted) = (figures.sent.load(SeqCst), figures.accepted.load(SeqCst));
    println!("{rounds} rounds, {kills} kills, {n} commands, {accepted} of them accepted");
    assert!(accepted > 20 && kills > 0);
    sent.iter_mut().for_each(|s| s.1.clear());
}
