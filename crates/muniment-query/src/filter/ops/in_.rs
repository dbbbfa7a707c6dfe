//! `$in` and `$nin`.

use super::OpSpec;
use crate::filter::parse::{self, FieldOperand, Parser};
use crate::filter::{Pred, Regex};
use muniment_value::{Error, Result, Value};

/// The specification of `$in`.
pub(super) const IN: OpSpec = OpSpec::field(
    "$in",
    "Equal to one of these values, or matched by one of these regular expressions.",
    |p, o| parse_in("$in", p, o).map(Some),
);

/// The specification of `$nin`.
pub(super) const NIN: OpSpec = OpSpec::field("$nin", "Not $in.", |p, o| {
    Ok(Some(Pred::Not(Box::new(parse_in("$nin", p, o)?))))
});

fn parse_in(op: &str, p: &Parser<'_>, o: &FieldOperand<'_>) -> Result<Pred> {
    let Value::Array(items) = o.value else {
        return Err(Error::bad_value(format!("{op} needs an array")));
    };
    let (mut values, mut regexes) = (Vec::new(), Vec::new());
    for v in items.values() {
        match v {
            Value::Document(d) if parse::is_operators(d) => {
                return Err(Error::bad_value(format!("cannot nest $ under {op}")));
            }
            Value::Regex { pattern, options } => regexes.push(Regex::new(pattern, options)?),
            v => values.push(parse::comparable(v)?),
        }
    }
    Ok(Pred::In {
        values: parse::sorted(values, &p.ctx.collation),
        regexes,
    })
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches(
            "{'a': {'$in': [3, 1, 2]}}",
            &["{'a': 1}", "{'a': 3.0}", "{'a': [9, 2]}"],
            &[
                "{'a': 4}",
                "{'a': '1'}",
                "{'a': 1.5}",
                "{}",
                "{'a': ['$NaN']}",
            ],
        );
        matches(
            "{'a': {'$in': ['x', 'abc']}}",
            &["{'a': 'abc'}"],
            &["{'a': 'ab'}", "{'a': 1}"],
        );
        matches(
            "{'a': {'$in': [1, 'x', null]}}",
            &["{}", "{'a': null}", "{'a': 'x'}", "{'a': 1.0}"],
            &["{'a': 2}", "{'a': []}", "{'a': ['$undefined']}"],
        );
        matches(
            "{'a': {'$in': [[1, 2], 7]}}",
            &["{'a': [1, 2]}", "{'a': [[1, 2]]}", "{'a': [7]}"],
            &["{'a': [1]}"],
        );
        matches(
            "{'a': {'$in': [['$re', '^b'], 1]}}",
            &["{'a': 'bc'}", "{'a': 1}", "{'a': ['$re', '^b']}"],
            &["{'a': 'cb'}"],
        );
        matches(
            "{'a': {'$in': [1.5, ['$NaN']]}}",
            &["{'a': 1.5}", "{'a': ['$NaN']}"],
            &["{'a': 1}"],
        );
        matches("{'a': {'$in': []}}", &[], &["{}", "{'a': []}"]);
        matches(
            "{'a': {'$nin': [1, null]}}",
            &["{'a': 2}"],
            &["{}", "{'a': 1}", "{'a': [1, 2]}"],
        );
        matches("{'a': {'$nin': []}}", &["{}", "{'a': 1}"], &[]);
        fails("{'a': {'$in': 1}}", 2, "$in needs an array");
        fails("{'a': {'$nin': 1}}", 2, "$nin needs an array");
        fails("{'a': {'$in': [{'$gt': 1}]}}", 2, "cannot nest $ under $in");
        fails(
            "{'a': {'$in': [['$undefined']]}}",
            2,
            "cannot compare to undefined",
        );
    }
}
