//! The encoding of numbers: one order for int32, int64, double and decimal128.
//!
//! The first byte gives the sign and the size. After it comes the magnitude, which is inverted for negative
//! numbers:
//! - NaN and zero: nothing.
//! - magnitude below 1: the fraction.
//! - magnitude below 2^63: (whole part · 2 + whether there is a fraction) in the fewest big-endian bytes,
//!   whose number is in the first byte; then the fraction, if any.
//! - larger magnitude: the whole magnitude as a fraction.
//!
//! A fraction has 8 bytes: (the bits of the greatest double that is not above it) · 2 + whether it is above
//! that double. If it is, 17 more bytes order the decimals: the exponent of the first digit, and the
//! coefficient widened to 34 digits. A double needs no such tail, so it sorts right before the decimals
//! between it and the next double.

use super::decode::{Reader, take_item};
use super::{Bits, first, item};
use crate::Type;
use crate::decimal::{Decimal, floor_f64, normal};

/// The distance of the first byte from [`first::ZERO`]: only a fraction, 1…8 bytes, or too large.
const SMALL: u8 = 1;
const LARGE: u8 = 10;

const I64_END: f64 = 9_223_372_036_854_775_808.0;
const TAIL: usize = 17;
/// Added to the exponent of the first digit to make it positive.
const TAIL_BIAS: i32 = 0x4000;

/// A number that is being encoded.
struct Number {
    negative: bool,
    /// Below 2^63; 0 if `size` is SMALL or LARGE.
    whole: u64,
    size: u8,
    fraction: Option<Fraction>,
}

struct Fraction {
    /// The greatest double that is not above the fraction.
    floor: f64,
    /// Present if the fraction is above `floor`.
    tail: Option<[u8; TAIL]>,
}

impl Number {
    fn put(&self, out: &mut Vec<u8>) {
        let flip = if self.negative { 0xFF } else { 0 };
        let flip64 = if self.negative { u64::MAX } else { 0 };
        let mut buf = [0_u8; 1 + 8 + 8 + TAIL];
        let mut at = 1;
        let size = if self.whole == 0 {
            self.size
        } else {
            let w = self.whole << 1 | u64::from(self.fraction.is_some());
            let n = 8 - w.leading_zeros() as usize / 8;
            // The value is aligned to the left, so that always eight bytes can be written.
            let aligned = (w << (64 - 8 * n)) ^ flip64;
            buf[1..9].copy_from_slice(&aligned.to_be_bytes());
            at += n;
            SMALL + n as u8
        };
        buf[0] = if self.negative {
            first::ZERO - size
        } else {
            first::ZERO + size
        };
        if let Some(f) = &self.fraction {
            let n = (f.floor.to_bits() << 1 | u64::from(f.tail.is_some())) ^ flip64;
            if let Some(to) = buf.get_mut(at..at + 8) {
                to.copy_from_slice(&n.to_be_bytes());
            }
            at += 8;
            if let Some(tail) = &f.tail {
                for (to, b) in buf.iter_mut().skip(at).zip(tail) {
                    *to = b ^ flip;
                }
                at += TAIL;
            }
        }
        out.extend_from_slice(buf.get(..at).unwrap_or_default());
    }
}

/// Whether a whole number is an int32, not an int64, unless bits say otherwise.
fn default_is_int32(n: i64) -> bool {
    i32::try_from(n).is_ok()
}

#[inline]
pub(super) fn put_int(n: i64, is_int32: bool, out: &mut Vec<u8>, bits: &mut impl Bits) {
    let by_default = n != i64::MIN && default_is_int32(n) == is_int32;
    bits.item(
        if by_default {
            item::DEFAULT
        } else {
            item::INT64
        },
        &[],
    );
    if n == 0 {
        return out.push(first::ZERO);
    }
    if n == i64::MIN {
        return put_floor(-I64_END, out);
    }
    // This does the same as `Number::put` without a fraction. It is short because most keys are small
    // integers.
    let w = n.unsigned_abs() << 1;
    let len = 8 - w.leading_zeros() as usize / 8;
    let size = SMALL + len as u8;
    let (head, flip) = if n < 0 {
        (first::ZERO - size, u64::MAX)
    } else {
        (first::ZERO + size, 0)
    };
    let mut buf = [head; 9];
    buf[1..].copy_from_slice(&((w << (64 - 8 * len)) ^ flip).to_be_bytes());
    let end = out.len() + 1 + len;
    out.extend_from_slice(&buf);
    out.truncate(end);
}

pub(super) fn put_double(n: f64, out: &mut Vec<u8>, bits: &mut impl Bits) {
    if n.is_nan() {
        if n.to_bits() == f64::NAN.to_bits() {
            bits.item(item::DEFAULT, &[]);
        } else {
            bits.item(item::NAN, &n.to_le_bytes());
        }
        return out.push(first::NAN);
    }
    bits.item(
        if n == 0.0 && n.is_sign_negative() {
            item::NEGATIVE_ZERO
        } else if n.trunc() == n && n.abs() < I64_END {
            item::DOUBLE
        } else {
            item::DEFAULT
        },
        &[],
    );
    put_floor(n, out);
}

/// Encodes a double that is not NaN.
fn put_floor(n: f64, out: &mut Vec<u8>) {
    if n == 0.0 {
        return out.push(first::ZERO);
    }
    let m = n.abs();
    let large = m >= I64_END;
    let whole = if large { 0 } else { m as u64 };
    let rest = m - whole as f64; // exact: both have the same scale
    Number {
        negative: n < 0.0,
        whole,
        size: if large { LARGE } else { SMALL },
        fraction: (rest != 0.0).then_some(Fraction {
            floor: rest,
            tail: None,
        }),
    }
    .put(out);
}

pub(super) fn put_decimal(bytes: [u8; 16], out: &mut Vec<u8>, bits: &mut impl Bits) {
    bits.item(item::DECIMAL, &bytes);
    let d = Decimal::from_bid(bytes);
    let Some((negative, c, e)) = d.parts() else {
        return if d.is_nan() {
            out.push(first::NAN);
        } else if d.is_negative() {
            put_floor(f64::NEG_INFINITY, out);
        } else {
            put_floor(f64::INFINITY, out);
        };
    };
    if c == 0 {
        return out.push(first::ZERO);
    }
    // `behind` is the part of the coefficient after the point. `whole` is the whole part if it is below 2^63.
    let (whole, behind) = match 10_u128.checked_pow(e.unsigned_abs()) {
        Some(p) if e < 0 => (Some(c / p), c % p),
        Some(p) => (c.checked_mul(p), 0),
        None if e < 0 => (Some(0), c),
        None => (None, 0),
    };
    let fraction = |c: u128| {
        let (floor, above) = floor_f64(c, e);
        Fraction {
            floor,
            tail: above.then(|| tail(d)),
        }
    };
    let whole = whole.filter(|&w| w < 1 << 63);
    Number {
        negative,
        whole: whole.unwrap_or(0) as u64,
        size: if whole.is_some() { SMALL } else { LARGE },
        fraction: match whole {
            None => Some(fraction(c)),
            Some(_) if behind != 0 => Some(fraction(behind)),
            Some(_) => None,
        },
    }
    .put(out);
}

/// The bytes that order the decimals between the same two doubles.
fn tail(d: Decimal) -> [u8; TAIL] {
    let (_, c, e) = d.parts().unwrap_or_default();
    let (exponent, coefficient) = normal(c, e);
    let mut t = [0; TAIL];
    t[..2].copy_from_slice(&((exponent + TAIL_BIAS) as u16).to_be_bytes());
    t[2..].copy_from_slice(&coefficient.to_be_bytes()[1..]);
    t
}

/// Skips the bytes after the first byte `b` of a number.
#[inline]
pub(super) fn skip(r: &mut Reader<'_>, b: u8) -> Option<()> {
    let size = b.abs_diff(first::ZERO);
    let negative = b < first::ZERO;
    let has_fraction = match size {
        0 => return Some(()),
        _ if b == first::NAN => return Some(()),
        SMALL | LARGE => true,
        n => {
            let whole = r.take((n - SMALL).into())?;
            (whole.last()? ^ r.invert ^ u8::from(negative)) & 1 == 1
        }
    };
    if has_fraction {
        let f = r.take(8)?;
        if (f.last()? ^ r.invert ^ u8::from(negative)) & 1 == 1 {
            r.take(TAIL)?;
        }
    }
    Some(())
}

/// Reads the bytes after the first byte `b` of a number, and appends its BSON bytes.
pub(super) fn read(r: &mut Reader<'_>, b: u8, bits: &mut &[u8], out: &mut Vec<u8>) -> Option<Type> {
    let item = take_item(bits);
    let number = if b == first::NAN {
        None
    } else {
        Some(read_number(r, b)?)
    };
    if item == item::DECIMAL {
        let (bytes, rest) = bits.split_at_checked(16)?;
        *bits = rest;
        out.extend_from_slice(bytes);
        return Some(Type::Decimal128);
    }
    let Some(n) = number else {
        let bytes = match item {
            item::DEFAULT => f64::NAN.to_le_bytes(),
            item::NAN => {
                let (bytes, rest) = bits.split_first_chunk::<8>()?;
                *bits = rest;
                *bytes
            }
            _ => return None,
        };
        out.extend_from_slice(&bytes);
        return Some(Type::Double);
    };
    if let Some(t) = n.fraction.as_ref().and_then(|f| f.tail) {
        // Only a decimal has a tail. Without its type bits it is decoded without trailing zeros.
        out.extend_from_slice(&from_tail(n.negative, t)?.to_bid());
        return (item == item::DEFAULT).then_some(Type::Decimal128);
    }
    let whole = n.as_i64();
    let double = n.as_f64();
    match (item, whole) {
        (item::DEFAULT, Some(w)) if default_is_int32(w) => {
            out.extend_from_slice(&(w as i32).to_le_bytes());
            Some(Type::Int32)
        }
        (item::DEFAULT | item::INT64, Some(w)) => {
            out.extend_from_slice(&w.to_le_bytes());
            Some(Type::Int64)
        }
        (item::INT64, None) if double == -I64_END => {
            out.extend_from_slice(&i64::MIN.to_le_bytes());
            Some(Type::Int64)
        }
        (item::DEFAULT, None) if !n.is_double() => {
            // Whole part and fraction together need more than 53 bits, so it is a decimal, with at most 34
            // digits after the point.
            let fraction = format!("{:.34}", n.fraction?.floor);
            let digits = fraction.get(1..)?;
            let sign = if n.negative { "-" } else { "" };
            let d = Decimal::parse(&format!("{sign}{}{digits}", n.whole))?;
            out.extend_from_slice(&d.to_bid());
            Some(Type::Decimal128)
        }
        (item::DEFAULT, None) | (item::DOUBLE, Some(_)) => {
            out.extend_from_slice(&double.to_le_bytes());
            Some(Type::Double)
        }
        (item::NEGATIVE_ZERO, Some(0)) => {
            out.extend_from_slice(&(-0.0_f64).to_le_bytes());
            Some(Type::Double)
        }
        _ => None,
    }
}

impl Number {
    /// The whole number, if the number is whole and its magnitude is below 2^63.
    fn as_i64(&self) -> Option<i64> {
        if self.fraction.is_some() {
            return None;
        }
        let m = i64::try_from(self.whole).ok()?;
        Some(if self.negative { -m } else { m })
    }

    /// True if [`Number::as_f64`] is exact.
    fn is_double(&self) -> bool {
        let (sum, floor) = (
            self.as_f64().abs(),
            self.fraction.as_ref().map_or(0.0, |f| f.floor),
        );
        self.whole == 0 || sum.trunc() as u64 == self.whole && sum.fract() == floor
    }

    fn as_f64(&self) -> f64 {
        let m = self.whole as f64 + self.fraction.as_ref().map_or(0.0, |f| f.floor);
        if self.negative { -m } else { m }
    }
}

fn read_number(r: &mut Reader<'_>, b: u8) -> Option<Number> {
    let negative = b < first::ZERO;
    let size = b.abs_diff(first::ZERO);
    let flip = if negative { 0xFF } else { 0 };
    let (whole, has_fraction) = match size {
        0 => (0, false),
        SMALL | LARGE => (0, true),
        n => {
            let mut w = 0_u64;
            for b in r.take((n - SMALL).into())? {
                w = w << 8 | u64::from(b ^ flip);
            }
            if w < 2 {
                return None;
            }
            (w >> 1, w & 1 == 1)
        }
    };
    let fraction = if has_fraction {
        let n = u64::from_be_bytes(r.array()?) ^ if negative { u64::MAX } else { 0 };
        let tail = if n & 1 == 1 {
            Some(r.array::<TAIL>()?.map(|b| b ^ flip))
        } else {
            None
        };
        let floor = f64::from_bits(n >> 1);
        if floor.is_nan() || (size == LARGE) != (floor >= I64_END) {
            return None;
        }
        if size != LARGE && (floor >= 1.0 || (floor == 0.0 && tail.is_none())) {
            return None;
        }
        Some(Fraction { floor, tail })
    } else {
        None
    };
    Some(Number {
        negative,
        whole,
        size,
        fraction,
    })
}

fn from_tail(negative: bool, t: [u8; TAIL]) -> Option<Decimal> {
    let mut wide = [0; 16];
    wide[1..].copy_from_slice(&t[2..]);
    let mut c = u128::from_be_bytes(wide);
    let mut e = i32::from(u16::from_be_bytes([t[0], t[1]])) - TAIL_BIAS - 34;
    while c != 0 && c.is_multiple_of(10) {
        c /= 10;
        e += 1;
    }
    // This brings the exponent back into its range by restoring the zeros that were cut.
    while e > Decimal::MAX_EXPONENT && c < 10_u128.pow(33) {
        c *= 10;
        e -= 1;
    }
    Decimal::from_parts(negative, c, e)
}
