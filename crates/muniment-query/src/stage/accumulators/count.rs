//! `$count`: the number of documents.

use super::{Accumulator, Order, Sliding, Spec, no_state};
use crate::bytes::put;
use muniment_value::{Result, Value, number};

pub(super) const SPEC: Spec = Spec::unary(
    "$count",
    "How many documents there are.",
    Order::Free,
    |_| Box::new(Count(0)),
)
.windows(|_| Box::new(Count(0)));

#[derive(Debug)]
struct Count(i64);

impl Sliding for Count {
    fn add(&mut self, _: Option<Value<'_>>) -> Result<()> {
        self.0 += 1;
        Ok(())
    }

    fn remove(&mut self, _: Option<Value<'_>>) -> Result<()> {
        self.0 -= 1;
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        put(out, name, &number::narrow(self.0));
    }
}

impl Accumulator for Count {
    fn add(&mut self, _: Option<Value<'_>>) -> Result<()> {
        self.0 += 1;
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        put(out, name, &number::narrow(self.0));
    }

    fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        put(out, name, &self.0);
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        let Value::Int64(n) = saved else {
            return Err(no_state("$count", saved));
        };
        self.0 += n;
        Ok(())
    }
}
