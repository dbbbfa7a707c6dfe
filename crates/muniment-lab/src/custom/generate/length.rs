//! How long a text, a binary or an array is: a number, or a range with a distribution.

use crate::custom::draw::{Draw, Shape};
use crate::custom::encode::{Env, Hand};
use crate::custom::source::{Fields, Item, Parsed, Value};

/// A number of bytes, characters or elements.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Length {
    /// The least.
    pub min: u64,
    /// How many there are.
    count: u64,
    shape: Shape,
}

/// The longest: a document cannot hold more.
const MOST: u64 = 16 * 1024 * 1024;

impl Length {
    /// Reads a number or `{ min, max, distribution }`.
    ///
    /// # Errors
    /// It is neither; more than a document holds.
    pub(super) fn read(item: &Item) -> Parsed<Length> {
        let (min, max, shape) = match item.value {
            Value::Table(_) => {
                let mut f = item.fields("length")?;
                let min = f.get("min").map_or(Ok(0), |i| i.count("min"))?;
                let max = f.need("max")?.count("max")?;
                let shape = Shape::read(&mut f)?.unwrap_or_default();
                f.end()?;
                (min, max, shape)
            }
            _ => {
                let n = item.count("length")?;
                (n, n, Shape::Uniform)
            }
        };
        if max > MOST {
            return Err(item.bad(format!(
                "length {max} is more than a document holds ({MOST})"
            )));
        }
        let count = span(i128::from(min), i128::from(max), &shape).map_err(|e| item.bad(e))?;
        Ok(Length { min, count, shape })
    }

    /// The key `length` of a generator.
    ///
    /// # Errors
    /// As [`Length::read`]; it is not there.
    pub(super) fn of(f: &mut Fields<'_>) -> Parsed<Length> {
        Length::read(f.need("length")?)
    }

    /// The only one, if there is one.
    pub(super) fn only(&self) -> Option<u64> {
        (self.count == 1).then_some(self.min)
    }

    /// Begins to draw.
    pub(super) fn start(&self, env: &Env<'_>) -> Lengths {
        Lengths {
            min: self.min,
            count: self.count,
            draw: Draw::new(&self.shape, self.count, env.shared, &env.place()),
        }
    }
}

/// Lengths being drawn.
pub(super) struct Lengths {
    min: u64,
    count: u64,
    draw: Draw,
}

impl Lengths {
    /// The next.
    #[inline]
    pub(super) fn draw(&mut self, hand: &mut Hand) -> usize {
        if self.count == 1 {
            return self.min as usize;
        }
        (self.min + self.draw.draw(self.count, &mut hand.rng)) as usize
    }
}

/// How many numbers there are in `min..=max`, if `shape` can be drawn over them.
///
/// # Errors
/// In words: `max` below `min`; more than a sum over them can be made for.
pub(super) fn span(min: i128, max: i128, shape: &Shape) -> Result<u64, String> {
    if max < min {
        return Err(format!("max ({max}) is below min ({min})"));
    }
    let count = u64::try_from(max - min + 1)
        .map_err(|_| format!("there are more than 2^64 numbers from {min} to {max}"))?;
    let summed = match shape {
        Shape::Latest(_) | Shape::Zipfian(_) => true,
        Shape::Scrambled(theta) => *theta != crate::distributions::zipfian::THETA,
        _ => false,
    };
    if summed && count > 1_000_000_000 {
        return Err(format!(
            "{} can be drawn over 1,000,000,000 numbers, not over {count}",
            shape.name()
        ));
    }
    Ok(count)
}
