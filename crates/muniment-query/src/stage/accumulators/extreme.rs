//! `$min` and `$max`: the least and the greatest value, without null and missing.

use super::sliding_sorted::SlidingExtreme;
use super::{Accumulator, Order, Spec};
use crate::bytes::put;
use muniment_value::{Collation, Result, Value, ValueBuf};
use std::cmp::Ordering;

pub(super) const MIN: Spec = Spec::unary("$min", "The least value.", Order::Free, |c| {
    Box::new(Extreme::new(Ordering::Less, c))
})
.windows(|c| Box::new(SlidingExtreme::new(Ordering::Less, c)));

pub(super) const MAX: Spec = Spec::unary("$max", "The greatest value.", Order::Free, |c| {
    Box::new(Extreme::new(Ordering::Greater, c))
})
.windows(|c| Box::new(SlidingExtreme::new(Ordering::Greater, c)));

#[derive(Debug)]
struct Extreme {
    best: Option<ValueBuf>,
    wanted: Ordering,
    collation: Collation,
}

impl Extreme {
    fn new(wanted: Ordering, collation: &Collation) -> Extreme {
        Extreme {
            best: None,
            wanted,
            collation: collation.clone(),
        }
    }
}

impl Accumulator for Extreme {
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        if let Some(v) = v
            && !v.is_nullish()
            && self
                .best
                .as_ref()
                .is_none_or(|b| self.collation.cmp(v, b.as_value()) == self.wanted)
        {
            self.best = Some(ValueBuf::new(v));
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        put(out, name, &self.best.as_ref());
    }

    fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        self.finish(name, out);
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        self.add(Some(saved))
    }

    fn heap(&self) -> usize {
        self.best.as_ref().map_or(0, super::first_last::size)
    }
}
