//! `$exp`, `$ln`, `$log`, `$log10`, `$pow`, `$sqrt`.

use super::{NULL, arg, double, numeric};
use crate::expr::{Arity, EvalContext, Expr, OpSpec};
use muniment_value::decimal::Decimal;
use muniment_value::{Error, Result, Value, number};

/// The specification of `$exp`.
pub(super) const EXP: OpSpec = OpSpec::new(
    "$exp",
    Arity::Exactly(1),
    "e to the power of the operand.",
    |args, ctx| one("$exp", args, ctx, |_| Ok(()), f64::exp, Decimal::exp),
);

/// The specification of `$ln`.
pub(super) const LN: OpSpec = OpSpec::new(
    "$ln",
    Arity::Exactly(1),
    "The natural logarithm.",
    |args, ctx| {
        one(
            "$ln",
            args,
            ctx,
            |n| {
                positive(n, 28766, || {
                    format!("$ln's argument must be a positive number, but is {n}")
                })
            },
            f64::ln,
            Decimal::ln,
        )
    },
);

/// The specification of `$log10`.
pub(super) const LOG10: OpSpec = OpSpec::new(
    "$log10",
    Arity::Exactly(1),
    "The logarithm to base 10.",
    |args, ctx| {
        one(
            "$log10",
            args,
            ctx,
            |n| {
                positive(n, 28761, || {
                    format!("$log10's argument must be a positive number, but is {n}")
                })
            },
            f64::log10,
            Decimal::log10,
        )
    },
);

/// The specification of `$sqrt`.
pub(super) const SQRT: OpSpec = OpSpec::new(
    "$sqrt",
    Arity::Exactly(1),
    "The square root.",
    |args, ctx| {
        one(
            "$sqrt",
            args,
            ctx,
            |n| {
                if n < 0.0 {
                    return Err(Error::location(
                        28714,
                        "$sqrt's argument must be greater than or equal to 0",
                    ));
                }
                Ok(())
            },
            f64::sqrt,
            Decimal::sqrt,
        )
    },
);

/// The specification of `$log`.
pub(super) const LOG: OpSpec = OpSpec::new(
    "$log",
    Arity::Exactly(2),
    "The logarithm of the first operand to the base of the second.",
    log,
);

/// The specification of `$pow`.
pub(super) const POW: OpSpec = OpSpec::new(
    "$pow",
    Arity::Exactly(2),
    "The first operand to the power of the second.",
    pow,
);

/// The specification of `$sigmoid`.
pub(super) const SIGMOID: OpSpec = OpSpec::new(
    "$sigmoid",
    Arity::Custom(|v, p| Ok(vec![p.parse(v)?])),
    "1 / (1 + e to the power of minus the operand).",
    |args, ctx| {
        let v = arg(args, 0, ctx)?.unwrap_or(Value::Null);
        Ok(Some(match v {
            Value::Null | Value::Undefined => Value::Null,
            Value::Decimal128(b) => {
                let one = Decimal::from_i64(1);
                let e = Decimal::from_bid(b).negated().exp();
                decimal(one.div(one.add(e)))
            }
            v if v.is_number() => Value::Double(1.0 / (1.0 + (-double(v)).exp())),
            v => {
                return Err(Error::type_mismatch(format!(
                    "$sigmoid only supports numeric types, not {}",
                    v.type_name()
                )));
            }
        }))
    },
);

fn positive(n: f64, code: i32, message: impl Fn() -> String) -> Result<()> {
    if n > 0.0 || n.is_nan() {
        Ok(())
    } else {
        Err(Error::location(code, message()))
    }
}

/// A function of one number, computed in doubles or, for a decimal, in decimals.
fn one<'a>(
    op: &str,
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    check: impl Fn(f64) -> Result<()>,
    f: fn(f64) -> f64,
    d: fn(Decimal) -> Decimal,
) -> Result<Option<Value<'a>>> {
    let Some(v) = numeric(op, args, ctx)? else {
        return NULL;
    };
    check(sign(v))?;
    Ok(Some(match v {
        // MongoDB's logarithms return this NaN as a double.
        Value::Decimal128(_) if op != "$exp" && op != "$sqrt" && number::is_nan(v) => {
            Value::Double(f64::NAN)
        }
        Value::Decimal128(b) => decimal(d(Decimal::from_bid(b))),
        v => Value::Double(f(double(v))),
    }))
}

fn decimal(d: Decimal) -> Value<'static> {
    Value::Decimal128(d.to_bid())
}

/// A number as a double, which keeps the sign even if a decimal is too small for it.
fn sign(v: Value<'_>) -> f64 {
    match v {
        Value::Decimal128(b) => {
            let d = Decimal::from_bid(b);
            match d.to_f64() {
                0.0 if !d.is_zero() => {
                    f64::MIN_POSITIVE.copysign(if d.is_negative() { -1.0 } else { 1.0 })
                }
                n => n,
            }
        }
        v => double(v),
    }
}

/// Both numbers as decimals, if one of them is a decimal.
fn decimals(a: Value<'_>, b: Value<'_>) -> Option<(Decimal, Decimal)> {
    if matches!(a, Value::Decimal128(_)) || matches!(b, Value::Decimal128(_)) {
        Some((number::to_decimal(a)?, number::to_decimal(b)?))
    } else {
        None
    }
}

/// Two numbers; `None` if one is null. The codes are for operands that are not numbers.
fn two<'a>(
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    what: [(&str, i32); 2],
) -> Result<Option<[Value<'a>; 2]>> {
    let pair = [arg(args, 0, ctx)?, arg(args, 1, ctx)?];
    let [Some(a), Some(b)] = pair.map(|v| v.filter(|v| !v.is_nullish())) else {
        return Ok(None);
    };
    for (v, (name, code)) in [a, b].into_iter().zip(what) {
        if !v.is_number() {
            return Err(Error::location(
                code,
                format!("{name} must be numeric, not {}", v.type_name()),
            ));
        }
    }
    Ok(Some([a, b]))
}

fn log<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let what = [("$log's argument", 28756), ("$log's base", 28757)];
    let Some([n, base]) = two(args, ctx, what)? else {
        return NULL;
    };
    let decimal_pair = decimals(n, base);
    let (n, base) = (sign(n), sign(base));
    positive(n, 28758, || {
        format!("$log's argument must be a positive number, but is {n}")
    })?;
    let message = || format!("$log's base must be a positive number not equal to 1, but is {base}");
    if base == 1.0 {
        return Err(Error::location(28759, message()));
    }
    positive(base, 28759, message)?;
    Ok(Some(match decimal_pair {
        Some((n, base)) if n.is_nan() || base.is_nan() => Value::Double(f64::NAN),
        Some((n, base)) => decimal(n.ln().div(base.ln())),
        None => Value::Double(n.ln() / base.ln()),
    }))
}

fn pow<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let what = [("$pow's base", 28762), ("$pow's exponent", 28763)];
    let Some([base, exp]) = two(args, ctx, what)? else {
        return NULL;
    };
    let (x, y) = (double(base), sign(exp));
    if number::is_zero(base) && y < 0.0 {
        return Err(Error::location(
            28764,
            "$pow cannot take a base of 0 and a negative exponent",
        ));
    }
    let ints = match (base, exp) {
        (Value::Int32(b), Value::Int32(e)) => Some((i64::from(b), i64::from(e), true)),
        (Value::Int32(_) | Value::Int64(_), Value::Int32(_) | Value::Int64(_)) => {
            match (number::to_i64_exact(base), number::to_i64_exact(exp)) {
                (Some(b), Some(e)) => Some((b, e, false)),
                _ => None,
            }
        }
        _ => None,
    };
    if let Some((b, e, narrow)) = ints {
        let whole = match (b, e) {
            (1, _) | (_, 0) => Some(1),
            (-1, e) => Some(if e % 2 == 0 { 1 } else { -1 }),
            (0, _) => Some(0),
            (b, e) => u32::try_from(e).ok().and_then(|e| b.checked_pow(e)),
        };
        if let Some(n) = whole {
            return Ok(Some(match i32::try_from(n) {
                Ok(n) if narrow => Value::Int32(n),
                _ => Value::Int64(n),
            }));
        }
    }
    Ok(Some(match decimals(base, exp) {
        Some((x, y)) => decimal(x.pow(y)),
        None => Value::Double(x.powf(y)),
    }))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'s': 'x', 'n': null}",
            &[
                ("{'$exp': 0}", Gives("1.0")),
                ("{'$exp': '$s'}", Fails(28765)),
                ("{'$ln': 1}", Gives("0.0")),
                ("{'$ln': 0}", Fails(28766)),
                ("{'$log10': 1000}", Gives("3.0")),
                ("{'$log10': -1}", Fails(28761)),
                ("{'$log': [8, 2]}", Gives("3.0")),
                ("{'$log': ['$s', 2]}", Fails(28756)),
                ("{'$log': [2, '$s']}", Fails(28757)),
                ("{'$log': [0, 2]}", Fails(28758)),
                ("{'$log': [2, 1]}", Fails(28759)),
                ("{'$log': ['$n', 1]}", Gives("null")),
                ("{'$pow': [2, 10]}", Gives("1024")),
                ("{'$pow': [2, 40]}", Gives("1099511627776")),
                ("{'$pow': [2, -1]}", Gives("0.5")),
                ("{'$pow': [2, 64]}", Gives("18446744073709551616.0")),
                ("{'$pow': [-1, 2147483647]}", Gives("-1")),
                ("{'$pow': [0, -1]}", Fails(28764)),
                ("{'$pow': ['$s', 1]}", Fails(28762)),
                ("{'$pow': [1, '$s']}", Fails(28763)),
                ("{'$sqrt': 9}", Gives("3.0")),
                ("{'$sqrt': -1}", Fails(28714)),
                ("{'$sqrt': [['$dec', '2.25']]}", Gives("['$dec', '1.5']")),
                ("{'$ln': [['$dec', '-1']]}", Fails(28766)),
                (
                    "{'$log10': [['$dec', '1E-6000']]}",
                    Gives("['$dec', '-6000']"),
                ),
                (
                    "{'$pow': [['$dec', '2'], 3]}",
                    Gives("['$dec', '8.000000000000000000000000000000000']"),
                ),
                ("{'$ln': {'$literal': ['$dec', 'NaN']}}", Gives("['$NaN']")),
                ("{'$exp': [['$dec', '0']]}", Gives("['$dec', '1']")),
                ("{'$sqrt': '$n'}", Gives("null")),
                ("{'$sigmoid': 0}", Gives("0.5")),
                ("{'$sigmoid': '$missing'}", Gives("null")),
                ("{'$sigmoid': [1]}", Fails(14)),
                (
                    "{'$sigmoid': ['$dec', '1']}",
                    Gives("['$dec', '0.7310585786300048792511592418218362']"),
                ),
                (
                    "{'$sigmoid': ['$dec', '-Infinity']}",
                    Gives("['$dec', '0E-6176']"),
                ),
            ],
        );
    }
}
