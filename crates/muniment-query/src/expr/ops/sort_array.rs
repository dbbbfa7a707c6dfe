//! `$sortArray`: sorts the elements of an array.

use super::{NULL, arg_some};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, arena};
use muniment_value::path::Path;
use muniment_value::{Error, Result, Value, number};
use std::cmp::Ordering;

/// The specification of `$sortArray`. Arguments: the input, the order (a constant).
pub(super) const SPEC: OpSpec = OpSpec::new(
    "$sortArray",
    Arity::Custom(parse),
    "An array sorted, by whole elements (1 or -1) or by fields of them.",
    eval,
);

fn parse(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let Value::Document(d) = operand else {
        return Err(Error::location(
            2942500,
            format!(
                "$sortArray requires an object as an argument, found: {}",
                operand.type_name()
            ),
        ));
    };
    let (mut input, mut order) = (None, None);
    for e in d {
        match e.name() {
            "input" => input = Some(p.parse(e.value())?),
            "sortBy" => order = Some(e.value()),
            name => {
                return Err(Error::location(
                    2942501,
                    format!("$sortArray found an unknown argument: {name}"),
                ));
            }
        }
    }
    let input = input
        .ok_or_else(|| Error::location(2942502, "$sortArray requires 'input' to be specified"))?;
    let order = order
        .ok_or_else(|| Error::location(2942503, "$sortArray requires 'sortBy' to be specified"))?;
    check(order)?;
    Ok(vec![input, Expr::constant(order)])
}

/// Whether a direction is descending; `None` if it is not a valid direction.
fn descending(v: Value<'_>) -> Option<bool> {
    match number::to_i64_exact(v) {
        Some(1) => Some(false),
        Some(-1) => Some(true),
        _ => None,
    }
}

fn check(order: Value<'_>) -> Result<()> {
    let bad = |code, what: &str| Err(Error::location(code, what.to_owned()));
    match order {
        Value::Document(d) => {
            if d.is_empty() {
                return bad(
                    2942505,
                    "The $sort pattern is empty when it should be a set of fields.",
                );
            }
            for f in d {
                if descending(f.value()).is_none() {
                    return bad(2942505, "The $sort element value must be either 1 or -1");
                }
                if f.name().is_empty() {
                    return bad(2942505, "The $sort field cannot be empty");
                }
                if f.name().split('.').any(str::is_empty) {
                    return Err(Error::location(
                        2942505,
                        format!(
                            "The $sort field is a dotted field but has an empty part: {}",
                            f.name()
                        ),
                    ));
                }
            }
            Ok(())
        }
        v if v.is_number() => match descending(v) {
            Some(_) => Ok(()),
            None => bad(2942506, "The $sort element value must be either 1 or -1"),
        },
        _ => bad(
            2942507,
            "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields",
        ),
    }
}

fn eval<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let items = match arg_some(args, 0, ctx)? {
        None => return NULL,
        Some(Value::Array(items)) => items,
        Some(v) => {
            return Err(Error::location(
                2942504,
                format!(
                    "The input argument to $sortArray must be an array, but was of type: {}",
                    v.type_name()
                ),
            ));
        }
    };
    let turn = |o: Ordering, descending: bool| if descending { o.reverse() } else { o };
    let mut all: Vec<Value<'a>> = items.values().collect();
    match args.get(1).and_then(Expr::as_constant) {
        Some(Value::Document(d)) => {
            let fields: Vec<(Path, bool)> = d
                .iter()
                .map(|f| (Path::new(f.name()), descending(f.value()) == Some(true)))
                .collect();
            ctx.work().sort_by(&mut all, |a, b| {
                fields
                    .iter()
                    .map(|(path, down)| turn(ctx.cmp(key(*a, path), key(*b, path)), *down))
                    .find(|o| o.is_ne())
                    .unwrap_or(Ordering::Equal)
            })?;
        }
        order => {
            let down = order.and_then(descending) == Some(true);
            ctx.work()
                .sort_by(&mut all, |a, b| turn(ctx.cmp(*a, *b), down))?;
        }
    }
    let out = arena::build_array(ctx.arena, |w| all.iter().try_for_each(|v| w.push(v)))?;
    Ok(Some(Value::Array(out)))
}

/// The sort key of an element: its field, or null if it has none.
fn key<'a>(v: Value<'a>, path: &Path) -> Value<'a> {
    match v {
        Value::Document(d) => path.get_exact(d).unwrap_or(Value::Null),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'a': [3, 1, 'x', null, 2.5], 'n': null, 's': 'x', 'o': [{'k': 2, 'n': {'m': 1}}, {'k': 1}, 7]}",
            &[
                (
                    "{'$sortArray': {'input': '$a', 'sortBy': 1}}",
                    Gives("[null, 1, 2.5, 3, 'x']"),
                ),
                (
                    "{'$sortArray': {'input': '$a', 'sortBy': -1.0}}",
                    Gives("['x', 3, 2.5, 1, null]"),
                ),
                (
                    "{'$sortArray': {'input': '$o', 'sortBy': {'k': 1}}}",
                    Gives("[7, {'k': 1}, {'k': 2, 'n': {'m': 1}}]"),
                ),
                (
                    "{'$sortArray': {'input': '$o', 'sortBy': {'n.m': -1, 'k': -1}}}",
                    Gives("[{'k': 2, 'n': {'m': 1}}, {'k': 1}, 7]"),
                ),
                (
                    "{'$sortArray': {'input': '$n', 'sortBy': 1}}",
                    Gives("null"),
                ),
                ("{'$sortArray': 1}", Fails(2942500)),
                (
                    "{'$sortArray': {'input': '$a', 'sortBy': 1, 'x': 1}}",
                    Fails(2942501),
                ),
                ("{'$sortArray': {'sortBy': 1}}", Fails(2942502)),
                ("{'$sortArray': {'input': '$a'}}", Fails(2942503)),
                (
                    "{'$sortArray': {'input': '$s', 'sortBy': 1}}",
                    Fails(2942504),
                ),
                (
                    "{'$sortArray': {'input': '$a', 'sortBy': {'a': 2}}}",
                    Fails(2942505),
                ),
                (
                    "{'$sortArray': {'input': '$a', 'sortBy': 2}}",
                    Fails(2942506),
                ),
                (
                    "{'$sortArray': {'input': '$a', 'sortBy': 'k'}}",
                    Fails(2942507),
                ),
            ],
        );
    }
}
