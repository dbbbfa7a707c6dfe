//! The lab's report in a real browser: `tests/report/check.js` checks the page of a run of the experiments
//! with every kind of plot, and that of several runs.

use crate::clients::{ensure, npm_from};
use crate::run::{check, command, find, root, server_binary};
use crate::test::{Outcome, missing};
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn browser() -> Result<Outcome, String> {
    let Some(chromium) = chromium() else {
        return missing(NEEDED);
    };
    let dir = scripts()?;
    let scratch = std::env::temp_dir().join(format!("muniment-report-{}", std::process::id()));
    let result = look(&chromium, &dir, &scratch);
    let _ = std::fs::remove_dir_all(&scratch);
    result.map(|()| Outcome::Passed)
}

/// The programs that are needed to check pages.
const NEEDED: &str = "Node.js (node and npm) or Chromium";

/// The path of Chromium, if Node.js can control it.
fn chromium() -> Option<PathBuf> {
    if !(ensure("node", "nodejs") && ensure("npm", "npm")) {
        return None;
    }
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find_map(find).or_else(|| {
        ensure("chromium", "chromium")
            .then(|| find("chromium"))
            .flatten()
    })
}

/// The directory of the scripts, with their packages.
fn scripts() -> Result<PathBuf, String> {
    npm_from("report", &root().join("tests").join("report"))
}

/// Takes pictures of the top of `page`, light and dark, and puts them into `to`.
pub fn pictures(page: &Path, to: &Path) -> Result<(), String> {
    let chromium = chromium().ok_or_else(|| format!("{NEEDED} is not installed"))?;
    let mut c = command("node", &scripts()?);
    check(c.arg("pictures.js").arg(chromium).arg(page).arg(to))
}

fn look(chromium: &Path, dir: &Path, scratch: &Path) -> Result<(), String> {
    std::fs::create_dir_all(scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let (one, several) = (scratch.join("one"), scratch.join("several"));
    let compared = scratch.join("compared");
    let bench = || {
        let mut c = Command::new(server_binary());
        c.arg("bench");
        c
    };
    // These experiments have lines and points, levels, and bars.
    check(
        bench()
            .args(["w1", "w3", "w4a", "--preset", "smoke", "--data"])
            .arg(scratch)
            .arg("--out")
            .arg(&one),
    )?;
    // These have plots of several targets: lines over each other, and bars next to each other.
    check(
        bench()
            .args(["w1", "w3", "w4a", "--turns", "2", "--only", "batch=10,1000"])
            .args(["--target", "a=embedded", "--target", "b=embedded", "--data"])
            .arg(scratch)
            .arg("--out")
            .arg(&compared),
    )?;
    check(
        bench()
            .arg("report")
            .args([&one, &one])
            .arg("--out")
            .arg(&several),
    )?;
    check(
        command("node", dir)
            .arg("check.js")
            .arg(chromium)
            .args([&one, &several, &compared]),
    )
}
