//! Decimal128: BSON's BID bytes, MongoDB's text form, and arithmetic.
//!
//! BSON stores IEEE 754-2008 decimal128 in the binary integer (BID) encoding; the `dec` crate computes in the
//! densely packed (DPD) one. A [`Decimal`] is the decoded form of both: sign, coefficient below 10^34,
//! exponent. Comparison is exact and needs no library.
//!
//! Sources: IEEE 754-2008 §3.5.2; the BSON Decimal128 specification (text form).

use std::cmp::Ordering;
use std::fmt;

/// The largest coefficient plus one: 34 digits.
const COEFF_END: u128 = 10_u128.pow(34);
/// This is subtracted from a biased exponent.
const BIAS: i32 = 6176;

/// A decoded decimal128.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    neg: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// coefficient · 10^exponent
    Finite(u128, i32),
    Infinity,
    Nan,
}

impl Decimal {
    /// Positive zero with exponent 0.
    pub const ZERO: Decimal = Decimal {
        neg: false,
        kind: Kind::Finite(0, 0),
    };
    /// Not a number.
    pub const NAN: Decimal = Decimal {
        neg: false,
        kind: Kind::Nan,
    };

    /// The greatest exponent; the least is −6176.
    pub const MAX_EXPONENT: i32 = 6111;

    /// A finite number; `None` if the coefficient has more than 34 digits or the exponent is out
    /// of range.
    pub fn from_parts(negative: bool, coefficient: u128, exponent: i32) -> Option<Decimal> {
        (coefficient < COEFF_END && (-BIAS..=Decimal::MAX_EXPONENT).contains(&exponent)).then_some(
            Decimal {
                neg: negative,
                kind: Kind::Finite(coefficient, exponent),
            },
        )
    }

    /// Decodes BSON's 16 bytes. A coefficient beyond 34 digits means zero, as IEEE 754 says.
    pub fn from_bid(bytes: [u8; 16]) -> Decimal {
        let x = u128::from_le_bytes(bytes);
        let neg = x >> 127 == 1;
        let comb = (x >> 122) & 0x1F;
        let kind = if comb == 0x1F {
            Kind::Nan
        } else if comb == 0x1E {
            Kind::Infinity
        } else if (x >> 125) & 3 == 3 {
            // The "large coefficient" form starts at 8·2^110 > 10^34: always non-canonical.
            Kind::Finite(0, ((x >> 111) & 0x3FFF) as i32 - BIAS)
        } else {
            let coeff = x & ((1 << 113) - 1);
            let exp = ((x >> 113) & 0x3FFF) as i32 - BIAS;
            Kind::Finite(if coeff < COEFF_END { coeff } else { 0 }, exp)
        };
        Decimal { neg, kind }
    }

    /// The canonical BID bytes.
    pub fn to_bid(self) -> [u8; 16] {
        let sign = u128::from(self.neg) << 127;
        let x = match self.kind {
            Kind::Nan => sign | (0x1F << 122),
            Kind::Infinity => sign | (0x1E << 122),
            Kind::Finite(c, e) => sign | (((e + BIAS) as u128 & 0x3FFF) << 113) | c,
        };
        x.to_le_bytes()
    }

    /// Sign (true = negative), coefficient and exponent of a finite number.
    pub fn parts(self) -> Option<(bool, u128, i32)> {
        match self.kind {
            Kind::Finite(c, e) => Some((self.neg, c, e)),
            _ => None,
        }
    }

    /// True for NaN.
    pub fn is_nan(self) -> bool {
        self.kind == Kind::Nan
    }

    /// True for either infinity.
    pub fn is_infinite(self) -> bool {
        self.kind == Kind::Infinity
    }

    /// True if neither NaN nor an infinity.
    pub fn is_finite(self) -> bool {
        matches!(self.kind, Kind::Finite(..))
    }

    /// True for a zero of either sign.
    pub fn is_zero(self) -> bool {
        matches!(self.kind, Kind::Finite(0, _))
    }

    /// True if the sign bit is set, even for −0; false for NaN.
    pub fn is_negative(self) -> bool {
        self.neg && !self.is_nan()
    }

    /// The exact decimal of `n`.
    pub fn from_i64(n: i64) -> Decimal {
        Decimal {
            neg: n < 0,
            kind: Kind::Finite(u128::from(n.unsigned_abs()), 0),
        }
    }

    /// `n` rounded to 15 significant digits, as MongoDB converts a double: 5.5 becomes
    /// 5.50000000000000.
    pub fn from_f64(n: f64) -> Decimal {
        if n.is_nan() {
            return Decimal::NAN;
        }
        if n.is_infinite() {
            return Decimal {
                neg: n < 0.0,
                kind: Kind::Infinity,
            };
        }
        if n == 0.0 {
            return Decimal {
                neg: n.is_sign_negative(),
                kind: Kind::Finite(0, 0),
            };
        }
        Decimal::parse(&format!("{n:.14e}")).unwrap_or(Decimal::NAN)
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        let m = match self.kind {
            Kind::Nan => return f64::NAN,
            Kind::Infinity => f64::INFINITY,
            Kind::Finite(c, e) => nearest_f64(c, e),
        };
        if self.neg { -m } else { m }
    }

    /// The whole number that equals this, if there is one and it fits.
    pub fn to_i64_exact(self) -> Option<i64> {
        let (n, exact) = self.to_i128_trunc()?;
        if exact { i64::try_from(n).ok() } else { None }
    }

    /// The number truncated towards zero and whether nothing was lost; `None` if it is not
    /// finite or its magnitude is 10^38 or more.
    pub fn to_i128_trunc(self) -> Option<(i128, bool)> {
        let Kind::Finite(c, e) = self.kind else {
            return None;
        };
        let (m, exact) = if c == 0 {
            (0, true)
        } else if e >= 0 {
            let p = 10_u128.checked_pow(u32::try_from(e).ok()?)?;
            (c.checked_mul(p)?, true)
        } else {
            match 10_u128.checked_pow(e.unsigned_abs()) {
                Some(p) => (c / p, c % p == 0),
                None => (0, false),
            }
        };
        let m = i128::try_from(m).ok()?;
        Some((if self.neg { -m } else { m }, exact))
    }

    /// Parses a number as MongoDB does: digits with an optional point and exponent, `Infinity`,
    /// `inf`, `NaN` in any case. Digits beyond 34 are rounded half to even; a magnitude beyond the range
    /// becomes an infinity. `None` if the text is not a number.
    pub fn parse(text: &str) -> Option<Decimal> {
        let (neg, body) = match text.as_bytes().first()? {
            b'-' => (true, text.get(1..)?),
            b'+' => (false, text.get(1..)?),
            _ => (false, text),
        };
        if body.eq_ignore_ascii_case("inf") || body.eq_ignore_ascii_case("infinity") {
            return Some(Decimal {
                neg,
                kind: Kind::Infinity,
            });
        }
        if body.eq_ignore_ascii_case("nan") {
            return Some(Decimal::NAN);
        }
        // The library would also read "NaN12" and "sNaN", which MongoDB does not accept.
        if !body
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
        {
            return None;
        }
        let d = dec::Context::<dec::Decimal128>::default()
            .parse(text)
            .ok()?;
        Some(Decimal::from_dec(d))
    }

    fn from_dec(d: dec::Decimal128) -> Decimal {
        let kind = if d.is_nan() {
            Kind::Nan
        } else if d.is_infinite() {
            Kind::Infinity
        } else {
            Kind::Finite(d.coefficient().unsigned_abs(), d.exponent())
        };
        Decimal {
            neg: d.is_signed() && kind != Kind::Nan,
            kind,
        }
    }

    fn to_dec(self) -> dec::Decimal128 {
        let sign = if self.neg { "-" } else { "" };
        let text = match self.kind {
            Kind::Nan => "NaN".to_string(),
            Kind::Infinity => format!("{sign}Infinity"),
            Kind::Finite(c, e) => format!("{sign}{c}E{e}"),
        };
        dec::Context::<dec::Decimal128>::default()
            .parse(text)
            .unwrap_or(dec::Decimal128::NAN)
    }

    fn with(
        self,
        other: Decimal,
        op: impl FnOnce(
            &mut dec::Context<dec::Decimal128>,
            dec::Decimal128,
            dec::Decimal128,
        ) -> dec::Decimal128,
    ) -> Decimal {
        // A NaN stays as it is, with its sign; of two NaNs the first one is returned.
        if self.is_nan() {
            return self;
        }
        if other.is_nan() {
            return other;
        }
        let mut cx = dec::Context::<dec::Decimal128>::default();
        Decimal::from_dec(op(&mut cx, self.to_dec(), other.to_dec()))
    }

    /// a + b, rounded half to even to 34 digits, as for the other operations.
    #[allow(clippy::should_implement_trait)] // operations that round are called by name
    pub fn add(self, other: Decimal) -> Decimal {
        self.with(other, |cx, a, b| cx.add(a, b))
    }

    /// a − b.
    #[allow(clippy::should_implement_trait)]
    pub fn sub(self, other: Decimal) -> Decimal {
        self.with(other, |cx, a, b| cx.sub(a, b))
    }

    /// a · b.
    #[allow(clippy::should_implement_trait)]
    pub fn mul(self, other: Decimal) -> Decimal {
        self.with(other, |cx, a, b| cx.mul(a, b))
    }

    /// a ÷ b; a zero divisor gives an infinity or NaN.
    #[allow(clippy::should_implement_trait)]
    pub fn div(self, other: Decimal) -> Decimal {
        self.with(other, |cx, a, b| cx.div(a, b))
    }

    /// The exact remainder of a ÷ b, with a's sign. NaN for a zero divisor and for an infinite dividend.
    #[allow(clippy::should_implement_trait)]
    pub fn rem(self, other: Decimal) -> Decimal {
        let (Kind::Finite(c, e), Kind::Finite(d, f)) = (self.kind, other.kind) else {
            return match other.kind {
                Kind::Infinity if self.is_finite() => self,
                _ => Decimal::NAN,
            };
        };
        if d == 0 {
            return Decimal::NAN;
        }
        // Both numbers are multiples of 10^min(e, f). Coefficients have at most 34 digits, so ten times a
        // remainder still fits.
        let rest = if e >= f {
            (0..e - f).fold(c % d, |r, _| r * 10 % d)
        } else {
            let wide = 10_u128
                .checked_pow((f - e).unsigned_abs())
                .and_then(|p| d.checked_mul(p));
            wide.map_or(c, |d| c % d)
        };
        Decimal {
            neg: self.neg,
            kind: Kind::Finite(rest, e.min(f)),
        }
    }

    /// Computes a function with arbitrary precision, rounded to 34 digits.
    fn wide(
        self,
        f: impl FnOnce(&mut dec::Context<dec::Decimal<12>>, &mut dec::Decimal<12>),
    ) -> Decimal {
        let mut cx = dec::Context::<dec::Decimal<12>>::default();
        // decNumber's functions require these limits.
        let limits = cx
            .set_precision(34)
            .is_ok_and(|()| cx.set_max_exponent(999_999).is_ok())
            && cx.set_min_exponent(-999_999).is_ok();
        let Some(mut n) = cx.parse(self.to_dec().to_string()).ok().filter(|_| limits) else {
            return Decimal::NAN;
        };
        f(&mut cx, &mut n);
        Decimal::parse(&n.to_string()).unwrap_or(Decimal::NAN)
    }

    /// e to the power of a.
    pub fn exp(self) -> Decimal {
        self.wide(|cx, n| cx.exp(n)).whole_plain()
    }

    /// The natural logarithm; NaN for a negative number.
    pub fn ln(self) -> Decimal {
        self.wide(|cx, n| cx.ln(n)).whole_plain()
    }

    /// The logarithm to base 10; NaN for a negative number.
    pub fn log10(self) -> Decimal {
        self.wide(|cx, n| cx.log10(n)).whole_plain()
    }

    /// A whole number without zeros after the point; other numbers are returned as they are.
    fn whole_plain(self) -> Decimal {
        match self.kind {
            Kind::Finite(c, e) if e < 0 => match 10_u128.checked_pow(e.unsigned_abs()) {
                Some(p) if c != 0 && c % p == 0 => Decimal {
                    kind: Kind::Finite(c / p, 0),
                    ..self
                },
                _ => self,
            },
            _ => self,
        }
    }

    /// The number with as many zeros after its last digit as `most` digits after the point and 34 digits
    /// altogether allow.
    #[must_use]
    pub fn padded(self, most: i32) -> Decimal {
        let Kind::Finite(mut c, mut e) = self.kind else {
            return self;
        };
        while c != 0 && e > -most && e > -BIAS && c * 10 < COEFF_END {
            c *= 10;
            e -= 1;
        }
        Decimal {
            kind: Kind::Finite(c, e),
            ..self
        }
    }

    /// The square root; NaN for a negative number.
    pub fn sqrt(self) -> Decimal {
        self.wide(|cx, n| cx.sqrt(n))
    }

    /// a to the power of b, with 34 digits. A result of zero is the smallest zero, as in MongoDB's library.
    pub fn pow(self, b: Decimal) -> Decimal {
        let power = self.wide(|cx, n| match cx.parse(b.to_dec().to_string()) {
            Ok(b) => cx.pow(n, &b),
            Err(_) => *n = dec::Decimal::nan(),
        });
        match power.kind {
            Kind::Finite(0, _) => Decimal {
                neg: false,
                kind: Kind::Finite(0, -BIAS),
            },
            _ if b.is_zero() => power,
            _ => power.padded(i32::MAX),
        }
    }

    /// The exact value of a double, to 34 digits: 0.29 is a little less than its text. If fewer digits
    /// suffice, there are no zeros after the point.
    pub fn from_f64_exact(n: f64) -> Decimal {
        if !n.is_finite() {
            return Decimal::from_f64(n);
        }
        let mut d = Decimal::parse(&format!("{n:.33e}")).unwrap_or(Decimal::NAN);
        if let Kind::Finite(c, e) = &mut d.kind {
            if *c == 0 {
                *e = 0;
            }
            while *e < 0 && *c % 10 == 0 {
                *c /= 10;
                *e += 1;
            }
        }
        d
    }

    /// −a.
    #[must_use]
    pub fn negated(self) -> Decimal {
        Decimal {
            neg: !self.neg && !self.is_nan(),
            ..self
        }
    }

    /// |a|.
    #[must_use]
    pub fn abs(self) -> Decimal {
        Decimal { neg: false, ..self }
    }

    /// Rounded to `places` digits after the point (before it, if negative) by `mode`.
    #[must_use]
    pub fn round_to(self, places: i32, mode: Round) -> Decimal {
        let Kind::Finite(c, e) = self.kind else {
            return self;
        };
        let cut = (-places).saturating_sub(e);
        if cut <= 0 {
            return self;
        }
        let (q, r, half) = match 10_u128.checked_pow(cut.unsigned_abs()) {
            Some(p) => (c / p, c % p, (c % p).cmp(&(p - c % p))),
            None => (0, c, Ordering::Less),
        };
        let up = r != 0
            && match mode {
                Round::Truncate => false,
                Round::Floor => self.neg,
                Round::Ceiling => !self.neg,
                Round::HalfEven => {
                    half == Ordering::Greater || half == Ordering::Equal && q % 2 == 1
                }
            };
        let (c, e) = (
            q + u128::from(up),
            (-places).clamp(-BIAS, Decimal::MAX_EXPONENT),
        );
        Decimal {
            neg: self.neg,
            kind: Kind::Finite(c, e),
        }
    }

    /// Compares by value: NaN is least and equal to itself; zeros are equal, whatever their
    /// sign and exponent.
    pub fn cmp_value(self, other: Decimal) -> Ordering {
        self.rank().cmp(&other.rank()).then_with(|| {
            let (Kind::Finite(a, ea), Kind::Finite(b, eb)) = (self.kind, other.kind) else {
                return Ordering::Equal;
            };
            // Equal ranks: both are zero or both have the same sign.
            let o = normal(a, ea).cmp(&normal(b, eb));
            if self.neg { o.reverse() } else { o }
        })
    }

    /// Compares with a double by exact value.
    pub fn cmp_f64(self, n: f64) -> Ordering {
        let rank = if n.is_nan() {
            -3
        } else if n.is_infinite() {
            if n < 0.0 { -2 } else { 2 }
        } else if n == 0.0 {
            0
        } else if n < 0.0 {
            -1
        } else {
            1
        };
        self.rank().cmp(&rank).then_with(|| {
            let Kind::Finite(c, e) = self.kind else {
                return Ordering::Equal;
            };
            let o = cmp_magnitude(c, e, n.abs());
            if self.neg { o.reverse() } else { o }
        })
    }

    fn rank(self) -> i8 {
        match self.kind {
            Kind::Nan => -3,
            Kind::Finite(0, _) => 0,
            Kind::Infinity => 2 * (1 - 2 * i8::from(self.neg)),
            Kind::Finite(..) => 1 - 2 * i8::from(self.neg),
        }
    }
}

/// How [`Decimal::round_to`] rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// Towards zero.
    Truncate,
    /// Towards −∞.
    Floor,
    /// Towards +∞.
    Ceiling,
    /// To nearest, ties to the even digit.
    HalfEven,
}

/// MongoDB's text form: plain if the exponent is not positive and the number is not below 10^-6, otherwise
/// scientific.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.neg && !self.is_nan() {
            f.write_str("-")?;
        }
        let (c, e) = match self.kind {
            Kind::Nan => return f.write_str("NaN"),
            Kind::Infinity => return f.write_str("Infinity"),
            Kind::Finite(c, e) => (c, e),
        };
        let digits = c.to_string();
        let adjusted = e + digits.len() as i32 - 1;
        if e <= 0 && adjusted >= -6 {
            let after = e.unsigned_abs() as usize;
            if after == 0 {
                return f.write_str(&digits);
            }
            if after >= digits.len() {
                return write!(f, "0.{}{digits}", "0".repeat(after - digits.len()));
            }
            let (whole, fraction) = digits.split_at(digits.len() - after);
            return write!(f, "{whole}.{fraction}");
        }
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        write!(f, "{first}{point}{rest}E{adjusted:+}")
    }
}

/// A finite magnitude in a form that compares as a tuple: the exponent of the first digit, then
/// the coefficient widened to 34 digits. Zero is least.
pub(crate) fn normal(c: u128, e: i32) -> (i32, u128) {
    if c == 0 {
        return (i32::MIN, 0);
    }
    let digits = c.ilog10() as i32 + 1;
    let widen = 10_u128.pow((34 - digits).max(0).unsigned_abs());
    (e + digits, c.saturating_mul(widen))
}

/// The double nearest to c·10^e (half to even); an infinity beyond the range.
fn nearest_f64(c: u128, e: i32) -> f64 {
    const POW: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
        1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
    ];
    // Both operands are exact doubles, so this single operation rounds correctly.
    if c < 1 << 53
        && let Some(p) = POW.get(e.unsigned_abs() as usize)
    {
        return if e < 0 { c as f64 / p } else { c as f64 * p };
    }
    format!("{c}e{e}").parse().unwrap_or(f64::NAN)
}

/// The greatest double that is not above c·10^e, and whether it is less. The double is at most `f64::MAX`.
pub(crate) fn floor_f64(c: u128, e: i32) -> (f64, bool) {
    let near = nearest_f64(c, e);
    if near.is_infinite() {
        return (f64::MAX, true);
    }
    match cmp_magnitude(c, e, near) {
        Ordering::Less => (near.next_down(), true),
        Ordering::Equal => (near, false),
        Ordering::Greater => (near, true),
    }
}

/// Compares c·10^e with a finite `n` ≥ 0, exactly.
pub(crate) fn cmp_magnitude(c: u128, e: i32, n: f64) -> Ordering {
    if c == 0 || n == 0.0 {
        return c.cmp(&u128::from(n != 0.0));
    }
    // The magnitudes of doubles lie within 4.9e-324 … 1.8e308, which bounds the arithmetic below.
    let adjusted = e + c.ilog10() as i32;
    if adjusted > 309 {
        return Ordering::Greater;
    }
    if adjusted < -325 {
        return Ordering::Less;
    }
    let bits = n.to_bits();
    let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52) as i32);
    let (m, b) = match exponent {
        0 => (fraction, -1074),
        x => (fraction | 1 << 52, x - 1075),
    };
    // c·10^e ? m·2^b  ⇔  c·5^e ? m·2^(b-e)
    let five = 5_u128.checked_pow(e.unsigned_abs());
    let m = u128::from(m);
    let (left, right) = if e >= 0 {
        (five.and_then(|f| c.checked_mul(f)), Some(m))
    } else {
        (Some(c), five.and_then(|f| m.checked_mul(f)))
    };
    match (left, right) {
        (Some(l), Some(r)) => cmp_shifted(l, r, b - e),
        _ => {
            let (mut l, mut r) = (Big::new(c), Big::new(m));
            let side = if e >= 0 { &mut l } else { &mut r };
            side.mul_pow5(e.unsigned_abs());
            match b - e {
                s @ 0.. => r.shift_left(s.unsigned_abs()),
                s => l.shift_left(s.unsigned_abs()),
            }
            l.cmp(&r)
        }
    }
}

/// Compares l with r·2^s; both are positive.
fn cmp_shifted(l: u128, r: u128, s: i32) -> Ordering {
    let length = |n: u128| 128 - n.leading_zeros() as i32;
    length(l).cmp(&(length(r) + s)).then_with(|| {
        // Equal lengths, so the shifts are below 128 bits and lose only zeros or a tail.
        let (a, b, n) = if s >= 0 { (l, r, s) } else { (r, l, -s) };
        let n = n.unsigned_abs();
        let high = a.checked_shr(n).unwrap_or(0);
        let tail = a != high.checked_shl(n).unwrap_or(0);
        let o = high.cmp(&b).then(if tail {
            Ordering::Greater
        } else {
            Ordering::Equal
        });
        if s >= 0 { o } else { o.reverse() }
    })
}

/// A large whole number below 2^2300, with just the operations that [`cmp_magnitude`] needs.
struct Big(Vec<u32>);

impl Big {
    fn new(n: u128) -> Big {
        let mut b = Big((0..4).map(|i| (n >> (32 * i)) as u32).collect());
        b.trim();
        b
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn mul_pow5(&mut self, mut power: u32) {
        while power > 0 {
            let step = power.min(13);
            let by = 5_u64.pow(step);
            let mut carry = 0;
            for limb in &mut self.0 {
                let x = u64::from(*limb) * by + carry;
                *limb = x as u32;
                carry = x >> 32;
            }
            self.0.push(carry as u32);
            power -= step;
        }
        self.trim();
    }

    fn shift_left(&mut self, by: u32) {
        let mut limbs = vec![0; by as usize / 32];
        let mut carry = 0;
        for limb in &self.0 {
            let x = u64::from(*limb) << (by % 32) | carry;
            limbs.push(x as u32);
            carry = x >> 32;
        }
        limbs.push(carry as u32);
        self.0 = limbs;
        self.trim();
    }

    fn cmp(&self, other: &Big) -> Ordering {
        let lengths = self.0.len().cmp(&other.0.len());
        lengths.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn dec(s: &str) -> Decimal {
        Decimal::parse(s).unwrap_or_else(|| panic!("{s}"))
    }

    #[test]
    fn text_goes_in_and_out() {
        for s in [
            "0",
            "-0",
            "1",
            "0.1",
            "1.10",
            "0.000001",
            "1E-7",
            "1E+3",
            "1.23E+10",
            "Infinity",
            "-Infinity",
            "NaN",
            "0E-6176",
            "0E+6111",
            "9.999999999999999999999999999999999E+6144",
            "0.00000",
            "-1234.5678",
            "1.0E-6",
        ] {
            let want = if s == "1.0E-6" { "0.0000010" } else { s };
            assert_eq!(dec(s).to_string(), want);
            let there = dec(s);
            assert_eq!(Decimal::from_bid(there.to_bid()).to_string(), want);
        }
        for s in [
            "", "-", "1e", "sNaN", "NaN1", "0x10", " 1", "1 ", "1.2.3", "--1", "e5", "\0",
        ] {
            assert!(Decimal::parse(s).is_none(), "{s}");
        }
    }

    #[test]
    fn bid_bytes_are_the_specifications() {
        // BSON corpus: 1 is 0x3040…01, 0.1 is 0x303E…01.
        let mut one = [0; 16];
        one[0] = 1;
        one[14] = 0x40;
        one[15] = 0x30;
        assert_eq!(dec("1").to_bid(), one);
        one[14] = 0x3E;
        assert_eq!(dec("0.1").to_bid(), one);
        // Non-canonical coefficients are zero.
        let mut big = [0xFF; 16];
        big[15] = 0x6C;
        assert!(Decimal::from_bid(big).is_zero());
    }

    #[test]
    fn doubles_compare_exactly() {
        assert_eq!(dec("0.1").cmp_f64(0.1), Ordering::Less);
        assert_eq!(
            dec("0.1000000000000000055511151231257827").cmp_f64(0.1),
            Ordering::Less
        );
        assert_eq!(dec("0.5").cmp_f64(0.5), Ordering::Equal);
        assert_eq!(dec("1E+308").cmp_f64(1e308), Ordering::Less);
        assert_eq!(dec("1E+400").cmp_f64(f64::MAX), Ordering::Greater);
        assert_eq!(dec("1E+400").cmp_f64(f64::INFINITY), Ordering::Less);
        assert_eq!(dec("1E-400").cmp_f64(5e-324), Ordering::Less);
        assert_eq!(dec("-1E-400").cmp_f64(0.0), Ordering::Less);
        assert_eq!(dec("5E-324").cmp_f64(5e-324), Ordering::Greater);
        assert_eq!(dec("-0").cmp_f64(0.0), Ordering::Equal);
        assert_eq!(
            dec("9007199254740993").cmp_f64(9007199254740992.0),
            Ordering::Greater
        );
        assert_eq!(dec("NaN").cmp_f64(f64::NAN), Ordering::Equal);
        assert_eq!(dec("NaN").cmp_f64(f64::NEG_INFINITY), Ordering::Less);
    }

    #[test]
    fn remainders() {
        let d = |s: &str| Decimal::parse(s).unwrap();
        for (a, b, want) in [
            ("7.5", "2", "1.5"),
            ("-7.5", "2", "-1.5"),
            ("7", "0.30", "0.10"),
            ("1E6000", "7", "1"),
            ("-9.999999999999999999999999999999999E6144", "3", "-0"),
            ("1", "1E6000", "1"),
            ("1", "Infinity", "1"),
            ("1", "0", "NaN"),
            ("Infinity", "2", "NaN"),
        ] {
            assert_eq!(d(a).rem(d(b)).to_string(), want, "{a} {b}");
        }
    }

    #[test]
    fn functions() {
        let d = |s: &str| Decimal::parse(s).unwrap();
        for (got, want) in [
            (d("1").exp(), "2.718281828459045235360287471352662"),
            (d("10").ln(), "2.302585092994045684017991454684364"),
            (d("1000").log10(), "3"),
            (d("2").sqrt(), "1.414213562373095048801688724209698"),
            (d("2").pow(d("10")), "1024.000000000000000000000000000000"),
            (d("2").pow(d("0.5")), "1.414213562373095048801688724209698"),
            (d("-1").ln(), "NaN"),
            (d("Infinity").sqrt(), "Infinity"),
            (d("1E6000").exp(), "Infinity"),
            (d("1E6000").pow(d("1E6000")), "Infinity"),
            (
                d("9.999999999999999999999999999999999E6144").ln(),
                "14149.38539644841072829055748903542",
            ),
        ] {
            assert_eq!(got.to_string(), want);
        }
    }

    #[test]
    fn arithmetic_and_rounding() {
        assert_eq!(dec("0.1").add(dec("0.2")).to_string(), "0.3");
        assert_eq!(
            dec("1").div(dec("3")).to_string(),
            format!("0.{}", "3".repeat(34))
        );
        assert_eq!(dec("1").div(dec("0")).to_string(), "Infinity");
        assert_eq!(dec("-7").rem(dec("3")).to_string(), "-1");
        assert_eq!(Decimal::from_f64(5.5).to_string(), "5.50000000000000");
        assert_eq!(Decimal::from_f64(0.1).to_string(), "0.100000000000000");
        assert_eq!(dec("2.5").round_to(0, Round::HalfEven).to_string(), "2");
        assert_eq!(dec("-2.5").round_to(0, Round::Floor).to_string(), "-3");
        assert_eq!(
            dec("1234").round_to(-2, Round::Truncate).to_string(),
            "1.2E+3"
        );
        assert_eq!(dec("12.5").to_i64_exact(), None);
        assert_eq!(dec("12.0").to_i64_exact(), Some(12));
    }
}
