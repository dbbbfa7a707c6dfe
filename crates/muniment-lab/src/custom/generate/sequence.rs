//! Numbers from a sequence: new numbers, and keys, which are numbers that exist already.

use super::{Generator, Source, Spec};
use crate::custom::draw::{Draw, Shape};
use crate::custom::encode::{Env, Hand};
use crate::custom::source::{Item, Parsed, Value};
use crate::custom::template::{Node, Seen};
use muniment_load::fail::{Failure, Result};
use std::sync::Arc;

/// The generator `sequence`.
pub(super) const SEQUENCE: Spec = Spec {
    name: "sequence",
    form: "\"NAME\"",
    about: "the next number of a sequence, an int64 from 0 on; all workers share it, and within one document or operation it is the same number wherever it stands",
    read: |item: &Item, seen: &mut Seen| -> Parsed<Node> {
        let name = item.text("sequence")?.to_string();
        seen.taken.insert(name.clone());
        Ok(Node::Made(Arc::new(Next(name))))
    },
};

/// The generator `key`.
pub(super) const KEY: Spec = Spec {
    name: "key",
    form: "\"NAME\" or { of = \"NAME\", distribution }",
    about: "a number of a sequence whose document is there already, an int64, drawn anew wherever it stands; by the operation's distribution unless it has its own",
    read: key,
};

#[derive(Debug)]
struct Next(String);

impl Generator for Next {
    fn kind(&self) -> Option<u8> {
        Some(18)
    }

    fn width(&self) -> Option<usize> {
        Some(8)
    }

    fn start(&self, env: &Env<'_>) -> Result<Box<dyn Source>> {
        Ok(Box::new(Numbers(env.sequence(&self.0)?)))
    }
}

struct Numbers(usize);

impl Source for Numbers {
    #[inline]
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8 {
        out.extend_from_slice(&hand.number(self.0).to_le_bytes());
        18
    }
}

#[derive(Debug)]
struct Key {
    of: String,
    shape: Option<Shape>,
}

fn key(item: &Item, seen: &mut Seen) -> Parsed<Node> {
    let (of, shape) = match item.value {
        Value::Text(_) => (item.text("key")?, None),
        _ => {
            let mut f = item.fields("key")?;
            let of = f.need("of")?.text("of")?;
            let shape = Shape::read(&mut f)?;
            f.end()?;
            (of, shape)
        }
    };
    seen.draws += usize::from(shape.is_none());
    seen.keys.entry(of.to_string()).or_insert(item.line);
    Ok(Node::Made(Arc::new(Key {
        of: of.to_string(),
        shape,
    })))
}

impl Generator for Key {
    fn kind(&self) -> Option<u8> {
        Some(18)
    }

    fn width(&self) -> Option<usize> {
        Some(8)
    }

    fn start(&self, env: &Env<'_>) -> Result<Box<dyn Source>> {
        let of = env.sequence(&self.of)?;
        let counter = env.sequences.get(of).map(|(_, c)| c);
        let count = counter.and_then(|c| c.last()).map_or(0, |n| n + 1);
        let shape = self.shape.as_ref().unwrap_or(env.shape);
        // The uniform and the latest distribution follow a sequence as it grows, so they may begin
        // with none; the others keep the count that they were made with.
        if count == 0 && !matches!(shape, Shape::Uniform | Shape::Latest(_)) {
            return Err(Failure(format!(
                "{}: no document with a number of the sequence '{}' is there yet, so no key can be drawn by {}: load some, or set start in [sequence.{}]",
                env.name,
                self.of,
                shape.name(),
                self.of
            )));
        }
        super::length::span(0, i128::from(count), shape)
            .map_err(|e| Failure(format!("{}: {e}", env.name)))?;
        Ok(Box::new(Keys {
            of,
            draw: Draw::new(shape, count, env.shared, &env.place()),
        }))
    }
}

struct Keys {
    of: usize,
    draw: Draw,
}

impl Source for Keys {
    #[inline]
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8 {
        let n = self.draw.draw(hand.count(self.of), &mut hand.rng);
        out.extend_from_slice(&n.to_le_bytes());
        18
    }
}
