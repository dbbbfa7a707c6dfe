//! `$expr`: an aggregation expression as a condition.

use super::OpSpec;
use crate::expr::Expr;
use crate::filter::parse::and;
use crate::filter::{Node, Pred};
use muniment_value::path::Path;
use muniment_value::{Collation, Value, ValueBuf, cmp_values};

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::top(
    "$expr",
    "An aggregation expression on the whole document is true.",
    |p, v| {
        p.top_only("$expr")?;
        let expr = if p.ctx.collation.is_simple() || !looks_up_a_field(v) {
            Expr::parse(v, p.ctx)
        } else {
            Expr::parse(v, &p.ctx.clone().with_collation(Collation::SIMPLE))
        };
        let expr = expr.map_err(|e| match e.is_optimizing() {
            true => e.context("Failed to optimize expression :: caused by :: "),
            false => e,
        })?;
        Ok(match expr.as_constant().map(|v| v.truthy()) {
            Some(true) => Node::True,
            Some(false) => Node::False,
            None => Node::Expr {
                implied: implied(&expr).map(Box::new),
                expr,
            },
        })
    },
);

/// True for `{$in: ["$field", [constants]]}`. MongoDB first tests this with its filter operator `$in`, to
/// which it does not pass the collation.
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

/// A condition on fields that every document satisfies for which the expression is true.
fn implied(e: &Expr) -> Option<Node> {
    let (spec, args) = e.as_call()?;
    match (spec.name, args) {
        ("$eq", [a, b]) => equality(a, b).or_else(|| equality(b, a)),
        ("$in", [a, list]) => {
            let Value::Array(list) = list.as_constant()? else {
                return None;
            };
            let mut values: Vec<ValueBuf> = list
                .values()
                .map(|v| comparable(v).then(|| ValueBuf::new(v)))
                .collect::<Option<_>>()?;
            values.sort_by(|a, b| cmp_values(a.as_value(), b.as_value()));
            values.dedup_by(|a, b| cmp_values(a.as_value(), b.as_value()).is_eq());
            let regexes = Vec::new();
            field(a, Pred::In { values, regexes })
        }
        // Every condition of a conjunction must hold, so the conjunction implies what each of them implies.
        ("$and", list) => {
            let list: Vec<Node> = list.iter().filter_map(implied).collect();
            (!list.is_empty()).then(|| and(list))
        }
        _ => None,
    }
}

/// The condition that `field` equals a constant.
fn equality(a: &Expr, constant: &Expr) -> Option<Node> {
    let v = constant.as_constant()?;
    comparable(v).then(|| field(a, Pred::Eq(ValueBuf::new(v))))?
}

/// Whether an equality with this value means the same in expressions and in filters. Filters also compare the
/// elements of arrays, treat a missing field as null, and match regular expressions against strings.
fn comparable(v: Value<'_>) -> bool {
    !matches!(
        v,
        Value::Null | Value::Undefined | Value::Array(_) | Value::Regex { .. }
    )
}

fn field(e: &Expr, pred: Pred) -> Option<Node> {
    let path = Path::new(e.as_field_path()?.as_str());
    // In filters a number in a path may be an array index; in expressions it never is.
    let number = |p: &str| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit());
    if path.as_str().split('.').any(number) {
        return None;
    }
    Some(Node::Field { path, pred })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use crate::context::QueryContext;
    use crate::filter::tests::{fails, matches};
    use crate::filter::{Filter, Node};
    use crate::update::testing::json;
    use muniment_value::Collation;

    #[test]
    fn implied_conditions() {
        for (expr, want) in [
            ("{$eq: ['$a.b', 5]}", "{'a.b': {$eq: 5}}"),
            ("{$eq: ['x', '$a']}", "{a: {$eq: 'x'}}"),
            ("{$in: ['$a', [3, 1, 3]]}", "{a: {$in: [1, 3]}}"),
            (
                "{$and: [{$eq: ['$a', 1]}, {$gt: ['$c', 2]}, {$eq: ['$b', 2]}]}",
                "{$and: [{a: {$eq: 1}}, {b: {$eq: 2}}]}",
            ),
            ("{$eq: ['$a', null]}", ""),
            ("{$eq: ['$a', [1]]}", ""),
            ("{$in: ['$a', [1, null]]}", ""),
            ("{$eq: ['$a.0', 1]}", ""),
            ("{$eq: ['$a', '$b']}", ""),
            ("{$eq: [{$abs: '$a'}, 1]}", ""),
            ("{$or: [{$eq: ['$a', 1]}, {$eq: ['$b', 1]}]}", ""),
            ("{$not: [{$eq: ['$a', 1]}]}", ""),
        ] {
            let d = json(&format!("{{$expr: {expr}}}"));
            let f = Filter::parse(d.as_doc(), &QueryContext::new()).unwrap();
            let Node::Expr { implied, .. } = f.root() else {
                panic!("{expr}");
            };
            let got = implied
                .as_ref()
                .map(|n| Filter::from_root((**n).clone(), &Collation::SIMPLE).to_doc());
            let want = (!want.is_empty()).then(|| json(want));
            assert_eq!(format!("{got:?}"), format!("{want:?}"), "{expr}");
        }
    }

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
