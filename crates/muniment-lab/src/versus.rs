//! Several variants side by side: measured in turns, compared by the ratios of what belongs to
//! the same turn.

use crate::report::table::{Table, ms, rate};
use crate::report::{Figure, Outcome};
use crate::stats::{MIN_PAIRS, Ratio, Verdict, median};

/// The order in which `variants` variants are measured in turn `turn`: forwards, then backwards,
/// so that slow drift hits all alike (A B B A for two).
pub fn order(variants: usize, turn: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..variants).collect();
    if turn % 2 == 1 {
        all.reverse();
    }
    all
}

/// More differences than these are told by their rates alone.
const MOST_FINDINGS: usize = 8;

/// What was measured of each variant in each turn. The first variant is what the others are
/// compared with.
pub struct Sheet {
    names: Vec<String>,
    /// By variant, then by turn.
    turns: Vec<Vec<Vec<Figure>>>,
}

impl Sheet {
    /// For variants of these names.
    pub fn new(names: Vec<String>) -> Sheet {
        let turns = names.iter().map(|_| Vec::new()).collect();
        Sheet { names, turns }
    }

    /// The variants' names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What the next turn of `variant` gave. Variants take turns, so all have as many.
    pub fn add(&mut self, variant: usize, figures: Vec<Figure>) {
        if let Some(t) = self.turns.get_mut(variant) {
            t.push(figures);
        }
    }

    /// Figure `name` of `variant`, turn by turn; NaN where it was not measured.
    pub fn values(&self, variant: usize, name: &str) -> Vec<f64> {
        let turns = self.turns.get(variant).map_or(&[][..], Vec::as_slice);
        turns
            .iter()
            .map(|t| {
                t.iter()
                    .find(|f| f.name == name)
                    .map_or(f64::NAN, |f| f.value)
            })
            .collect()
    }

    /// The median over the turns in which it was measured.
    pub fn median(&self, variant: usize, name: &str) -> f64 {
        let all = self.values(variant, name);
        median(
            &all.into_iter()
                .filter(|x| x.is_finite())
                .collect::<Vec<_>>(),
        )
    }

    /// `variant` over the first, turn by turn.
    pub fn ratio(&self, variant: usize, name: &str) -> Option<Ratio> {
        Ratio::of_pairs(&self.values(variant, name), &self.values(0, name))
    }

    /// The figures that the first variant has, in their order: name and unit.
    pub fn figures(&self) -> Vec<(String, String)> {
        let mut out: Vec<(String, String)> = Vec::new();
        for f in self.turns.first().into_iter().flatten().flatten() {
            if !out.iter().any(|(n, _)| *n == f.name) {
                out.push((f.name.clone(), f.unit.clone()));
            }
        }
        out
    }

    /// Medians, ratios and verdicts into `out`.
    pub fn write_down(&self, out: &mut Outcome) {
        let base = self.names.first().cloned().unwrap_or_default();
        let figures = self.figures();
        for (name, unit) in &figures {
            for (i, variant) in self.names.iter().enumerate() {
                out.figure(
                    format!("{name}, {variant}"),
                    self.median(i, name),
                    unit,
                    None,
                );
            }
        }
        if self.names.len() < 2 {
            return;
        }
        let mut t = Table::new(
            &format!("Compared with {base}"),
            &[
                "<figure",
                "<variant",
                "<unit",
                ">median",
                ">ratio",
                ">95 % from",
                ">to",
                ">turns",
                "<verdict",
            ],
        );
        if let Some(c) = t.columns.get_mut(4) {
            c.name = format!("over {base}");
        }
        let mut same = 0;
        let mut different: Vec<(bool, String)> = Vec::new();
        for (name, unit) in &figures {
            t.row([
                name.clone(),
                base.clone(),
                unit.clone(),
                value(self.median(0, name), unit),
            ]);
            for (i, variant) in self.names.iter().enumerate().skip(1) {
                let mut row = vec![
                    name.clone(),
                    variant.clone(),
                    unit.clone(),
                    value(self.median(i, name), unit),
                ];
                if let Some(r) = self.ratio(i, name) {
                    let verdict = r.verdict();
                    row.extend([r.median, r.low, r.high].map(|x| format!("{x:.3}")));
                    row.push(r.pairs.to_string());
                    row.push(verdict.text().to_string());
                    if verdict == Verdict::NoDifference {
                        same += 1;
                    } else {
                        let words = format!(
                            "{variant}: {name} is {:.2} × that of {base} ({:.2} … {:.2}): {}.",
                            r.median,
                            r.low,
                            r.high,
                            verdict.text()
                        );
                        different.push((unit.ends_with("/s"), words));
                    }
                }
                t.row(row);
            }
        }
        t.note(format!(
            "Measured in turns, forwards and backwards (A B, B A, …); ratios are medians over the turns of the ratio within a turn, with a bootstrap 95 % interval. Fewer than {MIN_PAIRS} turns show nothing."
        ));
        // The table has them all; in words, rates come first when there are many.
        let few = different.len() <= MOST_FINDINGS;
        out.findings
            .extend(different.into_iter().filter(|d| few || d.0).map(|d| d.1));
        if same > 0 {
            out.findings.push(format!(
                "No difference shown in {same} of {} comparisons.",
                figures.len() * (self.names.len() - 1)
            ));
        }
        out.tables.push(t);
    }
}

fn value(x: f64, unit: &str) -> String {
    if unit == "ms" { ms(x) } else { rate(x) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn figures(rate: f64) -> Vec<Figure> {
        let mut o = Outcome::default();
        o.figure("inserts", rate, "docs/s", None);
        o.figure("p99", 1e3 / rate, "ms", None);
        o.figures
    }

    #[test]
    fn turns_go_there_and_back() {
        assert_eq!(order(3, 0), [0, 1, 2]);
        assert_eq!(order(3, 1), [2, 1, 0]);
    }

    #[test]
    fn a_difference_is_found_and_none_is_not() {
        let mut s = Sheet::new(vec!["a".into(), "b".into(), "c".into()]);
        let noise = [1.01, 0.98, 1.02, 0.99, 1.0, 0.985];
        for (turn, n) in noise.iter().enumerate() {
            // The machine gets slower all the time.
            let machine = 1000.0 * 0.8f64.powi(turn as i32);
            for v in order(3, turn) {
                let x = [1.0, 1.5, *n][v];
                s.add(v, figures(machine * x));
            }
        }
        let mut out = Outcome::default();
        s.write_down(&mut out);
        assert_eq!(s.ratio(1, "inserts").unwrap().verdict(), Verdict::Higher);
        assert_eq!(s.ratio(1, "p99").unwrap().verdict(), Verdict::Lower);
        assert_eq!(
            s.ratio(2, "inserts").unwrap().verdict(),
            Verdict::NoDifference
        );
        assert_eq!(
            out.findings[0],
            "b: inserts is 1.50 × that of a (1.50 … 1.50): higher."
        );
        assert_eq!(
            out.findings[2],
            "No difference shown in 2 of 4 comparisons."
        );
        assert_eq!(out.tables[0].rows.len(), 6);
        assert_eq!(out.tables[0].rows[2][8], "no difference shown");
    }

    #[test]
    fn one_variant_is_not_compared() {
        let mut s = Sheet::new(vec!["only".into()]);
        s.add(0, figures(10.0));
        let mut out = Outcome::default();
        s.write_down(&mut out);
        assert!(out.tables.is_empty());
        assert_eq!(out.figures[0].name, "inserts, only");
    }
}
