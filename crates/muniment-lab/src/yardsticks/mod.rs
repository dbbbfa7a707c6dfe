//! The yardsticks: the promised speed, as ratios measured in interleaved runs on one machine. Each
//! has a file with its `SPEC` and a line in [`ALL`], sorted by number.

mod against_null;
mod bulk_insert;
mod change_stream;
mod dead_versions;
mod group_commit;
mod in_list;
pub(crate) mod index_cost;
mod log_bytes;
mod long_scan;
mod memory;
mod point_find;
mod point_update;
mod queue;
mod recovery;
mod resident;
mod retryable;
mod scan;
mod session_memory;
mod set_cost;
mod single_insert;
mod transactions;

use crate::lab::Lab;
use crate::report::table::rate;
use crate::report::{Outcome, experiments};
use muniment_load::fail::Result;
use muniment_load::load::Load;
use muniment_load::stats::{Ratio, Side, abba, median};
use muniment_load::stop;

/// The cache of the yardsticks' embedded servers, GB.
pub(crate) const CACHE_GB: f64 = 1.0;

/// A yardstick.
pub(crate) struct Spec {
    /// Its number, for `--only`.
    pub number: u32,
    /// A line that tells what is measured against what.
    pub title: &'static str,
    /// The promise in words.
    pub target_text: &'static str,
    /// Runs the measurement.
    pub run: fn(&mut Lab, &mut Outcome, &mut Vec<Row>) -> Result<()>,
}

/// All yardsticks, sorted by number.
pub(crate) const ALL: &[&Spec] = &[
    &bulk_insert::SPEC,
    &point_find::SPEC,
    &single_insert::SPEC,
    &point_update::SPEC,
    &group_commit::SPEC,
    &scan::SPEC,
    &index_cost::SPEC,
    &memory::SPEC,
    &in_list::SPEC,
    &queue::SPEC,
    &dead_versions::SPEC,
    &log_bytes::SPEC,
    &long_scan::SPEC,
    &recovery::SPEC,
    &retryable::SPEC,
    &transactions::SPEC,
    &change_stream::SPEC,
    &session_memory::SPEC,
    &resident::SPEC,
    &set_cost::SPEC,
];

/// A measured line.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// Its number, with a letter if the yardstick has several lines: `1`, `7b`.
    pub id: String,
    /// A few words about what was measured.
    pub what: String,
    /// The figure that is judged.
    pub value: f64,
    /// Its unit: `×`, `docs/s`, `ms`, `µs`, `MB`, `MB/s`, `bytes`, `%`.
    pub unit: &'static str,
    /// The ratio with its interval, if the figure is a paired ratio.
    pub ratio: Option<Ratio>,
    /// The promised value, in the same unit.
    pub target: f64,
    /// Whether less is better.
    pub at_most: bool,
    /// A second condition that also keeps the promise, if it was met.
    pub otherwise: Option<String>,
    /// The absolute figures that the figure was made from.
    pub detail: String,
}

impl Row {
    /// A figure in `unit` that must not be below `target`.
    pub(crate) fn at_least(
        id: &str,
        what: &str,
        value: f64,
        unit: &'static str,
        target: f64,
    ) -> Row {
        Row {
            id: id.into(),
            what: what.into(),
            value,
            unit,
            ratio: None,
            target,
            at_most: false,
            otherwise: None,
            detail: String::new(),
        }
    }

    /// A figure that must not be above `target`.
    pub(crate) fn at_most(
        id: &str,
        what: &str,
        value: f64,
        unit: &'static str,
        target: f64,
    ) -> Row {
        Row {
            at_most: true,
            ..Row::at_least(id, what, value, unit, target)
        }
    }

    /// Adds the absolute figures that the row's figure was made from.
    pub(crate) fn because(self, detail: String) -> Row {
        Row { detail, ..self }
    }

    /// Whether the promise is kept.
    pub(crate) fn passes(&self) -> bool {
        self.otherwise.is_some()
            || if self.at_most {
                self.value <= self.target
            } else {
                self.value >= self.target
            }
    }
}

/// A measured slice: its rate, and the load that it comes from.
pub(crate) type Slice = (f64, Option<Load>);

/// The figures of both sides of interleaved pairs.
#[derive(Default)]
pub(crate) struct Pairs {
    /// The rates of A.
    pub a: Vec<f64>,
    /// The rates of B.
    pub b: Vec<f64>,
    /// The server's CPU time of A, µs a document.
    pub a_us: Vec<f64>,
    /// The server's CPU time of B, µs a document.
    pub b_us: Vec<f64>,
    /// The CPU time of client and server together, µs a document: of A, then of B.
    pub both_us: [Vec<f64>; 2],
}

impl Pairs {
    /// Measures A B B A … for the preset's number of pairs, after a first pair that is discarded
    /// because it warms up.
    pub(crate) fn measure(
        lab: &mut Lab,
        out: &mut Outcome,
        mut f: impl FnMut(&mut Lab, Side) -> Result<Slice>,
    ) -> Result<Pairs> {
        let pairs = lab.preset.pick(5, 7, 11);
        let mut p = Pairs::default();
        for (i, pair) in abba(pairs + 1).into_iter().enumerate() {
            let (mut a, mut b) = (None, None);
            for side in pair {
                if stop::asked() {
                    return Ok(p);
                }
                let (rate, load) = f(lab, side)?;
                let us = load.as_ref().and_then(Load::server_us);
                let both = load.as_ref().and_then(Load::both_us);
                if i > 0 {
                    out.samples.extend(load.map(|l| l.samples));
                }
                match side {
                    Side::A => a = Some((rate, us, both)),
                    Side::B => b = Some((rate, us, both)),
                }
            }
            if let (Some(a), Some(b)) = (a, b)
                && i > 0
            {
                p.a.push(a.0);
                p.b.push(b.0);
                p.a_us.extend(a.1);
                p.b_us.extend(b.1);
                p.both_us[0].extend(a.2);
                p.both_us[1].extend(b.2);
            }
        }
        Ok(p)
    }

    /// The ratio of A to B as a row; `None` if there is no pair.
    pub(crate) fn row(&self, id: &str, what: &str, names: [&str; 2], target: f64) -> Option<Row> {
        let ratio = Ratio::of_pairs(&self.a, &self.b)?;
        let us = |v: &[f64]| {
            if v.is_empty() {
                String::new()
            } else {
                format!(" ({:.1} µs server CPU)", median(v))
            }
        };
        // On cores that other processes use too, rates by the clock depend on those; a ratio of CPU
        // times is shown as well for that case, but it is not judged.
        let by_cpu = match Ratio::of_pairs(&self.both_us[1], &self.both_us[0]) {
            Some(r) => format!("; by CPU time of client and server {:.2} ×", r.median),
            None => String::new(),
        };
        Some(Row {
            id: id.into(),
            what: what.into(),
            value: ratio.median,
            unit: "×",
            ratio: Some(ratio),
            target,
            at_most: false,
            otherwise: None,
            detail: format!(
                "{} {}/s{}, {} {}/s{}{by_cpu}",
                names[0],
                rate(median(&self.a)),
                us(&self.a_us),
                names[1],
                rate(median(&self.b)),
                us(&self.b_us)
            ),
        })
    }
}

/// Runs all yardsticks, or only one.
pub(crate) fn run(lab: &mut Lab, only: Option<u32>, out: &mut Outcome) -> Result<()> {
    out.id = "yardsticks".into();
    out.title = "The promised speed, as ratios".into();
    out.about = "Each line compares the server with something that does less on the same machine at the same time: the raw engine (the same batches straight into it), or a server that parses the message and answers a constant, driven by the same client. Runs are interleaved A B B A; a ratio is the median of the paired ratios with its bootstrap 95 % interval. The first pair is thrown away.".into();
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for spec in ALL.iter().filter(|s| only.is_none_or(|n| n == s.number)) {
        if stop::asked() {
            break;
        }
        lab.doing = format!("yardstick {}", spec.number);
        if let Err(e) = (spec.run)(lab, out, &mut rows) {
            failed.push(format!("yardstick {}: {e}", spec.number));
        }
    }
    experiments::yardsticks::tell(&rows, out);
    if failed.is_empty() {
        return Ok(());
    }
    Err(muniment_load::fail::Failure(failed.join("; ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn row(value: f64, target: f64, at_most: bool) -> Row {
        Row {
            id: "1".into(),
            what: "w".into(),
            value,
            unit: "×",
            ratio: None,
            target,
            at_most,
            otherwise: None,
            detail: String::new(),
        }
    }

    #[test]
    fn promises_are_judged_in_their_direction() {
        assert!(row(0.5, 0.5, false).passes() && !row(0.49, 0.5, false).passes());
        assert!(row(249.0, 250.0, true).passes() && !row(251.0, 250.0, true).passes());
        assert!(!row(f64::NAN, 0.5, false).passes() && !row(f64::NAN, 0.5, true).passes());
        let mut other = row(1.0, 20.0, false);
        other.otherwise = Some("62 commits a sync".into());
        assert!(other.passes());
    }

    #[test]
    fn numbers_are_sorted() {
        assert!(ALL.iter().zip(1..).all(|(s, n)| s.number == n));
    }
}
