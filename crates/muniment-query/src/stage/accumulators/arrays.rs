//! `$concatArrays` and `$setUnion`: one array with the elements of several arrays.

use super::add_to_set::AddToSet;
use super::push::Push;
use super::sliding::{Kind, Queue};
use super::sliding_sorted::SlidingSet;
use super::{Accumulator, Order, Spec};
use muniment_value::{Error, Result, Value};

pub(super) const CONCAT: Spec = Spec::unary(
    "$concatArrays",
    "The elements of all arrays, in order.",
    Order::Kept,
    |_| {
        Box::new(Elements {
            name: "$concatArrays",
            values: Box::new(Push::default()),
        })
    },
)
.windows(|_| Box::new(Queue::new(Kind::Elements)));

pub(super) const UNION: Spec = Spec::unary(
    "$setUnion",
    "The different elements of all arrays, in no particular order.",
    Order::Free,
    |c| {
        Box::new(Elements {
            name: "$setUnion",
            values: Box::new(AddToSet::new(c)),
        })
    },
)
.windows(|c| Box::new(SlidingSet::new(Some("$setUnion"), c)));

/// The error for a value that is not an array.
pub(super) fn no_array(name: &str, v: Value<'_>) -> Error {
    Error::type_mismatch(format!(
        "{name} requires array inputs, but input {} is of type {}",
        v.to_display(),
        v.type_name()
    ))
}

/// Passes the elements of arrays to an accumulator of values.
#[derive(Debug)]
struct Elements {
    name: &'static str,
    values: Box<dyn Accumulator>,
}

impl Accumulator for Elements {
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        match v {
            None => Ok(()),
            Some(Value::Array(a)) => a.values().try_for_each(|v| self.values.add(Some(v))),
            Some(other) => Err(no_array(self.name, other)),
        }
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        self.values.finish(name, out);
    }

    fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        self.values.save(name, out);
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        self.values.merge(saved)
    }

    fn heap(&self) -> usize {
        self.values.heap()
    }
}
