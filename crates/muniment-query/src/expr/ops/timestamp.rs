//! `$tsSecond` and `$tsIncrement`: the parts of a timestamp, each as an int64.

use super::{NULL, arg_some};
use crate::expr::{Arity, EvalContext, Expr, OpSpec};
use muniment_value::{Error, Result, Value};

/// The specification of `$tsSecond`.
pub(super) const SECOND: OpSpec = OpSpec::new(
    "$tsSecond",
    Arity::Exactly(1),
    "The seconds of a timestamp since 1970.",
    |args, ctx| part("$tsSecond", 5687301, args, ctx, |t, _| t),
);

/// The specification of `$tsIncrement`.
pub(super) const INCREMENT: OpSpec = OpSpec::new(
    "$tsIncrement",
    Arity::Exactly(1),
    "The ordinal of a timestamp within its second.",
    |args, ctx| part("$tsIncrement", 5687302, args, ctx, |_, i| i),
);

fn part<'a>(
    op: &str,
    code: i32,
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    of: impl Fn(u32, u32) -> u32,
) -> Result<Option<Value<'a>>> {
    match arg_some(args, 0, ctx)? {
        None => NULL,
        Some(Value::Timestamp { t, i }) => Ok(Some(Value::Int64(of(t, i).into()))),
        Some(v) => Err(Error::location(
            code,
            format!(
                "Argument to {op} must be a timestamp, but is {}",
                v.type_name()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'t': ['$ts', 1234567890], 'n': null, 'x': 1}",
            &[
                ("{'$tsSecond': '$t'}", Gives("['$long', 1234567890]")),
                ("{'$tsIncrement': '$t'}", Gives("['$long', 1]")),
                ("{'$tsSecond': '$n'}", Gives("null")),
                ("{'$tsSecond': '$x'}", Fails(5687301)),
                ("{'$tsIncrement': '$x'}", Fails(5687302)),
                ("{'$tsIncrement': ['$t', '$t']}", Fails(16020)),
            ],
        );
    }
}
