//! `$firstN`, `$lastN`, `$maxN`, `$minN` for an array.

use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, arena};
use muniment_value::{Error, Result, Value, number};
use std::cmp::Ordering;

/// The specification of `$firstN`.
pub(super) const FIRST_N: OpSpec = OpSpec::new(
    "$firstN",
    Arity::Custom(|v, p| parse("$firstN", v, p)),
    "The first elements of an array.",
    |args, ctx| eval(args, ctx, Which::First),
);

/// The specification of `$lastN`.
pub(super) const LAST_N: OpSpec = OpSpec::new(
    "$lastN",
    Arity::Custom(|v, p| parse("$lastN", v, p)),
    "The last elements of an array.",
    |args, ctx| eval(args, ctx, Which::Last),
);

/// The specification of `$maxN`.
pub(super) const MAX_N: OpSpec = OpSpec::new(
    "$maxN",
    Arity::Custom(|v, p| parse("$maxN", v, p)),
    "The greatest elements of an array, greatest first.",
    |args, ctx| eval(args, ctx, Which::Best(Ordering::Greater)),
);

/// The specification of `$minN`.
pub(super) const MIN_N: OpSpec = OpSpec::new(
    "$minN",
    Arity::Custom(|v, p| parse("$minN", v, p)),
    "The least elements of an array, least first.",
    |args, ctx| eval(args, ctx, Which::Best(Ordering::Less)),
);

#[derive(Clone, Copy)]
enum Which {
    First,
    Last,
    /// Those that compare in this way with the others. Nulls do not count.
    Best(Ordering),
}

/// The operand's fields as arguments: n, input.
fn parse(op: &str, operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let Value::Document(d) = operand else {
        return Err(Error::location(
            5787900,
            format!(
                "specification must be an object; found {op}: {}",
                operand.to_display()
            ),
        ));
    };
    let (mut n, mut input) = (None, None);
    for e in d {
        match e.name() {
            "n" => n = Some(p.parse(e.value())?),
            "input" => input = Some(p.parse(e.value())?),
            name => {
                return Err(Error::location(
                    5787901,
                    format!("Unknown argument for 'n' operator: {name}"),
                ));
            }
        }
    }
    let need = |e: Option<Expr>, code, name: &str| {
        e.ok_or_else(|| Error::location(code, format!("Missing value for '{name}'")))
    };
    Ok(vec![need(n, 5787906, "n")?, need(input, 5787907, "input")?])
}

fn eval<'a>(args: &'a [Expr], ctx: &EvalContext<'a>, which: Which) -> Result<Option<Value<'a>>> {
    let n = super::arg(args, 0, ctx)?.unwrap_or(Value::Null);
    if !n.is_number() {
        return Err(Error::location(
            5787902,
            format!(
                "Value for 'n' must be of integral type, but found {}",
                n.to_display()
            ),
        ));
    }
    let whole = number::to_i64_exact(n).ok_or_else(|| {
        Error::location(
            5787903,
            format!(
                "Value for 'n' must be of integral type, but found {}",
                n.to_display()
            ),
        )
    })?;
    if whole <= 0 {
        return Err(Error::location(
            5787908,
            format!("'n' must be greater than 0, found {whole}"),
        ));
    }
    let n = usize::try_from(whole).unwrap_or(usize::MAX);
    let Some(Value::Array(items)) = super::arg(args, 1, ctx)? else {
        return Err(Error::location(5788200, "Input must be an array"));
    };
    let out = arena::build_array(ctx.arena, |w| match which {
        Which::First => items.iter().take(n).try_for_each(|e| w.push(&e)),
        Which::Last => {
            let skipped = items.count().saturating_sub(n);
            items.iter().skip(skipped).try_for_each(|e| w.push(&e))
        }
        Which::Best(wanted) => {
            let mut all: Vec<Value<'a>> = items.values().filter(|v| !v.is_nullish()).collect();
            ctx.work().sort_by(&mut all, |a, b| match wanted {
                Ordering::Greater => ctx.cmp(*b, *a),
                _ => ctx.cmp(*a, *b),
            })?;
            all.iter().take(n).try_for_each(|v| w.push(v))
        }
    })?;
    Ok(Some(Value::Array(out)))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'a': [3, 1, null, 2, 2], 's': 'x', 'n': null, 'k': 2}",
            &[
                ("{'$firstN': {'n': '$k', 'input': '$a'}}", Gives("[3, 1]")),
                (
                    "{'$firstN': {'n': 9, 'input': '$a'}}",
                    Gives("[3, 1, null, 2, 2]"),
                ),
                ("{'$lastN': {'n': 3, 'input': '$a'}}", Gives("[null, 2, 2]")),
                ("{'$maxN': {'n': 3, 'input': '$a'}}", Gives("[3, 2, 2]")),
                ("{'$minN': {'n': 2.0, 'input': '$a'}}", Gives("[1, 2]")),
                ("{'$minN': {'n': 2, 'input': []}}", Gives("[]")),
                ("{'$minN': {'n': 2, 'input': '$n'}}", Fails(5788200)),
                ("{'$maxN': {'n': 2, 'input': '$s'}}", Fails(5788200)),
                ("{'$maxN': {'n': '$s', 'input': '$a'}}", Fails(5787902)),
                ("{'$maxN': {'n': 1.5, 'input': '$a'}}", Fails(5787903)),
                ("{'$maxN': {'n': 0, 'input': '$a'}}", Fails(5787908)),
                ("{'$maxN': {'input': '$a'}}", Fails(5787906)),
                ("{'$maxN': {'n': 1}}", Fails(5787907)),
                ("{'$maxN': {'n': 1, 'x': 1}}", Fails(5787901)),
                ("{'$maxN': 1}", Fails(5787900)),
            ],
        );
    }
}
