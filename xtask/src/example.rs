//! `cargo xtask example`: the report that the documentation shows, docs/example-report.
//!
//! The results are kept (`results.json`), so that the page can be made again without measuring whenever the
//! report changes. The check of the generated pages (`cargo xtask docs --check`) fails until that is done.
//! The pictures belong to one page, whose fingerprint is kept with them.

use crate::report;
use crate::run::{cargo, check, output, root, server_binary, target_dir};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The experiments that are measured: every kind of plot, in about five minutes.
const MEASURED: &[&str] = &["bench", "w1", "w3", "w4b", "--preset", "quick"];

/// The page, and the results that it is made of.
const KEPT: [&str; 2] = ["report.html", "results.json"];

fn dir() -> PathBuf {
    root().join("docs").join("example-report")
}

/// Measures, makes the page and takes its pictures. With `--page` it uses the earlier results.
pub fn run(args: &[String]) -> Result<(), String> {
    match args {
        [] => {
            check(cargo().args(["build", "--release", "--package", "muniment"]))?;
            measure(&target_dir().join("release").join("muniment"))?;
        }
        [flag, program] if flag == "--bin" => measure(Path::new(program))?,
        [flag] if flag == "--page" => {
            check(cargo().args(["build", "--quiet", "--package", "muniment"]))?;
            page(false)?;
        }
        other => return Err(format!("example does not know {other:?}")),
    }
    report::pictures(&dir().join("report.html"), &dir())?;
    let print = fingerprint()?;
    std::fs::write(of(), print).map_err(|e| format!("{}: {e}", of().display()))
}

/// Runs the experiments with `program`, and keeps the page and the results.
fn measure(program: &Path) -> Result<(), String> {
    let program = std::path::absolute(program).map_err(|e| e.to_string())?;
    let scratch = scratch("measured");
    std::fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    // The program runs in a directory of its own, without --out, because the page shows the command.
    let ran = check(Command::new(program).current_dir(&scratch).args(MEASURED));
    let kept = ran.and_then(|()| {
        KEPT.iter().try_for_each(|name| {
            let to = dir().join(name);
            let latest = scratch.join("bench-report").join("latest");
            let copied = std::fs::copy(latest.join(name), &to);
            copied
                .map(drop)
                .map_err(|e| format!("{}: {e}", to.display()))
        })
    });
    let _ = std::fs::remove_dir_all(&scratch);
    kept
}

/// Makes the page from the kept results again. With `only_check`, fails if it differs, or if the pictures
/// belong to another page.
pub fn page(only_check: bool) -> Result<(), String> {
    let scratch = scratch("page");
    let mut c = Command::new(server_binary());
    c.args(["bench", "report"])
        .arg(dir())
        .arg("--out")
        .arg(&scratch);
    let fresh = output(&mut c).and_then(|_| read(&scratch.join("report.html")));
    let _ = std::fs::remove_dir_all(&scratch);
    let (fresh, file) = (fresh?, dir().join("report.html"));
    let stale = "is older than the report: run cargo xtask example (--page, without measuring)";
    if read(&file).is_ok_and(|old| old == fresh) {
        let pictured = read(&of()).is_ok_and(|old| fingerprint().is_ok_and(|new| old == new));
        return match pictured || !only_check {
            true => Ok(()),
            false => Err(format!("a picture in docs/example-report {stale}")),
        };
    }
    if only_check {
        return Err(format!("docs/example-report/report.html {stale}"));
    }
    std::fs::write(&file, fresh).map_err(|e| format!("{}: {e}", file.display()))?;
    println!("wrote docs/example-report/report.html");
    Ok(())
}

/// The file that says to which page the pictures belong.
fn of() -> PathBuf {
    dir().join("pictures-of.txt")
}

/// The page's fingerprint (FNV-1a, 64 bits).
fn fingerprint() -> Result<String, String> {
    let text = read(&dir().join("report.html"))?;
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    Ok(format!("report.html {hash:016x}\n"))
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))
}

/// A directory that does not exist yet.
fn scratch(what: &str) -> PathBuf {
    std::env::temp_dir().join(format!("muniment-example-{what}-{}", std::process::id()))
}
