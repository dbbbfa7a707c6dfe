//! `$a.b.c` in an expression. Arrays on the way are mapped over. A number in the path is a field name, never
//! an index (unlike in a filter).

use super::arena;
use super::arena::Arena;
use muniment_value::{Code, Doc, Error, Result, Value};

/// A dotted path of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    text: String,
    /// The parts of the path.
    parts: Box<[Box<str>]>,
}

/// The most parts of a path, which is MongoDB's limit.
const MAX_PARTS: usize = 200;

impl FieldPath {
    /// Checks and splits `text` (without its leading dollar).
    ///
    /// # Errors
    /// 40352, 40353, 15998, 16410, 16411, 15, as in MongoDB.
    pub fn parse(text: &str) -> Result<FieldPath> {
        if text.is_empty() {
            return Err(Error::location(
                40352,
                "FieldPath cannot be constructed with empty string",
            ));
        }
        if text.ends_with('.') {
            return Err(Error::location(40353, "FieldPath must not end with a '.'."));
        }
        let parts: Box<[Box<str>]> = text.split('.').map(Box::from).collect();
        if parts.len() > MAX_PARTS {
            return Err(Error::new(
                Code::Overflow,
                format!("FieldPath is too long, it has more than {MAX_PARTS} parts"),
            ));
        }
        for part in &parts {
            check_name(part)?;
        }
        Ok(FieldPath {
            text: text.to_string(),
            parts,
        })
    }

    /// The path without parts, which stands for the value itself.
    pub(super) fn none() -> FieldPath {
        FieldPath {
            text: String::new(),
            parts: Box::default(),
        }
    }

    /// The path as it was written, without the dollar.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The parts.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.parts.iter().map(|p| &**p)
    }

    /// The value at the path in `doc`.
    ///
    /// # Errors
    /// Only if the arena is full.
    pub fn eval<'a>(&self, doc: Doc<'a>, arena: &'a Arena<'_>) -> Result<Option<Value<'a>>> {
        in_doc(&self.parts, doc, arena)
    }

    /// The value at the path in a value.
    ///
    /// # Errors
    /// Only if the arena is full.
    pub fn eval_in<'a>(&self, value: Value<'a>, arena: &'a Arena<'_>) -> Result<Option<Value<'a>>> {
        in_value(&self.parts, value, arena)
    }
}

/// Checks a name in a path or in an object expression.
///
/// # Errors
/// 15998, 16410, 16411.
pub(super) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::location(
            15998,
            "FieldPath field names may not be empty strings.",
        ));
    }
    // The only names with a dollar that a path may have are those of a DBRef's fields.
    if name.starts_with('$') && !matches!(name, "$id" | "$ref" | "$db") {
        return Err(Error::location(
            16410,
            format!(
                "FieldPath field names may not start with '$'. Consider using $getField or $setField. Found: '{name}'"
            ),
        ));
    }
    if name.contains('\0') {
        return Err(Error::location(
            16411,
            "FieldPath field names may not contain '\\0'.",
        ));
    }
    Ok(())
}

fn in_doc<'a>(parts: &[Box<str>], doc: Doc<'a>, arena: &'a Arena<'_>) -> Result<Option<Value<'a>>> {
    let Some((name, rest)) = parts.split_first() else {
        return Ok(Some(Value::Document(doc)));
    };
    match doc.get(name) {
        Some(v) => in_value(rest, v, arena),
        None => Ok(None),
    }
}

fn in_value<'a>(
    parts: &[Box<str>],
    value: Value<'a>,
    arena: &'a Arena<'_>,
) -> Result<Option<Value<'a>>> {
    if parts.is_empty() {
        return Ok(Some(value));
    }
    match value {
        Value::Document(d) => in_doc(parts, d, arena),
        Value::Array(items) => arena::build_array(arena, |w| {
            for item in items.values() {
                if let Value::Document(d) = item
                    && let Some(v) = in_doc(parts, d, arena)?
                {
                    w.push(&v)?;
                }
            }
            Ok(())
        })
        .map(|a| Some(Value::Array(a))),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{array, doc, values_equal};

    #[test]
    fn arrays_are_mapped_and_numbers_are_names() {
        let d = doc! { "a": array![doc!{"b": 1}, 2, doc!{}, doc!{"b": array![doc!{"c": 3}]}], "x": doc!{"0": 5} };
        let bump = Arena::new(crate::running::Work::unasked());
        let get = |p: &str| {
            FieldPath::parse(p)
                .unwrap()
                .eval(d.as_doc(), &bump)
                .unwrap()
        };
        let want = array![1, array![doc! {"c": 3}]];
        assert!(values_equal(
            get("a.b").unwrap(),
            Value::Array(want.as_doc())
        ));
        let want = array![array![3]];
        assert!(values_equal(
            get("a.b.c").unwrap(),
            Value::Array(want.as_doc())
        ));
        assert!(values_equal(get("a.0").unwrap(), Value::Array(Doc::EMPTY)));
        assert!(values_equal(get("x.0").unwrap(), Value::Int32(5)));
        assert!(get("x.y.z").is_none());
    }

    #[test]
    fn bad_paths() {
        for (p, code) in [
            ("", 40352),
            ("a.", 40353),
            ("a..b", 15998),
            (".a", 15998),
            ("a.$b", 16410),
        ] {
            assert_eq!(FieldPath::parse(p).unwrap_err().code().0, code, "{p}");
        }
    }
}
