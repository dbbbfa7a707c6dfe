//! `$sum`, `$avg`, `$min`, `$max` as expressions: over their operands, or over the elements of a
//! single operand that is an array.

use crate::expr::{Arity, EvalContext, Expr, OpSpec};
use crate::stage::accumulators::sum::Total;
use muniment_value::{Result, Value, cmp_values};
use std::cmp::Ordering;

/// The specification of `$sum`.
pub(super) const SUM: OpSpec = OpSpec::new(
    "$sum",
    Arity::Any,
    "The sum of the numbers among the operands; others are ignored.",
    |args, ctx| {
        let mut total = Total::default();
        each(args, ctx, |v| {
            total.add(v);
            Ok(())
        })?;
        Ok(Some(total.sum()))
    },
);

/// The specification of `$avg`.
pub(super) const AVG: OpSpec = OpSpec::new(
    "$avg",
    Arity::Any,
    "The mean of the numbers among the operands; null if there is none.",
    |args, ctx| {
        let mut total = Total::default();
        each(args, ctx, |v| {
            total.add(v);
            Ok(())
        })?;
        Ok(Some(total.mean()))
    },
);

/// The specification of `$min`.
pub(super) const MIN: OpSpec = OpSpec::new(
    "$min",
    Arity::Any,
    "The least operand that is not null.",
    |args, ctx| extreme(args, ctx, Ordering::Less),
);

/// The specification of `$max`.
pub(super) const MAX: OpSpec = OpSpec::new(
    "$max",
    Arity::Any,
    "The greatest operand that is not null.",
    |args, ctx| extreme(args, ctx, Ordering::Greater),
);

fn extreme<'a>(
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    better: Ordering,
) -> Result<Option<Value<'a>>> {
    let mut best: Option<Value<'a>> = None;
    each(args, ctx, |v| {
        if !v.is_nullish() && best.is_none_or(|b| cmp_values(v, b) == better) {
            best = Some(v);
        }
        Ok(())
    })?;
    Ok(Some(best.unwrap_or(Value::Null)))
}

fn each<'a>(
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    mut f: impl FnMut(Value<'a>) -> Result<()>,
) -> Result<()> {
    for e in args {
        match e.eval(ctx)? {
            Some(Value::Array(items)) if args.len() == 1 => items.values().try_for_each(&mut f)?,
            Some(v) => f(v)?,
            None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'a': [3, 1, 'x', null, 2], 'n': null, 's': 'x'}",
            &[
                ("{'$sum': '$a'}", Gives("6")),
                ("{'$sum': ['$a', 5]}", Gives("5")),
                ("{'$sum': [1, 2.5]}", Gives("3.5")),
                ("{'$sum': '$missing'}", Gives("0")),
                ("{'$sum': [0.1, 0.2, 0.3]}", Gives("0.6")),
                ("{'$avg': '$a'}", Gives("2.0")),
                ("{'$avg': '$s'}", Gives("null")),
                ("{'$min': '$a'}", Gives("1")),
                ("{'$max': '$a'}", Gives("'x'")),
                ("{'$max': [1, 5.5, '$n']}", Gives("5.5")),
                ("{'$min': '$n'}", Gives("null")),
            ],
        );
    }
}
