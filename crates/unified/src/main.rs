//! Runs the drivers' unified specification tests (the JSON files of the MongoDB specifications) against a
//! server through the raw client. Operations become the commands that a driver would send, and replies,
//! errors, events and contents are compared with the expected ones.
//!
//! Tests of things that only a driver has (pools, monitoring, client-side timeouts and encryption, its log)
//! are left out by named rules and counted. A test that is a known failure (a file lists these with reasons)
//! must fail: otherwise the file is out of date, and the run fails.

#![warn(unreachable_pub)]
// An error is a result like any other here, with everything that a test may ask about it. Performance does
// not matter.
#![allow(clippy::result_large_err)]

mod client;
mod cursor;
mod entities;
mod failure;
mod matching;
mod ops;
mod report;
mod requirements;
mod session;
mod test;

use bson::{Bson, Document};
use client::Topology;
use report::{Report, Verdict};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use test::{Deployment, Outcome};

const HELP: &str = "\
unified --suite DIR --uri mongodb://HOST:PORT [--known FILE] [--filter TEXT]... [--list]
        [--topology T]

  --suite DIR    The directory with the tests, any depth.
  --known FILE   Tests that are known to fail: `file.json: description # why`.
  --filter TEXT  Only tests whose id holds TEXT.
  --list         Names every test with its verdict.
  --topology T   Runs the tests for single, replicaset or sharded, whatever the server is.
";

#[derive(Default)]
struct Options {
    suite: PathBuf,
    uri: String,
    known: Option<PathBuf>,
    filters: Vec<String>,
    list: bool,
    topology: Option<Topology>,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("unified: {message}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Option<Options>, String> {
    let mut options = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--suite" => options.suite = value()?.into(),
            "--uri" => options.uri = value()?,
            "--known" => options.known = Some(value()?.into()),
            "--filter" => options.filters.push(value()?),
            "--list" => options.list = true,
            "--topology" => {
                let name = value()?;
                let all = [Topology::Single, Topology::ReplicaSet, Topology::Sharded];
                let found = all.into_iter().find(|t| t.name() == name);
                options.topology = Some(found.ok_or(format!("there is no topology {name}"))?);
            }
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("what is '{other}'?\n\n{HELP}")),
        }
    }
    if options.suite.as_os_str().is_empty() || options.uri.is_empty() {
        return Err(format!("--suite and --uri are needed\n\n{HELP}"));
    }
    Ok(Some(options))
}

fn run() -> Result<bool, String> {
    let Some(options) = parse()? else {
        print!("{HELP}");
        return Ok(true);
    };
    let known = match &options.known {
        Some(file) => report::read_known(file)?,
        None => Vec::new(),
    };
    let address =
        muniment_wire::client::parse_address(&options.uri).map_err(|e| e.message().to_owned())?;
    let mut deployment = Deployment::find(&address).map_err(|e| format!("{address}: {e:?}"))?;
    if let Some(topology) = options.topology {
        deployment.topology = topology;
    }
    let mut files = Vec::new();
    collect(&options.suite, &mut files)?;
    files.sort();
    let mut report = Report::new(known, options.list);
    for path in files {
        let Some(file) = read(&path)? else { continue };
        let relative = path.strip_prefix(&options.suite).unwrap_or(&path);
        one_file(&deployment, relative, &file, &options.filters, &mut report);
    }
    if report.is_empty() {
        return Err(format!("{} has no such tests", options.suite.display()));
    }
    let [major, minor, patch] = deployment.version;
    println!(
        "\n{} against version {major}.{minor}.{patch}, topology {}",
        options.suite.display(),
        deployment.topology.name()
    );
    Ok(report.print(options.filters.is_empty()))
}

/// All JSON files below a directory.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "json") {
            files.push(path);
        }
    }
    Ok(())
}

/// A file of unified tests; `None` for any other JSON.
fn read(path: &Path) -> Result<Option<Document>, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    // Files that must not be accepted are for checks against the schema.
    let invalid = path.iter().any(|part| part == "invalid");
    let Ok(map) = serde_json::from_slice::<serde_json::Map<_, _>>(&bytes) else {
        return Ok(None);
    };
    if invalid || !map.contains_key("schemaVersion") || !map.contains_key("tests") {
        return Ok(None);
    }
    let document = Document::try_from(map).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Some(document))
}

/// The folder of a file, without the parts that only say that it contains tests.
fn folder(relative: &Path) -> String {
    let parent = relative.parent().unwrap_or(Path::new(""));
    let parts: Vec<String> = parent
        .iter()
        .map(|part| part.to_string_lossy().replace('_', "-"))
        .filter(|p| !matches!(p.as_str(), "source" | "test" | "tests" | "unified"))
        .collect();
    parts.join("/")
}

fn one_file(
    deployment: &Deployment,
    relative: &Path,
    file: &Document,
    filters: &[String],
    report: &mut Report,
) {
    let folder = folder(relative);
    let name = relative.file_name().unwrap_or_default().to_string_lossy();
    // Each of these tests must fail, since they test the runner.
    let must_fail = folder.ends_with("valid-fail");
    let tests = file.get_array("tests").ok().into_iter().flatten();
    for test in tests.filter_map(Bson::as_document) {
        let description = test.get_str("description").unwrap_or_default();
        let id = format!("{folder}/{name}: {description}");
        if !filters.is_empty() && !filters.iter().any(|f| id.contains(f)) {
            continue;
        }
        let outcome = match requirements::folder(&folder) {
            Some(why) => Outcome::Skipped(why.into()),
            None => test::run(deployment, file, test),
        };
        let verdict = match outcome {
            Outcome::Skipped(why) => Verdict::Skipped(why),
            Outcome::Failed(_) if must_fail => Verdict::Passed,
            Outcome::Passed if must_fail => Verdict::Failed("it must fail and does not".into()),
            Outcome::Passed => Verdict::Passed,
            Outcome::Failed(why) => Verdict::Failed(why),
        };
        let without = requirements::not_compared(test);
        report.add(&folder, id, verdict, without);
    }
}
