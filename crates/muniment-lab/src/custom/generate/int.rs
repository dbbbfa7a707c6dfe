//! Whole numbers from a range: int32 and int64.

use super::length::span;
use super::{Generator, Source, Spec};
use crate::custom::draw::{Draw, Shape};
use crate::custom::encode::{Env, Hand};
use crate::custom::source::{Item, Parsed};
use crate::custom::template::Node;
use muniment_load::fail::Result;
use std::sync::Arc;

/// The generator `int`.
pub(super) const INT: Spec = Spec {
    name: "int",
    form: "{ min = 0, max, distribution = \"uniform\" }",
    about: "an int32 of min…max, both included",
    read: |item, _| read(item, false),
};

/// The generator `long`.
pub(super) const LONG: Spec = Spec {
    name: "long",
    form: "{ min = 0, max, distribution = \"uniform\" }",
    about: "an int64 of min…max, both included",
    read: |item, _| read(item, true),
};

#[derive(Debug)]
struct Int {
    long: bool,
    min: i64,
    count: u64,
    shape: Shape,
}

fn read(item: &Item, long: bool) -> Parsed<Node> {
    let mut f = item.fields(if long { "long" } else { "int" })?;
    let number = |item: &Item, what: &str| {
        let n = item.whole(what)?;
        if !long && i32::try_from(n).is_err() {
            return Err(item.bad(format!("{what} = {n} is no int32; use long")));
        }
        Ok(n)
    };
    let min = f.get("min").map_or(Ok(0), |i| number(i, "min"))?;
    let max = number(f.need("max")?, "max")?;
    let shape = Shape::read(&mut f)?.unwrap_or_default();
    let count = span(min.into(), max.into(), &shape).map_err(|e| f.bad(e))?;
    f.end()?;
    Ok(Node::Made(Arc::new(Int {
        long,
        min,
        count,
        shape,
    })))
}

impl Generator for Int {
    fn kind(&self) -> Option<u8> {
        Some(if self.long { 18 } else { 16 })
    }

    fn width(&self) -> Option<usize> {
        Some(if self.long { 8 } else { 4 })
    }

    fn start(&self, env: &Env<'_>) -> Result<Box<dyn Source>> {
        Ok(Box::new(Numbers {
            long: self.long,
            min: self.min,
            count: self.count,
            draw: Draw::new(&self.shape, self.count, env.shared, &env.place()),
        }))
    }
}

struct Numbers {
    long: bool,
    min: i64,
    count: u64,
    draw: Draw,
}

impl Source for Numbers {
    #[inline]
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8 {
        let n = self.draw.draw(self.count, &mut hand.rng);
        let n = self.min.wrapping_add(n as i64);
        if self.long {
            out.extend_from_slice(&n.to_le_bytes());
            return 18;
        }
        out.extend_from_slice(&(n as i32).to_le_bytes());
        16
    }
}
