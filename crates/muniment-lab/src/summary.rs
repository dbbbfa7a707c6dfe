//! The text at the end of a run: a line for what each experiment found, the number of warnings, a
//! comparison with the last run, and the place of the report. It has twelve lines at most;
//! everything else is in the report.

use crate::report::Outcome;
use muniment_options::fold;
use std::fmt::Write;

/// The width of the column of experiment names.
const COLUMN: usize = 11;

/// The most lines of findings; the warnings, the comparison and the report's place bring the text
/// to twelve lines at most.
const MOST: usize = 9;

/// Collects the findings of a run's experiments as lines.
pub(crate) struct Summary {
    /// The number of experiments that will be run.
    experiments: usize,
    /// The lines so far: the name that stands in front, and the finding.
    said: Vec<(String, String)>,
    /// The number of lines that [`Summary::newest`] has given already.
    given: usize,
}

impl Summary {
    /// An empty summary for a run of so many experiments.
    pub(crate) fn new(experiments: usize) -> Summary {
        Summary {
            experiments,
            said: Vec::new(),
            given: 0,
        }
    }

    /// Whether there is only one experiment, which may use all the lines.
    fn alone(&self) -> bool {
        self.experiments < 2
    }

    /// Adds the findings of an experiment: the first one, or, if it is the only experiment, as many
    /// as there is room for.
    pub(crate) fn add(&mut self, out: &Outcome) {
        let id = out.id.trim_end_matches("-compared");
        let failed = out.warnings.iter().find(|w| w.starts_with("Failed: "));
        let mut texts: Vec<String> = match failed {
            Some(f) => vec![f.replacen("Failed: ", "FAILED: ", 1)],
            None => Vec::new(),
        };
        texts.extend(out.findings.iter().cloned());
        if texts.is_empty() {
            texts.push(format!(
                "{}, {} and {} in the report.",
                counted(out.figures.len(), "figure"),
                counted(out.tables.len(), "table"),
                counted(out.plots.len(), "plot")
            ));
        }
        let interrupted = out.warnings.iter().any(|w| w.starts_with("Interrupted"));
        if let Some(first) = texts.first_mut().filter(|_| interrupted) {
            first.insert_str(0, "Interrupted: ");
        }
        texts.truncate(if self.alone() { MOST } else { 1 });
        for (i, text) in texts.into_iter().enumerate() {
            self.said
                .push((if i == 0 { id.into() } else { String::new() }, text));
        }
    }

    /// The lines added since the last call, in lines of `width`; findings beyond the limit are only
    /// counted at the end.
    pub(crate) fn newest(&mut self, width: Option<usize>) -> String {
        let text = self.from(self.given, width);
        self.given = self.said.len();
        text
    }

    /// All lines.
    pub(crate) fn whole(&self, width: Option<usize>) -> String {
        self.from(0, width)
    }

    /// The lines from number `first` on, up to the limit. Each finding has one line; those of an
    /// only experiment may continue in further lines.
    fn from(&self, first: usize, width: Option<usize>) -> String {
        let mut lines = Vec::new();
        for (id, text) in self.said.iter().take(MOST).skip(first) {
            let room = width.map(|w| w.saturating_sub(COLUMN).max(10));
            let mut parts = match room {
                Some(w) if self.alone() => fold(text, w),
                _ => vec![cut(text, room)],
            };
            if lines.len() + parts.len() > MOST {
                parts = vec![cut(text, room)];
            }
            for (i, part) in parts.into_iter().enumerate() {
                let id = if i == 0 { id.as_str() } else { "" };
                lines.push(format!("{id:<0$}{part}", COLUMN));
            }
        }
        lines.truncate(MOST);
        Summary::lines(&lines, width)
    }

    /// A line that counts the warnings of each experiment; empty if there are none. It also counts
    /// the findings that had no line of their own.
    pub(crate) fn warnings(&self, outcomes: &[Outcome]) -> Vec<String> {
        let all: usize = outcomes.iter().map(|o| o.warnings.len()).sum();
        let by: Vec<String> = outcomes
            .iter()
            .filter(|o| !o.warnings.is_empty())
            .map(|o| format!("{} {}", o.id, o.warnings.len()))
            .collect();
        let more = self.said.len().saturating_sub(MOST);
        let mut o = Vec::new();
        match (all, more) {
            (0, 0) => return o,
            (0, n) => o.push(format!("{n} more findings are in the report.")),
            (n, more) => o.push(format!(
                "Warnings: {n} ({}), in the report{}",
                by.join(", "),
                match more {
                    0 => String::new(),
                    n => format!(" with {n} more findings"),
                }
            )),
        }
        o
    }

    /// Joins `lines`, each cut to `width`.
    pub(crate) fn lines(lines: &[String], width: Option<usize>) -> String {
        let mut o = String::new();
        for l in lines {
            let _ = writeln!(o, "{}", cut(l, width));
        }
        o
    }
}

/// Joins a number and a noun: `1 plot`, `3 plots`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Makes `text` one line of at most `width` letters; a text that is cut ends with `…`.
pub(crate) fn cut(text: &str, width: Option<usize>) -> String {
    match width {
        Some(w) if text.chars().count() > w => {
            let head: String = text.chars().take(w.saturating_sub(1)).collect();
            format!("{}…", head.trim_end())
        }
        _ => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(id: &str, findings: &[&str], warnings: &[&str]) -> Outcome {
        let texts = |all: &[&str]| all.iter().map(|s| (*s).to_string()).collect();
        Outcome {
            id: id.into(),
            findings: texts(findings),
            warnings: texts(warnings),
            ..Outcome::default()
        }
    }

    #[test]
    fn every_experiment_has_a_line_and_warnings_are_counted() {
        let all = [
            outcome("w1", &["first", "second"], &["a"]),
            outcome("w3", &[], &["Failed: no server", "b"]),
            outcome("w5-compared", &[], &[]),
        ];
        let mut s = Summary::new(3);
        s.add(&all[0]);
        assert_eq!(s.newest(None), "w1         first\n");
        s.add(&all[1]);
        s.add(&all[2]);
        assert_eq!(
            s.newest(None),
            "w3         FAILED: no server\nw5         0 figures, 0 tables and 0 plots in the report.\n"
        );
        assert_eq!(s.newest(None), "");
        assert_eq!(
            s.warnings(&all),
            ["Warnings: 3 (w1 1, w3 2), in the report"]
        );
        assert_eq!(
            s.whole(Some(22)).lines().nth(1),
            Some("w3         FAILED: no…")
        );
        assert!(s.warnings(&all[2..]).is_empty());
    }

    #[test]
    fn the_only_experiment_has_several_lines_but_never_too_many() {
        let many: Vec<String> = (0..20).map(|i| format!("f{i}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let mut s = Summary::new(1);
        s.add(&outcome("run", &many, &[]));
        assert_eq!(s.newest(None).lines().count(), MOST);
        // A finding that is longer than a line continues in the next one, as long as lines are
        // left.
        let long = "0123456789 ".repeat(8);
        let mut s = Summary::new(1);
        s.add(&outcome("run", &[&long, "second"], &[]));
        let text = s.newest(Some(40));
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 40), "{text}");
        let mut s = Summary::new(20);
        for id in &many {
            s.add(&outcome(id, &["x"], &[]));
            s.newest(None);
        }
        assert_eq!(s.whole(None).lines().count(), MOST);
        assert_eq!(s.warnings(&[]), ["11 more findings are in the report."]);
    }
}
