//! `$expr`: an aggregation expression as a condition.

use super::OpSpec;
use crate::expr::Expr;
use crate::filter::Node;
use muniment_value::{Collation, Value};

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::top(
    "$expr",
    "An aggregation expression on the whole document is true.",
    |p, v| {
        p.top_only("$expr")?;
        let e = if p.ctx.collation.is_simple() || !looks_up_a_field(v) {
            Expr::parse(v, p.ctx)?
        } else {
            Expr::parse(v, &p.ctx.clone().with_collation(Collation::SIMPLE))?
        };
        Ok(match e.as_constant().map(|v| v.truthy()) {
            Some(true) => Node::True,
            Some(false) => Node::False,
            None => Node::Expr(e),
        })
    },
);

/// `{$in: ["$field", [constants]]}`: MongoDB asks its own `$in` first then, which it forgets to
/// tell the collation.
fn looks_up_a_field(v: Value<'_>) -> bool {
    let call = v.as_doc().and_then(|d| d.first());
    let Some(operands) = call
        .filter(|e| e.name() == "$in")
        .and_then(|e| e.value().as_array())
    else {
        return false;
    };
    let mut operands = operands.values();
    let field = |v: Value<'_>| v.as_str().is_some_and(|s| s.starts_with('$'));
    let (Some(wanted), Some(Value::Array(among))) = (operands.next(), operands.next()) else {
        return false;
    };
    field(wanted) && !among.values().any(|v| field(v) || v.as_doc().is_some())
}

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
