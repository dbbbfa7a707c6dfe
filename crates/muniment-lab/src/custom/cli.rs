//! The command line of `muniment bench run …`: runs a workload from a file, or one that comes with
//! the lab.

use super::{Plan, builtin, experiment, sample, set};
use crate::cli::{self, Output};
use crate::commands::{self, Spec};
use crate::lab::{Lab, Preset};
use crate::stdout::say;
use crate::targets::{self, Named};
use crate::vary::settings::Dimension;
use crate::vary::{self, Request, rates};
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::stop;
use muniment_options::{Given, Group, HELP, Opt, Page};
use std::fmt::Write;
use std::process::ExitCode;

/// The parsed command line.
#[derive(Debug)]
pub(crate) struct Options {
    plan: Plan,
    /// The workload's file, and a digest that distinguishes versions of its text.
    file: String,
    preset: Preset,
    set: Vec<(String, String)>,
    targets: Vec<Named>,
    turns: Option<usize>,
    vary: Vec<Dimension>,
    rates: Vec<u64>,
    cache_gb: Option<f64>,
    output: Output,
}

/// The outcome of parsing the command line.
#[derive(Debug)]
pub(crate) enum Command {
    /// Run a workload.
    Run(Box<Options>),
    /// A text is to be printed and the program ends.
    Print(String),
}

/// The command `muniment bench run`.
pub(crate) const COMMAND: Spec = Spec {
    name: "run",
    arguments: "FILE.toml|BUILT-IN [OPTIONS]",
    about: "a workload of your own, described in a TOML file, or a built-in one",
    page,
    run: |given| match command(given)? {
        Command::Run(o) => Ok(commands::ended(run(&o))),
        Command::Print(text) => {
            say(&text);
            Ok(ExitCode::SUCCESS)
        }
    },
};

fn page() -> Page {
    let mut settings = String::from("\nSettings:\n");
    for set::Key { name, about, .. } in set::KEYS {
        let _ = writeln!(settings, "  {name:<13} {about}");
    }
    Page {
        head: format!(
            "\
Runs a workload of your own, or one that comes with the lab.

Usage: muniment bench run FILE.toml|BUILT-IN [OPTIONS]

docs/workloads.md describes the file. The workloads that come with the lab are such files:
--print shows one, to begin with.

Built in:
{}
",
            builtin::list()
        ),
        groups: vec![
            Group::new("Options", OPTIONS),
            Group::untitled(targets::OPTIONS),
            Group::untitled(Output::OPTIONS),
            Group::untitled(&[HELP]),
        ],
        foot: settings,
        words: true,
        offers: builtin::ALL.iter().map(|b| b.name).collect(),
        files: true,
        ..Page::default()
    }
}

const OPTIONS: &[Opt] = &[
    Preset::option(
        "smoke, quick or paper: which of several numbers the file's are; default smoke",
    ),
    Opt::text("set", "KEY=VALUE", "change a setting; may be repeated"),
    Opt::flag("print", "print the file and end"),
    Opt::flag(
        "sample",
        "print a document of each template and one of each operation, and end",
    ),
    Opt::text(
        "vary",
        "KEY=V,V,…",
        "measure every combination of these settings (KEY=V,V,… KEY=…), in turns; A..B stands for A, \
         its doublings and B (threads=1..48)",
    )
    .more(|word| word.contains('=')),
    Opt::text(
        "rates",
        "A..B",
        "find the knee by adding workers, then send at A, A+10, …, B % of its rate at random moments \
         (open loop); or a list of percentages",
    ),
    cli::turns("in how many turns variants are measured; default 5"),
    cli::CACHE,
];

/// Understands the parsed arguments.
///
/// # Errors
/// The workload makes no sense, or options contradict each other.
fn command(given: &Given) -> Result<Command> {
    let name = match given.text_words()?.as_slice() {
        [] => {
            return Err(Failure(format!(
                "it needs a file, or one of the built-in workloads:\n{}",
                builtin::list()
            )));
        }
        [name] => *name,
        [_, other, ..] => {
            return Err(Failure(format!(
                "{other}: one workload can be run at a time"
            )));
        }
    };
    let set = given.texts("set").map(|v| {
        let pair = v
            .split_once('=')
            .map(|(k, v)| (k.to_string(), v.to_string()));
        pair.ok_or_else(|| Failure(format!("--set {v}: it must be KEY=VALUE")))
    });
    let set: Vec<(String, String)> = set.collect::<Result<_>>()?;
    let vary = given.texts("vary").map(Dimension::parse);
    let vary: Vec<Dimension> = vary.collect::<Result<_>>()?;
    let rates = given.text("rates").map(rates::parse).transpose()?;
    let rates = rates.unwrap_or_default();
    let targets = targets::of(given)?;
    agree(given, &targets)?;
    let preset = Preset::of(given);
    let mut plan = Plan::read(name, preset)?;
    let text = match builtin::named(name) {
        Some(b) => b.text.to_string(),
        None => std::fs::read_to_string(name).context(&format!("reading {name}"))?,
    };
    for (key, value) in &set {
        plan.set(key, value).map_err(|e| e.while_doing("--set"))?;
    }
    if given.has("print") {
        return Ok(Command::Print(text));
    }
    if given.has("sample") {
        return Ok(Command::Print(sample::of(&plan)?));
    }
    Ok(Command::Run(Box::new(Options {
        file: format!("{name}, {:016x}", digest(&text)),
        plan,
        preset,
        set,
        targets,
        turns: given.whole("turns").map(|n| n as usize),
        vary,
        rates,
        cache_gb: given.real(cli::CACHE.name),
        output: Output::of(given),
    })))
}

/// Refuses options that contradict each other.
fn agree(given: &Given, targets: &[Named]) -> Result<()> {
    let external = !targets.is_empty() && targets.iter().all(|t| t.endpoint.is_external());
    let why = if given.has(cli::CACHE.name) && external {
        "--cacheSizeGB belongs to embedded servers, and there is none"
    } else if given.has("rates") && (given.has("vary") || targets.len() > 1) {
        "--rates goes with one target and without --vary"
    } else if given.has("turns") && !given.has("vary") && targets.len() < 2 {
        "--turns belongs to --vary and to several --target: there is nothing to take turns"
    } else if given.has("print") && given.has("set") {
        "--print shows the file as it is: --set has no effect on it"
    } else {
        return Ok(());
    };
    Err(Failure::new(why))
}

/// A digest that distinguishes two versions of a file: FNV-1a with 64 bits.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Runs the workload.
///
/// # Errors
/// There is no server, or the workload failed on it.
pub(crate) fn run(o: &Options) -> Result<()> {
    stop::install();
    let endpoint = targets::only(&o.targets);
    let mut lab = Lab::new(endpoint, o.preset, o.output.data.clone());
    lab.environment
        .push(("Workload file".into(), o.file.clone()));
    let set: Vec<String> = o.set.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let title = match set.as_slice() {
        [] => format!("Workload {}", o.plan.name),
        some => format!("Workload {}, {}", o.plan.name, some.join(", ")),
    };
    let varied = (!o.vary.is_empty() || o.targets.len() > 1).then(|| Request {
        plan: o.plan.clone(),
        dimensions: o.vary.clone(),
        targets: o.targets.clone(),
        turns: o.turns.unwrap_or(cli::DEFAULT_TURNS),
        cache_gb: o.cache_gb,
    });
    if let Some(r) = &varied {
        vary::check(r)?;
    }
    cli::single(
        &mut lab,
        &o.output,
        "run",
        &title,
        |lab, out| match &varied {
            Some(r) => vary::run(lab, r, out),
            None if !o.rates.is_empty() => rates::run(lab, &o.plan, &o.rates, o.cache_gb, out),
            None => experiment(lab, &o.plan, o.cache_gb, out),
        },
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn parsed(line: &str) -> Result<Command> {
        command(&page().parse(line.split_whitespace().map(Into::into))?)
    }

    #[test]
    fn what_is_understood() {
        let Command::Run(o) =
            parsed("insert --preset quick --set threads=3 --set w=0 --out d").unwrap()
        else {
            panic!("not a run");
        };
        assert_eq!(o.plan.name, "insert");
        assert_eq!(o.plan.runs()[0].threads, 3);
        assert!(o.plan.runs()[0].work[0].silent());
        assert_eq!(o.output.dir, Some(std::path::PathBuf::from("d")));
        let line =
            "insert --vary w=0,1 threads=1..4 --turns 6 --target a=embedded --target b=embedded";
        let Command::Run(o) = parsed(line).unwrap() else {
            panic!("not a run");
        };
        let keys: Vec<_> = o.vary.iter().map(|d| d.key.as_str()).collect();
        assert_eq!((keys, o.turns), (vec!["w", "threads"], Some(6)));
        assert_eq!(o.targets.len(), 2);
        for (line, has) in [
            ("insert --print", "[[collection]]"),
            ("orders --sample", "[template.order]"),
        ] {
            let Command::Print(text) = parsed(line).unwrap() else {
                panic!("{line} prints");
            };
            assert!(text.contains(has), "{text}");
        }
    }

    #[test]
    fn what_is_refused_and_why() {
        for (line, why) in [
            (
                "",
                "it needs a file, or one of the built-in workloads:\n  insert",
            ),
            (
                "insrt",
                "insrt is neither a file that can be read nor a built-in workload (is 'insert' meant?",
            ),
            ("insert orders", "one workload can be run at a time"),
            ("insert --fast", "no option '--fast'"),
            ("insert --set", "needs a value"),
            ("insert --set threads", "it must be KEY=VALUE"),
            (
                "insert --set thread=1",
                "there is no setting 'thread': is 'threads' meant?",
            ),
            (
                "insert --set threads=0",
                "threads=0: threads must be a whole number from 1",
            ),
            ("insert --preset huge", "there are smoke, quick and paper"),
            (
                "insert --cacheSizeGB much",
                "--cacheSizeGB much: it must be GiB, above 0",
            ),
            (
                "insert --uri mongodb://h:1 --cacheSizeGB 1",
                "belongs to embedded servers",
            ),
            ("insert --vary threads", "must be KEY=VALUE"),
            ("insert --rates 0..10", "percentages of the knee's rate"),
            (
                "insert --rates 10..50 --vary w=0,1",
                "--rates goes with one target and without --vary",
            ),
            ("insert --turns 3", "nothing to take turns"),
            ("insert --print --set w=1", "--set has no effect"),
        ] {
            let e = parsed(line).unwrap_err().0;
            assert!(e.contains(why), "{line}: {e}");
        }
    }
}
