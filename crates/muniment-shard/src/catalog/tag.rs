//! The documents of `config.tags`: the ranges of zones.

use super::fields::Fields;
use crate::key::ShardKey;
use crate::zones::ZoneRange;
use muniment_value::{Doc, DocBuf, Result, Type, Value, ValueBuf, doc};

/// A range of a collection's keys that belongs to a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The document's `_id`: an ObjectId, or in documents of old versions `{ns, min}`.
    pub id: ValueBuf,
    /// The full name of the collection.
    pub ns: String,
    /// The lower bound, which is inside.
    pub min: DocBuf,
    /// The upper bound, which is outside.
    pub max: DocBuf,
    /// The name of the zone.
    pub zone: String,
}

impl Tag {
    /// Reads a document of `config.tags`.
    ///
    /// # Errors
    /// 4 NoSuchKey and 14 TypeMismatch, which name the field.
    pub fn parse(doc: Doc<'_>) -> Result<Tag> {
        let fields = Fields::new("config.tags", doc);
        let id = |v: Value<'_>| Some(ValueBuf::new(v));
        Ok(Tag {
            id: fields.required("_id", Type::ObjectId, id)?,
            ns: fields.string("ns")?,
            min: fields.doc("min")?.to_buf(),
            max: fields.doc("max")?.to_buf(),
            zone: fields.string("tag")?,
        })
    }

    /// The document.
    pub fn to_doc(&self) -> DocBuf {
        doc! {
            "_id": &self.id,
            "ns": &self.ns,
            "min": &self.min,
            "max": &self.max,
            "tag": &self.zone,
        }
    }

    /// The range in bytes. The bounds may have a part of the key's fields, from the first one on.
    ///
    /// # Errors
    /// Those of [`ShardKey::extended_bound`].
    pub fn range(&self, key: &ShardKey) -> Result<ZoneRange> {
        Ok(ZoneRange {
            min: key.extended_bound(self.min.as_doc())?,
            max: key.extended_bound(self.max.as_doc())?,
            zone: self.zone.as_str().into(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn there_and_back() {
        let stored = doc! {
            "_id": Value::ObjectId([2; 12]),
            "ns": "db.c",
            "min": doc! { "a": 1 },
            "max": doc! { "a": 5 },
            "tag": "EU",
        };
        let tag = Tag::parse(stored.as_doc()).unwrap();
        assert_eq!(tag.to_doc(), stored);
        let key = ShardKey::parse(doc! { "a": 1, "b": 1 }.as_doc()).unwrap();
        let range = tag.range(&key).unwrap();
        let min = doc! { "a": 1, "b": Value::MinKey };
        assert_eq!(key.bound_doc(&range.min).unwrap(), min);
    }
}
