//! MongoDB Extended JSON v2 in both directions (through the `bson` crate), and the shell-like form that error
//! messages use.
//!
//! Extended JSON goes through a document tree, so it is for tests, logs and tools, not for hot paths. Of
//! duplicate field names only the last value is kept there; the display form shows all.

use crate::decimal::Decimal;
use crate::{Doc, DocBuf, Error, Result, Value};
use std::fmt::Write;

/// The variants of Extended JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonMode {
    /// Type information is kept exactly.
    Canonical,
    /// Numbers and dates have the form that readers of JSON expect.
    Relaxed,
}

/// The depth at which the display form stops descending. It is deeper than any valid document.
const DISPLAY_DEPTH: usize = 250;

impl DocBuf {
    /// Parses Extended JSON (canonical or relaxed) into a document.
    ///
    /// # Errors
    /// 9 FailedToParse.
    pub fn from_json(json: &str) -> Result<DocBuf> {
        let fail = |e: String| Error::failed_to_parse(format!("invalid Extended JSON: {e}"));
        let map: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(json).map_err(|e| fail(e.to_string()))?;
        let tree = bson::Document::try_from(map).map_err(|e| fail(e.to_string()))?;
        let bytes = tree.to_vec().map_err(|e| fail(e.to_string()))?;
        Ok(DocBuf::from_bytes_trusted(bytes))
    }
}

impl Doc<'_> {
    /// The document as Extended JSON on one line. A damaged document that was never validated is shown in the
    /// display form.
    pub fn to_json(&self, mode: JsonMode) -> String {
        let Ok(tree) = bson::Document::from_reader(self.as_bytes()) else {
            return Value::Document(*self).to_display();
        };
        let json = match mode {
            JsonMode::Canonical => bson::Bson::Document(tree).into_canonical_extjson(),
            JsonMode::Relaxed => bson::Bson::Document(tree).into_relaxed_extjson(),
        };
        json.to_string()
    }

    /// See [`Value::to_display`].
    pub fn to_display(&self) -> String {
        Value::Document(*self).to_display()
    }

    /// A command in the form for logs, currentOp and the profiler. It is the command itself if that has at
    /// most `longest` bytes and nests no deeper than a record of it may, and `{$truncated: "its beginning as
    /// text", comment}` otherwise.
    pub fn abridged(&self, longest: usize) -> DocBuf {
        if self.byte_len() <= longest && !crate::nests_deeper(*self, crate::MAX_DEPTH - 1) {
            return self.to_buf();
        }
        let mut text = String::new();
        let within = Within {
            depth: DISPLAY_DEPTH,
            bytes: longest,
        };
        display(Value::Document(*self), within, &mut text);
        text.truncate(beginning(&text, longest).len());
        let mut cut = crate::doc! { "$truncated": text };
        let comment = self.get_elem("comment");
        let short = comment.filter(|e| e.as_bytes().len() <= longest);
        cut.append_some("comment", short.map(|e| e.value()));
        cut
    }
}

impl Value<'_> {
    /// The form in which MongoDB's error messages print a value: `{ x: 1, s: "a", id: ObjectId('…') }`.
    pub fn to_display(&self) -> String {
        let mut out = String::new();
        let within = Within {
            depth: DISPLAY_DEPTH,
            bytes: usize::MAX,
        };
        display(*self, within, &mut out);
        out
    }
}

/// Limits on what is shown.
#[derive(Clone, Copy)]
struct Within {
    /// The levels of documents and arrays.
    depth: usize,
    /// The caller cuts off the text after this many bytes, so nothing more needs to be written.
    bytes: usize,
}

impl Within {
    /// How many more bytes are useful.
    fn left(&self, out: &str) -> usize {
        self.bytes.saturating_sub(out.len())
    }
}

/// A UUID as people write it.
pub fn uuid_text(uuid: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (i, byte) in uuid.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The longest beginning of a text that fits into this many bytes.
pub fn beginning(s: &str, bytes: usize) -> &str {
    let fits = (0..=bytes.min(s.len())).rev().find_map(|end| s.get(..end));
    fits.unwrap_or_default()
}

fn display(v: Value<'_>, within: Within, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = match v {
        Value::Double(n) => {
            double(n, out);
            Ok(())
        }
        Value::String(s) | Value::Symbol(s) => {
            quoted(beginning(s, within.left(out)), out);
            Ok(())
        }
        Value::Document(d) => {
            list(d, ("{", "}"), true, within, out);
            Ok(())
        }
        Value::Array(d) => {
            list(d, ("[", "]"), false, within, out);
            Ok(())
        }
        Value::Binary { subtype: 4, bytes } if bytes.len() == 16 => {
            write!(out, "UUID(\"{}\")", uuid_text(bytes))
        }
        Value::Binary { subtype, bytes } => {
            let _ = write!(out, "BinData({subtype}, ");
            for b in bytes.iter().take(within.left(out)) {
                let _ = write!(out, "{b:02X}");
            }
            out.write_str(")")
        }
        Value::Undefined => out.write_str("undefined"),
        Value::ObjectId(id) => {
            object_id(&id, out);
            Ok(())
        }
        Value::Bool(b) => write!(out, "{b}"),
        Value::DateTime(n) => write!(out, "new Date({n})"),
        Value::Null => out.write_str("null"),
        Value::Regex { pattern, options } => write!(out, "/{pattern}/{options}"),
        Value::DbPointer { namespace, id } => {
            let _ = write!(out, "DBRef('{namespace}',");
            object_id(&id, out);
            out.write_str(")")
        }
        Value::Code(s) => {
            let shown = beginning(s, within.left(out));
            out.write_str(shown)
        }
        Value::CodeWithScope { code, scope } => {
            let _ = write!(out, "CodeWScope( {code}, ");
            list(scope, ("{", "}"), true, within, out);
            out.write_str(")")
        }
        Value::Int32(n) => write!(out, "{n}"),
        Value::Timestamp { t, i } => write!(out, "Timestamp({t}, {i})"),
        Value::Int64(n) => write!(out, "{n}"),
        Value::Decimal128(b) => write!(out, "{}", Decimal::from_bid(b)),
        Value::MaxKey => out.write_str("MaxKey"),
        Value::MinKey => out.write_str("MinKey"),
    };
}

fn list(d: Doc<'_>, (open, close): (&str, &str), names: bool, within: Within, out: &mut String) {
    out.push_str(open);
    if within.depth == 0 {
        out.push_str("...");
    } else {
        let mut separator = " ";
        let inner = Within {
            depth: within.depth - 1,
            ..within
        };
        for e in d {
            if within.left(out) == 0 {
                break;
            }
            out.push_str(separator);
            separator = ", ";
            if names {
                out.push_str(e.name());
                out.push_str(": ");
            }
            display(e.value(), inner, out);
        }
        if !d.is_empty() {
            out.push(' ');
        }
    }
    out.push_str(close);
}

fn quoted(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn object_id(id: &[u8; 12], out: &mut String) {
    out.push_str("ObjectId('");
    for b in id {
        let _ = write!(out, "{b:02x}");
    }
    out.push_str("')");
}

fn double(n: f64, out: &mut String) {
    let _ = if n.is_nan() {
        out.write_str("nan")
    } else if n.is_infinite() {
        out.write_str(if n < 0.0 { "-inf" } else { "inf" })
    } else {
        write!(out, "{n:?}")
    };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::{array, doc};

    #[test]
    fn extended_json_round_trips() {
        for json in [
            r#"{"a":1,"b":2.5,"c":"x","d":[true,null,{"e":{}}]}"#,
            r#"{"_id":{"$oid":"507f1f77bcf86cd799439011"},"n":{"$numberDecimal":"1.50"}}"#,
            r#"{"d":{"$date":"1970-01-01T00:00:00Z"},"big":9007199254740993}"#,
            r#"{"r":{"$regularExpression":{"pattern":"^a","options":"i"}}}"#,
        ] {
            let d = DocBuf::from_json(json).unwrap();
            assert_eq!(d.as_doc().to_json(JsonMode::Relaxed), json);
            let canonical = d.as_doc().to_json(JsonMode::Canonical);
            assert_eq!(DocBuf::from_json(&canonical).unwrap(), d);
        }
        assert_eq!(
            doc! { "l": 1_i64, "n": 1.0 }
                .as_doc()
                .to_json(JsonMode::Canonical),
            r#"{"l":{"$numberLong":"1"},"n":{"$numberDouble":"1.0"}}"#
        );
        for bad in ["", "[]", "{", r#"{"a":{"$oid":"x"}}"#, "1"] {
            let e = DocBuf::from_json(bad).unwrap_err();
            assert_eq!(e.code(), crate::Code::FailedToParse, "{bad}");
        }
    }

    #[test]
    fn display_is_the_shells() {
        let d = doc! {
            "a": 1, "s": "x\"y", "id": Value::ObjectId([0x50; 12]), "d": Value::DateTime(0),
            "n": 1.5, "w": 2.0, "r": Value::Regex { pattern: "x", options: "i" },
            "b": Value::Binary { subtype: 0, bytes: b"abc" }, "e": doc! {}, "l": array![1, "z"],
            "o": array![], "t": Value::Timestamp { t: 1, i: 2 }, "m": Value::MinKey,
            "x": f64::INFINITY, "u": Value::Binary { subtype: 4, bytes: &[1; 16] },
        };
        assert_eq!(
            d.as_doc().to_display(),
            "{ a: 1, s: \"x\\\"y\", id: ObjectId('505050505050505050505050'), d: new Date(0), \
             n: 1.5, w: 2.0, r: /x/i, b: BinData(0, 616263), e: {}, l: [ 1, \"z\" ], o: [], \
             t: Timestamp(1, 2), m: MinKey, x: inf, u: UUID(\"01010101-0101-0101-0101-010101010101\") }"
        );
        let deep = (0..2000).fold(doc! {}, |d, _| doc! { "a": d });
        assert!(deep.as_doc().to_display().contains("{...}"));
    }

    #[test]
    fn long_commands_are_cut_off_and_keep_their_comment() {
        let command =
            doc! { "find": "c", "filter": doc! { "a": "é".repeat(900) }, "comment": "me" };
        assert_eq!(command.as_doc().abridged(4096), command);
        let cut = command.as_doc().abridged(1000);
        let cut = cut.as_doc();
        assert!((998..=1000).contains(&cut.get_str("$truncated").unwrap().len()));
        assert_eq!(cut.get_str("comment"), Some("me"));
        assert_eq!(cut.iter().count(), 2);
        // Nothing is written beyond the limit: a large binary takes no time.
        let bytes = vec![7; 8 << 20];
        let binary = doc! { "b": Value::Binary { subtype: 0, bytes: &bytes } };
        let shown = binary.as_doc().abridged(100);
        assert_eq!(
            shown.as_doc().get_str("$truncated").map(str::len),
            Some(100)
        );
    }
}
