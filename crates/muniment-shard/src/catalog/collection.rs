//! The documents of `config.collections`.

use super::fields::{Fields, uuid_value};
use crate::key::ShardKey;
use crate::table::Generation;
use muniment_value::{Doc, DocBuf, Result, Type, Value, doc};

/// A sharded collection, or one that is tracked although it is not sharded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collection {
    /// The full name, which is the document's `_id`.
    pub ns: String,
    /// An id of the generation, which older tools ask for.
    pub epoch: [u8; 12],
    /// The time of the last change of the document, in milliseconds since 1970.
    pub last_changed: i64,
    /// The UUID of the collection and the time at which it was sharded.
    pub generation: Generation,
    /// The pattern of the shard key.
    pub key: DocBuf,
    /// True if values of the shard key are unique.
    pub unique: bool,
    /// True if the balancer leaves the collection alone.
    pub no_balance: bool,
    /// The collation of the collection, unless it is the simple one.
    pub default_collation: Option<DocBuf>,
    /// The size of the ranges that the balancer moves, if it is the collection's own.
    pub max_chunk_size: Option<i64>,
    /// False while a command forbids moves.
    pub permit_migrations: bool,
    /// True for a collection that lives on one shard and is not sharded.
    pub unsplittable: bool,
    /// The other fields, in their order.
    pub rest: DocBuf,
}

const KNOWN: &[&str] = &[
    "_id",
    "lastmodEpoch",
    "lastmod",
    "timestamp",
    "uuid",
    "key",
    "unique",
    "noBalance",
    "defaultCollation",
    "maxChunkSizeBytes",
    "permitMigrations",
    "unsplittable",
];

impl Collection {
    /// Reads a document of `config.collections`.
    ///
    /// # Errors
    /// 4 NoSuchKey and 14 TypeMismatch, which name the field.
    pub fn parse(doc: Doc<'_>) -> Result<Collection> {
        let fields = Fields::new("config.collections", doc);
        let date = |v: Value<'_>| match v {
            Value::DateTime(ms) => Some(ms),
            _ => None,
        };
        let collation = |v: Value<'_>| v.as_doc().map(|d| d.to_buf());
        let mut rest = DocBuf::new();
        for e in fields.others(KNOWN) {
            rest.append_elem(e);
        }
        Ok(Collection {
            ns: fields.string("_id")?,
            epoch: fields.object_id("lastmodEpoch")?,
            last_changed: fields.required("lastmod", Type::DateTime, date)?,
            generation: Generation {
                uuid: fields.uuid("uuid")?,
                timestamp: fields.timestamp("timestamp")?,
            },
            key: fields.doc("key")?.to_buf(),
            unique: fields.flag("unique")?,
            no_balance: fields.flag("noBalance")?,
            default_collation: fields.optional("defaultCollation", Type::Document, collation)?,
            max_chunk_size: fields.some_long("maxChunkSizeBytes")?,
            permit_migrations: fields.some_flag("permitMigrations")?.unwrap_or(true),
            unsplittable: fields.flag("unsplittable")?,
            rest,
        })
    }

    /// The document.
    pub fn to_doc(&self) -> DocBuf {
        let mut out = doc! {
            "_id": &self.ns,
            "lastmodEpoch": Value::ObjectId(self.epoch),
            "lastmod": Value::DateTime(self.last_changed),
            "timestamp": self.generation.timestamp.to_value(),
            "uuid": uuid_value(&self.generation.uuid),
            "key": &self.key,
            "unique": self.unique,
        };
        out.append_some("defaultCollation", self.default_collation.as_ref());
        out.append("noBalance", self.no_balance);
        out.append_some("maxChunkSizeBytes", self.max_chunk_size);
        if !self.permit_migrations {
            out.append("permitMigrations", false);
        }
        if self.unsplittable {
            out.append("unsplittable", true);
        }
        out.append_all(self.rest.as_doc());
        out
    }

    /// The shard key.
    ///
    /// # Errors
    /// Those of [`ShardKey::parse`].
    pub fn shard_key(&self) -> Result<ShardKey> {
        ShardKey::parse(self.key.as_doc())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::stamp::Timestamp;

    #[test]
    fn there_and_back() {
        let stored = doc! {
            "_id": "db.c",
            "lastmodEpoch": Value::ObjectId([3; 12]),
            "lastmod": Value::DateTime(1_700_000_000_000),
            "timestamp": Timestamp::new(9, 1).to_value(),
            "uuid": uuid_value(&[5; 16]),
            "key": doc! { "a": "hashed" },
            "unique": false,
            "noBalance": true,
            "permitMigrations": false,
            "newerField": 5,
        };
        let c = Collection::parse(stored.as_doc()).unwrap();
        assert!(c.no_balance && !c.permit_migrations && !c.unsplittable);
        assert_eq!(c.rest, doc! { "newerField": 5 });
        assert_eq!(c.to_doc(), stored);
        assert!(c.shard_key().unwrap().begins_hashed());
    }

    #[test]
    fn fields_that_may_be_absent() {
        let least = doc! {
            "_id": "db.c",
            "lastmodEpoch": Value::ObjectId([3; 12]),
            "lastmod": Value::DateTime(1),
            "timestamp": Timestamp::new(9, 1).to_value(),
            "uuid": uuid_value(&[5; 16]),
            "key": doc! { "a": 1 },
        };
        let c = Collection::parse(least.as_doc()).unwrap();
        assert!(c.permit_migrations && !c.unique && !c.no_balance);
        let e = Collection::parse(doc! { "_id": "db.c" }.as_doc()).unwrap_err();
        assert!(e.message().contains("lastmodEpoch"), "{e}");
    }
}
