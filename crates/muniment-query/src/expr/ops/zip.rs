//! `$zip`: transposes an array of arrays.

use super::NULL;
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, arena};
use muniment_value::{Doc, Error, Result, Value};

/// The specification of `$zip`. Arguments: whether the longest input determines the length (a constant), the
/// number of inputs (a constant), the inputs, the defaults.
pub(super) const SPEC: OpSpec = OpSpec::new(
    "$zip",
    Arity::Custom(parse),
    "Arrays of the inputs' first elements, second elements, and so on.",
    eval,
);

fn check(inputs: &[Expr], defaults: &[Expr], longest: bool) -> Result<()> {
    if inputs.is_empty() {
        return Err(Error::location(
            34465,
            "$zip requires at least one input array",
        ));
    }
    if !defaults.is_empty() {
        if !longest {
            return Err(Error::location(
                34466,
                "cannot specify defaults unless useLongestLength is true",
            ));
        }
        if defaults.len() != inputs.len() {
            return Err(Error::location(
                34467,
                "defaults and inputs must have the same length",
            ));
        }
    }
    Ok(())
}

fn parse(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let Value::Document(d) = operand else {
        return Err(Error::location(
            34460,
            format!(
                "$zip only supports an object as an argument, found {}",
                operand.type_name()
            ),
        ));
    };
    let (mut inputs, mut defaults, mut longest) = (Vec::new(), Vec::new(), false);
    for e in d {
        let list = |code| match e.value() {
            Value::Array(items) => Ok(items),
            v => Err(Error::location(
                code,
                format!(
                    "{} must be an array of expressions, found {}",
                    e.name(),
                    v.type_name()
                ),
            )),
        };
        match e.name() {
            "inputs" => inputs = p.parse_all(list(34461)?)?,
            "defaults" => defaults = p.parse_all(list(34462)?)?,
            "useLongestLength" => match e.value() {
                Value::Bool(b) => longest = b,
                v => {
                    return Err(Error::location(
                        34463,
                        format!("useLongestLength must be a bool, found {}", v.type_name()),
                    ));
                }
            },
            name => {
                return Err(Error::location(
                    34464,
                    format!("$zip found an unknown argument: {name}"),
                ));
            }
        }
    }
    check(&inputs, &defaults, longest)?;
    let n = i64::try_from(inputs.len()).unwrap_or(i64::MAX);
    let mut args = vec![
        Expr::constant(Value::Bool(longest)),
        Expr::constant(Value::Int64(n)),
    ];
    args.extend(inputs);
    args.extend(defaults);
    Ok(args)
}

fn eval<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let [longest, n, rest @ ..] = args else {
        return NULL;
    };
    let longest = longest.as_constant().is_some_and(|v| v.truthy());
    let n = n.as_constant().and_then(|v| v.as_i64_exact()).unwrap_or(0);
    let (inputs, defaults) = rest
        .split_at_checked(usize::try_from(n).unwrap_or(0))
        .unwrap_or((rest, &[]));
    let mut columns: Vec<Doc<'a>> = Vec::with_capacity(inputs.len());
    for e in inputs {
        match e.eval(ctx)? {
            None | Some(Value::Null | Value::Undefined) => return NULL,
            Some(Value::Array(items)) => columns.push(items),
            Some(v) => {
                return Err(Error::location(
                    34468,
                    format!(
                        "$zip found a non-array expression in input: {}",
                        v.to_display()
                    ),
                ));
            }
        }
    }
    let mut fill = Vec::with_capacity(defaults.len());
    for e in defaults {
        fill.push(e.eval(ctx)?.unwrap_or(Value::Null));
    }
    let counts = columns.iter().map(|c| c.count());
    let rows = if longest { counts.max() } else { counts.min() }.unwrap_or(0);
    let mut columns: Vec<_> = columns.iter().map(|c| c.values()).collect();
    let out = arena::build_array(ctx.arena, |w| {
        for _ in 0..rows {
            arena::step(ctx.arena)?;
            let row = arena::build_array(ctx.arena, |row| {
                for (i, column) in columns.iter_mut().enumerate() {
                    let v = column.next().or_else(|| fill.get(i).copied());
                    row.push(&v.unwrap_or(Value::Null))?;
                }
                Ok(())
            })?;
            w.push(&Value::Array(row))?;
        }
        Ok(())
    })?;
    Ok(Some(Value::Array(out)))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'a': [1, 2, 3], 'b': ['x', 'y'], 'n': null, 's': 'x'}",
            &[
                (
                    "{'$zip': {'inputs': ['$a', '$b']}}",
                    Gives("[[1, 'x'], [2, 'y']]"),
                ),
                (
                    "{'$zip': {'inputs': ['$a', '$b'], 'useLongestLength': true}}",
                    Gives("[[1, 'x'], [2, 'y'], [3, null]]"),
                ),
                (
                    "{'$zip': {'inputs': ['$a', '$b'], 'useLongestLength': true, 'defaults': [0, '$s']}}",
                    Gives("[[1, 'x'], [2, 'y'], [3, 'x']]"),
                ),
                ("{'$zip': {'inputs': ['$a', '$n']}}", Gives("null")),
                ("{'$zip': {'inputs': ['$a', []]}}", Gives("[]")),
                ("{'$zip': {'inputs': ['$a', '$s']}}", Fails(34468)),
                ("{'$zip': [1]}", Fails(34460)),
                ("{'$zip': {'inputs': 1}}", Fails(34461)),
                ("{'$zip': {'inputs': ['$a'], 'defaults': 1}}", Fails(34462)),
                (
                    "{'$zip': {'inputs': ['$a'], 'useLongestLength': 1}}",
                    Fails(34463),
                ),
                ("{'$zip': {'inputs': ['$a'], 'x': 1}}", Fails(34464)),
                ("{'$zip': {'inputs': []}}", Fails(34465)),
                (
                    "{'$zip': {'inputs': ['$a'], 'defaults': [1]}}",
                    Fails(34466),
                ),
                (
                    "{'$zip': {'inputs': ['$a'], 'defaults': [1, 2], 'useLongestLength': true}}",
                    Fails(34467),
                ),
            ],
        );
    }
}
