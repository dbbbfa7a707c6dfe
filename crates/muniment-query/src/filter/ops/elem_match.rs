//! `$elemMatch`: one element of an array satisfies all conditions at once. If the operand consists of
//! operators, they test the elements themselves; if it consists of fields, they test the fields of
//! sub-documents.

use super::{OpSpec, Place};
use crate::filter::Pred;
use crate::filter::parse::{self, FieldOperand, Parser};
use muniment_value::{Error, Result, Value};

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::field(
    "$elemMatch",
    "Some element of the array satisfies all of these conditions.",
    parse_elem_match,
);

fn parse_elem_match(p: &mut Parser<'_>, o: &FieldOperand<'_>) -> Result<Option<Pred>> {
    let Value::Document(d) = o.value else {
        return Err(Error::bad_value("$elemMatch needs an Object"));
    };
    // `{$or: […]}` and similar operators are conditions on sub-documents.
    let by_value = parse::is_operators_alone(d)
        && d.first().is_some_and(|e| {
            !matches!(super::find(e.name()).map(|s| s.place), Some(Place::Top(_)))
        });
    if by_value {
        return Ok(Some(Pred::ElemMatchValue(p.operators("", d)?)));
    }
    p.inside += 1;
    let node = p.filter(d);
    p.inside -= 1;
    Ok(Some(Pred::ElemMatchObject(Box::new(node?))))
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches(
            "{'a': {'$elemMatch': {'$gt': 1, '$lt': 5}}}",
            &["{'a': [0, 3]}"],
            &["{'a': [0, 9]}", "{'a': 3}", "{'a': [[3]]}", "{}"],
        );
        matches(
            "{'a': {'$elemMatch': {'x': 1, 'y': 2}}}",
            &["{'a': [{'x': 1, 'y': 2}]}"],
            &["{'a': [{'x': 1}, {'y': 2}]}", "{'a': {'x': 1, 'y': 2}}"],
        );
        matches(
            "{'a.b': {'$elemMatch': {'c': 1}}}",
            &["{'a': [{'b': [{'c': 1}]}]}"],
            &["{'a': [{'b': {'c': 1}}]}"],
        );
        matches(
            "{'a': {'$elemMatch': {'$not': {'$gt': 3}}}}",
            &["{'a': [4, 3]}"],
            &["{'a': [4]}", "{'a': []}"],
        );
        matches(
            "{'a': {'$elemMatch': {'$or': [{'x': 1}, {'y': 1}]}}}",
            &["{'a': [{'y': 1}]}"],
            &["{'a': [{'z': 1}]}"],
        );
        matches(
            "{'a': {'$elemMatch': {'$elemMatch': {'$gt': 1}}}}",
            &["{'a': [[2]]}"],
            &["{'a': [2]}"],
        );
        matches(
            "{'a': {'$elemMatch': {'0': 1}}}",
            &["{'a': [[1]]}"],
            &["{'a': [1]}"],
        );
        matches(
            "{'a': {'$elemMatch': {}}}",
            &["{'a': [{}]}", "{'a': [[]]}"],
            &["{'a': []}", "{'a': [1]}"],
        );
        matches(
            "{'a': {'$elemMatch': {'$in': [1, 2]}}}",
            &["{'a': [2]}"],
            &["{'a': 2}"],
        );
        matches(
            "{'a': {'$elemMatch': {'$ne': 1}}}",
            &["{'a': [1, 2]}"],
            &["{'a': [1]}"],
        );
        fails("{'a': {'$elemMatch': 1}}", 2, "$elemMatch needs an Object");
        fails(
            "{'a': {'$elemMatch': {'$gt': 1, 'b': 1}}}",
            2,
            "unknown operator: b",
        );
    }
}
