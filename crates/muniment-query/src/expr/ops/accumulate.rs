//! `$sum`, `$avg`, `$min`, `$max`, `$stdDevPop`, `$stdDevSamp` as expressions: over their operands, or over
//! the elements of a single operand that is an array. `$median` and `$percentile` are over the elements of
//! their input.

use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, arena};
use crate::stage::accumulators;
use crate::stage::accumulators::sum::Total;
use muniment_value::{Doc, DocBuf, Result, Value, number};
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
            total.add_to_mean(v);
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

/// The specification of `$stdDevPop`.
pub(super) const STD_DEV_POP: OpSpec = OpSpec::new(
    "$stdDevPop",
    Arity::Any,
    "The standard deviation of the numbers among the operands, which are the whole population.",
    |args, ctx| deviation(args, ctx, 0),
);

/// The specification of `$stdDevSamp`.
pub(super) const STD_DEV_SAMP: OpSpec = OpSpec::new(
    "$stdDevSamp",
    Arity::Any,
    "The standard deviation of the numbers among the operands, which are a sample.",
    |args, ctx| deviation(args, ctx, 1),
);

/// Welford's running mean and sum of squared differences. The divisor is the count minus `less`.
fn deviation<'a>(args: &'a [Expr], ctx: &EvalContext<'a>, less: u32) -> Result<Option<Value<'a>>> {
    let (mut n, mut mean, mut squares) = (0.0, 0.0, 0.0);
    each(args, ctx, |v| {
        if let Some(x) = number::to_f64(v) {
            n += 1.0;
            let delta = x - mean;
            mean += delta / n;
            squares += delta * (x - mean);
        }
        Ok(())
    })?;
    let divisor = n - f64::from(less);
    Ok(Some(if divisor > 0.0 {
        Value::Double((squares / divisor).sqrt())
    } else {
        Value::Null
    }))
}

/// The specification of `$median`. Argument: the input.
pub(super) const MEDIAN: OpSpec = OpSpec::new(
    "$median",
    Arity::Custom(|v, p| Ok(vec![percentile_input("$median", v, p)?])),
    "The median of the numbers in an array.",
    |args, ctx| {
        let sorted = numbers(args, ctx)?;
        Ok(Some(at(&sorted, 0.5)))
    },
);

/// The specification of `$percentile`. Arguments: the input, the array of shares (a constant).
pub(super) const PERCENTILE: OpSpec = OpSpec::new(
    "$percentile",
    Arity::Custom(|v, p| {
        let input = percentile_input("$percentile", v, p)?;
        let shares = v.as_doc().and_then(|d| d.get("p")).unwrap_or(Value::Null);
        Ok(vec![input, p.parse(shares)?])
    }),
    "Percentiles of the numbers in an array.",
    |args, ctx| {
        let sorted = numbers(args, ctx)?;
        let shares = super::arg(args, 1, ctx)?.and_then(|v| v.as_array());
        let out = arena::build_array(ctx.arena, |w| {
            shares
                .unwrap_or(Doc::EMPTY)
                .values()
                .try_for_each(|p| w.push(&at(&sorted, number::to_f64(p).unwrap_or(0.0))))
        })?;
        Ok(Some(Value::Array(out)))
    },
);

/// The input. The other options are checked by the code of the accumulator.
fn percentile_input(op: &str, operand: Value<'_>, p: &mut Parser<'_>) -> Result<Expr> {
    let mut options = DocBuf::new();
    for e in operand.as_doc().unwrap_or(Doc::EMPTY) {
        // Only here are the variables of the input known.
        match e.name() {
            "input" => options.append("input", Value::Null),
            _ => options.append_elem(e),
        };
    }
    let checked = match operand {
        Value::Document(_) => Value::Document(options.as_doc()),
        v => v,
    };
    accumulators::find(op)?.parse(checked, p.context())?;
    let input = operand.as_doc().and_then(|d| d.get("input"));
    p.parse(input.unwrap_or(Value::Null))
}

/// The numbers of the input, or of its elements if it is an array, sorted.
fn numbers<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Vec<f64>> {
    let mut all = Vec::new();
    each(args.get(..1).unwrap_or_default(), ctx, |v| {
        all.extend(number::to_f64(v).filter(|n| !n.is_nan()));
        Ok(())
    })?;
    ctx.work().sort_by(&mut all, f64::total_cmp)?;
    Ok(all)
}

/// The least number that is not exceeded by at least the share `p` of the numbers.
fn at(sorted: &[f64], p: f64) -> Value<'static> {
    let rank = (p * sorted.len() as f64).ceil() as usize;
    match sorted.get(rank.saturating_sub(1)) {
        Some(n) => Value::Double(*n),
        None => Value::Null,
    }
}

fn extreme<'a>(
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    better: Ordering,
) -> Result<Option<Value<'a>>> {
    let mut best: Option<Value<'a>> = None;
    each(args, ctx, |v| {
        if !v.is_nullish() && best.is_none_or(|b| ctx.cmp(v, b) == better) {
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
                ("{'$stdDevPop': ['$a', 5]}", Gives("0.0")),
                ("{'$stdDevPop': [1, 3]}", Gives("1.0")),
                ("{'$stdDevPop': '$a'}", Gives("0.816496580927726")),
                ("{'$stdDevPop': '$s'}", Gives("null")),
                ("{'$stdDevSamp': '$a'}", Gives("1.0")),
                ("{'$stdDevSamp': 1}", Gives("null")),
                (
                    "{'$median': {'input': '$a', 'method': 'approximate'}}",
                    Gives("2.0"),
                ),
                (
                    "{'$median': {'input': '$s', 'method': 'approximate'}}",
                    Gives("null"),
                ),
                (
                    "{'$percentile': {'input': '$a', 'p': [0, 0.5, 1], 'method': 'approximate'}}",
                    Gives("[1.0, 2.0, 3.0]"),
                ),
                (
                    "{'$percentile': {'input': '$n', 'p': [0.5], 'method': 'approximate'}}",
                    Gives("[null]"),
                ),
                (
                    "{'$percentile': {'input': '$a', 'p': [2], 'method': 'approximate'}}",
                    Fails(7750303),
                ),
                ("{'$median': {'method': 'approximate'}}", Fails(40414)),
            ],
        );
    }
}
