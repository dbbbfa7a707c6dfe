//! The bodies of the fuzz targets `bson_column`, `bson_validate` and `key_encoding`, which are shared with
//! the test that replays their corpora. They panic if an invariant of the crate does not hold, so production
//! code must never call them.

use crate::column::{Cell, ColumnReader};
use crate::decimal::Decimal;
use crate::{
    Doc, DocBuf, IndexKeys, JsonMode, Value, ValueBuf, cmp_docs, cmp_values, index_keys, keyenc,
    path, validate,
};
use std::cmp::Ordering;

/// Reads `data` as a column. Every value must be well-formed BSON, and no larger than the bytes it was made
/// of.
pub fn bson_column(data: &[u8]) {
    let mut reader = ColumnReader::new(data);
    for _ in 0..5000 {
        match reader.next() {
            Ok(Cell::End) | Err(_) => return,
            Ok(Cell::Missing) => {}
            Ok(Cell::Value(ty, raw)) => {
                assert!(raw.len() <= data.len() * 2 + 32);
                let mut d = vec![0, 0, 0, 0, ty as u8, 0];
                d.extend_from_slice(raw);
                d.push(0);
                let len = (d.len() as u32).to_le_bytes();
                if let Some(head) = d.get_mut(..4) {
                    head.copy_from_slice(&len);
                }
                assert!(crate::validate_depth(&d, crate::MAX_MESSAGE_DEPTH).is_ok());
            }
        }
    }
}

/// Reads `data` as a document, valid or not. Nothing may panic. If the document is valid, reading,
/// rebuilding, comparing, printing and encoding it must be consistent.
pub fn bson_validate(data: &[u8]) {
    let raw = Doc::new(data);
    walk(raw, 300);
    let paths = ["a", "b", "a.b", "a.0", "a.0.b", "a.b.c", ""].map(path::Path::new);
    for p in &paths {
        path::visit(raw, p.parts(), &mut |v, _| v.is_some_and(|v| v.truthy()));
        path::visit_leaves(raw, p.parts(), &mut |v, _| {
            v.is_some_and(|v| v.as_i64_exact().is_some())
        });
    }
    let fields: Vec<_> = paths.into_iter().map(|p| (p, false)).collect();
    let mut keys = IndexKeys::new();
    for fields in fields.windows(2) {
        if index_keys(raw, fields, false, &mut keys).is_ok() {
            assert!(!keys.is_empty());
            assert!(keys.iter().map(|k| k.0).is_sorted());
        }
    }
    let key = keyenc::encoded(Value::Document(raw));
    assert_eq!(cmp_docs(raw, raw), Ordering::Equal);
    let _ = raw.to_display();

    let Ok(doc) = validate(data) else { return };
    let mut copy = DocBuf::new();
    let mut bytes = 5;
    for e in doc {
        bytes += e.as_bytes().len();
        copy.append(e.name(), e.value());
        assert_eq!(e.name().as_bytes(), e.name_bytes());
    }
    // Every byte is accounted for, and decoding loses nothing (except redundant parts such as the inner
    // length of code with scope, which validation has checked).
    assert_eq!(bytes, data.len());
    assert_eq!(copy.as_bytes(), data);
    assert_eq!(keyenc::skip(&key, false).ok(), Some(key.len()));
    round_trip(&ValueBuf::new(doc));
    let _ = doc.to_json(JsonMode::Canonical);
    let _ = doc.to_json(JsonMode::Relaxed);
}

fn walk(doc: Doc<'_>, depth: usize) {
    for e in doc {
        match e.value() {
            Value::Document(d) | Value::Array(d) | Value::CodeWithScope { scope: d, .. }
                if depth > 0 =>
            {
                walk(d, depth - 1);
            }
            _ => {}
        }
    }
}

/// Decodes `data` as a key, which must not panic. Then builds two values from it, whose keys must have the
/// order of the values, decode to the values, and not be prefixes of each other.
pub fn key_encoding(data: &[u8]) {
    for descending in [false, true] {
        for split in [data.len(), data.len() / 2] {
            let (key, mut bits) = data.split_at(split);
            let skipped = keyenc::skip(key, descending);
            if let Ok((v, rest)) = keyenc::decode(key, descending, &mut bits) {
                assert_eq!(skipped.ok(), Some(key.len() - rest.len()));
                let doc = DocBuf::new().append("", v).clone();
                assert!(validate(doc.as_bytes()).is_ok() || nested_too_deep(doc.as_doc(), 0));
            }
        }
    }
    let mut source = Source(data);
    let (a, b) = (source.value(4), source.value(4));
    round_trip(&a);
    round_trip(&b);
    let order = cmp_values(a.as_value(), b.as_value());
    assert_eq!(cmp_values(b.as_value(), a.as_value()), order.reverse());
    let (ka, kb) = (keyenc::encoded(a.as_value()), keyenc::encoded(b.as_value()));
    assert_eq!(ka.cmp(&kb), order, "{a:?} {b:?}");
    assert_eq!(ka.starts_with(&kb), order == Ordering::Equal);
    let (mut da, mut db) = (Vec::new(), Vec::new());
    keyenc::encode(a.as_value(), true, &mut da);
    keyenc::encode(b.as_value(), true, &mut db);
    assert_eq!(da.cmp(&db), order.reverse(), "{a:?} {b:?}");
}

fn nested_too_deep(doc: Doc<'_>, depth: usize) -> bool {
    depth > crate::MAX_DEPTH
        || doc.iter().any(|e| match e.value() {
            Value::Document(d) | Value::Array(d) | Value::CodeWithScope { scope: d, .. } => {
                nested_too_deep(d, depth + 1)
            }
            _ => false,
        })
}

/// Encodes and decodes a value, which must come back. (An array with unusual element names comes back with
/// the usual ones, so the check is for canonical equality and an equal key.)
pub(crate) fn round_trip(v: &ValueBuf) {
    for descending in [false, true] {
        let (mut key, mut bits) = (Vec::new(), keyenc::TypeBits::new());
        keyenc::encode_with_bits(v.as_value(), descending, &mut key, &mut bits);
        let mut left = bits.as_bytes();
        let decoded = keyenc::decode(&key, descending, &mut left);
        assert!(decoded.is_ok(), "{v:?}");
        let Ok((back, rest)) = decoded else { return };
        assert!(rest.is_empty() && left.is_empty(), "{v:?}");
        assert_eq!(cmp_values(back.as_value(), v.as_value()), Ordering::Equal);
        let (mut again, mut again_bits) = (Vec::new(), keyenc::TypeBits::new());
        keyenc::encode_with_bits(back.as_value(), descending, &mut again, &mut again_bits);
        assert_eq!((again, again_bits), (key.clone(), bits), "{v:?}");
        assert_eq!(keyenc::skip(&key, descending).ok(), Some(key.len()));
    }
}

/// Makes values from a fuzzer's bytes, and from zeros after their end.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        let (b, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *b
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        [(); N].map(|()| self.byte())
    }

    fn text(&mut self) -> String {
        let n = self.byte() % 8;
        (0..n).map(|_| char::from(self.byte())).collect()
    }

    fn name(&mut self) -> String {
        self.text().replace('\0', "")
    }

    fn doc(&mut self, depth: usize) -> DocBuf {
        let mut d = DocBuf::new();
        if depth > 0 {
            for _ in 0..self.byte() % 4 {
                let name = self.name();
                d.append(&name, self.value(depth - 1));
            }
        }
        d
    }

    /// A decimal with a usual exponent.
    fn usual_decimal(&mut self) -> ValueBuf {
        let c = u128::from(u64::from_le_bytes(self.array()));
        let e = i32::from(self.byte() as i8);
        let d = Decimal::from_parts(e & 1 == 1, c, e / 4).unwrap_or(Decimal::ZERO);
        ValueBuf::new(Value::Decimal128(d.to_bid()))
    }

    /// A short decimal, or the double that is nearest to it.
    fn short_decimal(&mut self) -> ValueBuf {
        let c = u128::from(u16::from_le_bytes(self.array()));
        let e = -i32::from(self.byte() % 8);
        let d = Decimal::from_parts(false, c, e).unwrap_or(Decimal::ZERO);
        if self.byte() & 1 == 0 {
            ValueBuf::new(d.to_f64())
        } else {
            ValueBuf::new(Value::Decimal128(d.to_bid()))
        }
    }

    fn value(&mut self, depth: usize) -> ValueBuf {
        match self.byte() % 28 {
            0 => ValueBuf::new(Value::MinKey),
            1 => ValueBuf::new(Value::Undefined),
            2 => ValueBuf::new(Value::Null),
            3 => ValueBuf::new(f64::from_le_bytes(self.array())),
            4 => ValueBuf::new(i64::from_le_bytes(self.array())),
            5 => ValueBuf::new(i32::from_le_bytes(self.array())),
            6 => ValueBuf::new(i64::from_le_bytes(self.array()) as f64),
            7 => ValueBuf::new(i32::from(self.byte() as i8)),
            8 => ValueBuf::new(f64::from(self.byte() as i8) / 8.0),
            9 | 10 => ValueBuf::new(Value::Decimal128(self.array())),
            11 => self.usual_decimal(),
            12 => self.short_decimal(),
            13 => ValueBuf::new(self.text()),
            14 => ValueBuf::new(Value::Symbol(&self.text())),
            15 | 16 => ValueBuf::new(self.doc(depth)),
            17 | 18 => {
                let n = if depth > 0 { self.byte() % 4 } else { 0 };
                let a: crate::ArrayBuf = (0..n).map(|_| self.value(depth - 1)).collect();
                ValueBuf::new(a)
            }
            19 => {
                let n = usize::from(self.byte());
                let n = if n > 250 { n + 10 } else { n % 4 };
                let bytes = vec![self.byte(); n];
                let subtype = self.byte();
                ValueBuf::new(Value::Binary {
                    subtype,
                    bytes: &bytes,
                })
            }
            20 => ValueBuf::new(Value::ObjectId(self.array())),
            21 => ValueBuf::new(self.byte() & 1 == 0),
            22 => ValueBuf::new(Value::DateTime(i64::from_le_bytes(self.array()))),
            23 => ValueBuf::new(Value::Timestamp {
                t: u32::from_le_bytes(self.array()),
                i: u32::from_le_bytes(self.array()),
            }),
            24 => ValueBuf::new(Value::Regex {
                pattern: &self.name(),
                options: &self.name(),
            }),
            25 => ValueBuf::new(Value::DbPointer {
                namespace: &self.text(),
                id: self.array(),
            }),
            26 => {
                let code = self.text();
                if self.byte() & 1 == 0 {
                    ValueBuf::new(Value::Code(&code))
                } else {
                    let scope = self.doc(depth.saturating_sub(1));
                    ValueBuf::new(Value::CodeWithScope {
                        code: &code,
                        scope: scope.as_doc(),
                    })
                }
            }
            _ => ValueBuf::new(Value::MaxKey),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    fn replay(target: &str, body: fn(&[u8])) {
        let dir = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
        let mut n = 0;
        for file in std::fs::read_dir(&dir).unwrap() {
            body(&std::fs::read(file.unwrap().path()).unwrap());
            n += 1;
        }
        assert!(n > 10, "{dir} has {n} files");
    }

    #[test]
    fn corpora_pass() {
        replay("bson_column", super::bson_column);
        replay("bson_validate", super::bson_validate);
        replay("key_encoding", super::key_encoding);
    }
}
