//! Shard keys: the pattern, and the keys that documents and bounds have by it.
//!
//! A key is the encodings of its fields one after another, ascending, so that comparing keys is comparing
//! bytes. A missing field counts as null. A hashed field has the hash of its value as an int64.
//!
//! Invariant: stored bounds of chunks depend on these bytes; they never change.

mod bound;
mod equality;
mod extract;
mod pattern;

use muniment_value::path::Path;
use muniment_value::{Doc, DocBuf};

/// A collection's shard key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardKey {
    fields: Vec<KeyField>,
    pattern: DocBuf,
}

/// A field of a shard key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyField {
    /// The path of the values.
    pub path: Path,
    /// True if the key has the hash in the place of the value.
    pub hashed: bool,
}

impl ShardKey {
    /// The fields in their order; there is at least one.
    pub fn fields(&self) -> &[KeyField] {
        &self.fields
    }

    /// The pattern as it was written.
    pub fn pattern(&self) -> Doc<'_> {
        self.pattern.as_doc()
    }

    /// True if a field is hashed.
    pub fn is_hashed(&self) -> bool {
        self.fields.iter().any(|f| f.hashed)
    }

    /// True if the first field is hashed, so that hashes divide the collection.
    pub fn begins_hashed(&self) -> bool {
        self.fields.first().is_some_and(|f| f.hashed)
    }

    /// True if this key has all fields of another one first, and others after them.
    pub fn extends(&self, shorter: &ShardKey) -> bool {
        self.fields.len() > shorter.fields.len() && self.fields.starts_with(&shorter.fields)
    }

    /// True if the shard key's fields are the first fields of an index, as every unique index of a sharded
    /// collection needs. Directions do not matter, since uniqueness has none; a hashed field never fits.
    pub fn begins_index(&self, index: Doc<'_>) -> bool {
        let mut names = index.iter();
        self.fields.iter().all(|f| {
            names
                .next()
                .is_some_and(|e| !f.hashed && e.is_named(f.path.as_str()) && e.value().is_number())
        })
    }
}
