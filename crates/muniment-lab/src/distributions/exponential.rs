//! Small numbers exponentially more often.

use super::Distribution;
use muniment_load::rng::Rng;

/// Exponential, rounded down.
#[derive(Debug, Clone)]
pub(crate) struct Exponential {
    gamma: f64,
}

impl Exponential {
    /// With `percentile` percent of the draws below `range`.
    pub(crate) fn new(percentile: f64, range: f64) -> Exponential {
        Exponential {
            gamma: -(1.0 - percentile / 100.0).ln() / range,
        }
    }
}

impl Distribution for Exponential {
    fn draw(&mut self, rng: &mut Rng) -> u64 {
        // 1 − u is never zero.
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
