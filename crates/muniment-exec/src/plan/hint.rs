//! The order that a command gives for finding documents: an index hint, or the natural order.

use muniment_value::{Doc, DocBuf, Error, Result, Value, doc};

/// An index hint.
#[derive(Clone, Copy, Debug)]
pub enum Hint<'a> {
    /// The index with this name.
    Name(&'a str),
    /// The index with this key pattern, or `{$natural: ±1}`.
    Pattern(Doc<'a>),
}

impl<'a> Hint<'a> {
    /// Reads a command's `hint`: a string or a document; an empty document is no hint.
    ///
    /// # Errors
    /// 9 FailedToParse "Hint must be a string or an object".
    pub fn parse(value: Value<'a>) -> Result<Option<Hint<'a>>> {
        match value {
            Value::String(s) => Ok(Some(Hint::Name(s))),
            Value::Document(d) if d.is_empty() => Ok(None),
            Value::Document(d) => {
                if let Some(v) = d.get("$natural")
                    && (d.count() > 1
                        || !matches!(muniment_value::number::to_i64_exact(v), Some(1 | -1)))
                {
                    return Err(Error::bad_value(
                        "$natural hint must stand alone, with the value 1 or -1",
                    ));
                }
                Ok(Some(Hint::Pattern(d)))
            }
            _ => Err(Error::failed_to_parse("Hint must be a string or an object")),
        }
    }
}

/// Reads `{$natural: ±1}`: true means backward; `None` if it is something else.
pub(crate) fn natural(doc: Doc<'_>) -> Option<bool> {
    let first = doc.first()?;
    if first.name() != "$natural" {
        return None;
    }
    Some(muniment_value::number::is_negative(first.value()))
}

/// `{$natural: ±1}` as a hint.
pub(crate) fn natural_hint(backward: bool) -> DocBuf {
    doc! { "$natural": if backward { -1 } else { 1 } }
}
