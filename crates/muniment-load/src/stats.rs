//! Statistics for reliable comparisons: interleaved A B B A pairs, the median of the paired log-ratios, and a
//! 95 % interval by bootstrap. Running all of A and then all of B is known to show differences of 17 %
//! between two runs of the same binary; pairs cancel that drift.

use crate::rng::Rng;

/// The variant that runs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The variant under test.
    A,
    /// The variant with which it is compared.
    B,
}

/// The order of `pairs` pairs: A B, B A, A B, …, so that slow drift has the same effect on both sides.
pub fn abba(pairs: usize) -> Vec<[Side; 2]> {
    (0..pairs)
        .map(|i| {
            if i % 2 == 0 {
                [Side::A, Side::B]
            } else {
                [Side::B, Side::A]
            }
        })
        .collect()
}

/// The arithmetic mean; NaN if there are no values.
pub fn mean(xs: &[f64]) -> f64 {
    xs.iter().sum::<f64>() / xs.len() as f64
}

/// The median (the mean of the two middle values for an even count); NaN if there are no values.
pub fn median(xs: &[f64]) -> f64 {
    quantile(xs, 0.5)
}

/// The `q` quantile with linear interpolation between order statistics; NaN if there are no values.
pub fn quantile(xs: &[f64], q: f64) -> f64 {
    let mut v: Vec<f64> = xs.to_vec();
    v.sort_by(f64::total_cmp);
    sorted_quantile(&v, q)
}

fn sorted_quantile(v: &[f64], q: f64) -> f64 {
    if v.is_empty() {
        return f64::NAN;
    }
    let at = q.clamp(0.0, 1.0) * (v.len() - 1) as f64;
    let (lo, frac) = (at.floor() as usize, at.fract());
    let a = v.get(lo).copied().unwrap_or(f64::NAN);
    let b = v.get(lo + 1).copied().unwrap_or(a);
    a + (b - a) * frac
}

/// The 95 % interval of `statistic` over `values`, by bootstrap; `None` for fewer than [`MIN_PAIRS`] values.
pub fn interval(values: &[f64], statistic: impl Fn(&[f64]) -> f64) -> Option<(f64, f64)> {
    if values.len() < MIN_PAIRS {
        return None;
    }
    let mut rng = Rng::new(0x696E_7465_7276_616C);
    let mut sample = vec![0.0; values.len()];
    let mut all: Vec<f64> = (0..RESAMPLES / 10)
        .map(|_| {
            for s in &mut sample {
                let i = rng.below(values.len() as u64) as usize;
                *s = values.get(i).copied().unwrap_or(f64::NAN);
            }
            statistic(&sample)
        })
        .collect();
    all.sort_by(f64::total_cmp);
    Some((sorted_quantile(&all, 0.025), sorted_quantile(&all, 0.975)))
}

/// The result of a comparison of A with B.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// exp(median of ln(A/B) over the pairs).
    pub median: f64,
    /// The lower end of that median's 95 % interval by bootstrap.
    pub low: f64,
    /// The upper end of that interval.
    pub high: f64,
    /// The number of pairs.
    pub pairs: usize,
}

/// The result of a comparison in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The interval lies above 1.
    Higher,
    /// The interval lies below 1.
    Lower,
    /// The interval contains 1.
    NoDifference,
    /// There are fewer than [`MIN_PAIRS`] pairs, so no interval is reliable.
    TooFew,
}

impl Verdict {
    /// The printed form.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Higher => "higher",
            Verdict::Lower => "lower",
            Verdict::NoDifference => "no difference shown",
            Verdict::TooFew => "too few turns to judge",
        }
    }
}

/// The least number of pairs for which an interval is used.
pub const MIN_PAIRS: usize = 5;

const RESAMPLES: usize = 10_000;

impl Ratio {
    /// Compares paired measurements. Pairs in which one side is not a positive number are left out. `None` if
    /// no pair is left.
    pub fn of_pairs(a: &[f64], b: &[f64]) -> Option<Ratio> {
        let logs: Vec<f64> = a
            .iter()
            .zip(b)
            .filter(|(x, y)| x.is_finite() && y.is_finite() && **x > 0.0 && **y > 0.0)
            .map(|(x, y)| (x / y).ln())
            .collect();
        if logs.is_empty() {
            return None;
        }
        let mut rng = Rng::new(0x6D75_6E69_6D65_6E74);
        let mut medians = Vec::with_capacity(RESAMPLES);
        let mut sample = vec![0.0; logs.len()];
        for _ in 0..RESAMPLES {
            for s in &mut sample {
                let i = rng.below(logs.len() as u64) as usize;
                *s = logs.get(i).copied().unwrap_or(0.0);
            }
            sample.sort_by(f64::total_cmp);
            medians.push(sorted_quantile(&sample, 0.5));
        }
        medians.sort_by(f64::total_cmp);
        Some(Ratio {
            median: median(&logs).exp(),
            low: sorted_quantile(&medians, 0.025).exp(),
            high: sorted_quantile(&medians, 0.975).exp(),
            pairs: logs.len(),
        })
    }

    /// The verdict on the ratio.
    pub fn verdict(&self) -> Verdict {
        if self.pairs < MIN_PAIRS {
            Verdict::TooFew
        } else if self.low <= 1.0 && self.high >= 1.0 {
            Verdict::NoDifference
        } else if self.low > 1.0 {
            Verdict::Higher
        } else {
            Verdict::Lower
        }
    }

    /// The text, such as `0.84 (0.80 … 0.91, 5 pairs)`.
    pub fn text(&self) -> String {
        format!(
            "{:.3} ({:.3} … {:.3}, {} pairs)",
            self.median, self.low, self.high, self.pairs
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(quantile(&[0.0, 10.0], 0.9), 9.0);
        assert_eq!(quantile(&[5.0], 0.99), 5.0);
        assert!(median(&[]).is_nan());
        assert_eq!(mean(&[1.0, 2.0, 6.0]), 3.0);
    }

    #[test]
    fn an_interval_holds_the_value_and_narrows() {
        let noise = |n: usize| -> Vec<f64> { (0..n).map(|i| 10.0 + (i * 7 % 11) as f64).collect() };
        assert_eq!(interval(&noise(MIN_PAIRS - 1), median), None);
        let (low, high) = interval(&noise(11), mean).unwrap();
        assert!(low < 15.0 && high > 15.0, "{low} {high}");
        let (a, b) = interval(&noise(1100), mean).unwrap();
        assert!(b - a < (high - low) / 5.0);
        assert_eq!(interval(&[3.0; 5], median), Some((3.0, 3.0)));
    }

    #[test]
    fn order_is_a_b_b_a() {
        use Side::{A, B};
        assert_eq!(abba(3), vec![[A, B], [B, A], [A, B]]);
    }

    #[test]
    fn a_constant_ratio_is_found_exactly() {
        let b = [10.0, 20.0, 15.0, 40.0, 7.0];
        let a = b.map(|x| x * 1.5);
        let r = Ratio::of_pairs(&a, &b).unwrap();
        assert!((r.median - 1.5).abs() < 1e-12);
        assert!((r.low - 1.5).abs() < 1e-12 && (r.high - 1.5).abs() < 1e-12);
        assert_eq!(r.verdict(), Verdict::Higher);
        let r = Ratio::of_pairs(&b, &a).unwrap();
        assert_eq!(r.verdict(), Verdict::Lower);
    }

    #[test]
    fn drift_shared_by_both_sides_shows_no_difference() {
        // The machine gets 10 % faster with each pair; A and B only differ by noise of either sign.
        let noise = [1.01, 0.98, 1.02, 0.99, 1.0, 0.985, 1.015];
        let b: Vec<f64> = (0..7).map(|i| 100.0 * 1.1f64.powi(i)).collect();
        let a: Vec<f64> = b.iter().zip(noise).map(|(x, n)| x * n).collect();
        let r = Ratio::of_pairs(&a, &b).unwrap();
        assert_eq!(r.verdict(), Verdict::NoDifference);
        assert!(r.low < 1.0 && r.high > 1.0);
    }

    #[test]
    fn few_pairs_show_nothing_and_bad_ones_are_left_out() {
        let r = Ratio::of_pairs(&[2.0, f64::NAN, 0.0], &[1.0, 1.0, 1.0]).unwrap();
        assert_eq!(r.pairs, 1);
        // A ratio of 2 in one pair proves neither a difference nor the lack of one.
        assert_eq!(r.verdict(), Verdict::TooFew);
        assert!(Ratio::of_pairs(&[], &[]).is_none());
    }
}
