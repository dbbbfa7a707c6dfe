//! Parses a schema: the code that all keywords share.

use super::{MAX_DEPTH, REGISTRY, Rule, Schema, UNSUPPORTED};
use crate::bytes::show;
use muniment_value::{Doc, DocBuf, Elem, Error, Result, Value};

/// The document that contains a keyword, for keywords that read their neighbours.
pub(super) struct Keywords<'d> {
    pub doc: Doc<'d>,
    depth: usize,
}

impl Keywords<'_> {
    /// Parses a schema inside this one.
    pub(crate) fn nested(&self, schema: Doc<'_>) -> Result<Schema> {
        self::schema(schema, self.depth + 1)
    }
}

/// Parses a schema.
///
/// # Errors
/// See [`Schema::parse`].
pub(super) fn schema(source: Doc<'_>, depth: usize) -> Result<Schema> {
    if depth >= MAX_DEPTH {
        return Err(Error::bad_value(format!(
            "exceeded maximum depth of {MAX_DEPTH} of nested schemas in $jsonSchema"
        )));
    }
    let keywords = Keywords { doc: source, depth };
    let mut rules: Vec<(u8, Box<dyn Rule>)> = Vec::new();
    let mut notes = DocBuf::new();
    let mut seen = std::collections::HashSet::new();
    for e in source {
        let name = e.name();
        if UNSUPPORTED.contains(&name) {
            return Err(Error::failed_to_parse(format!(
                "$jsonSchema keyword '{name}' is not currently supported"
            )));
        }
        let spec = REGISTRY
            .binary_search_by(|s| s.name.cmp(name))
            .ok()
            .and_then(|i| REGISTRY.get(i))
            .ok_or_else(|| {
                Error::failed_to_parse(format!("Unknown $jsonSchema keyword: {name}"))
            })?;
        if !seen.insert(name) {
            return Err(Error::failed_to_parse(format!(
                "Duplicate $jsonSchema keyword: {name}"
            )));
        }
        if let Some(rule) = (spec.parse)(&keywords, e.value())? {
            rules.push((place(name), rule));
        }
        if matches!(name, "title" | "description") {
            notes.append_elem(e);
        }
    }
    rules.sort_by_key(|(place, _)| *place);
    Ok(Schema {
        rules: rules.into_iter().map(|(_, r)| r).collect(),
        notes,
    })
}

/// The position of a keyword's explanation among the others: first the cheap ones about the value itself,
/// then those about arrays and about objects, and at the end those of keywords that combine schemas.
fn place(keyword: &str) -> u8 {
    match keyword {
        "type" | "bsonType" => 0,
        "items" | "additionalItems" | "minItems" | "maxItems" | "uniqueItems" => 2,
        "properties" => 3,
        "patternProperties" | "additionalProperties" => 4,
        "required" | "minProperties" | "maxProperties" | "dependencies" => 5,
        "allOf" | "anyOf" | "oneOf" | "not" | "enum" => 6,
        _ => 1,
    }
}

/// 14 "$jsonSchema keyword '…' must be …".
pub(super) fn mismatch(keyword: &str, what: &str) -> Error {
    Error::type_mismatch(format!("$jsonSchema keyword '{keyword}' must be {what}"))
}

/// 9 "$jsonSchema keyword '…' …".
pub(super) fn refuse(keyword: &str, what: &str) -> Error {
    Error::failed_to_parse(format!("$jsonSchema keyword '{keyword}' {what}"))
}

/// Reads a whole number that is at least 0.
///
/// # Errors
/// 9 FailedToParse.
pub(super) fn length(keyword: &str, v: Value<'_>) -> Result<u64> {
    let shown = || {
        let mut d = DocBuf::new();
        d.append(keyword, v);
        d.as_doc().first().map_or_else(String::new, show)
    };
    if !v.is_number() {
        return Err(Error::failed_to_parse(format!(
            "Expected a number in: {}",
            shown()
        )));
    }
    let n = v
        .as_i64_exact()
        .ok_or_else(|| Error::failed_to_parse(format!("Expected an integer: {}", shown())))?;
    u64::try_from(n).map_err(|_| {
        Error::failed_to_parse(format!("Expected a non-negative number in: {}", shown()))
    })
}

/// Reads an array of names. It must not be empty or have a name twice.
///
/// # Errors
/// 14 for an element that is no string, 9 for an empty array or a name given twice.
pub(super) fn names(keyword: &str, array: Doc<'_>) -> Result<Vec<String>> {
    let mut out: Vec<String> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for v in array.values() {
        let Value::String(name) = v else {
            return Err(mismatch(
                keyword,
                &format!(
                    "an array of strings, but found an element of type {}",
                    v.type_name()
                ),
            ));
        };
        if !seen.insert(name) {
            return Err(refuse(keyword, "array cannot contain duplicate values"));
        }
        out.push(name.to_string());
    }
    if out.is_empty() {
        return Err(refuse(keyword, "cannot be an empty array"));
    }
    Ok(out)
}

/// Parses the schemas in an array.
///
/// # Errors
/// 14 for an element that is no document.
pub(super) fn schemas(k: &Keywords<'_>, keyword: &str, array: Doc<'_>) -> Result<Vec<Schema>> {
    array
        .values()
        .map(|v| match v {
            Value::Document(d) => k.nested(d),
            v => Err(mismatch(
                keyword,
                &format!(
                    "an array of objects, but found an element of type {}",
                    v.type_name()
                ),
            )),
        })
        .collect()
}

/// Parses a schema with its name, such as a property's.
///
/// # Errors
/// 14 for a value that is no document.
pub(super) fn named(k: &Keywords<'_>, keyword: &str, e: Elem<'_>) -> Result<(String, Schema)> {
    match e.value() {
        Value::Document(d) => Ok((e.name().to_string(), k.nested(d)?)),
        v => Err(Error::type_mismatch(format!(
            "Nested schema for $jsonSchema keyword '{keyword}', field '{}', must be an object, \
             but got {}",
            e.name(),
            v.type_name()
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::super::testing::{fails, valid};
    use muniment_value::doc;

    #[test]
    fn keywords_that_cannot_be() {
        for k in super::UNSUPPORTED {
            fails(
                &format!("{{'{k}': 1}}"),
                9,
                &format!("$jsonSchema keyword '{k}' is not currently supported"),
            );
        }
        fails("{'foo': 1}", 9, "Unknown $jsonSchema keyword: foo");
        fails(
            "{'properties': {'a': {'foo': 1}}}",
            9,
            "Unknown $jsonSchema keyword: foo",
        );
        valid("{}", &["{}", "{'a': 1}"], &[]);
    }

    #[test]
    fn nesting_is_bounded() {
        let mut d = doc! {};
        for _ in 0..150 {
            d = doc! { "not": d };
        }
        let e = super::Schema::parse(d.as_doc()).unwrap_err();
        assert_eq!(e.code().0, 2);
    }
}
