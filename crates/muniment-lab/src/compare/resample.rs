//! Estimates how far a figure would move if its run were repeated under the same conditions. The
//! estimate comes from the run itself: bootstrap logarithms of the figure.
//!
//! A disturbance that lasted for both whole runs (a machine that was busy for an hour) cannot be
//! seen in either.

use crate::report::Statistic;
use muniment_load::hist::Latency;
use muniment_load::rng::Rng;
use muniment_load::samples::SampleSet;

/// The number of resamples of a figure.
pub(super) const RESAMPLES: usize = 1000;

/// The fewest intervals of a time line that a rate is judged by.
pub(super) const FEWEST_INTERVALS: usize = 10;

/// The fewest latencies that a mean or quantile is judged by.
pub(super) const FEWEST_LATENCIES: u64 = 50;

/// Logarithms of the values that a figure might have had in repeated runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Replicas {
    /// One logarithm for each resample.
    pub logs: Vec<f64>,
    /// The number of independent pieces that the resamples were drawn from.
    pub pieces: f64,
}

/// Replicas of `statistic` over the sample sets of a figure, or the reason why there are none.
pub(super) fn replicas(
    sets: &[&SampleSet],
    statistic: Statistic,
    rng: &mut Rng,
) -> Result<Replicas, &'static str> {
    match statistic {
        Statistic::Rate => rate(&increments(sets), rng),
        Statistic::Mean => mean(&merged(sets), rng),
        Statistic::P50 => quantile(&merged(sets), 0.5, rng),
        Statistic::P99 => quantile(&merged(sets), 0.99, rng),
    }
}

fn merged(sets: &[&SampleSet]) -> Latency {
    let mut all = Latency::new();
    sets.iter().for_each(|s| all.merge(&s.latency));
    all
}

/// The seconds and operations of each interval of the time lines.
fn increments(sets: &[&SampleSet]) -> Vec<(f64, f64)> {
    sets.iter()
        .flat_map(|s| s.timeline.windows(2))
        .filter_map(|w| match w {
            [a, b] if b.0 > a.0 => Some((b.0 - a.0, b.1 - a.1)),
            _ => None,
        })
        .collect()
}

/// The moving-block bootstrap (Künsch 1989). Blocks keep the influence that stalls and bursts have
/// on their neighbours, which resampling single intervals would destroy. Blocks are √n long.
fn rate(steps: &[(f64, f64)], rng: &mut Rng) -> Result<Replicas, &'static str> {
    let n = steps.len();
    if n < FEWEST_INTERVALS {
        return Err("too short: its time line has fewer than 10 intervals");
    }
    let block = (n as f64).sqrt().round() as usize;
    let blocks = n.div_ceil(block);
    let logs = (0..RESAMPLES)
        .map(|_| {
            let (mut seconds, mut operations) = (0.0, 0.0);
            for _ in 0..blocks {
                let from = rng.below((n - block + 1) as u64) as usize;
                for (s, o) in steps.iter().skip(from).take(block) {
                    seconds += s;
                    operations += o;
                }
            }
            (operations / seconds).ln()
        })
        .collect();
    Ok(Replicas {
        logs,
        pieces: n as f64 / block as f64,
    })
}

/// The mean of many resampled latencies is normally distributed around the mean, with the standard
/// error of the counts; a bootstrap over them converges to that. To the first order its logarithm
/// is too, and unlike the mean itself it stays defined when a few long latencies make the error as
/// large as the mean.
fn mean(l: &Latency, rng: &mut Rng) -> Result<Replicas, &'static str> {
    let n = l.count();
    if n < FEWEST_LATENCIES {
        return Err("too few: fewer than 50 latencies");
    }
    let error = l.deviation_ms() / (n as f64).sqrt() / l.mean_ms();
    let logs = (0..RESAMPLES)
        .map(|_| l.mean_ms().ln() + error * normal(rng))
        .collect();
    Ok(Replicas {
        logs,
        pieces: n as f64,
    })
}

/// Computes the bootstrap of a quantile without drawing n latencies: the k-th smallest of n draws
/// is at the quantile of the k-th smallest of n uniform numbers, which is distributed as Beta(k, n
/// + 1 − k).
fn quantile(l: &Latency, q: f64, rng: &mut Rng) -> Result<Replicas, &'static str> {
    let n = l.count() as f64;
    // A quantile near the end can only be judged if some latencies lie beyond it.
    if l.count() < FEWEST_LATENCIES || n * (1.0 - q) < 5.0 {
        return Err("too few latencies for this quantile");
    }
    let k = (q * n).ceil();
    let all = l.cumulative_ms();
    let at = |u: f64| {
        let i = all.partition_point(|(_, below)| (*below as f64) < u * n);
        all.get(i).or(all.last()).map_or(f64::NAN, |(ms, _)| *ms)
    };
    let logs = (0..RESAMPLES)
        .map(|_| {
            let (a, b) = (gamma(k, rng), gamma(n + 1.0 - k, rng));
            at(a / (a + b)).ln()
        })
        .collect();
    Ok(Replicas { logs, pieces: n })
}

/// Draws a standard normal number (Box and Muller 1958).
pub(super) fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.unit()).cos()
}

/// Draws a Gamma number of this shape, at least 1, and scale 1 (Marsaglia and Tsang 2000).
fn gamma(shape: f64, rng: &mut Rng) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - rng.unit()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// The 97.5 % quantile of Student's t with `df` degrees of freedom (Fisher and Cornish's
/// expansion; exact to 1 % from three degrees on).
pub(super) fn student(df: f64) -> f64 {
    const Z: f64 = 1.959_964;
    let df = df.max(1.0);
    Z + (Z.powi(3) + Z) / (4.0 * df)
        + (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * df * df)
        + (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z)
            / (384.0 * df * df * df)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use muniment_load::stats::{mean as average, quantile as quantile_of};

    #[test]
    fn student_agrees_with_the_tables() {
        for (df, want) in [(3.0, 3.182), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042)] {
            assert!((student(df) / want - 1.0).abs() < 0.01, "{df}");
        }
    }

    #[test]
    fn gamma_has_its_mean_and_variance() {
        let mut rng = Rng::new(1);
        for shape in [1.0, 3.5, 400.0] {
            let x: Vec<f64> = (0..20_000).map(|_| gamma(shape, &mut rng)).collect();
            let m = average(&x);
            let v = average(&x.iter().map(|x| (x - m).powi(2)).collect::<Vec<_>>());
            assert!((m / shape - 1.0).abs() < 0.03, "{shape}: mean {m}");
            assert!((v / shape - 1.0).abs() < 0.06, "{shape}: variance {v}");
        }
    }

    #[test]
    fn a_quantile_moves_as_resampling_the_latencies_moves_it() {
        let mut rng = Rng::new(2);
        let each: Vec<u64> = (0..400)
            .map(|_| (1e6 * (0.5 * normal(&mut rng)).exp()) as u64)
            .collect();
        let of = |ns: &mut dyn Iterator<Item = u64>| {
            let mut l = Latency::new();
            ns.for_each(|ns| l.record(ns));
            l
        };
        let all = of(&mut each.iter().copied());
        let ours = quantile(&all, 0.5, &mut rng).unwrap().logs;
        let drawn: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let mut draw = (0..each.len()).map(|_| each[rng.below(400) as usize]);
                of(&mut draw).quantile_ms(0.5).ln()
            })
            .collect();
        for q in [0.025, 0.5, 0.975] {
            let (a, b) = (quantile_of(&ours, q), quantile_of(&drawn, q));
            assert!((a - b).abs() < 0.02, "{q}: {a} and {b}");
        }
    }
}
