//! `$push`: all values as an array.

use super::sliding::{Kind, Queue};
use super::{Accumulator, Order, Spec, check_held, elements};
use crate::bytes::{IndexName, close, head, open, put};
use muniment_value::{Result, Type, Value};

pub(super) const SPEC: Spec = Spec::unary("$push", "All values, in order.", Order::Kept, |_| {
    Box::new(Push::default())
})
.windows(|_| Box::new(Queue::new(Kind::Values)));

/// A growing array: its elements as bytes.
#[derive(Debug, Default)]
pub(super) struct Push {
    n: usize,
    body: Vec<u8>,
}

impl Push {
    pub(crate) fn push(&mut self, v: Value<'_>) {
        put(&mut self.body, IndexName::new(self.n).as_bytes(), &v);
        self.n += 1;
    }

    pub(crate) fn bytes(&self) -> usize {
        self.body.capacity()
    }

    pub(crate) fn write(&self, name: &[u8], out: &mut Vec<u8>) {
        head(out, Type::Array, name);
        let start = open(out);
        out.extend_from_slice(&self.body);
        close(out, start);
    }
}

impl Accumulator for Push {
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        if let Some(v) = v {
            self.push(v);
            check_held("$push", self.body.len())?;
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        self.write(name, out);
    }

    fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        self.write(name, out);
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        let values = elements("$push", saved)?.values();
        values.for_each(|v| self.push(v));
        check_held("$push", self.body.len())
    }

    fn heap(&self) -> usize {
        self.bytes()
    }
}
