//! Metadata that travels with a document through a pipeline: information about it that a query has found, and
//! that `{$meta: …}` reads.
//!
//! In a stream, a document may be followed, in the same bytes, by a second document whose fields are the
//! metadata by their names. Code that moves, sorts or spills a document's bytes thus keeps the metadata
//! without knowing about them, and a document without metadata costs nothing. Code that makes one document
//! from another calls [`carry`]. Code that sends documents to a client, or puts them into other documents,
//! uses [`muniment_value::Doc::as_bytes`], which ends before the metadata.
//!
//! Invariant: only metadata that [`Metadata::asked`] names are attached.

use bytes::Bytes;
use muniment_value::{Doc, DocBuf, Error, Result, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A kind of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Meta {
    /// The distance that `$near` or `$geoNear` measured, in the unit of its query.
    GeoNearDistance,
    /// The point to which that distance was measured.
    GeoNearPoint,
    /// The index key by which the document was found.
    IndexKey,
    /// The random number by which `$sample` selected the document.
    RandVal,
    /// The record's key.
    RecordId,
    /// The score of a `$rankFusion`.
    Score,
    /// The details of how that score was computed.
    ScoreDetails,
    /// The values that the last sort compared, as an array.
    SortKey,
    /// The score of a `$text`.
    TextScore,
    /// Metadata of Atlas Search and of a cluster's internals, which no document here has.
    SearchHighlights,
    #[allow(missing_docs)]
    SearchScore,
    #[allow(missing_docs)]
    SearchScoreDetails,
    #[allow(missing_docs)]
    SearchSequenceToken,
    #[allow(missing_docs)]
    Stream,
    #[allow(missing_docs)]
    TimeseriesBucketMaxTime,
    #[allow(missing_docs)]
    TimeseriesBucketMinTime,
    #[allow(missing_docs)]
    VectorSearchScore,
    /// The bytes by which the router of a cluster merges the sorted streams of its shards. No query can name it:
    /// see [`Metadata::note`].
    MergeKey,
}

/// Every kind with its name in `{$meta: …}`. The third part is its name in the error of a query that asks for
/// the kind without providing it; `None` if that is not an error.
const KINDS: [(Meta, &str, Option<&str>); 18] = {
    use Meta::*;
    [
        (
            GeoNearDistance,
            "geoNearDistance",
            Some("$geoNear distance"),
        ),
        (GeoNearPoint, "geoNearPoint", Some("$geoNear point")),
        (IndexKey, "indexKey", None),
        (MergeKey, "mergeKey", None),
        (RandVal, "randVal", None),
        (RecordId, "recordId", None),
        (Score, "score", Some("score")),
        (ScoreDetails, "scoreDetails", Some("scoreDetails")),
        (SearchHighlights, "searchHighlights", None),
        (SearchScore, "searchScore", None),
        (SearchScoreDetails, "searchScoreDetails", None),
        (SearchSequenceToken, "searchSequenceToken", None),
        (SortKey, "sortKey", None),
        (Stream, "stream", None),
        (TextScore, "textScore", Some("text score")),
        (
            TimeseriesBucketMaxTime,
            "timeseriesBucketMaxTime",
            Some("timeseries bucket max time"),
        ),
        (
            TimeseriesBucketMinTime,
            "timeseriesBucketMinTime",
            Some("timeseries bucket min time"),
        ),
        (VectorSearchScore, "vectorSearchScore", None),
    ]
};

impl Meta {
    /// The kind that a query can ask for by this name.
    pub fn parse(name: &str) -> Option<Meta> {
        let kind = KINDS.iter().find(|k| k.1 == name).map(|k| k.0);
        kind.filter(|m| *m != Meta::MergeKey)
    }

    /// The name in `{$meta: …}`.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|k| k.0 == self).map_or("", |k| k.1)
    }

    /// The kind's name in the error of a query that does not provide it; `None` if it may be absent.
    fn demanded(self) -> Option<&'static str> {
        KINDS.iter().find(|k| k.0 == self).and_then(|k| k.2)
    }

    /// A document's metadata of this kind.
    pub fn of(self, doc: Doc<'_>) -> Option<Value<'_>> {
        match doc.behind() {
            [] => None,
            meta => Doc::new(meta).get(self.name()),
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaSet(u32);

impl MetaSet {
    /// No kind.
    pub const NONE: MetaSet = MetaSet(0);

    /// This set with one more kind.
    #[must_use]
    pub const fn with(self, m: Meta) -> MetaSet {
        MetaSet(self.0 | 1 << m as u8)
    }

    /// The kinds of both sets.
    #[must_use]
    pub const fn and(self, o: MetaSet) -> MetaSet {
        MetaSet(self.0 | o.0)
    }

    /// The kinds that are in both sets.
    #[must_use]
    pub(crate) const fn both(self, o: MetaSet) -> MetaSet {
        MetaSet(self.0 & o.0)
    }

    /// The kinds that a query may ask for where these kinds are available.
    pub(crate) fn that_may_be_asked(self) -> MetaSet {
        let free = KINDS.iter().filter(|k| k.2.is_none());
        free.fold(self, |all, k| all.with(k.0))
    }

    /// The kinds in the set.
    pub fn kinds(self) -> impl Iterator<Item = Meta> {
        KINDS.iter().map(|k| k.0).filter(move |m| self.has(*m))
    }

    /// Whether the kind is in the set.
    #[inline]
    pub const fn has(self, m: Meta) -> bool {
        self.0 & 1 << m as u8 != 0
    }

    /// True for the empty set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The facts about metadata that are known while a query is parsed.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// The kinds that the earlier part of the query provides.
    pub available: MetaSet,
    /// The kinds that any part of the query has asked for. All contexts that stem from one share them.
    asked: Arc<AtomicU32>,
}

impl Metadata {
    /// The facts about a query of its own that begins where these kinds are available.
    pub(crate) fn beginning_with(available: MetaSet) -> Metadata {
        Metadata {
            available,
            ..Metadata::default()
        }
    }

    /// Records that something reads this kind.
    ///
    /// 40218 if the query does not provide it and MongoDB demands that it does.
    /// 40218 when the query does not give it and MongoDB demands that it does.
    pub fn ask(&self, m: Meta) -> Result<()> {
        if let (Some(name), false) = (m.demanded(), self.available.has(m)) {
            return Err(Error::location(
                40218,
                format!("query requires {name} metadata, but it is not available"),
            ));
        }
        self.note(MetaSet::NONE.with(m));
        Ok(())
    }

    /// Records that these kinds are read.
    pub fn note(&self, kinds: MetaSet) {
        self.asked.fetch_or(kinds.0, Relaxed);
    }

    /// The kinds that have been asked for so far, which are to be attached.
    pub fn asked(&self) -> MetaSet {
        MetaSet(self.asked.load(Relaxed))
    }
}

/// The document with these metadata added to those that it has. A kind that it already has is replaced. This
/// copies the document once.
pub fn attach(doc: Doc<'_>, kinds: &[(Meta, Value<'_>)]) -> Bytes {
    let mut meta = DocBuf::new();
    if !doc.behind().is_empty() {
        for e in Doc::new(doc.behind()) {
            if !kinds.iter().any(|(m, _)| m.name() == e.name()) {
                meta.append_elem(e);
            }
        }
    }
    for (m, v) in kinds {
        meta.append(m.name(), *v);
    }
    [doc.as_bytes(), meta.as_bytes()].concat().into()
}

/// The bytes of a key as metadata.
pub fn binary(bytes: &[u8]) -> Value<'_> {
    Value::Binary { subtype: 0, bytes }
}

/// Appends to the document in `out` the metadata of the document from which it was made.
#[inline]
pub fn carry(from: Doc<'_>, out: &mut Vec<u8>) {
    let meta = from.behind();
    if !meta.is_empty() {
        out.extend_from_slice(meta);
    }
}

/// The document without its metadata.
#[inline]
pub fn without(doc: Bytes) -> Bytes {
    let len = Doc::new(&doc).byte_len();
    if len < doc.len() {
        return doc.slice(..len);
    }
    doc
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use muniment_value::doc;

    #[test]
    fn metadata_stand_behind_the_document() {
        let d = doc! { "a": 1 };
        let with = attach(d.as_doc(), &[(Meta::TextScore, Value::Double(1.5))]);
        let seen = Doc::new(&with);
        assert_eq!(seen.to_buf(), d);
        assert_eq!(seen.count(), 1);
        let score = |b: &Bytes| {
            Meta::TextScore.of(Doc::new(b)).and_then(|v| match v {
                Value::Double(n) => Some(n),
                _ => None,
            })
        };
        assert_eq!(score(&with), Some(1.5));
        let again = attach(
            seen,
            &[
                (Meta::TextScore, Value::Double(2.5)),
                (Meta::RandVal, Value::Int32(3)),
            ],
        );
        assert_eq!(score(&again), Some(2.5));
        assert!(Meta::RandVal.of(Doc::new(&again)).is_some());
        assert!(Meta::RandVal.of(Doc::new(&with)).is_none());
        assert_eq!(without(again), Bytes::from(d.as_bytes().to_vec()));
        assert!(Meta::TextScore.of(d.as_doc()).is_none());
    }

    #[test]
    fn demanded_metadata_must_be_available() {
        let mut m = Metadata::default();
        assert_eq!(m.ask(Meta::TextScore).unwrap_err().code().0, 40218);
        assert!(m.asked().is_empty());
        m.available = MetaSet::NONE.with(Meta::TextScore);
        m.clone().ask(Meta::TextScore).unwrap();
        m.ask(Meta::RandVal).unwrap();
        assert_eq!(
            m.asked(),
            MetaSet::NONE.with(Meta::TextScore).with(Meta::RandVal)
        );
    }

    #[test]
    fn names_are_those_of_their_kinds() {
        assert!(KINDS.is_sorted_by(|a, b| a.1 < b.1));
        for (m, name, _) in KINDS {
            assert_eq!(Meta::parse(name), Some(m).filter(|m| *m != Meta::MergeKey));
            assert_eq!(m.name(), name);
        }
        assert_eq!(Meta::parse("nope"), None);
    }
}
