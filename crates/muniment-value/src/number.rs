//! Numbers across BSON's four numeric types: exact comparison, coercion, arithmetic with
//! MongoDB's promotion rules.
//!
//! The result of an operation is a decimal if an operand is one, otherwise a double, an int64 or an int32 by
//! the same rule. An int32 result that does not fit becomes an int64.

use crate::decimal::{Decimal, Round};
use crate::{Error, Result, Value};
use std::cmp::Ordering;

/// 2^63 as a double: the first whole number above every int64.
const I64_END: f64 = 9_223_372_036_854_775_808.0;

/// Compares two numbers by exact value; NaN is less than every number and equal to NaN.
/// Other values are equal to each other and less than all numbers.
#[inline]
pub fn cmp(a: Value<'_>, b: Value<'_>) -> Ordering {
    match (a, b) {
        (Value::Int32(x), Value::Int32(y)) => x.cmp(&y),
        (Value::Int64(x), Value::Int64(y)) => x.cmp(&y),
        (Value::Int32(x), Value::Int64(y)) => i64::from(x).cmp(&y),
        (Value::Int64(x), Value::Int32(y)) => x.cmp(&i64::from(y)),
        (Value::Double(x), Value::Double(y)) => cmp_f64(x, y),
        (Value::Int32(x), Value::Double(y)) => cmp_f64(f64::from(x), y),
        (Value::Double(x), Value::Int32(y)) => cmp_f64(x, f64::from(y)),
        (Value::Int64(x), Value::Double(y)) => cmp_i64_f64(x, y),
        (Value::Double(x), Value::Int64(y)) => cmp_i64_f64(y, x).reverse(),
        _ => cmp_slow(a, b),
    }
}

fn cmp_slow(a: Value<'_>, b: Value<'_>) -> Ordering {
    match (a, b) {
        (Value::Decimal128(x), Value::Double(y)) => Decimal::from_bid(x).cmp_f64(y),
        (Value::Double(x), Value::Decimal128(y)) => Decimal::from_bid(y).cmp_f64(x).reverse(),
        _ => match (to_decimal(a), to_decimal(b)) {
            (Some(x), Some(y)) => x.cmp_value(y),
            (x, y) => x.is_some().cmp(&y.is_some()),
        },
    }
}

#[inline]
fn cmp_f64(x: f64, y: f64) -> Ordering {
    x.partial_cmp(&y)
        .unwrap_or_else(|| y.is_nan().cmp(&x.is_nan()))
}

fn cmp_i64_f64(x: i64, y: f64) -> Ordering {
    if y.is_nan() || y < -I64_END {
        Ordering::Greater
    } else if y >= I64_END {
        Ordering::Less
    } else {
        let whole = y.trunc();
        x.cmp(&(whole as i64)).then_with(|| cmp_f64(whole, y))
    }
}

/// True for a numeric zero of any type.
pub fn is_zero(v: Value<'_>) -> bool {
    match v {
        Value::Int32(n) => n == 0,
        Value::Int64(n) => n == 0,
        Value::Double(n) => n == 0.0,
        Value::Decimal128(b) => Decimal::from_bid(b).is_zero(),
        _ => false,
    }
}

/// True for a NaN of either floating type.
pub fn is_nan(v: Value<'_>) -> bool {
    match v {
        Value::Double(n) => n.is_nan(),
        Value::Decimal128(b) => Decimal::from_bid(b).is_nan(),
        _ => false,
    }
}

/// True for an infinity of either floating type.
pub fn is_infinite(v: Value<'_>) -> bool {
    match v {
        Value::Double(n) => n.is_infinite(),
        Value::Decimal128(b) => Decimal::from_bid(b).is_infinite(),
        _ => false,
    }
}

/// True for a number below zero (not for −0 or NaN).
pub fn is_negative(v: Value<'_>) -> bool {
    match v {
        Value::Int32(n) => n < 0,
        Value::Int64(n) => n < 0,
        Value::Double(n) => n < 0.0,
        Value::Decimal128(b) => {
            let d = Decimal::from_bid(b);
            d.is_negative() && !d.is_zero() && !d.is_nan()
        }
        _ => false,
    }
}

/// The whole number that equals `v`, if there is one and it fits. Nothing is rounded.
pub fn to_i64_exact(v: Value<'_>) -> Option<i64> {
    match v {
        Value::Int32(n) => Some(i64::from(n)),
        Value::Int64(n) => Some(n),
        Value::Double(n) => {
            (n.trunc() == n && (-I64_END..I64_END).contains(&n)).then_some(n as i64)
        }
        Value::Decimal128(b) => Decimal::from_bid(b).to_i64_exact(),
        _ => None,
    }
}

/// Coerces `v` as MongoDB's `safeNumberLong` does: a double is truncated, a decimal rounded half to even, the
/// result clamped to the range, and NaN becomes 0. `None` if `v` is not a number.
pub fn to_i64_clamped(v: Value<'_>) -> Option<i64> {
    Some(match v {
        Value::Int32(n) => i64::from(n),
        Value::Int64(n) => n,
        Value::Double(n) => n as i64, // `as` truncates, clamps and turns NaN into 0
        Value::Decimal128(b) => {
            let d = Decimal::from_bid(b).round_to(0, Round::HalfEven);
            match d.to_i128_trunc() {
                Some((n, _)) => n.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
                None if d.is_nan() => 0,
                None if d.is_negative() => i64::MIN,
                None => i64::MAX,
            }
        }
        _ => return None,
    })
}

/// `v` as a double, rounded to nearest. `None` if `v` is not a number.
pub fn to_f64(v: Value<'_>) -> Option<f64> {
    Some(match v {
        Value::Int32(n) => f64::from(n),
        Value::Int64(n) => n as f64,
        Value::Double(n) => n,
        Value::Decimal128(b) => Decimal::from_bid(b).to_f64(),
        _ => return None,
    })
}

/// `v` as a decimal. A double is rounded to 15 digits, as MongoDB does. `None` if `v` is not a number.
pub fn to_decimal(v: Value<'_>) -> Option<Decimal> {
    Some(match v {
        Value::Int32(n) => Decimal::from_i64(n.into()),
        Value::Int64(n) => Decimal::from_i64(n),
        Value::Double(n) => Decimal::from_f64(n),
        Value::Decimal128(b) => Decimal::from_bid(b),
        _ => return None,
    })
}

/// An int32 if `n` fits, else an int64.
pub fn narrow(n: i64) -> Value<'static> {
    i32::try_from(n).map_or(Value::Int64(n), Value::Int32)
}

/// One arithmetic operation on each type.
struct Op {
    name: &'static str,
    i64: fn(i64, i64) -> Option<i64>,
    f64: fn(f64, f64) -> f64,
    decimal: fn(Decimal, Decimal) -> Decimal,
}

fn apply(op: &Op, a: Value<'_>, b: Value<'_>, to_double: bool) -> Result<Value<'static>> {
    // This is exact for int32 operands: neither their sum nor their product leaves the range of int64.
    if let (Value::Int32(x), Value::Int32(y)) = (a, b) {
        return Ok((op.i64)(x.into(), y.into()).map_or(Value::Int64(0), narrow));
    }
    let not_numbers = || {
        Error::type_mismatch(format!(
            "only numbers are allowed in an arithmetic operation, not {} and {}",
            a.type_name(),
            b.type_name()
        ))
    };
    if matches!(a, Value::Decimal128(_)) || matches!(b, Value::Decimal128(_)) {
        let (x, y) = to_decimal(a).zip(to_decimal(b)).ok_or_else(not_numbers)?;
        return Ok(Value::Decimal128((op.decimal)(x, y).to_bid()));
    }
    let (x, y) = to_f64(a).zip(to_f64(b)).ok_or_else(not_numbers)?;
    let double = Value::Double((op.f64)(x, y));
    if matches!(a, Value::Double(_)) || matches!(b, Value::Double(_)) {
        return Ok(double);
    }
    let whole = |v: Value<'_>| match v {
        Value::Int32(n) => i64::from(n),
        Value::Int64(n) => n,
        _ => 0,
    };
    match (op.i64)(whole(a), whole(b)) {
        Some(n) => Ok(Value::Int64(n)),
        None if to_double => Ok(double),
        None => Err(Error::bad_value(format!(
            "integer overflow: {} {} {} does not fit in a long",
            whole(a),
            op.name,
            whole(b)
        ))),
    }
}

/// a + b by the rules of `$inc` and `$add`: an int32 becomes an int64 if necessary; an overflow of int64
/// becomes a double in expressions (`overflow_to_double`), and is an error otherwise.
///
/// # Errors
/// 2 BadValue on int64 overflow when `overflow_to_double` is false; 14 TypeMismatch if either
/// is no number.
pub fn add(a: Value<'_>, b: Value<'_>, overflow_to_double: bool) -> Result<Value<'static>> {
    const OP: Op = Op {
        name: "+",
        i64: i64::checked_add,
        f64: |x, y| x + y,
        decimal: Decimal::add,
    };
    apply(&OP, a, b, overflow_to_double)
}

/// a − b for expressions.
///
/// # Errors
/// 14 TypeMismatch if either is no number.
pub fn sub(a: Value<'_>, b: Value<'_>) -> Result<Value<'static>> {
    const OP: Op = Op {
        name: "-",
        i64: i64::checked_sub,
        f64: |x, y| x - y,
        decimal: Decimal::sub,
    };
    apply(&OP, a, b, true)
}

/// a · b by the rules of `$mul` and `$multiply`; see [`add`].
///
/// # Errors
/// 2 BadValue on int64 overflow when `overflow_to_double` is false; 14 TypeMismatch if either
/// is no number.
pub fn mul(a: Value<'_>, b: Value<'_>, overflow_to_double: bool) -> Result<Value<'static>> {
    const OP: Op = Op {
        name: "*",
        i64: i64::checked_mul,
        f64: |x, y| x * y,
        decimal: Decimal::mul,
    };
    apply(&OP, a, b, overflow_to_double)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn d(s: &str) -> Value<'static> {
        Value::Decimal128(Decimal::parse(s).unwrap().to_bid())
    }

    #[test]
    fn types_compare_by_value() {
        use Value::{Double, Int32, Int64};
        let ascending = [
            Double(f64::NAN),
            Double(f64::NEG_INFINITY),
            d("-1E+6000"),
            Double(-1e300),
            Double(-9.3e18),
            Int64(i64::MIN),
            Int64(i64::MIN + 1),
            Int32(-1),
            Double(-5e-324),
            d("-1E-6000"),
            Int32(0),
            d("1E-6000"),
            Double(5e-324),
            d("0.1"),
            Double(0.1),
            Double(0.5),
            Int32(1),
            d("1.000000000000000000000000000000001"),
            Double(1.0000000000000002),
            Int64(9_007_199_254_740_992),
            Int64(9_007_199_254_740_993),
            Double(9_007_199_254_740_994.0),
            Int64(i64::MAX - 1),
            Int64(i64::MAX),
            d("9223372036854775807.5"),
            Double(I64_END),
            Double(f64::MAX),
            d("1E+400"),
            Double(f64::INFINITY),
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(cmp(*a, *b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
        assert_eq!(cmp(Double(-0.0), Int64(0)), Ordering::Equal);
        assert_eq!(cmp(d("-0.00"), Double(0.0)), Ordering::Equal);
        assert_eq!(cmp(d("1.50"), Double(1.5)), Ordering::Equal);
        assert_eq!(
            cmp(Double(I64_END), d("9223372036854775808")),
            Ordering::Equal
        );
    }

    #[test]
    fn results_are_promoted() {
        use Value::{Double, Int32, Int64};
        let is = |v: Result<Value<'static>>, s: &str| assert_eq!(format!("{:?}", v.unwrap()), s);
        is(add(Int32(1), Int32(2), false), "Int32(3)");
        is(add(Int32(i32::MAX), Int32(1), false), "Int64(2147483648)");
        is(
            mul(Int32(i32::MIN), Int32(i32::MIN), false),
            "Int64(4611686018427387904)",
        );
        is(add(Int64(1), Int32(2), false), "Int64(3)");
        is(
            add(Int64(i64::MAX), Int32(1), true),
            "Double(9.223372036854776e18)",
        );
        let e = add(Int64(i64::MAX), Int32(1), false).unwrap_err();
        assert_eq!(e.code(), crate::Code::BadValue);
        is(add(Int64(1), Double(0.5), false), "Double(1.5)");
        is(sub(Int32(1), Int64(2)), "Int64(-1)");
        let Value::Decimal128(b) = add(d("0.1"), Double(0.1), false).unwrap() else {
            panic!()
        };
        assert_eq!(Decimal::from_bid(b).to_string(), "0.200000000000000");
        let e = add(Int32(1), Value::Null, true).unwrap_err();
        assert_eq!(e.code(), crate::Code::TypeMismatch);
    }

    #[test]
    fn coercions() {
        assert_eq!(to_i64_exact(Value::Double(3.0)), Some(3));
        assert_eq!(to_i64_exact(Value::Double(3.5)), None);
        assert_eq!(to_i64_exact(Value::Double(I64_END)), None);
        assert_eq!(to_i64_exact(d("3.00")), Some(3));
        assert_eq!(to_i64_clamped(Value::Double(-3.9)), Some(-3));
        assert_eq!(to_i64_clamped(Value::Double(f64::NAN)), Some(0));
        assert_eq!(to_i64_clamped(d("-1E+500")), Some(i64::MIN));
        assert_eq!(to_i64_clamped(d("2.9")), Some(3));
        assert_eq!(to_i64_clamped(d("-2.5")), Some(-2));
        assert_eq!(to_i64_clamped(Value::Null), None);
        assert_eq!(to_f64(d("1E+400")), Some(f64::INFINITY));
        assert!(is_zero(d("-0E+3")) && is_nan(d("NaN")) && !is_negative(d("-0")));
    }
}
