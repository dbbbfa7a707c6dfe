//! `$toHashedIndexKey`: the key that a hashed index would store for a value.

use super::arg;
use crate::expr::{Arity, OpSpec};
use muniment_value::{Value, hashed};

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::new(
    "$toHashedIndexKey",
    Arity::Exactly(1),
    "The hash of a value as a hashed index has it, an int64; missing counts as null.",
    |args, ctx| {
        let v = arg(args, 0, ctx)?.unwrap_or(Value::Null);
        Ok(Some(Value::Int64(hashed::hash64(v))))
    },
);

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'s': 'string to hash', 'n': null}",
            &[
                (
                    "{'$toHashedIndexKey': '$s'}",
                    Gives("['$long', 763543691661428748]"),
                ),
                (
                    "{'$eq': [{'$toHashedIndexKey': '$n'}, {'$toHashedIndexKey': '$missing'}]}",
                    Gives("true"),
                ),
                ("{'$toHashedIndexKey': [1, 2]}", Fails(16020)),
            ],
        );
    }
}
