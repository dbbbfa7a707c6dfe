//! `muniment bench report RUN…`: the page made anew from results that were kept.

use super::{Run, html, json};
use crate::commands::{self, Spec};
use crate::fail::{Context, Failure, Result};
use crate::stdout::say;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `muniment bench report`.
pub const COMMAND: Spec = Spec {
    name: "report",
    arguments: "RUN… [--out DIR]",
    about: "report.html anew from results that were kept; several runs on one page",
    run: |args| match parse(args) {
        Ok(Some(o)) => commands::ended(run(&o)),
        Ok(None) => {
            say(HELP);
            ExitCode::SUCCESS
        }
        Err(e) => commands::misused("report", &e),
    },
};

const HELP: &str = "\
Makes report.html anew from results that were kept.

Usage: muniment bench report RUN… [--out DIR]

RUN is a directory with a results.json, or a file written by --json. Several runs make
one page: the runs, the figures and plots they share side by side, and a chapter each.

Options:
  --out DIR   write report.html here; default: beside the results of a single run,
              ./bench-runs for several
  -h, --help  this text
";

#[derive(Debug, PartialEq)]
struct Options {
    runs: Vec<PathBuf>,
    out: Option<PathBuf>,
}

fn parse(args: Vec<OsString>) -> Result<Option<Options>> {
    use lexopt::prelude::*;
    let said = |e: lexopt::Error| Failure(e.to_string());
    let mut o = Options {
        runs: Vec::new(),
        out: None,
    };
    let mut p = lexopt::Parser::from_args(args);
    while let Some(arg) = p.next().map_err(said)? {
        match arg {
            Short('h') | Long("help") => return Ok(None),
            Long("out") => o.out = Some(p.value().map_err(said)?.into()),
            Value(v) => o.runs.push(v.into()),
            other => return Err(said(other.unexpected())),
        }
    }
    if o.runs.is_empty() {
        return Err(Failure::new(
            "it needs a RUN: a directory or a file of results",
        ));
    }
    Ok(Some(o))
}

fn run(o: &Options) -> Result<()> {
    let runs: Vec<Run> = o
        .runs
        .iter()
        .map(|f| json::read(f))
        .collect::<Result<_>>()?;
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
        [one] if one.is_dir() => one.clone(),
        [one] => match one.parent() {
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
        let parsed = |line: &str| parse(line.split_whitespace().map(OsString::from).collect());
        let o = parsed("a b.jsonl --out d").unwrap().unwrap();
        assert_eq!(o.runs, [PathBuf::from("a"), PathBuf::from("b.jsonl")]);
        assert_eq!(o.out, Some(PathBuf::from("d")));
        assert_eq!(parsed("-h").unwrap(), None);
        assert!(parsed("").unwrap_err().0.contains("it needs a RUN"));
        assert!(parsed("a --json").unwrap_err().0.contains("invalid option"));
        assert_eq!(beside(&["x/y.jsonl".into()]), PathBuf::from("x"));
        assert_eq!(beside(&["y.jsonl".into()]), PathBuf::from("."));
        assert_eq!(
            beside(&["a".into(), "b".into()]),
            PathBuf::from("bench-runs")
        );
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
        assert_eq!(pages[0], html::page(&kept));
        assert_eq!(pages[1], pages[0]);
        assert!(pages[2].contains("2 runs"));
    }
}
