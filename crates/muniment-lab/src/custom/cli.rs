//! `muniment bench run …`: a workload from a file, or one that comes with the lab.

use super::{Plan, builtin, experiment, sample, set};
use crate::cli::{self, Output};
use crate::commands::{self, Spec};
use crate::fail::{Failure, Result};
use crate::lab::{Lab, Preset};
use crate::{stop, uri};
use std::ffi::OsString;
use std::fmt::Write;
use std::process::ExitCode;

/// What was asked for.
#[derive(Debug)]
pub struct Options {
    plan: Plan,
    preset: Preset,
    set: Vec<(String, String)>,
    uri: Option<uri::Uri>,
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
            print!("{text}");
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
  --uri URI        the server (default: an embedded one with temporary files)
  --cacheSizeGB N  cache of the embedded server
",
    );
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
    let (mut target, mut cache_gb, mut output) = (None, None, Output::default());
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
            "--preset" => {
                let v = text(value()?)?;
                let all = [Preset::Smoke, Preset::Quick, Preset::Paper];
                let found = all.into_iter().find(|p| p.name() == v);
                preset = found.ok_or_else(|| {
                    Failure(format!("--preset {v}: there are smoke, quick and paper"))
                })?;
            }
            "--set" => {
                let v = text(value()?)?;
                let (key, value) = v
                    .split_once('=')
                    .ok_or_else(|| Failure(format!("--set {v}: it must be KEY=VALUE")))?;
                set.push((key.to_string(), value.to_string()));
            }
            "--uri" => target = Some(uri::parse(text(value()?)?)?),
            "--cacheSizeGB" => {
                let v = text(value()?)?;
                let n = v.parse().ok().filter(|n| *n > 0.0);
                cache_gb = Some(n.ok_or_else(|| Failure(format!("--cacheSizeGB {v} is no size")))?);
            }
            other if other.starts_with('-') => {
                let long = other.strip_prefix("--").unwrap_or_default();
                if output.take(long, || value().cloned())? {
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
    if target.is_some() && cache_gb.is_some() {
        return Err(Failure::new(
            "--cacheSizeGB belongs to the embedded server, not to --uri",
        ));
    }
    let mut plan = Plan::read(name, preset)?;
    for (key, value) in &set {
        plan.set(key, value).map_err(|e| e.while_doing("--set"))?;
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
        uri: target,
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
    let mut lab = Lab::new(o.uri.clone(), o.preset, o.output.data.clone());
    let set: Vec<String> = o.set.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let title = match set.as_slice() {
        [] => format!("Workload {}", o.plan.name),
        some => format!("Workload {}, {}", o.plan.name, some.join(", ")),
    };
    cli::single(&mut lab, &o.output, "run", &title, |lab, out| {
        experiment(lab, &o.plan, o.cache_gb, out)
    })
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
                "insert --uri mongodb://h:1 --cacheSizeGB 1",
                "belongs to the embedded server",
            ),
        ] {
            let e = parsed(line).unwrap_err().0;
            assert!(e.contains(why), "{line}: {e}");
        }
    }
}
