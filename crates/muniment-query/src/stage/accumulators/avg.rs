//! `$avg`: the mean of the numbers.

use super::sliding_numbers::SlidingSum;
use super::sum::Total;
use super::{Accumulator, Order, Spec};
use crate::bytes::put;
use muniment_value::{Result, Value};

pub(super) const SPEC: Spec = Spec::unary(
    "$avg",
    "The mean of the numbers among the values.",
    Order::Free,
    |_| Box::new(Avg::default()),
)
.windows(|_| Box::new(SlidingSum::new(true)));

#[derive(Debug, Default)]
struct Avg(Total);

impl Accumulator for Avg {
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        if let Some(v) = v {
            self.0.add(v);
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        put(out, name, &self.0.mean());
    }

    fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        self.0.save(name, out);
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        self.0.merge(saved)
    }
}
