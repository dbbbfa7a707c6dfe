//! `$expr`: an aggregation expression as a condition.

use super::OpSpec;
use crate::expr::Expr;
use crate::filter::Node;

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::top(
    "$expr",
    "An aggregation expression on the whole document is true.",
    |p, v| {
        p.top_only("$expr")?;
        let e = Expr::parse(v, p.ctx)?;
        Ok(match e.as_constant().map(|v| v.truthy()) {
            Some(true) => Node::True,
            Some(false) => Node::False,
            None => Node::Expr(e),
        })
    },
);

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches(
            "{'$expr': {'$gt': ['$a', '$b']}}",
            &["{'a': 2, 'b': 1}", "{'a': 2}"],
            &["{'a': 1, 'b': 2}"],
        );
        matches("{'$expr': '$a'}", &["{'a': 1}"], &["{'a': 0}", "{}"]);
        matches("{'$expr': true}", &["{}"], &[]);
        matches(
            "{'b': 1, '$expr': {'$eq': ['$a', 1]}}",
            &["{'a': 1, 'b': 1}"],
            &["{'a': 1}", "{'b': 1}"],
        );
        fails(
            "{'$expr': {'$foo': 1}}",
            168,
            "Unrecognized expression '$foo'",
        );
        fails(
            "{'a': {'$elemMatch': {'$expr': true}}}",
            2,
            "$expr can only be applied to the top-level document",
        );
    }
}
