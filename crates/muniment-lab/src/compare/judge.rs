//! Compares two runs, figure by figure: the ratio, its interval, and whether it is worse.

use super::resample::{Replicas, replicas, student};
use crate::report::{Better, Figure, Outcome, Run};
use muniment_load::rng::Rng;
use muniment_load::stats::quantile;
use serde::Serialize;

/// The terms of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Terms {
    /// The smallest relative change that counts as a difference; 0.05 is 5 %.
    pub threshold: f64,
    /// The only experiment to compare, if one was named.
    pub only: Option<String>,
}

impl Default for Terms {
    /// Compares all experiments and ignores changes below 5 %.
    fn default() -> Terms {
        Terms {
            threshold: 0.05,
            only: None,
        }
    }
}

/// A figure's verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// B is better than A.
    Better,
    /// B is worse than A.
    Worse,
    /// The interval contains 1, or the change is below the threshold.
    Same,
    /// The figure cannot be judged, for the reason in [`Row::why`].
    Open,
}

impl Verdict {
    /// The word that is printed.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "WORSE",
            Verdict::Same => "no difference shown",
            Verdict::Open => "not judged",
        }
    }
}

/// A figure that both runs have.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub experiment: String,
    /// The figure's name.
    pub figure: String,
    pub unit: String,
    /// Its value in the first run.
    pub a: f64,
    /// Its value in the second run.
    pub b: f64,
    /// b / a.
    pub ratio: f64,
    /// The 95 % interval of the ratio.
    pub interval: Option<(f64, f64)>,
    /// The direction in which the figure is better.
    pub better: Better,
    pub verdict: Verdict,
    /// The reason why it cannot be judged; empty if it can.
    pub why: String,
}

/// The result of comparing two runs.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Comparison {
    /// The figures that both runs have.
    pub figures: Vec<Row>,
    /// Differences in the surroundings that make the comparison doubtful.
    pub warnings: Vec<String>,
}

impl Comparison {
    /// The number of figures with this verdict.
    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.figures.iter().filter(|r| r.verdict == verdict).count()
    }

    /// Whether any figure could be judged.
    pub(crate) fn any(&self) -> bool {
        self.count(Verdict::Open) < self.figures.len()
    }
}

/// Compares `b` with `a`.
pub(crate) fn compare(a: &Run, b: &Run, terms: &Terms) -> Comparison {
    let mut c = Comparison {
        warnings: differences(a, b),
        ..Comparison::default()
    };
    let wanted = |x: &&Outcome| terms.only.as_ref().is_none_or(|o| *o == x.id);
    let find = |run: &'_ Run, id: &str| run.outcomes.iter().position(|x| x.id == id);
    for x in a.outcomes.iter().filter(wanted) {
        let Some(y) = find(b, &x.id).and_then(|i| b.outcomes.get(i)) else {
            c.warnings.push(format!("{}: only A ran it", x.id));
            continue;
        };
        if x.preset != y.preset {
            c.warnings.push(format!(
                "{}: A ran preset {}, B preset {}: not compared",
                x.id, x.preset, y.preset
            ));
            continue;
        }
        for (side, o) in [("A", x), ("B", y)] {
            if !o.warnings.is_empty() {
                c.warnings.push(format!(
                    "{}: {side} has {} warning(s) of its own; the first: {}",
                    x.id,
                    o.warnings.len(),
                    o.warnings.first().map_or("", String::as_str)
                ));
            }
        }
        for f in &x.figures {
            let same = |g: &&Figure| g.name == f.name && g.unit == f.unit;
            if let Some(g) = y.figures.iter().find(same) {
                c.figures.extend(row((x, f), (y, g), terms.threshold));
            }
        }
    }
    let only_b = b.outcomes.iter().filter(wanted);
    c.warnings.extend(
        only_b
            .filter(|y| find(a, &y.id).is_none())
            .map(|y| format!("{}: only B ran it", y.id)),
    );
    c
}

/// Compares one figure; `None` if either value is not finite.
fn row((x, f): (&Outcome, &Figure), (y, g): (&Outcome, &Figure), threshold: f64) -> Option<Row> {
    let ratio = g.value / f.value;
    if !f.value.is_finite() || !g.value.is_finite() {
        return None;
    }
    let interval = interval(ratio, (x, f), (y, g));
    let (verdict, why) = match &interval {
        _ if f.better == Better::Neither => (Verdict::Open, "neither way is better".to_string()),
        Err(why) => (Verdict::Open, why.clone()),
        Ok((low, high)) => {
            let small = (ratio - 1.0).abs() < threshold;
            let verdict = if small || (*low <= 1.0 && *high >= 1.0) {
                Verdict::Same
            } else if (ratio > 1.0) == (f.better == Better::Higher) {
                Verdict::Better
            } else {
                Verdict::Worse
            };
            (verdict, String::new())
        }
    };
    Some(Row {
        experiment: x.id.clone(),
        figure: f.name.clone(),
        unit: f.unit.clone(),
        a: f.value,
        b: g.value,
        ratio,
        interval: interval.ok(),
        better: f.better,
        verdict,
        why,
    })
}

/// The ratio's 95 % interval, or the reason why there is none.
fn interval(
    ratio: f64,
    (x, f): (&Outcome, &Figure),
    (y, g): (&Outcome, &Figure),
) -> Result<(f64, f64), String> {
    if !ratio.is_finite() || ratio <= 0.0 {
        return Err("it is not positive in both".into());
    }
    if f.interval.is_some() && g.interval.is_some() {
        let (Some(p), Some(q)) = (distances(f), distances(g)) else {
            return Err("its intervals reach zero".into());
        };
        // The ratio is smallest when B is at its lower end and A at its upper one.
        let (down, up) = (q.0.hypot(p.1), q.1.hypot(p.0));
        return Ok((ratio * (-down).exp(), ratio * up.exp()));
    }
    let mut rng = Rng::new(0x636F_6D70_6172_6521);
    let mut side = |name: &str, o: &Outcome, f: &Figure| -> Result<Replicas, String> {
        let source = f.source.as_ref().ok_or("no distribution was kept of it")?;
        let named = |s: &&_| -> bool {
            let s: &muniment_load::samples::SampleSet = s;
            s.name == source.samples
        };
        let sets: Vec<_> = o.samples.iter().filter(named).collect();
        if sets.is_empty() {
            return Err("no distribution was kept of it".into());
        }
        replicas(&sets, source.statistic, &mut rng).map_err(|why| format!("{name}: {why}"))
    };
    let (p, q) = (side("A", x, f)?, side("B", y, g)?);
    let logs: Vec<f64> = q.logs.iter().zip(&p.logs).map(|(q, p)| q - p).collect();
    if logs.iter().any(|l| !l.is_finite()) {
        return Err("it stood still for too long".into());
    }
    // A few blocks vary too little when they are resampled, so the interval is widened: Student's t
    // instead of the normal distribution, and Bessel's correction.
    let pieces = p.pieces.min(q.pieces).max(2.0);
    let wider = student(2.0 * (pieces - 1.0)) / student(1e9) * (pieces / (pieces - 1.0)).sqrt();
    let middle = quantile(&logs, 0.5);
    let end = |q: f64| (ratio.ln() + (quantile(&logs, q) - middle) * wider).exp();
    Ok((end(0.025), end(0.975)))
}

/// The resolution of figures, which are kept and printed with three significant digits.
const RESOLUTION: f64 = 1e-3;

/// The distances from a figure's value to the lower and the upper end of its own interval, as
/// logarithms. They differ, because the interval of a median of few turns is seldom symmetrical.
/// Neither is shorter than the figure's resolution, which is 1 for a count that was the same in all
/// turns. `None` if the interval reaches zero.
fn distances(f: &Figure) -> Option<(f64, f64)> {
    let (low, high) = f.interval.filter(|(low, high)| *low > 0.0 && low <= high)?;
    let counted = low == high && f.unit != "ms" && f.value.fract() == 0.0;
    let step = match counted {
        true => RESOLUTION.max(1.0 / f.value),
        false => RESOLUTION,
    };
    let at_least = |d: f64| d.max(step.ln_1p());
    Some((
        at_least((f.value / low).ln()),
        at_least((high / f.value).ln()),
    ))
}

/// The facts about the surroundings that must be alike for two runs to be comparable.
const SURROUNDINGS: &[&str] = &[
    "CPU",
    "Cores",
    "CPU governor",
    "Kernel",
    "Memory",
    "Data on",
    "Workload file",
    "Lab",
    "Client and server",
    "One connection",
    "Server version",
    "Storage engine",
    "Configured cache",
    "Default write concern, read back",
];

fn differences(a: &Run, b: &Run) -> Vec<String> {
    let of = |run: &Run, key: &str| {
        let found = run.environment.iter().find(|(k, _)| k == key);
        found.map_or("not known", |(_, v)| v.as_str()).to_string()
    };
    let mut out: Vec<String> = SURROUNDINGS
        .iter()
        .map(|key| (key, of(a, key), of(b, key)))
        .filter(|(_, x, y)| x != y)
        .map(|(key, x, y)| format!("{key} differs: A {x}; B {y}"))
        .collect();
    for (side, run) in [("A", a), ("B", b)] {
        if run.interrupted {
            out.push(format!("{side} was interrupted"));
        }
    }
    out
}
