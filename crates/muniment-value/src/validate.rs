//! The check that every document from outside passes once.
//!
//! Invariant: [`crate::Doc`] reads a document that passes this check to its last element without loss. The
//! walk recurses at most to the depth limit, allocates only for an error, and checks names and strings at
//! least eight bytes at a time.
//!
//! Duplicate field names, any binary subtype and any decimal128 are well formed, as in MongoDB.

use crate::raw::{cstr_len, le_i32};
use crate::{Code, Doc, Error, Result, Type, Value};

/// The deepest nesting of anything that clients store: documents, and definitions of collections, indexes and
/// views. MongoDB documents 100; its storage limit is 180.
pub const MAX_DEPTH: usize = 180;

/// The deepest nesting of a message's documents. A command wraps documents that are to be stored, and so does
/// everything that shows them again (catalog entries, entries of the oplog, events of change streams,
/// replies). None of these adds more levels than the difference of the two limits.
/// Source: MongoDB's default of the `maxBSONDepth` parameter.
pub const MAX_MESSAGE_DEPTH: usize = 201;

/// The deepest nesting of a server's reply. A document that a pipeline makes may nest as deep as a message, and the reply
/// wraps it: a router has to read what a client can read.
pub const MAX_REPLY_DEPTH: usize = MAX_MESSAGE_DEPTH + 20;

/// The least bytes of a document in a document: type, name, length and end.
const LEVEL: usize = 7;

/// True if a well-formed document nests deeper than this many levels; without sub-documents it has one level.
/// Nearly all documents are too short for that, and are not looked into.
pub fn nests_deeper(doc: Doc<'_>, levels: usize) -> bool {
    if doc.byte_len() < 5 + LEVEL * levels {
        return false;
    }
    let Some(below) = levels.checked_sub(1) else {
        return true;
    };
    let inner =
        |e: &crate::Elem<'_>| matches!(e.ty(), Type::Document | Type::Array | Type::CodeWithScope);
    doc.iter().filter(inner).any(|e| match e.value() {
        Value::Document(d) | Value::Array(d) => nests_deeper(d, below),
        Value::CodeWithScope { scope, .. } => nests_deeper(scope, below),
        _ => false,
    })
}

/// Checks that `bytes` are exactly one well-formed document: lengths, terminators, types,
/// UTF-8 of names and strings, booleans 0 or 1, nesting ≤ [`MAX_DEPTH`] (without recursion on
/// the input's depth beyond it).
///
/// # Errors
/// 22 InvalidBSON naming what is wrong and at which offset; 15 Overflow for nesting.
pub fn validate(bytes: &[u8]) -> Result<Doc<'_>> {
    validate_depth(bytes, MAX_DEPTH)
}

/// Does the same as [`validate`] with another nesting limit, at most [`MAX_REPLY_DEPTH`]. A document
/// without sub-documents has depth 1.
///
/// # Errors
/// Those of [`validate`].
pub fn validate_depth(bytes: &[u8], max_depth: usize) -> Result<Doc<'_>> {
    match document(bytes, max_depth.min(MAX_REPLY_DEPTH)) {
        Ok(()) => Ok(Doc::new(bytes)),
        Err(fault) => Err(fault.into_error(bytes.len(), max_depth)),
    }
}

/// Checks the first document at the front of `bytes`, and returns it and the rest.
///
/// # Errors
/// Those of [`validate`].
pub fn validate_first(bytes: &[u8], max_depth: usize) -> Result<(Doc<'_>, &[u8])> {
    match le_i32(bytes, 0)
        .and_then(|n| usize::try_from(n).ok())
        .and_then(|n| bytes.split_at_checked(n))
    {
        Some((doc, rest)) => Ok((validate_depth(doc, max_depth)?, rest)),
        None => Err(Fault::new("incorrect BSON length", bytes).into_error(bytes.len(), max_depth)),
    }
}

/// What is wrong, and how many bytes of the whole come after the place.
struct Fault {
    what: &'static str,
    left: usize,
    field: Option<String>,
}

impl Fault {
    #[cold]
    fn new(what: &'static str, rest: &[u8]) -> Fault {
        Fault {
            what,
            left: rest.len(),
            field: None,
        }
    }

    #[cold]
    fn into_error(self, total: usize, max_depth: usize) -> Error {
        if self.what == TOO_DEEP {
            return Error::new(Code::Overflow, format!("{TOO_DEEP}: {max_depth}"));
        }
        let field = self
            .field
            .map(|f| format!(" in element with field name '{f}'"))
            .unwrap_or_default();
        Error::new(
            Code::InvalidBSON,
            format!(
                "{}{field} at offset {} of a document of {total} bytes",
                self.what,
                total.saturating_sub(self.left)
            ),
        )
    }
}

const TOO_DEEP: &str = "BSONObj exceeded maximum nested object depth";
const BAD_LENGTH: &str = "incorrect BSON length";
const BAD_UTF8: &str = "text is not valid UTF-8";

fn document(bytes: &[u8], depth: usize) -> Result<(), Fault> {
    if depth == 0 {
        return Err(Fault::new(TOO_DEEP, bytes));
    }
    let (Some(n), Some((0, inner))) = (le_i32(bytes, 0), bytes.split_last()) else {
        return Err(Fault::new("not null terminated document", bytes));
    };
    if n as usize != bytes.len() || n < 5 {
        return Err(Fault::new(BAD_LENGTH, bytes));
    }
    elements(inner.get(4..).unwrap_or_default(), depth)
}

/// Checks the elements between a document's length and its closing zero.
fn elements(mut rest: &[u8], depth: usize) -> Result<(), Fault> {
    while let Some((&ty, named)) = rest.split_first() {
        let Some((name_len, ascii)) = cstr_len(named) else {
            return Err(Fault::new("not null terminated field name", rest));
        };
        let (name, value) = (
            named.get(..name_len).unwrap_or_default(),
            named.get(name_len + 1..).unwrap_or_default(),
        );
        if !ascii && std::str::from_utf8(name).is_err() {
            return Err(Fault::new(BAD_UTF8, rest));
        }
        match element(ty, value, depth) {
            Ok(after) => rest = after,
            Err(mut fault) => {
                // One byte for the closing zero that `document` cut off.
                fault.left += 1;
                fault
                    .field
                    .get_or_insert_with(|| String::from_utf8_lossy(name).into_owned());
                return Err(fault);
            }
        }
    }
    Ok(())
}

/// The length of the value of type `ty` at the front of `v`; `None` if it is not well formed.
pub(crate) fn value_len(ty: u8, v: &[u8], depth: usize) -> Option<usize> {
    let rest = element(ty, v, depth).ok()?;
    Some(v.len() - rest.len())
}

/// Checks one value of type `ty` at the front of `v`, and returns the rest.
#[inline]
fn element(ty: u8, v: &[u8], depth: usize) -> Result<&[u8], Fault> {
    let fixed = match ty {
        0x01 | 0x09 | 0x11 | 0x12 => 8,
        0x02 | 0x0D | 0x0E => return string(v),
        0x03 | 0x04 => {
            let (doc, rest) = prefixed(v)?;
            return match document(doc, depth - 1) {
                Ok(()) => Ok(rest),
                Err(mut fault) => {
                    fault.left += rest.len();
                    Err(fault)
                }
            };
        }
        0x05 => {
            let n = le_i32(v, 0).and_then(|n| usize::try_from(n).ok());
            return n
                .and_then(|n| v.get(n.checked_add(5)?..))
                .ok_or_else(|| Fault::new(BAD_LENGTH, v));
        }
        0x06 | 0x0A | 0x7F | 0xFF => return Ok(v),
        0x07 => 12,
        0x08 => {
            return match v.split_first() {
                Some((0 | 1, rest)) => Ok(rest),
                _ => Err(Fault::new("invalid boolean value", v)),
            };
        }
        0x0B => return cstring(cstring(v)?),
        0x0C => {
            let rest = string(v)?;
            return rest.get(12..).ok_or_else(|| Fault::new(BAD_LENGTH, v));
        }
        0x0F => return code_with_scope(v, depth),
        0x10 => 4,
        0x13 => 16,
        _ => return Err(Fault::new("unrecognized BSON type", v)),
    };
    v.get(fixed..).ok_or_else(|| Fault::new(BAD_LENGTH, v))
}

/// Splits off a value that starts with its own whole length.
#[inline]
fn prefixed(v: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    le_i32(v, 0)
        .and_then(|n| usize::try_from(n).ok())
        .and_then(|n| v.split_at_checked(n))
        .ok_or_else(|| Fault::new(BAD_LENGTH, v))
}

#[inline]
fn string(v: &[u8]) -> Result<&[u8], Fault> {
    let parts = v.split_first_chunk::<4>().and_then(|(n, body)| {
        let n = usize::try_from(i32::from_le_bytes(*n)).ok()?;
        body.split_at_checked(n)
    });
    match parts {
        Some(([text @ .., 0], rest)) => {
            if text.is_ascii() || std::str::from_utf8(text).is_ok() {
                Ok(rest)
            } else {
                Err(Fault::new(BAD_UTF8, v))
            }
        }
        Some(_) => Err(Fault::new("not null terminated string", v)),
        None => Err(Fault::new(BAD_LENGTH, v)),
    }
}

fn cstring(v: &[u8]) -> Result<&[u8], Fault> {
    match cstr_len(v).and_then(|(n, ascii)| Some((v.get(..n)?, v.get(n + 1..)?, ascii))) {
        Some((text, rest, ascii)) if ascii || std::str::from_utf8(text).is_ok() => Ok(rest),
        Some(_) => Err(Fault::new(BAD_UTF8, v)),
        None => Err(Fault::new("not null terminated string", v)),
    }
}

fn code_with_scope(v: &[u8], depth: usize) -> Result<&[u8], Fault> {
    let (whole, rest) = prefixed(v)?;
    let checked = whole
        .get(4..)
        .ok_or_else(|| Fault::new(BAD_LENGTH, whole))
        .and_then(string)
        .and_then(|scope| document(scope, depth - 1));
    match checked {
        Ok(()) => Ok(rest),
        Err(mut fault) => {
            fault.left += rest.len();
            Err(fault)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::{DocBuf, Value, array, doc};

    fn nested(depth: usize) -> DocBuf {
        (1..depth).fold(doc! {}, |inner, _| doc! { "a": inner })
    }

    #[test]
    fn nesting_is_counted_as_the_check_counts_it() {
        let wrap = |d: DocBuf, kind: usize| match kind % 3 {
            0 => doc! { "": d },
            1 => doc! { "a": array![d], "b": 1 },
            _ => doc! { "c": Value::CodeWithScope { code: "", scope: d.as_doc() } },
        };
        let mut d = doc! {};
        for kind in 0..60 {
            for levels in 0..MAX_MESSAGE_DEPTH {
                let fits = validate_depth(d.as_bytes(), levels).is_ok();
                assert_eq!(nests_deeper(d.as_doc(), levels), !fits, "{kind} {levels}");
            }
            d = wrap(d, kind);
        }
    }

    #[test]
    fn every_type_passes() {
        let d = doc! {
            "double": 1.5, "string": "grüße", "doc": doc! { "x": 1 }, "array": array![1, "b"],
            "bin": Value::Binary { subtype: 4, bytes: &[1, 2] }, "undef": Value::Undefined,
            "oid": Value::ObjectId([7; 12]), "bool": true, "date": Value::DateTime(-1),
            "null": Value::Null, "re": Value::Regex { pattern: "^a", options: "i" },
            "ptr": Value::DbPointer { namespace: "a.b", id: [1; 12] }, "code": Value::Code("f"),
            "sym": Value::Symbol("s"),
            "cws": Value::CodeWithScope { code: "f", scope: doc! { "a": 1 }.as_doc() },
            "i": 1, "ts": Value::Timestamp { t: 1, i: 2 }, "l": 1_i64,
            "dec": Value::Decimal128([0; 16]), "max": Value::MaxKey, "min": Value::MinKey,
            "": "", "übung": 1, "i": 2,
        };
        validate(d.as_bytes()).unwrap();
        // If it is cut anywhere it is refused, and no damaged byte causes a panic.
        for n in 0..d.len() {
            validate(&d.as_bytes()[..n]).unwrap_err();
            for bit in 0..8 {
                let mut b = d.as_bytes().to_vec();
                b[n] ^= 1 << bit;
                if let Ok(d) = validate(&b) {
                    assert!(d.iter().map(|e| e.as_bytes().len()).sum::<usize>() + 5 == b.len());
                }
            }
        }
        let mut long = d.clone().into_bytes();
        long.push(0);
        assert_eq!(validate(&long).unwrap_err().code(), Code::InvalidBSON);
        assert_eq!(validate_first(&long, 9).unwrap().1, &[0]);
    }

    #[test]
    fn faults_are_named() {
        for (bytes, what) in [
            (&b""[..], "not null terminated document"),
            (b"\x05\0\0\0\x01", "not null terminated document"),
            (b"\x06\0\0\0\0", "incorrect BSON length"),
            (
                b"\x09\0\0\0\x08b\0\x02\0",
                "invalid boolean value in element with field name 'b'",
            ),
            (b"\x08\0\0\0\x20b\0\0", "unrecognized BSON type"),
            (
                b"\x0E\0\0\0\x02s\0\x02\0\0\0\xFF\0\0",
                "text is not valid UTF-8",
            ),
            (
                b"\x0E\0\0\0\x02s\0\x02\0\0\0aa\0",
                "not null terminated string",
            ),
            (
                b"\x0D\0\0\0\x02s\0\0\0\0\0\0\0",
                "not null terminated string",
            ),
            (
                b"\x0D\0\0\0\x02s\0\xFF\xFF\xFF\xFF\0\0",
                "incorrect BSON length",
            ),
            (b"\x08\0\0\0\x0A\xC3\0\0", "text is not valid UTF-8"),
            (b"\x07\0\0\0\x0Aa\0", "not null terminated field name"),
            (b"\x0C\0\0\0\x05b\0\x01\0\0\0\0", "incorrect BSON length"),
        ] {
            let e = validate(bytes).unwrap_err();
            assert_eq!(e.code(), Code::InvalidBSON, "{bytes:?}");
            assert!(e.message().contains(what), "{bytes:?}: {e}");
        }
        let e = validate(b"\x11\0\0\0\x03d\0\x09\0\0\0\x08b\0\x02\0\0").unwrap_err();
        assert_eq!(
            e.message(),
            "invalid boolean value in element with field name 'b' at offset 14 of a document of 17 bytes"
        );
    }

    #[test]
    fn nesting_is_limited() {
        validate(nested(MAX_DEPTH).as_bytes()).unwrap();
        let deep = nested(MAX_DEPTH + 1);
        let e = validate(deep.as_bytes()).unwrap_err();
        assert_eq!(e.code(), Code::Overflow);
        assert!(e.message().contains("nested object depth"), "{e}");
        validate_depth(deep.as_bytes(), MAX_MESSAGE_DEPTH).unwrap();
        validate_depth(nested(5000).as_bytes(), usize::MAX).unwrap_err();
    }
}
