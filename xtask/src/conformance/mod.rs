//! `cargo xtask conformance`: the public suite documentdb/functional-tests against a fresh server.
//!
//! The suite's checkout is outside of the repository. The repository has the ratchet, which is the list of
//! the tests that pass (`tests/conformance/passing.txt`). If a test in it fails, the run fails. A test in it
//! that no longer exists is reported but is not a failure, since the suite changes.
//!
//! Before a cluster of two shards (`--sharded`) the same tests have to pass, but for those in
//! `differing-sharded.txt`. With `--divided` there are three shards, and each collection is divided over them: the
//! run only reports, since most of what fails then expects an order that such a collection does not have.

mod ratchet;

use crate::clients::venv_with;
use crate::run::{cargo, check, root, target_dir};
use crate::server::Server;
use crate::unified::deployment;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The folders of the yardstick, relative to the suite's tests.
const FOLDERS: &[&str] = &[
    "core/aggregation",
    "core/collation",
    "core/collections",
    "core/cursors",
    "core/data-types",
    "core/indexes",
    "core/operator",
    "core/query-planning",
    "core/query_and_write",
    "core/query_planning",
    "system/diagnostic",
];

/// The folders that run against a replica set: those whose features a standalone server does not have.
const ON_A_SET: &[&str] = &[
    "changeStreams",
    "core/operator/stages/changeStreamSplitLargeEvent",
    "core/operator/stages/test_stages_position_changeStream.py",
    "core/operator/system-stages/changeStream",
    "core/query_and_write/read_concern",
    "core/sessions",
    "system/replication",
];

/// The folders that are left out: the stages of a search service. (The suite marks what needs a replica set
/// or encryption, and leaves that out on a standalone server itself.)
const LEFT_OUT: &[&str] = &[
    "core/operator/stages/search",
    "core/operator/stages/searchMeta",
    "core/operator/stages/test_stages_position_search.py",
    "core/operator/stages/test_stages_position_searchMeta.py",
    "core/operator/stages/test_stages_position_vectorSearch.py",
    "core/operator/stages/vectorSearch",
];

/// The suite's folder of tests.
const TESTS: &str = "documentdb_tests/compatibility/tests";
/// The common prefix of all ids.
const ID_PREFIX: &str = "compatibility/tests/";
/// The most seconds that a test may take.
const TEST_SECONDS: &str = "60";

/// The choices on the command line.
#[derive(Default)]
struct Options {
    suite: PathBuf,
    filters: Vec<String>,
    binary: Option<PathBuf>,
    workers: Option<String>,
    depth: usize,
    causes: bool,
    update: bool,
    /// Whether to run against a replica set of one.
    set: bool,
    /// Whether to run against a router before shards.
    sharded: bool,
    /// Whether the collections of the tests are divided over these.
    divided: bool,
}

impl Options {
    /// The deployment that the tests run against.
    fn topology(&self) -> &'static str {
        match (self.set, self.divided, self.sharded) {
            (true, ..) => "replicaset",
            (_, true, _) => "divided",
            (.., true) => "sharded",
            _ => "single",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Passed,
    Skipped,
    Failed,
}

/// The outcome of each test, by its id without the common prefix, and its cause if it did not pass.
type Results = BTreeMap<String, (Outcome, String)>;

/// Runs the suite, or the part of it that `args` select.
pub fn run(args: &[String]) -> Result<(), String> {
    let options = parse(args)?;
    let folders = folders(&options)?;
    let ratchet_file = root().join("tests/conformance").join(match options.set {
        true => "passing-set.txt",
        false => "passing.txt",
    });
    let kept = read_ids(&ratchet_file)?;
    let differing_file = root().join("tests/conformance/differing-sharded.txt");

    let binary = match &options.binary {
        Some(binary) => std::path::absolute(binary).map_err(|e| e.to_string())?,
        None => {
            check(cargo().args(["build", "--release", "--package", "muniment"]))?;
            target_dir().join("release").join("muniment")
        }
    };
    let venv = venv_with("conformance", &options.suite.join("requirements.txt"))?;
    let results = run_suite(&options, &folders, &binary, &venv)?;
    if results.is_empty() {
        return Err("no test ran".into());
    }

    report(&results, options.depth);
    if options.causes || options.divided {
        report_causes(&results);
    }
    if options.divided {
        return Ok(());
    }
    let passed = |id: &String| matches!(results.get(id), Some((Outcome::Passed, _)));
    let in_scope = |id: &String| folders.iter().any(|f| within(id, f)) && !left_out(id);
    if options.sharded {
        let differing = read_ids(&differing_file)?;
        if options.update {
            let differ = |id: &&String| in_scope(id) && results.contains_key(*id) && !passed(id);
            let differ = kept.iter().filter(differ).cloned().collect();
            return update_reasons(&differing_file, in_scope, differ);
        }
        let scope = kept
            .iter()
            .filter(|id| in_scope(id) && !differing.contains(*id));
        let scope: Vec<&String> = scope.collect();
        let new = differing.iter().filter(|id| passed(id));
        return compare(&results, &scope, new.count());
    }
    if options.update {
        let mut ids: BTreeSet<String> = kept.into_iter().filter(|id| !in_scope(id)).collect();
        ids.extend(results.keys().filter(|id| passed(id)).cloned());
        return write_ids(&ratchet_file, ratchet::PASSING, &ids);
    }
    let scope: Vec<&String> = kept.iter().filter(|id| in_scope(id)).collect();
    let new = results
        .keys()
        .filter(|id| passed(id) && !kept.contains(*id));
    compare(&results, &scope, new.count())
}

/// The ids in a file; none if there is no file.
fn read_ids(file: &Path) -> Result<BTreeSet<String>, String> {
    match std::fs::read_to_string(file) {
        Ok(text) => ratchet::parse(&text).map_err(|e| format!("{}: {e}", file.display())),
        Err(_) => Ok(BTreeSet::new()),
    }
}

/// Writes the ids that differ into the file: each keeps its reason. Ids out of scope stay as they are.
fn update_reasons(
    file: &Path,
    in_scope: impl Fn(&String) -> bool,
    mut differ: BTreeSet<String>,
) -> Result<(), String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut reasons =
        ratchet::parse_reasons(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    for (_, ids) in &mut reasons {
        ids.retain(|id| !in_scope(id) || differ.remove(id));
    }
    reasons.push((ratchet::UNEXPLAINED.to_owned(), differ));
    reasons.retain(|(_, ids)| !ids.is_empty());
    let count: usize = reasons.iter().map(|(_, ids)| ids.len()).sum();
    std::fs::write(file, ratchet::render_reasons(ratchet::DIFFERING, &reasons))
        .map_err(|e| format!("{}: {e}", file.display()))?;
    println!("{}: {count} tests written", file.display());
    Ok(())
}

fn write_ids(file: &Path, head: &str, ids: &BTreeSet<String>) -> Result<(), String> {
    std::fs::write(file, ratchet::render(head, ids))
        .map_err(|e| format!("{}: {e}", file.display()))?;
    println!("{}: {} tests written", file.display(), ids.len());
    Ok(())
}

/// The folders that are to run, all of which the suite has.
fn folders(options: &Options) -> Result<Vec<&str>, String> {
    let tests = options.suite.join(TESTS);
    if !tests.is_dir() {
        return Err(format!(
            "{} has no {TESTS}: --suite wants a checkout of documentdb/functional-tests",
            options.suite.display()
        ));
    }
    let folders: Vec<&str> = match options.filters.as_slice() {
        [] if options.set => ON_A_SET.to_vec(),
        [] => FOLDERS.to_vec(),
        filters => filters.iter().map(String::as_str).collect(),
    };
    match folders.iter().find(|f| !tests.join(f).exists()) {
        Some(folder) => Err(format!("the suite has no {folder} below {TESTS}")),
        None => Ok(folders),
    }
}

/// Compares the results with those before: `scope` passed before, and `new` tests pass for the first time.
fn compare(results: &Results, scope: &[&String], new: usize) -> Result<(), String> {
    let (mut worse, mut gone) = (Vec::new(), 0);
    for id in scope {
        match results.get(*id) {
            Some((Outcome::Failed, cause)) => worse.push((*id, cause)),
            Some(_) => {}
            None => gone += 1,
        }
    }
    println!(
        "ratchet: {} tests passed before, {} of them fail now, {gone} did not run; {new} pass for the first time",
        scope.len(),
        worse.len(),
    );
    for (id, cause) in &worse {
        println!("  {id}\n      {}", first_line(cause));
    }
    if worse.is_empty() {
        Ok(())
    } else {
        Err(format!("{} tests that passed before fail now", worse.len()))
    }
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut options = Options {
        depth: 3,
        ..Options::default()
    };
    let mut it = args.iter();
    while let Some(arg) = it.next() {
        let mut value = || {
            it.next()
                .cloned()
                .ok_or_else(|| format!("{arg} needs a value"))
        };
        match arg.as_str() {
            "--suite" => options.suite = value()?.into(),
            "--filter" => {
                let filter = value()?;
                let filter = filter.strip_prefix(TESTS).unwrap_or(&filter);
                options.filters.push(filter.trim_matches('/').to_owned());
            }
            "--bin" => options.binary = Some(value()?.into()),
            "--workers" => options.workers = Some(value()?),
            "--depth" => {
                options.depth = value()?.parse().map_err(|e| format!("--depth: {e}"))?;
            }
            "--causes" => options.causes = true,
            "--update" => options.update = true,
            "--set" => options.set = true,
            "--sharded" => options.sharded = true,
            "--divided" => options.divided = true,
            other => return Err(format!("conformance does not know '{other}'")),
        }
    }
    if [options.set, options.sharded, options.divided]
        .iter()
        .filter(|given| **given)
        .count()
        > 1
    {
        return Err("--set, --sharded and --divided are different deployments: give one".into());
    }
    if options.divided && options.update {
        return Err("there is no list of what differs with --divided".into());
    }
    if options.suite.as_os_str().is_empty() {
        return Err("--suite PATH is needed: a checkout of documentdb/functional-tests".into());
    }
    options.suite = std::path::absolute(&options.suite).map_err(|e| e.to_string())?;
    Ok(options)
}

/// Whether an id belongs to a folder or file.
fn within(id: &str, folder: &str) -> bool {
    id.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/') || rest.starts_with("::"))
}

fn left_out(id: &str) -> bool {
    LEFT_OUT.iter().any(|path| within(id, path))
}

/// Runs pytest, and watches the server meanwhile.
fn run_suite(
    options: &Options,
    folders: &[&str],
    binary: &Path,
    venv: &Path,
) -> Result<Results, String> {
    let out = target_dir().join("conformance");
    std::fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let (record, log) = (out.join("record.tsv"), out.join("pytest.log"));
    std::fs::write(&record, "").map_err(|e| format!("{}: {e}", record.display()))?;
    let log_file = std::fs::File::create(&log).map_err(|e| e.to_string())?;
    let log_errors = log_file.try_clone().map_err(|e| e.to_string())?;
    let mut servers = deployment(options.topology(), binary)?;
    let server = servers.last_mut().ok_or("there is no server")?;
    println!(
        "{} against {}: {}",
        options.suite.display(),
        binary.display(),
        folders.join(" ")
    );
    let mut pytest = pytest(options, folders, venv, &server.uri());
    pytest
        .env("MUNIMENT_CONFORMANCE_RECORD", &record)
        .stdout(log_file)
        .stderr(log_errors);
    let child = pytest.spawn().map_err(|e| format!("pytest: {e}"))?;
    let started = Instant::now();
    let status = watch(child, server, &record)?;
    println!(
        "pytest ended after {} s ({status}); its output is in {}",
        started.elapsed().as_secs(),
        log.display()
    );
    // 0: all passed, 1: some failed, 5: none were selected.
    if !matches!(status.code(), Some(0 | 1 | 5)) {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        return Err(format!(
            "pytest did not run the suite:\n{}",
            lines[lines.len().saturating_sub(20)..].join("\n")
        ));
    }
    let text =
        std::fs::read_to_string(&record).map_err(|e| format!("{}: {e}", record.display()))?;
    Ok(read_record(&text))
}

/// The command that runs the folders against the server at `uri`.
fn pytest(options: &Options, folders: &[&str], venv: &Path, uri: &str) -> Command {
    let workers = match &options.workers {
        Some(n) => n.clone(),
        None => std::thread::available_parallelism()
            .map_or(2, |n| n.get().min(8))
            .to_string(),
    };
    let mut pytest = Command::new(venv.join("bin/python"));
    pytest
        .current_dir(&options.suite)
        .args(["-B", "-m", "pytest", "-n", &workers])
        .args(["--connection-string", uri])
        .args(["--engine-name", "mongodb"])
        .args(
            LEFT_OUT
                .iter()
                .map(|path| format!("--ignore={TESTS}/{path}")),
        )
        .args(folders.iter().map(|f| format!("{TESTS}/{f}")))
        // These options are in the environment, so that the suite's second process for its sequential tests
        // has them too. A test that hangs fails alone; the thread method would end its process. pytest's own
        // summary takes minutes for failures with documents of 16 MB in them; this program makes one from the
        // record.
        .env(
            "PYTEST_ADDOPTS",
            format!(
                "-o addopts= --strict-markers -q --tb=short --no-summary --color=no \
                 -p no:cacheprovider \
                 --timeout {TEST_SECONDS} --timeout-method signal"
            ),
        )
        .env(
            "PYTEST_PLUGINS",
            match options.divided {
                true => "conformance_recorder,conformance_divided",
                false => "conformance_recorder",
            },
        )
        .env("PYTHONPATH", root().join("tests/conformance"))
        .stdin(Stdio::null());
    pytest
}

/// Waits for pytest. Meanwhile starts the server again whenever it ends, and prints how many tests are in the
/// recorder's file.
fn watch(mut child: Child, server: &mut Server, record: &Path) -> Result<ExitStatus, String> {
    let (started, mut said, mut deaths) = (Instant::now(), Instant::now(), 0);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(e) => return Err(format!("pytest: {e}")),
        }
        if let Some(ended) = server.ended() {
            deaths += 1;
            println!("THE SERVER ENDED: {ended}\n{}", server.last_words(20));
            if let Err(e) = server.restart() {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("the server cannot be restarted: {e}"));
            }
            println!("the server was restarted; tests that ran meanwhile fail");
        }
        if said.elapsed() > Duration::from_secs(60) {
            said = Instant::now();
            let done =
                std::fs::read(record).map_or(0, |r| r.iter().filter(|b| **b == b'\n').count());
            println!("… {done} tests after {} s", started.elapsed().as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    if deaths > 0 {
        println!("the server ended {deaths} times");
    }
    Ok(status)
}

/// Reads the recorder's output. Of several lines for a test the worst counts.
fn read_record(text: &str) -> Results {
    let mut results = Results::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, '\t');
        let outcome = match fields.next() {
            Some("passed") => Outcome::Passed,
            Some("skipped") => Outcome::Skipped,
            _ => Outcome::Failed,
        };
        let id = fields.next().unwrap_or_default();
        let id = id.strip_prefix(ID_PREFIX).unwrap_or(id).to_owned();
        let cause = fields.next().unwrap_or_default();
        let entry = results
            .entry(id)
            .or_insert_with(|| (outcome, cause.to_owned()));
        if outcome > entry.0 {
            *entry = (outcome, cause.to_owned());
        }
    }
    results
}

/// Prints a line for each folder, and the total.
fn report(results: &Results, depth: usize) {
    let mut folders: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    let mut total = [0; 3];
    for (id, (outcome, _)) in results {
        let file = id.split("::").next().unwrap_or_default();
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let folder = folder.split('/').take(depth).collect::<Vec<_>>().join("/");
        let counts = folders.entry(folder).or_default();
        let at = *outcome as usize;
        if let (Some(count), Some(sum)) = (counts.get_mut(at), total.get_mut(at)) {
            *count += 1;
            *sum += 1;
        }
    }
    let width = folders.keys().map(String::len).max().unwrap_or(0).max(6);
    println!(
        "\n{:<width$} {:>7} {:>7} {:>7} {:>8}",
        "folder", "passed", "failed", "skipped", "rate"
    );
    for (folder, counts) in &folders {
        line(width, folder, *counts);
    }
    line(width, "total", total);
}

fn line(width: usize, name: &str, [passed, skipped, failed]: [usize; 3]) {
    let ran = passed + failed;
    // The rate is rounded down: 100 % means a folder without failures.
    let rate = match (passed * 10_000).checked_div(ran) {
        Some(hundredths) => format!("{}.{:02} %", hundredths / 100, hundredths % 100),
        None => "-".to_owned(),
    };
    println!("{name:<width$} {passed:>7} {failed:>7} {skipped:>7} {rate:>8}");
}

/// Prints the failures by cause, the most frequent first, each with its folders.
fn report_causes(results: &Results) {
    let mut causes: BTreeMap<String, (usize, BTreeSet<&str>, &str)> = BTreeMap::new();
    for (id, (outcome, cause)) in results {
        if *outcome != Outcome::Failed {
            continue;
        }
        let file = id.split("::").next().unwrap_or_default();
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let entry = causes
            .entry(first_line(cause))
            .or_insert((0, BTreeSet::new(), id));
        entry.0 += 1;
        entry.1.insert(folder);
    }
    let mut causes: Vec<_> = causes.into_iter().collect();
    causes.sort_by(|a, b| b.1.0.cmp(&a.1.0).then_with(|| a.0.cmp(&b.0)));
    println!("\nfailures by cause");
    for (cause, (count, folders, example)) in causes {
        println!(
            "{count:>6}  {cause}\n        {} folders, such as {example}",
            folders.len()
        );
    }
}

/// The first meaningful line of an escaped cause. The suite's own headings, `[KIND] subject of the test`, are
/// cut down to the kind and the text after it: one cause makes many tests fail, each with its own heading.
fn first_line(cause: &str) -> String {
    let mut lines = cause
        .split("\\n")
        .map(|l| l.trim().trim_start_matches("AssertionError: "))
        .filter(|l| !l.is_empty());
    let first = lines.next().unwrap_or_default();
    let kind = first
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
        .map(|(kind, _)| kind)
        .filter(|kind| kind.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'));
    let mut out = kind.unwrap_or(first).to_owned();
    match kind {
        // The documents differ from test to test.
        Some("RESULT_MISMATCH" | "UNEXPECTED_SUCCESS") => {}
        Some(_) => {
            for line in lines.take_while(|l| !l.starts_with("assert ")) {
                out.push(' ');
                out.push_str(line);
            }
        }
        // A heading that ends with a colon includes the next line.
        None => {
            for line in lines {
                if !out.ends_with(':') {
                    break;
                }
                out.push(' ');
                out.push_str(line);
            }
        }
    }
    match out.char_indices().nth(240) {
        Some((end, _)) => format!("{}…", out.get(..end).unwrap_or_default()),
        None => out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_line_of_a_test_counts() {
        let results = read_record(
            "passed\tcompatibility/tests/core/a/test_a.py::test_x[mongodb]\t\n\
             failed\tcompatibility/tests/core/a/test_a.py::test_x[mongodb]\ttear-down:\\nlate\n\
             skipped\tcompatibility/tests/core/a/test_a.py::test_y[mongodb]\twhy\n",
        );
        let (outcome, cause) = &results["core/a/test_a.py::test_x[mongodb]"];
        assert!(*outcome == Outcome::Failed);
        assert_eq!(first_line(cause), "tear-down: late");
        assert!(results["core/a/test_a.py::test_y[mongodb]"].0 == Outcome::Skipped);
        let cause = "AssertionError: [ERROR_MISMATCH] about\\n  \\n Expected:\\n  {'code': 2}\\nassert False";
        assert_eq!(first_line(cause), "ERROR_MISMATCH Expected: {'code': 2}");
    }

    #[test]
    fn a_folder_is_not_its_namesake() {
        assert!(within("core/a/test_a.py::t", "core/a"));
        assert!(within("core/a/test_a.py::t", "core/a/test_a.py"));
        assert!(!within("core/ab/test_a.py::t", "core/a"));
        assert!(left_out("core/operator/stages/search/test_x.py::t"));
        assert!(!left_out("core/operator/stages/searchable/test_x.py::t"));
    }
}
