//! `$stdDevPop` and `$stdDevSamp`: standard deviations.
//!
//! Welford's running mean and sum of squared differences; two states are merged with the formula
//! of Chan, Golub and LeVeque.

use super::sliding_numbers::SlidingDev;
use super::{Accumulator, Order, Spec, no_state};
use crate::bytes::{close, head, open, put};
use muniment_value::{Doc, Result, Type, Value, number};

pub(super) const POP: Spec = Spec::unary(
    "$stdDevPop",
    "The standard deviation of the numbers, which are the whole population.",
    Order::Kept,
    |_| Box::new(StdDev::new(false)),
)
.windows(|_| Box::new(SlidingDev::new(false)));

pub(super) const SAMP: Spec = Spec::unary(
    "$stdDevSamp",
    "The standard deviation of the numbers, which are a sample.",
    Order::Kept,
    |_| Box::new(StdDev::new(true)),
)
.windows(|_| Box::new(SlidingDev::new(true)));

#[derive(Debug)]
struct StdDev {
    sample: bool,
    n: i64,
    mean: f64,
    squares: f64,
}

impl StdDev {
    fn new(sample: bool) -> StdDev {
        StdDev {
            sample,
            n: 0,
            mean: 0.0,
            squares: 0.0,
        }
    }
}

impl Accumulator for StdDev {
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        if let Some(x) = v.and_then(number::to_f64) {
            self.n += 1;
            let delta = x - self.mean;
            self.mean += delta / self.n as f64;
            self.squares += delta * (x - self.mean);
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        let n = if self.sample { self.n - 1 } else { self.n };
        let dev = (n > 0).then(|| (self.squares / n as f64).sqrt());
        put(out, name, &dev);
    }

    fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        head(out, Type::Document, name);
        let start = open(out);
        put(out, b"n", &self.n);
        put(out, b"m", &self.mean);
        put(out, b"s", &self.squares);
        close(out, start);
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        let d = saved.as_doc().unwrap_or(Doc::EMPTY);
        let (Some(Value::Int64(n)), Some(Value::Double(mean)), Some(Value::Double(squares))) =
            (d.get("n"), d.get("m"), d.get("s"))
        else {
            return Err(no_state("$stdDevPop", saved));
        };
        if n > 0 {
            let total = self.n + n;
            let delta = mean - self.mean;
            self.squares += squares + delta * delta * (self.n as f64) * (n as f64) / (total as f64);
            self.mean += delta * (n as f64) / (total as f64);
            self.n = total;
        }
        Ok(())
    }
}
