//! The values of one column, or of one scalar of an interleaved column: a literal, then differences.
//!
//! A difference is that of the values as numbers, which have 64 bits for most types, and 128 for strings,
//! code, binary data and decimals. For dates, timestamps and ObjectIds it is the difference of two
//! differences. Its sign is in the lowest bit.

use super::simple8b::Words;
use super::{Cell, invalid, value_at};
use crate::{Result, Type};

/// The factors that turn doubles into whole numbers, by the scale of the control byte. The sixth scale takes
/// the bits of the double as the number.
const SCALES: [f64; 5] = [1.0, 10.0, 100.0, 10_000.0, 100_000_000.0];
const BITS: usize = 5;

/// Whole numbers up to this one are exact as doubles.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The longest text or data for which there are differences.
const WIDE: usize = 16;

/// The position in a column.
#[derive(Default)]
pub(super) struct State<'a> {
    /// The last value that was not missing; `None` if there was none.
    ty: Option<Type>,
    raw: Vec<u8>,
    words: Words<'a>,
    scale: usize,
    /// The last value as a number, or the last difference for types with differences of differences.
    last: i128,
    /// The last value as a number, for types with differences of differences.
    base: i64,
    /// The value is not a number, so it can only repeat.
    opaque: bool,
}

fn is_wide(ty: Type) -> bool {
    matches!(
        ty,
        Type::String | Type::Code | Type::Binary | Type::Decimal128
    )
}

fn is_curved(ty: Type) -> bool {
    matches!(ty, Type::ObjectId | Type::DateTime | Type::Timestamp)
}

fn number<const N: usize>(raw: &[u8]) -> [u8; N] {
    raw.first_chunk().copied().unwrap_or([0; N])
}

/// Up to sixteen bytes as a number, the first byte lowest.
fn packed(bytes: impl Iterator<Item = u8>) -> i128 {
    let mut all = [0; WIDE];
    for (to, b) in all.iter_mut().zip(bytes) {
        *to = b;
    }
    i128::from_le_bytes(all)
}

/// The bytes of an ObjectId that change (seconds and counter), beginning with those that change most.
const MOVING: [usize; 7] = [11, 3, 10, 2, 9, 1, 0];

impl<'a> State<'a> {
    /// The state after a value that can only repeat.
    pub(crate) fn behind(ty: Option<Type>, raw: Vec<u8>) -> State<'a> {
        State {
            ty,
            raw,
            opaque: true,
            ..State::default()
        }
    }

    /// The last value as a [`Cell`].
    pub(crate) fn cell(&self) -> Cell<'_> {
        match self.ty {
            Some(ty) => Cell::Value(ty, &self.raw),
            None => Cell::Missing,
        }
    }

    /// Begins anew with a literal.
    pub(crate) fn literal(&mut self, ty: Type, raw: &[u8]) {
        self.ty = Some(ty);
        self.raw.clear();
        self.raw.extend_from_slice(raw);
        self.words = Words::default();
        self.opaque = false;
        let mut last = 0;
        match ty {
            Type::String | Type::Code => {
                let text = raw.get(4..raw.len().saturating_sub(1)).unwrap_or_default();
                // A longer text, or one that begins with a zero byte, counts as empty.
                if text.len() <= WIDE && text.first() != Some(&0) {
                    last = packed(text.iter().rev().copied());
                }
            }
            Type::Binary => {
                let data = raw.get(5..).unwrap_or_default();
                self.opaque = data.len() > WIDE;
                last = packed(data.iter().copied());
            }
            Type::Decimal128 => last = i128::from_le_bytes(number(raw)),
            Type::ObjectId => {
                let moving = MOVING.iter().map(|i| raw.get(*i).copied().unwrap_or(0));
                last = packed(moving);
            }
            Type::DateTime | Type::Timestamp | Type::Int64 => {
                last = i64::from_le_bytes(number(raw)).into();
            }
            Type::Int32 => last = i32::from_le_bytes(number(raw)).into(),
            Type::Bool => last = raw.first().copied().unwrap_or(0).into(),
            // Each control byte converts it, by its scale.
            Type::Double => {}
            _ => self.opaque = true,
        }
        (self.base, self.last) = match is_curved(ty) {
            true => (last as i64, 0),
            false => (0, last),
        };
    }

    /// Continues with the words after a control byte.
    ///
    /// # Errors
    /// If the scale does not exist, or the last value cannot have it.
    pub(crate) fn deltas(&mut self, control: u8, words: &'a [u8]) -> Result<()> {
        self.scale = match control >> 4 {
            8 => BITS,
            n @ 9..=13 => usize::from(n) - 9,
            _ => return Err(invalid("a control byte that there is not")),
        };
        if self.ty == Some(Type::Double) {
            let last = f64::from_le_bytes(number(&self.raw));
            self.last = match SCALES.get(self.scale) {
                None => i128::from(last.to_bits() as i64),
                Some(scale) => {
                    let scaled = last * scale;
                    let whole = scaled.round();
                    if !(-EXACT..=EXACT).contains(&scaled)
                        || (whole / scale).to_bits() != last.to_bits()
                    {
                        return Err(invalid("a scale does not fit the double before it"));
                    }
                    whole as i128
                }
            };
        }
        self.words.load(words);
        Ok(())
    }

    /// Makes the next value the last one; `None` at the end of the words, false if the value is missing.
    ///
    /// # Errors
    /// If the type cannot have such a difference, or the result is not a valid value.
    pub(crate) fn next(&mut self) -> Result<Option<bool>> {
        let delta = match self.words.next()? {
            None => return Ok(None),
            Some(None) => return Ok(Some(false)),
            Some(Some(delta)) => delta,
        };
        let Some(ty) = self.ty else {
            return match delta {
                0 => Ok(Some(false)),
                _ => Err(invalid("a difference from nothing")),
            };
        };
        if delta == 0 && !is_curved(ty) {
            return Ok(Some(true));
        }
        if self.opaque {
            return Err(invalid("a difference from a value that is no number"));
        }
        let signed = (delta >> 1) as i128 ^ -((delta & 1) as i128);
        if is_wide(ty) {
            self.last = self.last.wrapping_add(signed);
            return self.wide(ty).map(|()| Some(true));
        }
        let Ok(delta) = u64::try_from(delta) else {
            return Err(invalid("a difference of more than 64 bits"));
        };
        let signed = (delta >> 1) as i64 ^ -((delta & 1) as i64);
        let sum = (self.last as i64).wrapping_add(signed);
        self.last = sum.into();
        let mut value = sum;
        if is_curved(ty) {
            self.base = self.base.wrapping_add(sum);
            value = self.base;
        }
        self.narrow(ty, value).map(|()| Some(true))
    }

    /// Writes a value of 64 bits.
    fn narrow(&mut self, ty: Type, value: i64) -> Result<()> {
        match ty {
            Type::Double => {
                let d = match SCALES.get(self.scale) {
                    None => f64::from_bits(value as u64),
                    Some(scale) => value as f64 / scale,
                };
                self.put(&d.to_le_bytes());
            }
            Type::ObjectId => {
                for (i, b) in MOVING.iter().zip(value.to_le_bytes()) {
                    if let Some(to) = self.raw.get_mut(*i) {
                        *to = b;
                    }
                }
            }
            Type::DateTime | Type::Timestamp | Type::Int64 => self.put(&value.to_le_bytes()),
            Type::Int32 => self.put(&(value as i32).to_le_bytes()),
            Type::Bool if matches!(value, 0 | 1) => self.put(&[value as u8]),
            _ => return Err(invalid("a difference whose value cannot be")),
        }
        Ok(())
    }

    /// Writes a value of 128 bits.
    fn wide(&mut self, ty: Type) -> Result<()> {
        let bytes = self.last.to_le_bytes();
        match ty {
            Type::Binary => {
                let data = self.raw.get_mut(5..).unwrap_or_default();
                for (to, b) in data.iter_mut().zip(bytes) {
                    *to = b;
                }
            }
            Type::String | Type::Code => {
                let zeros = bytes.iter().rev().take_while(|b| **b == 0).count();
                let text = bytes.get(..WIDE - zeros).unwrap_or_default();
                self.raw.clear();
                let len = (text.len() as u32 + 1).to_le_bytes();
                self.raw.extend_from_slice(&len);
                self.raw.extend(text.iter().rev());
                self.raw.push(0);
                // Fails if the text is not valid UTF-8.
                value_at(ty, &self.raw, 1)?;
            }
            _ => self.put(&bytes),
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) {
        self.raw.clear();
        self.raw.extend_from_slice(bytes);
    }
}
