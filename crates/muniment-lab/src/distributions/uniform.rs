//! The uniform distribution: every number of a range is equally likely.

use super::Distribution;
use muniment_load::rng::Rng;

/// The uniform distribution over `low..=high`.
#[derive(Debug, Clone)]
pub(crate) struct Uniform {
    low: u64,
    count: u64,
}

impl Uniform {
    /// Makes the distribution over `low..=high`; an empty range gives `low` always.
    pub(crate) fn new(low: u64, high: u64) -> Uniform {
        Uniform {
            low,
            count: (high.saturating_sub(low)).saturating_add(1),
        }
    }
}

impl Distribution for Uniform {
    #[inline]
    fn draw(&mut self, rng: &mut Rng) -> u64 {
        self.low + rng.below(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::chi_square;
    use super::*;

    #[test]
    fn all_alike() {
        // With 99 degrees of freedom, χ² is above 149 in one of a thousand cases.
        let x = chi_square(&mut Uniform::new(0, 99), &[0.01; 100], 200_000);
        assert!(x < 149.0, "{x}");
        let mut rng = Rng::new(1);
        assert_eq!(Uniform::new(7, 7).draw(&mut rng), 7);
        assert_eq!(Uniform::new(7, 3).draw(&mut rng), 7);
    }
}
