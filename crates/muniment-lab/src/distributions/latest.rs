//! A distribution that draws the newest numbers most often.

use super::Distribution;
use super::counter::Counter;
use super::zipfian::{THETA, Zipfian};
use muniment_load::rng::Rng;
use std::sync::Arc;

/// Zipf's distribution over the ages of numbers, so that the newest number of a counter is drawn
/// most.
#[derive(Debug, Clone)]
pub(crate) struct Latest {
    counter: Arc<Counter>,
    zipf: Zipfian,
}

impl Latest {
    /// Draws from the numbers that `counter` allows to be read.
    pub(crate) fn new(counter: Arc<Counter>) -> Latest {
        let last = counter.last().unwrap_or(0).max(1);
        Latest {
            zipf: Zipfian::new(0, last - 1, THETA),
            counter,
        }
    }
}

impl Distribution for Latest {
    fn draw(&mut self, rng: &mut Rng) -> u64 {
        let last = self.counter.last().unwrap_or(0);
        last.saturating_sub(self.zipf.draw_of(last.max(1), rng))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_the_hottest_as_they_come() {
        let counter = Arc::new(Counter::new(1000));
        let mut l = Latest::new(counter.clone());
        let mut rng = Rng::new(4);
        let share = |l: &mut Latest, rng: &mut Rng, of: u64| {
            (0..50_000).filter(|_| l.draw(rng) == of).count() as f64 / 50_000.0
        };
        let want = 1.0 / Zipfian::new(0, 998, THETA).zeta();
        let got = share(&mut l, &mut rng, 999);
        assert!((got - want).abs() < 0.01, "{got} {want}");
        let n = counter.take();
        counter.acknowledge(n);
        assert!((share(&mut l, &mut rng, 1000) - want).abs() < 0.01);
    }
}
