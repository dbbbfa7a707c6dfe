//! `$filter`, `$map`, `$reduce`: evaluate an expression for each element of an array.

use super::{NULL, Named, arg_some, truthy};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, arena, parse};
use muniment_value::{Doc, Error, Result, Value};

/// The specification of `$map`.
pub(super) const MAP: OpSpec = OpSpec::new(
    "$map",
    Arity::Custom(parse_map),
    "The value of `in` for each element, which is the variable `as` (default `this`).",
    |args, ctx| {
        let Some(items) = input("$map", 16883, args, ctx)? else {
            return NULL;
        };
        let out = arena::build_array(ctx.arena, |w| {
            let inner = ctx.bind(None);
            for v in items.values() {
                inner.set(Some(v))?;
                let v = super::arg(args, 1, &inner)?;
                w.push(&v.unwrap_or(Value::Null))?;
            }
            Ok(())
        })?;
        Ok(Some(Value::Array(out)))
    },
);

/// The variable's name.
fn name<'v>(as_: Option<Value<'v>>) -> Result<&'v str> {
    match as_ {
        None => Ok("this"),
        Some(Value::String(s)) => {
            parse::check_user_variable(s)?;
            Ok(s)
        }
        Some(v) => Err(Error::failed_to_parse(format!(
            "the name of a variable must be a string, found {}",
            v.type_name()
        ))),
    }
}

fn parse_map(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let named = Named::read("$map", operand, ["input", "in", "as"], 16878, 16879)?;
    let input = p.parse(named.need(0, 16880)?)?;
    let body = named.need(1, 16882)?;
    let name = name(named.get(2))?;
    Ok(vec![input, p.with_vars(&[name], |p| p.parse(body))?])
}

/// An argument that becomes the value of a variable.
fn variable<'a>(args: &'a [Expr], i: usize, ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    match args.get(i) {
        Some(e) => e.eval_for_variable(ctx),
        None => Ok(None),
    }
}

/// The input array; `None` for null and missing.
fn input<'a>(
    op: &str,
    code: i32,
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
) -> Result<Option<Doc<'a>>> {
    match variable(args, 0, ctx)? {
        None | Some(Value::Null | Value::Undefined) => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(v) => Err(Error::location(
            code,
            format!("input to {op} must be an array not {}", v.type_name()),
        )),
    }
}

/// The specification of `$filter`.
pub(super) const FILTER: OpSpec = OpSpec::new(
    "$filter",
    Arity::Custom(parse_filter),
    "The elements for which `cond` is true, at most `limit`.",
    |args, ctx| {
        let Some(items) = input("$filter", 28651, args, ctx)? else {
            return NULL;
        };
        let limit = match args.get(2) {
            None => usize::MAX,
            Some(_) => match arg_some(args, 2, ctx)? {
                None => usize::MAX,
                Some(v) => {
                    let n = v
                        .as_i64_exact()
                        .and_then(|n| i32::try_from(n).ok())
                        .ok_or_else(|| {
                            Error::location(
                                327391,
                                format!("$filter: limit must be represented as a 32-bit integral value: {}", v.to_display()),
                            )
                        })?;
                    usize::try_from(n).ok().filter(|n| *n > 0).ok_or_else(|| {
                        Error::location(
                            327392,
                            format!("$filter: limit must be greater than 0: {n}"),
                        )
                    })?
                }
            },
        };
        let inner = ctx.bind(None);
        let out = arena::build_array(ctx.arena, |w| {
            for e in items {
                if w.len() >= limit {
                    break;
                }
                inner.set(Some(e.value()))?;
                if truthy(super::arg(args, 1, &inner)?) {
                    w.push(&e)?;
                }
            }
            Ok(())
        })?;
        Ok(Some(Value::Array(out)))
    },
);

fn parse_filter(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let named = Named::read(
        "$filter",
        operand,
        ["input", "cond", "as", "limit"],
        28646,
        28647,
    )?;
    let input = p.parse(named.need(0, 28648)?)?;
    let cond = named.need(1, 28650)?;
    let name = name(named.get(2))?;
    let mut args = vec![input, p.with_vars(&[name], |p| p.parse(cond))?];
    if let Some(limit) = named.get(3) {
        args.push(p.parse(limit)?);
    }
    Ok(args)
}

/// The specification of `$reduce`.
pub(super) const REDUCE: OpSpec = OpSpec::new(
    "$reduce",
    Arity::Custom(parse_reduce),
    "Folds an array: `in` with the variables `value` (so far) and `this` (the element).",
    |args, ctx| {
        let items = match variable(args, 0, ctx)? {
            None | Some(Value::Null | Value::Undefined) => return NULL,
            Some(Value::Array(items)) => items,
            Some(v) => {
                return Err(Error::location(
                    40080,
                    format!(
                        "$reduce requires that 'input' be an array, found: {}",
                        v.to_display()
                    ),
                ));
            }
        };
        let mut value = variable(args, 1, ctx)?;
        let outer = ctx.bind(None);
        let inner = outer.bind(None);
        for v in items.values() {
            outer.set(value)?;
            inner.set(Some(v))?;
            value = variable(args, 2, &inner)?;
        }
        Ok(value)
    },
);

fn parse_reduce(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let Value::Document(d) = operand else {
        return Err(Error::location(
            40075,
            format!(
                "$reduce requires an object as an argument, found: {}",
                operand.type_name()
            ),
        ));
    };
    let (mut input, mut initial, mut body) = (None, None, None);
    for e in d {
        match e.name() {
            "input" => input = Some(p.parse(e.value())?),
            "initialValue" => initial = Some(p.parse(e.value())?),
            "in" => body = Some(p.with_vars(&["value", "this"], |p| p.parse(e.value()))?),
            name => {
                return Err(Error::location(
                    40076,
                    format!("$reduce found an unknown argument: {name}"),
                ));
            }
        }
    }
    [
        (input, "input", 40077),
        (initial, "initialValue", 40078),
        (body, "in", 40079),
    ]
    .into_iter()
    .map(|(e, name, code)| {
        e.ok_or_else(|| Error::location(code, format!("$reduce requires '{name}' to be specified")))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'a': [1, 2, 3], 'n': null, 's': 'x', 'k': 10, 'o': [{'p': 1}, {}]}",
            &[
                (
                    "{'$map': {'input': '$a', 'in': {'$add': ['$$this', '$k']}}}",
                    Gives("[11, 12, 13]"),
                ),
                (
                    "{'$map': {'input': '$o', 'as': 'x', 'in': '$$x.p'}}",
                    Gives("[1, null]"),
                ),
                (
                    "{'$map': {'input': '$a', 'as': 'x', 'in': {'$map': {'input': '$a', 'as': 'y', 'in': {'$multiply': ['$$x', '$$y']}}}}}",
                    Gives("[[1, 2, 3], [2, 4, 6], [3, 6, 9]]"),
                ),
                ("{'$map': {'input': '$n', 'in': 1}}", Gives("null")),
                ("{'$map': {'input': '$s', 'in': 1}}", Fails(16883)),
                ("{'$map': {'in': 1}}", Fails(16880)),
                ("{'$map': {'input': '$a'}}", Fails(16882)),
                ("{'$map': {'input': '$a', 'in': 1, 'z': 1}}", Fails(16879)),
                ("{'$map': 1}", Fails(16878)),
                ("{'$map': {'input': '$a', 'as': 'X', 'in': 1}}", Fails(9)),
                (
                    "{'$filter': {'input': '$a', 'cond': {'$gt': ['$$this', 1]}}}",
                    Gives("[2, 3]"),
                ),
                (
                    "{'$filter': {'input': '$a', 'as': 'x', 'cond': {'$gt': ['$$x', 1]}, 'limit': 1}}",
                    Gives("[2]"),
                ),
                ("{'$filter': {'input': '$n', 'cond': 1}}", Gives("null")),
                ("{'$filter': {'input': '$s', 'cond': 1}}", Fails(28651)),
                (
                    "{'$filter': {'input': '$a', 'cond': 1, 'limit': 0}}",
                    Fails(327392),
                ),
                (
                    "{'$filter': {'input': '$a', 'cond': 1, 'limit': 0.5}}",
                    Fails(327391),
                ),
                ("{'$filter': {'cond': 1}}", Fails(28648)),
                ("{'$filter': {'input': '$a'}}", Fails(28650)),
                ("{'$filter': {'x': 1}}", Fails(28647)),
                ("{'$filter': 1}", Fails(28646)),
                (
                    "{'$reduce': {'input': '$a', 'initialValue': 0, 'in': {'$add': ['$$value', '$$this']}}}",
                    Gives("6"),
                ),
                (
                    "{'$reduce': {'input': [], 'initialValue': '$k', 'in': 1}}",
                    Gives("10"),
                ),
                (
                    "{'$reduce': {'input': '$n', 'initialValue': 0, 'in': 1}}",
                    Gives("null"),
                ),
                (
                    "{'$reduce': {'input': '$s', 'initialValue': 0, 'in': 1}}",
                    Fails(40080),
                ),
                ("{'$reduce': {'initialValue': 0, 'in': 1}}", Fails(40077)),
                ("{'$reduce': {'input': [], 'in': 1}}", Fails(40078)),
                (
                    "{'$reduce': {'input': [], 'initialValue': 0}}",
                    Fails(40079),
                ),
                ("{'$reduce': {'x': 1}}", Fails(40076)),
                ("{'$reduce': 1}", Fails(40075)),
            ],
        );
    }

    #[test]
    fn loops_cannot_hang_or_overflow() {
        let nest =
            "{'$reduce': {'input': {'$range': [0, 100000]}, 'initialValue': 0, 'in': ['$$value']}}";
        check("{}", nest, &Fails(15));
        let r = "{'$range': [0, 1000]}";
        let inner = format!("{{'$filter': {{'input': {r}, 'cond': {{'$eq': ['$$this', '$a']}}}}}}");
        let square = format!("{{'$map': {{'input': {r}, 'in': {inner}}}}}");
        check("{'a': -1}", &square, &Fails(402));
    }
}
