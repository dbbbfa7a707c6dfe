//! Reasons to distrust a load: the client, and not the server, may have been the bottleneck. They
//! are gathered while an experiment runs and told once at its end, in one sentence for each reason.

use crate::report::table::rate;
use muniment_load::load::Bound;

/// A load whose rate came close to the most that the client can do at all.
#[derive(Debug, Clone, PartialEq)]
struct Near {
    name: String,
    connections: usize,
    rate: f64,
}

/// The doubts of one experiment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doubts {
    bound: Vec<(String, Bound)>,
    near: Vec<Near>,
}

/// The most load names that one sentence lists.
const NAMES: usize = 6;

impl Doubts {
    /// Notes that the client may have been the bottleneck of load `name`.
    pub(crate) fn bound(&mut self, name: &str, bound: Bound) {
        self.bound.push((name.to_string(), bound));
    }

    /// Notes that load `name` with so many connections did `rate` requests a second, which is more
    /// than half of the rate that the client reaches against a server that does nothing.
    pub(crate) fn near(&mut self, name: &str, connections: usize, rate: f64) {
        self.near.push(Near {
            name: name.to_string(),
            connections,
            rate,
        });
    }

    /// The doubts in words, one sentence for each reason. `ceiling` gives the null responder's rate
    /// for a number of connections.
    pub(crate) fn told(&self, ceiling: impl Fn(usize) -> f64) -> Vec<String> {
        let mut out = Vec::new();
        let share = |f: &dyn Fn(&Bound) -> Option<f64>| {
            let all: Vec<(&str, f64)> = self
                .bound
                .iter()
                .filter_map(|(n, b)| f(b).map(|x| (n.as_str(), x)))
                .collect();
            let most = all.iter().map(|x| x.1).fold(0.0, f64::max) * 100.0;
            (!all.is_empty()).then(|| (names(all.iter().map(|x| x.0)), most))
        };
        if let Some((names, most)) = share(&|b| match b {
            Bound::Core(x) => Some(*x),
            Bound::Between(_) => None,
        }) {
            out.push(format!(
                "A load worker used up to {most:.0} % of a core, so that the client may be the bottleneck: {names}."
            ));
        }
        if let Some((names, most)) = share(&|b| match b {
            Bound::Between(x) => Some(*x),
            Bound::Core(_) => None,
        }) {
            out.push(format!(
                "Workers spent up to {most:.0} % of the time between operations, so that the client may be the bottleneck: {names}."
            ));
        }
        let mut counts: Vec<usize> = self.near.iter().map(|n| n.connections).collect();
        counts.sort_unstable();
        counts.dedup();
        for c in counts {
            let of = self.near.iter().filter(|n| n.connections == c);
            let most = of.clone().map(|n| n.rate).fold(0.0, f64::max);
            out.push(format!(
                "Up to {} requests/s were above half of what {c} connection{} can do against the null responder ({}), so that the client and the kernel weigh on the figures: {}.",
                rate(most),
                if c == 1 { "" } else { "s" },
                rate(ceiling(c)),
                names(of.map(|n| n.name.as_str()))
            ));
        }
        out
    }
}

/// Joins the names, each once, and leaves out those beyond the limit.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for n in all {
        if !seen.contains(&n) {
            seen.push(n);
        }
    }
    let more = seen.len().saturating_sub(NAMES);
    seen.truncate(NAMES);
    let list = seen.join("; ");
    match more {
        0 => list,
        n => format!("{list}; and {n} more"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn a_reason_is_told_once_with_all_its_loads() {
        let mut d = Doubts::default();
        assert!(d.told(|_| 0.0).is_empty());
        for turn in 0..3 {
            d.bound("a", Bound::Core(0.81 + f64::from(turn) / 100.0));
            d.near("b", 1, 6000.0 + f64::from(turn));
        }
        for i in 0..8 {
            d.bound(&format!("c{i}"), Bound::Between(0.1));
        }
        d.near("b", 4, 9000.0);
        let told = d.told(|c| 10_000.0 * c as f64);
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].contains("up to 83 % of a core") && told[0].ends_with(": a."));
        assert!(told[1].ends_with("c5; and 2 more."), "{}", told[1]);
        assert!(
            told[2].starts_with("Up to 6,002 requests/s were above half of what 1 connection can")
        );
        assert!(told[3].contains("4 connections can do against the null responder (40,000)"));
    }
}
