//! `minimum` and `maximum` with their exclusive forms, and `multipleOf`. They only restrict numbers.

use super::parse::{Keywords, mismatch, refuse};
use super::{KeywordSpec, Rule};
use muniment_value::{DocBuf, Result, Value, ValueBuf, doc, number};
use std::cmp::Ordering;

/// `minimum`.
pub(super) const MINIMUM: KeywordSpec = KeywordSpec {
    name: "minimum",
    doc: "The least number",
    parse: |k, v| bound(k, &LEAST, v),
};

/// `maximum`.
pub(super) const MAXIMUM: KeywordSpec = KeywordSpec {
    name: "maximum",
    doc: "The greatest number",
    parse: |k, v| bound(k, &GREATEST, v),
};

/// `exclusiveMinimum`, which is evaluated by `minimum`.
pub(super) const EXCLUSIVE_MINIMUM: KeywordSpec = KeywordSpec {
    name: "exclusiveMinimum",
    doc: "Whether the minimum itself is excluded",
    parse: |k, v| exclusive(k, &LEAST, v),
};

/// `exclusiveMaximum`, which is evaluated by `maximum`.
pub(super) const EXCLUSIVE_MAXIMUM: KeywordSpec = KeywordSpec {
    name: "exclusiveMaximum",
    doc: "Whether the maximum itself is excluded",
    parse: |k, v| exclusive(k, &GREATEST, v),
};

/// `multipleOf`.
pub(super) const MULTIPLE_OF: KeywordSpec = KeywordSpec {
    name: "multipleOf",
    doc: "A number that divides the value without a rest",
    parse: |_, v| {
        if !v.is_number() {
            return Err(mismatch("multipleOf", "a number"));
        }
        if number::is_nan(v) || number::is_zero(v) || number::is_negative(v) {
            return Err(refuse("multipleOf", "must have a positive value"));
        }
        Ok(Some(Box::new(MultipleOf(ValueBuf::new(v)))))
    },
};

#[derive(Debug)]
struct Kind {
    keyword: &'static str,
    exclusive: &'static str,
    inside: Ordering,
}

const LEAST: Kind = Kind {
    keyword: "minimum",
    exclusive: "exclusiveMinimum",
    inside: Ordering::Greater,
};

const GREATEST: Kind = Kind {
    keyword: "maximum",
    exclusive: "exclusiveMaximum",
    inside: Ordering::Less,
};

#[derive(Debug)]
struct Bound {
    kind: &'static Kind,
    limit: ValueBuf,
    exclusive: Option<bool>,
}

fn bound(k: &Keywords<'_>, kind: &'static Kind, v: Value<'_>) -> Result<Option<Box<dyn Rule>>> {
    if !v.is_number() {
        return Err(mismatch(kind.keyword, "a number"));
    }
    Ok(Some(Box::new(Bound {
        kind,
        limit: ValueBuf::new(v),
        exclusive: k.doc.get(kind.exclusive).and_then(|v| v.as_bool()),
    })))
}

fn exclusive(k: &Keywords<'_>, kind: &'static Kind, v: Value<'_>) -> Result<Option<Box<dyn Rule>>> {
    if v.as_bool().is_none() {
        return Err(mismatch(kind.exclusive, "a boolean"));
    }
    if k.doc.get_elem(kind.keyword).is_none() {
        return Err(refuse(
            kind.keyword,
            &format!("must be a present if {} is present", kind.exclusive),
        ));
    }
    Ok(None)
}

impl Rule for Bound {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        if !v.is_number() {
            return Ok(true);
        }
        let limit = self.limit.as_value();
        let or_equal = self.exclusive != Some(true);
        Ok(match (number::is_nan(v), number::is_nan(limit)) {
            (true, true) => or_equal,
            (false, false) => match number::cmp(v, limit) {
                Ordering::Equal => or_equal,
                o => o == self.kind.inside,
            },
            _ => false,
        })
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let mut specified = DocBuf::new();
        specified.append(self.kind.keyword, &self.limit);
        specified.append_some(self.kind.exclusive, self.exclusive);
        Ok(doc! {
            "operatorName": self.kind.keyword,
            "specifiedAs": specified,
            "reason": "comparison failed",
            "consideredValue": v,
        })
    }
}

#[derive(Debug)]
struct MultipleOf(ValueBuf);

impl Rule for MultipleOf {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        // The division is done in decimals, in which 0.3 is three times 0.1.
        Ok(
            match (number::to_decimal(v), number::to_decimal(self.0.as_value())) {
                (Some(n), Some(divisor)) => n.rem(divisor).is_zero(),
                _ => true,
            },
        )
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        Ok(super::considered(
            "multipleOf",
            self.0.as_value(),
            "considered value is not a multiple of the specified value",
            v,
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::super::testing::{explains, fails, valid};
    use muniment_value::{DocBuf, Value, doc};

    #[test]
    fn nan_is_below_and_above_nothing() {
        let nan = doc! { "a": f64::NAN };
        let v = Value::Document(nan.as_doc());
        for bound in ["minimum", "maximum"] {
            let schema = doc! { "properties": doc! { "a": { let mut d = DocBuf::new(); d.append(bound, 0); d } } };
            let s = super::super::Schema::parse(schema.as_doc()).unwrap();
            assert!(!s.matches(v).unwrap());
        }
    }

    #[test]
    fn table_test() {
        valid(
            "{'properties': {'a': {'minimum': 5}}}",
            &["{}", "{'a': 5}", "{'a': 5.5}", "{'a': 'x'}", "{'a': [1]}"],
            &["{'a': 4}", "{'a': -5.5}"],
        );
        valid(
            "{'properties': {'a': {'maximum': 5, 'exclusiveMaximum': true}}}",
            &["{'a': 4}"],
            &["{'a': 5}"],
        );
        valid(
            "{'properties': {'a': {'minimum': 5, 'exclusiveMinimum': false}}}",
            &["{'a': 5}"],
            &["{'a': 4}"],
        );
        valid(
            "{'properties': {'a': {'multipleOf': 0.1}}}",
            &["{'a': 0.3}", "{'a': 5}", "{'a': 'x'}"],
            &["{'a': 0.35}"],
        );
        fails(
            "{'minimum': 'x'}",
            14,
            "$jsonSchema keyword 'minimum' must be a number",
        );
        fails(
            "{'exclusiveMinimum': true}",
            9,
            "$jsonSchema keyword 'minimum' must be a present if exclusiveMinimum is present",
        );
        fails(
            "{'minimum': 1, 'exclusiveMinimum': 1}",
            14,
            "$jsonSchema keyword 'exclusiveMinimum' must be a boolean",
        );
        fails(
            "{'multipleOf': 0}",
            9,
            "$jsonSchema keyword 'multipleOf' must have a positive value",
        );
        fails(
            "{'multipleOf': 'x'}",
            14,
            "$jsonSchema keyword 'multipleOf' must be a number",
        );
        explains(
            "{'properties': {'a': {'minimum': 5, 'exclusiveMinimum': true, 'multipleOf': 2}}}",
            "{'a': 5}",
            "[{'operatorName': 'properties', 'propertiesNotSatisfied': [{'propertyName': 'a', \
              'details': [{'operatorName': 'minimum', 'specifiedAs': {'minimum': 5, \
              'exclusiveMinimum': true}, 'reason': 'comparison failed', 'consideredValue': 5}, \
              {'operatorName': 'multipleOf', 'specifiedAs': {'multipleOf': 2}, 'reason': \
              'considered value is not a multiple of the specified value', \
              'consideredValue': 5}]}]}]",
        );
    }
}
