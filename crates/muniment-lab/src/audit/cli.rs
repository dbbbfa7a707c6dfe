//! `muniment bench audit …`.

use super::concern::{self, Concern, Crash};
use super::fault::Fault;
use super::victim::Templates;
use super::{Check, Plan, Row, output};
use crate::cli::{self, Output};
use crate::commands::{self, Spec};
use crate::fail::{Failure, Result};
use crate::lab::{Lab, Preset};
use crate::stdout::say;
use crate::targets::Endpoint;
use crate::{stop, uri};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// The command.
pub const COMMAND: Spec = Spec {
    name: "audit",
    arguments: "[OPTIONS]",
    about: "durability: what is lost when the server is crashed under load",
    run: |args| match parse(args) {
        Ok(Some(o)) => commands::ended(run(&o)),
        Ok(None) => {
            say(HELP);
            ExitCode::SUCCESS
        }
        Err(e) => commands::misused("audit", &e),
    },
};

/// `muniment bench audit --help`.
const HELP: &str = "\
Crashes a server at random moments while it is written to, and compares what it had
acknowledged with what is there afterwards.

Usage: muniment bench audit [OPTIONS]
       muniment bench audit --uri URI --start CMD [--kill CMD] [OPTIONS]
       muniment bench audit --topology set [--members N] [--faults LIST] [OPTIONS]

Without --uri it crashes embedded servers, by kill -9 and by cutting their power: they
run on a file layer that drops what was never synced. An external server is only killed,
which says nothing about power loss. The primary of a replica set is killed and another
member compared. With --topology set it starts members with relays between them, kills
them and cuts them off from each other, and looks into their rollback files.

  --checks LIST    concerns: single commands under each of them; transactions: all or
                   nothing; retries: exactly once (default: all three, or concerns
                   with --concerns)
  --concerns LIST  write concerns: w:N, w:MODE, majority, j:true, j:false, fsync:true,
                   joined with + (default w:0,w:1,j:true,majority)
  --crash KIND     process, power or both (default: what there is)
  --rounds N       crashes for each write concern and kind (smoke 2, quick 10, paper 50)
  --seconds S      the longest time until a crash (smoke 0.6, quick 1, paper 2)
  --threads T      writers (4)
  --seed N         where moments and documents come from (default: the clock)
  --preset PRESET  smoke, quick or paper: sets rounds and seconds; default smoke

Embedded servers:
  --journalCommitInterval MS   theirs, 1 to 500 (100)
  --sync-delay US  microseconds that each sync takes longer on power loss

External servers:
  --uri URI        mongodb://host[:port][,host…][/?replicaSet=NAME]
  --kill CMD       brings it down (default on this host: kill -9 {pid})
  --start CMD      starts it; may be left out for a replica set
  --stop-wait S    how long it may take to be gone after --kill (10)
                   Commands are run by 'sh -c'; {host} {port} {pid} {dbpath} are filled in.

A set of the lab's own:
  --topology set   start it (default write concerns: w:0,w:1,j:true,w:2,majority,w:byTags,
                   the last a mode of tags that needs a majority)
  --members N      3 to 7 (3)
  --faults LIST    kill-primary, kill-majority, kill-all, cut-primary, cut-primary-out (it is
                   not heard), cut-primary-in (it does not hear), cut-majority (with as
                   many others as are no majority), freeze-primary (SIGSTOP, and SIGCONT
                   after an election); default all, smoke three of them

  --json FILE      write every result as JSON lines
  --out DIR        write report.html and results.json here; default ./bench-report
  --data DIR       make temporary directories here (default: the system's)
  --tui            a full-screen view while it runs
  -h, --help       this text

Ends with 0 when every promise was kept, 1 when one was broken or the audit could not be
run to its end, 2 when the arguments make no sense. It works in the database
muniment_bench, which it drops before and after.
";

/// What was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    plan: Plan,
    preset: Preset,
    uri: Option<uri::Uri>,
    output: Output,
}

/// Understands the arguments behind `audit`; `None` asks for help.
///
/// # Errors
/// An option that there is not, a value that makes no sense, options that contradict each other.
pub fn parse(args: Vec<OsString>) -> Result<Option<Options>> {
    use lexopt::prelude::*;
    let said = |e: lexopt::Error| Failure(e.to_string());
    let (mut rounds, mut seconds, mut threads) = (None, None, 4);
    let mut concerns: Option<Vec<Concern>> = None;
    let mut checks: Option<Vec<Check>> = None;
    let (mut crashes, mut seed, mut sync_us, mut journal_ms) = (None, None, None, None);
    let (mut kill, mut start, mut stop_wait, mut the_uri) = (None, None, None, None);
    let (mut topology, mut members, mut faults) = (false, None, None);
    let mut preset = Preset::Smoke;
    let mut output = Output::default();
    let mut p = lexopt::Parser::from_args(args);
    while let Some(arg) = p.next().map_err(said)? {
        let name = match &arg {
            Short('h') | Long("help") => return Ok(None),
            Long(name) => (*name).to_string(),
            _ => return Err(said(arg.unexpected())),
        };
        match name.as_str() {
            "rounds"
            | "seconds"
            | "threads"
            | "checks"
            | "concerns"
            | "crash"
            | "seed"
            | "sync-delay"
            | "journalCommitInterval"
            | "uri"
            | "kill"
            | "start"
            | "stop-wait"
            | "topology"
            | "members"
            | "faults"
            | "preset" => {
                let v = p.value().map_err(said)?.into_string().map_err(|v| {
                    Failure(format!("--{name} {} is not UTF-8", v.to_string_lossy()))
                })?;
                match name.as_str() {
                    "rounds" => rounds = Some(whole(&name, &v, 1, 1_000_000)?),
                    "seconds" => seconds = Some(real(&name, &v, 0.01, 3600.0)?),
                    "threads" => threads = whole(&name, &v, 1, 1000)? as usize,
                    "checks" => checks = Some(some(&v)?),
                    "concerns" => concerns = Some(concern::parse_list(&v)?),
                    "crash" => crashes = Some(kinds(&v)?),
                    "seed" => seed = Some(whole(&name, &v, 0, u64::MAX)?),
                    "sync-delay" => sync_us = Some(whole(&name, &v, 0, 10_000_000)?),
                    "journalCommitInterval" => journal_ms = Some(whole(&name, &v, 1, 500)?),
                    "uri" => the_uri = Some(uri::parse(&v)?),
                    "kill" => kill = Some(v),
                    "start" => start = Some(v),
                    "topology" if v == "set" => topology = true,
                    "topology" => {
                        return Err(Failure(format!("--topology {v}: there is set")));
                    }
                    "members" => members = Some(whole(&name, &v, 3, 7)? as usize),
                    "faults" => faults = Some(Fault::list(&v)?),
                    "stop-wait" => stop_wait = Some(real(&name, &v, 0.0, 3600.0)?),
                    _ => preset = Preset::named(&v)?,
                }
            }
            // Not --core-hour: there is no table of cost.
            "json" | "out" | "data" | "tui" => {
                output.take(&name, || p.value().map_err(said))?;
            }
            _ => return Err(Failure(format!("there is no option --{name}"))),
        }
    }
    let only = |given: bool, name: &str, with: &str| match given {
        true => Err(Failure(format!("{name} belongs to {with}"))),
        false => Ok(()),
    };
    // Who names write concerns wants to know about these.
    let checks = checks.unwrap_or_else(|| match concerns {
        Some(_) => vec![Check::Concerns],
        None => Check::ALL.to_vec(),
    });
    only(
        concerns.is_some() && !checks.contains(&Check::Concerns),
        "--concerns",
        "--checks concerns",
    )?;
    let external = the_uri.is_some();
    for (given, name) in [
        (members.is_some(), "--members"),
        (faults.is_some(), "--faults"),
    ] {
        only(!topology && given, name, "--topology set")?;
    }
    for (given, name) in [
        (crashes.is_some(), "--crash"),
        (journal_ms.is_some(), "--journalCommitInterval"),
    ] {
        only(
            topology && given,
            name,
            "a single server, not to --topology",
        )?;
    }
    if topology && external {
        return Err(Failure::new(
            "--topology starts members itself: it does not belong to --uri",
        ));
    }
    let concerns = match concerns {
        Some(c) => c,
        None if topology => concern::parse_list("w:0,w:1,j:true,w:2,majority,w:byTags")?,
        None => concern::parse_list("w:0,w:1,j:true,majority")?,
    };
    let members = topology.then(|| members.unwrap_or(3));
    let of_set = members.map(|n| {
        let faults = faults.unwrap_or_else(|| usual_faults(preset, n));
        faults.into_iter().map(Crash::Fault).collect()
    });
    let crashes: Vec<Crash> = of_set
        .or(crashes)
        .unwrap_or_else(|| match powerloss_image::LAYER {
            Some(_) if !external => vec![Crash::Process, Crash::Power],
            _ => vec![Crash::Process],
        });
    let power = crashes.contains(&Crash::Power);
    if power && powerloss_image::LAYER.is_none() {
        return Err(Failure::new(
            "--crash power: the file layer that drops what was not synced replaces calls of glibc on Linux, and this build is for another system; --crash process works",
        ));
    }
    if external && power {
        return Err(Failure::new(
            "--crash power needs the embedded server, which runs on a file layer that drops what was never synced; with --uri there is only --crash process",
        ));
    }
    only(
        external && journal_ms.is_some(),
        "--journalCommitInterval",
        "the embedded server, not to --uri",
    )?;
    only(
        !power && sync_us.is_some(),
        "--sync-delay",
        "--crash power, whose file layer delays the syncs",
    )?;
    only(
        !external && kill.is_some(),
        "--kill",
        "an external server: give --uri",
    )?;
    only(
        !external && start.is_some(),
        "--start",
        "an external server: give --uri",
    )?;
    only(
        !external && stop_wait.is_some(),
        "--stop-wait",
        "an external server: give --uri",
    )?;
    let set = the_uri
        .as_ref()
        .is_some_and(|u| u.replica_set.is_some() && !u.direct);
    if external && start.is_none() && !set {
        return Err(Failure::new(
            "--start is needed: a command that starts the server again, for example --start 'systemctl start mongod'; only a replica set (replicaSet=NAME in --uri) goes on without",
        ));
    }
    let clock = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |d| d.as_secs())
    };
    Ok(Some(Options {
        plan: Plan {
            // A set has more kinds of faults, and takes longer to be well again.
            rounds: rounds.unwrap_or_else(|| match topology {
                true => preset.pick(1, 3, 10),
                false => preset.pick(2, 10, 50),
            }),
            seconds: seconds.unwrap_or_else(|| preset.pick(0.6, 1.0, 2.0)),
            threads,
            checks,
            concerns,
            crashes,
            seed: seed.unwrap_or_else(clock),
            sync_us: sync_us.unwrap_or(0),
            journal_ms,
            templates: external.then(|| Templates {
                kill,
                start,
                stop_wait: Duration::from_secs_f64(stop_wait.unwrap_or(10.0)),
            }),
            members,
        },
        preset,
        uri: the_uri,
        output,
    }))
}

/// The faults of a set of so many members, when none were asked for.
fn usual_faults(preset: Preset, members: usize) -> Vec<Fault> {
    let shortest = [Fault::KillPrimary, Fault::CutPrimary, Fault::KillMajority];
    let all = Fault::ALL.into_iter().filter(|f| match preset {
        Preset::Smoke => shortest.contains(f),
        // Where the primary takes nobody along it is cut off alone.
        _ => *f != Fault::CutMajority || members - (members / 2 + 1) > 1,
    });
    all.collect()
}

fn some(v: &str) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for word in v.split(',') {
        let known = Check::ALL.into_iter().find(|c| c.name() == word);
        let check = known.filter(|c| !checks.contains(c)).ok_or_else(|| {
            Failure(format!(
                "--checks {v}: '{word}': there are concerns, transactions and retries, each once"
            ))
        })?;
        checks.push(check);
    }
    Ok(checks)
}

fn kinds(v: &str) -> Result<Vec<Crash>> {
    Ok(match v {
        "process" => vec![Crash::Process],
        "power" => vec![Crash::Power],
        "both" => vec![Crash::Process, Crash::Power],
        other => {
            return Err(Failure(format!(
                "--crash {other}: there are process, power and both"
            )));
        }
    })
}

fn whole(name: &str, v: &str, least: u64, most: u64) -> Result<u64> {
    let n = v.parse().ok().filter(|n| (least..=most).contains(n));
    n.ok_or_else(|| Failure(format!("--{name} {v}: it must be {least} to {most}")))
}

fn real(name: &str, v: &str, least: f64, most: f64) -> Result<f64> {
    let n = v.parse().ok().filter(|n| (least..=most).contains(n));
    n.ok_or_else(|| {
        Failure(format!(
            "--{name} {v}: it must be {least} to {most} seconds"
        ))
    })
}

/// Runs it.
///
/// # Errors
/// A promise that was broken, or an audit that could not be run.
pub fn run(o: &Options) -> Result<()> {
    stop::install();
    let endpoint = o.uri.clone().map_or(Endpoint::Embedded, Endpoint::Server);
    let mut lab = Lab::new(endpoint, o.preset, o.output.data.clone());
    cli::single(
        &mut lab,
        &o.output,
        "audit",
        "Durability audit",
        |lab, out| {
            let mut rows: Vec<Row> = Vec::new();
            let ran = super::run(lab, &o.plan, |row| rows.push(row));
            let broken = output::write_down(&rows, &o.plan, out);
            ran?;
            match broken.as_slice() {
                [] => Ok(()),
                some => Err(Failure(some.join("; "))),
            }
        },
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(args: &[&str]) -> Result<Option<Options>> {
        parse(args.iter().map(OsString::from).collect())
    }

    #[test]
    fn what_is_understood() {
        let o = parsed(&[]).unwrap().unwrap();
        assert_eq!((o.plan.rounds, o.plan.threads), (2, 4));
        let names: Vec<_> = o.plan.concerns.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["w:0", "w:1", "j:true", "majority"]);
        assert_eq!(o.plan.crashes, kinds("both").unwrap());
        assert_eq!(o.plan.checks, Check::ALL);
        let o = parsed(&["--checks", "retries,concerns"]).unwrap().unwrap();
        assert_eq!(o.plan.checks, [Check::Retries, Check::Concerns]);
        let o = parsed(&["--concerns", "w:1"]).unwrap().unwrap();
        assert_eq!(o.plan.checks, [Check::Concerns]);
        let line = "--rounds 3 --seconds 0.5 --threads 2 --concerns w:1 --crash power --seed 9 --sync-delay 1000 --journalCommitInterval 500 --preset quick --out d --json j --data t";
        let o = parsed(&line.split(' ').collect::<Vec<_>>())
            .unwrap()
            .unwrap();
        let p = &o.plan;
        assert_eq!((p.rounds, p.threads, p.seed), (3, 2, 9));
        assert_eq!((p.sync_us, p.journal_ms, p.seconds), (1000, Some(500), 0.5));
        assert_eq!(p.crashes, [Crash::Power]);
        let o = parsed(&["--uri", "mongodb://h:1", "--start", "x {port}"])
            .unwrap()
            .unwrap();
        assert_eq!(o.plan.crashes, [Crash::Process]);
        let t = o.plan.templates.unwrap();
        assert_eq!((t.kill, t.start), (None, Some("x {port}".into())));
        assert!(parsed(&["--uri", "mongodb://h/?replicaSet=r"]).is_ok());
        assert!(parsed(&["--help"]).unwrap().is_none());
    }

    #[test]
    fn a_set_of_our_own() {
        let o = parsed(&["--topology", "set"]).unwrap().unwrap().plan;
        assert_eq!((o.members, o.rounds, o.templates), (Some(3), 1, None));
        let three = [Fault::KillPrimary, Fault::KillMajority, Fault::CutPrimary];
        assert_eq!(o.crashes, three.map(Crash::Fault));
        assert_eq!(o.concerns.len(), 6);
        assert_eq!(o.checks, Check::ALL);
        let faults = |line: &str| {
            let o = parsed(&line.split(' ').collect::<Vec<_>>());
            o.unwrap().unwrap().plan.crashes.len()
        };
        assert_eq!(faults("--topology set --preset paper"), 7);
        assert_eq!(faults("--topology set --preset paper --members 5"), 8);
        assert_eq!(faults("--topology set --faults kill-all,cut-majority"), 2);
    }

    #[test]
    fn what_is_refused_and_why() {
        for (line, why) in [
            ("--topology ring", "--topology ring: there is set"),
            ("--members 3", "--members belongs to --topology set"),
            ("--faults kill-all", "--faults belongs to --topology set"),
            ("--topology set --members 8", "it must be 3 to 7"),
            ("--topology set --faults kill", "'kill': there are"),
            (
                "--topology set --crash power",
                "--crash belongs to a single",
            ),
            (
                "--topology set --uri mongodb://h",
                "does not belong to --uri",
            ),
            ("--crash sabotage", "there are process, power and both"),
            (
                "--crash power --uri mongodb://h --start x",
                "needs the embedded server",
            ),
            ("--uri mongodb://h", "--start is needed"),
            (
                "--uri mongodb://h/?replicaSet=r&directConnection=true",
                "--start is needed",
            ),
            ("--kill x", "--kill belongs to an external server"),
            ("--start x", "--start belongs to an external"),
            ("--stop-wait 3", "--stop-wait belongs to an external"),
            (
                "--crash process --sync-delay 5",
                "--sync-delay belongs to --crash power",
            ),
            ("--journalCommitInterval 501", "it must be 1 to 500"),
            (
                "--journalCommitInterval 5 --uri mongodb://h --start x",
                "belongs to the embedded",
            ),
            ("--rounds 0", "--rounds 0: it must be 1 to"),
            ("--seconds soon", "--seconds soon: it must be"),
            ("--concerns maj", "'maj' is no write concern"),
            ("--preset huge", "there are smoke, quick and paper"),
            ("--checks concerns,fast", "'fast': there are concerns"),
            ("--checks retries,retries", "each once"),
            (
                "--checks retries --concerns w:1",
                "--concerns belongs to --checks concerns",
            ),
            ("--fast", "no option --fast"),
            ("--core-hour 1", "no option --core-hour"),
            ("w1", "unexpected argument"),
        ] {
            let e = parsed(&line.split(' ').collect::<Vec<_>>()).unwrap_err().0;
            assert!(e.contains(why), "{line}: {e}");
        }
    }

    #[test]
    fn help_names_every_option() {
        for o in [
            "checks",
            "concerns",
            "crash",
            "rounds",
            "seconds",
            "threads",
            "seed",
            "preset",
            "journalCommitInterval",
            "sync-delay",
            "uri",
            "kill",
            "start",
            "stop-wait",
            "topology",
            "members",
            "faults",
            "json",
            "out",
            "data",
        ] {
            assert!(HELP.contains(&format!("--{o} ")), "{o}");
        }
    }
}
