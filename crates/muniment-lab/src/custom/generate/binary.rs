//! Random bytes.

use super::length::{Length, Lengths};
use super::noise::{Noise, Of};
use super::text::compressibility;
use super::{Generator, Source, Spec};
use crate::custom::encode::{Env, Hand};
use crate::custom::source::{Item, Parsed, Value};
use crate::custom::template::{Node, Seen};
use muniment_load::fail::Result;
use std::sync::Arc;

/// The generator `binary`.
pub(super) const SPEC: Spec = Spec {
    name: "binary",
    form: "LENGTH or { length, compressibility = 0, subtype = 0 }",
    about: "random bytes of which deflate saves this share (0 to 0.95); length is a number or { min = 0, max, distribution }",
    read,
};

#[derive(Debug)]
struct Binary {
    length: Length,
    noise: Noise,
    subtype: u8,
}

fn read(item: &Item, _: &mut Seen) -> Parsed<Node> {
    let binary = match item.value {
        Value::Whole(_) => Binary {
            length: Length::read(item)?,
            noise: Noise::new(Of::Bytes, 0.0),
            subtype: 0,
        },
        _ => {
            let mut f = item.fields("binary")?;
            let length = Length::of(&mut f)?;
            let noise = Noise::new(Of::Bytes, compressibility(&mut f, Of::Bytes, 0.0)?);
            let subtype = f.get("subtype").map(|i| match i.whole("subtype") {
                // Subtypes 1 to 7 have formats of their own, which random bytes would violate.
                Ok(n) if n == 0 || (128..256).contains(&n) => Ok(n as u8),
                _ => Err(i.bad("subtype must be 0 or 128 to 255")),
            });
            let subtype = subtype.unwrap_or(Ok(0))?;
            f.end()?;
            Binary {
                length,
                noise,
                subtype,
            }
        }
    };
    Ok(Node::Made(Arc::new(binary)))
}

impl Generator for Binary {
    fn kind(&self) -> Option<u8> {
        Some(5)
    }

    fn width(&self) -> Option<usize> {
        self.length.only().map(|n| n as usize + 5)
    }

    fn start(&self, env: &Env<'_>) -> Result<Box<dyn Source>> {
        Ok(Box::new(Bytes {
            lengths: self.length.start(env),
            noise: self.noise.clone(),
            subtype: self.subtype,
        }))
    }
}

struct Bytes {
    lengths: Lengths,
    noise: Noise,
    subtype: u8,
}

impl Source for Bytes {
    #[inline]
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8 {
        let n = self.lengths.draw(hand);
        out.extend_from_slice(&(n as u32).to_le_bytes());
        out.push(self.subtype);
        self.noise.write(n, &mut hand.rng, out);
        5
    }
}
