//! `$regex` and `$options`.

use super::OpSpec;
use crate::filter::parse::FieldOperand;
use crate::filter::{Pred, Regex};
use muniment_value::{Error, Result, Value};

/// The specification of `$regex`.
pub(super) const SPEC: OpSpec = OpSpec::field(
    "$regex",
    "A string that the pattern matches, or an equal regular expression.",
    |_, o| parse(o),
);

/// The specification of `$options`.
pub(super) const OPTIONS: OpSpec = OpSpec::field(
    "$options",
    "Options of the $regex beside it: i, m, s, x, u.",
    |_, o| match o.has_regex {
        true => Ok(None),
        false => Err(Error::bad_value("$options needs a $regex")),
    },
);

fn parse(o: &FieldOperand<'_>) -> Result<Option<Pred>> {
    let beside = match o.options {
        None => None,
        Some(Value::String(s)) => Some(s),
        Some(_) => return Err(Error::bad_value("$options has to be a string")),
    };
    let (pattern, options) = match o.value {
        Value::String(s) | Value::Symbol(s) => (s, beside.unwrap_or_default()),
        Value::Regex { pattern, options } => {
            if beside.is_some() && !options.is_empty() {
                return Err(Error::location(
                    if o.options_first { 51074 } else { 51075 },
                    "options set in both $regex and $options",
                ));
            }
            (pattern, beside.unwrap_or(options))
        }
        _ => return Err(Error::bad_value("$regex has to be a string")),
    };
    Ok(Some(Pred::Regex(Regex::new(pattern, options)?)))
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches(
            "{'a': ['$re', 'b.d']}",
            &[
                "{'a': 'abcd'}",
                "{'a': ['x', 'bcd']}",
                "{'a': ['$re', 'b.d']}",
            ],
            &[
                "{'a': 'ABCD'}",
                "{'a': 1}",
                "{}",
                "{'a': ['$re', 'b.d', 'i']}",
            ],
        );
        matches(
            "{'a': {'$regex': '^B', '$options': 'i'}}",
            &["{'a': 'bc'}"],
            &["{'a': 'ab'}"],
        );
        matches(
            "{'a': {'$options': 'i', '$regex': ['$re', '^B']}}",
            &["{'a': 'bc'}"],
            &["{'a': 'ab'}"],
        );
        matches(
            "{'a': {'$regex': '^b', '$ne': 'bx'}}",
            &["{'a': 'bc'}"],
            &["{'a': 'bx'}"],
        );
        matches(
            "{'a': {'$eq': ['$re', 'b']}}",
            &["{'a': ['$re', 'b']}"],
            &["{'a': 'b'}"],
        );
        fails("{'a': {'$regex': 1}}", 2, "$regex has to be a string");
        fails(
            "{'a': {'$regex': 'a', '$options': 1}}",
            2,
            "$options has to be a string",
        );
        fails("{'a': {'$options': 'i'}}", 2, "$options needs a $regex");
        fails(
            "{'a': {'$regex': ['$re', 'a', 'i'], '$options': 'm'}}",
            51075,
            "options set in both $regex and $options",
        );
        fails(
            "{'a': {'$regex': 'a('}}",
            51091,
            "Regular expression is invalid: missing closing parenthesis",
        );
        fails(
            "{'a': {'$options': 'm', '$regex': ['$re', 'a', 'i']}}",
            51074,
            "options set in both $regex and $options",
        );
        fails(
            "{'a': {'$regex': 'a', '$options': 'z'}}",
            51108,
            "invalid flag in regex options: z",
        );
    }
}
