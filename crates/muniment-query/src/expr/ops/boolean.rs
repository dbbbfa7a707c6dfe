//! `$and`, `$or`, `$not`, by MongoDB's rule that null, missing, 0 and false are false.

use super::{arg, truthy};
use crate::expr::{Arity, EvalContext, Expr, OpSpec};
use muniment_value::{Result, Value};

/// The specification of `$and`.
pub(super) const AND: OpSpec = OpSpec::new(
    "$and",
    Arity::Any,
    "True when every operand is true; stops at the first that is not.",
    |args, ctx| all(args, ctx, true),
);

/// The specification of `$or`.
pub(super) const OR: OpSpec = OpSpec::new(
    "$or",
    Arity::Any,
    "True when some operand is true; stops at the first that is.",
    |args, ctx| all(args, ctx, false),
);

/// The specification of `$not`.
pub(super) const NOT: OpSpec = OpSpec::new(
    "$not",
    Arity::Exactly(1),
    "The opposite of the operand's truth.",
    |args, ctx| Ok(Some(Value::Bool(!truthy(arg(args, 0, ctx)?)))),
);

fn all<'a>(args: &'a [Expr], ctx: &EvalContext<'a>, go_on: bool) -> Result<Option<Value<'a>>> {
    for e in args {
        if truthy(e.eval(ctx)?) != go_on {
            return Ok(Some(Value::Bool(!go_on)));
        }
    }
    Ok(Some(Value::Bool(go_on)))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'t': true, 'z': 0, 's': ''}",
            &[
                ("{'$and': []}", Gives("true")),
                ("{'$or': []}", Gives("false")),
                ("{'$and': ['$t', '$s', 1]}", Gives("true")),
                ("{'$and': ['$t', '$z']}", Gives("false")),
                ("{'$and': ['$t', '$missing']}", Gives("false")),
                ("{'$or': ['$z', null, '$missing']}", Gives("false")),
                ("{'$or': ['$t', {'$divide': ['$t', 0]}]}", Gives("true")),
                ("{'$or': [{'$divide': [1, '$z']}, true]}", Gives("true")),
                ("{'$and': [{'$divide': [1, '$z']}, null]}", Gives("false")),
                ("{'$and': [{'$divide': [1, '$z']}, true]}", Fails(2)),
                ("{'$not': ['$z']}", Gives("true")),
                ("{'$not': '$t'}", Gives("false")),
                ("{'$not': ['$t', 1]}", Fails(16020)),
            ],
        );
    }
}
