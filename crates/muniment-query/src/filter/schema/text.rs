//! `minLength`, `maxLength` (in code points) and `pattern`. They only restrict strings.

use super::limits::{Counted, least, most};
use super::parse::mismatch;
use super::{KeywordSpec, Rule, considered};
use crate::filter::Regex;
use muniment_value::{DocBuf, Result, Value};

/// `minLength`.
pub(super) const MIN_LENGTH: KeywordSpec = KeywordSpec {
    name: "minLength",
    doc: "The least number of code points",
    parse: |_, v| least("minLength", v, &CODE_POINTS),
};

/// `maxLength`.
pub(super) const MAX_LENGTH: KeywordSpec = KeywordSpec {
    name: "maxLength",
    doc: "The greatest number of code points",
    parse: |_, v| most("maxLength", v, &CODE_POINTS),
};

/// `pattern`.
pub(super) const PATTERN: KeywordSpec = KeywordSpec {
    name: "pattern",
    doc: "A regular expression that the string matches somewhere",
    parse: |_, v| match v {
        Value::String(p) => Ok(Some(Box::new(Pattern(Regex::new(p, "")?)))),
        _ => Err(mismatch("pattern", "a string")),
    },
};

const CODE_POINTS: Counted = Counted {
    of: |v| v.as_str().map(|s| s.chars().count()),
    explain: |keyword, operand, v| {
        considered(
            keyword,
            operand,
            "specified string length was not satisfied",
            v,
        )
    },
};

#[derive(Debug)]
struct Pattern(Regex);

impl Rule for Pattern {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        match v {
            Value::String(s) => self.0.is_match(s.as_bytes()),
            _ => Ok(true),
        }
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let operand = Value::String(&self.0.pattern);
        let reason = "regular expression did not match";
        Ok(considered("pattern", operand, reason, v))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{explains, fails, valid};

    #[test]
    fn table_test() {
        valid(
            "{'properties': {'a': {'minLength': 2, 'maxLength': 3}}}",
            &["{}", "{'a': 'xy'}", "{'a': 'äöü'}", "{'a': 5}"],
            &["{'a': 'x'}", "{'a': 'wxyz'}"],
        );
        valid(
            "{'properties': {'a': {'pattern': '^x.z'}}}",
            &["{'a': 'xyz1'}", "{'a': 5}"],
            &["{'a': 'axyz'}"],
        );
        fails(
            "{'minLength': -1}",
            9,
            "Expected a non-negative number in: minLength: -1",
        );
        fails(
            "{'minLength': 1.5}",
            9,
            "Expected an integer: minLength: 1.5",
        );
        fails(
            "{'maxLength': 'x'}",
            9,
            "Expected a number in: maxLength: \"x\"",
        );
        fails(
            "{'pattern': 1}",
            14,
            "$jsonSchema keyword 'pattern' must be a string",
        );
        explains(
            "{'properties': {'a': {'minLength': 2, 'pattern': '^y'}}}",
            "{'a': 'x'}",
            "[{'operatorName': 'properties', 'propertiesNotSatisfied': [{'propertyName': 'a', \
              'details': [{'operatorName': 'minLength', 'specifiedAs': {'minLength': 2}, \
              'reason': 'specified string length was not satisfied', 'consideredValue': 'x'}, \
              {'operatorName': 'pattern', 'specifiedAs': {'pattern': '^y'}, 'reason': \
              'regular expression did not match', 'consideredValue': 'x'}]}]}]",
        );
    }
}
