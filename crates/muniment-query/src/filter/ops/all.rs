//! `$all`: a conjunction of equalities, patterns or `$elemMatch`es on one path.

use super::OpSpec;
use crate::filter::parse::{self, FieldOperand, Parser};
use crate::filter::{Pred, Regex};
use muniment_value::{Doc, Error, Result, Value};

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::field(
    "$all",
    "The field has every one of these values, or elements that match every $elemMatch.",
    parse_all,
);

fn elem_match(v: Value<'_>) -> Option<Doc<'_>> {
    v.as_doc()
        .filter(|d| d.first().is_some_and(|e| e.name() == "$elemMatch"))
}

/// True for a document of field operators. Other names with `$` are ordinary field names of a document (such
/// as the stages of a view's pipeline).
fn is_operator(d: Doc<'_>) -> bool {
    let known = |name: &str| super::find(name).is_some();
    parse::is_operators(d) && d.first().is_some_and(|e| known(e.name()))
}

fn parse_all(p: &mut Parser<'_>, o: &FieldOperand<'_>) -> Result<Option<Pred>> {
    let Value::Array(items) = o.value else {
        return Err(Error::bad_value("$all needs an array"));
    };
    let by_elements = items.values().next().and_then(elem_match).is_some();
    let mut preds = Vec::new();
    for v in items.values() {
        if by_elements {
            let inner = elem_match(v)
                .filter(|d| d.count() == 1)
                .ok_or_else(|| Error::bad_value("$all/$elemMatch has to be consistent"))?;
            preds.extend(p.operators(o.path, inner)?);
            continue;
        }
        preds.push(match v {
            Value::Document(d) if is_operator(d) => {
                return Err(Error::bad_value("no $ expressions in $all"));
            }
            Value::Regex { pattern, options } => Pred::Regex(Regex::new(pattern, options)?),
            v => Pred::Eq(parse::comparable(v)?),
        });
    }
    Ok(Some(match preds.len() {
        0 => Pred::In {
            values: Vec::new(),
            regexes: Vec::new(),
        },
        1 => preds.pop().unwrap_or(Pred::And(Vec::new())),
        _ => Pred::And(preds),
    }))
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches(
            "{'a': {'$all': [1, 2]}}",
            &["{'a': [2, 1, 3]}"],
            &["{'a': [1]}", "{'a': 1}", "{}"],
        );
        matches(
            "{'a': {'$all': [1]}}",
            &["{'a': 1}", "{'a': [1]}"],
            &["{'a': [[1]]}"],
        );
        matches(
            "{'a': {'$all': [[1, 2]]}}",
            &["{'a': [1, 2]}", "{'a': [[1, 2]]}"],
            &["{'a': [2, 1]}"],
        );
        matches("{'a': {'$all': []}}", &[], &["{'a': []}", "{}"]);
        matches(
            "{'a': {'$all': [null]}}",
            &["{}", "{'a': null}"],
            &["{'a': 1}"],
        );
        matches(
            "{'a': {'$all': [['$re', '^x'], 'y']}}",
            &["{'a': ['xx', 'y']}"],
            &["{'a': ['xx']}"],
        );
        matches(
            "{'a': {'$all': [{'$elemMatch': {'x': 1}}, {'$elemMatch': {'y': 2}}]}}",
            &["{'a': [{'x': 1}, {'y': 2}]}", "{'a': [{'x': 1, 'y': 2}]}"],
            &["{'a': [{'x': 1}]}"],
        );
        let many = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 1]";
        matches(
            &format!("{{'a': {{'$all': {many}}}}}"),
            &[
                "{'a': [16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1.0]}",
                "{'a': [16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 0, 1]}",
            ],
            &["{'a': [1, 2, 3]}", "{'a': 1}", "{}"],
        );
        matches(
            "{'a': {'$all': [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}}",
            &["{'a': 1}", "{'a': [1]}"],
            &["{'a': 2}", "{}"],
        );
        matches(
            "{'a': {'$all': [{'$match': {'x': 1}}]}}",
            &["{'a': [{'$match': {'x': 1}}, 2]}"],
            &["{'a': [{'$match': {'x': 2}}]}"],
        );
        fails("{'a': {'$all': 1}}", 2, "$all needs an array");
        fails(
            "{'a': {'$all': [{'$gt': 1}]}}",
            2,
            "no $ expressions in $all",
        );
        fails(
            "{'a': {'$all': [{'$elemMatch': {'x': 1}}, 2]}}",
            2,
            "$all/$elemMatch has to be consistent",
        );
    }
}
