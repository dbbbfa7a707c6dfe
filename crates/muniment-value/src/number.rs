//! Numbers across BSON's four numeric types: exact comparison, coercion, arithmetic with
//! MongoDB's promotion rules, and decimal128 (through the `dec` crate; BSON stores BID, `dec`
//! computes in DPD).

use crate::{Result, Value};
use std::cmp::Ordering;

/// Compares two numbers by exact value; NaN is less than every number and equal to NaN.
pub fn cmp(a: Value<'_>, b: Value<'_>) -> Ordering {
    let _ = (a, b);
    todo!()
}

/// True for a numeric zero of any type.
pub fn is_zero(v: Value<'_>) -> bool {
    let _ = v;
    todo!()
}

/// True for a NaN of either floating type.
pub fn is_nan(v: Value<'_>) -> bool {
    let _ = v;
    todo!()
}

/// The whole number that `v` is, if it is one and fits: no rounding.
pub fn to_i64_exact(v: Value<'_>) -> Option<i64> {
    let _ = v;
    todo!()
}

/// `v` as MongoDB's `safeNumberLong` coerces it: truncated, clamped to the range, NaN → 0.
/// `None` if `v` is no number.
pub fn to_i64_clamped(v: Value<'_>) -> Option<i64> {
    let _ = v;
    todo!()
}

/// `v` as a double, rounded to nearest. `None` if `v` is no number.
pub fn to_f64(v: Value<'_>) -> Option<f64> {
    let _ = v;
    todo!()
}

/// a + b as `$inc` and `$add` do it: int32 grows to int64 when it must; int64 overflow becomes
/// a double for expressions (`overflow_to_double`), else is an error.
///
/// # Errors
/// 2 BadValue on int64 overflow when `overflow_to_double` is false.
pub fn add(a: Value<'_>, b: Value<'_>, overflow_to_double: bool) -> Result<Value<'static>> {
    let _ = (a, b, overflow_to_double);
    todo!()
}

/// a − b for expressions.
pub fn sub(a: Value<'_>, b: Value<'_>) -> Result<Value<'static>> {
    let _ = (a, b);
    todo!()
}

/// a · b as `$mul` and `$multiply` do it; see [`add`].
///
/// # Errors
/// 2 BadValue on int64 overflow when `overflow_to_double` is false.
pub fn mul(a: Value<'_>, b: Value<'_>, overflow_to_double: bool) -> Result<Value<'static>> {
    let _ = (a, b, overflow_to_double);
    todo!()
}
