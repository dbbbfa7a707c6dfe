//! Small helpers for writing BSON straight into an output buffer.
//!
//! Must not: know an operator, or decode more than it is asked to.

use muniment_value::{
    Doc, DocIter, Elem, Error, MAX_DEPTH, Put, Result, Type, Value, nests_deeper,
};

/// The largest document a client may store, in bytes.
pub const MAX_DOCUMENT: usize = 16 * 1024 * 1024;

/// Begins a document (or array): leaves room for its length, and returns the argument for [`close`].
#[inline]
pub fn open(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    start
}

/// Ends the document that [`open`] began at `start`.
#[inline]
pub fn close(out: &mut Vec<u8>, start: usize) {
    out.push(0);
    let n = (out.len().saturating_sub(start) as u32).to_le_bytes();
    if let Some(head) = out.get_mut(start..start + 4) {
        head.copy_from_slice(&n);
    }
}

/// Appends an element's type and name.
#[inline]
pub fn head(out: &mut Vec<u8>, ty: Type, name: &[u8]) {
    out.push(ty as u8);
    out.extend_from_slice(name);
    out.push(0);
}

/// Appends a whole element.
#[inline]
pub fn put(out: &mut Vec<u8>, name: &[u8], value: &(impl Put + ?Sized)) {
    head(out, value.put_type(), name);
    value.put(out);
}

/// The bytes of `doc` between its length prefix and its closing zero.
#[inline]
pub fn body(doc: Doc<'_>) -> &[u8] {
    let b = doc.as_bytes();
    b.get(4..b.len().saturating_sub(1)).unwrap_or_default()
}

/// Appends `doc` with the value at `parts` replaced, added, or (for `None`) removed. A value on the way that
/// is not a document becomes one.
pub fn set_path(doc: Doc<'_>, parts: &[String], v: Option<&dyn Put>, out: &mut Vec<u8>) {
    let Some((name, rest)) = parts.split_first() else {
        out.extend_from_slice(doc.as_bytes());
        return;
    };
    let write = |old: Option<Value<'_>>, out: &mut Vec<u8>| {
        if !rest.is_empty() {
            head(out, Type::Document, name.as_bytes());
            let inner = old.and_then(|v| v.as_doc()).unwrap_or(Doc::EMPTY);
            set_path(inner, rest, v, out);
        } else if let Some(v) = v {
            put(out, name.as_bytes(), v);
        }
    };
    let start = open(out);
    let bytes = doc.as_bytes();
    let mut elems: DocIter<'_> = doc.iter();
    let mut before = elems.offset();
    let mut found = false;
    while let Some(e) = elems.next() {
        if e.name_bytes() == name.as_bytes() {
            out.extend_from_slice(bytes.get(4..before).unwrap_or_default());
            write(Some(e.value()), out);
            before = elems.offset();
            found = true;
            break;
        }
        before = elems.offset();
    }
    let end = bytes.len().saturating_sub(1);
    if found {
        out.extend_from_slice(bytes.get(before..end).unwrap_or_default());
    } else {
        out.extend_from_slice(bytes.get(4..end).unwrap_or_default());
        write(None, out);
    }
    close(out, start);
}

/// The decimal digits of an array index, without an allocation.
#[derive(Clone, Copy)]
pub struct IndexName {
    buf: [u8; 20],
    at: usize,
}

impl IndexName {
    /// The name of element `n`.
    #[inline]
    pub fn new(n: usize) -> IndexName {
        let mut buf = [b'0'; 20];
        let mut at = buf.len();
        let mut n = n;
        loop {
            at = at.saturating_sub(1);
            if let Some(b) = buf.get_mut(at) {
                *b = b'0' + (n % 10) as u8;
            }
            n /= 10;
            if n == 0 {
                break;
            }
        }
        IndexName { buf, at }
    }

    /// The digits.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.buf.get(self.at..).unwrap_or_default()
    }
}

/// The array index that a path component stands for: decimal digits without leading zeros.
pub fn array_index(part: &str) -> Option<usize> {
    let b = part.as_bytes();
    if b.is_empty() || b.len() > 10 || (b.len() > 1 && b.first() == Some(&b'0')) {
        return None;
    }
    if !b.iter().all(u8::is_ascii_digit) {
        return None;
    }
    part.parse().ok()
}

/// The array element that a component of an update's path stands for: decimal digits, also with leading
/// zeros. (In a query, such a component is a field name.)
pub fn array_position(part: &str) -> Option<usize> {
    let digits = part.trim_start_matches('0');
    if digits.is_empty() {
        return (!part.is_empty()).then_some(0);
    }
    array_index(digits)
}

/// How deeply a value nests: 0 for a scalar, 1 for an empty document. The count ends a little beyond the
/// limit for stored documents.
pub fn depth(v: Value<'_>) -> usize {
    fn below(d: Doc<'_>, level: usize) -> usize {
        if level > MAX_DEPTH + 20 {
            return level;
        }
        d.iter()
            .filter(|e| matches!(e.ty(), Type::Document | Type::Array | Type::CodeWithScope))
            .map(|e| match e.value() {
                Value::Document(d) | Value::Array(d) => below(d, level + 1),
                Value::CodeWithScope { scope, .. } => below(scope, level + 1),
                _ => level,
            })
            .max()
            .unwrap_or(level)
    }
    match v {
        Value::Document(d) | Value::Array(d) => below(d, 1),
        Value::CodeWithScope { scope, .. } => below(scope, 1),
        _ => 0,
    }
}

/// Fails with 15 Overflow if `doc` nests too deeply to be stored.
pub fn check_depth(doc: Doc<'_>) -> Result<()> {
    if nests_deeper(doc, MAX_DEPTH) {
        return Err(too_deep());
    }
    Ok(())
}

/// The error of [`check_depth`].
pub fn too_deep() -> Error {
    Error::new(
        muniment_value::Code::Overflow,
        format!("Document exceeds maximum nesting depth of {MAX_DEPTH}"),
    )
}

/// An element in the form in which MongoDB's messages print it: `name: value`.
pub fn show(e: Elem<'_>) -> String {
    format!("{}: {}", e.name(), e.value().to_display())
}

/// The `{_id: 1}` of a document, which identifies it in a message.
pub fn show_id(doc: Doc<'_>) -> String {
    match doc.get_elem("_id") {
        Some(e) => format!("{{{}}}", show(e)),
        None => "{no id}".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_names_and_indexes_agree() {
        for n in [0usize, 1, 9, 10, 99, 100, 1_500_000] {
            let name = IndexName::new(n);
            let text = std::str::from_utf8(name.as_bytes()).unwrap_or("");
            assert_eq!(text, n.to_string());
            assert_eq!(array_index(text), Some(n));
            assert_eq!(array_position(text), Some(n));
            assert_eq!(array_position(&format!("000{text}")), Some(n));
        }
        for bad in ["", "01", "00", "-1", "1a", "+1", "99999999999"] {
            assert_eq!(array_index(bad), None, "{bad}");
            let padded = matches!(bad, "01" | "00");
            assert_eq!(array_position(bad).is_some(), padded, "{bad}");
        }
    }
}
