//! Tests every distribution against the exact probabilities of its formula, with fixed seeds, and
//! tests that each bound refuses a wrong parameter.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::counter::Counter;
use super::exponential::Exponential;
use super::fnv;
use super::histogram::Histogram;
use super::hotspot::Hotspot;
use super::latest::Latest;
use super::scrambled::Scrambled;
use super::sequential::Sequential;
use super::uniform::Uniform;
use super::zipfian::{THETA, Zipfian};
use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const DRAWS: u64 = 300_000;

/// Computes χ² over the numbers 0, 1, … and its degrees of freedom. Numbers with fewer than five
/// expected draws form one class, which also takes the numbers beyond the shares.
fn chi_square(d: &mut dyn Distribution, shares: &[f64]) -> (f64, f64) {
    let mut counts = vec![0_u64; shares.len() + 1];
    let mut rng = Rng::new(20_261_122);
    for _ in 0..DRAWS {
        counts[(d.draw(&mut rng) as usize).min(shares.len())] += 1;
    }
    let (mut sum, mut classes) = (0.0, 0);
    let (mut rare, mut rare_seen) = (1.0 - shares.iter().sum::<f64>(), counts[shares.len()]);
    let mut class = |expected: f64, seen: u64| {
        sum += (seen as f64 - expected).powi(2) / expected;
        classes += 1;
    };
    for (share, seen) in shares.iter().zip(&counts) {
        if share * DRAWS as f64 >= 5.0 {
            class(share * DRAWS as f64, *seen);
        } else {
            rare += share;
            rare_seen += seen;
        }
    }
    if rare * DRAWS as f64 >= 5.0 {
        class(rare * DRAWS as f64, rare_seen);
    } else {
        assert!(
            rare_seen < 30,
            "{rare_seen} draws of what is next to impossible"
        );
    }
    (sum, f64::from(classes - 1))
}

/// The 99.9 % point of χ² (Wilson and Hilferty, 1931).
fn bound(freedom: f64) -> f64 {
    let v = 2.0 / (9.0 * freedom);
    freedom * (1.0 - v + 3.0902 * v.sqrt()).powi(3)
}

#[track_caller]
fn fits(d: &mut dyn Distribution, shares: &[f64]) {
    let (x, freedom) = chi_square(d, shares);
    assert!(
        x < bound(freedom),
        "χ² = {x} with {freedom} degrees of freedom"
    );
}

#[track_caller]
fn does_not_fit(d: &mut dyn Distribution, shares: &[f64]) {
    let (x, freedom) = chi_square(d, shares);
    assert!(
        x > 2.0 * bound(freedom),
        "χ² = {x} with {freedom} degrees of freedom"
    );
}

/// The probability that Gray's method gives each of `n` ranks for a uniform `u`: 1/ζ, 2^−θ/ζ, and
/// from the third rank on the distance between the two `u` at which ⌊n(ηu − η + 1)^α⌋ increases. ζ
/// is the sum over `ranks` ranks.
fn gray(n: u64, theta: f64, zeta: f64, ranks: u64) -> Vec<f64> {
    let power = |x: f64| x.powf(-theta);
    let zeta2 = 1.0 + power(2.0);
    let eta = (1.0 - (2.0 / n as f64).powf(1.0 - theta)) / (1.0 - zeta2 / zeta);
    // The `u` from which on the rank is at least `k`.
    let from = |k: u64| {
        let u = 1.0 + ((k as f64 / n as f64).powf(1.0 - theta) - 1.0) / eta;
        u.clamp(zeta2 / zeta, 1.0)
    };
    (0..ranks)
        .map(|k| match k {
            0 => 1.0 / zeta,
            // The curve may give a part of its share to the second rank too.
            1 => power(2.0) / zeta + from(2) - zeta2 / zeta,
            _ => from(k + 1) - from(k),
        })
        .collect()
}

fn zeta(n: u64, theta: f64) -> f64 {
    (1..=n).map(|i| (i as f64).powf(-theta)).sum()
}

#[test]
fn the_bound_is_that_of_the_tables() {
    // Known 99.9 % points are 149.449 at 100 degrees of freedom and 29.588 at 10.
    assert!((bound(100.0) - 149.449).abs() < 0.1, "{}", bound(100.0));
    assert!((bound(10.0) - 29.588).abs() < 0.2, "{}", bound(10.0));
}

#[test]
fn uniform() {
    fits(&mut Uniform::new(0, 999), &[0.001; 1000]);
    does_not_fit(&mut Uniform::new(0, 989), &[0.001; 1000]);
}

#[test]
fn sequential() {
    let all = |high| Sequential::new(0, high, Arc::new(AtomicU64::new(0)));
    let (x, _) = chi_square(&mut all(999), &[0.001; 1000]);
    assert!(x < 1e-9, "{x}: each number comes as often as any other");
    does_not_fit(&mut all(989), &[0.001; 1000]);
}

#[test]
fn zipfian_by_its_formula() {
    for theta in [THETA, 0.8, 0.5] {
        let n = 1000;
        let shares = gray(n, theta, zeta(n, theta), n);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        fits(&mut Zipfian::new(0, n - 1, theta), &shares);
        does_not_fit(&mut Zipfian::new(0, n - 1, theta - 0.05), &shares);
    }
}

#[test]
fn zipfian_is_close_to_zipfs_law() {
    // The method is an approximation: here no rank's share is wrong by a third, but with a wrong θ
    // one is.
    let n = 1000;
    let z = zeta(n, THETA);
    let off = |shares: &[f64]| {
        let law = |k: usize| ((k + 1) as f64).powf(-THETA) / z;
        let share = |k: usize| (shares[k] / law(k) - 1.0).abs();
        (2..n as usize).map(share).fold(0.0, f64::max)
    };
    assert!(
        off(&gray(n, THETA, z, n)) < 0.34,
        "{}",
        off(&gray(n, THETA, z, n))
    );
    assert!(off(&gray(n, 0.8, zeta(n, 0.8), n)) > 0.5);
}

#[test]
fn scrambled() {
    // The hash distributes the ranks' shares over the keys. The shares of the first ranks are added
    // one by one; all later ranks together give each key nearly the same, since so many of them
    // fall on each.
    let n = 500;
    let (ranks, singly) = (10_000_000_001_u64, 2_000_000_u64);
    let by_key = |theta: f64, z: f64| {
        let shares = gray(ranks, theta, z, singly);
        let rest = 1.0 - shares.iter().sum::<f64>();
        let mut keys = vec![rest / n as f64; n];
        for (rank, share) in shares.iter().enumerate() {
            keys[(fnv::hash(rank as u64) as u64 % n as u64) as usize] += share;
        }
        keys
    };
    let shares = by_key(THETA, 26.469_028_201_783_02);
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    fits(&mut Scrambled::new(0, n as u64 - 1), &shares);
    // This is ζ for θ = 0.9, computed by its integral.
    let zeta = 1e10_f64.powf(0.1) / 0.1 + 0.58 - 1.0 / 0.1;
    does_not_fit(&mut Scrambled::new(0, n as u64 - 1), &by_key(0.9, zeta));
}

#[test]
fn latest() {
    let n = 1000_u64;
    let counter = Arc::new(Counter::new(n));
    // Ranks count down from the newest number, and there are as many ranks as numbers below it.
    let turned = |theta: f64| {
        let last = n - 1;
        let mut shares = gray(last, theta, zeta(last, theta), last);
        shares.push(0.0);
        shares.reverse();
        shares
    };
    fits(&mut Latest::new(counter.clone()), &turned(THETA));
    does_not_fit(&mut Latest::new(counter), &turned(0.9));
}

#[test]
fn hotspot() {
    let shares = |hot: f64| -> Vec<f64> {
        (0..1000)
            .map(|i| {
                if i < 200 {
                    hot / 200.0
                } else {
                    (1.0 - hot) / 800.0
                }
            })
            .collect()
    };
    fits(&mut Hotspot::new(0, 999, 0.2, 0.8), &shares(0.8));
    does_not_fit(&mut Hotspot::new(0, 999, 0.2, 0.8), &shares(0.75));
}

#[test]
fn exponential() {
    let shares = |percentile: f64| -> Vec<f64> {
        let gamma = -(1.0 - percentile / 100.0_f64).ln() / 100.0;
        (0..600)
            .map(|k| (-gamma * f64::from(k)).exp() - (-gamma * f64::from(k + 1)).exp())
            .collect()
    };
    fits(&mut Exponential::new(95.0, 100.0), &shares(95.0));
    does_not_fit(&mut Exponential::new(95.0, 100.0), &shares(93.0));
}

#[test]
fn histogram() {
    // YCSB draws n from 0 … sum − 1, subtracts bucket after bucket, and stops at the first that
    // brings n to zero or below. Each bucket but the first therefore has its own share, shifted by
    // one.
    let counts = [10_u64, 20, 5, 40, 25];
    let text: String = counts
        .iter()
        .enumerate()
        .map(|(i, c)| format!("{i}\t{c}\n"))
        .collect();
    let shares = |counts: &[u64]| {
        let sum: u64 = counts.iter().sum();
        let mut shares = vec![0.0; counts.len() + 1];
        for n in 0..sum {
            let mut end = 0;
            let bucket = counts[..counts.len() - 1].iter().position(|c| {
                end += c;
                n <= end
            });
            // A bucket stands for its end, but the last one for its beginning.
            let at = bucket.map_or(counts.len() - 1, |b| b + 1);
            shares[at] += 1.0 / sum as f64;
        }
        shares
    };
    let mut h = Histogram::parse(&format!("BlockSize\t1\n{text}")).unwrap();
    fits(&mut h, &shares(&counts));
    does_not_fit(&mut h, &shares(&[10, 20, 8, 37, 25]));
}
