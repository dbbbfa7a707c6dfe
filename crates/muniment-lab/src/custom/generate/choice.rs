//! One of several values, drawn by weight or by a distribution; and booleans that are true with a
//! given chance.

use super::{Generator, Source, Spec};
use crate::custom::draw::{Draw, Shape, Weighted, read_weights};
use crate::custom::encode::{Encoder, Env, Hand};
use crate::custom::source::{Item, Parsed};
use crate::custom::template::{Node, Seen};
use muniment_load::fail::Result;
use std::sync::Arc;

/// The generator `bool`.
pub(super) const BOOL: Spec = Spec {
    name: "bool",
    form: "CHANCE",
    about: "true with this chance (0 to 1), else false",
    read: |item: &Item, _: &mut Seen| -> Parsed<Node> {
        Ok(Node::Made(Arc::new(Bool(item.share("bool")?))))
    },
};

/// The generator `enum`.
pub(super) const ENUM: Spec = Spec {
    name: "enum",
    form: "{ values = [VALUE, …], weights = [number, …] } or { values, distribution }",
    about: "one of these values, which may be generators; all alike without weights and distribution",
    read,
};

#[derive(Debug, Clone, Copy)]
struct Bool(f64);

impl Generator for Bool {
    fn kind(&self) -> Option<u8> {
        Some(8)
    }

    fn width(&self) -> Option<usize> {
        Some(1)
    }

    fn start(&self, _: &Env<'_>) -> Result<Box<dyn Source>> {
        Ok(Box::new(*self))
    }
}

impl Source for Bool {
    #[inline]
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8 {
        out.push(u8::from(hand.rng.unit() < self.0));
        8
    }
}

#[derive(Debug)]
enum By {
    Weights(Vec<f64>),
    Shape(Shape),
}

#[derive(Debug)]
struct Choice {
    values: Vec<Node>,
    by: By,
}

fn read(item: &Item, seen: &mut Seen) -> Parsed<Node> {
    let mut f = item.fields("enum")?;
    let list = f.need("values")?;
    let values = list.list("values")?;
    if values.is_empty() {
        return Err(list.bad("values: there must be one at least"));
    }
    let values = values
        .iter()
        .map(|v| Node::element(v, seen))
        .collect::<Parsed<Vec<_>>>()?;
    let weights = f.get("weights");
    let shape = Shape::read(&mut f)?;
    let by = match (weights, shape) {
        (Some(w), Some(_)) => return Err(w.bad("enum has weights or a distribution, not both")),
        (Some(w), None) => {
            let weights = read_weights(w, "weights")?;
            if weights.len() != values.len() {
                return Err(w.bad(format!(
                    "enum has {} values and {} weights",
                    values.len(),
                    weights.len()
                )));
            }
            By::Weights(weights)
        }
        (None, shape) => By::Shape(shape.unwrap_or_default()),
    };
    f.end()?;
    Ok(Node::Made(Arc::new(Choice { values, by })))
}

impl Generator for Choice {
    fn kind(&self) -> Option<u8> {
        let first = self.values.first()?.kind();
        let same = self.values.iter().all(|v| v.kind() == first);
        first.filter(|_| same)
    }

    fn start(&self, env: &Env<'_>) -> Result<Box<dyn Source>> {
        let count = self.values.len() as u64;
        Ok(Box::new(Chosen {
            values: self
                .values
                .iter()
                .map(|v| Encoder::new(v, env))
                .collect::<Result<_>>()?,
            by: match &self.by {
                By::Weights(w) => Chooser::Weights(Weighted::new(w)),
                By::Shape(s) => Chooser::Shape(Draw::new(s, count, env.shared, &env.place())),
            },
        }))
    }
}

enum Chooser {
    Weights(Weighted),
    Shape(Draw),
}

struct Chosen {
    values: Vec<Encoder>,
    by: Chooser,
}

impl Source for Chosen {
    #[inline]
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8 {
        let count = self.values.len() as u64;
        let at = match &mut self.by {
            Chooser::Weights(w) => w.draw(&mut hand.rng),
            Chooser::Shape(d) => d.draw(count, &mut hand.rng) as usize,
        };
        match self.values.get_mut(at) {
            Some(v) => v.write(hand, out),
            None => 0,
        }
    }
}
