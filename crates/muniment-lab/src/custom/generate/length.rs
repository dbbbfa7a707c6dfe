//! The length of a text, a binary or an array: a number, or a range with a distribution.

use crate::custom::draw::{Draw, Shape};
use crate::custom::encode::{Env, Hand};
use crate::custom::source::{Fields, Item, Parsed, Value};

/// A number of bytes, characters or elements.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Length {
    /// The smallest length.
    pub min: u64,
    /// The number of possible lengths.
    count: u64,
    shape: Shape,
}

/// The greatest length; a document cannot hold more.
const MOST: u64 = 16 * 1024 * 1024;

impl Length {
    /// Reads a number or `{ min, max, distribution }`.
    ///
    /// # Errors
    /// The value is neither, or is more than a document can hold.
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

    /// Reads the key `length` of a generator.
    ///
    /// # Errors
    /// The key is missing, or as for [`Length::read`].
    pub(super) fn of(f: &mut Fields<'_>) -> Parsed<Length> {
        Length::read(f.need("length")?)
    }

    /// The length, if only one is possible.
    pub(super) fn only(&self) -> Option<u64> {
        (self.count == 1).then_some(self.min)
    }

    /// Prepares a worker to draw lengths.
    pub(super) fn start(&self, env: &Env<'_>) -> Lengths {
        Lengths {
            min: self.min,
            count: self.count,
            draw: Draw::new(&self.shape, self.count, env.shared, &env.place()),
        }
    }
}

/// A worker's draws of lengths.
pub(super) struct Lengths {
    min: u64,
    count: u64,
    draw: Draw,
}

impl Lengths {
    /// Draws the next length.
    #[inline]
    pub(super) fn draw(&mut self, hand: &mut Hand) -> usize {
        if self.count == 1 {
            return self.min as usize;
        }
        (self.min + self.draw.draw(self.count, &mut hand.rng)) as usize
    }
}

/// The number of numbers in `min..=max`, if `shape` can be drawn over them.
///
/// # Errors
/// In words: `max` is below `min`, or the range is larger than a sum over it could be computed for.
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
