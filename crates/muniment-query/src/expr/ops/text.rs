//! Text of values, shared by the string and conversion operators.

use super::date::Civil;
use crate::expr::{EvalContext, arena};
use muniment_value::decimal::Decimal;
use muniment_value::{Error, Result, Value};
use std::fmt::Write;

/// A double as MongoDB converts it to a string: up to 16 significant digits, no trailing zeros.
pub(super) fn double(n: f64) -> String {
    if n.is_nan() {
        return "NaN".into();
    }
    if n.is_infinite() {
        return if n > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    if n == 0.0 {
        return if n.is_sign_negative() { "-0" } else { "0" }.into();
    }
    let sci = format!("{n:.15e}");
    let Some((digits, exp)) = sci.split_once('e') else {
        return sci;
    };
    let exp: i32 = exp.parse().unwrap_or(0);
    if !(-4..16).contains(&exp) {
        let digits = match digits.contains('.') {
            true => digits.trim_end_matches('0').trim_end_matches('.'),
            false => digits,
        };
        let sign = if exp < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exp.abs());
    }
    let fixed = format!("{n:.*}", (15 - exp).max(0) as usize);
    match fixed.contains('.') {
        true => fixed
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_string(),
        false => fixed,
    }
}

/// An ObjectId's 24 hexadecimal digits.
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
        Value::String(s) | Value::Symbol(s) | Value::Code(s) => s.to_string(),
        Value::Int32(n) => n.to_string(),
        Value::Int64(n) => n.to_string(),
        Value::Double(n) => double(n),
        Value::Decimal128(b) => Decimal::from_bid(b).to_string(),
        Value::DateTime(ms) => Civil::from_millis(ms).iso(),
        _ => return None,
    })
}

/// A value as the string operators take it: null and missing are empty, numbers and dates their
/// text.
///
/// # Errors
/// 16007.
pub(super) fn coerce<'a>(v: Option<Value<'a>>, ctx: &EvalContext<'a>) -> Result<&'a str> {
    match v {
        None | Some(Value::Null | Value::Undefined) => Ok(""),
        Some(Value::String(s) | Value::Symbol(s) | Value::Code(s)) => Ok(s),
        Some(Value::Timestamp { t, i }) => {
            arena::alloc_str(ctx.arena, &format!("Timestamp({t}, {i})"))
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
            (0.1 + 0.2, "0.3"),
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
    }
}
