//! `cargo xtask drivers`: the integration tests of a driver, from a checkout outside of the repository,
//! against a replica set of one, or against the deployment in `--uri`.
//!
//! Known failures are listed with their reasons in `tests/unified/known-failures-DRIVER.txt`. As with the
//! unified tests, the run fails if an unlisted test fails or a listed one passes. Lines that begin with `- `
//! name tests that are not run, because they would wait for something that the machine does not have. Tests
//! that would wait for a second member begin with `-1 `, and run only with `--uri`.

use crate::clients::{ensure, once, venv_with};
use crate::run::{cargo, check, command, root, server_binary, target_dir};
use crate::server::{SET, Server};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The known failures, and the tests that are not run.
#[derive(Default, Debug, PartialEq)]
struct Known {
    /// Tests that fail.
    failing: Vec<String>,
    /// Parts of names of tests that are not run.
    left_out: Vec<String>,
    /// Parts of names of tests that are not run against a set of one.
    alone: Vec<String>,
}

/// The results of the tests.
#[derive(Default, Debug, PartialEq)]
pub struct Results {
    /// How many tests passed.
    pub passed: usize,
    skipped: usize,
    /// The failed tests by name, with the cause as far as the driver's runner prints it on one line.
    pub failed: BTreeMap<String, String>,
}

/// A driver: its name and the function that runs its tests.
struct Driver {
    name: &'static str,
    run: fn(&Path, &str, &Known, &[String]) -> Result<Results, String>,
}

const DRIVERS: &[Driver] = &[
    Driver {
        name: "node",
        run: node,
    },
    Driver {
        name: "pymongo",
        run: pymongo,
    },
];

/// The folders of the Node driver's integration tests that are about the server's replies.
const NODE_FOLDERS: &[&str] = &[
    "causal-consistency",
    "change-streams",
    "client-backpressure",
    "client-side-operations-timeout",
    "collation",
    "collection-management",
    "command-logging-and-monitoring",
    "crud",
    "gridfs",
    "index-management",
    "max-staleness",
    "read-write-concern",
    "retryable-reads",
    "retryable-writes",
    "run-command",
    "sessions",
    "transactions",
    "transactions-convenient-api",
    "unified-test-format",
    "versioned-api",
];

/// Runs the tests of the driver that `args` names, or only those that are named after it.
pub fn run(args: &[String]) -> Result<(), String> {
    let (mut name, mut suite, mut uri, mut only) = (None, None, None, Vec::new());
    let mut it = args.iter();
    while let Some(arg) = it.next() {
        let mut value = || it.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--driver" => name = Some(value()?),
            "--suite" => suite = Some(value()?),
            "--uri" => uri = Some(value()?.clone()),
            "--only" => only.push(value()?.clone()),
            other => return Err(format!("drivers does not know '{other}'")),
        }
    }
    let names: Vec<&str> = DRIVERS.iter().map(|d| d.name).collect();
    let driver = DRIVERS
        .iter()
        .find(|d| name.is_some_and(|n| n == d.name))
        .ok_or(format!("--driver wants one of: {}", names.join(", ")))?;
    let suite = suite.ok_or("--suite wants a checkout of the driver's repository")?;
    let suite = std::path::absolute(suite).map_err(|e| e.to_string())?;
    let file = root().join(format!("tests/unified/known-failures-{}.txt", driver.name));
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut known = parse(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    if uri.is_none() {
        known.left_out.append(&mut known.alone);
    }

    // Some failures of a set of one may not occur in another deployment.
    let all = only.is_empty() && uri.is_none();
    let results = match uri {
        Some(uri) => (driver.run)(&suite, &uri, &known, &only)?,
        None => {
            check(cargo().args(["build", "--package", "muniment"]))?;
            let server = Server::start_with(&server_binary(), SET)?;
            let uri = format!("{}?replicaSet=rs0", server.uri());
            (driver.run)(&suite, &uri, &known, &only)?
        }
    };
    println!(
        "\n{}: {} passed, {} skipped by the driver, {} failed",
        driver.name,
        results.passed,
        results.skipped,
        results.failed.len()
    );
    for (name, cause) in &results.failed {
        if known.failing.contains(name) {
            println!("known to fail: {name}\n       {cause}");
        }
    }
    match judge(&results, &known, all) {
        wrong if wrong.is_empty() => Ok(()),
        wrong => Err(wrong.join("\n")),
    }
}

fn parse(text: &str) -> Result<Known, String> {
    let mut known = Known::default();
    for (n, line) in text.lines().enumerate() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let (name, reason) = line
            .rsplit_once(" # ")
            .ok_or(format!("line {}: there is no reason behind ' # '", n + 1))?;
        if reason.trim().is_empty() {
            return Err(format!("line {}: the reason is empty", n + 1));
        }
        let (list, name) = match name.split_once(' ') {
            Some(("-", part)) => (&mut known.left_out, part),
            Some(("-1", part)) => (&mut known.alone, part),
            _ => (&mut known.failing, name),
        };
        list.push(name.trim().into());
    }
    Ok(known)
}

/// The differences from the known failures. If only a part of the tests ran (`all` is false), it is unknown
/// which of the listed ones are in it.
fn judge(results: &Results, known: &Known, all: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, cause) in &results.failed {
        if !known.failing.contains(name) {
            wrong.push(format!("FAILED {name}\n       {cause}"));
        }
    }
    for name in known.failing.iter().filter(|_| all) {
        if !results.failed.contains_key(name) {
            wrong.push(format!("listed, but it does not fail: {name}"));
        }
    }
    wrong
}

/// Runs a command and returns the lines of its standard output, which are also kept in a file.
pub fn lines(name: &str, c: &mut Command) -> Result<String, String> {
    let dir = target_dir().join("clients");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let path = dir.join(format!("suite-{name}.log"));
    println!(
        "the tests of {name} run; their output is in {}",
        path.display()
    );
    let file = File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    // The command fails if tests fail, so only its output counts.
    c.stdin(Stdio::null())
        .stdout(file)
        .status()
        .map_err(|e| format!("cannot run the tests of {name}: {e}"))?;
    let text = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The host and port of the first server in a connection string. The driver finds the others.
fn first_host(uri: &str) -> Result<(&str, &str), String> {
    let hosts = uri.strip_prefix("mongodb://").unwrap_or(uri);
    let hosts = hosts.split(['/', '?']).next().unwrap_or_default();
    let first = hosts.split(',').next().unwrap_or_default();
    first
        .rsplit_once(':')
        .filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        .ok_or(format!(
            "--uri wants mongodb://host:port[,…]; it is '{uri}'"
        ))
}

fn pymongo(suite: &Path, uri: &str, known: &Known, only: &[String]) -> Result<Results, String> {
    if !ensure("python3", "python3") {
        return Err("python3 is not installed".into());
    }
    let dir = target_dir().join("clients");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let requirements = dir.join("pymongo-suite.txt");
    let of = |file: &str| format!("-r {}\n", suite.join(file).display());
    let text = of("requirements.txt") + &of("requirements/test.txt");
    std::fs::write(&requirements, text).map_err(|e| e.to_string())?;
    let venv = venv_with("pymongo-suite", &requirements)?;
    let (host, port) = first_host(uri)?;
    let mut c = command(venv.join("bin/python"), suite);
    c.args([
        "-B",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
        "-q",
    ])
    .args([
        "-m",
        "default or default_async",
        "--tb=no",
        "-rfE",
        "--color=no",
    ])
    .args(known.left_out.iter().map(|id| format!("--deselect={id}")))
    .args(["--ignore=test/asynchronous"])
    .env("DB_IP", host)
    .env("DB_PORT", port)
    .env("COLUMNS", "1000");
    // A failed test is not repeated.
    c.env_remove("CI").env("DISABLE_FLAKY", "1");
    // The tests compare the information about the machine that the driver sends with that of other
    // environments.
    for variable in [
        "KUBERNETES_SERVICE_HOST",
        "AWS_LAMBDA_RUNTIME_API",
        "VERCEL",
    ] {
        c.env_remove(variable);
    }
    match only {
        [] => c.arg("test"),
        only => c.args(only),
    };
    read_pytest(&lines("pymongo", &mut c)?)
}

/// Reads pytest's short summary: the lines of failures, and the counts at the end.
pub fn read_pytest(text: &str) -> Result<Results, String> {
    let mut results = Results::default();
    for line in text.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or_default();
        if matches!(word, "FAILED" | "ERROR") && rest.starts_with("test") {
            let (id, cause) = rest.split_once(" - ").unwrap_or((rest, ""));
            results.failed.insert(id.trim().into(), cause.into());
        }
    }
    let last = text.lines().rev().find(|l| l.contains(" passed"));
    let last = last.ok_or("pytest did not come to its end; see its output")?;
    let counted = |what: &str| {
        let words: Vec<&str> = last.split_whitespace().collect();
        let at = words
            .iter()
            .position(|w| w.trim_matches([',', '=']) == what);
        let n = at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok());
        n.unwrap_or(0)
    };
    results.passed = counted("passed");
    results.skipped = counted("skipped") + counted("xfailed");
    Ok(results)
}

fn node(suite: &Path, uri: &str, known: &Known, only: &[String]) -> Result<Results, String> {
    if !(ensure("node", "nodejs") && ensure("npm", "npm")) {
        return Err("Node.js (node and npm) is not installed".into());
    }
    let manifest = suite.join("package-lock.json");
    let inputs =
        std::fs::read_to_string(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
    // The packages are installed in the checkout, where the tests look for them.
    once(&suite.join("node_modules"), &inputs, || {
        check(command("npm", suite).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]))
    })?;
    check(command("npm", suite).args(["run", "--silent", "build:bundle"]))?;
    let mocha: PathBuf = suite.join("node_modules/.bin/mocha");
    let mut c = command(mocha, suite);
    c.args([
        "--exit",
        "--config",
        "test/mocha_mongodb.js",
        "--reporter",
        "tap",
    ]);
    if !known.left_out.is_empty() {
        let parts: Vec<String> = known.left_out.iter().map(|part| escape(part)).collect();
        c.args(["--invert", "--grep", &parts.join("|")]);
    }
    match only {
        [] => c.args(NODE_FOLDERS.iter().map(|f| format!("test/integration/{f}"))),
        only => c.args(only),
    };
    c.env("AUTH", "noauth")
        .env("MONGODB_URI", uri)
        .env("TS_NODE_TRANSPILE_ONLY", "true");
    read_tap(&lines("node", &mut c)?)
}

/// A regular expression that matches exactly this text.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if !c.is_alphanumeric() && c != ' ' {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Reads lines of the Test Anything Protocol.
fn read_tap(text: &str) -> Result<Results, String> {
    let mut results = Results::default();
    let mut lines = text.lines().peekable();
    let mut ended = false;
    while let Some(line) = lines.next() {
        ended |= line.starts_with("# pass ");
        let (ok, rest) = match (line.strip_prefix("ok "), line.strip_prefix("not ok ")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => continue,
        };
        let Some((number, title)) = rest.split_once(' ') else {
            continue;
        };
        if number.parse::<u64>().is_err() {
            continue;
        }
        match (ok, title.split_once(" # SKIP")) {
            (_, Some(_)) => results.skipped += 1,
            (true, None) => results.passed += 1,
            (false, None) => {
                let cause = lines.peek().map_or("", |l| l.trim());
                results.failed.insert(title.trim().into(), cause.into());
            }
        }
    }
    match ended {
        true => Ok(results),
        false => Err("mocha did not come to its end; see its output".into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_run_is_judged_by_what_is_known() {
        let known = parse("# head\na b # why\nc # x # why\n- d # none\n-1 e f # one\n\n").unwrap();
        assert_eq!(known.failing, ["a b", "c # x"]);
        assert_eq!((known.left_out.len(), known.alone.len()), (1, 1));
        assert_eq!((&*known.left_out[0], &*known.alone[0]), ("d", "e f"));
        assert!(parse("a\n").is_err() && parse("a # \n").is_err());
        let failed = [("a b", ""), ("e", "cause")];
        let failed = failed.map(|(n, c)| (n.to_string(), c.to_string()));
        let results = Results {
            failed: failed.into_iter().collect(),
            ..Results::default()
        };
        let wrong = judge(&results, &known, true);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].contains("FAILED e") && wrong[1].contains("c # x"));
        assert_eq!(judge(&results, &known, false).len(), 1);
    }

    #[test]
    fn the_first_host_of_a_connection_string() {
        let set = first_host("mongodb://a:1,b:2,c:3/?replicaSet=r").unwrap();
        assert_eq!(set, ("a", "1"));
        assert_eq!(first_host("mongodb://[::1]:5?x=1").unwrap(), ("[::1]", "5"));
        assert!(first_host("mongodb://a/").is_err() && first_host("").is_err());
    }

    #[test]
    fn output_of_pytest() {
        let text = "..F\nFAILED test/a.py::A::test_b - E: x - y\nERROR test/c.py\n\
                    = 2 failed, 17 passed, 3 skipped, 1 xfailed, 9 warnings in 0:01 =\n";
        let r = read_pytest(text).unwrap();
        assert_eq!((r.passed, r.skipped, r.failed.len()), (17, 4, 2));
        assert_eq!(r.failed["test/a.py::A::test_b"], "E: x - y");
        assert!(read_pytest("..").is_err());
    }

    #[test]
    fn output_of_mocha() {
        let text = "1..4\nok 1 a b\nnot ok 2 c d\n  Error: x\nok 3 e # SKIP -\nok then\n# pass 1\n";
        let r = read_tap(text).unwrap();
        assert_eq!((r.passed, r.skipped), (1, 1));
        assert_eq!(r.failed["c d"], "Error: x");
        assert!(read_tap("ok 1 a\n").is_err());
        assert_eq!(escape("a (b)"), "a \\(b\\)");
    }
}
