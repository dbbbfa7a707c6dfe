//! `$not`: negates operators on one path, or a regular expression.

use super::OpSpec;
use crate::filter::parse::{FieldOperand, Parser};
use crate::filter::{Pred, Regex};
use muniment_value::{Error, Result, Value};

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::field(
    "$not",
    "The condition does not hold (or the field is missing).",
    parse,
);

fn parse(p: &mut Parser<'_>, o: &FieldOperand<'_>) -> Result<Option<Pred>> {
    let inner = match o.value {
        Value::Regex { pattern, options } => Pred::Regex(Regex::new(pattern, options)?),
        Value::Document(d) => {
            if d.is_empty() {
                return Err(Error::bad_value("$not cannot be empty"));
            }
            let mut preds = p.operators(o.path, d)?;
            match preds.len() {
                1 => preds.pop().unwrap_or(Pred::And(Vec::new())),
                _ => Pred::And(preds),
            }
        }
        _ => return Err(Error::bad_value("$not needs a regex or a document")),
    };
    Ok(Some(Pred::Not(Box::new(inner))))
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches(
            "{'a': {'$not': {'$gt': 1}}}",
            &["{'a': 1}", "{}", "{'a': 'x'}", "{'a': [0]}"],
            &["{'a': 2}", "{'a': [0, 2]}"],
        );
        matches(
            "{'a': {'$not': {'$gt': 1, '$lt': 5}}}",
            &["{'a': 9}", "{'a': [9]}"],
            &["{'a': 3}", "{'a': [0, 9]}"],
        );
        matches(
            "{'a': {'$not': ['$re', '^x']}}",
            &["{'a': 'y'}", "{}"],
            &["{'a': 'xy'}"],
        );
        matches(
            "{'a': {'$not': {'$not': {'$gt': 1}}}}",
            &["{'a': 2}"],
            &["{'a': 1}"],
        );
        matches(
            "{'a': {'$not': {'$regex': '^x'}}}",
            &["{'a': 'y'}"],
            &["{'a': 'xy'}"],
        );
        fails("{'a': {'$not': {}}}", 2, "$not cannot be empty");
        fails("{'a': {'$not': 1}}", 2, "$not needs a regex or a document");
        fails("{'a': {'$not': {'b': 1}}}", 2, "unknown operator: b");
    }
}
