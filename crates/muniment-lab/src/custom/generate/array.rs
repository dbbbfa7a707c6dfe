//! Arrays whose length is drawn.

use super::length::{Length, Lengths};
use super::{Generator, Source, Spec};
use crate::custom::encode::{Encoder, Env, Hand, patch_length};
use crate::custom::source::{Item, Parsed};
use crate::custom::template::{Node, Seen};
use muniment_load::fail::Result;
use std::io::Write;
use std::sync::Arc;

/// The generator `array`.
pub(super) const SPEC: Spec = Spec {
    name: "array",
    form: "{ of = VALUE, length }",
    about: "an array whose elements are made one by one; length is a number or { min = 0, max, distribution }",
    read,
};

#[derive(Debug)]
struct Array {
    of: Node,
    length: Length,
}

fn read(item: &Item, seen: &mut Seen) -> Parsed<Node> {
    let mut f = item.fields("array")?;
    let of = Node::element(f.need("of")?, seen)?;
    let length = Length::of(&mut f)?;
    f.end()?;
    Ok(Node::Made(Arc::new(Array { of, length })))
}

impl Generator for Array {
    fn kind(&self) -> Option<u8> {
        Some(4)
    }

    fn start(&self, env: &Env<'_>) -> Result<Box<dyn Source>> {
        Ok(Box::new(Elements {
            of: Encoder::new(&self.of, env)?,
            lengths: self.length.start(env),
        }))
    }
}

struct Elements {
    of: Encoder,
    lengths: Lengths,
}

impl Source for Elements {
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8 {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        for i in 0..self.lengths.draw(hand) {
            let at = out.len();
            out.push(0);
            // Writing into memory does not fail.
            let _ = write!(out, "{i}");
            out.push(0);
            let kind = self.of.write(hand, out);
            if let Some(slot) = out.get_mut(at) {
                *slot = kind;
            }
        }
        out.push(0);
        patch_length(out, start);
        4
    }
}
