//! `$comment`: has no effect; it is allowed next to fields and below them.

use super::OpSpec;
use crate::filter::Node;

/// The specification. The parser also accepts it below a path.
pub(super) const SPEC: OpSpec = OpSpec::top(
    "$comment",
    "A note for logs and profiles; matches every document.",
    |_, _| Ok(Node::True),
);

#[cfg(test)]
mod tests {
    use crate::filter::tests::matches;

    #[test]
    fn table_test() {
        matches("{'$comment': 'why', 'a': 1}", &["{'a': 1}"], &["{}"]);
        matches(
            "{'a': {'$gt': 1, '$comment': 'why'}}",
            &["{'a': 2}"],
            &["{'a': 1}"],
        );
    }
}
