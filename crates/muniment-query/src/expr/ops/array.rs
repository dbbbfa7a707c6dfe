//! `$size`, `$isArray`, `$arrayElemAt`, `$first`, `$last`, `$in`, `$concatArrays`,
//! `$reverseArray`, `$slice`, `$range`, `$indexOfArray`.

use super::{NULL, arg, arg_some, type_name};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, arena};
use muniment_value::{Code, Doc, Error, Result, Value, number};

/// The specification of `$size`.
pub(super) const SIZE: OpSpec = OpSpec::new(
    "$size",
    Arity::Exactly(1),
    "The number of elements of an array.",
    |args, ctx| match arg(args, 0, ctx)? {
        Some(Value::Array(items)) => Ok(Some(number::narrow(items.count() as i64))),
        v => Err(Error::location(
            17124,
            format!(
                "The argument to $size must be an array, but was of type: {}",
                type_name(v)
            ),
        )),
    },
);

/// The specification of `$isArray`.
pub(super) const IS_ARRAY: OpSpec = OpSpec::new(
    "$isArray",
    Arity::Exactly(1),
    "Whether the operand is an array.",
    |args, ctx| {
        let v = arg(args, 0, ctx)?;
        Ok(Some(Value::Bool(matches!(v, Some(Value::Array(_))))))
    },
);

/// A number that fits an int32.
fn int32(v: Value<'_>) -> Option<i64> {
    number::to_i64_exact(v).filter(|n| i32::try_from(*n).is_ok())
}

/// The element at an index; a negative one counts from the end.
fn at<'a>(items: Doc<'a>, index: i64) -> Option<Value<'a>> {
    let index = if index < 0 {
        index + items.count() as i64
    } else {
        index
    };
    items.values().nth(usize::try_from(index).ok()?)
}

/// The specification of `$arrayElemAt`.
pub(super) const ARRAY_ELEM_AT: OpSpec = OpSpec::new(
    "$arrayElemAt",
    Arity::Exactly(2),
    "The element at an index; a negative one counts from the end. Missing beyond the ends.",
    |args, ctx| {
        let (Some(array), Some(index)) = (arg_some(args, 0, ctx)?, arg_some(args, 1, ctx)?) else {
            return NULL;
        };
        let Value::Array(items) = array else {
            return Err(Error::location(
                28689,
                format!(
                    "$arrayElemAt's first argument must be an array, but is {}",
                    array.type_name()
                ),
            ));
        };
        if !index.is_number() {
            return Err(Error::location(
                28690,
                format!(
                    "$arrayElemAt's second argument must be a numeric value, but is {}",
                    index.type_name()
                ),
            ));
        }
        let index = int32(index).ok_or_else(|| {
            Error::location(
                28691,
                format!(
                    "$arrayElemAt's second argument must be representable as a 32-bit integer: {}",
                    index.to_display()
                ),
            )
        })?;
        Ok(at(items, index))
    },
);

fn end<'a>(
    op: &str,
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    index: i64,
) -> Result<Option<Value<'a>>> {
    match arg_some(args, 0, ctx)? {
        None => NULL,
        Some(Value::Array(items)) => Ok(at(items, index)),
        Some(v) => Err(Error::location(
            28689,
            format!("{op}'s argument must be an array, but is {}", v.type_name()),
        )),
    }
}

/// The specification of `$first`.
pub(super) const FIRST: OpSpec = OpSpec::new(
    "$first",
    Arity::Exactly(1),
    "The first element of an array.",
    |args, ctx| end("$first", args, ctx, 0),
);

/// The specification of `$last`.
pub(super) const LAST: OpSpec = OpSpec::new(
    "$last",
    Arity::Exactly(1),
    "The last element of an array.",
    |args, ctx| end("$last", args, ctx, -1),
);

/// The specification of `$in`.
pub(super) const IN: OpSpec = OpSpec::new(
    "$in",
    Arity::Exactly(2),
    "Whether an array has an element equal to the first operand.",
    |args, ctx| {
        let wanted = arg(args, 0, ctx)?;
        match arg(args, 1, ctx)? {
            Some(Value::Array(items)) => Ok(Some(Value::Bool(
                wanted.is_some_and(|w| items.values().any(|v| ctx.equal(v, w))),
            ))),
            v => Err(Error::location(
                40081,
                format!(
                    "$in requires an array as a second argument, found: {}",
                    type_name(v)
                ),
            )),
        }
    },
);

/// The specification of `$concatArrays`.
pub(super) const CONCAT_ARRAYS: OpSpec = OpSpec::new(
    "$concatArrays",
    Arity::Any,
    "Arrays joined; null if one is null.",
    |args, ctx| {
        let mut arrays = Vec::with_capacity(args.len());
        for e in args {
            match e.eval(ctx)? {
                None | Some(Value::Null | Value::Undefined) => return NULL,
                Some(Value::Array(items)) => arrays.push(items),
                Some(v) => {
                    return Err(Error::location(
                        28664,
                        format!("$concatArrays only supports arrays, not {}", v.type_name()),
                    ));
                }
            }
        }
        let all = arena::build_array(ctx.arena, |w| {
            arrays
                .iter()
                .flat_map(Doc::iter)
                .try_for_each(|e| w.push(&e))
        })?;
        Ok(Some(Value::Array(all)))
    },
);

/// The specification of `$reverseArray`.
pub(super) const REVERSE_ARRAY: OpSpec = OpSpec::new(
    "$reverseArray",
    Arity::Exactly(1),
    "The elements in reverse order.",
    |args, ctx| match arg_some(args, 0, ctx)? {
        None => NULL,
        Some(Value::Array(items)) => {
            let mut elems: Vec<_> = items.iter().collect();
            elems.reverse();
            let out = arena::build_array(ctx.arena, |w| elems.iter().try_for_each(|e| w.push(e)))?;
            Ok(Some(Value::Array(out)))
        }
        Some(v) => Err(Error::location(
            34435,
            format!(
                "The argument to $reverseArray must be an array, but was of type: {}",
                v.type_name()
            ),
        )),
    },
);

/// The specification of `$slice`.
pub(super) const SLICE: OpSpec = OpSpec::new(
    "$slice",
    Arity::Range(2, 3),
    "The first (or, negative, last) n elements; or n elements from a position.",
    |args, ctx| {
        let Some(array) = arg_some(args, 0, ctx)? else {
            return NULL;
        };
        // A null count decides the result before the array is checked.
        if arg_some(args, 1, ctx)?.is_none() {
            return NULL;
        }
        let Value::Array(items) = array else {
            return Err(Error::location(
                28724,
                format!(
                    "First argument to $slice must be an array, but is of type: {}",
                    array.type_name()
                ),
            ));
        };
        let number = |i, codes: [i32; 2], which: &str| -> Result<Option<i64>> {
            let Some(v) = arg_some(args, i, ctx)? else {
                return Ok(None);
            };
            if !v.is_number() {
                return Err(Error::location(
                    codes[0],
                    format!(
                        "{which} argument to $slice must be a numeric value, but is of type: {}",
                        v.type_name()
                    ),
                ));
            }
            int32(v).map(Some).ok_or_else(|| {
                Error::location(
                    codes[1],
                    format!(
                        "{which} argument to $slice can't be represented as a 32-bit integer: {}",
                        v.to_display()
                    ),
                )
            })
        };
        let Some(second) = number(1, [28725, 28726], "Second")? else {
            return NULL;
        };
        let count = items.count() as i64;
        let (from, n) = if args.len() < 3 {
            match second {
                n if n < 0 => ((count + n).max(0), -n),
                n => (0, n),
            }
        } else {
            let Some(n) = number(2, [28727, 28728], "Third")? else {
                return NULL;
            };
            if n <= 0 {
                return Err(Error::location(
                    28729,
                    format!("Third argument to $slice must be positive: {n}"),
                ));
            }
            let from = if second < 0 {
                (count + second).max(0)
            } else {
                second
            };
            (from, n)
        };
        let out = arena::build_array(ctx.arena, |w| {
            items
                .iter()
                .skip(from as usize)
                .take(n as usize)
                .try_for_each(|e| w.push(&e))
        })?;
        Ok(Some(Value::Array(out)))
    },
);

/// The most bytes that `$range` may use, which is MongoDB's limit.
const MAX_RANGE: i64 = 100 << 20;

/// The specification of `$range`.
pub(super) const RANGE: OpSpec = OpSpec::new(
    "$range",
    Arity::Range(2, 3),
    "Whole numbers from a start up to (not including) an end, by a step.",
    |args, ctx| {
        let number = |i, codes: [i32; 2], what: &str| -> Result<i64> {
            let v = arg(args, i, ctx)?;
            let Some(n) = v.filter(Value::is_number) else {
                return Err(Error::location(
                    codes[0],
                    format!(
                        "$range requires a numeric {what} value, found value of type: {}",
                        type_name(v)
                    ),
                ));
            };
            int32(n).ok_or_else(|| {
                Error::location(
                    codes[1],
                    format!("$range requires a {what} value that can be represented as a 32-bit integer, found value: {}", n.to_display()),
                )
            })
        };
        let start = number(0, [34443, 34444], "starting")?;
        let end = number(1, [34445, 34446], "ending")?;
        let step = match args.len() {
            2 => 1,
            _ => number(2, [34447, 34448], "step")?,
        };
        if step == 0 {
            return Err(Error::location(
                34449,
                "$range requires a non-zero step value",
            ));
        }
        let n = (end - start + step - step.signum()) / step;
        if n.saturating_mul(16) > MAX_RANGE {
            return Err(Error::new(
                Code::ExceededMemoryLimit,
                format!(
                    "$range would use too much memory ({} bytes) and cannot spill to disk. Memory limit: {MAX_RANGE} bytes",
                    n.saturating_mul(16)
                ),
            ));
        }
        let out = arena::build_array(ctx.arena, |w| {
            (0..n.max(0)).try_for_each(|i| w.push(&((start + i * step) as i32)))
        })?;
        Ok(Some(Value::Array(out)))
    },
);

/// The specification of `$indexOfArray`.
pub(super) const INDEX_OF_ARRAY: OpSpec = OpSpec::new(
    "$indexOfArray",
    Arity::Range(2, 4),
    "The index of the first equal element between two positions, or -1.",
    |args, ctx| {
        let items = match arg_some(args, 0, ctx)? {
            None => return NULL,
            Some(Value::Array(items)) => items,
            Some(v) => {
                return Err(Error::location(
                    40090,
                    format!(
                        "$indexOfArray requires an array as a first argument, found: {}",
                        v.type_name()
                    ),
                ));
            }
        };
        let wanted = arg(args, 1, ctx)?;
        let bound = |i, default: usize| -> Result<usize> {
            if args.len() <= i {
                return Ok(default);
            }
            let v = arg(args, i, ctx)?;
            let n = v.and_then(int32).ok_or_else(|| {
                Error::location(
                    9711600,
                    format!("$indexOfArray requires an integral index, found a value of type: {}, with value: {}", type_name(v), v.unwrap_or(Value::Null).to_display()),
                )
            })?;
            usize::try_from(n).map_err(|_| {
                Error::location(
                    9711601,
                    format!("$indexOfArray requires a nonnegative index, found: {n}"),
                )
            })
        };
        let (from, to) = (bound(2, 0)?, bound(3, usize::MAX)?);
        let found = items
            .values()
            .enumerate()
            .take(to)
            .skip(from)
            .find(|(_, v)| wanted.is_some_and(|w| ctx.equal(*v, w)));
        Ok(Some(Value::Int32(found.map_or(-1, |(i, _)| i as i32))))
    },
);

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'a': [1, 2, 3], 'n': null, 's': 'x', 'e': [], 'aa': [[1], [2]]}",
            &[
                ("{'$size': '$a'}", Gives("3")),
                ("{'$size': '$s'}", Fails(17124)),
                ("{'$size': '$missing'}", Fails(17124)),
                ("{'$isArray': '$a'}", Gives("true")),
                ("{'$isArray': ['$a']}", Gives("true")),
                ("{'$isArray': '$s'}", Gives("false")),
                ("{'$isArray': [[1]]}", Gives("true")),
                ("{'$arrayElemAt': ['$a', 0]}", Gives("1")),
                ("{'$arrayElemAt': ['$a', -1]}", Gives("3")),
                ("{'$arrayElemAt': ['$a', 5]}", Missing),
                ("{'$arrayElemAt': ['$a', -5]}", Missing),
                ("{'$arrayElemAt': ['$a', 1.0]}", Gives("2")),
                ("{'$arrayElemAt': ['$n', 1]}", Gives("null")),
                ("{'$arrayElemAt': ['$s', 1]}", Fails(28689)),
                ("{'$arrayElemAt': ['$a', 'x']}", Fails(28690)),
                ("{'$arrayElemAt': ['$a', 1.5]}", Fails(28691)),
                ("{'$first': '$a'}", Gives("1")),
                ("{'$last': '$a'}", Gives("3")),
                ("{'$first': '$e'}", Missing),
                ("{'$last': '$n'}", Gives("null")),
                ("{'$first': '$s'}", Fails(28689)),
                ("{'$in': [2.0, '$a']}", Gives("true")),
                ("{'$in': [9, '$a']}", Gives("false")),
                ("{'$in': [[2], '$aa']}", Gives("true")),
                ("{'$in': [1, '$s']}", Fails(40081)),
                (
                    "{'$concatArrays': ['$a', [4], '$e']}",
                    Gives("[1, 2, 3, 4]"),
                ),
                ("{'$concatArrays': ['$a', '$n']}", Gives("null")),
                ("{'$concatArrays': ['$a', '$s']}", Fails(28664)),
                ("{'$reverseArray': '$a'}", Gives("[3, 2, 1]")),
                ("{'$reverseArray': '$s'}", Fails(34435)),
                ("{'$slice': ['$a', 2]}", Gives("[1, 2]")),
                ("{'$slice': ['$a', -2]}", Gives("[2, 3]")),
                ("{'$slice': ['$a', -9]}", Gives("[1, 2, 3]")),
                ("{'$slice': ['$a', 1, 1]}", Gives("[2]")),
                ("{'$slice': ['$a', -2, 1]}", Gives("[2]")),
                ("{'$slice': ['$a', 9, 1]}", Gives("[]")),
                ("{'$slice': ['$n', 1]}", Gives("null")),
                ("{'$slice': ['$s', 1]}", Fails(28724)),
                ("{'$slice': ['$a', 'x']}", Fails(28725)),
                ("{'$slice': ['$a', 1.5]}", Fails(28726)),
                ("{'$slice': ['$a', 1, 'x']}", Fails(28727)),
                ("{'$slice': ['$a', 1, 0]}", Fails(28729)),
                ("{'$slice': ['$a']}", Fails(28667)),
                ("{'$range': [0, 3]}", Gives("[0, 1, 2]")),
                ("{'$range': [0, 7, 3]}", Gives("[0, 3, 6]")),
                ("{'$range': [0, 6, 3]}", Gives("[0, 3]")),
                ("{'$range': [3, 0, -2]}", Gives("[3, 1]")),
                ("{'$range': [3, 0]}", Gives("[]")),
                ("{'$range': [0, 3, -1]}", Gives("[]")),
                ("{'$range': [0, 2147483647]}", Fails(146)),
                ("{'$range': ['x', 3]}", Fails(34443)),
                ("{'$range': [0.5, 3]}", Fails(34444)),
                ("{'$range': [0, 'x']}", Fails(34445)),
                ("{'$range': [0, 3, 0]}", Fails(34449)),
                ("{'$indexOfArray': ['$a', 2]}", Gives("1")),
                ("{'$indexOfArray': ['$a', 2, 2]}", Gives("-1")),
                ("{'$indexOfArray': ['$a', 3, 0, 2]}", Gives("-1")),
                ("{'$indexOfArray': ['$n', 3]}", Gives("null")),
                ("{'$indexOfArray': ['$s', 3]}", Fails(40090)),
                ("{'$indexOfArray': ['$a', 3, -1]}", Fails(9711601)),
            ],
        );
    }
}
