//! The command line of `muniment bench audit …`.

use super::concern::{self, Crash};
use super::fault::Fault;
use super::victim::Templates;
use super::{Check, Plan, Row};
use crate::cli::{self, Output};
use crate::commands::{self, Spec};
use crate::lab::{Lab, Preset};
use crate::report::experiments;
use crate::targets::Endpoint;
use crate::uri;
use muniment_load::fail::{Failure, Result};
use muniment_load::stop;
use muniment_options::{Given, Group, HELP, Opt, Page, Takes};
use std::time::Duration;

/// The command `audit`.
pub(crate) const COMMAND: Spec = Spec {
    name: "audit",
    arguments: "[OPTIONS]",
    about: "durability: what is lost when the server is crashed under load",
    page,
    run: |given| Ok(commands::ended(run(&options(given)?))),
};

fn page() -> Page {
    Page {
        head: "\
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

"
        .into(),
        groups: vec![
            Group::new("Options", OPTIONS),
            Group::new("Embedded servers", EMBEDDED),
            Group::new("External servers", EXTERNAL)
                .note("Commands are run by 'sh -c'; {host} {port} {pid} {dbpath} are filled in.\n"),
            Group::new("A set of the lab's own", SET),
            // `--core-hour` is left out, because an audit has no table of cost.
            Group::new(
                "Output",
                &[cli::JSON, cli::OUT, cli::DATA, cli::TABLES, cli::TUI, HELP],
            ),
        ],
        foot: "
Ends with 0 when every promise was kept, 1 when one was broken or the audit could not be
run to its end, 2 when the arguments make no sense. It works in the database
muniment_bench, which it drops before and after.
"
        .into(),
        ..Page::default()
    }
}

const OPTIONS: &[Opt] = &[
    Opt::text(
        "checks",
        "LIST",
        "concerns: single commands under each of them; transactions: all or nothing; retries: exactly \
         once (default: all three, or concerns with --concerns)",
    ),
    Opt::text(
        "concerns",
        "LIST",
        "write concerns: w:N, w:MODE, majority, j:true, j:false, fsync:true, joined with + (default \
         w:0,w:1,j:true,majority)",
    ),
    Opt::new(
        "crash",
        "KIND",
        Takes::OneOf(&["process", "power", "both"]),
        "process, power or both (default: what there is)",
    ),
    Opt::new(
        "rounds",
        "N",
        Takes::Whole(1, 1_000_000),
        "crashes for each write concern and kind (smoke 2, quick 10, paper 50)",
    ),
    Opt::new(
        "seconds",
        "S",
        Takes::Real(0.01, 3600.0, "seconds"),
        "the longest time until a crash (smoke 0.6, quick 1, paper 2)",
    ),
    Opt::new("threads", "T", Takes::Whole(1, 1000), "writers (4)"),
    Opt::new(
        "seed",
        "N",
        Takes::Whole(0, u64::MAX),
        "where moments and documents come from (default: the clock)",
    ),
    Preset::option("smoke, quick or paper: sets rounds and seconds; default smoke"),
];

const EMBEDDED: &[Opt] = &[
    Opt::new(
        "journalCommitInterval",
        "MS",
        Takes::Whole(1, 500),
        "theirs, 1 to 500 (100)",
    ),
    Opt::new(
        "sync-delay",
        "US",
        Takes::Whole(0, 10_000_000),
        "microseconds that each sync takes longer on power loss",
    ),
];

const EXTERNAL: &[Opt] = &[
    Opt::text(
        "uri",
        "URI",
        "mongodb://host[:port][,host…][/?replicaSet=NAME]",
    ),
    Opt::text(
        "kill",
        "CMD",
        "brings it down (default on this host: kill -9 {pid})",
    ),
    Opt::text(
        "start",
        "CMD",
        "starts it; may be left out for a replica set",
    ),
    Opt::new(
        "stop-wait",
        "S",
        Takes::Real(0.0, 3600.0, "seconds"),
        "how long it may take to be gone after --kill (10)",
    ),
];

const SET: &[Opt] = &[
    Opt::new(
        "topology",
        "set",
        Takes::OneOf(&["set"]),
        "start it (default write concerns: w:0,w:1,j:true,w:2,majority,w:byTags, the last a mode of \
         tags that needs a majority)",
    ),
    Opt::new("members", "N", Takes::Whole(3, 7), "3 to 7 (3)"),
    Opt::text(
        "faults",
        "LIST",
        "kill-primary, kill-majority, kill-all, cut-primary, cut-primary-out (it is not heard), \
         cut-primary-in (it does not hear), cut-majority (with as many others as are no majority), \
         freeze-primary (SIGSTOP, and SIGCONT after an election); default all, smoke three of them",
    ),
];

/// The parsed command line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    plan: Plan,
    preset: Preset,
    uri: Option<uri::Uri>,
    output: Output,
}

/// Understands the arguments of the audit.
///
/// # Errors
/// A value makes no sense, or options contradict each other.
fn options(given: &Given) -> Result<Options> {
    let preset = Preset::of(given);
    let uri = given.text("uri").map(uri::parse).transpose()?;
    let concerns = given
        .text("concerns")
        .map(concern::parse_list)
        .transpose()?;
    let faults = given.text("faults").map(Fault::list).transpose()?;
    let checks = match given.text("checks") {
        Some(list) => some(list)?,
        // A command line that names write concerns and no checks asks about nothing else.
        None if concerns.is_some() => vec![Check::Concerns],
        None => Check::ALL.to_vec(),
    };
    let topology = given.has("topology");
    let members = given.whole("members").unwrap_or(3) as usize;
    let members = topology.then_some(members);
    let crashes: Vec<Crash> = match (members, given.text("crash")) {
        (Some(n), _) => {
            let faults = faults.unwrap_or_else(|| usual_faults(preset, n));
            faults.into_iter().map(Crash::Fault).collect()
        }
        (None, Some(kind)) => kinds(kind),
        (None, None) if powerloss_image::LAYER.is_some() && uri.is_none() => kinds("both"),
        (None, None) => kinds("process"),
    };
    belong(given, &checks, crashes.contains(&Crash::Power))?;
    possible(given, uri.as_ref(), crashes.contains(&Crash::Power))?;
    let usual = match topology {
        true => "w:0,w:1,j:true,w:2,majority,w:byTags",
        false => "w:0,w:1,j:true,majority",
    };
    let clock = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |d| d.as_secs())
    };
    let templates = || Templates {
        kill: given.text("kill").map(str::to_string),
        start: given.text("start").map(str::to_string),
        stop_wait: Duration::from_secs_f64(given.real("stop-wait").unwrap_or(10.0)),
    };
    Ok(Options {
        plan: Plan {
            // A set is crashed in more ways and takes longer to recover, so it gets fewer rounds of
            // each kind.
            rounds: given.whole("rounds").unwrap_or_else(|| match topology {
                true => preset.pick(1, 3, 10),
                false => preset.pick(2, 10, 50),
            }),
            seconds: given
                .real("seconds")
                .unwrap_or_else(|| preset.pick(0.6, 1.0, 2.0)),
            threads: given.whole("threads").unwrap_or(4) as usize,
            checks,
            concerns: match concerns {
                Some(some) => some,
                None => concern::parse_list(usual)?,
            },
            crashes,
            seed: given.whole("seed").unwrap_or_else(clock),
            sync_us: given.whole("sync-delay").unwrap_or(0),
            journal_ms: given.whole("journalCommitInterval"),
            templates: uri.is_some().then(templates),
            members,
        },
        preset,
        uri,
        output: Output::of(given),
    })
}

/// Refuses options about something that this audit does not have; they would be ignored silently
/// otherwise.
fn belong(given: &Given, checks: &[Check], power: bool) -> Result<()> {
    let (topology, external) = (given.has("topology"), given.has("uri"));
    const SET: &str = "--topology set";
    const SINGLE: &str = "a single server, not to --topology";
    const EXTERNAL: &str = "an external server: give --uri";
    for (name, there, with) in [
        (
            "concerns",
            checks.contains(&Check::Concerns),
            "--checks concerns",
        ),
        ("members", topology, SET),
        ("faults", topology, SET),
        ("crash", !topology, SINGLE),
        ("journalCommitInterval", !topology, SINGLE),
        (
            "journalCommitInterval",
            !external,
            "the embedded server, not to --uri",
        ),
        (
            "sync-delay",
            power,
            "--crash power, whose file layer delays the syncs",
        ),
        ("kill", external, EXTERNAL),
        ("start", external, EXTERNAL),
        ("stop-wait", external, EXTERNAL),
    ] {
        if given.has(name) && !there {
            return Err(Failure(format!("--{name} belongs to {with}")));
        }
    }
    Ok(())
}

/// Refuses an audit that this target or this build does not allow.
fn possible(given: &Given, uri: Option<&uri::Uri>, power: bool) -> Result<()> {
    if given.has("topology") && uri.is_some() {
        return Err(Failure::new(
            "--topology starts members itself: it does not belong to --uri",
        ));
    }
    if power && powerloss_image::LAYER.is_none() {
        return Err(Failure::new(
            "--crash power: the file layer that drops what was not synced replaces calls of glibc on Linux, and this build is for another system; --crash process works",
        ));
    }
    if uri.is_some() && power {
        return Err(Failure::new(
            "--crash power needs the embedded server, which runs on a file layer that drops what was never synced; with --uri there is only --crash process",
        ));
    }
    let set = uri.is_some_and(|u| u.replica_set.is_some() && !u.direct);
    if uri.is_some() && !given.has("start") && !set {
        return Err(Failure::new(
            "--start is needed: a command that starts the server again, for example --start 'systemctl start mongod'; only a replica set (replicaSet=NAME in --uri) goes on without",
        ));
    }
    Ok(())
}

/// The faults of a set of so many members, if the command line names none.
fn usual_faults(preset: Preset, members: usize) -> Vec<Fault> {
    let shortest = [Fault::KillPrimary, Fault::CutPrimary, Fault::KillMajority];
    let all = Fault::ALL.into_iter().filter(|f| match preset {
        Preset::Smoke => shortest.contains(f),
        // In a set where the primary cannot take another member along and still be a minority, this
        // fault would be the same as cutting off the primary alone.
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

/// The crashes that the value of `--crash` stands for.
fn kinds(kind: &str) -> Vec<Crash> {
    match kind {
        "process" => vec![Crash::Process],
        "power" => vec![Crash::Power],
        _ => vec![Crash::Process, Crash::Power],
    }
}

/// Runs the audit.
///
/// # Errors
/// A promise was broken, or the audit could not be run.
pub(crate) fn run(o: &Options) -> Result<()> {
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
            experiments::audit::tell(&rows, &o.plan, out);
            ran?;
            let wrong: Vec<String> = rows.iter().filter_map(Row::wrong).collect();
            match wrong.as_slice() {
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

    fn parsed(args: &[&str]) -> Result<Options> {
        options(&page().parse(args.iter().map(Into::into))?)
    }

    #[test]
    fn what_is_understood() {
        let o = parsed(&[]).unwrap();
        assert_eq!((o.plan.rounds, o.plan.threads), (2, 4));
        let names: Vec<_> = o.plan.concerns.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["w:0", "w:1", "j:true", "majority"]);
        assert_eq!(o.plan.crashes, kinds("both"));
        assert_eq!(o.plan.checks, Check::ALL);
        let o = parsed(&["--checks", "retries,concerns"]).unwrap();
        assert_eq!(o.plan.checks, [Check::Retries, Check::Concerns]);
        let o = parsed(&["--concerns", "w:1"]).unwrap();
        assert_eq!(o.plan.checks, [Check::Concerns]);
        let line = "--rounds 3 --seconds 0.5 --threads 2 --concerns w:1 --crash power --seed 9 --sync-delay 1000 --journalCommitInterval 500 --preset quick --out d --json j --data t";
        let o = parsed(&line.split(' ').collect::<Vec<_>>()).unwrap();
        let p = &o.plan;
        assert_eq!((p.rounds, p.threads, p.seed), (3, 2, 9));
        assert_eq!((p.sync_us, p.journal_ms, p.seconds), (1000, Some(500), 0.5));
        assert_eq!(p.crashes, [Crash::Power]);
        let o = parsed(&["--uri", "mongodb://h:1", "--start", "x {port}"]).unwrap();
        assert_eq!(o.plan.crashes, [Crash::Process]);
        let t = o.plan.templates.unwrap();
        assert_eq!((t.kill, t.start), (None, Some("x {port}".into())));
        assert!(parsed(&["--uri", "mongodb://h/?replicaSet=r"]).is_ok());
    }

    #[test]
    fn a_set_of_our_own() {
        let o = parsed(&["--topology", "set"]).unwrap().plan;
        assert_eq!((o.members, o.rounds, o.templates), (Some(3), 1, None));
        let three = [Fault::KillPrimary, Fault::KillMajority, Fault::CutPrimary];
        assert_eq!(o.crashes, three.map(Crash::Fault));
        assert_eq!(o.concerns.len(), 6);
        assert_eq!(o.checks, Check::ALL);
        let faults = |line: &str| {
            let o = parsed(&line.split(' ').collect::<Vec<_>>());
            o.unwrap().plan.crashes.len()
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
            ("--topology set --members 8", "a whole number from 3 to 7"),
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
            (
                "--journalCommitInterval 501",
                "a whole number from 1 to 500",
            ),
            (
                "--journalCommitInterval 5 --uri mongodb://h --start x",
                "belongs to the embedded",
            ),
            (
                "--rounds 0",
                "--rounds 0: it must be a whole number from 1 to",
            ),
            ("--seconds soon", "--seconds soon: it must be"),
            ("--concerns maj", "'maj' is no write concern"),
            ("--preset huge", "there are smoke, quick and paper"),
            ("--checks concerns,fast", "'fast': there are concerns"),
            ("--checks retries,retries", "each once"),
            (
                "--checks retries --concerns w:1",
                "--concerns belongs to --checks concerns",
            ),
            ("--fast", "no option '--fast'"),
            ("--core-hour 1", "no option '--core-hour'"),
            ("w1", "unexpected argument"),
        ] {
            let e = parsed(&line.split(' ').collect::<Vec<_>>()).unwrap_err().0;
            assert!(e.contains(why), "{line}: {e}");
        }
    }
}
