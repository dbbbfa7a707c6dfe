//! Counts by folder and reason, the failures, and the list of known ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The result of a test.
pub(crate) enum Verdict {
    /// It passed.
    Passed,
    /// It did not run, or not to its end, for this reason.
    Skipped(String),
    /// It failed, for this reason.
    Failed(String),
}

/// The results of all tests.
pub(crate) struct Report {
    known: Vec<(String, String)>,
    list: bool,
    folders: BTreeMap<String, [usize; 3]>,
    reasons: BTreeMap<String, usize>,
    without: BTreeMap<&'static str, usize>,
    failures: Vec<(String, String)>,
    passed: BTreeSet<String>,
}

/// Reads the known failures: `file.json: description # why`, one per line. (The folder is left out, because
/// its name differs between distributions of the tests.)
///
/// # Errors
/// A line without a reason, or a missing file.
pub(crate) fn read_known(file: &Path) -> Result<Vec<(String, String)>, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut known = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((id, why)) = line.rsplit_once(" # ") else {
            return Err(format!("{}: no reason: {line}", file.display()));
        };
        known.push((id.trim().to_owned(), why.trim().to_owned()));
    }
    Ok(known)
}

impl Report {
    /// A report without results.
    pub(crate) fn new(known: Vec<(String, String)>, list: bool) -> Report {
        Report {
            known,
            list,
            folders: BTreeMap::new(),
            reasons: BTreeMap::new(),
            without: BTreeMap::new(),
            failures: Vec::new(),
            passed: BTreeSet::new(),
        }
    }

    /// True before the first test.
    pub(crate) fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    /// Counts a test. `without` names parts of it that are not compared.
    pub(crate) fn add(
        &mut self,
        folder: &str,
        id: String,
        verdict: Verdict,
        without: Option<&'static str>,
    ) {
        let [passed, failed, skipped] = self.folders.entry(folder.to_owned()).or_default();
        if self.list {
            match &verdict {
                Verdict::Passed => println!("passed   {id}"),
                Verdict::Skipped(why) => println!("skipped  {id} ({why})"),
                Verdict::Failed(_) => println!("FAILED   {id}"),
            }
        }
        match verdict {
            Verdict::Passed => {
                *passed += 1;
                self.passed.insert(id);
                if let Some(what) = without {
                    *self.without.entry(what).or_default() += 1;
                }
            }
            Verdict::Skipped(why) => {
                *skipped += 1;
                *self.reasons.entry(why).or_default() += 1;
            }
            Verdict::Failed(why) => {
                *failed += 1;
                self.failures.push((id, why));
            }
        }
    }

    /// Prints everything. True if only known failures have failed. `all` is false if only a part of the tests
    /// ran.
    pub(crate) fn print(&self, all: bool) -> bool {
        let width = self
            .folders
            .keys()
            .map(String::len)
            .max()
            .unwrap_or(0)
            .max(6);
        println!(
            "\n{:<width$} {:>6} {:>6} {:>6} {:>7} {:>7}",
            "folder", "tests", "run", "passed", "failed", "skipped"
        );
        let line = |name: &str, [passed, failed, skipped]: [usize; 3]| {
            let run = passed + failed;
            println!(
                "{name:<width$} {:>6} {run:>6} {passed:>6} {failed:>7} {skipped:>7}",
                run + skipped
            );
        };
        let mut total = [0; 3];
        for (folder, counts) in &self.folders {
            line(folder, *counts);
            for (sum, n) in total.iter_mut().zip(counts) {
                *sum += n;
            }
        }
        line("total", total);
        if !self.reasons.is_empty() {
            println!("\nskipped");
        }
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        for (why, n) in reasons {
            println!("{n:>6}  {why}");
        }
        for (what, n) in &self.without {
            println!("{n} passed without {what}, which are not compared");
        }
        self.verdict(all)
    }

    fn verdict(&self, all: bool) -> bool {
        let is = |id: &str, known: &str| id.strip_suffix(known).is_some_and(|f| f.ends_with('/'));
        let reason = |id: &str| self.known.iter().find(|(k, _)| is(id, k));
        let (known, new): (Vec<_>, Vec<_>) = self
            .failures
            .iter()
            .partition(|(id, _)| reason(id).is_some());
        if !known.is_empty() {
            println!("\n{} known failures", known.len());
        }
        for (id, _) in &known {
            println!("  {id}\n      {}", reason(id).map_or("", |(_, why)| why));
        }
        if !new.is_empty() {
            println!("\n{} failures", new.len());
        }
        for (id, why) in &new {
            println!("  {id}\n      {why}");
        }
        // A listed test that passes has to be removed from the list; one that does not exist is a mistake in
        // it.
        let seen = |known: &str| self.failures.iter().any(|(id, _)| is(id, known));
        let passes = |known: &str| self.passed.iter().any(|id| is(id, known));
        let stale: Vec<_> = self
            .known
            .iter()
            .filter(|(id, _)| passes(id) || (all && !seen(id)))
            .collect();
        for (id, _) in &stale {
            let how = if passes(id) {
                "passes"
            } else {
                "is not there or skipped"
            };
            println!("\nlisted as a known failure, but it {how}: {id}");
        }
        new.is_empty() && stale.is_empty()
    }
}
