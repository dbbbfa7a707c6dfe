//! The step `deny`: licences, sources and advisories of everything that is linked into the binary, by
//! `cargo deny` and `deny.toml`.

use crate::run::{check, find, in_ci, root, target_dir};
use crate::test::Outcome;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The version that CI installs.
const VERSION: &str = "0.20.2";

/// How long CI spends on installing it at most, in seconds.
const PATIENCE: &str = "900";

/// Checks licences, duplicates and sources, and advisories where their database can be had.
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
    // The database is a repository elsewhere, which a machine without that network cannot fetch.
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

/// Where cargo-deny is. CI installs it below the target directory.
fn program() -> Option<PathBuf> {
    let tools = target_dir().join("tools");
    let own = tools.join("bin").join("cargo-deny");
    if let Some(there) = find("cargo-deny").or_else(|| own.is_file().then(|| own.clone())) {
        return Some(there);
    }
    if !in_ci() {
        return None;
    }
    // Unoptimised: that takes two minutes of CPU time to build, and runs for seconds.
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
