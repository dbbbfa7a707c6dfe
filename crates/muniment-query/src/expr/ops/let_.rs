//! `$let`: variables for one expression. Arguments: the values in order, then the body.

use super::Named;
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, parse};
use muniment_value::{Error, Result, Value};

/// The specification of `$let`.
pub(super) const SPEC: OpSpec = OpSpec::new(
    "$let",
    Arity::Custom(parse_let),
    "Evaluates `in` with the variables of `vars`.",
    eval,
);

fn parse_let(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let named = Named::read("$let", operand, ["vars", "in"], 16874, 16875)?;
    // MongoDB takes an array as a document with the names "0", "1", …, which no variable can have.
    let (Value::Document(vars) | Value::Array(vars)) = named.need(0, 16876)? else {
        return Err(Error::location(
            10065,
            "invalid parameter: expected an object (vars)",
        ));
    };
    let body = named.need(1, 16877)?;
    let (mut names, mut args) = (Vec::new(), Vec::new());
    for e in vars {
        parse::check_user_variable(e.name())?;
        names.push(e.name());
        args.push(p.parse(e.value())?);
    }
    args.push(p.with_vars(&names, |p| p.parse(body))?);
    Ok(args)
}

fn eval<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let Some((body, vars)) = args.split_last() else {
        return Ok(None);
    };
    // The values can use only the outer variables.
    let mut inner = *ctx;
    for e in vars {
        inner = inner.bind(e.eval_for_variable(ctx)?);
    }
    body.eval(&inner)
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'a': 1, 'd': {'e': [{'f': 2}]}}",
            &[
                (
                    "{'$let': {'vars': {'x': '$a', 'y': 10}, 'in': {'$add': ['$$x', '$$y']}}}",
                    Gives("11"),
                ),
                (
                    "{'$let': {'vars': {'x': '$d'}, 'in': '$$x.e.f'}}",
                    Gives("[2]"),
                ),
                (
                    "{'$let': {'vars': {'x': 1}, 'in': {'$let': {'vars': {'x': 2, 'y': '$$x'}, 'in': ['$$x', '$$y']}}}}",
                    Gives("[2, 1]"),
                ),
                (
                    "{'$let': {'vars': {'CURRENT': '$d'}, 'in': '$e'}}",
                    Gives("[{'f': 2}]"),
                ),
                ("{'$let': {'vars': {'x': '$nope'}, 'in': '$$x'}}", Missing),
                ("{'$let': {'vars': {'X': 1}, 'in': 1}}", Fails(9)),
                ("{'$let': {'vars': {'x-y': 1}, 'in': 1}}", Fails(9)),
                ("{'$let': {'vars': {'x': 1}, 'in': '$$y'}}", Fails(17276)),
                ("{'$let': {'vars': 1, 'in': 1}}", Fails(10065)),
                ("{'$let': {'vars': [1], 'in': 1}}", Fails(9)),
                ("{'$let': {'vars': {'x': 1}, 'in': '$$x.'}}", Fails(40353)),
                ("{'$let': {'in': 1}}", Fails(16876)),
                ("{'$let': {'vars': {}}}", Fails(16877)),
                ("{'$let': {'vars': {}, 'in': 1, 'z': 1}}", Fails(16875)),
                ("{'$let': 1}", Fails(16874)),
            ],
        );
    }
}
