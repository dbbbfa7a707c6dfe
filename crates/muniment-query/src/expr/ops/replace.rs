//! `$replaceOne` and `$replaceAll`: replace plain text with plain text.

use super::{NULL, arg_some};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, arena};
use muniment_value::{Error, Result, Value};

/// The specification of `$replaceOne`.
pub(super) const ONE: OpSpec = OpSpec::new(
    "$replaceOne",
    Arity::Custom(|v, p| parse("$replaceOne", v, p)),
    "The input with the first occurrence of a text replaced.",
    |args, ctx| replace("$replaceOne", args, ctx, true),
);

/// The specification of `$replaceAll`.
pub(super) const ALL: OpSpec = OpSpec::new(
    "$replaceAll",
    Arity::Custom(|v, p| parse("$replaceAll", v, p)),
    "The input with every occurrence of a text replaced.",
    |args, ctx| replace("$replaceAll", args, ctx, false),
);

/// The operand's fields as arguments: input, find, replacement.
fn parse(op: &str, operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let Value::Document(d) = operand else {
        return Err(Error::location(
            51751,
            format!(
                "{op} requires an object as an argument, found: {}",
                operand.type_name()
            ),
        ));
    };
    let (mut input, mut find, mut replacement) = (None, None, None);
    for e in d {
        let slot = match e.name() {
            "input" => &mut input,
            "find" => &mut find,
            "replacement" => &mut replacement,
            name => {
                return Err(Error::location(
                    51750,
                    format!("{op} found an unknown argument: {name}"),
                ));
            }
        };
        *slot = Some(p.parse(e.value())?);
    }
    let need = |e: Option<Expr>, code, name: &str| {
        e.ok_or_else(|| Error::location(code, format!("{op} requires '{name}' to be specified")))
    };
    Ok(vec![
        need(input, 51749, "input")?,
        need(find, 51748, "find")?,
        need(replacement, 51747, "replacement")?,
    ])
}

fn replace<'a>(
    op: &str,
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    once: bool,
) -> Result<Option<Value<'a>>> {
    let text = |i, code, name: &str| match arg_some(args, i, ctx)? {
        None => Ok(None),
        Some(Value::String(s)) => Ok(Some(s)),
        Some(v) => Err(Error::location(
            code,
            format!(
                "{op} requires that '{name}' be a string, found: {}",
                v.to_display()
            ),
        )),
    };
    let input = text(0, 10503904, "input")?;
    let find = text(1, 10503901, "find")?;
    let replacement = text(2, 10503902, "replacement")?;
    let (Some(input), Some(find), Some(with)) = (input, find, replacement) else {
        return NULL;
    };
    let mut out = String::new();
    let mut at = 0;
    let most = if once { 1 } else { usize::MAX };
    // An empty text is found before every character and at the end.
    for (i, _) in input.match_indices(find).take(most) {
        let before = input.get(at..i).unwrap_or_default();
        arena::check_string(out.len() + before.len() + with.len())?;
        out.push_str(before);
        out.push_str(with);
        at = i + find.len();
    }
    let rest = input.get(at..).unwrap_or_default();
    arena::check_string(out.len() + rest.len())?;
    out.push_str(rest);
    Ok(Some(Value::String(arena::alloc_str(ctx.arena, &out)?)))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'s': 'aébéb', 'n': null, 'i': 1}",
            &[
                (
                    "{'$replaceOne': {'input': '$s', 'find': 'é', 'replacement': '--'}}",
                    Gives("'a--béb'"),
                ),
                (
                    "{'$replaceAll': {'input': '$s', 'find': 'é', 'replacement': ''}}",
                    Gives("'abb'"),
                ),
                (
                    "{'$replaceAll': {'input': 'aaa', 'find': 'aa', 'replacement': 'b'}}",
                    Gives("'ba'"),
                ),
                (
                    "{'$replaceAll': {'input': 'ab', 'find': 'z', 'replacement': 'b'}}",
                    Gives("'ab'"),
                ),
                (
                    "{'$replaceAll': {'input': 'ab', 'find': '', 'replacement': '-'}}",
                    Gives("'-a-b-'"),
                ),
                (
                    "{'$replaceOne': {'input': 'ab', 'find': '', 'replacement': '-'}}",
                    Gives("'-ab'"),
                ),
                (
                    "{'$replaceAll': {'input': '', 'find': '', 'replacement': '-'}}",
                    Gives("'-'"),
                ),
                (
                    "{'$replaceOne': {'input': '$n', 'find': 'a', 'replacement': 'b'}}",
                    Gives("null"),
                ),
                (
                    "{'$replaceOne': {'input': 'x', 'find': '$missing', 'replacement': 'b'}}",
                    Gives("null"),
                ),
                (
                    "{'$replaceOne': {'input': '$i', 'find': 'a', 'replacement': '$n'}}",
                    Fails(10503904),
                ),
                (
                    "{'$replaceOne': {'input': '$n', 'find': '$i', 'replacement': 'a'}}",
                    Fails(10503901),
                ),
                (
                    "{'$replaceAll': {'input': '$n', 'find': 'a', 'replacement': '$i'}}",
                    Fails(10503902),
                ),
                ("{'$replaceOne': 'a'}", Fails(51751)),
                ("{'$replaceOne': {'x': 1}}", Fails(51750)),
                (
                    "{'$replaceOne': {'find': 'a', 'replacement': 'b'}}",
                    Fails(51749),
                ),
                (
                    "{'$replaceOne': {'input': 'a', 'replacement': 'b'}}",
                    Fails(51748),
                ),
                ("{'$replaceOne': {'input': 'a', 'find': 'b'}}", Fails(51747)),
            ],
        );
    }
}
