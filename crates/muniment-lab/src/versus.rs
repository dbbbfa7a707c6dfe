//! Several variants side by side: measured in turns, compared by the ratios of what belongs to
//! the same turn.

use crate::report::table::{Table, ms, rate};
use crate::report::{Figure, Outcome, Statistic};
use muniment_load::samples::SampleSet;
use muniment_load::stats::{MIN_PAIRS, Ratio, Verdict, interval, median};

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
    /// What all its figures are, if they are the same of several loads.
    title: String,
    names: Vec<String>,
    /// By variant, then by turn.
    turns: Vec<Vec<Vec<Figure>>>,
}

impl Sheet {
    /// For variants of these names.
    pub fn new(names: Vec<String>) -> Sheet {
        Sheet::of("", names)
    }

    /// For variants of these names; all figures are `title` of something.
    pub fn of(title: &str, names: Vec<String>) -> Sheet {
        let turns = names.iter().map(|_| Vec::new()).collect();
        Sheet {
            title: title.to_string(),
            names,
            turns,
        }
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
        let figures = self.figures();
        for (name, unit) in &figures {
            self.tell(name, unit, out);
        }
        if self.names.len() < 2 || figures.is_empty() {
            return;
        }
        let mut said = Said::default();
        out.tables.push(self.compared(&figures, &mut said));
        let prefix = match self.title.as_str() {
            "" => String::new(),
            title => format!("{title}: "),
        };
        let words = said.words(self.base());
        out.findings
            .extend(words.into_iter().map(|w| format!("{prefix}{w}")));
    }

    /// The variant with which the others are compared.
    fn base(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// A figure of every variant.
    fn tell(&self, name: &str, unit: &str, out: &mut Outcome) {
        for (i, variant) in self.names.iter().enumerate() {
            let called = match self.title.as_str() {
                "" => format!("{name}, {variant}"),
                title => format!("{name}, {title}, {variant}"),
            };
            let all = self.values(i, name);
            let all: Vec<f64> = all.into_iter().filter(|x| x.is_finite()).collect();
            let f = out.figure(called, self.median(i, name), unit, None);
            // The figure of a later run is judged by what the turns of both show.
            if let Some((low, high)) = interval(&all, median) {
                f.between(low, high);
            }
        }
    }

    /// Every variant beside the first, figure by figure; the ratios go into `said` too.
    fn compared(&self, figures: &[(String, String)], said: &mut Said) -> Table {
        let base = self.base();
        let mut t = Table::new(
            &match self.title.as_str() {
                "" => format!("Compared with {base}"),
                title => format!("{title}, compared with {base}"),
            },
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
        for (name, unit) in figures {
            for (i, variant) in self.names.iter().enumerate() {
                let median = value(self.median(i, name), unit);
                let mut row = vec![name.clone(), variant.clone(), unit.clone(), median];
                if i > 0
                    && let Some(r) = self.ratio(i, name)
                {
                    row.extend(judged(&r));
                    said.add(variant, name, unit, r);
                }
                t.row(row);
            }
        }
        if self.title.is_empty() {
            t.note(format!(
                "Measured in turns, forwards and backwards (A B, B A, …); ratios are medians over the turns of the ratio within a turn, with a bootstrap 95 % interval. Fewer than {MIN_PAIRS} turns are too few to judge by."
            ));
        }
        t
    }
}

/// A ratio, its interval, of how many turns it is, and the verdict.
fn judged(r: &Ratio) -> [String; 5] {
    let verdict = r.verdict();
    // Of few turns there is no interval that says anything.
    let end = |x: f64| match verdict {
        Verdict::TooFew => "–".to_string(),
        _ => format!("{x:.3}"),
    };
    [
        format!("{:.3}", r.median),
        end(r.low),
        end(r.high),
        r.pairs.to_string(),
        verdict.text().to_string(),
    ]
}

/// What a sheet's ratios come to, in words.
#[derive(Default)]
struct Said {
    /// Variant, figure, whether it is a rate, ratio.
    all: Vec<(String, String, bool, Ratio)>,
}

impl Said {
    fn add(&mut self, variant: &str, name: &str, unit: &str, r: Ratio) {
        let rate = unit.ends_with("/s");
        self.all.push((variant.into(), name.into(), rate, r));
    }

    /// The table has them all. In words, of many differences the rates come first, with what the
    /// others come to.
    fn words(&self, base: &str) -> Vec<String> {
        let with = |want: &[Verdict]| -> Vec<&(String, String, bool, Ratio)> {
            let all = self.all.iter();
            all.filter(|s| want.contains(&s.3.verdict())).collect()
        };
        let different = with(&[Verdict::Higher, Verdict::Lower]);
        let few = different.len() <= MOST_FINDINGS;
        let mut out: Vec<String> = different
            .iter()
            .filter(|s| few || s.2)
            .take(MOST_FINDINGS)
            .map(|(variant, name, _, r)| {
                format!(
                    "{variant}: {name} is {:.2} × that of {base} ({:.2} … {:.2}): {}.",
                    r.median,
                    r.low,
                    r.high,
                    r.verdict().text()
                )
            })
            .collect();
        if !few {
            let count = |v| with(&[v]).len();
            out.push(format!(
                "Higher than of {base} in {}, lower in {} of {} comparisons; the median of their ratios is {:.2}.",
                count(Verdict::Higher),
                count(Verdict::Lower),
                self.all.len(),
                median(&self.all.iter().map(|s| s.3.median).collect::<Vec<_>>())
            ));
        }
        let same = with(&[Verdict::NoDifference]).len();
        if same > 0 {
            out.push(format!(
                "No difference shown in {same} of {} comparisons.",
                self.all.len()
            ));
        }
        out.extend(too_few(&with(&[Verdict::TooFew]), base));
        out
    }
}

/// The ratios of what has too few turns, a sentence a variant.
fn too_few(all: &[&(String, String, bool, Ratio)], base: &str) -> Vec<String> {
    let mut variants: Vec<&str> = all.iter().map(|s| s.0.as_str()).collect();
    variants.sort_unstable();
    variants.dedup();
    variants
        .into_iter()
        .map(|variant| {
            let mine: Vec<_> = all.iter().filter(|s| s.0 == variant).collect();
            let turns = mine.iter().map(|s| s.3.pairs).max().unwrap_or(0);
            let mut ratios: Vec<String> = mine
                .iter()
                .take(MOST_FINDINGS)
                .map(|(_, name, _, r)| format!("{name} {:.3}", r.median))
                .collect();
            if mine.len() > MOST_FINDINGS {
                ratios.push(format!("{} more in the table", mine.len() - MOST_FINDINGS));
            }
            format!(
                "Too few turns to judge ({turns} of at least {MIN_PAIRS}). {variant} over {base}: {}.",
                ratios.join("; ")
            )
        })
        .collect()
}

/// What is compared of an experiment: its own figures, and of each of its loads the rate, the slow
/// end and the costs.
pub struct Sheets {
    own: Sheet,
    /// In the order of [`MEASURES`].
    of_loads: Vec<Sheet>,
    size: Sheet,
}

/// What is taken of a load: heading, unit, and the value; `None` where there is none.
type Measure = (&'static str, &'static str, fn(&SampleSet) -> Option<f64>);

const MEASURES: [Measure; 4] = [
    ("Rate", "operations/s", |s| {
        Some(s.operations as f64 / s.seconds)
    }),
    ("p99", "ms", |s| Some(s.latency.quantile_ms(0.99))),
    ("Server CPU a document", "µs", |s| {
        let usage = s.usage?;
        Some(usage.each(usage.server?.cpu * 1e6))
    }),
    ("Bytes written a document", "bytes", |s| {
        let usage = s.usage?;
        Some(usage.each(usage.server?.written))
    }),
];

impl Sheets {
    /// For targets of these names.
    pub fn new(names: &[String]) -> Sheets {
        let sheet = |title: &str| Sheet::of(title, names.to_vec());
        Sheets {
            own: sheet(""),
            of_loads: MEASURES.iter().map(|m| sheet(m.0)).collect(),
            size: sheet("Largest resident size"),
        }
    }

    /// The next turn of target `i`. Loads of the same name are medians.
    pub fn add(&mut self, i: usize, out: &Outcome) {
        let mut names: Vec<&str> = Vec::new();
        for s in &out.samples {
            if s.usage.is_some() && !names.contains(&s.name.as_str()) {
                names.push(&s.name);
            }
        }
        // What the experiment compares by itself is not compared twice.
        let said = |name: &str, heading: &str| {
            out.figures.iter().any(|f| {
                let source = f.source.as_ref().filter(|s| s.samples == name);
                source.is_some_and(|s| match s.statistic {
                    Statistic::Rate | Statistic::Mean => heading == "Rate",
                    Statistic::P99 => heading == "p99",
                    Statistic::P50 => false,
                })
            })
        };
        for (sheet, (heading, unit, value)) in self.of_loads.iter_mut().zip(MEASURES) {
            let mut figures = Vec::new();
            for name in names.iter().filter(|n| !said(n, heading)) {
                let mine = out.samples.iter().filter(|s| s.name == **name);
                let all: Vec<f64> = mine.filter_map(value).filter(|x| x.is_finite()).collect();
                if !all.is_empty() {
                    let name = (*name).to_string();
                    figures.push(Figure::new(name, median(&all), unit, None));
                }
            }
            sheet.add(i, figures);
        }
        let sizes = out.samples.iter().filter_map(|s| s.usage?.server);
        let largest = sizes.map(|s| s.rss).reduce(f64::max);
        let figure = |x| Figure::new("of all loads".into(), x / 1e6, "MB", None);
        self.size.add(i, largest.map(figure).into_iter().collect());
        self.own.add(i, out.figures.clone());
    }

    /// Medians, ratios and verdicts into `out`.
    pub fn write_down(&self, out: &mut Outcome) {
        self.own.write_down(out);
        for s in self.of_loads.iter().chain([&self.size]) {
            s.write_down(out);
        }
    }
}

fn value(x: f64, unit: &str) -> String {
    if unit == "ms" { ms(x) } else { rate(x) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::report::experiments::fixtures::check;

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
    fn few_turns_are_said_to_be_few_and_show_their_ratios() {
        let mut s = Sheet::new(vec!["a".into(), "b".into()]);
        for _ in 0..MIN_PAIRS - 1 {
            s.add(0, figures(1000.0));
            s.add(1, figures(2000.0));
        }
        let mut out = Outcome::default();
        s.write_down(&mut out);
        assert_eq!(
            out.findings,
            ["Too few turns to judge (4 of at least 5). b over a: inserts 2.000; p99 0.500."]
        );
        assert_eq!(
            out.tables[0].rows[1][4..],
            ["2.000", "–", "–", "4", "too few turns to judge"]
        );
        s.add(0, figures(1000.0));
        s.add(1, figures(2000.0));
        let mut out = Outcome::default();
        s.write_down(&mut out);
        assert!(out.findings[0].contains("inserts is 2.00 × that of a"));
    }

    #[test]
    fn many_differences_are_counted() {
        let mut s = Sheet::of("p99", vec!["a".into(), "b".into()]);
        for _ in 0..MIN_PAIRS {
            for (v, x) in [(0, 1.0), (1, 3.0)] {
                let all = (0..=MOST_FINDINGS)
                    .map(|i| Figure::new(format!("load {i}"), x, "ms", None))
                    .collect();
                s.add(v, all);
            }
        }
        let mut out = Outcome::default();
        s.write_down(&mut out);
        assert_eq!(
            out.findings,
            [
                "p99: Higher than of a in 9, lower in 0 of 9 comparisons; the median of their ratios is 3.00."
            ]
        );
        assert_eq!(out.tables[0].title, "p99, compared with a");
        assert_eq!(out.figures[1].name, "load 0, p99, b");
    }

    #[test]
    fn loads_are_judged_by_rate_slow_end_and_costs() {
        let turn = |x: f64| {
            let load = |name: &str, x: f64| SampleSet {
                name: name.into(),
                operations: 1000,
                seconds: x,
                latency: {
                    let mut l = muniment_load::hist::Latency::new();
                    l.record((x * 1e6) as u64);
                    l
                },
                usage: Some(muniment_load::usage::Usage {
                    units: 1000,
                    server: Some(muniment_load::usage::ServerUsage {
                        cpu: x,
                        written: x * 1e6,
                        rss: x * 1e8,
                        ..muniment_load::usage::ServerUsage::default()
                    }),
                    ..muniment_load::usage::Usage::default()
                }),
                ..SampleSet::default()
            };
            let mut o = Outcome {
                // The first load is repeated: its median counts.
                samples: vec![
                    load("one", x),
                    load("one", 3.0 * x),
                    load("one", x),
                    load("two", x),
                ],
                ..Outcome::default()
            };
            o.figure("two, by its own", 5.0, "docs/s", None)
                .of("two", Statistic::Rate);
            o
        };
        let mut s = Sheets::new(&["a".into(), "b".into()]);
        for _ in 0..MIN_PAIRS {
            s.add(0, &turn(1.0));
            s.add(1, &turn(0.5));
        }
        let mut out = Outcome::default();
        s.write_down(&mut out);
        let titles: Vec<&str> = out.tables.iter().map(|t| t.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "Compared with a",
                "Rate, compared with a",
                "p99, compared with a",
                "Server CPU a document, compared with a",
                "Bytes written a document, compared with a",
                "Largest resident size, compared with a"
            ]
        );
        let names =
            |i: usize| -> Vec<String> { out.tables[i].rows.iter().map(|r| r[0].clone()).collect() };
        assert_eq!(names(1), ["one", "one"], "two's rate is a figure already");
        assert_eq!(names(3), ["one", "one", "two", "two"]);
        let cpu = &out.tables[3].rows;
        assert_eq!(cpu[0][3], "1,000");
        assert_eq!((cpu[1][3].as_str(), cpu[1][4].as_str()), ("500", "0.500"));
        assert_eq!(cpu[1][8], "lower");
        assert_eq!(out.tables[5].rows[0][3], "300");
        assert_eq!(out.tables[5].rows[1][8], "lower");
        check("versus", &out);
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
