//! An exponential distribution: the smaller a number, the more often it is drawn.

use super::Distribution;
use muniment_load::rng::Rng;

/// The exponential distribution, rounded down.
#[derive(Debug, Clone)]
pub(crate) struct Exponential {
    gamma: f64,
}

impl Exponential {
    /// Makes the distribution in which `percentile` percent of the draws are below `range`.
    pub(crate) fn new(percentile: f64, range: f64) -> Exponential {
        Exponential {
            gamma: -(1.0 - percentile / 100.0).ln() / range,
        }
    }
}

impl Distribution for Exponential {
    fn draw(&mut self, rng: &mut Rng) -> u64 {
        // `u` is below 1, so 1 − u is never zero and its logarithm is finite.
        (-(1.0 - rng.unit()).ln() / self.gamma) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninety_percent_lie_below_the_range() {
        let mut e = Exponential::new(90.0, 100.0);
        let mut rng = Rng::new(8);
        let below = (0..100_000).filter(|_| e.draw(&mut rng) < 100).count();
        assert!((89_400..90_600).contains(&below), "{below}");
    }
}
