//! The results as JSON: everything that the page shows, and every measurement that it is made from,
//! so that a page can be made again and runs can be compared later. `docs/results.md` describes
//! every field.
//!
//! A run is an object with `"kind":"run"`, followed for each experiment by its `"kind":"samples"`
//! objects and one `"kind":"result"`. In JSON lines each object is a line; `results.json` has the
//! same objects in an array, one in a line.

use super::{Outcome, Run, SampleSet};
use crate::shelf;
use muniment_load::fail::{Context, Failure, Result};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// The format that is written. It is raised when a field changes its meaning, or when a reader
/// could not do without a new field. Since format 3, plots have a scale `nines` and series have a
/// spread.
pub(crate) const FORMAT: u32 = 3;

/// The oldest format that is read.
const OLDEST: u32 = 2;

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line<'a> {
    Run {
        format: u32,
        #[serde(flatten)]
        run: Cow<'a, Run>,
    },
    Samples {
        experiment: Cow<'a, str>,
        #[serde(flatten)]
        set: Cow<'a, SampleSet>,
    },
    Result(Cow<'a, Outcome>),
}

/// The fields that are read before a line is understood completely.
#[derive(Deserialize)]
struct Head {
    kind: String,
    format: Option<u64>,
}

/// The lines of a run.
///
/// # Errors
/// No run can cause an error.
pub(crate) fn lines(run: &Run) -> Result<Vec<String>> {
    let mut all = vec![Line::Run {
        format: FORMAT,
        run: Cow::Borrowed(run),
    }];
    for x in &run.outcomes {
        all.extend(x.samples.iter().map(|s| Line::Samples {
            experiment: Cow::Borrowed(&x.id),
            set: Cow::Borrowed(s),
        }));
        all.push(Line::Result(Cow::Borrowed(x)));
    }
    all.iter()
        .map(|l| serde_json::to_string(l).context("encoding the results"))
        .collect()
}

/// Joins the lines to one JSON array, with an element in each line.
pub(crate) fn array(lines: &[String]) -> String {
    format!("[\n{}\n]\n", lines.join(",\n"))
}

/// Reads a run from a directory with `results.json`, or from a file of either form.
///
/// # Errors
/// The file cannot be read, is damaged (the error names the line), or has another format.
pub(crate) fn read(path: &Path) -> Result<Run> {
    let file = file_of(path);
    let text =
        std::fs::read_to_string(&file).context(&format!("reading the run {}", file.display()))?;
    parse(&text).map_err(|e| Failure(format!("{}: {e}", file.display())))
}

/// The file with the results of `path`: the file itself, the `results.json` in a directory, or that
/// of the last good run in a directory of runs.
pub(crate) fn file_of(path: &Path) -> PathBuf {
    if !path.is_dir() {
        return path.to_path_buf();
    }
    let latest = path.join(shelf::LATEST).join("results.json");
    match latest.is_file() {
        true => latest,
        false => path.join("results.json"),
    }
}

/// The part of the run in directory `dir` that is known before its results are read; `None` if
/// there is no run in a readable format.
pub(crate) fn head(dir: &Path) -> Option<Run> {
    let file = std::fs::File::open(dir.join("results.json")).ok()?;
    // The run is the first element, in a line of its own.
    let mut lines = BufReader::new(file)
        .lines()
        .take(2)
        .map_while(std::result::Result::ok);
    let line = lines.find(|l| l.starts_with('{'))?;
    match serde_json::from_str(line.trim_end_matches(',')).ok()? {
        Line::Run { format, run } if (OLDEST..=FORMAT).contains(&format) => Some(run.into_owned()),
        _ => None,
    }
}

/// Parses a run from a text of either form.
///
/// # Errors
/// The errors of [`read`].
pub(crate) fn parse(text: &str) -> Result<Run> {
    let heads: Vec<(usize, Head)> = each(text)?;
    match heads.first() {
        None => return Err(Failure::new("it is empty: there is no run in it")),
        Some((_, h)) if h.kind == "environment" || h.kind == "run" => match h.format {
            Some(f) if (u64::from(OLDEST)..=u64::from(FORMAT)).contains(&f) => {}
            Some(f) => {
                return Err(Failure(format!(
                    "its format is {f}, this version reads formats {OLDEST} to {FORMAT}: run it again, or use the version that wrote it"
                )));
            }
            None => return Err(Failure::new("line 1: the field 'format' is missing")),
        },
        Some((n, h)) => {
            return Err(Failure(format!(
                "line {n}: a run begins with \"kind\":\"run\", not \"{}\"",
                h.kind
            )));
        }
    }
    assemble(each(text)?)
}

/// Every element with the number of the line in which it begins.
fn each<'a, T: Deserialize<'a>>(text: &'a str) -> Result<Vec<(usize, T)>> {
    let read = |n: usize, element: &'a str| {
        let x = serde_json::from_str(element).map_err(|e| said(&e, n))?;
        Ok((n, x))
    };
    if !text.trim_start().starts_with('[') {
        let lines = text.lines().enumerate();
        return lines
            .filter(|(_, l)| !l.trim().is_empty())
            .map(|(i, l)| read(i + 1, l))
            .collect();
    }
    let elements: Vec<&RawValue> = serde_json::from_str(text).map_err(|e| said(&e, 1))?;
    let (mut at, mut line) = (0, 1);
    elements
        .into_iter()
        .map(|element| {
            // Each element is a slice of the text, so its position follows from its address.
            let begin = element.get().as_ptr() as usize - text.as_ptr() as usize;
            let between = text.as_bytes().get(at..begin).unwrap_or_default();
            line += between.iter().filter(|b| **b == b'\n').count();
            at = begin;
            read(line, element.get())
        })
        .collect()
}

/// The error for the text that begins in line `first`.
fn said(e: &serde_json::Error, first: usize) -> Failure {
    let what = e.to_string();
    // The message of serde_json may end with a place in this part of the text, which would mislead;
    // it is cut off.
    let what = what.rsplit_once(" at line ").map_or(what.as_str(), |w| w.0);
    Failure(match e.line() {
        0 => format!("line {first}: {what}"),
        n => format!("line {}, column {}: {what}", first + n - 1, e.column()),
    })
}

fn assemble(all: Vec<(usize, Line)>) -> Result<Run> {
    let mut found: Option<Run> = None;
    let mut waiting: Vec<(String, SampleSet)> = Vec::new();
    let mut last = 0;
    for (n, line) in all {
        last = n;
        match (line, &mut found) {
            (Line::Run { run, .. }, None) => found = Some(run.into_owned()),
            (Line::Run { .. }, Some(_)) => {
                return Err(Failure(format!(
                    "line {n}: a second run begins here; put each in a file of its own"
                )));
            }
            (Line::Samples { experiment, set }, _) => {
                waiting.push((experiment.into_owned(), set.into_owned()));
            }
            (Line::Result(outcome), Some(run)) => {
                let mut outcome = outcome.into_owned();
                for (experiment, set) in std::mem::take(&mut waiting) {
                    if experiment != outcome.id {
                        return Err(Failure(format!(
                            "line {n}: the samples '{}' before it belong to {experiment}, not to {}",
                            set.name, outcome.id
                        )));
                    }
                    outcome.samples.push(set);
                }
                run.outcomes.push(outcome);
            }
            (Line::Result(_), None) => {
                return Err(Failure(format!("line {n}: a result before the run")));
            }
        }
    }
    if let Some((experiment, _)) = waiting.first() {
        return Err(Failure(format!(
            "line {last}: the result of {experiment} is missing: the file has been cut off"
        )));
    }
    found.ok_or_else(|| Failure::new("it is empty: there is no run in it"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::report::html;
    use crate::report::tests::run;

    #[test]
    fn what_is_read_back_makes_the_same_page_and_the_same_lines() {
        let run = run();
        let lines = lines(&run).unwrap();
        for text in [lines.join("\n"), array(&lines)] {
            let again = parse(&text).unwrap();
            assert_eq!(html::page(&again), html::page(&run));
            assert_eq!(super::lines(&again).unwrap(), lines);
        }
    }

    #[test]
    fn what_is_refused_and_where() {
        let good = lines(&run()).unwrap();
        let said = |lines: &[String]| {
            let by_line = parse(&lines.join("\n")).err().map(|e| e.0);
            let by_array = parse(&array(lines)).err().map(|e| e.0);
            (by_line.unwrap(), by_array.unwrap())
        };
        let edit = |n: usize, from: &str, to: &str| {
            let mut l = good.clone();
            let line = l.get_mut(n).unwrap();
            assert!(line.contains(from), "{line}");
            *line = line.replacen(from, to, 1);
            l
        };
        for old in ["1", "4", "4294967298"] {
            let format = edit(0, "\"format\":3", &format!("\"format\":{old}"));
            let (a, b) = said(&format);
            assert!(a.contains(&format!(
                "its format is {old}, this version reads formats 2 to 3"
            )));
            assert_eq!(a, b);
        }
        // Line 2 is line 3 of the array, since the bracket has a line of its own.
        let (a, b) = said(&edit(1, "\"operations\":199", "\"operations\":\"many\""));
        assert!(a.starts_with("line 2: ") && a.contains("many"), "{a}");
        assert!(b.starts_with("line 3: ") && b.contains("many"), "{b}");
        let (a, b) = said(&edit(2, "}", "]"));
        assert!(a.starts_with("line 3, column "), "{a}");
        assert!(b.starts_with("line 4, column "), "{b}");
        let (a, _) = said(&edit(2, "\"title\":\"T\",", ""));
        assert!(
            a.contains("line 3") && a.contains("missing field `title`"),
            "{a}"
        );
        let (a, _) = said(&edit(1, "HIST", "HISS"));
        assert!(a.contains("no HDR V2 histogram"), "{a}");
        let (a, b) = said(&good[..2]);
        assert!(a.contains("line 2: the result of w1 is missing"), "{a}");
        assert!(b.contains("line 3: the result of w1 is missing"), "{b}");
        let (a, _) = said(&good[1..]);
        assert!(a.contains("line 1: a run begins with"), "{a}");
        let twice: Vec<String> = good.iter().chain(&good).cloned().collect();
        assert!(said(&twice).0.contains("a second run begins here"));
        let (a, _) = said(&edit(1, "\"experiment\":\"w1\"", "\"experiment\":\"w2\""));
        assert!(a.contains("belong to w2, not to w1"), "{a}");
        assert!(parse("").err().unwrap().0.contains("it is empty"));
        assert!(parse("[]").err().unwrap().0.contains("it is empty"));
        let e = read(Path::new("/nowhere/at/all")).err().unwrap().0;
        assert!(e.contains("reading the run /nowhere/at/all"), "{e}");
    }

    #[test]
    fn a_program_finds_what_it_looks_for() {
        let first: serde_json::Value = serde_json::from_str(&lines(&run()).unwrap()[0]).unwrap();
        assert_eq!(first["kind"], "run");
        assert_eq!(first["environment"][0][1], "2 cores");
        let all = lines(&run()).unwrap();
        let samples: serde_json::Value = serde_json::from_str(&all[1]).unwrap();
        assert_eq!(samples["kind"], "samples");
        assert_eq!(samples["experiment"], "w1");
        assert_eq!(samples["intervals"][1]["p50_ms"], serde_json::Value::Null);
        let result: serde_json::Value = serde_json::from_str(&all[2]).unwrap();
        assert_eq!(result["kind"], "result");
        assert_eq!(result["tables"][0]["rows"][0][1], "0.10");
        assert_eq!(result["plots"][0]["series"][0]["mark"], "line");
    }
}
