//! A range with a hot part that gets most operations; both parts are uniform.

use super::Distribution;
use muniment_load::rng::Rng;

/// The hot-spot distribution over `low..=high`.
#[derive(Debug, Clone)]
pub(crate) struct Hotspot {
    low: u64,
    hot: u64,
    cold: u64,
    operations: f64,
}

impl Hotspot {
    /// Makes the distribution over `low..=high`, in which the lowest share `data` of the range
    /// (0…1) gets the share `operations` (0…1) of the draws. A share outside 0…1 counts as 0, as in
    /// YCSB.
    pub(crate) fn new(low: u64, high: u64, data: f64, operations: f64) -> Hotspot {
        let share = |x: f64| if (0.0..=1.0).contains(&x) { x } else { 0.0 };
        let (low, high) = (low.min(high), low.max(high));
        let count = (high - low).saturating_add(1);
        let hot = (count as f64 * share(data)) as u64;
        Hotspot {
            low,
            hot,
            cold: count - hot,
            operations: share(operations),
        }
    }
}

impl Distribution for Hotspot {
    fn draw(&mut self, rng: &mut Rng) -> u64 {
        let hot = rng.unit() < self.operations;
        // If one part is empty, the other gets all draws.
        if hot && self.hot > 0 || self.cold == 0 {
            self.low + rng.below(self.hot)
        } else {
            self.low + self.hot + rng.below(self.cold)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::chi_square;
    use super::*;

    #[test]
    fn a_fifth_gets_four_fifths() {
        let shares: Vec<f64> = (0..100)
            .map(|i| if i < 20 { 0.8 / 20.0 } else { 0.2 / 80.0 })
            .collect();
        let x = chi_square(&mut Hotspot::new(0, 99, 0.2, 0.8), &shares, 200_000);
        assert!(x < 149.0, "{x}");
        let mut rng = Rng::new(1);
        for (data, operations) in [(0.0, 1.0), (1.0, 0.0), (7.0, -1.0)] {
            let mut h = Hotspot::new(5, 9, data, operations);
            assert!((0..100).all(|_| (5..=9).contains(&h.draw(&mut rng))));
        }
    }
}
