//! Reading numbers from text, and whole numbers from any type, as `$convert` does.

use muniment_value::decimal::Decimal;
use muniment_value::{Result, Value, number};

/// The digits of a decimal128.
const DIGITS: usize = 34;

/// The whole number for int32 and int64; `None` for types that do not convert.
///
/// # Errors
/// 241 if the value is not a whole number, or does not fit an int64.
pub(super) fn whole(v: Value<'_>) -> Result<Option<i64>> {
    match v {
        Value::Bool(b) => Ok(Some(i64::from(b))),
        Value::String(s) => {
            let digits = s.strip_prefix(['-', '+']).unwrap_or(s);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                let why = match digits.bytes().next() {
                    None => "No digits",
                    Some(b) if b.is_ascii_digit() => "Did not consume whole string.",
                    _ => "Did not consume any digits",
                };
                return Err(super::unparsable("number", s, why));
            }
            s.parse()
                .map(Some)
                .map_err(|_| super::unparsable("number", s, "Overflow"))
        }
        Value::Int32(_) | Value::Int64(_) => Ok(number::to_i64_exact(v)),
        v if v.is_number() => {
            if number::is_nan(v) {
                return Err(super::failure(
                    "Attempt to convert NaN value to integer type",
                ));
            }
            if number::is_infinite(v) {
                return Err(super::failure(
                    "Attempt to convert infinity value to integer type",
                ));
            }
            let cut = match v {
                Value::Double(n) => (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0)
                    .contains(&n)
                    .then_some(n as i64),
                _ => number::to_decimal(v)
                    .and_then(Decimal::to_i128_trunc)
                    .and_then(|(n, _)| i64::try_from(n).ok()),
            };
            cut.map(Some).ok_or_else(|| super::overflow(v))
        }
        _ => Ok(None),
    }
}

/// A double: decimal, hexadecimal (`0x1.8p3`), infinity or NaN.
///
/// # Errors
/// 241 for any other text, and for a number that is too large or too small for a double.
pub(super) fn double(s: &str) -> Result<f64> {
    let unparsable = |why| Err(super::unparsable("number", s, why));
    if s.bytes().next().is_none_or(|b| b.is_ascii_whitespace()) {
        return unparsable("Did not consume whole string.");
    }
    let body = s.strip_prefix(['-', '+']).unwrap_or(s);
    let (n, zero) = match body.strip_prefix("0x").or_else(|| body.strip_prefix("0X")) {
        Some(digits) => match hexadecimal(digits) {
            Some((n, zero)) if s.starts_with('-') => (-n, zero),
            Some(n) => n,
            None => return unparsable("Did not consume whole string."),
        },
        None => match s.parse::<f64>() {
            Ok(n) => (n, !has_digits(s)),
            Err(_) => return unparsable("Did not consume whole string."),
        },
    };
    if (n.is_infinite() && s.bytes().any(|b| b.is_ascii_digit())) || (n == 0.0 && !zero) {
        return unparsable("Out of range");
    }
    Ok(n)
}

/// True if there is a digit other than 0 before the exponent.
fn has_digits(s: &str) -> bool {
    s.split(['e', 'E'])
        .next()
        .is_some_and(|m| m.bytes().any(|b| matches!(b, b'1'..=b'9')))
}

/// A hexadecimal floating point number after its `0x`, and whether all its digits are 0.
fn hexadecimal(s: &str) -> Option<(f64, bool)> {
    let (digits, exponent) = match s.find(['p', 'P']) {
        Some(at) => (s.get(..at)?, s.get(at + 1..)?),
        None => (s, "0"),
    };
    let (head, tail) = digits.split_once('.').unwrap_or((digits, ""));
    if head.is_empty() && tail.is_empty() {
        return None;
    }
    let negative = exponent.starts_with('-');
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if exponent.is_empty() || !exponent.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let exponent: i64 = exponent.parse().map_or(1 << 40, |e: i64| e.min(1 << 40));
    let mut exponent = if negative { -exponent } else { exponent };
    // There are 60 bits, and one sticky bit for the rest, so that the conversion rounds only once.
    let mut bits = 0_u64;
    let whole = head.chars().count();
    for (i, c) in head.chars().chain(tail.chars()).enumerate() {
        let digit = u64::from(c.to_digit(16)?);
        let behind = i >= whole;
        if bits >> 56 == 0 {
            bits = bits << 4 | digit;
            exponent -= if behind { 4 } else { 0 };
        } else {
            bits |= u64::from(digit != 0);
            exponent += if behind { 0 } else { 4 };
        }
    }
    if bits == 0 {
        return Some((0.0, true));
    }
    // This takes two steps, because one power of two may be out of range even if the number is not.
    let first = exponent.clamp(-1000, 1000);
    let second = (exponent - first).clamp(-1000, 1000);
    let n = bits as f64 * 2.0_f64.powi(first as i32) * 2.0_f64.powi(second as i32);
    Some((n, false))
}

/// A decimal128. Digits beyond 34 are cut off, not rounded.
///
/// # Errors
/// 241 if the text is not a number, or the number is out of range.
pub(super) fn decimal(s: &str) -> Result<Value<'static>> {
    if s.eq_ignore_ascii_case("-nan") {
        let mut bytes = Decimal::NAN.to_bid();
        if let Some(last) = bytes.last_mut() {
            *last |= 0x80;
        }
        return Ok(Value::Decimal128(bytes));
    }
    let cut = cut(s);
    let s = cut.as_deref().unwrap_or(s);
    match Decimal::parse(s) {
        None => Err(super::unparsable(
            "number",
            s,
            "Failed to parse string to decimal",
        )),
        // The number was out of range if its digits have become zero or infinity.
        Some(d)
            if (d.is_infinite() && s.bytes().any(|b| b.is_ascii_digit()))
                || (d.is_zero() && has_digits(s)) =>
        {
            Err(super::unparsable(
                "number",
                s,
                "Conversion from string to decimal would overflow",
            ))
        }
        Some(d) => Ok(Value::Decimal128(d.to_bid())),
    }
}

/// The text with all digits after the first 34 replaced by 0; `None` if there are no more.
fn cut(s: &str) -> Option<String> {
    let mantissa = s.split(['e', 'E']).next()?.len();
    if mantissa <= DIGITS {
        return None;
    }
    let mut significant = 0;
    let out = s.char_indices().map(|(i, c)| match c {
        '1'..='9' | '0' if i < mantissa && (c != '0' || significant > 0) => {
            significant += 1;
            if significant > DIGITS { '0' } else { c }
        }
        c => c,
    });
    Some(out.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn doubles() {
        for (s, want) in [
            ("0x0p0", 0.0),
            ("0X1P0", 1.0),
            ("+0x1.8p1", 3.0),
            ("-0xffp-1", -127.5),
            ("0x.8", 0.5),
            ("0x1p-1074", 5e-324),
            ("0x1p1023", 8.98846567431158e307),
            ("0x10000000000000000000", 75_557_863_725_914_323_419_136.0),
            ("1e10", 1e10),
            (".5", 0.5),
            ("0e-400", 0.0),
        ] {
            assert_eq!(double(s).unwrap(), want, "{s}");
        }
        assert_eq!(double("inf").unwrap(), f64::INFINITY);
        for s in [
            "",
            " 1",
            "1 ",
            "0x",
            "0xp0",
            "0x.p0",
            "0x1p",
            "0x1p+",
            "0xg",
            "1e309",
            "1e-400",
            "0x1p2000",
            "0x1p-2000",
            "x",
            "0x1p99999999999999999999",
        ] {
            assert_eq!(double(s).unwrap_err().code().0, 241, "{s}");
        }
    }

    #[test]
    fn decimals_are_cut() {
        let text = |s: &str| match decimal(s).unwrap() {
            Value::Decimal128(b) => Decimal::from_bid(b).to_string(),
            v => panic!("{v:?}"),
        };
        assert_eq!(
            text("1.00000000000000000000000000000000099999"),
            "1.000000000000000000000000000000000"
        );
        assert_eq!(
            text("12345678901234567890123456789012346"),
            "1.234567890123456789012345678901234E+34"
        );
        assert_eq!(text("0000000000000000000000000000000000000.5"), "0.5");
        assert_eq!(text("-Infinity"), "-Infinity");
    }
}
