//! What the catalog keeps of a collection and of an index.

use muniment_value::{DocBuf, Result};

/// A collection's options as `create` gave them and `listCollections` returns them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectionOptions {
    /// Capped: the size limit in bytes.
    pub capped_size: Option<u64>,
    /// Capped: the limit on documents.
    pub capped_max: Option<u64>,
    /// The options document as `listCollections` shows it (with `capped`, `size`, `max`,
    /// `validator`, …).
    pub document: DocBuf,
}

/// An index as `createIndexes` describes it, parsed and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexSpec {
    /// The name, unique within the collection.
    pub name: String,
    /// The key pattern, e.g. `{a: 1, "b.c": -1}`.
    pub key: DocBuf,
    /// No two documents may have the same key.
    pub unique: bool,
    /// Documents without any of the fields are left out.
    pub sparse: bool,
    /// Hidden from the planner.
    pub hidden: bool,
    /// Only documents that match are indexed.
    pub partial_filter: Option<DocBuf>,
    /// TTL: seconds after the indexed date.
    pub expire_after_seconds: Option<i64>,
    /// The whole specification as `listIndexes` returns it: `{v: 2, key, name, …}`.
    pub document: DocBuf,
}

impl IndexSpec {
    /// Parses and checks one element of `createIndexes.indexes`.
    ///
    /// # Errors
    /// 67 CannotCreateIndex, 197 InvalidIndexSpecificationOption, 9 FailedToParse,
    /// 14 TypeMismatch with MongoDB's messages; an option that is not supported is named.
    pub fn parse(spec: muniment_value::Doc<'_>) -> Result<IndexSpec> {
        let _ = spec;
        todo!()
    }

    /// The `_id_` index.
    pub fn id_index() -> IndexSpec {
        todo!()
    }
}
