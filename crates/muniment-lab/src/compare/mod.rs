//! `muniment bench compare A B`: compares two kept runs figure by figure, with a verdict that a CI
//! job can use.

pub(crate) mod judge;
mod resample;

use crate::commands::Spec;
use crate::report::table::{Table, ms, rate};
use crate::report::{Run, json};
use crate::shelf::{self, Lines};
use crate::stdout::{self, say, width_of};
use judge::{Comparison, Row, Terms, Verdict, compare};
use muniment_load::fail::{Failure, Result};
use muniment_options::{Given, Group, HELP, Opt, Page, Takes};
use serde_json::json;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The command `muniment bench compare`.
pub(crate) const COMMAND: Spec = Spec {
    name: "compare",
    arguments: "[A] [B] [--threshold 5%] [--only EXPERIMENT] [--json FILE]",
    about: "what got better or worse from run A to run B (the last two by default); exit code 1 if worse",
    page,
    run: |given| run(&options(given)?).map(ExitCode::from),
};

fn page() -> Page {
    Page {
        head: "\
Compares two runs that were kept: which figures of B are better or worse than A's.

Usage: muniment bench compare [A] [B] [OPTIONS]

A and B are directories with a results.json, or files written by --json. Without B it is
the last run in bench-report; without both the last run is compared with the last good one
of the same command before it.

"
        .into(),
        groups: vec![Group::new("Options", OPTIONS)],
        foot: "
Rates are judged by a moving-block bootstrap of their time lines, latencies by one of
their histograms; figures without either are shown and not judged.

Exit codes: 0 nothing is worse, 1 something is, 2 wrong arguments or files, 3 there is
nothing to judge (other experiments, other presets).
"
        .into(),
        words: true,
        files: true,
        ..Page::default()
    }
}

const OPTIONS: &[Opt] = &[
    Opt::new(
        "threshold",
        "N%",
        Takes::Checked(|v| threshold(v).map(drop)),
        "a smaller change is no difference; default 5%",
    ),
    Opt::text("only", "EXPERIMENT", "compare this experiment alone"),
    Opt::path(
        "json",
        "FILE",
        "write the comparison as JSON too; - is standard output, on which nothing else is written then",
    ),
    HELP,
];

/// The caution that is printed with every comparison of two runs.
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

fn options(given: &Given) -> Result<Options> {
    let part = given.text("threshold").and_then(|t| threshold(t).ok());
    let root = Path::new(shelf::DEFAULT);
    let (a, b) = match given.words() {
        [] => shelf::last_two(root)?,
        [a] => (a.into(), shelf::last(root)?),
        [a, b] => (a.into(), b.into()),
        more => {
            return Err(Failure(format!(
                "it compares two runs, A and B, not {}",
                more.len()
            )));
        }
    };
    Ok(Options {
        a,
        b,
        terms: Terms {
            threshold: part.unwrap_or(Terms::default().threshold),
            only: given.text("only").map(str::to_string),
        },
        json: given.path("json").map(Path::to_path_buf),
    })
}

/// Parses `5%` or `0.05` as a part of 1.
fn threshold(text: &str) -> std::result::Result<f64, String> {
    let number = |t: &str| t.trim().parse::<f64>().ok();
    let part = match text.strip_suffix('%') {
        Some(t) => number(t).map(|n| n / 100.0),
        None => number(text),
    };
    part.filter(|p| (0.0..1.0).contains(p))
        .ok_or_else(|| "it must be a part such as 5% or 0.05, below 100%".to_string())
}

/// Compares the runs, prints the result, and returns the exit code.
fn run(o: &Options) -> Result<u8> {
    let (a, b) = (json::read(&o.a)?, json::read(&o.b)?);
    let same = |x: &Path, y: &Path| {
        let real = |p: &Path| std::fs::canonicalize(p).ok();
        real(x).is_some_and(|x| Some(x) == real(y))
    };
    if same(&o.a, &o.b) {
        return Err(Failure(format!(
            "{} and {} are the same run: name another one",
            o.a.display(),
            o.b.display()
        )));
    }
    let c = compare(&a, &b, &o.terms);
    let code = code(&c);
    let lines = o.json.as_deref().map(Lines::named);
    let aside = lines == Some(Lines::Stdout);
    let width = match aside {
        true => width_of(&std::io::stderr()),
        false => width_of(&std::io::stdout()),
    };
    let print = if aside { stdout::aside } else { say };
    print(&text(&a, &b, &c, &o.terms, width));
    if let Some(lines) = lines {
        // JSON cannot hold a path whose bytes are not UTF-8, so the closest text is shown.
        let side = |path: &PathBuf, run: &Run| json!({ "file": path.to_string_lossy(), "command": run.command, "started": run.started });
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
        lines.write(&format!("{whole}\n"))?;
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

/// Compares a run that has just ended with the last run of the same command, in one line; `name` is
/// the name of that last run.
pub(crate) fn line(name: &str, a: &Run, b: &Run) -> String {
    let c = compare(a, b, &Terms::default());
    if !c.any() {
        return format!("Against {name}: nothing to judge.");
    }
    // If the surroundings differ, a change of the figures may not come from the server, so the
    // difference is told instead.
    if let Some(first) = c.warnings.first() {
        let more = match c.warnings.len() - 1 {
            0 => String::new(),
            n => format!(", and {n} more"),
        };
        return format!("Against {name}: not judged, since {first}{more}.");
    }
    let count = |v| c.count(v);
    let far = |r: &&Row| (r.ratio.ln().abs() * 1e6) as u64;
    let worst = c.figures.iter().filter(|r| r.verdict == Verdict::Worse);
    let worst = worst.max_by_key(far).map_or_else(String::new, |r| {
        format!("; worst {} {} × {:.2}", r.experiment, r.figure, r.ratio)
    });
    format!(
        "Against {name}: {} worse, {} better, {} as before, {} not judged{worst} (runs one after the other differ by up to 17 % by themselves).",
        count(Verdict::Worse),
        count(Verdict::Better),
        count(Verdict::Same),
        count(Verdict::Open)
    )
}

fn text(a: &Run, b: &Run, c: &Comparison, terms: &Terms, width: Option<usize>) -> String {
    let mut o = String::new();
    for (side, run) in [("A", a), ("B", b)] {
        let _ = writeln!(o, "{side}: {} ({})", run.command, run.started);
    }
    let mut last = "";
    for r in &c.figures {
        if r.experiment != last {
            last = &r.experiment;
            let _ = write!(o, "\n{}", table(c, last).text(width));
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
