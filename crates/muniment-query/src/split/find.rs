//! What each shard does for a find, and what the router does.

use super::Merge;
use super::merge::together;
use super::wire::{Tail, take};
use crate::context::{QueryContext, Runtime};
use crate::filter::Filter;
use crate::stage::{DocStream, limited, skipped};
use bytes::Bytes;
use muniment_value::{Doc, Result};

/// The fields of a find that decide how it is split. All others go to the shards as they are.
#[derive(Clone, Copy, Debug)]
pub struct FindParts<'a> {
    /// The filter.
    pub filter: Doc<'a>,
    /// The sort; empty for none.
    pub sort: Doc<'a>,
    /// Documents to skip.
    pub skip: u64,
    /// Most documents to return; 0 for no limit.
    pub limit: u64,
}

/// A find in two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindSplit {
    /// The limit for each shard, which skips nothing; 0 for none.
    pub limit: u64,
    /// Whether each document of a shard needs its sort key, as the field `$sortKey` at its end.
    pub sort_key: bool,
    /// Documents that the router skips.
    skip: u64,
    /// Documents that the router returns at most; 0 for no limit.
    most: u64,
}

/// Splits a find over a sharded collection.
///
/// # Errors
/// Those of the filter.
pub fn split_find(find: &FindParts<'_>, ctx: &QueryContext) -> Result<FindSplit> {
    // Documents of a `$near` come in the order of their distances.
    let near = find.sort.is_empty() && Filter::parse_query(find.filter, ctx)?.near().is_some();
    let natural = find.sort.get_elem("$natural").is_some();
    let limit = match find.limit {
        0 => 0,
        n => find.skip.saturating_add(n),
    };
    Ok(FindSplit {
        limit: i64::try_from(limit).map_or(0, |_| limit),
        sort_key: near || (!find.sort.is_empty() && !natural),
        skip: find.skip,
        most: find.limit,
    })
}

impl FindSplit {
    /// How the router puts the streams of the shards together.
    pub fn merge(&self) -> Merge {
        match self.sort_key {
            true => Merge::Sorted,
            false => Merge::Concatenate,
        }
    }

    /// The documents of the find, from the streams of the shards in the order of the shards, which decides about
    /// ties.
    pub fn open(&self, streams: Vec<Box<dyn DocStream>>, rt: &Runtime) -> Box<dyn DocStream> {
        let mut top = together(streams, self.tail(), rt);
        if self.skip > 0 {
            top = skipped(top, self.skip, rt);
        }
        match self.most {
            0 => top,
            n => limited(top, n),
        }
    }

    /// A document of a shard as it is stored, and its sort key: of two documents, the one with the lesser key comes
    /// first. Without an order all keys are empty.
    ///
    /// # Errors
    /// An internal error for a document that lacks its key.
    pub fn take(&self, doc: Bytes) -> Result<(Bytes, Bytes)> {
        take(doc, self.tail())
    }

    fn tail(&self) -> Tail {
        Tail {
            sorted: self.sort_key,
            metadata: false,
        }
    }
}
