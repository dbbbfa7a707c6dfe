//! `cargo xtask test`: runs every step, and then prints one line about each.

use crate::run::{cargo, check, in_ci, server_binary};
use crate::server::ENGINE;
use crate::{clients, deny, docs, report, secured, tidy, unified, versions};
use std::time::Instant;

/// The outcome of a step that did not fail.
pub enum Outcome {
    /// It ran and passed.
    Passed,
    /// It could not run here, which is not the fault of the source tree.
    Skipped(String),
}

/// A step: its name, its subject, and its function.
pub type Step = (&'static str, &'static str, fn() -> Result<Outcome, String>);

/// All steps in order. The server is built by `build`, which every later step needs.
const STEPS: &[Step] = &[
    ("tidy", "house rules", || {
        tidy::run(&[]).map(|()| Outcome::Passed)
    }),
    (
        "deny",
        "licences, sources and advisories of what is linked",
        deny::run,
    ),
    ("build", "the server binary", build),
    (
        "rustdoc",
        "links in the code's documentation",
        documentation,
    ),
    ("docs", "generated pages are fresh", || {
        docs::run(&["--check".into()]).map(|()| Outcome::Passed)
    }),
    (
        "cargo",
        "unit tests, goldens, protocol and fault tests",
        cargo_tests,
    ),
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
}

impl Choice {
    /// True if the step is to run. The other steps need `build`, which therefore runs unless it is skipped.
    fn has(&self, step: &str) -> bool {
        let named = |names: &[String]| names.iter().any(|n| n == step);
        (self.only.is_empty() || named(&self.only) || step == "build") && !named(&self.skip)
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
                for (name, what, _) in STEPS {
                    println!("{name:<16}{what}");
                }
                return Ok(None);
            }
            other => return Err(format!("test does not know '{other}'")),
        }
    }
    for name in choice.only.iter().chain(&choice.skip) {
        if !STEPS.iter().any(|(n, ..)| n == name) {
            return Err(format!(
                "there is no step '{name}'; see cargo xtask test --list"
            ));
        }
    }
    Ok(Some(choice))
}

/// Runs the steps that `args` select.
pub fn run(args: &[String]) -> Result<(), String> {
    let Some(choice) = parse(args)? else {
        return Ok(());
    };
    let mut lines = Vec::new();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, what, step) in STEPS.iter().filter(|(name, ..)| choice.has(name)) {
        println!("\n=== {name}: {what}");
        let started = Instant::now();
        let (word, detail) = match step() {
            Ok(Outcome::Passed) => {
                passed += 1;
                ("ok", String::new())
            }
            Ok(Outcome::Skipped(why)) => {
                skipped += 1;
                ("SKIPPED", why)
            }
            Err(why) => {
                failed += 1;
                ("FAILED", why)
            }
        };
        let seconds = started.elapsed().as_secs_f64();
        lines.push(format!("{word:<8}{name:<16}{seconds:>7.1} s  {detail}"));
        if word == "FAILED" {
            println!("{detail}");
            if *name == "build" {
                break;
            }
        }
    }
    println!("\n=== summary");
    for line in lines {
        println!("{line}");
    }
    println!("steps: {passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 {
        Ok(())
    } else {
        Err(format!("{failed} of the steps failed"))
    }
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
    check(cargo().args(["build", "--package", "muniment"]))?;
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

fn cargo_tests() -> Result<Outcome, String> {
    // Tests that crash a server and look at its files have nothing to look at.
    let without: &[&str] = match persistent() {
        true => &[],
        false => &["--exclude", "fault-tests"],
    };
    check(
        cargo()
            .args(["test", "--workspace", "--no-fail-fast"])
            .args(without)
            .env("MUNIMENT_BIN", server_binary()),
    )?;
    Ok(Outcome::Passed)
}
