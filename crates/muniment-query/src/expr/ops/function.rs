//! `$function`: calls a JavaScript function with the arguments.

use super::arg;
use crate::expr::{Arity, Expr, OpSpec, Parser};
use crate::running::need_javascript;
use muniment_value::{Error, Result, Value};

/// The specification. Arguments: the code (a constant), the array of arguments.
pub(super) const SPEC: OpSpec = OpSpec {
    pure: false,
    ..OpSpec::new(
        "$function",
        Arity::Custom(parse),
        "What a JavaScript function of the arguments returns.",
        |args, ctx| {
            let code = match args.first().and_then(Expr::as_constant) {
                Some(Value::String(s) | Value::Code(s)) => s,
                _ => "",
            };
            let Some(Value::Array(values)) = arg(args, 1, ctx)? else {
                return Err(Error::location(
                    31266,
                    "The args field must be of type array",
                ));
            };
            let out = ctx
                .work()
                .with_engine(|e| e.call(&code.into(), None, values))?;
            crate::expr::arena::copy_value(ctx.arena, out.as_value()).map(Some)
        },
    )
};

fn parse(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    if p.context().validator {
        return Err(Error::location(
            4_660_800,
            "$function cannot be used inside a validator.",
        ));
    }
    need_javascript("$function")?;
    let Value::Document(d) = operand else {
        return Err(Error::location(
            31260,
            format!(
                "$function requires an object as an argument, found: {}",
                operand.type_name()
            ),
        ));
    };
    let (mut body, mut args, mut lang) = (None, None, None);
    for e in d {
        match e.name() {
            "body" => body = Some(p.parse(e.value())?),
            "args" => args = Some(p.parse(e.value())?),
            "lang" => lang = Some(e.value()),
            name => {
                return Err(Error::location(
                    40415,
                    format!("BSON field '$function.{name}' is an unknown field."),
                ));
            }
        }
    }
    let missing =
        |code, what: &str| Error::location(code, format!("The {what} must be specified."));
    let body = body.ok_or_else(|| missing(31261, "body function"))?;
    if !matches!(body.as_constant(), Some(Value::String(_) | Value::Code(_))) {
        return Err(Error::location(
            31262,
            "The body function must be of type string or code",
        ));
    }
    let args = args.ok_or_else(|| missing(31263, "args field"))?;
    let lang = lang.ok_or_else(|| missing(31418, "lang field"))?;
    if lang.as_str() != Some("js") {
        return Err(Error::location(
            31419,
            "Currently the only supported language specifier is 'js'.",
        ));
    }
    Ok(vec![body, args])
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'a': 5, 'd': {'x': 1}, 's': 'x'}",
            &[
                (
                    "{'$function': {'body': 'function(x) { return x * 2; }', 'args': ['$a'], 'lang': 'js'}}",
                    Gives("10.0"),
                ),
                (
                    "{'$function': {'body': 'function(d, e) { d.y = typeof e; return d; }', 'args': ['$d', '$missing'], 'lang': 'js'}}",
                    Gives("{'x': 1, 'y': 'object'}"),
                ),
                (
                    "{'$function': {'body': 'function() { throw new Error(); }', 'args': [], 'lang': 'js'}}",
                    Fails(139),
                ),
                ("{'$function': 1}", Fails(31260)),
                ("{'$function': {'args': [], 'lang': 'js'}}", Fails(31261)),
                (
                    "{'$function': {'body': '$s', 'args': [], 'lang': 'js'}}",
                    Fails(31262),
                ),
                ("{'$function': {'body': 'x', 'lang': 'js'}}", Fails(31263)),
                ("{'$function': {'body': 'x', 'args': []}}", Fails(31418)),
                (
                    "{'$function': {'body': 'x', 'args': [], 'lang': 'lua'}}",
                    Fails(31419),
                ),
                (
                    "{'$function': {'body': 'x', 'args': '$s', 'lang': 'js'}}",
                    Fails(31266),
                ),
            ],
        );
    }
}
