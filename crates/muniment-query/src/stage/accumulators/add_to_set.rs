//! `$addToSet`: the distinct values as an array.

use super::push::Push;
use super::sliding_sorted::SlidingSet;
use super::{Accumulator, Order, Spec, check_held, elements};
use muniment_value::{Collation, Result, Value};
use std::collections::HashSet;

pub(super) const SPEC: Spec = Spec::unary(
    "$addToSet",
    "The different values, in no particular order.",
    Order::Free,
    |c| Box::new(AddToSet::new(c)),
)
.windows(|c| Box::new(SlidingSet::new(None, c)));

#[derive(Debug, Default)]
pub(super) struct AddToSet {
    /// The encodings of the values; those of equal values are equal.
    keys: HashSet<Box<[u8]>>,
    key_bytes: usize,
    values: Push,
    collation: Collation,
}

impl AddToSet {
    pub(crate) fn new(collation: &Collation) -> AddToSet {
        AddToSet {
            collation: collation.clone(),
            ..AddToSet::default()
        }
    }
}

impl Accumulator for AddToSet {
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        let Some(v) = v else { return Ok(()) };
        let key = self.collation.encoded(v);
        if !self.keys.contains(key.as_slice()) {
            self.key_bytes += key.len() + 32;
            self.keys.insert(key.into());
            self.values.push(v);
            check_held("$addToSet", self.heap())?;
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        self.values.write(name, out);
    }

    fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        self.values.write(name, out);
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        let mut values = elements("$addToSet", saved)?.values();
        values.try_for_each(|v| self.add(Some(v)))
    }

    fn heap(&self) -> usize {
        self.key_bytes + self.values.bytes()
    }
}
