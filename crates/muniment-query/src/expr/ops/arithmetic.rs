//! `$add`, `$subtract`, `$multiply`, `$divide`, `$mod`: numbers with MongoDB's promotion (int32 →
//! int64 → double → decimal128), and dates as milliseconds.

use super::{NULL, arg, arg_some, double};
use crate::expr::{Arity, EvalContext, Expr, OpSpec};
use crate::stage::accumulators::sum::Total;
use muniment_value::decimal::{Decimal, Round};
use muniment_value::{Code, Error, Result, Value, number};

/// The specification of `$add`.
pub(super) const ADD: OpSpec = OpSpec::new(
    "$add",
    Arity::Any,
    "The sum of numbers, or of one date and numbers of milliseconds.",
    add,
);

/// The specification of `$subtract`.
pub(super) const SUBTRACT: OpSpec = OpSpec::new(
    "$subtract",
    Arity::Exactly(2),
    "The difference of two numbers, two dates (milliseconds), or a date and milliseconds.",
    subtract,
);

/// The specification of `$multiply`.
pub(super) const MULTIPLY: OpSpec =
    OpSpec::new("$multiply", Arity::Any, "The product of numbers.", multiply);

/// The specification of `$divide`.
pub(super) const DIVIDE: OpSpec = OpSpec::new(
    "$divide",
    Arity::Exactly(2),
    "The first number divided by the second.",
    divide,
);

/// The specification of `$mod`.
pub(super) const MOD: OpSpec = OpSpec::new(
    "$mod",
    Arity::Exactly(2),
    "The remainder of the first number divided by the second; the sign is the first's.",
    modulo,
);

/// The milliseconds that a number adds to a date. Fractions are rounded.
fn millis(v: Value<'_>) -> Option<i64> {
    match v {
        Value::Int32(n) => Some(i64::from(n)),
        Value::Int64(n) => Some(n),
        Value::Double(n) => {
            let n = n.round();
            (n.abs() < 9.2e18).then_some(n as i64)
        }
        v => {
            let n = number::to_decimal(v)?.round_to(0, Round::HalfEven);
            i64::try_from(n.to_i128_trunc()?.0).ok()
        }
    }
}

fn date_overflow() -> Error {
    Error::new(Code::Overflow, "date overflow")
}

/// A sum as `$add` computes it: compensated up to the first decimal, and in decimals from there on.
#[derive(Default)]
struct Sum {
    total: Total,
    decimal: Option<Decimal>,
}

impl Sum {
    fn add(&mut self, v: Value<'_>) {
        match (self.decimal, v) {
            (None, Value::Decimal128(b)) => {
                let before = number::to_decimal(self.total.sum()).unwrap_or(Decimal::ZERO);
                self.decimal = Some(before.add(Decimal::from_bid(b)));
            }
            (None, v) => self.total.add(v),
            (Some(d), v) => {
                self.decimal = Some(d.add(number::to_decimal(v).unwrap_or(Decimal::NAN)));
            }
        }
    }

    fn value(&self) -> Value<'static> {
        match self.decimal {
            Some(d) => Value::Decimal128(d.to_bid()),
            None => self.total.sum(),
        }
    }
}

fn add<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let mut total = Sum::default();
    let mut date: Option<i64> = None;
    let mut null = false;
    for e in args {
        match e.eval(ctx)? {
            Some(Value::DateTime(ms)) => {
                if date.replace(ms).is_some() {
                    return Err(Error::location(
                        16612,
                        "only one date allowed in an $add expression",
                    ));
                }
            }
            Some(v) if v.is_number() => total.add(v),
            None | Some(Value::Null | Value::Undefined) => null = true,
            Some(v) => {
                return Err(Error::type_mismatch(format!(
                    "$add only supports numeric or date types, not {}",
                    v.type_name()
                )));
            }
        }
        if null {
            return NULL;
        }
    }
    let sum = total.value();
    Ok(Some(match date {
        None => sum,
        Some(ms) => Value::DateTime(
            millis(sum)
                .and_then(|n| ms.checked_add(n))
                .ok_or_else(date_overflow)?,
        ),
    }))
}

fn subtract<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let (Some(a), Some(b)) = (arg_some(args, 0, ctx)?, arg_some(args, 1, ctx)?) else {
        return NULL;
    };
    Ok(Some(match (a, b) {
        (Value::DateTime(x), Value::DateTime(y)) => {
            Value::Int64(x.checked_sub(y).ok_or_else(date_overflow)?)
        }
        (Value::DateTime(x), n) if n.is_number() => Value::DateTime(
            millis(n)
                .and_then(|n| x.checked_sub(n))
                .ok_or_else(date_overflow)?,
        ),
        (x, y) if x.is_number() && y.is_number() => number::sub(x, y)?,
        (x, y) => {
            return Err(Error::type_mismatch(format!(
                "can't $subtract {} from {}",
                y.type_name(),
                x.type_name()
            )));
        }
    }))
}

fn multiply<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let mut product = Value::Int32(1);
    for e in args {
        match e.eval(ctx)? {
            Some(v) if v.is_number() => product = number::mul(product, v, true)?,
            None | Some(Value::Null | Value::Undefined) => return NULL,
            Some(v) => {
                return Err(Error::type_mismatch(format!(
                    "$multiply only supports numeric types, not {}",
                    v.type_name()
                )));
            }
        }
    }
    Ok(Some(product))
}

/// Both numbers as decimals, if one of them is a decimal.
fn decimals(a: Value<'_>, b: Value<'_>) -> Option<(Decimal, Decimal)> {
    if matches!(a, Value::Decimal128(_)) || matches!(b, Value::Decimal128(_)) {
        Some((number::to_decimal(a)?, number::to_decimal(b)?))
    } else {
        None
    }
}

fn divide<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let (a, b) = (arg(args, 0, ctx)?, arg(args, 1, ctx)?);
    let (Some(x), Some(y)) = (a.filter(|v| !v.is_nullish()), b.filter(|v| !v.is_nullish())) else {
        return NULL;
    };
    if !x.is_number() || !y.is_number() {
        return Err(Error::type_mismatch(format!(
            "$divide only supports numeric types, not {} and {}",
            x.type_name(),
            y.type_name()
        )));
    }
    if number::is_zero(y) {
        return Err(Error::bad_value("can't $divide by zero"));
    }
    if let Some((x, y)) = decimals(x, y) {
        return Ok(Some(Value::Decimal128(x.div(y).to_bid())));
    }
    let (x, y) = (double(x), double(y));
    Ok(Some(Value::Double(x / y)))
}

fn modulo<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let (Some(x), Some(y)) = (arg_some(args, 0, ctx)?, arg_some(args, 1, ctx)?) else {
        return NULL;
    };
    if !x.is_number() || !y.is_number() {
        return Err(Error::location(
            16611,
            format!(
                "$mod only supports numeric types, not {} and {}",
                x.type_name(),
                y.type_name()
            ),
        ));
    }
    if number::is_zero(y) {
        let decimal = decimals(x, y).is_some();
        return Err(Error::location(
            if decimal { 5733415 } else { 16610 },
            "can't $mod by zero",
        ));
    }
    // A whole double does not make the result a double, unless the first number is one.
    let y = match (x, y) {
        (Value::Int32(_) | Value::Int64(_), Value::Double(d)) if f64::from(d as i32) == d => {
            Value::Int32(d as i32)
        }
        _ => y,
    };
    Ok(Some(match (x, y) {
        (Value::Int32(x), Value::Int32(y)) => Value::Int32(x.wrapping_rem(y)),
        (Value::Int32(_) | Value::Int64(_), Value::Int32(_) | Value::Int64(_)) => {
            let n = |v| number::to_i64_clamped(v).unwrap_or(1);
            Value::Int64(n(x).wrapping_rem(n(y)))
        }
        (x, y) => match decimals(x, y) {
            Some((x, y)) => Value::Decimal128(x.rem(y).to_bid()),
            None => Value::Double(double(x) % double(y)),
        },
    }))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn decimals() {
        table(
            "{}",
            &[
                ("{'$divide': [['$dec', '1'], 4]}", Gives("['$dec', '0.25']")),
                ("{'$mod': [['$dec', '7.5'], 2]}", Gives("['$dec', '1.5']")),
                ("{'$mod': [8, 3.0]}", Gives("2")),
                ("{'$mod': [['$long', 8], 3.0]}", Gives("['$long', 2]")),
                ("{'$mod': [8, 3.5]}", Gives("1.0")),
                ("{'$mod': [8, 3e10]}", Gives("8.0")),
                ("{'$mod': [8.0, 3]}", Gives("2.0")),
                (
                    "{'$add': [['$dec', '0.1'], ['$dec', '0.2']]}",
                    Gives("['$dec', '0.3']"),
                ),
                ("{'$divide': [['$dec', '1'], 0]}", Fails(2)),
            ],
        );
    }

    #[test]
    fn table_test() {
        table(
            "{'a': 7, 'b': 2, 'f': 0.5, 'l': ['$long', 5000000000], 's': 'x', 'n': null, 'd': ['$date', 1000]}",
            &[
                ("{'$add': ['$a', '$b']}", Gives("9")),
                ("{'$add': ['$a', '$f']}", Gives("7.5")),
                ("{'$add': ['$a', '$l']}", Gives("5000000007")),
                ("{'$add': [2147483647, 1]}", Gives("2147483648")),
                ("{'$add': ['$d', 5]}", Gives("['$date', 1005]")),
                ("{'$add': [1.6, '$d']}", Gives("['$date', 1002]")),
                ("{'$add': ['$d', '$d']}", Fails(16612)),
                ("{'$add': ['$d', {'$literal': ['$dec', 'NaN']}]}", Fails(15)),
                ("{'$subtract': ['$d', {'$literal': ['$NaN']}]}", Fails(15)),
                ("{'$add': ['$a', '$n']}", Gives("null")),
                ("{'$add': ['$a', '$missing']}", Gives("null")),
                ("{'$add': ['$a', '$s']}", Fails(14)),
                ("{'$add': []}", Gives("0")),
                ("{'$add': [0.1, 0.2, 0.3]}", Gives("0.6")),
                (
                    "{'$add': [['$dec', '0'], 3.14]}",
                    Gives("['$dec', '3.14000000000000']"),
                ),
                ("{'$add': '$a'}", Gives("7")),
                ("{'$subtract': ['$a', '$b']}", Gives("5")),
                ("{'$subtract': ['$d', '$d']}", Gives("['$long', 0]")),
                ("{'$subtract': ['$d', 400]}", Gives("['$date', 600]")),
                ("{'$subtract': ['$a', '$d']}", Fails(14)),
                ("{'$subtract': ['$a', '$n']}", Gives("null")),
                ("{'$subtract': ['$a']}", Fails(16020)),
                ("{'$multiply': ['$a', '$b', '$f']}", Gives("7.0")),
                ("{'$multiply': [2147483647, 2]}", Gives("4294967294")),
                ("{'$multiply': ['$s']}", Fails(14)),
                ("{'$multiply': [2, '$n', '$s']}", Gives("null")),
                ("{'$divide': ['$a', '$b']}", Gives("3.5")),
                ("{'$divide': [6, '$b']}", Gives("3.0")),
                ("{'$divide': ['$a', 0]}", Fails(2)),
                ("{'$divide': ['$s', 1]}", Fails(14)),
                ("{'$divide': ['$n', 0]}", Gives("null")),
                ("{'$mod': ['$a', '$b']}", Gives("1")),
                ("{'$mod': [-7, 2]}", Gives("-1")),
                ("{'$mod': [7, 2.5]}", Gives("2.0")),
                ("{'$mod': ['$l', 3]}", Gives("['$long', 2]")),
                ("{'$mod': ['$a', 0]}", Fails(16610)),
                ("{'$mod': [['$dec', '1'], 0]}", Fails(5733415)),
                ("{'$mod': ['$s', 2]}", Fails(16611)),
            ],
        );
    }
}
