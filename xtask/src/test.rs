//! `cargo xtask test`: runs every step, and then prints one line about each.

use crate::pool::{self, Ended, Job};
use crate::run::{cargo, check, in_ci, output, server_binary, target_dir};
use crate::server::ENGINE;
use crate::{clients, deny, docs, report, secured, tidy, unified, versions};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// The outcome of a step that did not fail.
pub enum Outcome {
    /// It ran and passed.
    Passed,
    /// It could not run here, which is not the fault of the source tree.
    Skipped(String),
}

/// A step: its name, its subject, and its function.
pub type Step = (&'static str, &'static str, fn() -> Result<Outcome, String>);

/// The steps that run first, one after the other. The server is built by `build`, which every later step needs.
const CHECKS: &[Step] = &[
    ("tidy", "house rules", || {
        tidy::run(&[]).map(|()| Outcome::Passed)
    }),
    (
        "deny",
        "licences, sources and advisories of what is linked",
        deny::run,
    ),
    (BUILD, "the server binary", build),
    (
        "rustdoc",
        "links in the code's documentation",
        documentation,
    ),
    ("docs", "generated pages are fresh", || {
        docs::run(&["--check".into()]).map(|()| Outcome::Passed)
    }),
];

/// The step that builds the server.
const BUILD: &str = "build";

/// The step whose test executables run beside the suites: see [`executables`].
const CARGO: (&str, &str) = ("cargo", "unit tests, goldens, protocol and fault tests");

/// The steps that run after the checks, in this order, beside the test executables. They share what they
/// install, so that they run one at a time.
const SUITES: &[Step] = &[
    (
        "versions",
        "a set of members of this version and the one before, upgraded and taken back under load",
        versions::run,
    ),
    (
        "unified",
        "the drivers' unified specification tests",
        unified::run,
    ),
    ("pymongo", "PyMongo, current", clients::pymongo_current),
    ("pymongo-legacy", "PyMongo 3.13", clients::pymongo_legacy),
    (
        "mlaunch",
        "mlaunch starts, stops and restarts it as mongod, alone and as sets, also with logins",
        clients::mlaunch,
    ),
    (
        "memory-server",
        "mongodb-memory-server starts it as mongod, alone and as sets",
        clients::memory_server,
    ),
    (
        "mongosh",
        "mongosh, on a server and on a set",
        clients::mongosh,
    ),
    (
        "node",
        "the Node driver, current, and Mongoose",
        clients::node,
    ),
    ("go", "the Go driver, current", clients::go),
    ("java", "the Java driver, current", clients::java_current),
    (
        "java-legacy",
        "the Java driver 3.12, YCSB's",
        clients::java_legacy,
    ),
    (
        "java-spring",
        "Spring Data, reactive and blocking, on a plain server and on a set",
        clients::java_spring,
    ),
    (
        "java-debezium",
        "Debezium's connector on a set",
        clients::java_debezium,
    ),
    ("rust", "the Rust driver, current", clients::rust),
    (
        "secured",
        "the current drivers and mongosh, with logins and TLS",
        secured::run,
    ),
    (
        "mongo-tools",
        "mongodump and mongorestore, also with an oplog, of rollback files and of users, mongoimport, mongoexport, mongostat, mongotop, bsondump",
        clients::mongo_tools,
    ),
    (
        "report",
        "the lab's report in a browser: widths, light and dark, contrast, labels",
        report::browser,
    ),
];

/// Which steps run: those of `only`, or all if it is empty, without those of `skip`.
#[derive(Default)]
struct Choice {
    only: Vec<String>,
    skip: Vec<String>,
    /// How many programs run at a time.
    jobs: Option<usize>,
}

impl Choice {
    /// True if the step is to run. The other steps need `build`, which therefore runs unless it is skipped.
    fn has(&self, step: &str) -> bool {
        let named = |names: &[String]| names.iter().any(|n| n == step);
        (self.only.is_empty() || named(&self.only) || step == BUILD) && !named(&self.skip)
    }
}

/// Reads the arguments, and passes those that the steps need on in the environment. `None` means that nothing
/// is to run.
fn parse(args: &[String]) -> Result<Option<Choice>, String> {
    let mut choice = Choice::default();
    let mut it = args.iter();
    while let Some(arg) = it.next() {
        match arg.as_str() {
            "--only" => choice
                .only
                .push(it.next().ok_or("--only needs a step")?.clone()),
            "--skip" => choice
                .skip
                .push(it.next().ok_or("--skip needs a step")?.clone()),
            "--jobs" => {
                let jobs = it.next().and_then(|n| n.parse().ok());
                choice.jobs = Some(jobs.filter(|n| *n > 0).ok_or("--jobs needs a number")?);
            }
            // SAFETY: no thread was started yet.
            "--long" => unsafe { std::env::set_var("MUNIMENT_LONG", "1") },
            "--engine" => {
                let name = it.next().ok_or("--engine needs a storage engine")?;
                // SAFETY: the same as above.
                unsafe { std::env::set_var(ENGINE, name) }
            }
            "--suite" => {
                let dir = it.next().ok_or("--suite needs a directory")?;
                let dir = std::path::absolute(dir).map_err(|e| e.to_string())?;
                // SAFETY: the same as above.
                unsafe { std::env::set_var(unified::SUITE, dir) }
            }
            "--list" => {
                for (name, what) in all_steps() {
                    println!("{name:<16}{what}");
                }
                return Ok(None);
            }
            other => return Err(format!("test does not know '{other}'")),
        }
    }
    for name in choice.only.iter().chain(&choice.skip) {
        if !all_steps().any(|(n, _)| n == name) {
            return Err(format!(
                "there is no step '{name}'; see cargo xtask test --list"
            ));
        }
    }
    Ok(Some(choice))
}

/// The names and subjects of all steps.
fn all_steps() -> impl Iterator<Item = (&'static str, &'static str)> {
    let named = |(name, what, _): &Step| (*name, *what);
    let checks = CHECKS.iter().map(named);
    checks.chain([CARGO]).chain(SUITES.iter().map(named))
}

/// The line before a step's output.
fn headline(name: &str, what: &str) {
    println!("\n=== {name}: {what}");
}

/// The lines of the summary, and how often each outcome was.
#[derive(Default)]
struct Summary {
    lines: Vec<String>,
    /// How the output of each job that failed ended.
    ends: Vec<String>,
    passed: u32,
    failed: u32,
    skipped: u32,
}

/// How many lines of a failed job's output the summary repeats.
const REPEATED: usize = 40;

impl Summary {
    /// Adds a step. What failed is printed at once.
    fn add(&mut self, name: &str, took: Duration, result: Result<Outcome, String>) {
        let (word, detail) = match result {
            Ok(Outcome::Passed) => ("ok", String::new()),
            Ok(Outcome::Skipped(why)) => ("SKIPPED", why),
            Err(why) => ("FAILED", why),
        };
        match word {
            "ok" => self.passed += 1,
            "SKIPPED" => self.skipped += 1,
            _ => {
                self.failed += 1;
                println!("{detail}");
            }
        }
        let seconds = took.as_secs_f64();
        let line = format!("{word:<8}{name:<16}{seconds:>7.1} s  {detail}");
        self.lines.push(line);
    }

    /// Keeps the end of a failed job's output, so that whoever has only the last lines of a run sees why.
    fn keep_end(&mut self, ended: &Ended) {
        let lines: Vec<&str> = ended.output.lines().collect();
        let from = lines.len().saturating_sub(REPEATED);
        let end = lines[from..].join("\n");
        self.ends
            .push(format!("--- the end of {}:\n{end}", ended.name));
    }

    /// Prints everything.
    fn print(&self) -> Result<(), String> {
        println!("\n=== summary");
        for line in &self.lines {
            println!("{line}");
        }
        let (passed, failed, skipped) = (self.passed, self.failed, self.skipped);
        println!("steps: {passed} passed, {failed} failed, {skipped} skipped");
        for end in &self.ends {
            println!("\n{end}");
        }
        match failed {
            0 => Ok(()),
            _ => Err(format!("{failed} of the steps failed")),
        }
    }
}

/// Runs the steps that `args` select.
pub fn run(args: &[String]) -> Result<(), String> {
    if let [ALONE, name] = args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return alone(name);
    }
    let Some(choice) = parse(args)? else {
        return Ok(());
    };
    let mut summary = Summary::default();
    for (name, what, step) in CHECKS.iter().filter(|(name, ..)| choice.has(name)) {
        headline(name, what);
        let started = Instant::now();
        let result = step();
        let ends = result.is_err() && *name == BUILD;
        summary.add(name, started.elapsed(), result);
        if ends {
            return summary.print();
        }
    }
    beside(&choice, &mut summary)?;
    summary.print()
}

/// The argument with which this program calls itself for one suite.
const ALONE: &str = "--alone";

/// How the last line of a suite begins that was skipped.
const SKIPPED: &str = "SKIPPED: ";

/// Runs one suite, whose outcome the calling process reads.
fn alone(name: &str) -> Result<(), String> {
    let step = SUITES.iter().find(|(n, ..)| *n == name);
    let (_, _, step) = step.ok_or_else(|| format!("there is no suite '{name}'"))?;
    if let Outcome::Skipped(why) = step()? {
        println!("{SKIPPED}{why}");
    }
    Ok(())
}

/// Runs the suites one after the other, and the test executables beside them.
fn beside(choice: &Choice, summary: &mut Summary) -> Result<(), String> {
    let started = Instant::now();
    let mut jobs = Vec::new();
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    for (name, ..) in SUITES.iter().filter(|(name, ..)| choice.has(name)) {
        let mut command = Command::new(&this);
        command.args(["test", ALONE, name]);
        jobs.push(Job {
            name: (*name).into(),
            command,
            lane: Some("suites"),
        });
    }
    let mut of_cargo = 0;
    if choice.has(CARGO.0) {
        headline(CARGO.0, CARGO.1);
        let executables = executables()?;
        of_cargo = executables.len();
        jobs.extend(executables);
    }
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let width = choice.jobs.unwrap_or(2 * cores);
    let (mut failed, mut slowest) = (Vec::new(), Vec::new());
    pool::run(jobs, width, &target_dir().join("jobs"), |ended| {
        let suite = SUITES.iter().find(|(name, ..)| *name == ended.name);
        let (name, what) = suite.map_or((ended.name.as_str(), ""), |(n, what, _)| (n, what));
        headline(name, what);
        print!("{}", ended.output);
        println!("{:.1} s", ended.took.as_secs_f64());
        if ended.failure.is_some() {
            summary.keep_end(&ended);
        }
        if suite.is_some() {
            let outcome = outcome(&ended);
            summary.add(name, ended.took, outcome);
            return;
        }
        if let Some(failure) = &ended.failure {
            println!("{failure}");
            failed.push(ended.name.clone());
        }
        slowest.push((ended.took, ended.name));
    })?;
    if of_cargo > 0 {
        slowest.sort();
        println!("\nThe slowest test executables:");
        for (took, name) in slowest.iter().rev().take(12) {
            println!("{:>7.1} s  {name}", took.as_secs_f64());
        }
        let result = match failed.is_empty() {
            true => Ok(Outcome::Passed),
            false => Err(format!("failed: {}", failed.join(", "))),
        };
        summary.add(CARGO.0, started.elapsed(), result);
    }
    Ok(())
}

/// The outcome of a suite that ran as a job.
fn outcome(ended: &Ended) -> Result<Outcome, String> {
    if let Some(failure) = &ended.failure {
        return Err(failure.clone());
    }
    let last = ended.output.lines().next_back().unwrap_or_default();
    let skipped = last.strip_prefix(SKIPPED);
    Ok(skipped.map_or(Outcome::Passed, |why| Outcome::Skipped(why.into())))
}

/// The outcome of a step whose toolchain is missing: a failure in CI, otherwise it is skipped.
pub fn missing(what: &str) -> Result<Outcome, String> {
    let message = format!("{what} is not installed");
    if in_ci() {
        Err(message)
    } else {
        Ok(Outcome::Skipped(message))
    }
}

fn build() -> Result<Outcome, String> {
    check(cargo().args(["build", "--workspace", "--bin", "muniment"]))?;
    Ok(Outcome::Passed)
}

/// Checks that all links in doc comments resolve, those of private items too.
fn documentation() -> Result<Outcome, String> {
    check(
        cargo()
            .args(["doc", "--quiet", "--workspace", "--no-deps"])
            .arg("--document-private-items")
            .env(
                "RUSTDOCFLAGS",
                "-D warnings -A rustdoc::private_intra_doc_links",
            ),
    )?;
    Ok(Outcome::Passed)
}

/// True if the tests' servers keep their data.
pub fn persistent() -> bool {
    std::env::var_os(ENGINE).is_none_or(|name| name != "memory")
}

/// The test executables of all packages, built. Each is to run in its package's directory, as cargo runs them.
/// There are no tests in the documentation.
fn executables() -> Result<Vec<Job>, String> {
    let mut build = cargo();
    build.args(["test", "--workspace", "--no-run", "--message-format=json"]);
    // Tests that crash a server and look at its files have nothing to look at.
    if !persistent() {
        build.args(["--exclude", "fault-tests"]);
    }
    let messages = output(&mut build)?;
    let jobs: Vec<Job> = messages.lines().filter_map(executable).collect();
    match jobs.is_empty() {
        true => Err("cargo has built no tests".into()),
        false => Ok(jobs),
    }
}

/// The job of a line in which cargo says that it has built a test executable.
fn executable(message: &str) -> Option<Job> {
    let path = PathBuf::from(string_in(message, "executable")?);
    let (_, profile) = message.split_once("\"profile\":{")?;
    let (profile, _) = profile.split_once('}')?;
    if !profile.contains("\"test\":true") {
        return None;
    }
    let package = PathBuf::from(string_in(message, "manifest_path")?);
    let package = package.parent()?;
    let source = PathBuf::from(string_in(message, "src_path")?);
    let source = source.strip_prefix(package).unwrap_or(&source);
    let name = package.file_name()?.to_string_lossy();
    let mut command = Command::new(path);
    command
        .current_dir(package)
        .env("CARGO_MANIFEST_DIR", package)
        .env("MUNIMENT_BIN", server_binary());
    Some(Job {
        name: format!("{name} {}", source.display()),
        command,
        lane: None,
    })
}

/// The string in a line of JSON that has this key. The keys that are asked for occur once, and paths of files
/// with quotes or backslashes are not supported.
fn string_in<'m>(message: &'m str, key: &str) -> Option<&'m str> {
    let (_, rest) = message.split_once(&format!("\"{key}\":\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::path::Path;

    #[test]
    fn a_line_of_cargo_names_a_test_executable() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/r/crates/a/Cargo.toml","target":{"kind":["test"],"name":"b","src_path":"/r/crates/a/tests/b.rs","test":true},"profile":{"opt_level":"0","test":true},"executable":"/t/debug/deps/b-1","fresh":true}"#;
        let job = executable(line).unwrap();
        assert_eq!(job.name, "a tests/b.rs");
        assert_eq!(job.command.get_program(), "/t/debug/deps/b-1");
        assert_eq!(
            job.command.get_current_dir(),
            Some(Path::new("/r/crates/a"))
        );
        let binary = line.replace(r#""0","test":true"#, r#""0","test":false"#);
        assert!(executable(&binary).is_none());
        let library = line.replace(r#""/t/debug/deps/b-1""#, "null");
        assert!(executable(&library).is_none());
    }

    #[test]
    fn the_summary_repeats_how_a_failed_job_ended() {
        let lines: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
        let mut summary = Summary::default();
        summary.keep_end(&Ended {
            name: "suite".into(),
            took: Duration::ZERO,
            failure: Some("exit status: 1".into()),
            output: lines.join("\n"),
        });
        let expected = lines[60..].join("\n");
        assert_eq!(summary.ends, [format!("--- the end of suite:\n{expected}")]);
    }

    #[test]
    fn a_suite_says_why_it_was_skipped() {
        let ended = |output: &str, failure: Option<&str>| Ended {
            name: "suite".into(),
            took: Duration::ZERO,
            failure: failure.map(Into::into),
            output: output.into(),
        };
        let skipped = outcome(&ended("some text\nSKIPPED: no Java\n", None));
        assert!(matches!(skipped, Ok(Outcome::Skipped(why)) if why == "no Java"));
        assert!(matches!(
            outcome(&ended("fine\n", None)),
            Ok(Outcome::Passed)
        ));
        assert!(outcome(&ended("SKIPPED: no\n", Some("exit status: 1"))).is_err());
    }
}
