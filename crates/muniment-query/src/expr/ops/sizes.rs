//! `$binarySize` and `$bsonSize`.

use super::{NULL, arg_some};
use crate::expr::{Arity, OpSpec};
use muniment_value::{Error, Value};

/// The specification of `$binarySize`.
pub(super) const BINARY: OpSpec = OpSpec::new(
    "$binarySize",
    Arity::Exactly(1),
    "How many bytes a string (in UTF-8) or binary data has.",
    |args, ctx| match arg_some(args, 0, ctx)? {
        None => NULL,
        Some(Value::String(s)) => Ok(Some(Value::Int32(s.len() as i32))),
        Some(Value::Binary { bytes, .. }) => Ok(Some(Value::Int32(bytes.len() as i32))),
        Some(v) => Err(Error::location(
            51276,
            format!(
                "$binarySize requires a string or BinData argument, found: {}",
                v.type_name()
            ),
        )),
    },
);

/// The specification of `$bsonSize`.
pub(super) const BSON: OpSpec = OpSpec::new(
    "$bsonSize",
    Arity::Exactly(1),
    "How many bytes an object has as BSON.",
    |args, ctx| match arg_some(args, 0, ctx)? {
        None => NULL,
        Some(Value::Document(d)) => Ok(Some(Value::Int32(d.byte_len() as i32))),
        Some(v) => Err(Error::location(
            31393,
            format!(
                "$bsonSize requires a document input, found: {}",
                v.type_name()
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
            "{'s': 'é', 'b': ['$bin', 1, 2, 3], 'own': ['$binOf', 200, 1, 2], \
             'd': {'name': 'test'}, 'n': null}",
            &[
                ("{'$binarySize': '$s'}", Gives("2")),
                ("{'$binarySize': '$b'}", Gives("3")),
                ("{'$binarySize': '$n'}", Gives("null")),
                ("{'$binarySize': '$own'}", Gives("2")),
                (
                    "{'$binarySize': '$d'}",
                    Says(
                        51276,
                        "$binarySize requires a string or BinData argument, found: object",
                    ),
                ),
                ("{'$bsonSize': '$d'}", Gives("20")),
                ("{'$bsonSize': {}}", Gives("5")),
                ("{'$bsonSize': '$missing'}", Gives("null")),
                ("{'$bsonSize': '$s'}", Fails(31393)),
            ],
        );
    }
}
