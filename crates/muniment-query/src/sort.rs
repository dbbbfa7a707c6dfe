//! Sort specifications and sort keys.

use muniment_value::path::Path;
use muniment_value::{Doc, Result};

/// A parsed sort: at most 32 keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortSpec {
    keys: Vec<SortKey>,
}

/// One key of a sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The path.
    pub path: Path,
    /// True for −1.
    pub descending: bool,
}

impl SortSpec {
    /// Parses `{a: 1, b: -1}`. `{$natural: ±1}` is not a sort key: the caller treats it as a hint.
    ///
    /// # Errors
    /// 2 BadValue / 15974-like codes with MongoDB's messages for illegal keys.
    pub fn parse(doc: Doc<'_>) -> Result<SortSpec> {
        let _ = doc;
        todo!()
    }

    /// The keys.
    pub fn keys(&self) -> &[SortKey] {
        &self.keys
    }

    /// Appends `doc`'s sort key: byte strings whose `memcmp` order is the sort's order. An array
    /// counts by its least element (greatest when descending), an empty array as undefined, a
    /// missing field as null.
    ///
    /// # Errors
    /// 2 BadValue for parallel arrays.
    pub fn key(&self, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
        let _ = (doc, out);
        todo!()
    }
}
