//! `$cmp`, `$eq`, `$gt`, `$gte`, `$lt`, `$lte`, `$ne`: canonical comparison across types. A missing value is
//! less than every other except MinKey, and equal only to another missing value.

use super::arg;
use crate::expr::{Arity, EvalContext, Expr, OpSpec};
use muniment_value::{Result, Value};
use std::cmp::Ordering;

macro_rules! spec {
    ($id:ident, $name:literal, $doc:literal, |$o:ident| $value:expr) => {
        /// The specification.
        pub(super) const $id: OpSpec = OpSpec::new($name, Arity::Exactly(2), $doc, |args, ctx| {
            let $o = compare(args, ctx)?;
            Ok(Some($value))
        });
    };
}

spec!(
    CMP,
    "$cmp",
    "-1, 0 or 1: how the first operand compares with the second.",
    |o| Value::Int32(o as i32)
);
spec!(EQ, "$eq", "Whether the operands are equal.", |o| {
    Value::Bool(o.is_eq())
});
spec!(GT, "$gt", "Whether the first operand is greater.", |o| {
    Value::Bool(o.is_gt())
});
spec!(
    GTE,
    "$gte",
    "Whether the first operand is greater or equal.",
    |o| Value::Bool(o.is_ge())
);
spec!(LT, "$lt", "Whether the first operand is less.", |o| {
    Value::Bool(o.is_lt())
});
spec!(
    LTE,
    "$lte",
    "Whether the first operand is less or equal.",
    |o| Value::Bool(o.is_le())
);
spec!(NE, "$ne", "Whether the operands differ.", |o| Value::Bool(
    o.is_ne()
));

fn compare<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Ordering> {
    let (a, b) = (arg(args, 0, ctx)?, arg(args, 1, ctx)?);
    Ok(compare_values(a, b, |a, b| ctx.cmp(a, b)))
}

/// Canonical comparison with missing values; `cmp` compares two existing ones.
pub(crate) fn compare_values<'a>(
    a: Option<Value<'a>>,
    b: Option<Value<'a>>,
    cmp: impl FnOnce(Value<'a>, Value<'a>) -> Ordering,
) -> Ordering {
    let (Some(x), Some(y)) = (a, b) else {
        // A missing value has undefined's rank, and is less than an existing undefined.
        let rank = |v: Option<Value<'_>>| v.map_or((1, 0), |v| (v.ty().rank(), 1));
        return rank(a).cmp(&rank(b));
    };
    cmp(x, y)
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'a': 1, 'b': 2.0, 's': 'x', 'n': null, 'u': ['$undefined']}",
            &[
                ("{'$cmp': ['$a', '$b']}", Gives("-1")),
                ("{'$cmp': ['$b', '$a']}", Gives("1")),
                ("{'$eq': ['$b', 2]}", Gives("true")),
                ("{'$eq': ['$missing', null]}", Gives("false")),
                ("{'$eq': ['$missing', '$nope']}", Gives("true")),
                ("{'$lt': ['$missing', null]}", Gives("true")),
                ("{'$lt': ['$missing', '$u']}", Gives("true")),
                (
                    "{'$gt': ['$missing', {'$literal': ['$minKey']}]}",
                    Gives("true"),
                ),
                ("{'$gt': ['$s', '$a']}", Gives("true")),
                ("{'$ne': ['$s', 'x']}", Gives("false")),
                ("{'$gte': [[1, 2], [1]]}", Gives("true")),
                ("{'$lte': ['$a']}", Fails(16020)),
            ],
        );
    }
}
