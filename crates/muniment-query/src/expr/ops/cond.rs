//! `$cond`, `$ifNull`, `$switch`: only the branch that is taken is evaluated.

use super::{Named, arg, truthy};
use crate::expr::{Arity, Expr, OpSpec, Parser};
use muniment_value::{Error, Result, Value};

/// The specification of `$cond`.
pub(super) const COND: OpSpec = OpSpec::new(
    "$cond",
    Arity::Custom(parse_cond),
    "`then` when `if` is true, else `else`; also written as an array of three.",
    |args, ctx| arg(args, if truthy(arg(args, 0, ctx)?) { 1 } else { 2 }, ctx),
);

fn parse_cond(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    match operand {
        Value::Document(_) => {
            let named = Named::read("$cond", operand, ["if", "then", "else"], 17080, 17083)?;
            [17080, 17081, 17082]
                .into_iter()
                .enumerate()
                .map(|(i, code)| p.parse(named.need(i, code)?))
                .collect()
        }
        _ => {
            let args = match operand {
                Value::Array(items) => p.parse_all(items)?,
                v => vec![p.parse(v)?],
            };
            if args.len() != 3 {
                return Err(Error::location(
                    16020,
                    format!(
                        "Expression $cond takes exactly 3 arguments. {} were passed in.",
                        args.len()
                    ),
                ));
            }
            Ok(args)
        }
    }
}

/// The specification of `$ifNull`.
pub(super) const IF_NULL: OpSpec = OpSpec::new(
    "$ifNull",
    Arity::Custom(parse_if_null),
    "The first operand that is neither null nor missing; else the last.",
    |args, ctx| {
        let mut last = None;
        for e in args {
            last = e.eval(ctx)?;
            if last.is_some_and(|v| !v.is_nullish()) {
                break;
            }
        }
        Ok(last)
    },
);

fn parse_if_null(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let args = match operand {
        Value::Array(items) => p.parse_all(items)?,
        v => vec![p.parse(v)?],
    };
    if args.len() < 2 {
        return Err(Error::location(
            1257300,
            format!("$ifNull needs at least two arguments, had: {}", args.len()),
        ));
    }
    Ok(args)
}

/// The specification of `$switch`. Arguments: case, then, case, then, …, and the default, if any.
pub(super) const SWITCH: OpSpec = OpSpec::new(
    "$switch",
    Arity::Custom(parse_switch),
    "The `then` of the first branch whose `case` is true, else the default.",
    |args, ctx| {
        for branch in args.chunks(2) {
            match branch {
                [case, then] if truthy(case.eval(ctx)?) => return then.eval(ctx),
                [default] => return default.eval(ctx),
                _ => {}
            }
        }
        // If every case is a constant, MongoDB's optimizer detects this, with a different code.
        let constant = args.iter().step_by(2).all(Expr::is_constant);
        Err(Error::location(
            if constant { 40069 } else { 40066 },
            "$switch could not find a matching branch for an input, and no default was specified.",
        ))
    },
);

fn parse_switch(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let Value::Document(d) = operand else {
        return Err(Error::location(
            40060,
            format!(
                "$switch requires an object as an argument, found: {}",
                operand.type_name()
            ),
        ));
    };
    let (mut args, mut default) = (Vec::new(), None);
    for e in d {
        match (e.name(), e.value()) {
            ("branches", Value::Array(branches)) => {
                let mut decided = false;
                for branch in branches.values() {
                    decided |= parse_branch(branch, p, &mut args, decided)?;
                }
            }
            ("branches", v) => {
                return Err(Error::location(
                    40061,
                    format!(
                        "$switch expected an array for 'branches', found: {}",
                        v.type_name()
                    ),
                ));
            }
            ("default", v) => default = Some(p.parse(v)?),
            (name, _) => {
                return Err(Error::location(
                    40067,
                    format!("$switch found an unknown argument: {name}"),
                ));
            }
        }
    }
    if args.is_empty() {
        return Err(Error::location(
            40068,
            "$switch requires at least one branch.",
        ));
    }
    args.extend(default);
    Ok(args)
}

/// Parses a branch; true if its case is a constant that is true. Later branches are then never evaluated, nor
/// is the `then` of a case that is a false constant.
fn parse_branch(
    branch: Value<'_>,
    p: &mut Parser<'_>,
    args: &mut Vec<Expr>,
    decided: bool,
) -> Result<bool> {
    let Value::Document(d) = branch else {
        return Err(Error::location(
            40062,
            format!(
                "$switch expected each branch to be an object, found: {}",
                branch.type_name()
            ),
        ));
    };
    let (mut case, mut then) = (None, None);
    for e in d {
        match e.name() {
            "case" => case = Some(e.value()),
            "then" => then = Some(e.value()),
            name => {
                return Err(Error::location(
                    40063,
                    format!("$switch found an unknown argument to a branch: {name}"),
                ));
            }
        }
    }
    let case = case.ok_or_else(|| {
        Error::location(
            40064,
            "$switch requires each branch have a 'case' expression",
        )
    })?;
    let then = then.ok_or_else(|| {
        Error::location(
            40065,
            "$switch requires each branch have a 'then' expression.",
        )
    })?;
    let case = if decided {
        p.parse_dead(case)?
    } else {
        p.parse(case)?
    };
    let taken = case
        .is_constant()
        .then(|| truthy(case.as_constant()) && !decided);
    let then = if decided || taken == Some(false) {
        p.parse_dead(then)?
    } else {
        p.parse(then)?
    };
    args.extend([case, then]);
    Ok(taken == Some(true))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'a': 1, 'n': null}",
            &[
                ("{'$cond': ['$a', 'y', 'n']}", Gives("'y'")),
                (
                    "{'$cond': {'if': '$n', 'then': 'y', 'else': 'n'}}",
                    Gives("'n'"),
                ),
                ("{'$cond': ['$a', '$missing', 'n']}", Missing),
                ("{'$cond': ['$a', 1]}", Fails(16020)),
                ("{'$cond': {'then': 1, 'else': 2}}", Fails(17080)),
                ("{'$cond': {'if': 1, 'else': 2}}", Fails(17081)),
                ("{'$cond': {'if': 1, 'then': 2}}", Fails(17082)),
                (
                    "{'$cond': {'if': 1, 'then': 2, 'else': 3, 'x': 4}}",
                    Fails(17083),
                ),
                ("{'$ifNull': ['$n', '$missing', 7]}", Gives("7")),
                ("{'$ifNull': ['$a', 7]}", Gives("1")),
                ("{'$ifNull': ['$n', '$missing']}", Missing),
                ("{'$ifNull': ['$n']}", Fails(1257300)),
                (
                    "{'$switch': {'branches': [{'case': '$n', 'then': 1}, {'case': '$a', 'then': 2}], 'default': 3}}",
                    Gives("2"),
                ),
                (
                    "{'$switch': {'branches': [{'case': '$n', 'then': 1}], 'default': 3}}",
                    Gives("3"),
                ),
                (
                    "{'$switch': {'branches': [{'case': '$n', 'then': 1}]}}",
                    Fails(40066),
                ),
                (
                    "{'$switch': {'branches': [{'case': false, 'then': '$a'}]}}",
                    Fails(40069),
                ),
                ("{'$cond': [true, 1, {'$divide': [1, 0]}]}", Fails(2)),
                (
                    "{'$switch': {'branches': [{'case': true, 'then': 1}, {'case': {'$divide': [1, 0]}, 'then': 2}]}}",
                    Gives("1"),
                ),
                (
                    "{'$switch': {'branches': [{'case': false, 'then': {'$divide': [1, 0]}}], 'default': 3}}",
                    Gives("3"),
                ),
                (
                    "{'$switch': {'branches': [{'case': '$n', 'then': {'$divide': [1, 0]}}], 'default': 3}}",
                    Fails(2),
                ),
                ("{'$switch': {'branches': []}}", Fails(40068)),
                ("{'$switch': {'branches': [{'then': 1}]}}", Fails(40064)),
                ("{'$switch': {'branches': [{'case': 1}]}}", Fails(40065)),
                ("{'$switch': {'branches': [1]}}", Fails(40062)),
                ("{'$switch': {'branches': 1}}", Fails(40061)),
                ("{'$switch': {'x': 1}}", Fails(40067)),
                ("{'$switch': 1}", Fails(40060)),
            ],
        );
    }
}
