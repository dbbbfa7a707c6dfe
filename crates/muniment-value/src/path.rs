//! Dotted paths: `a.b.0.c`, with MongoDB's implicit traversal of arrays.

use crate::{Doc, Value};

/// A dotted path, split once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    text: String,
    parts: Vec<String>,
}

impl Path {
    /// Splits `text` at its dots.
    pub fn new(text: &str) -> Path {
        Path {
            text: text.to_string(),
            parts: text.split('.').map(str::to_string).collect(),
        }
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its parts.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// Follows the path through documents and by numeric index through arrays, without implicit
    /// traversal: what a single-valued lookup means.
    pub fn get_exact<'a>(&self, doc: Doc<'a>) -> Option<Value<'a>> {
        let mut parts = self.parts.iter();
        let mut at = doc.get(parts.next()?)?;
        for part in parts {
            at = match at {
                Value::Document(d) | Value::Array(d) => d.get(part)?,
                _ => return None,
            };
        }
        Some(at)
    }
}

/// Visits every value that `parts` can mean in `doc` under a *query*'s rules: arrays on the way
/// are traversed implicitly and by numeric index; the value at the end is visited as it is (an
/// array at the end is visited as the array; the caller decides about its elements).
/// `None` is visited where the path does not exist. The visitor returns true to stop; so does
/// this function. `array_index` of the innermost… outermost array that was traversed implicitly
/// on the way is passed for the positional operator (the first, that is outermost, array).
pub fn visit<'a>(
    doc: Doc<'a>,
    parts: &[String],
    visitor: &mut dyn FnMut(Option<Value<'a>>, Option<usize>) -> bool,
) -> bool {
    let _ = (doc, parts, visitor);
    todo!()
}
