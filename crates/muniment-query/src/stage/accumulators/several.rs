//! `$firstN`, `$lastN`, `$minN` and `$maxN`: several values as an array.

use super::sliding::{Kind, LastFew, Queue};
use super::sliding_sorted::SlidingBest;
use super::{
    Accumulator, Make, Options, Order, Parsed, Sliding, Spec, check_held, elements, whole_n,
};
use crate::bytes::{IndexName, close, head, open, put};
use crate::expr::Expr;
use muniment_value::{Collation, Result, Type, Value, ValueBuf};
use std::cmp::Ordering;
use std::collections::VecDeque;

pub(super) const FIRST_N: Spec = Spec::options(
    "$firstN",
    "The values of the first documents.",
    Order::Kept,
    |o| parse(&o, Which::First),
);

pub(super) const LAST_N: Spec = Spec::options(
    "$lastN",
    "The values of the last documents.",
    Order::Kept,
    |o| parse(&o, Which::Last),
);

pub(super) const MAX_N: Spec = Spec::options(
    "$maxN",
    "The greatest values, greatest first.",
    Order::Free,
    |o| parse(&o, Which::Best(Ordering::Greater)),
);

pub(super) const MIN_N: Spec = Spec::options(
    "$minN",
    "The least values, least first.",
    Order::Free,
    |o| parse(&o, Which::Best(Ordering::Less)),
);

#[derive(Clone, Copy, Debug)]
enum Which {
    First,
    Last,
    /// The values that compare in this way with the others; null and missing do not count.
    Best(Ordering),
}

fn parse(o: &Options<'_>, which: Which) -> Result<Parsed> {
    o.only(&["n", "input"])?;
    let (n, start) = o.n(5_787_906)?;
    let input = o.need("input", 5_787_907)?;
    let (collation, sliding) = (o.ctx.collation.clone(), o.ctx.collation.clone());
    Ok(Parsed {
        expr: Expr::parse(input, o.ctx)?,
        // A window has no group, so its n is a constant.
        sliding: start.is_none().then(|| -> Make<dyn Sliding> {
            match which {
                Which::First => Box::new(move || Box::new(Queue::new(Kind::FirstN(n)))),
                Which::Last => Box::new(move || Box::new(LastFew::new(Some(n)))),
                Which::Best(wanted) => {
                    Box::new(move || Box::new(SlidingBest::new(n, wanted, &sliding)))
                }
            }
        }),
        start,
        make: Box::new(move || {
            Box::new(Several {
                n,
                which,
                collation: collation.clone(),
                values: VecDeque::new(),
                bytes: 0,
            })
        }),
    })
}

#[derive(Debug)]
struct Several {
    n: usize,
    which: Which,
    collation: Collation,
    values: VecDeque<ValueBuf>,
    bytes: usize,
}

impl Several {
    fn insert(&mut self, at: usize, v: Value<'_>) {
        let v = ValueBuf::new(v);
        self.bytes += size(&v);
        self.values.insert(at, v);
    }
}

fn size(v: &ValueBuf) -> usize {
    super::first_last::size(v) + size_of::<ValueBuf>()
}

impl Accumulator for Several {
    fn start(&mut self, n: Option<Value<'_>>) -> Result<()> {
        self.n = whole_n(n)?;
        Ok(())
    }

    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        let full = self.values.len() >= self.n;
        match self.which {
            Which::First if full => return Ok(()),
            Which::First | Which::Last => {
                self.insert(self.values.len(), v.unwrap_or(Value::Null));
            }
            Which::Best(wanted) => {
                let Some(v) = v.filter(|v| !v.is_nullish()) else {
                    return Ok(());
                };
                // The new value goes after those that are better or equal.
                let at = self
                    .values
                    .partition_point(|x| self.collation.cmp(v, x.as_value()) != wanted);
                if at < self.n {
                    self.insert(at, v);
                }
            }
        }
        if self.values.len() > self.n {
            let gone = match self.which {
                Which::Last => self.values.pop_front(),
                _ => self.values.pop_back(),
            };
            self.bytes = self.bytes.saturating_sub(gone.as_ref().map_or(0, size));
        }
        check_held("an accumulator of several values", self.bytes)
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        head(out, Type::Array, name);
        let start = open(out);
        for (i, v) in self.values.iter().enumerate() {
            put(out, IndexName::new(i).as_bytes(), v);
        }
        close(out, start);
    }

    fn save(&self, name: &[u8], out: &mut Vec<u8>) {
        self.finish(name, out);
    }

    fn merge(&mut self, saved: Value<'_>) -> Result<()> {
        let mut values = elements("an accumulator of several values", saved)?.values();
        values.try_for_each(|v| self.add(Some(v)))
    }

    fn heap(&self) -> usize {
        self.bytes
    }
}
