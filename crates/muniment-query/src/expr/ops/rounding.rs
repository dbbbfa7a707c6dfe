//! `$abs`, `$ceil`, `$floor`, `$round`, `$trunc`.

use super::{NULL, arg_some};
use crate::expr::{Arity, EvalContext, Expr, OpSpec};
use muniment_value::decimal::{Decimal, Round};
use muniment_value::{Error, Result, Value, number};

/// The specification of `$abs`.
pub(super) const ABS: OpSpec = OpSpec::new(
    "$abs",
    Arity::Exactly(1),
    "The absolute value.",
    |args, ctx| {
        let Some(v) = super::numeric("$abs", args, ctx)? else {
            return NULL;
        };
        Ok(Some(match v {
            Value::Int32(n) => match n.checked_abs() {
                Some(n) => Value::Int32(n),
                None => Value::Int64(-i64::from(n)),
            },
            Value::Int64(n) => Value::Int64(
                n.checked_abs()
                    .ok_or_else(|| Error::location(28680, "can't take $abs of long long min"))?,
            ),
            // The sign is the highest bit of the last byte.
            Value::Decimal128(mut b) => {
                if let Some(last) = b.last_mut() {
                    *last &= 0x7F;
                }
                Value::Decimal128(b)
            }
            v => Value::Double(super::double(v).abs()),
        }))
    },
);

/// The specification of `$ceil`.
pub(super) const CEIL: OpSpec = OpSpec::new(
    "$ceil",
    Arity::Exactly(1),
    "The least whole number that is not less.",
    |args, ctx| whole("$ceil", args, ctx, f64::ceil, Round::Ceiling),
);

/// The specification of `$floor`.
pub(super) const FLOOR: OpSpec = OpSpec::new(
    "$floor",
    Arity::Exactly(1),
    "The greatest whole number that is not greater.",
    |args, ctx| whole("$floor", args, ctx, f64::floor, Round::Floor),
);

/// The least number of more than 34 digits.
const MAX_WHOLE: u128 = 10_u128.pow(34);

fn whole<'a>(
    op: &str,
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    f: fn(f64) -> f64,
    mode: Round,
) -> Result<Option<Value<'a>>> {
    Ok(Some(match super::numeric(op, args, ctx)? {
        None => Value::Null,
        Some(v @ (Value::Int32(_) | Value::Int64(_))) => v,
        Some(Value::Decimal128(b)) => {
            let d = Decimal::from_bid(b);
            // Without an exact whole number of 34 digits the result is NaN, as in MongoDB.
            let whole = match d.parts() {
                Some((_, c, e)) if e > 0 && c != 0 => 10_u128
                    .checked_pow(e.unsigned_abs())
                    .and_then(|p| c.checked_mul(p))
                    .is_some_and(|n| n < MAX_WHOLE),
                Some(_) => true,
                None => false,
            };
            let d = if whole {
                d.round_to(0, mode)
            } else {
                Decimal::NAN
            };
            Value::Decimal128(d.to_bid())
        }
        Some(v) => Value::Double(f(super::double(v))),
    }))
}

/// The specification of `$round`.
pub(super) const ROUND: OpSpec = OpSpec::new(
    "$round",
    Arity::Range(1, 2),
    "Rounds to whole numbers, or to the place given (-20 to 100); halves go to the even digit.",
    |args, ctx| to_place("$round", args, ctx, Round::HalfEven),
);

/// The specification of `$trunc`.
pub(super) const TRUNC: OpSpec = OpSpec::new(
    "$trunc",
    Arity::Range(1, 2),
    "Cuts to whole numbers, or to the place given (-20 to 100).",
    |args, ctx| to_place("$trunc", args, ctx, Round::Truncate),
);

/// The place that an operator rounds to: digits after the point, or before it if negative. It is 0 if it is not
/// given, and `None` if it is null.
fn place<'a>(op: &str, args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<i32>> {
    if args.len() < 2 {
        return Ok(Some(0));
    }
    let Some(p) = arg_some(args, 1, ctx)? else {
        return Ok(None);
    };
    if !p.is_number() {
        return Err(Error::location(
            16004,
            format!("can't convert from BSON type {} to long", p.type_name()),
        ));
    }
    if let Value::Double(n) = p
        && !(-9.3e18..9.3e18).contains(&n)
    {
        return Err(Error::location(
            31109,
            format!("Can't coerce out of range value {} to long", p.to_display()),
        ));
    }
    let whole = number::to_i64_exact(p).ok_or_else(|| {
        Error::location(
            51082,
            format!("precision argument to  {op} must be a integral value"),
        )
    })?;
    if !(-20..=100).contains(&whole) {
        return Err(Error::location(
            51083,
            format!("cannot apply {op} with precision value {whole} value must be in [-20, 100]"),
        ));
    }
    Ok(Some(whole as i32))
}

/// Rounds a whole number; `None` if the result is too large.
fn whole_to_place(n: i64, place: i32, mode: Round) -> Option<i64> {
    if place >= 0 {
        return Some(n);
    }
    let step = 10_i128.checked_pow(place.unsigned_abs())?;
    let n = i128::from(n);
    let cut = n / step * step;
    let rest = (n - cut).abs() * 2;
    let up = mode == Round::HalfEven && (rest > step || (rest == step && (cut / step) % 2 != 0));
    i64::try_from(if up { cut + step * n.signum() } else { cut }).ok()
}

fn to_place<'a>(
    op: &str,
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    mode: Round,
) -> Result<Option<Value<'a>>> {
    let Some(v) = arg_some(args, 0, ctx)? else {
        return NULL;
    };
    let Some(place) = place(op, args, ctx)? else {
        return NULL;
    };
    let int = |n| whole_to_place(n, place, mode);
    let overflow = || {
        Error::location(
            51080,
            format!("invalid conversion from Decimal128 result in {op} resulting from arguments"),
        )
    };
    Ok(Some(match v {
        Value::Int32(n) => {
            let n = int(i64::from(n)).ok_or_else(overflow)?;
            i32::try_from(n).map_or(Value::Int64(n), Value::Int32)
        }
        Value::Int64(n) => Value::Int64(int(n).ok_or_else(overflow)?),
        Value::Double(n) => Value::Double(decimal_place(n, place, mode)),
        Value::Decimal128(b) => {
            let rounded = Decimal::from_bid(b).round_to(place, mode);
            Value::Decimal128(rounded.padded(place).to_bid())
        }
        v => {
            return Err(Error::location(
                51081,
                format!("{op} only supports numeric types, not {}", v.type_name()),
            ));
        }
    }))
}

/// `n` at a decimal place, as MongoDB computes it: the value with 34 digits is rounded or cut. For most
/// doubles this value is slightly above or below their text (2.675 is 2.67499999…).
fn decimal_place(n: f64, place: i32, mode: Round) -> f64 {
    match mode {
        _ if !n.is_finite() => n,
        Round::HalfEven if place == 0 => n.round_ties_even(),
        Round::Truncate if place == 0 => n.trunc(),
        _ => Decimal::from_f64_exact(n)
            .round_to(place, mode)
            .to_f64()
            .copysign(n),
    }
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'s': 'x', 'n': null, 'min': ['$long', -9223372036854775808]}",
            &[
                ("{'$abs': -3}", Gives("3")),
                ("{'$abs': -2147483648}", Gives("2147483648")),
                ("{'$abs': '$min'}", Fails(28680)),
                ("{'$abs': -1.5}", Gives("1.5")),
                ("{'$abs': '$n'}", Gives("null")),
                ("{'$abs': '$s'}", Fails(28765)),
                ("{'$ceil': 1.2}", Gives("2.0")),
                ("{'$ceil': 3}", Gives("3")),
                ("{'$floor': -1.2}", Gives("-2.0")),
                ("{'$floor': '$s'}", Fails(28765)),
                ("{'$round': 2.5}", Gives("2.0")),
                ("{'$round': 3.5}", Gives("4.0")),
                ("{'$round': [10.005, 2]}", Gives("10.01")),
                ("{'$round': [2.015, 2]}", Gives("2.02")),
                ("{'$round': [2.675, 2]}", Gives("2.67")),
                ("{'$round': [-2.675, 2]}", Gives("-2.67")),
                ("{'$round': [1.115, 2]}", Gives("1.11")),
                ("{'$round': [8.345, 2]}", Gives("8.35")),
                ("{'$round': [0.125, 2]}", Gives("0.12")),
                ("{'$round': [19.25, 1]}", Gives("19.2")),
                ("{'$round': [1.237, 2]}", Gives("1.24")),
                ("{'$round': [-1.237, 2]}", Gives("-1.24")),
                ("{'$round': [0.004, 2]}", Gives("0.0")),
                ("{'$round': [1250, -2]}", Gives("1200")),
                ("{'$round': [1350, -2]}", Gives("1400")),
                ("{'$round': [1351.0, -2]}", Gives("1400.0")),
                ("{'$round': [1, 1.5]}", Fails(51082)),
                ("{'$round': [1, 101]}", Fails(51083)),
                ("{'$round': [1, true]}", Fails(16004)),
                ("{'$round': [1, {'$literal': ['$NaN']}]}", Fails(31109)),
                (
                    "{'$ceil': {'$literal': ['$dec', '-Infinity']}}",
                    Gives("['$dec', 'NaN']"),
                ),
                (
                    "{'$ceil': {'$literal': ['$dec', '9E6144']}}",
                    Gives("['$dec', 'NaN']"),
                ),
                ("{'$round': ['$s', 1]}", Fails(51081)),
                ("{'$round': [1, '$n']}", Gives("null")),
                (
                    "{'$round': [['$dec', '2.345'], 2]}",
                    Gives("['$dec', '2.34']"),
                ),
                ("{'$ceil': [['$dec', '1.2']]}", Gives("['$dec', '2']")),
                (
                    "{'$trunc': [['$dec', '1.1'], 4]}",
                    Gives("['$dec', '1.1000']"),
                ),
                ("{'$trunc': 2.9}", Gives("2.0")),
                ("{'$trunc': [0.29, 2]}", Gives("0.28")),
                ("{'$round': [1.005, 2]}", Gives("1.0")),
                ("{'$round': [2.5, 0]}", Gives("2.0")),
                ("{'$trunc': [-1.999, 2]}", Gives("-1.99")),
                ("{'$trunc': [1999, -3]}", Gives("1000")),
                ("{'$trunc': [1, 2, 3]}", Fails(28667)),
            ],
        );
    }
}
