//! Collations: the comparison of texts other than byte by byte.
//!
//! A [`Collation`] is a cheap handle. The simple collation, which most operations have, compares bytes and
//! costs one check of an empty pointer.
//!
//! In keys, a text is replaced by its *collation key*: the bytes of its sort key, each as the character with
//! that number. So a key is an encoding like every other, and a string that is decoded from it is a string,
//! though not the stored one. Names of fields never collate.
//!
//! Sources: the MongoDB manual, "Collation"; Unicode Technical Standard 10.

mod icu;
mod spec;

pub use spec::VERSION;

use crate::keyenc::{self, TypeBits};
use crate::order;
use crate::{ArrayBuf, Doc, DocBuf, Result, Value, ValueBuf};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The comparison of texts; cloning is cheap. The default compares bytes (`{locale: "simple"}`).
#[derive(Clone, Debug, Default)]
pub struct Collation(Option<Arc<Collator>>);

/// The comparison of one locale with its options.
#[derive(Debug)]
pub struct Collator {
    spec: DocBuf,
    texts: icu::Texts,
}

impl Collator {
    /// Compares two texts.
    pub fn compare(&self, a: &str, b: &str) -> Ordering {
        self.texts.compare(a, b)
    }

    /// Appends the collation key of a text, as UTF-8.
    pub fn write_key(&self, s: &str, out: &mut Vec<u8>) {
        let start = out.len();
        self.texts.sort_key(s, out);
        let high = |out: &[u8]| out.iter().skip(start).filter(|b| **b >= 0x80).count();
        let mut more = high(out);
        // The conversion goes from the end to the start, so that it happens in place.
        let mut from = out.len();
        out.resize(from + more, 0);
        while more > 0 && from > start {
            from -= 1;
            let b = out.get(from).copied().unwrap_or_default();
            let to = from + more;
            if b < 0x80 {
                if let Some(at) = out.get_mut(to) {
                    *at = b;
                }
            } else {
                if let Some(at) = out.get_mut(to - 1..=to) {
                    at.copy_from_slice(&[0xC0 | b >> 6, 0x80 | b & 0x3F]);
                }
                more -= 1;
            }
        }
    }
}

/// The number of documents whose collators are kept.
const KEPT: usize = 128;

type Kept = HashMap<Vec<u8>, Arc<Collator>>;

/// The collators that were made, by their documents as written and as completed.
fn kept() -> MutexGuard<'static, Kept> {
    static KEPT: OnceLock<Mutex<Kept>> = OnceLock::new();
    let kept = KEPT.get_or_init(Mutex::default);
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Collation {
    /// The comparison of bytes.
    pub const SIMPLE: Collation = Collation(None);

    /// Checks a collation document and makes its collation.
    ///
    /// # Errors
    /// 14 TypeMismatch, 2 BadValue, 40414 without a locale, 40415 for an unknown field, 161
    /// IncompatibleCollationVersion.
    pub fn parse(d: Doc<'_>) -> Result<Collation> {
        if let Some(c) = kept().get(d.as_bytes()) {
            return Ok(Collation(Some(c.clone())));
        }
        let Some(spec) = spec::parse(d)? else {
            return Ok(Collation::SIMPLE);
        };
        let full = spec.as_doc().as_bytes().to_vec();
        let mut kept = kept();
        let known = kept.get(&full).cloned();
        let c = match known {
            Some(c) => c,
            None => {
                let texts = icu::Texts::new(spec.as_doc())?;
                Arc::new(Collator { spec, texts })
            }
        };
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(full, c.clone());
        // The document will come again in the form in which it was written.
        kept.insert(d.as_bytes().to_vec(), c.clone());
        Ok(Collation(Some(c)))
    }

    /// Does the same as [`Collation::parse`] for an optional document.
    ///
    /// # Errors
    /// See [`Collation::parse`].
    pub fn parse_some(d: Option<Doc<'_>>) -> Result<Collation> {
        d.map_or(Ok(Collation::SIMPLE), Collation::parse)
    }

    /// Whether this compares bytes.
    #[inline]
    pub fn is_simple(&self) -> bool {
        self.0.is_none()
    }

    /// The complete document; `None` for the simple collation.
    pub fn spec(&self) -> Option<&DocBuf> {
        self.0.as_ref().map(|c| &c.spec)
    }

    /// The document of the collation, which for the simple one is `{locale: "simple"}`.
    pub fn to_doc(&self) -> DocBuf {
        match &self.0 {
            Some(c) => c.spec.clone(),
            None => crate::doc! { "locale": "simple" },
        }
    }

    /// The collator; `None` for the simple collation.
    #[inline]
    pub fn collator(&self) -> Option<&Collator> {
        self.0.as_deref()
    }

    /// Compares two values canonically, texts by the collation.
    #[inline]
    pub fn cmp(&self, a: Value<'_>, b: Value<'_>) -> Ordering {
        match &self.0 {
            None => order::cmp_values(a, b),
            Some(c) => order::cmp_collated(a, b, c),
        }
    }

    /// Whether two values are equal canonically, texts by the collation.
    #[inline]
    pub fn equal(&self, a: Value<'_>, b: Value<'_>) -> bool {
        self.cmp(a, b).is_eq()
    }

    /// Appends the key encoding of a value; see [`keyenc::encode`].
    #[inline]
    pub fn encode(&self, v: Value<'_>, descending: bool, out: &mut Vec<u8>) {
        match &self.0 {
            None => keyenc::encode(v, descending, out),
            Some(c) => keyenc::encode_collated(v, descending, out, c),
        }
    }

    /// Does the same as [`Collation::encode`], and records what the encoding drops; see
    /// [`keyenc::encode_with_bits`].
    #[inline]
    pub fn encode_with_bits(
        &self,
        v: Value<'_>,
        descending: bool,
        out: &mut Vec<u8>,
        bits: &mut TypeBits,
    ) {
        match &self.0 {
            None => keyenc::encode_with_bits(v, descending, out, bits),
            // With collation keys, the dropped information is needed only for numbers, but they stay in step
            // only if texts are counted as well.
            Some(c) => keyenc::encode_collated_with_bits(v, descending, out, bits, c),
        }
    }

    /// The ascending key encoding of a value.
    pub fn encoded(&self, v: Value<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        self.encode(v, false, &mut out);
        out
    }

    /// The value with collation keys in the place of its texts, as an index with this collation has it.
    pub fn key_value(&self, v: Value<'_>) -> ValueBuf {
        match &self.0 {
            None => ValueBuf::new(v),
            Some(c) => c.key_value(v, order::MAX_NESTING),
        }
    }
}

impl Collator {
    fn key_value(&self, v: Value<'_>, depth: usize) -> ValueBuf {
        match v {
            Value::String(s) | Value::Symbol(s) => {
                let mut key = Vec::new();
                self.write_key(s, &mut key);
                ValueBuf::new(Value::String(&String::from_utf8_lossy(&key)))
            }
            Value::Document(d) if depth > 0 => {
                let mut out = DocBuf::new();
                for e in d {
                    out.append(e.name(), self.key_value(e.value(), depth - 1));
                }
                ValueBuf::new(Value::Document(out.as_doc()))
            }
            Value::Array(d) if depth > 0 => {
                let mut out = ArrayBuf::new();
                for v in d.values() {
                    out.push(self.key_value(v, depth - 1));
                }
                ValueBuf::new(Value::Array(out.as_doc()))
            }
            v => ValueBuf::new(v),
        }
    }
}

/// A collation key as hexadecimal digits, `0x2a2c`.
pub fn key_hex(key: &str) -> String {
    let mut out = String::from("0x");
    for c in key.chars() {
        out.push_str(&format!("{:02x}", c as u32));
    }
    out
}

/// Whether a value has text in it, so that its order depends on the collation.
pub fn has_text(v: Value<'_>) -> bool {
    match v {
        Value::String(_) | Value::Symbol(_) => true,
        Value::Document(d) | Value::Array(d) => d.values().any(has_text),
        _ => false,
    }
}

impl PartialEq for Collation {
    fn eq(&self, other: &Collation) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a.spec == b.spec,
            _ => false,
        }
    }
}

impl Eq for Collation {}

#[cfg(test)]
mod tests;
