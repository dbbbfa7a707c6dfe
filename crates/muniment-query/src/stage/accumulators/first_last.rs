//! `$first` and `$last`: the value of the first and the last document.

use super::sliding::{Kind, LastFew, Queue};
use super::{Accumulator, Order, Spec};
use crate::bytes::put;
use muniment_value::{Result, Value, ValueBuf};

pub(super) const FIRST: Spec =
    Spec::unary("$first", "The first document's value.", Order::Kept, |_| {
        Box::new(End {
            value: None,
            last: false,
        })
    })
    .windows(|_| Box::new(Queue::new(Kind::First)));

pub(super) const LAST: Spec =
    Spec::unary("$last", "The last document's value.", Order::Kept, |_| {
        Box::new(End {
            value: None,
            last: true,
        })
    })
    .windows(|_| Box::new(LastFew::new(None)));

#[derive(Debug)]
struct End {
    value: Option<ValueBuf>,
    last: bool,
}

/// The bytes of a value on the heap, roughly. Scalars count as zero.
pub(super) fn size(v: &ValueBuf) -> usize {
    match v.as_value() {
        Value::Document(d) | Value::Array(d) => d.byte_len(),
        Value::String(s) | Value::Code(s) | Value::Symbol(s) => s.len() + 5,
        Value::Binary { bytes, .. } => bytes.len() + 5,
        Value::CodeWithScope { code, scope } => code.len() + scope.byte_len(),
        _ => 16,
    }
}

impl Accumulator for End {
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        if self.last || self.value.is_none() {
            self.value = Some(ValueBuf::new(v.unwrap_or(Value::Null)));
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        put(out, name, &self.value.as_ref());
    }

    fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        self.finish(name, out);
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        self.add(Some(saved))
    }

    fn heap(&self) -> usize {
        self.value.as_ref().map_or(0, size)
    }
}
