//! The test of a set whose members have two versions: this build, and an earlier one.
//!
//! The earlier one is built once from the repository's history, at the commit in [`NAMED`]. Its sources,
//! target directory and binary are in the user's cache, outside of the checkout.

use crate::run::{cargo, check, command, output, root, server_binary, target_dir};
use crate::test::{Outcome, missing, persistent};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The file with the commit.
const NAMED: &str = "tests/previous-version";

/// Runs the test.
pub fn run() -> Result<Outcome, String> {
    if !persistent() {
        return Ok(Outcome::Skipped("the engine keeps nothing".into()));
    }
    let commit =
        named(&fs::read_to_string(root().join(NAMED)).map_err(|e| format!("{NAMED}: {e}"))?)?;
    let object = format!("{commit}^{{commit}}");
    let known = command("git", &root())
        .args(["cat-file", "-e", &object])
        .stderr(Stdio::null())
        .status();
    match known {
        Ok(status) if status.success() => {}
        Ok(_) => {
            return Ok(Outcome::Skipped(format!(
                "the history of this checkout does not have {commit}, which {NAMED} names"
            )));
        }
        Err(_) => return missing("git"),
    }
    let Some(cache) = cache() else {
        return Ok(Outcome::Skipped(
            "there is no home directory to build in".into(),
        ));
    };
    let previous = build(&cache, &commit)?;
    check(
        cargo()
            .args(["test", "--workspace", "--test", "versions"])
            .args(["--", "--nocapture"])
            .env("MUNIMENT_BIN", server_binary())
            .env("MUNIMENT_PREVIOUS", previous),
    )?;
    Ok(Outcome::Passed)
}

/// The commit in the file's text, which is the only line that is not a comment.
fn named(text: &str) -> Result<String, String> {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|l| !l.is_empty() && !l.starts_with('#'));
    let commit = lines.next().unwrap_or_default();
    let hex = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    match hex && lines.next().is_none() {
        true => Ok(commit.to_string()),
        false => Err(format!("{NAMED} has to name one commit by its 40 digits")),
    }
}

/// The directory in which earlier versions are built.
fn cache() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    Some(cache.or_else(home)?.join("muniment").join("previous"))
}

/// The binary of this commit, which is built if it does not exist.
fn build(cache: &Path, commit: &str) -> Result<PathBuf, String> {
    let kept = cache.join(format!("muniment-{commit}"));
    if kept.is_file() {
        return Ok(kept);
    }
    println!("building {commit} in {}, once", cache.display());
    let failed = |what: &Path, e: std::io::Error| format!("{}: {e}", what.display());
    let source = cache.join("source");
    let _ = fs::remove_dir_all(&source);
    fs::create_dir_all(&source).map_err(|e| failed(&source, e))?;
    let archive = cache.join("source.tar");
    check(
        command("git", &root())
            .args(["archive", "--format=tar", "--output"])
            .arg(&archive)
            .arg(commit),
    )?;
    check(
        Command::new("tar")
            .arg("-xf")
            .arg(&archive)
            .arg("-C")
            .arg(&source),
    )?;
    let target = cache.join("target");
    check(
        cargo()
            .current_dir(&source)
            .args(["build", "--locked", "--package", "muniment"])
            .env("CARGO_TARGET_DIR", &target)
            // What both versions depend on is there, built.
            .env("CARGO_BUILD_BUILD_DIR", target_dir()),
    )?;
    // The binary is renamed into place, so that a file with its name is always complete.
    let made = cache.join("muniment.new");
    fs::copy(target.join("debug/muniment"), &made).map_err(|e| failed(&made, e))?;
    fs::rename(&made, &kept).map_err(|e| failed(&kept, e))?;
    let _ = fs::remove_dir_all(&source);
    let _ = fs::remove_file(&archive);
    let version = output(Command::new(&kept).arg("--version"))?;
    println!("built {}", version.trim());
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_commit_is_named() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let text = format!("# why\n\n{commit}\n");
        assert_eq!(named(&text).as_deref(), Ok(commit));
        for wrong in ["", "# only why", "main", &commit[1..], &text.repeat(2)] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
        let here = fs::read_to_string(root().join(NAMED)).unwrap_or_default();
        assert!(named(&here).is_ok(), "{here}");
    }
}
