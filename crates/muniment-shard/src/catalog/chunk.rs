//! The documents of `config.chunks`.

use super::fields::{Fields, uuid_value};
use crate::key::ShardKey;
use crate::stamp::{Timestamp, Version};
use crate::table::Record;
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, Type, Value, doc};

/// A chunk of a sharded collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The document's `_id`.
    pub id: [u8; 12],
    /// The UUID of the collection.
    pub uuid: [u8; 16],
    /// The lower bound, which is inside.
    pub min: DocBuf,
    /// The upper bound, which is outside.
    pub max: DocBuf,
    /// The name of the shard that owns the chunk.
    pub shard: String,
    /// The version.
    pub version: Version,
    /// The time since which the shard has it. Absent in documents that old versions have written.
    pub on_current_shard_since: Option<Timestamp>,
    /// The owners, the present one first.
    pub history: Vec<Owner>,
    /// True if the chunk was too large to be moved.
    pub jumbo: bool,
}

/// A shard that owns or owned a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The time from which on it owned the chunk.
    pub valid_after: Timestamp,
    /// The name of the shard.
    pub shard: String,
}

impl Chunk {
    /// Reads a document of `config.chunks`.
    ///
    /// # Errors
    /// 4 NoSuchKey and 14 TypeMismatch, which name the field.
    pub fn parse(doc: Doc<'_>) -> Result<Chunk> {
        let fields = Fields::new("config.chunks", doc);
        let version = fields.timestamp("lastmod")?;
        let history = fields.optional("history", Type::Array, |v| v.as_array())?;
        Ok(Chunk {
            id: fields.object_id("_id")?,
            uuid: fields.uuid("uuid")?,
            min: fields.doc("min")?.to_buf(),
            max: fields.doc("max")?.to_buf(),
            shard: fields.string("shard")?,
            version: Version::new(version.t, version.i),
            on_current_shard_since: fields.some_timestamp("onCurrentShardSince")?,
            history: history
                .into_iter()
                .flat_map(|list| list.values())
                .map(|v| Owner::parse(fields, v))
                .collect::<Result<_>>()?,
            jumbo: fields.flag("jumbo")?,
        })
    }

    /// The document.
    pub fn to_doc(&self) -> DocBuf {
        let mut out = doc! {
            "_id": Value::ObjectId(self.id),
            "uuid": uuid_value(&self.uuid),
            "min": &self.min,
            "max": &self.max,
            "shard": &self.shard,
            "lastmod": self.version.to_value(),
        };
        let since = self.on_current_shard_since.map(Timestamp::to_value);
        out.append_some("onCurrentShardSince", since);
        if self.jumbo {
            out.append("jumbo", true);
        }
        let history = self.history.iter().map(Owner::to_doc);
        out.append("history", history.collect::<ArrayBuf>());
        out
    }

    /// The chunk as a [`crate::RangeTable`] is built from it.
    ///
    /// # Errors
    /// Those of [`ShardKey::bound`].
    pub fn record(&self, key: &ShardKey) -> Result<Record> {
        Ok(Record {
            min: key.bound(self.min.as_doc())?,
            max: key.bound(self.max.as_doc())?,
            shard: self.shard.as_str().into(),
            version: self.version,
        })
    }

    /// The chunk of a record that its shard has since a time.
    ///
    /// # Errors
    /// Those of [`ShardKey::bound_doc`].
    pub fn of_record(
        record: &Record,
        key: &ShardKey,
        id: [u8; 12],
        uuid: [u8; 16],
        since: Timestamp,
    ) -> Result<Chunk> {
        Ok(Chunk {
            id,
            uuid,
            min: key.bound_doc(&record.min)?,
            max: key.bound_doc(&record.max)?,
            shard: record.shard.to_string(),
            version: record.version,
            on_current_shard_since: Some(since),
            history: vec![Owner {
                valid_after: since,
                shard: record.shard.to_string(),
            }],
            jumbo: false,
        })
    }
}

impl Owner {
    fn parse(chunk: Fields<'_>, v: Value<'_>) -> Result<Owner> {
        let fields = chunk.within(v.as_doc().unwrap_or(Doc::EMPTY));
        Ok(Owner {
            valid_after: fields.timestamp("validAfter")?,
            shard: fields.string("shard")?,
        })
    }

    fn to_doc(&self) -> DocBuf {
        doc! { "validAfter": self.valid_after.to_value(), "shard": &self.shard }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const AS_STORED: &str = r#"{
        "_id": {"$oid": "65f0a1b2c3d4e5f601020304"},
        "uuid": {"$binary": {"base64": "AQIDBAUGBwgJCgsMDQ4PEA==", "subType": "04"}},
        "min": {"a": {"$minKey": 1}},
        "max": {"a": 5},
        "shard": "shard01",
        "lastmod": {"$timestamp": {"t": 3, "i": 7}},
        "onCurrentShardSince": {"$timestamp": {"t": 1700000000, "i": 2}},
        "history": [{
            "validAfter": {"$timestamp": {"t": 1700000000, "i": 2}},
            "shard": "shard01"
        }]
    }"#;

    #[test]
    fn there_and_back() {
        let stored = DocBuf::from_json(AS_STORED).unwrap();
        let mut chunk = Chunk::parse(stored.as_doc()).unwrap();
        assert_eq!(chunk.version, Version::new(3, 7));
        assert_eq!(chunk.to_doc(), stored);
        let key = ShardKey::parse(doc! { "a": 1 }.as_doc()).unwrap();
        let record = chunk.record(&key).unwrap();
        let since = chunk.on_current_shard_since.unwrap();
        let again = Chunk::of_record(&record, &key, chunk.id, chunk.uuid, since).unwrap();
        assert_eq!(again, chunk);
        chunk.jumbo = true;
        assert_eq!(Chunk::parse(chunk.to_doc().as_doc()).unwrap(), chunk);
    }

    #[test]
    fn errors_name_the_field() {
        let stored = DocBuf::from_json(AS_STORED).unwrap();
        for name in ["_id", "uuid", "min", "max", "shard", "lastmod"] {
            let (mut without, mut other) = (DocBuf::new(), DocBuf::new());
            for e in stored.as_doc() {
                if e.name() == name {
                    other.append(name, 1);
                } else {
                    without.append_elem(e);
                    other.append_elem(e);
                }
            }
            for (doc, code) in [(without, 4), (other, 14)] {
                let e = Chunk::parse(doc.as_doc()).unwrap_err();
                assert_eq!(e.code().0, code);
                let named = e.message().contains(&format!("field {name}"));
                assert!(named && e.message().contains("config.chunks"), "{e}");
            }
        }
        let owner = Owner::parse(Fields::new("config.chunks", Doc::EMPTY), Value::Null);
        assert!(owner.unwrap_err().message().contains("validAfter"));
    }
}
