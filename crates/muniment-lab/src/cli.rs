//! `muniment bench …`: arguments, the order of things, and what is written where.

use crate::commands;
use crate::fail::{Context, Failure, Result};
use crate::lab::{Lab, Preset};
use crate::report::{Outcome, Run, html};
use crate::workloads::options::{self, Given};
use crate::{environment, stop, uri, usage, workloads, yardsticks};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// What was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Experiment names; empty for all of them.
    pub names: Vec<String>,
    /// The target; `None` for an embedded server.
    pub uri: Option<uri::Uri>,
    /// How much.
    pub preset: Preset,
    /// Where results go.
    pub output: Output,
    /// One yardstick alone.
    pub only: Option<u32>,
    /// Options that belong to single experiments.
    pub given: Given,
}

/// Where results go.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// JSON lines go here.
    pub json: Option<PathBuf>,
    /// The report goes here.
    pub dir: PathBuf,
    /// Temporary directories are made here.
    pub data: PathBuf,
}

impl Default for Output {
    fn default() -> Output {
        Output {
            json: None,
            dir: PathBuf::from("bench-report"),
            data: std::env::temp_dir(),
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
            print!("{}", help());
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
        uri: None,
        preset: Preset::Smoke,
        output: Output::default(),
        only: None,
        given: Given::default(),
    };
    let mut p = lexopt::Parser::from_args(args);
    while let Some(arg) = p.next().map_err(said)? {
        match arg {
            Short('h') | Long("help") => return Ok(None),
            Long("uri") => o.uri = Some(uri::parse(&text(p.value().map_err(said)?)?)?),
            Long("preset") => {
                o.preset = match text(p.value().map_err(said)?)?.as_str() {
                    "smoke" => Preset::Smoke,
                    "quick" => Preset::Quick,
                    "paper" => Preset::Paper,
                    other => {
                        return Err(Failure(format!(
                            "--preset {other}: there are smoke, quick and paper"
                        )));
                    }
                }
            }
            Long("json") => o.output.json = Some(p.value().map_err(said)?.into()),
            Long("out") => o.output.dir = p.value().map_err(said)?.into(),
            Long("data") => o.output.data = p.value().map_err(said)?.into(),
            Long("only") => {
                let n = text(p.value().map_err(said)?)?;
                let known = n
                    .parse()
                    .ok()
                    .filter(|n| yardsticks::ALL.iter().any(|y| y.number == *n));
                o.only = Some(known.ok_or_else(|| {
                    Failure(format!(
                        "--only {n}: the yardsticks are 1 to {}",
                        yardsticks::ALL.len()
                    ))
                })?);
            }
            Long(name) if let Some((_, option)) = Given::known(name) => {
                let value = match option.value {
                    "" => String::new(),
                    _ => text(p.value().map_err(said)?)?,
                };
                o.given.set(option, value)?;
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
        return Err(Failure::new("--only belongs to 'yardsticks'"));
    }
    if o.uri.is_some() && o.names.iter().any(|n| n == "yardsticks") {
        return Err(Failure::new(
            "--uri: the yardsticks compare the embedded server with its own engine and cannot be run against another target",
        ));
    }
    Ok(Some(o))
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
Without EXPERIMENT all of them run (under three minutes with the smoke preset); w4 is
w4a and w4b. 'yardsticks' measures the server against the raw engine and against a
server that does nothing.

{}
Options:
  --uri URI        measure this server, mongodb://host[:port][,host…][/?options]
                   (default: an embedded server on a free port with temporary files)
  --preset PRESET  smoke (half a minute an experiment), quick (about a hundredth of the
                   post's counts) or paper (the post's counts); default smoke
  --json FILE      write every measurement and result as JSON lines
  --out DIR        write report.html and results.json here; default ./bench-report
  --data DIR       make the embedded server's temporary directory here
                   (default: the system's)
  --only N         one yardstick alone
{}  -h, --help       this text

Progress goes to stderr, results to stdout. Ctrl-C ends cleanly and writes what there is.
The lab works in a database of its own, muniment_bench, which it drops before and after.
",
        list(),
        options::help()
    )
}

fn experiments(o: &Options) -> Result<()> {
    stop::install();
    let mut lab = Lab::new(o.uri.clone(), o.preset, o.output.data.clone());
    lab.options = o.given.clone();
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
            let mut out = Outcome {
                id: spec.name.into(),
                title: spec.title.into(),
                about: spec.about.into(),
                warnings: busy.iter().cloned().collect(),
                ..Outcome::default()
            };
            session.one(&mut lab, &mut out, spec.run);
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

/// A run of experiments: what they found so far, and what failed.
struct Session<'a> {
    output: &'a Output,
    run: Run,
    failures: Vec<String>,
}

impl<'a> Session<'a> {
    fn new(output: &'a Output) -> Session<'a> {
        Session {
            output,
            run: Run {
                command: command_line(),
                started: environment::utc_now(),
                ..Run::default()
            },
            failures: Vec::new(),
        }
    }

    /// Says where everything is, and what failed.
    fn end(self, lab: &mut Lab) -> Result<()> {
        lab.progress.end_line();
        println!("\nEnvironment");
        for (k, v) in &self.run.environment {
            println!("  {k}: {v}");
        }
        let report = self.output.dir.join("report.html");
        println!(
            "\nReport: {}",
            report.canonicalize().unwrap_or(report).display()
        );
        if let Some(f) = &self.output.json {
            println!("JSON lines: {}", f.display());
        }
        match self.failures.as_slice() {
            [] if self.run.interrupted => {
                Err(Failure::new("interrupted; what there was has been written"))
            }
            [] => Ok(()),
            some => Err(Failure(some.join("\nmuniment bench: "))),
        }
    }

    /// Runs one experiment, prints it, and writes the report so far.
    fn one(
        &mut self,
        lab: &mut Lab,
        out: &mut Outcome,
        f: impl FnOnce(&mut Lab, &mut Outcome) -> Result<()>,
    ) {
        if stop::asked() {
            self.run.interrupted = true;
            return;
        }
        let begin = Instant::now();
        out.preset = lab.preset.name().into();
        let result = f(lab, out);
        out.seconds = begin.elapsed().as_secs_f64();
        if stop::asked() {
            self.run.interrupted = true;
            out.warnings
                .push("Interrupted: the figures are of what had been done by then.".into());
        } else if let Err(e) = result {
            self.failures.push(format!("{}: {e}", out.id));
            out.warnings.push(format!("Failed: {e}"));
        }
        out.tables.extend(usage::table(&out.samples));
        let mut seen = std::collections::HashSet::new();
        out.warnings.retain(|w| seen.insert(w.clone()));
        lab.progress.end_line();
        print!("{}", out.text());
        self.run.outcomes.push(out.clone());
        self.run.environment.clone_from(&lab.environment);
        if let Err(e) = write(&self.run, self.output) {
            self.failures.push(e.0);
        }
    }
}

/// Writes report.html, results.json and the JSON lines, each whole.
fn write(run: &Run, o: &Output) -> Result<()> {
    std::fs::create_dir_all(&o.dir).context(&format!("making {}", o.dir.display()))?;
    let put = |path: PathBuf, text: String| {
        std::fs::write(&path, text).context(&format!("writing {}", path.display()))
    };
    let lines = run.json();
    put(o.dir.join("report.html"), html::page(run))?;
    put(
        o.dir.join("results.json"),
        serde_json::to_string(&lines).context("encoding the results")?,
    )?;
    if let Some(f) = &o.json {
        let mut text = String::new();
        for l in &lines {
            let _ = writeln!(text, "{l}");
        }
        put(f.clone(), text)?;
    }
    Ok(())
}

/// What was typed, without the directory of the program.
fn command_line() -> String {
    let mut words: Vec<String> = std::env::args_os()
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    if let Some(first) = words.first_mut() {
        *first = first.rsplit('/').next().unwrap_or("muniment").to_string();
    }
    words.join(" ")
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
        assert_eq!(o.uri.unwrap().hosts, ["h:1"]);
        let o = parsed("").unwrap().unwrap();
        assert!(o.names.is_empty() && o.preset == Preset::Smoke);
        assert_eq!(parsed("w1 --help").unwrap(), None);
        assert_eq!(
            parsed("yardsticks --only 3").unwrap().unwrap().only,
            Some(3)
        );
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
            ("w1 --only 1", "--only belongs to 'yardsticks'"),
            ("w1 --seconds 1", "--seconds belongs to 'ceiling'"),
            ("ceiling --seconds 0", "--seconds 0: it must be seconds"),
            ("ceiling --connections", "missing argument"),
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
        for c in commands::ALL {
            assert_eq!(h.contains(c.name), !c.about.is_empty(), "{}", c.name);
        }
    }
}
