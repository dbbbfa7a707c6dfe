//! Random text.

use super::length::{Length, Lengths};
use super::noise::{MOST, Noise, Of};
use super::{Generator, Source, Spec};
use crate::custom::encode::{Env, Hand};
use crate::custom::source::{Fields, Item, Parsed, Value};
use crate::custom::template::{Node, Seen};
use muniment_load::fail::Result;
use std::sync::Arc;

/// The generator `text`.
pub(super) const SPEC: Spec = Spec {
    name: "text",
    form: "LENGTH or { length, compressibility = 0.5 } or { length, alphabet = \"…\" }",
    about: "random letters, digits, spaces and points, of which deflate saves this share (0.25 to 0.95); or random ASCII characters of an alphabet; length is a number or { min = 0, max, distribution }",
    read,
};

#[derive(Debug, Clone)]
enum Make {
    Noise(Noise),
    Alphabet(Vec<u8>),
}

#[derive(Debug)]
struct Text {
    length: Length,
    make: Make,
}

/// Reads the share that a compressor saves, within the bounds of `of`.
///
/// # Errors
/// The share is outside the bounds.
pub(super) fn compressibility(f: &mut Fields<'_>, of: Of, default: f64) -> Parsed<f64> {
    let Some(item) = f.get("compressibility") else {
        return Ok(default);
    };
    match item.number("compressibility") {
        Ok(c) if (of.least()..=MOST).contains(&c) => Ok(c),
        _ => Err(item.bad(format!(
            "compressibility of {} must be from {} to {MOST}, not {}",
            f.what,
            of.least(),
            item.described()
        ))),
    }
}

fn read(item: &Item, _: &mut Seen) -> Parsed<Node> {
    let text = match item.value {
        Value::Whole(_) => Text {
            length: Length::read(item)?,
            make: Make::Noise(Noise::new(Of::Letters, 0.5)),
        },
        _ => {
            let mut f = item.fields("text")?;
            let length = Length::of(&mut f)?;
            let make = match f.get("alphabet") {
                None => Make::Noise(Noise::new(
                    Of::Letters,
                    compressibility(&mut f, Of::Letters, 0.5)?,
                )),
                Some(a) => {
                    let letters = a.text("alphabet")?;
                    if letters.is_empty() || !letters.is_ascii() || letters.contains('\0') {
                        return Err(a.bad("alphabet must be some ASCII characters"));
                    }
                    if f.get("compressibility").is_some() {
                        return Err(f.bad("an alphabet decides the compressibility itself"));
                    }
                    Make::Alphabet(letters.as_bytes().to_vec())
                }
            };
            f.end()?;
            Text { length, make }
        }
    };
    Ok(Node::Made(Arc::new(text)))
}

impl Generator for Text {
    fn kind(&self) -> Option<u8> {
        Some(2)
    }

    fn width(&self) -> Option<usize> {
        self.length.only().map(|n| n as usize + 5)
    }

    fn start(&self, env: &Env<'_>) -> Result<Box<dyn Source>> {
        Ok(Box::new(Texts {
            lengths: self.length.start(env),
            make: self.make.clone(),
        }))
    }
}

struct Texts {
    lengths: Lengths,
    make: Make,
}

impl Source for Texts {
    #[inline]
    fn write(&mut self, hand: &mut Hand, out: &mut Vec<u8>) -> u8 {
        let n = self.lengths.draw(hand);
        out.extend_from_slice(&(n as u32 + 1).to_le_bytes());
        match &self.make {
            Make::Noise(noise) => noise.write(n, &mut hand.rng, out),
            Make::Alphabet(letters) => {
                for _ in 0..n {
                    let at = hand.rng.below(letters.len() as u64) as usize;
                    out.push(letters.get(at).copied().unwrap_or(b' '));
                }
            }
        }
        out.push(0);
        2
    }
}
