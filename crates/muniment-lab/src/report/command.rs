//! `muniment bench report RUN…`: makes a new page from kept results.

use super::{Run, derived, html, json};
use crate::commands::{self, Spec};
use crate::stdout::say;
use muniment_load::fail::{Context, Failure, Result};
use muniment_options::{Given, Group, HELP, Opt, Page};
use std::path::{Path, PathBuf};

/// The command `muniment bench report`.
pub(crate) const COMMAND: Spec = Spec {
    name: "report",
    arguments: "RUN… [--out DIR]",
    about: "report.html anew from results that were kept; several runs on one page",
    page,
    run: |given| Ok(commands::ended(run(&options(given)?))),
};

fn page() -> Page {
    Page {
        head: "\
Makes report.html anew from results that were kept.

Usage: muniment bench report RUN… [--out DIR]

RUN is a directory with a results.json, or a file written by --json. Several runs make
one page: the runs, the figures and plots they share side by side, and a chapter each.

"
        .into(),
        groups: vec![Group::new("Options", &[OUT, HELP])],
        words: true,
        files: true,
        ..Page::default()
    }
}

const OUT: Opt = Opt::path(
    "out",
    "DIR",
    "write report.html here; default: beside the results of a single run, ./bench-runs for several",
);

#[derive(Debug, PartialEq)]
struct Options {
    runs: Vec<PathBuf>,
    out: Option<PathBuf>,
}

fn options(given: &Given) -> Result<Options> {
    let o = Options {
        runs: given.words().iter().map(PathBuf::from).collect(),
        out: given.path(OUT.name).map(Path::to_path_buf),
    };
    match o.runs.as_slice() {
        [] => Err(Failure::new(
            "it needs a RUN: a directory or a file of results",
        )),
        _ => Ok(o),
    }
}

fn run(o: &Options) -> Result<()> {
    let mut runs: Vec<Run> = o
        .runs
        .iter()
        .map(|f| json::read(f))
        .collect::<Result<_>>()?;
    // Plots that are made from samples alone are made again, so that they look as those of a new
    // run do.
    let outcomes = runs.iter_mut().flat_map(|r| &mut r.outcomes);
    outcomes.for_each(derived::renew);
    let text = match runs.as_slice() {
        [one] => html::page(one),
        several => html::pages(several),
    };
    let dir = o.out.clone().unwrap_or_else(|| beside(&o.runs));
    std::fs::create_dir_all(&dir).context(&format!("making {}", dir.display()))?;
    let file = dir.join("report.html");
    std::fs::write(&file, text).context(&format!("writing {}", file.display()))?;
    say(&format!(
        "Report: {}\n",
        file.canonicalize().unwrap_or(file).display()
    ));
    Ok(())
}

fn beside(runs: &[PathBuf]) -> PathBuf {
    match runs {
        // If this is a directory of runs, the page is written into that of the run which is chosen
        // from it.
        [one] => match json::file_of(one).parent() {
            Some(p) if p != Path::new("") => p.to_path_buf(),
            _ => PathBuf::from("."),
        },
        _ => PathBuf::from("bench-runs"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn arguments() {
        let parsed = |line: &str| {
            let given = page().parse(line.split_whitespace().map(Into::into))?;
            options(&given)
        };
        let o = parsed("a b.jsonl --out d").unwrap();
        assert_eq!(o.runs, [PathBuf::from("a"), PathBuf::from("b.jsonl")]);
        assert_eq!(o.out, Some(PathBuf::from("d")));
        assert!(parsed("").unwrap_err().0.contains("it needs a RUN"));
        assert!(
            parsed("a --json")
                .unwrap_err()
                .0
                .contains("there is no option '--json'")
        );
        assert_eq!(beside(&["x/y.jsonl".into()]), PathBuf::from("x"));
        assert_eq!(beside(&["y.jsonl".into()]), PathBuf::from("."));
        assert_eq!(
            beside(&["a".into(), "b".into()]),
            PathBuf::from("bench-runs")
        );
    }

    #[test]
    fn the_page_of_a_directory_of_runs_stands_with_its_run() {
        let dir = std::env::temp_dir().join(format!("muniment-beside-{}", std::process::id()));
        let run = dir.join("2026-01-31-120005");
        std::fs::create_dir_all(&run).unwrap();
        std::fs::write(run.join("results.json"), "[]").unwrap();
        assert_eq!(beside(std::slice::from_ref(&run)), run);
        let link = dir.join(crate::shelf::LATEST);
        std::os::unix::fs::symlink("2026-01-31-120005", &link).unwrap();
        let found = beside(std::slice::from_ref(&dir));
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found, link);
    }

    #[test]
    fn a_page_is_made_from_either_form() {
        let dir = std::env::temp_dir().join(format!("muniment-report-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("r")).unwrap();
        let kept = crate::report::tests::run();
        let lines = json::lines(&kept).unwrap();
        std::fs::write(dir.join("r/results.json"), json::array(&lines)).unwrap();
        std::fs::write(dir.join("r.jsonl"), lines.join("\n")).unwrap();
        let read = |runs: &[&str], out: &str| {
            let o = Options {
                runs: runs.iter().map(|r| dir.join(r)).collect(),
                out: Some(dir.join(out)),
            };
            run(&o).unwrap();
            std::fs::read_to_string(dir.join(out).join("report.html")).unwrap()
        };
        let pages = [
            read(&["r"], "x"),
            read(&["r.jsonl"], "y"),
            read(&["r", "r.jsonl"], "z"),
        ];
        std::fs::remove_dir_all(&dir).unwrap();
        // A new page has the plots that are made from samples, which the kept results do not
        // contain.
        let mut today = kept.clone();
        today.outcomes.iter_mut().for_each(derived::renew);
        assert_ne!(html::page(&today), html::page(&kept));
        assert_eq!(pages[0], html::page(&today));
        assert_eq!(pages[1], pages[0]);
        assert!(pages[2].contains("2 runs"));
    }
}
