//! Numbers one after the other, starting again at the end of the range; all workers share one
//! sequence.

use super::Distribution;
use muniment_load::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The sequence over `low..=high`.
#[derive(Debug, Clone)]
pub(crate) struct Sequential {
    low: u64,
    count: u64,
    next: Arc<AtomicU64>,
}

impl Sequential {
    /// Makes the sequence over `low..=high`; `next` is the position that the workers share.
    pub(crate) fn new(low: u64, high: u64, next: Arc<AtomicU64>) -> Sequential {
        Sequential {
            low,
            count: high.saturating_sub(low).saturating_add(1),
            next,
        }
    }
}

impl Distribution for Sequential {
    fn draw(&mut self, _: &mut Rng) -> u64 {
        self.low + self.next.fetch_add(1, Ordering::Relaxed) % self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_round() {
        let next = Arc::new(AtomicU64::new(0));
        let (mut a, mut b) = (
            Sequential::new(3, 5, next.clone()),
            Sequential::new(3, 5, next),
        );
        let mut rng = Rng::new(0);
        let got: Vec<u64> = (0..3)
            .flat_map(|_| [a.draw(&mut rng), b.draw(&mut rng)])
            .collect();
        assert_eq!(got, [3, 4, 5, 3, 4, 5]);
    }
}
