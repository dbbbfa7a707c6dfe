//! `$alwaysTrue` and `$alwaysFalse`.

use super::OpSpec;
use crate::filter::Node;
use muniment_value::{Error, Result, Value};

/// The specification of `$alwaysTrue`.
pub(super) const TRUE: OpSpec = OpSpec::top("$alwaysTrue", "Matches every document.", |_, v| {
    one("$alwaysTrue", v).map(|()| Node::True)
});

/// The specification of `$alwaysFalse`.
pub(super) const FALSE: OpSpec = OpSpec::top("$alwaysFalse", "Matches no document.", |_, v| {
    one("$alwaysFalse", v).map(|()| Node::False)
});

fn one(op: &str, v: Value<'_>) -> Result<()> {
    match v.as_i64_exact() {
        Some(1) => Ok(()),
        _ => Err(Error::failed_to_parse(format!(
            "{op} must be an integer value of 1"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches("{'$alwaysTrue': 1}", &["{}"], &[]);
        matches("{'$alwaysFalse': 1.0}", &[], &["{}"]);
        fails(
            "{'$alwaysTrue': 2}",
            9,
            "$alwaysTrue must be an integer value of 1",
        );
    }
}
