//! What a run says at its end: a line for what each experiment found, the warnings counted, how it
//! stands against the last run, where the report is. Twelve lines at most; everything else is in the
//! report.

use crate::report::Outcome;
use muniment_options::fold;
use std::fmt::Write;

/// The width of the experiments' names.
const COLUMN: usize = 11;

/// Lines that tell what was found: with the warnings, the comparison and the report there are twelve
/// at most.
const MOST: usize = 9;

/// What the experiments of a run found.
pub(crate) struct Summary {
    /// How many experiments there will be.
    experiments: usize,
    /// What stands in front of a line, and what it says.
    said: Vec<(String, String)>,
    /// How many of them [`Summary::newest`] has given.
    given: usize,
}

impl Summary {
    /// Of a run of so many experiments.
    pub(crate) fn new(experiments: usize) -> Summary {
        Summary {
            experiments,
            said: Vec::new(),
            given: 0,
        }
    }

    /// Whether there is one experiment alone, which may have all the lines.
    fn alone(&self) -> bool {
        self.experiments < 2
    }

    /// Takes what an experiment found: one finding, or of the only experiment all that there is room
    /// for.
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

    /// What came since the last time, in lines of `width`; what is too much is only counted at the
    /// end.
    pub(crate) fn newest(&mut self, width: Option<usize>) -> String {
        let text = self.from(self.given, width);
        self.given = self.said.len();
        text
    }

    /// All of it.
    pub(crate) fn whole(&self, width: Option<usize>) -> String {
        self.from(0, width)
    }

    /// From the `first` on, as many lines as there may be: a line each, but the only experiment's
    /// go on in a next line.
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

    /// How many warnings there are, by experiment, in a line; none if there are none. What had no
    /// line of its own is counted here too.
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

    /// `lines`, each cut to `width`.
    pub(crate) fn lines(lines: &[String], width: Option<usize>) -> String {
        let mut o = String::new();
        for l in lines {
            let _ = writeln!(o, "{}", cut(l, width));
        }
        o
    }
}

/// `1 plot`, `3 plots`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// `text` in one line of at most `width` letters; one that is cut ends with `…`.
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
        // A finding that is longer than a line goes on in the next, while there are enough.
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
