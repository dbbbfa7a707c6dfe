//! Zipf's distribution: rank r is drawn in proportion to (r + 1)^−θ.
//!
//! Source of the method: Gray, Sundaresan, Englert, Baclawski, Weinberger, "Quickly Generating
//! Billion-Record Synthetic Databases", SIGMOD 1994. It is exact for the two lowest ranks and an
//! approximation for the others.

use super::Distribution;
use muniment_load::rng::Rng;

/// The usual θ of YCSB.
pub(crate) const THETA: f64 = 0.99;

/// Zipf over `count` ranks, added to `base`.
#[derive(Debug, Clone)]
pub(crate) struct Zipfian {
    base: u64,
    count: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    /// The number of terms that `zeta` sums.
    summed: u64,
    zeta2: f64,
    eta: f64,
}

/// Adds Σ 1/i^θ for i in `from + 1 ..= to` to `sum`.
fn zeta_from(from: u64, to: u64, theta: f64, sum: f64) -> f64 {
    (from..to).fold(sum, |s, i| s + 1.0 / ((i + 1) as f64).powf(theta))
}

/// Σ 1/i^θ for i in `1 ..= n`; from 10⁵ terms on approximated by its integral, n^(1−θ)/(1−θ) + 0.58
/// − 1/(1−θ), as in LinkBench.
pub(crate) fn zeta_approximate(n: u64, theta: f64) -> f64 {
    if n < 100_000 {
        return zeta_from(0, n, theta, 0.0);
    }
    (n as f64).powf(1.0 - theta) / (1.0 - theta) + 0.58 - 1.0 / (1.0 - theta)
}

impl Zipfian {
    /// Makes the distribution over `low..=high`, in which the lowest number is drawn most often. It
    /// sums ζ, which takes a second for 10⁸ numbers.
    pub(crate) fn new(low: u64, high: u64, theta: f64) -> Zipfian {
        let count = high.saturating_sub(low).saturating_add(1);
        Zipfian::with_zeta(low, count, theta, zeta_from(0, count, theta, 0.0))
    }

    /// Makes the distribution as [`Zipfian::new`] does, for `count` numbers from `low` on, with a
    /// known ζ.
    pub(crate) fn with_zeta(low: u64, count: u64, theta: f64, zeta: f64) -> Zipfian {
        let mut z = Zipfian {
            base: low,
            count,
            theta,
            alpha: 1.0 / (1.0 - theta),
            zeta,
            summed: count,
            zeta2: zeta_from(0, 2, theta, 0.0),
            eta: 0.0,
        };
        z.eta = z.eta();
        z
    }

    fn eta(&self) -> f64 {
        (1.0 - (2.0 / self.count as f64).powf(1.0 - self.theta)) / (1.0 - self.zeta2 / self.zeta)
    }

    /// ζ of the numbers that it draws from.
    #[cfg(test)]
    pub(crate) fn zeta(&self) -> f64 {
        self.zeta
    }

    /// Draws one of `count` numbers. If `count` has grown since the last draw, ζ grows with it; η
    /// keeps the first count, as in YCSB.
    pub(crate) fn draw_of(&mut self, count: u64, rng: &mut Rng) -> u64 {
        if count > self.summed {
            self.zeta = zeta_from(self.summed, count, self.theta, self.zeta);
            self.summed = count;
            self.eta = self.eta();
        }
        self.at(count, rng.unit())
    }

    /// The number that belongs to `u` in [0, 1).
    fn at(&self, count: u64, u: f64) -> u64 {
        let uz = u * self.zeta;
        if uz < 1.0 {
            return self.base;
        }
        if uz < 1.0 + 0.5_f64.powf(self.theta) {
            return self.base + 1;
        }
        self.base + (count as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64
    }
}

impl Distribution for Zipfian {
    #[inline]
    fn draw(&mut self, rng: &mut Rng) -> u64 {
        self.at(self.count, rng.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeta_as_published() {
        for (theta, want) in [
            (0.8, 121.17),
            (0.741, 247.73),
            (0.625, 1122.4),
            (0.606, 1451.8),
        ] {
            let z = zeta_approximate(10_000_000, theta);
            assert!((z / want - 1.0).abs() < 1e-4, "{theta}: {z}");
        }
        // The integral must continue the sum.
        let (sum, integral) = (
            zeta_from(0, 100_000, 0.8, 0.0),
            zeta_approximate(100_000, 0.8),
        );
        assert!((sum / integral - 1.0).abs() < 0.01, "{sum} {integral}");
    }

    #[test]
    fn the_top_hundredth_draws_what_was_published() {
        for (theta, want) in [(0.8, 0.376), (0.741, 0.294), (0.625, 0.176), (0.606, 0.162)] {
            let n = 10_000_000;
            let mut z = Zipfian::with_zeta(0, n, theta, zeta_approximate(n, theta));
            let mut rng = Rng::new(3);
            let draws = 200_000;
            let top = (0..draws).filter(|_| z.draw(&mut rng) < n / 100).count();
            let share = top as f64 / f64::from(draws);
            assert!((share - want).abs() < 0.005, "{theta}: {share}");
        }
    }

    #[test]
    fn the_two_lowest_ranks_are_exact() {
        let mut z = Zipfian::new(0, 999, THETA);
        let zeta = z.zeta();
        let mut rng = Rng::new(9);
        let draws = 300_000;
        let mut counts = [0_u32; 2];
        for _ in 0..draws {
            let n = z.draw(&mut rng);
            assert!(n < 1000);
            if let Some(c) = counts.get_mut(n as usize) {
                *c += 1;
            }
        }
        for (rank, c) in counts.iter().enumerate() {
            let want = 1.0 / ((rank + 1) as f64).powf(THETA) / zeta;
            let got = f64::from(*c) / f64::from(draws);
            // The bound is six standard deviations.
            let sd = (want * (1.0 - want) / f64::from(draws)).sqrt();
            assert!((got - want).abs() < 6.0 * sd, "{rank}: {got} {want}");
        }
    }

    #[test]
    fn it_grows_without_a_new_start() {
        let mut grown = Zipfian::new(0, 9, THETA);
        let mut rng = Rng::new(1);
        grown.draw_of(1000, &mut rng);
        assert!((grown.zeta() / Zipfian::new(0, 999, THETA).zeta() - 1.0).abs() < 1e-12);
    }
}
