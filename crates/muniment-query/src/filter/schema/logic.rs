//! `allOf`, `anyOf`, `oneOf`, `not` and `enum`.

use super::parse::{Keywords, mismatch, refuse, schemas};
use super::{KeywordSpec, Rule, Schema, canonical, considered};
use muniment_value::{ArrayBuf, DocBuf, Error, Result, Value, ValueBuf, doc};
use std::collections::HashSet;

/// `allOf`.
pub(super) const ALL_OF: KeywordSpec = KeywordSpec {
    name: "allOf",
    doc: "Every one of these schemas",
    parse: |k, v| several(k, Kind::All, v),
};

/// `anyOf`.
pub(super) const ANY_OF: KeywordSpec = KeywordSpec {
    name: "anyOf",
    doc: "At least one of these schemas",
    parse: |k, v| several(k, Kind::Any, v),
};

/// `oneOf`.
pub(super) const ONE_OF: KeywordSpec = KeywordSpec {
    name: "oneOf",
    doc: "Exactly one of these schemas",
    parse: |k, v| several(k, Kind::One, v),
};

/// `not`.
pub(super) const NOT: KeywordSpec = KeywordSpec {
    name: "not",
    doc: "Not this schema",
    parse: |k, v| match v {
        Value::Document(d) => Ok(Some(Box::new(Not(k.nested(d)?, ValueBuf::new(v))))),
        v => Err(mismatch(
            "not",
            &format!("an object, but found an element of type {}", v.type_name()),
        )),
    },
};

/// `enum`.
pub(super) const ENUM: KeywordSpec = KeywordSpec {
    name: "enum",
    doc: "One of these values; the order of an object's fields does not count",
    parse: one_value,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    All,
    Any,
    One,
}

impl Kind {
    fn keyword(self) -> &'static str {
        match self {
            Kind::All => "allOf",
            Kind::Any => "anyOf",
            Kind::One => "oneOf",
        }
    }
}

#[derive(Debug)]
struct Several(Kind, Vec<Schema>);

fn several(k: &Keywords<'_>, kind: Kind, v: Value<'_>) -> Result<Option<Box<dyn Rule>>> {
    let keyword = kind.keyword();
    let Value::Array(a) = v else {
        return Err(mismatch(keyword, "an array"));
    };
    let all = schemas(k, keyword, a)?;
    if all.is_empty() {
        return Err(Error::bad_value(format!(
            "$jsonSchema keyword '{keyword}' must be a non-empty array"
        )));
    }
    Ok(Some(Box::new(Several(kind, all))))
}

impl Several {
    fn matching(&self, v: Value<'_>) -> Result<Vec<usize>> {
        let mut out = Vec::new();
        for (i, s) in self.1.iter().enumerate() {
            if s.matches(v)? {
                out.push(i);
            }
        }
        Ok(out)
    }
}

impl Rule for Several {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        let mut n = 0;
        for s in &self.1 {
            match (self.0, s.matches(v)?) {
                (Kind::All, false) => return Ok(false),
                (Kind::Any, true) => return Ok(true),
                (Kind::One, true) if n > 0 => return Ok(false),
                (_, hit) => n += usize::from(hit),
            }
        }
        Ok(match self.0 {
            Kind::All => true,
            Kind::Any => false,
            Kind::One => n == 1,
        })
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let keyword = self.0.keyword();
        let hits = self.matching(v)?;
        if self.0 == Kind::One && !hits.is_empty() {
            let indexes: ArrayBuf = hits.into_iter().map(|i| i as i32).collect();
            return Ok(doc! {
                "operatorName": keyword,
                "reason": "more than one subschema matched",
                "matchingSchemaIndexes": indexes,
            });
        }
        let mut bad = ArrayBuf::new();
        for (i, s) in self.1.iter().enumerate() {
            let details = s.failures(v)?;
            if !details.is_empty() {
                let mut one = doc! { "index": i as i32 };
                one.append_all(s.notes.as_doc());
                one.append("details", details);
                bad.push(one);
            }
        }
        Ok(doc! { "operatorName": keyword, "schemasNotSatisfied": bad })
    }
}

#[derive(Debug)]
struct Not(Schema, ValueBuf);

impl Rule for Not {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        Ok(!self.0.matches(v)?)
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let reason = "child expression matched";
        Ok(considered("not", self.1.as_value(), reason, v))
    }
}

#[derive(Debug)]
struct Enum(HashSet<Vec<u8>>, ValueBuf);

fn one_value(_: &Keywords<'_>, v: Value<'_>) -> Result<Option<Box<dyn Rule>>> {
    let Value::Array(a) = v else {
        return Err(mismatch(
            "enum",
            &format!("an array, but got {}", v.type_name()),
        ));
    };
    let mut values = HashSet::new();
    for x in a.values() {
        if !values.insert(canonical::key(x)) {
            return Err(refuse("enum", "array cannot contain duplicate values"));
        }
    }
    if values.is_empty() {
        return Err(refuse("enum", "cannot be an empty array"));
    }
    Ok(Some(Box::new(Enum(values, ValueBuf::new(v)))))
}

impl Rule for Enum {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        Ok(self.0.contains(&canonical::key(v)))
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let reason = "value was not found in enum";
        Ok(considered("enum", self.1.as_value(), reason, v))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{explains, fails, valid};

    #[test]
    fn table_test() {
        valid(
            "{'allOf': [{'required': ['a']}, {'required': ['b']}]}",
            &["{'a': 1, 'b': 1}"],
            &["{'a': 1}"],
        );
        valid(
            "{'anyOf': [{'required': ['a']}, {'required': ['b']}]}",
            &["{'a': 1}", "{'b': 1}", "{'a': 1, 'b': 1}"],
            &["{}"],
        );
        valid(
            "{'oneOf': [{'required': ['a']}, {'required': ['b']}]}",
            &["{'a': 1}", "{'b': 1}"],
            &["{}", "{'a': 1, 'b': 1}"],
        );
        valid("{'not': {'required': ['a']}}", &["{}"], &["{'a': 1}"]);
        valid("{'not': {}}", &[], &["{}"]);
        valid(
            "{'properties': {'a': {'enum': [1, 'x', null, {'p': 1, 'q': 2}]}}}",
            &["{}", "{'a': 1.0}", "{'a': null}", "{'a': {'q': 2, 'p': 1}}"],
            &["{'a': 2}", "{'a': true}", "{'a': [1]}"],
        );
        fails(
            "{'allOf': 1}",
            14,
            "$jsonSchema keyword 'allOf' must be an array",
        );
        fails(
            "{'oneOf': []}",
            2,
            "$jsonSchema keyword 'oneOf' must be a non-empty array",
        );
        fails(
            "{'anyOf': [1]}",
            14,
            "$jsonSchema keyword 'anyOf' must be an array of objects, but found an element of \
             type int",
        );
        fails(
            "{'not': 1}",
            14,
            "$jsonSchema keyword 'not' must be an object, but found an element of type int",
        );
        fails(
            "{'enum': 1}",
            14,
            "$jsonSchema keyword 'enum' must be an array, but got int",
        );
        fails(
            "{'enum': []}",
            9,
            "$jsonSchema keyword 'enum' cannot be an empty array",
        );
        fails(
            "{'enum': [1, 1.0]}",
            9,
            "$jsonSchema keyword 'enum' array cannot contain duplicate values",
        );
        explains(
            "{'anyOf': [{'required': ['a']}, {'title': 't', 'required': ['b']}]}",
            "{}",
            "[{'operatorName': 'anyOf', 'schemasNotSatisfied': [{'index': 0, 'details': \
              [{'operatorName': 'required', 'specifiedAs': {'required': ['a']}, \
              'missingProperties': ['a']}]}, {'index': 1, 'title': 't', 'details': \
              [{'operatorName': 'required', 'specifiedAs': {'required': ['b']}, \
              'missingProperties': ['b']}]}]}]",
        );
        explains(
            "{'oneOf': [{}, {}]}",
            "{}",
            "[{'operatorName': 'oneOf', 'reason': 'more than one subschema matched', \
              'matchingSchemaIndexes': [0, 1]}]",
        );
        explains(
            "{'properties': {'a': {'enum': [1], 'not': {'type': 'number'}}}}",
            "{'a': 2}",
            "[{'operatorName': 'properties', 'propertiesNotSatisfied': [{'propertyName': 'a', \
              'details': [{'operatorName': 'enum', 'specifiedAs': {'enum': [1]}, 'reason': \
              'value was not found in enum', 'consideredValue': 2}, {'operatorName': 'not', \
              'specifiedAs': {'not': {'type': 'number'}}, 'reason': 'child expression matched', \
              'consideredValue': 2}]}]}]",
        );
    }
}
