//! Checks of operands that many stages share, with the messages of MongoDB's generated parsers.

use muniment_value::{Doc, Error, Result, Value};

/// Fails with 40415 for a field that is not in `known`, and with 40413 for one that occurs twice.
pub(crate) fn only(stage: &str, d: Doc<'_>, known: &[&str]) -> Result<()> {
    let mut seen: Vec<&str> = Vec::new();
    for e in d {
        let name = e.name();
        if !known.contains(&name) {
            return Err(Error::location(
                40415,
                format!("BSON field '{stage}.{name}' is an unknown field."),
            ));
        }
        if seen.contains(&name) {
            return Err(Error::location(
                40413,
                format!("BSON field '{stage}.{name}' is a duplicate field"),
            ));
        }
        seen.push(name);
    }
    Ok(())
}

/// 40414, for a required field that is absent.
pub(crate) fn missing(stage: &str, field: &str) -> Error {
    Error::location(
        40414,
        format!("BSON field '{stage}.{field}' is missing but a required field"),
    )
}

/// 14, for a field of the wrong type.
pub(crate) fn wrong_type(stage: &str, field: &str, v: Value<'_>, expected: &str) -> Error {
    Error::type_mismatch(format!(
        "BSON field '{stage}.{field}' is the wrong type '{}', expected type '{expected}'",
        v.type_name()
    ))
}

/// The value of an option, which its stage has read as `read`, or the stage's own error if it has another type:
/// `text` with that type's name in place of `{}`.
pub(crate) fn need<T>(read: Option<T>, v: Value<'_>, code: i32, text: &str) -> Result<T> {
    read.ok_or_else(|| Error::location(code, text.replace("{}", v.type_name())))
}

/// Reads a field that must be a string if it is present.
pub(crate) fn string<'a>(stage: &str, d: Doc<'a>, field: &str) -> Result<Option<&'a str>> {
    match d.get(field) {
        None => Ok(None),
        Some(Value::String(s)) => Ok(Some(s)),
        Some(v) => Err(wrong_type(stage, field, v, "string")),
    }
}

/// Reads a field that must be a boolean if it is present.
pub(crate) fn boolean(stage: &str, d: Doc<'_>, field: &str) -> Result<Option<bool>> {
    match d.get(field) {
        None => Ok(None),
        Some(Value::Bool(b)) => Ok(Some(b)),
        Some(v) => Err(wrong_type(stage, field, v, "bool")),
    }
}

/// Reads a field that must be a document if it is present.
pub(crate) fn document<'a>(stage: &str, d: Doc<'a>, field: &str) -> Result<Option<Doc<'a>>> {
    match d.get(field) {
        None => Ok(None),
        Some(Value::Document(s)) => Ok(Some(s)),
        Some(v) => Err(wrong_type(stage, field, v, "object")),
    }
}
