//! `muniment bench …`: arguments, and what is run.

use crate::commands;
use crate::fail::{Failure, Result};
use crate::lab::{Lab, Preset};
use crate::report::Outcome;
use crate::session::Session;
use crate::stdout::say;
use crate::targets::{self, Named};
use crate::workloads::only::{self, Only};
use crate::workloads::options::{self, Given};
use crate::{custom, environment, stop, workloads, yardsticks};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// What was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Experiment names; empty for all of them.
    pub names: Vec<String>,
    /// What is measured; empty for an embedded server.
    pub targets: Vec<Named>,
    /// Turns in which several targets are measured.
    pub turns: usize,
    /// How much.
    pub preset: Preset,
    /// Where results go.
    pub output: Output,
    /// One yardstick alone.
    pub only: Option<u32>,
    /// Parts of experiments.
    pub parts: Only,
    /// The embedded servers' cache, GiB.
    pub cache_gb: Option<f64>,
    /// Options that belong to single experiments.
    pub given: Given,
}

/// As few as can show a difference.
pub const DEFAULT_TURNS: usize = crate::stats::MIN_PAIRS;

/// Where results go.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// JSON lines go here.
    pub json: Option<PathBuf>,
    /// The report goes here.
    pub dir: PathBuf,
    /// Temporary directories are made here.
    pub data: PathBuf,
    /// What an hour of a core costs.
    pub core_hour: Option<f64>,
    /// Take the whole terminal while it runs.
    pub full_screen: bool,
}

impl Output {
    /// What [`Output::take`] takes, for a help text.
    pub const HELP: &'static str =
        "  --json FILE      write every measurement and result as JSON lines
  --out DIR        write report.html and results.json here; default ./bench-report
  --data DIR       make the embedded server's temporary directory here
                   (default: the system's)
  --core-hour N    what an hour of a core costs: tables of cost show money
  --tui            a full-screen view while it runs
";

    /// Takes the option called `name` (without dashes) if it is one that every command with a
    /// report has; false if it is not.
    ///
    /// # Errors
    /// No value, or one that the option does not take.
    pub fn take(
        &mut self,
        name: &str,
        mut value: impl FnMut() -> Result<OsString>,
    ) -> Result<bool> {
        match name {
            "json" => self.json = Some(value()?.into()),
            "out" => self.dir = value()?.into(),
            "data" => self.data = value()?.into(),
            "tui" => self.full_screen = true,
            "core-hour" => {
                let v = text(value()?)?;
                let price = v.parse().ok().filter(|p: &f64| p.is_finite() && *p > 0.0);
                self.core_hour = Some(price.ok_or_else(|| {
                    Failure(format!("--core-hour {v}: it must be a number above 0"))
                })?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Default for Output {
    fn default() -> Output {
        Output {
            json: None,
            dir: PathBuf::from("bench-report"),
            data: std::env::temp_dir(),
            core_hour: None,
            full_screen: false,
        }
    }
}

/// Runs `muniment bench` with these arguments (without the program's and `bench`).
pub fn run(args: Vec<OsString>) -> ExitCode {
    if let Some(c) = args.first().and_then(|a| commands::named(a.to_str()?)) {
        return (c.run)(args.into_iter().skip(1).collect());
    }
    match parse(args) {
        Ok(Some(o)) => commands::ended(experiments(&o)),
        Ok(None) => {
            say(&help());
            ExitCode::SUCCESS
        }
        Err(e) => commands::misused("", &e),
    }
}

/// Understands the arguments of a run of experiments; `None` asks for help.
///
/// # Errors
/// An option or an experiment that there is not, a value that an option does not take.
pub fn parse(args: Vec<OsString>) -> Result<Option<Options>> {
    use lexopt::prelude::*;
    let mut o = Options {
        names: Vec::new(),
        targets: Vec::new(),
        turns: DEFAULT_TURNS,
        preset: Preset::Smoke,
        output: Output::default(),
        only: None,
        parts: Only::default(),
        cache_gb: None,
        given: Given::default(),
    };
    let mut targets = targets::Given::default();
    let mut turns = None;
    let mut p = lexopt::Parser::from_args(args);
    while let Some(arg) = p.next().map_err(said)? {
        match arg {
            Short('h') | Long("help") => return Ok(None),
            Long("turns") => turns = Some(self::turns(&text(p.value().map_err(said)?)?)?),
            Long("preset") => o.preset = Preset::named(&text(p.value().map_err(said)?)?)?,
            Long("only") => {
                let v = text(p.value().map_err(said)?)?;
                match v.parse() {
                    Ok(n) => o.only = Some(yardstick(n)?),
                    Err(_) => o.parts.add(&v)?,
                }
            }
            Long("cacheSizeGB") => {
                o.cache_gb = Some(cache_size(&text(p.value().map_err(said)?)?)?);
            }
            Long(name) if let Some((_, option)) = Given::known(name) => {
                let value = match option.value {
                    "" => String::new(),
                    _ => text(p.value().map_err(said)?)?,
                };
                o.given.set(option, value)?;
            }
            Long(name) => {
                let name = name.to_string();
                let taken = o.output.take(&name, || p.value().map_err(said))?
                    || targets.take(&name, || text(p.value().map_err(said)?))?;
                if !taken {
                    return Err(Failure(format!("invalid option '--{name}'")));
                }
            }
            Value(v) => {
                let v = text(v)?;
                match v.as_str() {
                    "yardsticks" => o.names.push(v),
                    "all" => {}
                    _ if !workloads::named(&v).is_empty() => o.names.push(v),
                    _ if commands::named(&v).is_some() => {
                        return Err(Failure(format!(
                            "'{v}' is a command and comes first, with its own options behind it"
                        )));
                    }
                    _ => {
                        return Err(Failure(format!(
                            "there is no experiment '{v}' (try {}, w4 or yardsticks)",
                            workloads::ALL
                                .iter()
                                .map(|s| s.name)
                                .collect::<Vec<_>>()
                                .join(", ")
                        )));
                    }
                }
            }
            other => return Err(said(other.unexpected())),
        }
    }
    o.given.belong(&o.names)?;
    if o.only.is_some() && o.names != ["yardsticks"] {
        return Err(Failure::new(
            "--only N belongs to 'yardsticks'; a part of an experiment is NAME=VALUE,…",
        ));
    }
    o.parts.check(&chosen(&o.names), o.preset)?;
    o.targets = targets.all();
    cache_belongs(&o)?;
    if turns.is_some() && o.targets.len() < 2 {
        return Err(Failure::new(
            "--turns belongs to several --target: there is nothing to take turns",
        ));
    }
    o.turns = turns.unwrap_or(DEFAULT_TURNS);
    if !o.targets.is_empty() && o.names.iter().any(|n| n == "yardsticks") {
        return Err(Failure::new(
            "the yardsticks compare the embedded server with its own engine and cannot be run against another target (--uri, --target)",
        ));
    }
    Ok(Some(o))
}

/// The experiments that these names stand for: all of them without any.
fn chosen(names: &[String]) -> Vec<&'static workloads::Spec> {
    match names {
        [] => workloads::ALL.to_vec(),
        some => some.iter().flat_map(|n| workloads::named(n)).collect(),
    }
}

/// Refuses `--cacheSizeGB` where no server would get it.
fn cache_belongs(o: &Options) -> Result<()> {
    let why = if o.cache_gb.is_none() {
        return Ok(());
    } else if !o.targets.is_empty() && o.targets.iter().all(|t| t.endpoint.is_external()) {
        "belongs to embedded servers, and there is none"
    } else if o.names.iter().any(|n| n == "yardsticks") {
        "the yardsticks are promises with a cache of their own"
    } else if o.names == ["ceiling"] {
        "'ceiling' measures no server"
    } else {
        return Ok(());
    };
    Err(Failure(format!("--cacheSizeGB {why}")))
}

/// The GiB that `text` says.
///
/// # Errors
/// It is no size.
pub fn cache_size(text: &str) -> Result<f64> {
    let n = text.parse().ok();
    n.filter(|n: &f64| n.is_finite() && *n > 0.0)
        .ok_or_else(|| Failure(format!("--cacheSizeGB {text}: it must be GiB, above 0")))
}

/// A yardstick's number.
fn yardstick(n: u32) -> Result<u32> {
    let known = yardsticks::ALL.iter().any(|y| y.number == n);
    known.then_some(n).ok_or_else(|| {
        Failure(format!(
            "--only {n}: the yardsticks are 1 to {}",
            yardsticks::ALL.len()
        ))
    })
}

/// The number of turns `text` says.
///
/// # Errors
/// It is none.
pub fn turns(text: &str) -> Result<usize> {
    let n = text.parse().ok().filter(|n| (1..=1000).contains(n));
    n.ok_or_else(|| {
        Failure(format!(
            "--turns {text}: it must be a whole number from 1 to 1000"
        ))
    })
}

fn said(e: lexopt::Error) -> Failure {
    Failure(e.to_string())
}

fn text(v: OsString) -> Result<String> {
    v.into_string()
        .map_err(|v| Failure(format!("{} is not UTF-8", v.to_string_lossy())))
}

/// What `list` prints.
pub fn list() -> String {
    let mut o = String::from("Experiments:\n");
    for s in workloads::ALL {
        let _ = writeln!(o, "  {:<11} {}", s.name, s.title);
    }
    o.push_str("\nWorkloads (muniment bench run NAME, or a file of your own):\n");
    o.push_str(&custom::builtin::list());
    o.push_str("\nYardsticks (muniment bench yardsticks [--only N]):\n");
    for y in yardsticks::ALL {
        let _ = writeln!(
            o,
            "  {:<11} {}; target: {}",
            y.number, y.title, y.target_text
        );
    }
    o.push('\n');
    o.push_str(&commands::list());
    o
}

/// What `--help` prints.
pub fn help() -> String {
    let usage: String = commands::ALL
        .iter()
        .filter(|c| !c.about.is_empty())
        .map(|c| {
            format!("       muniment bench {} {}", c.name, c.arguments)
                .trim_end()
                .to_string()
                + "\n"
        })
        .collect();
    format!(
        "\
Runs published benchmark experiments against a MongoDB-compatible server and prints
what they show beside what was published.

Usage: muniment bench [EXPERIMENT…] [OPTIONS]
{usage}
Without EXPERIMENT all of them run (some five minutes with the smoke preset); w4 is
w4a and w4b. 'yardsticks' measures the server against the raw engine and against a
server that does nothing.

{}
Options:
{}  --turns N        in how many turns; default 5: fewer are too few to judge by
  --preset PRESET  smoke (half a minute an experiment), quick (about a hundredth of the
                   post's counts) or paper (the post's counts); default smoke
{}  --cacheSizeGB N  cache of embedded servers (default: the experiment's own)
  --only PART      one yardstick by its number, or a part of an experiment: NAME=VALUE,VALUE…;
                   may be repeated
{}  -h, --help       this text

Parts (--only) and the values that they have with the smoke preset:
{}
Progress goes to stderr, results to stdout. Ctrl-C ends cleanly and writes what there is.
The lab works in a database of its own, muniment_bench, which it drops before and after.
",
        list(),
        targets::Given::HELP,
        Output::HELP,
        options::help(),
        only::help(workloads::ALL)
    )
}

fn experiments(o: &Options) -> Result<()> {
    stop::install();
    let endpoint = targets::only(&o.targets);
    let mut lab = Lab::new(endpoint, o.preset, o.output.data.clone());
    lab.options = o.given.clone();
    lab.only = o.parts.clone();
    lab.cache_gb = o.cache_gb;
    let mut session = Session::new(&o.output);
    let busy = environment::busy();
    let names = if o.names.is_empty() {
        workloads::ALL.iter().map(|s| s.name.to_string()).collect()
    } else {
        o.names.clone()
    };
    for name in &names {
        if name == "yardsticks" {
            let mut out = Outcome::default();
            out.warnings.extend(busy.clone());
            session.one(&mut lab, &mut out, |lab, out| {
                yardsticks::run(lab, o.only, out)
            });
            continue;
        }
        for spec in workloads::named(name) {
            let out = Outcome {
                id: spec.name.into(),
                title: spec.title.into(),
                about: spec.about.into(),
                warnings: busy.iter().cloned().collect(),
                ..Outcome::default()
            };
            let run = |lab: &mut Lab, out: &mut Outcome| {
                let before = lab.placements_asked;
                let result = (spec.run)(lab, out);
                if lab.placements_asked == before && o.parts.values(only::CORES.name).is_some() {
                    out.warnings
                        .push("--only cores: nothing that was run has a single connection.".into());
                }
                out.deviations.extend(o.parts.told(spec));
                out.deviations.extend(o.cache_gb.map(|gb| {
                    format!("Embedded servers had a cache of {gb} GiB (--cacheSizeGB).")
                }));
                result
            };
            if o.targets.len() > 1 {
                session.in_turns(&mut lab, &out, (&o.targets, o.turns), run);
            } else {
                session.one(&mut lab, &mut out.clone(), run);
            }
        }
    }
    session.end(&mut lab)
}

/// Runs a single experiment that is not in the registry, with everything around it.
pub fn single(
    lab: &mut Lab,
    output: &Output,
    id: &str,
    title: &str,
    f: impl FnOnce(&mut Lab, &mut Outcome) -> Result<()>,
) -> Result<()> {
    let mut session = Session::new(output);
    let mut out = Outcome {
        id: id.into(),
        title: title.into(),
        warnings: environment::busy().into_iter().collect(),
        ..Outcome::default()
    };
    session.one(lab, &mut out, f);
    session.end(lab)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(line: &str) -> Result<Option<Options>> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn what_is_understood() {
        let o = parsed("w1 w4 --preset quick --json a.jsonl --out d --uri mongodb://h:1")
            .unwrap()
            .unwrap();
        assert_eq!(o.names, ["w1", "w4"]);
        assert_eq!(o.preset, Preset::Quick);
        assert_eq!(o.output.json, Some(PathBuf::from("a.jsonl")));
        assert_eq!(o.output.dir, PathBuf::from("d"));
        assert_eq!(o.targets.len(), 1);
        assert_eq!(o.targets[0].name, "h:1");
        let o = parsed("").unwrap().unwrap();
        assert!(o.names.is_empty() && o.preset == Preset::Smoke);
        assert_eq!(parsed("w1 --help").unwrap(), None);
        assert_eq!(
            parsed("yardsticks --only 3").unwrap().unwrap().only,
            Some(3)
        );
    }

    #[test]
    fn parts_and_the_cache() {
        // The preset counts wherever it stands.
        let line = "w3 w4a --only batch=2,5 --only cores=two --preset quick --cacheSizeGB 0.5";
        let o = parsed(line).unwrap().unwrap();
        assert_eq!(
            o.parts.values("batch"),
            Some(&["2".to_string(), "5".into()][..])
        );
        assert_eq!((o.only, o.cache_gb), (None, Some(0.5)));
        // One of the targets gets it.
        let line = "w1 --target a=embedded --target b=mongodb://h:1 --cacheSizeGB 1";
        assert_eq!(parsed(line).unwrap().unwrap().cache_gb, Some(1.0));
        // Without names there are all experiments to choose from.
        assert!(
            parsed("--only query=text --only batch=10")
                .unwrap()
                .is_some()
        );
    }

    #[test]
    fn several_targets() {
        let line = "w1 --target a=embedded --target b=mongodb://h:1 --turns 7 --core-hour 0.04";
        let o = parsed(line).unwrap().unwrap();
        let names: Vec<_> = o.targets.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!((o.turns, o.output.core_hour), (7, Some(0.04)));
    }

    #[test]
    fn what_is_refused_and_why() {
        for (line, why) in [
            ("w9", "there is no experiment 'w9'"),
            (
                "--preset big",
                "--preset big: there are smoke, quick and paper",
            ),
            ("--preset", "missing argument"),
            ("--uri localhost", "must begin with mongodb://"),
            ("--fast", "invalid option '--fast'"),
            ("yardsticks --only 99", "--only 99: the yardsticks are 1 to"),
            ("w1 list", "'list' is a command and comes first"),
            ("w1 --only 1", "--only N belongs to 'yardsticks'"),
            ("w3 --only big", "--only big: it must be NAME=VALUE,VALUE"),
            (
                "w3 --only size=1",
                "there is no 'size' to choose from: w3 has batch",
            ),
            (
                "w3 --only batch=3",
                "--only batch=3: batch of w3 with preset smoke is 1, 10,",
            ),
            (
                "w3 --preset quick --only batch=7",
                "with preset quick is 1, 2, 5, 10,",
            ),
            (
                "yardsticks --only batch=1",
                "there is no 'batch' to choose from",
            ),
            (
                "w1 --cacheSizeGB 0",
                "--cacheSizeGB 0: it must be GiB, above 0",
            ),
            ("w1 --cacheSizeGB inf", "it must be GiB, above 0"),
            (
                "w1 --uri mongodb://h --cacheSizeGB 1",
                "belongs to embedded servers, and there is none",
            ),
            ("yardsticks --cacheSizeGB 1", "a cache of their own"),
            ("ceiling --cacheSizeGB 1", "'ceiling' measures no server"),
            ("w1 --seconds 1", "--seconds belongs to 'ceiling'"),
            ("ceiling --seconds 0", "--seconds 0: it must be seconds"),
            ("ceiling --connections", "missing argument"),
            ("--core-hour cheap", "must be a number above 0"),
            ("--turns 0", "whole number from 1"),
            ("w1 --turns 3", "nothing to take turns"),
            (
                "--uri mongodb://h --target a=embedded",
                "--uri is the only target",
            ),
            (
                "--target a=embedded --target a=embedded",
                "has been given already",
            ),
            (
                "yardsticks --uri mongodb://h",
                "cannot be run against another target",
            ),
        ] {
            let e = parsed(line).unwrap_err().0;
            assert!(e.contains(why), "{line}: {e}");
        }
    }

    #[test]
    fn help_names_everything_there_is() {
        let h = help();
        for s in workloads::ALL {
            assert!(h.contains(s.name) && h.contains(s.title));
        }
        for y in yardsticks::ALL {
            assert!(h.contains(y.title));
        }
        // What other modules add stands where the rest does.
        for option in ["uri", "target", "json", "out", "tui", "only", "cacheSizeGB"] {
            assert!(h.contains(&format!("\n  --{option} ")), "{option} in {h}");
        }
        for c in commands::ALL {
            assert_eq!(h.contains(c.name), !c.about.is_empty(), "{}", c.name);
        }
    }
}
