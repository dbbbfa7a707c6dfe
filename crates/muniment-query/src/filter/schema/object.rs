//! `required`, `minProperties`, `maxProperties`, `dependencies`. They only restrict objects.

use super::limits::{Counted, least, most};
use super::parse::{Keywords, mismatch, names};
use super::{KeywordSpec, Rule, Schema, head};
use muniment_value::{ArrayBuf, Doc, DocBuf, Error, Result, Value, ValueBuf, doc, number};

/// `required`.
pub(super) const REQUIRED: KeywordSpec = KeywordSpec {
    name: "required",
    doc: "Names of fields that must be there",
    parse: |_, v| match v {
        Value::Array(a) => Ok(Some(Box::new(Required(
            names("required", a)?,
            ValueBuf::new(v),
        )))),
        v => Err(mismatch(
            "required",
            &format!("an array, but got {}", v.type_name()),
        )),
    },
};

/// `minProperties`.
pub(super) const MIN_PROPERTIES: KeywordSpec = KeywordSpec {
    name: "minProperties",
    doc: "The least number of fields",
    parse: |_, v| least("minProperties", v, &FIELDS),
};

/// `maxProperties`.
pub(super) const MAX_PROPERTIES: KeywordSpec = KeywordSpec {
    name: "maxProperties",
    doc: "The greatest number of fields",
    parse: |_, v| most("maxProperties", v, &FIELDS),
};

/// `dependencies`.
pub(super) const DEPENDENCIES: KeywordSpec = KeywordSpec {
    name: "dependencies",
    doc: "What must hold of the object when it has a certain field",
    parse: dependencies,
};

fn missing<'n>(names: &'n [String], d: Doc<'_>) -> impl Iterator<Item = &'n str> {
    names
        .iter()
        .map(String::as_str)
        .filter(move |n| d.get_elem(n).is_none())
}

#[derive(Debug)]
struct Required(Vec<String>, ValueBuf);

impl Rule for Required {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        Ok(match v {
            Value::Document(d) => missing(&self.0, d).next().is_none(),
            _ => true,
        })
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let mut d = head("required", self.1.as_value());
        let object = v.as_doc().unwrap_or(Doc::EMPTY);
        let all: ArrayBuf = missing(&self.0, object).collect();
        d.append("missingProperties", all);
        Ok(d)
    }
}

const FIELDS: Counted = Counted {
    of: |v| v.as_doc().map(|d| d.count()),
    explain: |keyword, operand, v| {
        let mut d = head(keyword, operand);
        d.append("reason", "specified number of properties was not satisfied");
        let n = v.as_doc().map_or(0, |d| d.count());
        d.append("numberOfProperties", number::narrow(n as i64));
        d
    },
};

#[derive(Debug)]
enum Needs {
    Names(Vec<String>),
    Schema(Schema),
}

#[derive(Debug)]
struct Dependencies(Vec<(String, Needs)>);

fn dependencies(k: &Keywords<'_>, v: Value<'_>) -> Result<Option<Box<dyn Rule>>> {
    let Value::Document(d) = v else {
        return Err(mismatch("dependencies", "an object"));
    };
    let mut all = Vec::new();
    for e in d {
        let needs = match e.value() {
            Value::Document(d) => Needs::Schema(k.nested(d)?),
            Value::Array(a) => Needs::Names(names("dependencies", a)?),
            v => {
                return Err(Error::type_mismatch(format!(
                    "$jsonSchema keyword 'dependencies' must have objects or arrays as values, \
                     but '{}' is {}",
                    e.name(),
                    v.type_name()
                )));
            }
        };
        all.push((e.name().to_string(), needs));
    }
    Ok(Some(Box::new(Dependencies(all))))
}

impl Needs {
    fn hold(&self, d: Doc<'_>) -> Result<bool> {
        match self {
            Needs::Names(names) => Ok(missing(names, d).next().is_none()),
            Needs::Schema(s) => s.matches(Value::Document(d)),
        }
    }
}

impl Rule for Dependencies {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        let Value::Document(d) = v else {
            return Ok(true);
        };
        for (name, needs) in &self.0 {
            if d.get_elem(name).is_some() && !needs.hold(d)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let d = v.as_doc().unwrap_or(Doc::EMPTY);
        let mut bad = ArrayBuf::new();
        for (name, needs) in &self.0 {
            if d.get_elem(name).is_none() || needs.hold(d)? {
                continue;
            }
            let mut one = doc! { "conditionalProperty": name.as_str() };
            match needs {
                Needs::Names(names) => {
                    let all: ArrayBuf = missing(names, d).collect();
                    one.append("missingProperties", all);
                }
                Needs::Schema(s) => {
                    one.append("details", s.failures(v)?);
                }
            }
            bad.push(one);
        }
        Ok(doc! { "operatorName": "dependencies", "failingDependencies": bad })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{explains, fails, valid};

    #[test]
    fn table_test() {
        valid(
            "{'required': ['a', 'b']}",
            &["{'a': null, 'b': 1}"],
            &["{'a': 1}", "{}"],
        );
        valid(
            "{'properties': {'a': {'required': ['b']}}}",
            &["{'a': 1}", "{'a': {'b': 1}}"],
            &["{'a': {}}"],
        );
        valid(
            "{'minProperties': 1, 'maxProperties': 2}",
            &["{'a': 1}"],
            &["{}", "{'a': 1, 'b': 1, 'c': 1}"],
        );
        valid(
            "{'dependencies': {'a': ['b', 'c'], 'd': {'required': ['e']}}}",
            &["{}", "{'a': 1, 'b': 1, 'c': 1}", "{'d': 1, 'e': 1}"],
            &["{'a': 1, 'b': 1}", "{'d': 1}"],
        );
        fails(
            "{'required': 1}",
            14,
            "$jsonSchema keyword 'required' must be an array, but got int",
        );
        fails(
            "{'required': [1]}",
            14,
            "$jsonSchema keyword 'required' must be an array of strings, but found an element of \
             type int",
        );
        fails(
            "{'required': []}",
            9,
            "$jsonSchema keyword 'required' cannot be an empty array",
        );
        fails(
            "{'required': ['a', 'a']}",
            9,
            "$jsonSchema keyword 'required' array cannot contain duplicate values",
        );
        fails(
            "{'dependencies': {'a': []}}",
            9,
            "$jsonSchema keyword 'dependencies' cannot be an empty array",
        );
        fails(
            "{'dependencies': 1}",
            14,
            "$jsonSchema keyword 'dependencies' must be an object",
        );
        explains(
            "{'required': ['a', 'b'], 'minProperties': 2}",
            "{'a': 1}",
            "[{'operatorName': 'required', 'specifiedAs': {'required': ['a', 'b']}, \
              'missingProperties': ['b']}, {'operatorName': 'minProperties', 'specifiedAs': \
              {'minProperties': 2}, 'reason': 'specified number of properties was not \
              satisfied', 'numberOfProperties': 1}]",
        );
        explains(
            "{'dependencies': {'a': ['b', 'c'], 'd': ['e']}}",
            "{'a': 1, 'b': 1}",
            "[{'operatorName': 'dependencies', 'failingDependencies': [{'conditionalProperty': \
              'a', 'missingProperties': ['c']}]}]",
        );
    }
}
