//! Sets: arrays without regard to order and repetition. Results are in canonical order, except for
//! `$setDifference`, which keeps the order of the first operand.

use super::{NULL, arg, arg_some, type_name};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, arena};
use muniment_value::{Doc, Error, Result, Value};

/// The specification of `$setUnion`.
pub(super) const UNION: OpSpec = OpSpec::new(
    "$setUnion",
    Arity::Any,
    "The elements of any of the arrays.",
    |args, ctx| {
        let mut all = Vec::new();
        // Constants come last, as in MongoDB's optimizer: a null among the others decides before the
        // constants are checked.
        let (constants, others): (Vec<_>, Vec<_>) = args.iter().partition(|e| e.is_constant());
        for e in others.into_iter().chain(constants) {
            match operand("$setUnion", 17043, e.eval(ctx)?)? {
                None => return NULL,
                Some(items) => all.extend(items.values()),
            }
        }
        array(sorted(all, ctx)?, ctx)
    },
);

/// The specification of `$setIntersection`.
pub(super) const INTERSECTION: OpSpec = OpSpec::new(
    "$setIntersection",
    Arity::Any,
    "The elements that all arrays have.",
    |args, ctx| {
        let mut common: Option<Vec<Value<'_>>> = None;
        for e in args {
            let Some(items) = operand("$setIntersection", 17047, e.eval(ctx)?)? else {
                return NULL;
            };
            let set = sorted(items.values().collect(), ctx)?;
            common = Some(match common {
                None => set,
                Some(c) => both_have(&c, &set, ctx)?,
            });
        }
        array(common.unwrap_or_default(), ctx)
    },
);

/// The specification of `$setDifference`.
pub(super) const DIFFERENCE: OpSpec = OpSpec::new(
    "$setDifference",
    Arity::Exactly(2),
    "The elements of the first array that the second has not.",
    |args, ctx| {
        let (Some(a), Some(b)) = (arg_some(args, 0, ctx)?, arg_some(args, 1, ctx)?) else {
            return NULL;
        };
        let a = both("$setDifference", "First", 17048, a)?;
        let b = both("$setDifference", "Second", 17049, b)?;
        let excluded = sorted(b.values().collect(), ctx)?;
        let mut left: Vec<(usize, Value<'_>)> = Vec::new();
        for (at, v) in a.values().enumerate() {
            ctx.work().steps(32)?;
            if !has(&excluded, v, ctx) {
                left.push((at, v));
            }
        }
        // The first of several equal elements stays at its position.
        ctx.work().sort_by(&mut left, |x, y| ctx.cmp(x.1, y.1))?;
        left.dedup_by(|x, y| ctx.equal(x.1, y.1));
        ctx.work().sort_by(&mut left, |x, y| x.0.cmp(&y.0))?;
        let out = arena::build_array(ctx.arena, |w| left.iter().try_for_each(|(_, v)| w.push(v)))?;
        Ok(Some(Value::Array(out)))
    },
);

/// The specification of `$setEquals`.
pub(super) const EQUALS: OpSpec = OpSpec::new(
    "$setEquals",
    Arity::Any,
    "Whether all arrays have the same elements.",
    |args, ctx| {
        if args.len() < 2 {
            return Err(Error::location(
                17045,
                format!(
                    "$setEquals needs at least two arguments had: {}",
                    args.len()
                ),
            ));
        }
        let mut first: Option<Vec<Value<'_>>> = None;
        let mut equal = true;
        for e in args {
            let v = e.eval(ctx)?;
            let Some(Value::Array(items)) = v else {
                return Err(Error::location(
                    // The optimizer refuses a constant, with a code of its own.
                    if e.is_constant() { 5887502 } else { 17044 },
                    format!(
                        "All operands of $setEquals must be arrays. One argument is of type: {}",
                        type_name(v)
                    ),
                ));
            };
            let set = sorted(items.values().collect(), ctx)?;
            match &first {
                None => first = Some(set),
                Some(f) => {
                    let pairs = || f.iter().zip(&set);
                    equal &= f.len() == set.len() && pairs().all(|(x, y)| ctx.equal(*x, *y));
                }
            }
        }
        Ok(Some(Value::Bool(equal)))
    },
);

/// The specification of `$setIsSubset`.
pub(super) const IS_SUBSET: OpSpec = OpSpec::new(
    "$setIsSubset",
    Arity::Exactly(2),
    "Whether the second array has all elements of the first.",
    |args, ctx| {
        let get = |i, which, code| {
            let v = arg(args, i, ctx)?;
            both("$setIsSubset", which, code, v.unwrap_or(Value::Null))
        };
        let (a, b) = (get(0, "First", 17046)?, get(1, "Second", 17042)?);
        let set = sorted(b.values().collect(), ctx)?;
        for v in a.values() {
            ctx.work().steps(32)?;
            if !has(&set, v, ctx) {
                return Ok(Some(Value::Bool(false)));
            }
        }
        Ok(Some(Value::Bool(true)))
    },
);

/// The specification of `$allElementsTrue`.
pub(super) const ALL_TRUE: OpSpec = OpSpec::new(
    "$allElementsTrue",
    Arity::Exactly(1),
    "Whether every element is true.",
    |args, ctx| {
        let items = elements("$allElementsTrue", 17040, args, ctx)?;
        Ok(Some(Value::Bool(items.values().all(|v| v.truthy()))))
    },
);

/// The specification of `$anyElementTrue`.
pub(super) const ANY_TRUE: OpSpec = OpSpec::new(
    "$anyElementTrue",
    Arity::Exactly(1),
    "Whether some element is true.",
    |args, ctx| {
        let items = elements("$anyElementTrue", 17041, args, ctx)?;
        Ok(Some(Value::Bool(items.values().any(|v| v.truthy()))))
    },
);

fn elements<'a>(op: &str, code: i32, args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Doc<'a>> {
    match arg(args, 0, ctx)? {
        Some(Value::Array(items)) => Ok(items),
        v => Err(Error::location(
            code,
            format!("{op}'s argument must be an array, but is {}", type_name(v)),
        )),
    }
}

fn operand<'a>(op: &str, code: i32, v: Option<Value<'a>>) -> Result<Option<Doc<'a>>> {
    match v {
        None | Some(Value::Null | Value::Undefined) => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(v) => Err(Error::location(
            code,
            format!(
                "All operands of {op} must be arrays. One argument is of type: {}",
                v.type_name()
            ),
        )),
    }
}

fn both<'a>(op: &str, which: &str, code: i32, v: Value<'a>) -> Result<Doc<'a>> {
    v.as_array().ok_or_else(|| {
        Error::location(
            code,
            format!(
                "both operands of {op} must be arrays. {which} argument is of type: {}",
                v.type_name()
            ),
        )
    })
}

fn sorted<'a>(mut values: Vec<Value<'a>>, ctx: &EvalContext<'_>) -> Result<Vec<Value<'a>>> {
    ctx.work().sort_by(&mut values, |a, b| ctx.cmp(*a, *b))?;
    values.dedup_by(|a, b| ctx.equal(*a, *b));
    Ok(values)
}

/// The elements that are in both of two sorted lists.
fn both_have<'a>(
    list: &[Value<'a>],
    set: &[Value<'_>],
    ctx: &EvalContext<'_>,
) -> Result<Vec<Value<'a>>> {
    let mut out = Vec::new();
    for v in list {
        ctx.work().steps(32)?;
        if has(set, *v, ctx) {
            out.push(*v);
        }
    }
    Ok(out)
}

fn has(set: &[Value<'_>], v: Value<'_>, ctx: &EvalContext<'_>) -> bool {
    set.binary_search_by(|x| ctx.cmp(*x, v)).is_ok()
}

fn array<'a>(values: Vec<Value<'a>>, ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let out = arena::build_array(ctx.arena, |w| values.iter().try_for_each(|v| w.push(v)))?;
    Ok(Some(Value::Array(out)))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'a': [3, 1, 2, 1], 'b': [2, 4], 'n': null, 's': 'x', 'e': []}",
            &[
                ("{'$setUnion': ['$a', '$b']}", Gives("[1, 2, 3, 4]")),
                ("{'$setUnion': ['$a', '$n']}", Gives("null")),
                ("{'$setUnion': ['$s']}", Fails(17043)),
                ("{'$setUnion': ['x', '$missing']}", Gives("null")),
                ("{'$setIntersection': ['$a', '$b']}", Gives("[2]")),
                ("{'$setIntersection': []}", Gives("[]")),
                ("{'$setIntersection': ['$s']}", Fails(17047)),
                ("{'$setDifference': ['$a', '$b']}", Gives("[3, 1]")),
                ("{'$setDifference': ['$a', '$n']}", Gives("null")),
                ("{'$setDifference': ['$s', '$a']}", Fails(17048)),
                ("{'$setDifference': ['$a', '$s']}", Fails(17049)),
                ("{'$setEquals': ['$a', [1, 2, 3.0]]}", Gives("true")),
                ("{'$setEquals': ['$a', '$b']}", Gives("false")),
                ("{'$setEquals': ['$a', '$n']}", Fails(17044)),
                ("{'$setEquals': ['$a', null]}", Fails(5887502)),
                ("{'$setEquals': ['$a']}", Fails(17045)),
                ("{'$setIsSubset': [[1, 2], '$a']}", Gives("true")),
                ("{'$setIsSubset': ['$a', [1, 2]]}", Gives("false")),
                ("{'$setIsSubset': ['$s', '$a']}", Fails(17046)),
                ("{'$setIsSubset': ['$a', '$s']}", Fails(17042)),
                ("{'$allElementsTrue': '$a'}", Gives("true")),
                ("{'$allElementsTrue': [[0, 1]]}", Gives("false")),
                ("{'$allElementsTrue': '$s'}", Fails(17040)),
                ("{'$anyElementTrue': [[0, 1]]}", Gives("true")),
                ("{'$anyElementTrue': '$e'}", Gives("false")),
                ("{'$anyElementTrue': '$n'}", Fails(17041)),
            ],
        );
    }
}
