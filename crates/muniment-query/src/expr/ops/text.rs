//! The text forms of values, which the string and conversion operators share.
//!
//! MongoDB prints doubles in two ways: `$toString` exactly, string operators to six digits.

use super::date::Civil;
use crate::expr::{EvalContext, arena};
use muniment_value::decimal::Decimal;
use muniment_value::{Error, Result, Value};
use std::fmt::Write;

/// A double in the form of `$toString`: the shortest digits from which the same double is read.
pub(super) fn double(n: f64) -> String {
    if !n.is_finite() {
        return match n {
            n if n.is_nan() => "NaN",
            n if n > 0.0 => "Infinity",
            _ => "-Infinity",
        }
        .into();
    }
    digits(&format!("{n:e}"), 16)
}

/// A double in the form of the string operators: six significant digits.
fn six_digits(n: f64) -> String {
    if !n.is_finite() {
        return match n {
            n if n.is_nan() => "nan",
            n if n > 0.0 => "inf",
            _ => "-inf",
        }
        .into();
    }
    digits(&format!("{n:.5e}"), 6)
}

/// Formats `1.25e3` as C's `%g` does: without an exponent if it is from -4 to below `most`.
fn digits(sci: &str, most: i32) -> String {
    let (mantissa, exp) = sci.split_once('e').unwrap_or((sci, "0"));
    let exp: i32 = exp.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(m) => ("-", m),
        None => ("", mantissa),
    };
    let all: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let all = match all.trim_end_matches('0') {
        "" => "0",
        d => d,
    };
    let (head, tail) = all.split_at_checked(1).unwrap_or((all, ""));
    if !(-4..most).contains(&exp) {
        let point = if tail.is_empty() { "" } else { "." };
        let e = if exp < 0 { '-' } else { '+' };
        return format!("{sign}{head}{point}{tail}e{e}{:02}", exp.abs());
    }
    if exp < 0 {
        let zeros = "0".repeat(exp.unsigned_abs() as usize - 1);
        return format!("{sign}0.{zeros}{all}");
    }
    let whole = exp as usize + 1;
    match all.split_at_checked(whole) {
        Some((whole, "")) => format!("{sign}{whole}"),
        Some((whole, rest)) => format!("{sign}{whole}.{rest}"),
        None => format!("{sign}{all:0<whole$}"),
    }
}

/// The 24 hexadecimal digits of an ObjectId.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for b in bytes {
        let _ = write!(out, "{b:02x}");
    }
    out
}

/// The text of a value that converts to a string; `None` for types that do not.
pub(super) fn of(v: Value<'_>) -> Option<String> {
    Some(match v {
        Value::String(s) | Value::Symbol(s) => s.to_string(),
        Value::Int32(n) => n.to_string(),
        Value::Int64(n) => n.to_string(),
        Value::Double(n) => double(n),
        Value::Decimal128(b) => Decimal::from_bid(b).to_string(),
        Value::DateTime(ms) => Civil::from_millis(ms).iso(),
        _ => return None,
    })
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A value as the string operators read it: null and missing are empty, numbers and dates are their text.
///
/// # Errors
/// 16007.
pub(super) fn coerce<'a>(v: Option<Value<'a>>, ctx: &EvalContext<'a>) -> Result<&'a str> {
    match v {
        None | Some(Value::Null | Value::Undefined) => Ok(""),
        Some(Value::String(s) | Value::Symbol(s) | Value::Code(s)) => Ok(s),
        Some(Value::Double(n)) => arena::alloc_str(ctx.arena, &six_digits(n)),
        Some(Value::Timestamp { t, i }) => {
            let c = Civil::from_millis(i64::from(t) * 1000);
            let month = MONTHS
                .get(c.month as usize - 1)
                .copied()
                .unwrap_or_default();
            let text = format!(
                "{month} {:>2} {:02}:{:02}:{:02}:{i}",
                c.day, c.hour, c.minute, c.second
            );
            arena::alloc_str(ctx.arena, &text)
        }
        Some(v) => match of(v) {
            Some(text) => arena::alloc_str(ctx.arena, &text),
            None => Err(Error::location(
                16007,
                format!("can't convert from BSON type {} to String", v.type_name()),
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn doubles() {
        for (n, want) in [
            (1.0, "1"),
            (2.5, "2.5"),
            (-0.1, "-0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (5e-324, "5e-324"),
            (1234567.0, "1234567"),
            (f64::MAX, "1.7976931348623157e+308"),
            (1e15, "1000000000000000"),
            (1e16, "1e+16"),
            (1e20, "1e+20"),
            (1.5e-7, "1.5e-07"),
            (0.0001, "0.0001"),
            (123456.789, "123456.789"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
            (-0.0, "-0"),
        ] {
            assert_eq!(super::double(n), want);
        }
        for (n, want) in [
            (9_007_199_254_740_992.0, "9.0072e+15"),
            (12.5, "12.5"),
            (123_456.0, "123456"),
            (1_234_567.0, "1.23457e+06"),
            (0.0, "0"),
            (100.0, "100"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(super::six_digits(n), want);
        }
    }
}
