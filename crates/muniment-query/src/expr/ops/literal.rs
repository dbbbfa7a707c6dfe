//! `$literal` and `$const`, the form in which MongoDB prints it.

use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser};
use muniment_value::{Result, Value};

/// The specification of `$literal`.
pub(super) const LITERAL: OpSpec = OpSpec::new(
    "$literal",
    Arity::Custom(parse),
    "The operand as it is, without evaluation.",
    eval,
);

/// The specification of `$const`.
pub(super) const CONST: OpSpec = OpSpec::new(
    "$const",
    Arity::Custom(parse),
    "The same as $literal.",
    eval,
);

fn parse(operand: Value<'_>, _: &mut Parser<'_>) -> Result<Vec<Expr>> {
    Ok(vec![Expr::constant(operand)])
}

fn eval<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    super::arg(args, 0, ctx)
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'a': 1}",
            &[
                ("{'$literal': '$a'}", Gives("'$a'")),
                ("{'$literal': {'$add': [1]}}", Gives("{'$add': [1]}")),
                ("{'$const': 5}", Gives("5")),
                ("'$a'", Gives("1")),
                ("'$b'", Missing),
                ("['$a', '$b']", Gives("[1, null]")),
                (
                    "{'x': '$a', 'y': '$b', 'z': {'w': 1}}",
                    Gives("{'x': 1, 'z': {'w': 1}}"),
                ),
                ("'$$ROOT'", Gives("{'a': 1}")),
                ("'$$ROOT.a'", Gives("1")),
                ("'$$CURRENT.a'", Gives("1")),
                ("'$$REMOVE'", Missing),
                ("'$$nope'", Fails(17276)),
                ("'$$'", Fails(9)),
                ("'$'", Fails(16872)),
                ("'$$.'", Fails(9)),
                ("'$$.a'", Fails(9)),
                ("'$$ROOT.'", Fails(40353)),
                // An error of parsing comes before one of computing a constant.
                ("[{'$toInt': 'x'}, '$$nope']", Fails(17276)),
                ("[{'$toInt': 'x'}, '$a']", Fails(241)),
                ("{'$foo': 1}", Fails(168)),
                ("{'$add': 1, 'b': 1}", Fails(15983)),
                ("{'b': 1, '$add': 1}", Fails(16410)),
                ("{'b.c': 1}", Fails(16412)),
                ("{}", Gives("{}")),
            ],
        );
    }
}
