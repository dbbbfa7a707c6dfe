//! The step `deny`: checks licences, sources and advisories of everything that is linked into the binary,
//! with `cargo deny` and `deny.toml`.

use crate::run::{check, find, in_ci, root, target_dir};
use crate::test::Outcome;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The version that CI installs.
const VERSION: &str = "0.20.2";

/// The most seconds that CI spends on installing it.
const PATIENCE: &str = "900";

/// Checks licences, duplicates and sources, and also advisories if their database is available.
pub fn run() -> Result<Outcome, String> {
    let Some(program) = program() else {
        return Ok(Outcome::Skipped(format!(
            "cargo-deny is not there: cargo install --locked cargo-deny@{VERSION}"
        )));
    };
    let deny = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.current_dir(root()).args(words);
        command
    };
    check(&mut deny(&[
        "--all-features",
        "check",
        "licenses",
        "bans",
        "sources",
    ]))?;
    // The database is a repository, which a machine without network access cannot fetch.
    let fetched = deny(&["fetch", "db"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !fetched.is_ok_and(|status| status.success()) {
        println!("advisories were not checked: their database cannot be fetched from here");
        return Ok(Outcome::Passed);
    }
    check(&mut deny(&["check", "advisories"]))?;
    Ok(Outcome::Passed)
}

/// The path of cargo-deny. CI installs it below the target directory.
fn program() -> Option<PathBuf> {
    let tools = target_dir().join("tools");
    let own = tools.join("bin").join("cargo-deny");
    if let Some(there) = find("cargo-deny").or_else(|| own.is_file().then(|| own.clone())) {
        return Some(there);
    }
    if !in_ci() {
        return None;
    }
    // It is built without optimization: that takes two minutes of CPU time, and the program runs only for
    // seconds.
    let mut install = Command::new("timeout");
    install
        .arg(PATIENCE)
        .args([
            "cargo", "install", "--quiet", "--debug", "--locked", "--root",
        ])
        .arg(&tools)
        .arg(format!("cargo-deny@{VERSION}"))
        .env("CARGO_TARGET_DIR", tools.join("build"));
    let installed = check(&mut install);
    let _ = std::fs::remove_dir_all(tools.join("build"));
    installed.ok().map(|()| own)
}
