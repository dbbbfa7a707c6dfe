//! `$subtype`: the subtype of binary data.

use super::{NULL, arg_some};
use crate::expr::{Arity, OpSpec};
use muniment_value::{Error, Value};

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::new(
    "$subtype",
    Arity::Exactly(1),
    "The subtype of binary data, an int32 (4 for a UUID).",
    |args, ctx| match arg_some(args, 0, ctx)? {
        None => NULL,
        Some(Value::Binary { subtype, .. }) => Ok(Some(Value::Int32(i32::from(subtype)))),
        Some(v) => Err(Error::location(
            10_389_300,
            format!(
                "Provided value: {}, does not have a subtype, but $subtype was used.",
                v.to_display()
            ),
        )),
    },
);

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'b': ['$bin', 1, 2], 'md5': ['$binOf', 5, 1], 'own': ['$binOf', 200], 's': 'x', \
             'n': null, 'u': ['$undefined']}",
            &[
                ("{'$subtype': '$b'}", Gives("0")),
                ("{'$subtype': '$md5'}", Gives("5")),
                ("{'$subtype': ['$own']}", Gives("200")),
                (
                    "{'$subtype': {'$toUUID': '00112233-4455-6677-8899-aabbccddeeff'}}",
                    Gives("4"),
                ),
                ("{'$subtype': '$n'}", Gives("null")),
                ("{'$subtype': '$missing'}", Gives("null")),
                ("{'$subtype': '$u'}", Gives("null")),
                (
                    "{'$subtype': '$s'}",
                    Says(
                        10_389_300,
                        "Provided value: \"x\", does not have a subtype, but $subtype was used.",
                    ),
                ),
                (
                    "{'$subtype': ['$b', '$md5']}",
                    Says(
                        16020,
                        "Expression $subtype takes exactly 1 arguments. 2 were passed in.",
                    ),
                ),
                ("{'$subtype': []}", Fails(16020)),
            ],
        );
    }
}
