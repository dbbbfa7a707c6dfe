//! Operators that are known and refused: an option is an error that names it, never silence.

use super::{OpSpec, Place};
use muniment_value::{Code, Error, Result};

fn refuse<T>(name: &str) -> Result<T> {
    Err(Error::new(
        Code::NotImplemented,
        format!("the query operator {name} is not supported"),
    ))
}

macro_rules! unsupported {
    ($($id:ident $place:ident $name:literal;)*) => {$(
        /// The specification.
        pub(super) const $id: OpSpec = OpSpec {
            name: $name,
            doc: "Not supported.",
            supported: false,
            place: Place::$place(|p, _| {
                p.top_only($name)?;
                refuse($name)
            }),
        };
    )*};
}

unsupported! {
    TEXT Top "$text";
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::fails;

    #[test]
    fn table_test() {
        fails(
            "{'$text': {'$search': 'x'}}",
            238,
            "the query operator $text is not supported",
        );
    }
}
