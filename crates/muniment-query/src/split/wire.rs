//! The form in which documents of a shard come to the router. At their end they may have two more fields:
//! `$metadata`, a document of those of their metadata that the router's part of the query reads, and after it
//! `$sortKey`, the bytes by which the streams of the shards are merged.

use crate::bytes::{close, open};
use crate::meta::{Meta, MetaSet};
use bytes::Bytes;
use muniment_value::{Doc, DocBuf, Elem, Error, Result, Value};

const METADATA: &str = "$metadata";
const SORT_KEY: &str = "$sortKey";

/// Appends those of the document's metadata that are wanted.
pub(crate) fn append_metadata(doc: Doc<'_>, wanted: MetaSet, out: &mut DocBuf) {
    let mut all = DocBuf::new();
    for m in wanted.kinds() {
        all.append_some(m.name(), m.of(doc));
    }
    out.append(METADATA, all);
}

/// Appends the key by which the document is merged.
///
/// # Errors
/// An internal error if the document has none.
pub fn append_key(doc: Doc<'_>, out: &mut DocBuf) -> Result<()> {
    let key = Meta::MergeKey
        .of(doc)
        .ok_or_else(|| Error::internal("a sorted document has no sort key"))?;
    out.append(SORT_KEY, key);
    Ok(())
}

/// What documents have at their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub sorted: bool,
    pub metadata: bool,
}

/// Takes the fields at the end of a document away, and returns it with its metadata, and its sort key.
///
/// # Errors
/// An internal error for a document without these fields.
pub(crate) fn take(doc: Bytes, tail: Tail) -> Result<(Bytes, Bytes)> {
    if !tail.sorted && !tail.metadata {
        return Ok((doc, Bytes::new()));
    }
    let (mut before, mut last) = (None, None);
    let mut elems = Doc::new(&doc).iter();
    let mut at = elems.offset();
    while let Some(e) = elems.next() {
        before = last;
        last = Some((at, e));
        at = elems.offset();
    }
    let (key, metadata) = match (tail.sorted, tail.metadata) {
        (true, true) => (last, before),
        (true, false) => (last, None),
        _ => (None, last),
    };
    let mut end = doc.len();
    let mut sort_key = Bytes::new();
    if tail.sorted {
        let Some((at, Value::Binary { bytes, .. })) = named(key, SORT_KEY) else {
            return Err(lacks(SORT_KEY));
        };
        sort_key = doc.slice_ref(bytes);
        end = at;
    }
    let mut behind: &[u8] = &[];
    if tail.metadata {
        let Some((at, Value::Document(d))) = named(metadata, METADATA) else {
            return Err(lacks(METADATA));
        };
        if !d.is_empty() {
            behind = d.as_bytes();
        }
        end = at;
    }
    let mut out = Vec::with_capacity(end + behind.len() + 1);
    let start = open(&mut out);
    out.extend_from_slice(doc.get(4..end).unwrap_or_default());
    close(&mut out, start);
    out.extend_from_slice(behind);
    Ok((out.into(), sort_key))
}

/// The value of a field with this name, and where the field begins.
fn named<'d>(found: Option<(usize, Elem<'d>)>, name: &str) -> Option<(usize, Value<'d>)> {
    let (at, e) = found?;
    e.is_named(name).then(|| (at, e.value()))
}

fn lacks(field: &str) -> Error {
    Error::internal(format!("a shard's document does not end with {field}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::meta::attach;
    use crate::meta::binary;
    use muniment_value::doc;

    #[test]
    fn what_is_appended_is_taken_away() {
        let d = doc! { "a": 1, "$sortKey": "own", "$metadata": doc! { "x": 1 } };
        let key = (Meta::MergeKey, binary(b"key"));
        let score = (Meta::TextScore, Value::Double(1.5));
        let with = attach(d.as_doc(), &[key, score]);
        let with = Doc::new(&with);
        for (sorted, metadata) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut sent = with.to_buf();
            if metadata {
                let wanted = MetaSet::NONE.with(Meta::TextScore).with(Meta::RandVal);
                append_metadata(with, wanted, &mut sent);
            }
            if sorted {
                append_key(with, &mut sent).unwrap();
            }
            muniment_value::validate(sent.as_bytes()).unwrap();
            let tail = Tail { sorted, metadata };
            let (got, key) = take(sent.into_bytes().into(), tail).unwrap();
            assert_eq!(Doc::new(&got).to_buf(), d, "{tail:?}");
            let score = Meta::TextScore.of(Doc::new(&got)).map(|v| v.to_display());
            assert_eq!(score.is_some(), metadata);
            assert!(Meta::MergeKey.of(Doc::new(&got)).is_none());
            assert_eq!(key.as_ref(), if sorted { &b"key"[..] } else { b"" });
        }
    }

    #[test]
    fn a_document_without_its_fields_is_refused() {
        let tail = |sorted, metadata| Tail { sorted, metadata };
        for (d, tail) in [
            (doc! {}, tail(true, false)),
            (doc! { "$sortKey": 1 }, tail(true, false)),
            (doc! { "$sortKey": binary(b""), "a": 1 }, tail(true, false)),
            (doc! { "a": 1 }, tail(false, true)),
            (doc! { "a": 1, "$sortKey": binary(b"") }, tail(true, true)),
        ] {
            assert!(take(d.into_bytes().into(), tail).is_err(), "{tail:?}");
        }
        assert!(append_key(Doc::EMPTY, &mut DocBuf::new()).is_err());
    }
}
