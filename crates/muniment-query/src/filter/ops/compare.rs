//! `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`. Range conditions only match values in the operand's type
//! bracket.

use super::OpSpec;
use crate::filter::Pred;
use crate::filter::parse::{self, FieldOperand};
use muniment_value::{Error, Result, Value, ValueBuf};

/// The specification of `$eq`.
pub(super) const EQ: OpSpec = OpSpec::field("$eq", "Equal to the operand.", |_, o| {
    Ok(Some(Pred::Eq(parse::comparable(o.value)?)))
});

/// The specification of `$ne`.
pub(super) const NE: OpSpec = OpSpec::field("$ne", "Not equal to the operand.", |_, o| {
    if let Value::Regex { .. } = o.value {
        return Err(Error::bad_value("Can't have regex as arg to $ne."));
    }
    Ok(Some(Pred::Not(Box::new(Pred::Eq(parse::comparable(
        o.value,
    )?)))))
});

/// The specification of `$gt`.
pub(super) const GT: OpSpec = OpSpec::field("$gt", "Greater than the operand.", |_, o| {
    range(o, Pred::Gt)
});

/// The specification of `$gte`.
pub(super) const GTE: OpSpec =
    OpSpec::field("$gte", "Greater than or equal to the operand.", |_, o| {
        range(o, Pred::Gte)
    });

/// The specification of `$lt`.
pub(super) const LT: OpSpec =
    OpSpec::field("$lt", "Less than the operand.", |_, o| range(o, Pred::Lt));

/// The specification of `$lte`.
pub(super) const LTE: OpSpec =
    OpSpec::field("$lte", "Less than or equal to the operand.", |_, o| {
        range(o, Pred::Lte)
    });

fn range(o: &FieldOperand<'_>, pred: fn(ValueBuf) -> Pred) -> Result<Option<Pred>> {
    if let Value::Regex { .. } = o.value {
        return Err(Error::bad_value(format!(
            "Can't have RegEx as arg to predicate over field '{}'.",
            o.path
        )));
    }
    Ok(Some(pred(parse::comparable(o.value)?)))
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn equality() {
        matches(
            "{'a': 1}",
            &[
                "{'a': 1}",
                "{'a': 1.0}",
                "{'a': ['$long', 1]}",
                "{'a': [0, 1]}",
            ],
            &["{'a': '1'}", "{'a': true}", "{'a': [[1]]}", "{}"],
        );
        matches("{'a': 1.5}", &["{'a': 1.5}"], &["{'a': 1}"]);
        matches(
            "{'a': 'x'}",
            &["{'a': 'x'}", "{'a': ['x']}"],
            &["{'a': 'xx'}", "{'a': ''}"],
        );
        matches(
            "{'a': ['$oid', 3]}",
            &["{'a': ['$oid', 3]}"],
            &["{'a': ['$oid', 4]}", "{'a': 3}"],
        );
        matches("{'a': ['$NaN']}", &["{'a': ['$NaN']}"], &["{'a': 1}", "{}"]);
        matches(
            "{'a': [1, 2]}",
            &["{'a': [1, 2]}", "{'a': [[1, 2]]}", "{'a': [1.0, 2]}"],
            &["{'a': [2, 1]}", "{'a': 1}", "{'a': [1, 2, 3]}"],
        );
        matches(
            "{'a': {'b': 1}}",
            &["{'a': {'b': 1.0}}", "{'a': [{'b': 1}]}"],
            &["{'a': {'b': 1, 'c': 2}}", "{'a': {}}"],
        );
        matches("{'a': {}}", &["{'a': {}}"], &["{'a': {'b': 1}}", "{}"]);
        matches(
            "{'a': true}",
            &["{'a': true}"],
            &["{'a': 1}", "{'a': false}"],
        );
        matches(
            "{'a': ['$date', 5]}",
            &["{'a': ['$date', 5]}"],
            &["{'a': 5}"],
        );
        matches(
            "{'a': ['$long', 9007199254740993]}",
            &["{'a': ['$long', 9007199254740993]}"],
            &["{'a': 9007199254740992.0}"],
        );
        fails("{'a': ['$undefined']}", 2, "cannot compare to undefined");
        fails(
            "{'a': {'$eq': ['$undefined']}}",
            2,
            "cannot compare to undefined",
        );
    }

    #[test]
    fn null() {
        matches(
            "{'a': null}",
            &["{'a': null}", "{}", "{'a': [1, null]}"],
            &["{'a': 0}", "{'a': []}", "{'a': ['$undefined']}"],
        );
        matches(
            "{'a': {'$ne': null}}",
            &["{'a': 0}", "{'a': []}"],
            &["{'a': null}", "{}", "{'a': [null]}"],
        );
        matches(
            "{'a.b': null}",
            &[
                "{}",
                "{'a': 1}",
                "{'a': {}}",
                "{'a': {'b': null}}",
                "{'a': [{'b': 1}, {}]}",
            ],
            &["{'a': {'b': 1}}", "{'a': []}", "{'a': [1, 2]}"],
        );
        matches(
            "{'a': {'$gte': null}}",
            &["{}", "{'a': null}"],
            &["{'a': 1}"],
        );
        matches(
            "{'a': {'$lte': null}}",
            &["{}", "{'a': null}"],
            &["{'a': 1}"],
        );
        matches(
            "{'a': {'$gt': null}}",
            &[],
            &["{}", "{'a': null}", "{'a': 1}"],
        );
    }

    #[test]
    fn ranges() {
        matches(
            "{'a': {'$gt': 1}}",
            &["{'a': 2}", "{'a': 1.5}", "{'a': [0, 2]}"],
            &[
                "{'a': 1}",
                "{'a': 'x'}",
                "{'a': null}",
                "{}",
                "{'a': ['$NaN']}",
                "{'a': ['$date', 9]}",
            ],
        );
        matches(
            "{'a': {'$gte': 1.5}}",
            &["{'a': 1.5}", "{'a': 2}", "{'a': ['$long', 2]}"],
            &["{'a': 1}"],
        );
        matches(
            "{'a': {'$lt': 'm'}}",
            &["{'a': 'a'}", "{'a': ''}"],
            &["{'a': 'm'}", "{'a': 1}"],
        );
        matches(
            "{'a': {'$lte': ['$date', 5]}}",
            &["{'a': ['$date', 5]}"],
            &["{'a': ['$date', 6]}", "{'a': 1}", "{'a': ['$ts', 1]}"],
        );
        matches(
            "{'a': {'$gt': 1, '$lt': 5}}",
            &["{'a': 3}", "{'a': [0, 9]}"],
            &["{'a': 1}", "{'a': [0, 1]}"],
        );
        matches(
            "{'a': {'$gte': ['$NaN']}}",
            &["{'a': ['$NaN']}"],
            &["{'a': 1}"],
        );
        matches(
            "{'a': {'$lt': ['$NaN']}}",
            &[],
            &["{'a': ['$NaN']}", "{'a': 1}"],
        );
        matches(
            "{'a': {'$gt': [1]}}",
            &["{'a': [1, 2]}", "{'a': [2]}", "{'a': [[2]]}"],
            &["{'a': [1]}", "{'a': 5}"],
        );
        matches(
            "{'a': {'$lt': {'b': 2}}}",
            &["{'a': {'b': 1}}", "{'a': {}}"],
            &["{'a': {'b': 2}}", "{'a': {'c': 1}}"],
        );
        matches(
            "{'a': {'$gt': ['$minKey']}}",
            &["{'a': 1}", "{}", "{'a': null}"],
            &["{'a': ['$minKey']}"],
        );
        matches(
            "{'a': {'$gte': ['$minKey']}}",
            &["{'a': 1}", "{'a': ['$minKey']}"],
            &[],
        );
        matches(
            "{'a': {'$lt': ['$maxKey']}}",
            &["{'a': 1}", "{'a': {}}"],
            &["{'a': ['$maxKey']}"],
        );
        matches(
            "{'a': {'$lt': ['$minKey']}}",
            &[],
            &["{'a': 1}", "{'a': ['$minKey']}", "{}"],
        );
        matches(
            "{'a': ['$minKey']}",
            &["{'a': ['$minKey']}"],
            &["{'a': 1}", "{}"],
        );
        fails(
            "{'a': {'$gt': ['$re', 'x']}}",
            2,
            "Can't have RegEx as arg to predicate over field 'a'.",
        );
    }

    #[test]
    fn inequality() {
        matches(
            "{'a': {'$ne': 1}}",
            &["{'a': 2}", "{}", "{'a': [2]}"],
            &["{'a': 1}", "{'a': [1, 2]}"],
        );
        fails(
            "{'a': {'$ne': ['$re', 'x']}}",
            2,
            "Can't have regex as arg to $ne.",
        );
    }

    #[test]
    fn paths() {
        matches(
            "{'a.b': 1}",
            &[
                "{'a': {'b': 1}}",
                "{'a': [{'b': 1}]}",
                "{'a': {'b': [1]}}",
                "{'a': [{'b': [1]}]}",
            ],
            &["{'a': [[{'b': 1}]]}", "{'a.b': 1}", "{'a': 1}"],
        );
        matches(
            "{'a.0': 1}",
            &["{'a': [1]}", "{'a': {'0': 1}}", "{'a': [{'0': 1}]}"],
            &["{'a': [0, 1]}", "{'a': [[1]]}"],
        );
        matches(
            "{'a.1.b': 1}",
            &["{'a': [0, {'b': 1}]}", "{'a': [0, [{'b': 1}]]}"],
            &["{'a': [{'b': 1}, 0]}"],
        );
        matches("{'a.0.0': 1}", &["{'a': [[1]]}"], &["{'a': [1]}"]);
        matches("{'': 1}", &["{'': 1}"], &["{'a': 1}"]);
        matches(
            "{'a': 1, 'b.c': {'$gt': 2}, 'd': null}",
            &["{'b': {'c': 3}, 'a': 1}"],
            &[
                "{'a': 1, 'b': {'c': 2}}",
                "{'a': 1, 'b': {'c': 3}, 'd': 0}",
                "{}",
            ],
        );
        matches(
            "{'a': {'$ref': 'c', '$id': 1}}",
            &["{'a': {'$ref': 'c', '$id': 1}}"],
            &["{'a': {'$ref': 'c', '$id': 2}}"],
        );
        matches(
            "{'a.$id': 1}",
            &["{'a': {'$ref': 'c', '$id': 1}}"],
            &["{'a': {'$id': 2}}"],
        );
        matches(
            "{'a': {'b': 1, '$gt': 2}}",
            &["{'a': {'b': 1, '$gt': 2}}"],
            &["{'a': 3}"],
        );
    }
}
