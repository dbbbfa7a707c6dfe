//! `$setField` and `$unsetField`: one field by its exact name, in which dots and dollars are ordinary
//! characters. Arguments: the name, input, value (a missing one removes the field).

use super::{NULL, Named, arg};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, arena};
use muniment_value::{Error, Result, Value};

/// The specification of `$setField`.
pub(super) const SET: OpSpec = OpSpec::new(
    "$setField",
    Arity::Custom(parse_set),
    "An object with the field of this very name set, or removed by $$REMOVE.",
    eval,
);

/// The specification of `$unsetField`.
pub(super) const UNSET: OpSpec = OpSpec::new(
    "$unsetField",
    Arity::Custom(parse_unset),
    "An object without the field of this very name.",
    eval,
);

fn parse_set(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let op = "$setField";
    let names = ["field", "value", "input"];
    let named = Named::read(op, operand, names, 4161100, 4161101)?;
    let field = named.need(0, 4161102)?;
    let value = named.need(1, 4161103)?;
    let input = p.parse(named.need(2, 4161109)?)?;
    let value = p.parse(value)?;
    Ok(vec![name(op, field, p)?, input, value])
}

fn parse_unset(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let op = "$unsetField";
    let named = Named::read(op, operand, ["field", "input"], 4161100, 4161101)?;
    let field = named.need(0, 4161102)?;
    let input = p.parse(named.need(1, 4161109)?)?;
    Ok(vec![name(op, field, p)?, input])
}

/// The name of the field, which must be known to be constant before anything is computed.
fn name(op: &str, v: Value<'_>, p: &mut Parser<'_>) -> Result<Expr> {
    let literal = match v {
        Value::String(s) if s.starts_with('$') => {
            return Err(Error::location(
                4161108,
                format!(
                    "A field path reference which is not allowed in this context. Did you mean {{$literal: '{s}'}}?"
                ),
            ));
        }
        Value::Document(d) => match d.first() {
            Some(e) if matches!(e.name(), "$literal" | "$const") => e.value(),
            None => v,
            Some(_) => return not_constant(op, v, p),
        },
        Value::Array(_) => return not_constant(op, v, p),
        v => v,
    };
    let Value::String(s) = literal else {
        return Err(Error::location(
            4161107,
            format!(
                "{op} requires 'field' to evaluate to type String, but got {}",
                literal.type_name()
            ),
        ));
    };
    if s.contains('\0') {
        return Err(Error::location(
            9534700,
            format!("{op} requires 'field' not to contain a null byte"),
        ));
    }
    Ok(Expr::constant(literal))
}

fn not_constant(op: &str, v: Value<'_>, p: &mut Parser<'_>) -> Result<Expr> {
    p.parse(v)?;
    Err(Error::location(
        4161106,
        format!(
            "{op} requires 'field' to evaluate to a constant, but got {}",
            v.to_display()
        ),
    ))
}

fn eval<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let Some(Value::String(name)) = arg(args, 0, ctx)? else {
        return NULL;
    };
    let input = match arg(args, 1, ctx)? {
        None | Some(Value::Null | Value::Undefined) => return NULL,
        Some(Value::Document(d)) => d,
        Some(v) => {
            return Err(Error::location(
                4161105,
                format!(
                    "$setField requires 'input' to evaluate to type Object, but got {}",
                    v.type_name()
                ),
            ));
        }
    };
    let value = arg(args, 2, ctx)?;
    let out = arena::build_doc(ctx.arena, |w| {
        let mut found = false;
        for e in input {
            if e.name() != name {
                w.put(e.name(), &e);
            } else if !found {
                found = true;
                if let Some(v) = &value {
                    w.put(name, v);
                }
            }
        }
        if let (false, Some(v)) = (found, &value) {
            w.put(name, v);
        }
        Ok(())
    })?;
    arena::check_depth(Value::Document(out))?;
    Ok(Some(Value::Document(out)))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        let d = "{'o': {'a': 1, 'b': 2}, 'n': null, 'x': 5, 'l': [1]}";
        for (rest, want) in [
            (
                "'field': 'a', 'input': '$o', 'value': 9",
                Gives("{'a': 9, 'b': 2}"),
            ),
            (
                "'field': 'c.d', 'input': '$o', 'value': '$x'",
                Gives("{'a': 1, 'b': 2, 'c.d': 5}"),
            ),
            (
                "'field': {'$literal': '$p'}, 'input': {}, 'value': 1",
                Gives("{'$p': 1}"),
            ),
            (
                "'field': 'a', 'input': '$o', 'value': '$$REMOVE'",
                Gives("{'b': 2}"),
            ),
            (
                "'field': 'a', 'input': '$o', 'value': '$missing'",
                Gives("{'b': 2}"),
            ),
            (
                "'field': 'z', 'input': '$o', 'value': '$missing'",
                Gives("{'a': 1, 'b': 2}"),
            ),
            ("'field': 'a', 'input': '$n', 'value': 1", Gives("null")),
            (
                "'field': 'a', 'input': '$missing', 'value': 1",
                Gives("null"),
            ),
            ("'field': 'a', 'input': '$l', 'value': 1", Fails(4161105)),
            ("'field': 1, 'input': {}, 'value': 1", Fails(4161107)),
            ("'field': {}, 'input': {}, 'value': 1", Fails(4161107)),
            ("'field': ['x'], 'input': {}, 'value': 1", Fails(4161106)),
            (
                "'field': {'$concat': ['a', 'b']}, 'input': {}, 'value': 1",
                Fails(4161106),
            ),
            ("'field': '$x', 'input': {}, 'value': 1", Fails(4161108)),
            (
                "'field': 'a\\u0000', 'input': {}, 'value': 1",
                Fails(9534700),
            ),
            ("'input': {}, 'value': 1", Fails(4161102)),
            ("'field': 'a', 'input': {}", Fails(4161103)),
            ("'field': 'a', 'value': 1", Fails(4161109)),
            ("'field': 'a', 'y': 1", Fails(4161101)),
        ] {
            check(d, &format!("{{'$setField': {{{rest}}}}}"), &want);
        }
        table(
            d,
            &[
                (
                    "{'$unsetField': {'field': 'b', 'input': '$o'}}",
                    Gives("{'a': 1}"),
                ),
                (
                    "{'$unsetField': {'field': 'z', 'input': '$o'}}",
                    Gives("{'a': 1, 'b': 2}"),
                ),
                (
                    "{'$unsetField': {'field': 'z', 'input': '$n'}}",
                    Gives("null"),
                ),
                (
                    "{'$unsetField': {'field': 'z', 'input': {}, 'value': 1}}",
                    Fails(4161101),
                ),
                ("{'$unsetField': {'field': 'z'}}", Fails(4161109)),
                (
                    "{'$unsetField': {'field': '$x', 'input': {'$y': 1}}}",
                    Fails(168),
                ),
                ("{'$unsetField': 1}", Fails(4161100)),
            ],
        );
    }
}
