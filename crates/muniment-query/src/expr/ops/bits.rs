//! `$bitAnd`, `$bitOr`, `$bitXor`, `$bitNot`: the bits of ints and longs.

use super::{NULL, numeric};
use crate::expr::{Arity, EvalContext, Expr, OpSpec};
use muniment_value::{Error, Result, Value};

/// The specification of `$bitAnd`.
pub(super) const AND: OpSpec = OpSpec::new(
    "$bitAnd",
    Arity::Any,
    "The bits that all operands have.",
    |args, ctx| all("$bitAnd", args, ctx, -1, |a, b| a & b),
);

/// The specification of `$bitOr`.
pub(super) const OR: OpSpec = OpSpec::new(
    "$bitOr",
    Arity::Any,
    "The bits that some operand has.",
    |args, ctx| all("$bitOr", args, ctx, 0, |a, b| a | b),
);

/// The specification of `$bitXor`.
pub(super) const XOR: OpSpec = OpSpec::new(
    "$bitXor",
    Arity::Any,
    "The bits that an odd number of operands has.",
    |args, ctx| all("$bitXor", args, ctx, 0, |a, b| a ^ b),
);

/// The specification of `$bitNot`.
pub(super) const NOT: OpSpec = OpSpec::new(
    "$bitNot",
    Arity::Exactly(1),
    "The bits that the operand has not.",
    |args, ctx| match numeric("$bitNot", args, ctx)? {
        None => NULL,
        Some(Value::Int32(n)) => Ok(Some(Value::Int32(!n))),
        Some(Value::Int64(n)) => Ok(Some(Value::Int64(!n))),
        Some(v) => Err(Error::type_mismatch(format!(
            "$bitNot only supports int and long, not: {}.",
            v.type_name()
        ))),
    },
);

/// Folds the operands. The result is a long if an operand is.
fn all<'a>(
    op: &str,
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    start: i64,
    f: fn(i64, i64) -> i64,
) -> Result<Option<Value<'a>>> {
    let (mut bits, mut long, mut null) = (start, false, false);
    for e in args {
        match e.eval(ctx)? {
            None | Some(Value::Null | Value::Undefined) => null = true,
            Some(Value::Int32(n)) => bits = f(bits, i64::from(n)),
            Some(Value::Int64(n)) => {
                bits = f(bits, n);
                long = true;
            }
            Some(_) => {
                return Err(Error::type_mismatch(format!(
                    "{op} only supports int and long operands."
                )));
            }
        }
        if null {
            return NULL;
        }
    }
    // The upper half of int32 operands only repeats the sign, so cutting it loses nothing.
    Ok(Some(if long {
        Value::Int64(bits)
    } else {
        Value::Int32(bits as i32)
    }))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'a': 12, 'b': 10, 'l': ['$long', 3], 'n': null, 's': 'x', 'd': 1.0}",
            &[
                ("{'$bitAnd': ['$a', '$b']}", Gives("8")),
                ("{'$bitOr': ['$a', '$b']}", Gives("14")),
                ("{'$bitXor': ['$a', '$b']}", Gives("6")),
                ("{'$bitOr': ['$a', '$l']}", Gives("['$long', 15]")),
                ("{'$bitXor': [-1, 1]}", Gives("-2")),
                ("{'$bitAnd': []}", Gives("-1")),
                ("{'$bitOr': []}", Gives("0")),
                ("{'$bitXor': []}", Gives("0")),
                ("{'$bitAnd': ['$a', '$n', '$s']}", Gives("null")),
                ("{'$bitAnd': ['$a', '$s']}", Fails(14)),
                ("{'$bitOr': ['$a', '$d']}", Fails(14)),
                ("{'$bitNot': '$a'}", Gives("-13")),
                ("{'$bitNot': '$l'}", Gives("['$long', -4]")),
                ("{'$bitNot': '$n'}", Gives("null")),
                ("{'$bitNot': '$d'}", Fails(14)),
                ("{'$bitNot': '$s'}", Fails(28765)),
            ],
        );
    }
}
