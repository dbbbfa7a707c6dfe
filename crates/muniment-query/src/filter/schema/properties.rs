//! `properties`, `patternProperties`, `additionalProperties`. They only restrict objects. A field may be
//! subject to both of the first two; the third restricts the fields to which neither of them applies.

use super::parse::{Keywords, mismatch, named};
use super::{KeywordSpec, Rule, Schema, head};
use crate::filter::Regex;
use muniment_value::{ArrayBuf, Doc, DocBuf, Error, Result, Value, doc};
use std::collections::HashSet;

/// `properties`.
pub(super) const PROPERTIES: KeywordSpec = KeywordSpec {
    name: "properties",
    doc: "Schemas of fields by their names",
    parse: |k, v| {
        let Value::Document(d) = v else {
            return Err(mismatch("properties", "an object"));
        };
        let all = d.iter().map(|e| named(k, "properties", e));
        Ok(Some(Box::new(Properties(all.collect::<Result<_>>()?))))
    },
};

/// `patternProperties`.
pub(super) const PATTERN_PROPERTIES: KeywordSpec = KeywordSpec {
    name: "patternProperties",
    doc: "Schemas of fields by regular expressions on their names",
    parse: |k, v| {
        let Value::Document(d) = v else {
            return Err(mismatch("patternProperties", "an object"));
        };
        let all = d.iter().map(|e| {
            let (name, schema) = named(k, "patternProperties", e)?;
            Ok((pattern(&name)?, schema))
        });
        Ok(Some(Box::new(Patterns(all.collect::<Result<_>>()?))))
    },
};

/// `additionalProperties`.
pub(super) const ADDITIONAL_PROPERTIES: KeywordSpec = KeywordSpec {
    name: "additionalProperties",
    doc: "A schema of all other fields, or whether there may be any",
    parse: additional,
};

fn pattern(source: &str) -> Result<Regex> {
    Regex::new(source, "").map_err(|e| {
        Error::bad_value(format!(
            "Invalid regular expression in $jsonSchema keyword 'patternProperties': {}",
            e.message()
        ))
    })
}

fn fields(v: Value<'_>) -> Doc<'_> {
    v.as_doc().unwrap_or(Doc::EMPTY)
}

#[derive(Debug)]
struct Properties(Vec<(String, Schema)>);

impl Rule for Properties {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        let d = fields(v);
        for (name, schema) in &self.0 {
            if let Some(x) = d.get(name)
                && !schema.matches(x)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let d = fields(v);
        let mut bad = ArrayBuf::new();
        for (name, schema) in &self.0 {
            let Some(x) = d.get(name) else { continue };
            let details = schema.failures(x)?;
            if !details.is_empty() {
                let mut p = doc! { "propertyName": name.as_str() };
                p.append_all(schema.notes.as_doc());
                p.append("details", details);
                bad.push(p);
            }
        }
        Ok(doc! { "operatorName": "properties", "propertiesNotSatisfied": bad })
    }
}

#[derive(Debug)]
struct Patterns(Vec<(Regex, Schema)>);

impl Rule for Patterns {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        for e in fields(v) {
            for (regex, schema) in &self.0 {
                if regex.is_match(e.name_bytes())? && !schema.matches(e.value())? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let mut bad = ArrayBuf::new();
        for e in fields(v) {
            for (regex, schema) in &self.0 {
                if regex.is_match(e.name_bytes())? && !schema.matches(e.value())? {
                    let mut p = doc! {
                        "propertyName": e.name(),
                        "regexMatched": regex.pattern.as_str(),
                    };
                    p.append_all(schema.notes.as_doc());
                    p.append("details", schema.failures(e.value())?);
                    bad.push(p);
                }
            }
        }
        Ok(doc! { "operatorName": "patternProperties", "details": bad })
    }
}

#[derive(Debug)]
struct Additional {
    names: HashSet<String>,
    patterns: Vec<Regex>,
    /// `None` if there may be no additional fields.
    schema: Option<Schema>,
}

fn additional(k: &Keywords<'_>, v: Value<'_>) -> Result<Option<Box<dyn Rule>>> {
    let schema = match v {
        Value::Document(d) => Some(k.nested(d)?),
        Value::Bool(false) => None,
        Value::Bool(true) => return Ok(None),
        _ => return Err(mismatch("additionalProperties", "an object or a boolean")),
    };
    let names = k.doc.get_doc("properties").unwrap_or(Doc::EMPTY);
    let patterns = k.doc.get_doc("patternProperties").unwrap_or(Doc::EMPTY);
    Ok(Some(Box::new(Additional {
        names: names.iter().map(|e| e.name().to_string()).collect(),
        patterns: patterns
            .iter()
            .map(|e| pattern(e.name()))
            .collect::<Result<_>>()?,
        schema,
    })))
}

impl Additional {
    fn is_other(&self, name: &str) -> Result<bool> {
        if self.names.contains(name) {
            return Ok(false);
        }
        for p in &self.patterns {
            if p.is_match(name.as_bytes())? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Rule for Additional {
    fn holds(&self, v: Value<'_>) -> Result<bool> {
        for e in fields(v) {
            if self.is_other(e.name())? {
                match &self.schema {
                    Some(s) if s.matches(e.value())? => {}
                    _ => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    fn explain(&self, v: Value<'_>) -> Result<DocBuf> {
        let Some(schema) = &self.schema else {
            let mut d = head("additionalProperties", Value::Bool(false));
            let mut names = ArrayBuf::new();
            for e in fields(v) {
                if self.is_other(e.name())? {
                    names.push(e.name());
                }
            }
            d.append("additionalProperties", names);
            return Ok(d);
        };
        let mut d = doc! {
            "operatorName": "additionalProperties",
            "reason": "at least one additional property did not match the subschema",
        };
        for e in fields(v) {
            if self.is_other(e.name())? && !schema.matches(e.value())? {
                d.append("failingProperty", e.name());
                d.append("details", schema.failures(e.value())?);
                break;
            }
        }
        Ok(d)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{explains, fails, valid};

    #[test]
    fn table_test() {
        valid(
            "{'properties': {'a': {'properties': {'b': {'type': 'null'}}}}}",
            &["{}", "{'a': 1}", "{'a': {'c': 1}}", "{'a': {'b': null}}"],
            &["{'a': {'b': 1}}"],
        );
        valid(
            "{'patternProperties': {'^s': {'type': 'string'}, 'n$': {'minLength': 2}}}",
            &["{'x': 1}", "{'s': 'x'}", "{'sn': 'xy'}"],
            &["{'s1': 1}", "{'sn': 'x'}"],
        );
        valid(
            "{'properties': {'a': {}}, 'patternProperties': {'^s': {}}, \
             'additionalProperties': false}",
            &["{}", "{'a': 1, 'sx': 2}"],
            &["{'b': 1}"],
        );
        valid(
            "{'properties': {'a': {}}, 'additionalProperties': {'type': 'number'}}",
            &["{'a': 'x', 'b': 1}"],
            &["{'b': 'x'}"],
        );
        valid("{'additionalProperties': true}", &["{'a': 1}"], &[]);
        fails(
            "{'properties': 1}",
            14,
            "$jsonSchema keyword 'properties' must be an object",
        );
        fails(
            "{'properties': {'a': 1}}",
            14,
            "Nested schema for $jsonSchema keyword 'properties', field 'a', must be an object, \
             but got int",
        );
        fails(
            "{'additionalProperties': 1}",
            14,
            "$jsonSchema keyword 'additionalProperties' must be an object or a boolean",
        );
        explains(
            "{'patternProperties': {'^s': {'type': 'null'}}, 'additionalProperties': false}",
            "{'s': 1, 'b': 2}",
            "[{'operatorName': 'patternProperties', 'details': [{'propertyName': 's', \
              'regexMatched': '^s', 'details': [{'operatorName': 'type', 'specifiedAs': \
              {'type': 'null'}, 'reason': 'type did not match', 'consideredValue': 1, \
              'consideredType': 'int'}]}]}, {'operatorName': 'additionalProperties', \
              'specifiedAs': {'additionalProperties': false}, 'additionalProperties': ['b']}]",
        );
        explains(
            "{'additionalProperties': {'minimum': 5}}",
            "{'b': 2}",
            "[{'operatorName': 'additionalProperties', 'reason': 'at least one additional \
              property did not match the subschema', 'failingProperty': 'b', 'details': \
              [{'operatorName': 'minimum', 'specifiedAs': {'minimum': 5}, 'reason': 'comparison \
              failed', 'consideredValue': 2}]}]",
        );
    }
}
