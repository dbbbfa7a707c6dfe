//! `muniment bench compare A B`: two runs that were kept, figure by figure, with a verdict that a
//! CI job can use.

pub mod judge;
mod resample;

use crate::commands::{self, Spec};
use crate::fail::{Context, Failure, Result};
use crate::report::table::{Table, ms, rate};
use crate::report::{Run, json};
use crate::stdout::say;
use judge::{Comparison, Row, Terms, Verdict, compare};
use serde_json::json;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// `muniment bench compare`.
pub const COMMAND: Spec = Spec {
    name: "compare",
    arguments: "A B [--threshold 5%] [--only EXPERIMENT] [--json FILE]",
    about: "what of run B is better or worse than in run A; exit code 1 if anything is worse",
    run: |args| match parse(args) {
        Ok(Some(o)) => match run(&o) {
            Ok(code) => ExitCode::from(code),
            Err(e) => commands::misused("compare", &e),
        },
        Ok(None) => {
            say(HELP);
            ExitCode::SUCCESS
        }
        Err(e) => commands::misused("compare", &e),
    },
};

const HELP: &str = "\
Compares two runs that were kept: which figures of B are better or worse than A's.

Usage: muniment bench compare A B [OPTIONS]

A and B are directories with a results.json, or files written by --json.

Options:
  --threshold N%     a smaller change is no difference; default 5%
  --only EXPERIMENT  compare this experiment alone
  --json FILE        write the comparison as JSON too
  -h, --help         this text

Rates are judged by a moving-block bootstrap of their time lines, latencies by one of
their histograms; figures without either are shown and not judged.

Exit codes: 0 nothing is worse, 1 something is, 2 wrong arguments or files, 3 there is
nothing to judge (other experiments, other presets).
";

/// What every comparison of two runs must say.
const CAUTION: &str = "\
The intervals show what varied within each run. Two runs that were not interleaved have been
seen to differ by up to 17 % by themselves: before acting on a verdict, let both servers take
turns in one run (muniment bench EXPERIMENT --target a=… --target b=…).";

#[derive(Debug, PartialEq)]
struct Options {
    a: PathBuf,
    b: PathBuf,
    terms: Terms,
    json: Option<PathBuf>,
}

fn parse(args: Vec<OsString>) -> Result<Option<Options>> {
    use lexopt::prelude::*;
    let said = |e: lexopt::Error| Failure(e.to_string());
    let mut runs: Vec<PathBuf> = Vec::new();
    let mut terms = Terms {
        threshold: 0.05,
        only: None,
    };
    let mut json = None;
    let mut p = lexopt::Parser::from_args(args);
    while let Some(arg) = p.next().map_err(said)? {
        match arg {
            Short('h') | Long("help") => return Ok(None),
            Long("threshold") => terms.threshold = threshold(&p.value().map_err(said)?)?,
            Long("only") => {
                terms.only = Some(p.value().map_err(said)?.to_string_lossy().into_owned());
            }
            Long("json") => json = Some(p.value().map_err(said)?.into()),
            Value(v) => runs.push(v.into()),
            other => return Err(said(other.unexpected())),
        }
    }
    match <[PathBuf; 2]>::try_from(runs) {
        Ok([a, b]) => Ok(Some(Options { a, b, terms, json })),
        Err(runs) => Err(Failure(format!(
            "it compares two runs, A and B, not {}",
            runs.len()
        ))),
    }
}

/// `5%` or `0.05`, as a part of 1.
fn threshold(text: &OsString) -> Result<f64> {
    let text = text.to_string_lossy();
    let number = |t: &str| t.trim().parse::<f64>().ok();
    let part = match text.strip_suffix('%') {
        Some(t) => number(t).map(|n| n / 100.0),
        None => number(&text),
    };
    part.filter(|p| (0.0..1.0).contains(p)).ok_or_else(|| {
        Failure(format!(
            "--threshold {text}: it must be a part such as 5% or 0.05, below 100%"
        ))
    })
}

/// Compares, prints, and gives the exit code.
fn run(o: &Options) -> Result<u8> {
    let (a, b) = (json::read(&o.a)?, json::read(&o.b)?);
    let c = compare(&a, &b, &o.terms);
    let code = code(&c);
    say(&text(&a, &b, &c, &o.terms));
    if let Some(file) = &o.json {
        let side = |path: &PathBuf, run: &Run| json!({ "file": path, "command": run.command, "started": run.started });
        let whole = json!({
            "kind": "comparison",
            "format": json::FORMAT,
            "a": side(&o.a, &a),
            "b": side(&o.b, &b),
            "threshold": o.terms.threshold,
            "exit_code": code,
            "warnings": c.warnings,
            "figures": c.figures,
        });
        std::fs::write(file, format!("{whole}\n"))
            .context(&format!("writing {}", file.display()))?;
    }
    Ok(code)
}

fn code(c: &Comparison) -> u8 {
    match () {
        () if !c.any() => 3,
        () if c.count(Verdict::Worse) > 0 => 1,
        () => 0,
    }
}

fn text(a: &Run, b: &Run, c: &Comparison, terms: &Terms) -> String {
    let mut o = String::new();
    for (side, run) in [("A", a), ("B", b)] {
        let _ = writeln!(o, "{side}: {} ({})", run.command, run.started);
    }
    let mut last = "";
    for r in &c.figures {
        if r.experiment != last {
            last = &r.experiment;
            let _ = write!(o, "\n{}", table(c, last).text());
        }
    }
    if !c.warnings.is_empty() {
        o.push_str("\nWARNING\n");
        for w in &c.warnings {
            let _ = writeln!(o, "  - {w}");
        }
    }
    if !c.any() {
        o.push_str(match &terms.only {
            Some(only) => format!("\nThere is nothing to judge of {only}.\n"),
            None => "\nThere is nothing to judge: the runs have no figure in common that has a distribution.\n".to_string(),
        }.as_str());
        return o;
    }
    let count = |v| c.count(v);
    let _ = writeln!(
        o,
        "\n{} worse, {} better, {} without a difference shown, {} not judged. Changes below {:.3} % count as none; of those that are shown, one in 20 is chance.\n{CAUTION}",
        count(Verdict::Worse),
        count(Verdict::Better),
        count(Verdict::Same),
        count(Verdict::Open),
        terms.threshold * 100.0
    );
    o
}

fn table(c: &Comparison, experiment: &str) -> Table {
    let columns = [
        "<figure", "<unit", ">A", ">B", ">B / A", ">95 %", "<verdict",
    ];
    let mut t = Table::new(experiment, &columns);
    for r in c.figures.iter().filter(|r| r.experiment == experiment) {
        t.row([
            r.figure.clone(),
            r.unit.clone(),
            value(r, r.a),
            value(r, r.b),
            if r.ratio.is_finite() {
                format!("{:.3}", r.ratio)
            } else {
                "–".into()
            },
            r.interval
                .map_or_else(String::new, |(l, h)| format!("{l:.3} … {h:.3}")),
            match r.why.as_str() {
                "" => r.verdict.text().to_string(),
                why => format!("{}: {why}", r.verdict.text()),
            },
        ]);
    }
    t
}

fn value(r: &Row, x: f64) -> String {
    if r.unit == "ms" { ms(x) } else { rate(x) }
}

#[cfg(test)]
mod tests;
