//! A comparison of several variants: they are measured in turns, and compared by the ratios of
//! figures that belong to the same turn. [`crate::report::experiments::versus`] describes how a
//! sheet is shown.

use crate::report::{Figure, Outcome, Statistic};
use muniment_load::samples::SampleSet;
use muniment_load::stats::{Ratio, median};

/// The order in which `variants` variants are measured in turn `turn`: forwards in one turn and
/// backwards in the next, so that slow drift affects all alike (A B B A for two).
pub(crate) fn order(variants: usize, turn: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..variants).collect();
    if turn % 2 == 1 {
        all.reverse();
    }
    all
}

/// The figures of each variant in each turn. The others are compared with the first variant.
pub(crate) struct Sheet {
    /// The measure that all figures share, if the figures are one measure of several loads; else
    /// empty.
    title: String,
    names: Vec<String>,
    /// The figures, by variant, then by turn.
    turns: Vec<Vec<Vec<Figure>>>,
}

impl Sheet {
    /// Makes a sheet for variants of these names.
    pub(crate) fn new(names: Vec<String>) -> Sheet {
        Sheet::of("", names)
    }

    /// Makes a sheet for variants of these names, whose figures are all the measure `title` of some
    /// load.
    pub(crate) fn of(title: &str, names: Vec<String>) -> Sheet {
        let turns = names.iter().map(|_| Vec::new()).collect();
        Sheet {
            title: title.to_string(),
            names,
            turns,
        }
    }

    /// The measure that all figures share; else empty.
    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// The variants' names.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Adds the figures of the next turn of `variant`. Variants are measured in turns, so all have
    /// equally many.
    pub(crate) fn add(&mut self, variant: usize, figures: Vec<Figure>) {
        if let Some(t) = self.turns.get_mut(variant) {
            t.push(figures);
        }
    }

    /// The values of figure `name` of `variant`, turn by turn; NaN for turns that did not measure
    /// it.
    pub(crate) fn values(&self, variant: usize, name: &str) -> Vec<f64> {
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

    /// The values of the figure in those turns that measured it.
    pub(crate) fn measured(&self, variant: usize, name: &str) -> Vec<f64> {
        let mut all = self.values(variant, name);
        all.retain(|x| x.is_finite());
        all
    }

    /// The median of the figure over the turns that measured it.
    pub(crate) fn median(&self, variant: usize, name: &str) -> f64 {
        median(&self.measured(variant, name))
    }

    /// The ratio of `variant` to the first variant, from the pairs of each turn.
    pub(crate) fn ratio(&self, variant: usize, name: &str) -> Option<Ratio> {
        Ratio::of_pairs(&self.values(variant, name), &self.values(0, name))
    }

    /// The name and unit of each figure of the first variant, in their order.
    pub(crate) fn figures(&self) -> Vec<(String, String)> {
        let mut out: Vec<(String, String)> = Vec::new();
        for f in self.turns.first().into_iter().flatten().flatten() {
            if !out.iter().any(|(n, _)| *n == f.name) {
                out.push((f.name.clone(), f.unit.clone()));
            }
        }
        out
    }

    /// The ratio of every figure of every other variant to the first variant's.
    pub(crate) fn compared(&self) -> Vec<Compared> {
        let mut all = Vec::new();
        for (figure, unit) in self.figures() {
            for (variant, _) in self.names.iter().enumerate().skip(1) {
                let ratio = self.ratio(variant, &figure);
                all.extend(ratio.map(|ratio| Compared {
                    variant,
                    figure: figure.clone(),
                    is_rate: unit.ends_with("/s"),
                    ratio,
                }));
            }
        }
        all
    }
}

/// A figure of a variant as a ratio to the first variant's figure.
pub(crate) struct Compared {
    /// The number of the variant.
    pub variant: usize,
    /// The figure's name.
    pub figure: String,
    /// Whether the figure is a rate, of which more is better.
    pub is_rate: bool,
    /// The ratio to the first variant.
    pub ratio: Ratio,
}

/// All sheets of an experiment: one for its own figures, and one for each measure of its loads
/// (rate, slow end and costs).
pub(crate) struct Sheets {
    own: Sheet,
    /// The sheets of the loads, in the order of [`MEASURES`].
    of_loads: Vec<Sheet>,
    size: Sheet,
}

/// A measure of a load: heading, unit, and a function for the value, which is `None` if the load
/// has none.
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
    /// Makes empty sheets for targets of these names.
    pub(crate) fn new(names: &[String]) -> Sheets {
        let sheet = |title: &str| Sheet::of(title, names.to_vec());
        Sheets {
            own: sheet(""),
            of_loads: MEASURES.iter().map(|m| sheet(m.0)).collect(),
            size: sheet("Largest resident size"),
        }
    }

    /// Adds the next turn of target `i`. Several loads of the same name count as one, with the
    /// median of their values.
    pub(crate) fn add(&mut self, i: usize, out: &Outcome) {
        let mut names: Vec<&str> = Vec::new();
        for s in &out.samples {
            if s.usage.is_some() && !names.contains(&s.name.as_str()) {
                names.push(&s.name);
            }
        }
        // A value that the experiment reports as a figure of its own is in `own` already and is not
        // compared a second time.
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

    /// All sheets, in the order in which the report shows them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Sheet> {
        [&self.own]
            .into_iter()
            .chain(&self.of_loads)
            .chain([&self.size])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_there_and_back() {
        assert_eq!(order(3, 0), [0, 1, 2]);
        assert_eq!(order(3, 1), [2, 1, 0]);
    }
}
