//! `muniment bench run …`: a workload from a file, or one that comes with the lab.

use super::{Plan, builtin, experiment, sample, set};
use crate::cli::{self, Output};
use crate::commands::{self, Spec};
use crate::fail::{Failure, Result};
use crate::lab::{Lab, Preset};
use crate::stdout::say;
use crate::stop;
use crate::targets::{self, Given, Named};
use crate::vary::settings::Dimension;
use crate::vary::{self, Request, rates};
use std::ffi::OsString;
use std::fmt::Write;
use std::process::ExitCode;

/// What was asked for.
#[derive(Debug)]
pub struct Options {
    plan: Plan,
    preset: Preset,
    set: Vec<(String, String)>,
    targets: Vec<Named>,
    turns: Option<usize>,
    vary: Vec<Dimension>,
    rates: Vec<u64>,
    cache_gb: Option<f64>,
    output: Output,
}

/// What a command line means.
#[derive(Debug)]
pub enum Command {
    /// Run a workload.
    Run(Box<Options>),
    /// Print this and end.
    Print(String),
}

/// `muniment bench run`.
pub const COMMAND: Spec = Spec {
    name: "run",
    arguments: "FILE.toml|BUILT-IN [OPTIONS]",
    about: "a workload of your own, described in a TOML file, or a built-in one",
    run: |args| match parse(&args) {
        Ok(Command::Run(o)) => commands::ended(run(&o)),
        Ok(Command::Print(text)) => {
            say(&text);
            ExitCode::SUCCESS
        }
        Err(e) => commands::misused("run", &e),
    },
};

/// `muniment bench run --help`.
pub fn help() -> String {
    let mut o = String::from(
        "\
Runs a workload of your own, or one that comes with the lab.

Usage: muniment bench run FILE.toml|BUILT-IN [OPTIONS]

docs/workloads.md describes the file. The workloads that come with the lab are such files:
--print shows one, to begin with.

Built in:
",
    );
    o.push_str(&builtin::list());
    o.push_str(
        "
Options:
  --preset PRESET  smoke, quick or paper: which of several numbers the file's are;
                   default smoke
  --set KEY=VALUE  change a setting; may be repeated
  --print          print the file and end
  --sample         print a document of each template and one of each operation, and end
  --vary KEY=V,V,… [KEY=…]…
                   measure every combination of these settings, in turns; A..B stands for A,
                   its doublings and B (threads=1..48)
  --rates A..B     find the knee by adding workers, then send at A, A+10, …, B % of its rate
                   at random moments (open loop); or a list of percentages
  --turns N        in how many turns variants are measured; default 5
  --cacheSizeGB N  cache of embedded servers
",
    );
    o.push_str(Given::HELP);
    o.push_str(Output::HELP);
    o.push_str("  -h, --help       this text\n\nSettings:\n");
    for (key, about) in set::KEYS {
        let _ = writeln!(o, "  {key:<13} {about}");
    }
    o
}

/// Understands the arguments behind `run`.
///
/// # Errors
/// An option that there is not; a workload that makes no sense.
pub fn parse(args: &[OsString]) -> Result<Command> {
    let mut name: Option<&str> = None;
    let (mut print, mut samples) = (false, false);
    let mut preset = Preset::Smoke;
    let mut set = Vec::new();
    let (mut targets, mut cache_gb, mut output) = (Given::default(), None, Output::default());
    let (mut turns, mut vary, mut rates) = (None, Vec::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let arg = text(arg)?;
        let mut value = || {
            let v = args.next();
            v.ok_or_else(|| Failure(format!("option {arg} needs a value")))
        };
        match arg {
            "-h" | "--help" | "help" => return Ok(Command::Print(help())),
            "--print" => print = true,
            "--sample" => samples = true,
            "--preset" => preset = Preset::named(text(value()?)?)?,
            "--set" => {
                let v = text(value()?)?;
                let (key, value) = v
                    .split_once('=')
                    .ok_or_else(|| Failure(format!("--set {v}: it must be KEY=VALUE")))?;
                set.push((key.to_string(), value.to_string()));
            }
            "--turns" => turns = Some(cli::turns(text(value()?)?)?),
            "--rates" => rates = rates::parse(text(value()?)?)?,
            "--vary" => {
                vary.push(Dimension::parse(text(value()?)?)?);
                // More of them may follow without saying it again.
                while let Some(next) = args.as_slice().first().and_then(|a| a.to_str())
                    && !next.starts_with('-')
                    && next.contains('=')
                {
                    vary.push(Dimension::parse(next)?);
                    args.next();
                }
            }
            "--cacheSizeGB" => {
                cache_gb = Some(cli::cache_size(text(value()?)?)?);
            }
            other if other.starts_with('-') => {
                let long = other.strip_prefix("--").unwrap_or_default();
                if output.take(long, || value().cloned())?
                    || targets.take(long, || Ok(text(value()?)?.to_string()))?
                {
                    continue;
                }
                return Err(Failure(format!(
                    "there is no option '{other}' (try muniment bench run --help)"
                )));
            }
            other if name.is_none() => name = Some(other),
            other => {
                return Err(Failure(format!(
                    "{other}: one workload can be run at a time"
                )));
            }
        }
    }
    let name = name.ok_or_else(|| {
        Failure(format!(
            "it needs a file, or one of the built-in workloads:\n{}",
            builtin::list()
        ))
    })?;
    let targets = targets.all();
    if cache_gb.is_some() && !targets.is_empty() && targets.iter().all(|t| t.endpoint.is_external())
    {
        return Err(Failure::new(
            "--cacheSizeGB belongs to embedded servers, and there is none",
        ));
    }
    if !rates.is_empty() && (!vary.is_empty() || targets.len() > 1) {
        return Err(Failure::new(
            "--rates goes with one target and without --vary",
        ));
    }
    if turns.is_some() && vary.is_empty() && targets.len() < 2 {
        return Err(Failure::new(
            "--turns belongs to --vary and to several --target: there is nothing to take turns",
        ));
    }
    let mut plan = Plan::read(name, preset)?;
    for (key, value) in &set {
        plan.set(key, value).map_err(|e| e.while_doing("--set"))?;
    }
    if print && !set.is_empty() {
        return Err(Failure::new(
            "--print shows the file as it is: --set has no effect on it",
        ));
    }
    if print {
        let text = match builtin::named(name) {
            Some(b) => b.text.to_string(),
            None => std::fs::read_to_string(name)?,
        };
        return Ok(Command::Print(text));
    }
    if samples {
        return Ok(Command::Print(sample::of(&plan)?));
    }
    Ok(Command::Run(Box::new(Options {
        plan,
        preset,
        set,
        targets,
        turns,
        vary,
        rates,
        cache_gb,
        output,
    })))
}

fn text(v: &OsString) -> Result<&str> {
    v.to_str()
        .ok_or_else(|| Failure(format!("{} is not UTF-8", v.to_string_lossy())))
}

/// Runs it.
///
/// # Errors
/// No server, a workload that failed on it.
pub fn run(o: &Options) -> Result<()> {
    stop::install();
    let endpoint = targets::only(&o.targets);
    let mut lab = Lab::new(endpoint, o.preset, o.output.data.clone());
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
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse(&args)
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
        assert_eq!(o.output.dir, std::path::PathBuf::from("d"));
        let line =
            "insert --vary w=0,1 threads=1..4 --turns 6 --target a=embedded --target b=embedded";
        let Command::Run(o) = parsed(line).unwrap() else {
            panic!("not a run");
        };
        let keys: Vec<_> = o.vary.iter().map(|d| d.key.as_str()).collect();
        assert_eq!((keys, o.turns), (vec!["w", "threads"], Some(6)));
        assert_eq!(o.targets.len(), 2);
        for (line, has) in [
            ("--help", "Usage: muniment bench run"),
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
