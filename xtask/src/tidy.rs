//! House rules that no compiler checks.

use crate::run::{output, root};
use std::process::Command;

/// Longest production part of a source file, in lines.
const LONGEST: usize = 900;

/// Checks all tracked files.
pub fn run() -> Result<(), String> {
    let list = output(Command::new("git").current_dir(root()).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    let mut wrong = Vec::new();
    for file in list.lines() {
        let Ok(text) = std::fs::read_to_string(root().join(file)) else {
            continue; // binary, or deleted and not yet committed
        };
        let mut complain = |what: String| wrong.push(format!("{file}: {what}"));
        if file.ends_with(".rs") && !file.starts_with("tests/") {
            rust(file, &text, &mut complain);
        }
        if text.lines().any(|l| l.starts_with(concat!("<<<<", "<<< "))) {
            complain("a merge conflict marker".into());
        }
        if matches!(
            file.rsplit('.').next(),
            Some("rs" | "md" | "py" | "js" | "toml")
        ) && text.lines().any(|l| l.ends_with([' ', '\t']))
        {
            complain("trailing white space".into());
        }
    }
    one_commit_door(list.lines(), &mut wrong);
    formatted(list.lines(), &mut wrong)?;
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "{} house rules broken:\n{}",
            wrong.len(),
            wrong.join("\n")
        ))
    }
}

/// Modules that a macro declares (commands, one line each) are not seen by `cargo fmt`.
fn formatted<'f>(
    files: impl Iterator<Item = &'f str>,
    wrong: &mut Vec<String>,
) -> Result<(), String> {
    let is_command = |f: &&str| f.starts_with("crates/muniment-server/src/commands/");
    let files: Vec<_> = files.filter(is_command).collect();
    let check = Command::new("rustfmt")
        .current_dir(root())
        .args(["--edition", "2024", "--check", "-l"])
        .args(files)
        .output()
        .map_err(|e| format!("rustfmt: {e}"))?;
    let named = String::from_utf8_lossy(&check.stdout);
    wrong.extend(
        named
            .lines()
            .map(|f| format!("{f}: not formatted: rustfmt --edition 2024")),
    );
    match check.status.success() || !named.is_empty() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&check.stderr).into_owned()),
    }
}

/// Exactly one place of the product appends to the log: the commit door. Everything that is
/// stored went through it.
fn one_commit_door<'f>(files: impl Iterator<Item = &'f str>, wrong: &mut Vec<String>) {
    const DOOR: &str = "crates/muniment-storage/src/commit/mod.rs";
    let mut found = Vec::new();
    for file in files.filter(|f| f.starts_with("crates/muniment-storage/src/")) {
        let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        // However it is broken into lines.
        let text: String = text.split_whitespace().collect();
        let appends = text.matches(concat!("log", ".append(")).count()
            + text.matches(concat!("log()", ".append(")).count()
            + text.matches(concat!(".append", "_ready(")).count();
        found.extend(std::iter::repeat_n(file, appends));
    }
    if found != [DOOR] {
        wrong.push(format!(
            "the log is appended to in {found:?}; only {DOOR} may do so, in one place"
        ));
    }
}

fn rust(file: &str, text: &str, complain: &mut dyn FnMut(String)) {
    let production = text
        .lines()
        .position(|l| l.trim() == "#[cfg(test)]")
        .unwrap_or_else(|| text.lines().count());
    let tests_only = ["/tests/", "/benches/", "/examples/"]
        .iter()
        .any(|d| file.contains(d));
    if production > LONGEST && !tests_only {
        complain(format!(
            "{production} lines before its tests; at most {LONGEST}"
        ));
    }
    let module_head = text.lines().find(|l| !l.trim().is_empty());
    if !module_head.is_some_and(|l| l.starts_with("//!") || l.starts_with("#!")) {
        complain("no module head (//!) that says what it is for".into());
    }
    for (n, line) in text.lines().take(production).enumerate() {
        // Split, so that this file does not find itself.
        for mark in [
            concat!("TO", "DO"),
            concat!("FIX", "ME"),
            concat!("X", "XX"),
        ] {
            if line.contains(mark) {
                complain(format!("line {}: a mark of unfinished work", n + 1));
            }
        }
    }
}
