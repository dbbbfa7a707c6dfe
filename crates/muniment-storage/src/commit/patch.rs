//! The difference of two versions of a document, for the log: what an update of one field of a
//! large document costs there is that field.
//!
//! Format: `varint new_len`, then hunks until the end: `varint copy_from`, `varint copy_len`,
//! `varint literal_len`, the literal's bytes. The new version is the hunks' copies (of the old
//! version) and literals one behind the other. The first four bytes of a document, its length,
//! are not in it: they follow from `new_len`.

use crate::keys::{get_varint, put_varint};
use muniment_value::Doc;

/// The length field of a document.
const HEAD: usize = 4;
/// A run of equal bytes is worth a hunk of its own from here on.
const WORTH: usize = 16;

/// Appends the difference that leads from `old` to `new`. It may be longer than `new`.
pub(crate) fn encode(old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    put_varint(new.len(), out);
    let mut writer = Writer {
        old,
        new,
        out,
        copy: (HEAD, 0),
        literal: HEAD..HEAD,
    };
    let prefix = common(old.get(HEAD..), new.get(HEAD..));
    writer.copy(HEAD, HEAD, prefix);
    let at = HEAD + prefix;
    let longest = old.len().min(new.len()).saturating_sub(at);
    let suffix = common_end(old, new).min(longest);
    let (old_end, new_end) = (old.len() - suffix, new.len() - suffix);
    // What lies between may be several changed fields with equal ones between them: align by the
    // names of the top level.
    if new_end.saturating_sub(at) > 4 * WORTH && old_end.saturating_sub(at) > 4 * WORTH {
        writer.by_fields(at, old_end, new_end);
    }
    writer.copy(old_end, new_end, suffix);
    writer.finish();
}

/// Bytes that are compared at once.
const STEP: usize = 32;

/// How many bytes both begin with.
fn common(a: Option<&[u8]>, b: Option<&[u8]>) -> usize {
    let (a, b) = (a.unwrap_or_default(), b.unwrap_or_default());
    let steps = a.chunks_exact(STEP).zip(b.chunks_exact(STEP));
    let at = STEP * steps.take_while(|(a, b)| a == b).count();
    let rest = a.iter().skip(at).zip(b.iter().skip(at));
    at + rest.take_while(|(a, b)| a == b).count()
}

/// How many bytes both end with.
fn common_end(a: &[u8], b: &[u8]) -> usize {
    let steps = a.rchunks_exact(STEP).zip(b.rchunks_exact(STEP));
    let at = STEP * steps.take_while(|(a, b)| a == b).count();
    let rest = a.iter().rev().skip(at).zip(b.iter().rev().skip(at));
    at + rest.take_while(|(a, b)| a == b).count()
}

struct Writer<'a> {
    old: &'a [u8],
    new: &'a [u8],
    out: &'a mut Vec<u8>,
    /// The copy that is not written yet: from, length.
    copy: (usize, usize),
    /// And the literal behind it, as a range of `new`.
    literal: std::ops::Range<usize>,
}

impl Writer<'_> {
    /// `new[at..at + len]` equals `old[from..from + len]`, and everything of `new` before it is
    /// either copied already or becomes a literal.
    fn copy(&mut self, from: usize, at: usize, len: usize) {
        self.literal.end = at;
        if self.literal.is_empty() && self.copy.0 + self.copy.1 == from {
            self.copy.1 += len;
        } else {
            self.flush();
            self.copy = (from, len);
        }
        self.literal = at + len..at + len;
    }

    fn flush(&mut self) {
        if self.copy.1 > 0 || !self.literal.is_empty() {
            put_varint(self.copy.0, self.out);
            put_varint(self.copy.1, self.out);
            put_varint(self.literal.len(), self.out);
            let literal = self.new.get(self.literal.clone()).unwrap_or_default();
            self.out.extend_from_slice(literal);
        }
        self.copy = (0, 0);
    }

    fn finish(&mut self) {
        self.literal.end = self.new.len();
        self.flush();
    }

    /// Copies the top level's fields that are the same in both, within the given limits.
    fn by_fields(&mut self, at: usize, old_end: usize, new_end: usize) {
        let mut old = Doc::new(self.old).iter().map(|e| e.as_bytes()).peekable();
        let start = |base: &[u8], part: &[u8]| part.as_ptr() as usize - base.as_ptr() as usize;
        for e in Doc::new(self.new).iter() {
            let bytes = e.as_bytes();
            let place = start(self.new, bytes);
            if place < at || bytes.len() < WORTH || place + bytes.len() > new_end {
                continue;
            }
            // Fields keep their order in nearly every update: look ahead only.
            let mut ahead = old.clone();
            while let Some(o) = ahead.next() {
                if o == bytes {
                    let from = start(self.old, o);
                    if from + o.len() <= old_end {
                        self.copy(from, place, bytes.len());
                        old = ahead;
                    }
                    break;
                }
            }
        }
    }
}

/// The new version; `None` if `patch` does not fit `old`, which only damage can bring about.
pub(crate) fn apply(old: &[u8], patch: &[u8]) -> Option<Vec<u8>> {
    let (len, mut at) = get_varint(patch)?;
    if len < HEAD || len > old.len() + patch.len() + HEAD {
        // A document longer than both together can only come from repeated copies.
        if len > 64 << 20 {
            return None;
        }
    }
    let mut new = Vec::with_capacity(len.min(64 << 20));
    new.extend_from_slice(&u32::try_from(len).ok()?.to_le_bytes());
    let number = |at: &mut usize| -> Option<usize> {
        let (n, took) = get_varint(patch.get(*at..)?)?;
        *at += took;
        Some(n)
    };
    while at < patch.len() {
        let from = number(&mut at)?;
        let copied = number(&mut at)?;
        new.extend_from_slice(old.get(from..from.checked_add(copied)?)?);
        let literal = number(&mut at)?;
        new.extend_from_slice(patch.get(at..at.checked_add(literal)?)?);
        at += literal;
        if new.len() > len {
            return None;
        }
    }
    (new.len() == len).then_some(new)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{DocBuf, doc};

    fn check(old: &DocBuf, new: &DocBuf) -> usize {
        let mut patch = Vec::new();
        encode(old.as_bytes(), new.as_bytes(), &mut patch);
        let got = apply(old.as_bytes(), &patch).unwrap();
        assert_eq!(got, new.as_bytes(), "{old:?} {new:?}");
        patch.len()
    }

    #[test]
    fn one_field_of_many_costs_that_field() {
        let long = "x".repeat(200);
        let make = |n: i32, tail: &str| {
            let mut d = doc! { "_id": 1, "n": n };
            for i in 0..8 {
                d.append(&format!("f{i}"), format!("{i}{long}"));
            }
            d.append("tail", tail);
            d
        };
        let old = make(1, "a");
        assert!(check(&old, &make(2, "a")) < 20);
        assert!(check(&old, &make(1, "aa")) < 20);
        // Two fields at both ends: what lies between is copied.
        assert!(check(&old, &make(7, "another")) < 80);
        assert!(check(&old, &old) < 12);
        let mut cut = make(1, "a");
        cut.append("more", "y");
        assert!(check(&old, &cut) < 30);
        assert!(check(&cut, &old) < 20);
    }

    #[test]
    fn any_two_documents() {
        let mut docs = vec![doc! {}, doc! { "_id": 1 }, doc! { "a": "same".repeat(30) }];
        for i in 0..40_usize {
            let mut d = DocBuf::new();
            for f in 0..(i * 7) % 9 {
                let value = "v".repeat((i * f * 13) % 97);
                d.append(&format!("k{}", (f * i) % 5), value);
            }
            docs.push(d);
        }
        for a in &docs {
            for b in &docs {
                check(a, b);
            }
        }
    }

    #[test]
    fn damage_is_noticed() {
        let old = doc! { "a": "x".repeat(100), "b": 1 };
        let new = doc! { "a": "x".repeat(100), "b": 2, "c": "z" };
        let mut patch = Vec::new();
        encode(old.as_bytes(), new.as_bytes(), &mut patch);
        for i in 0..patch.len() {
            for bit in 0..8 {
                let mut bad = patch.clone();
                bad[i] ^= 1 << bit;
                // Whatever comes out has the length it says, or nothing comes out.
                if let Some(d) = apply(old.as_bytes(), &bad) {
                    assert_eq!(
                        d.len(),
                        u32::from_le_bytes(d[..4].try_into().unwrap()) as usize
                    );
                }
            }
            assert!(apply(old.as_bytes(), &patch[..i]).is_none_or(|d| d.len() >= 4));
        }
    }
}
