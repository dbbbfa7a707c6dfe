//! How a stage spreads over the shards of a cluster, whose router runs what they cannot. [`crate::split`] judges
//! it.

use super::CountOnly;
use muniment_value::{DocBuf, Elem};

/// How a stage spreads over the shards of a cluster.
#[derive(Clone, Copy)]
pub enum Spread {
    /// On the shards. It treats each document by itself and keeps their order, or it begins a pipeline with
    /// documents of which each shard has its own.
    Each,
    /// On the shards, which sort their documents. The router merges the sorted streams.
    Ordered,
    /// On the router, as `$skip` and `$limit` are. The shards only give as many documents as it can use.
    Range,
    /// A part of it on the shards, and a part on the router.
    Halves(HalvesOf),
    /// On the router, as is everything after it.
    Router,
    /// It begins a pipeline, and runs pipelines of its own over the collection. The router runs it, as it does
    /// everything after it, and these pipelines are each split again.
    Around,
    /// It begins a pipeline, and its documents are not those of a sharded collection. The router decides by
    /// itself where to run the pipeline.
    Alone,
}

/// Divides a stage; `None` if the router has to run all of it.
pub type HalvesOf = fn(&Whole<'_>) -> Option<Halves>;

/// A stage that is to be divided.
#[derive(Clone, Copy)]
pub struct Whole<'w> {
    /// The stage as it was written.
    pub(crate) source: Elem<'w>,
    /// Set if the stage only counts documents.
    pub(crate) counts: Option<&'w CountOnly>,
    /// Whether the documents that come into it are sorted.
    pub(crate) sorted: bool,
}

/// The two parts of a stage.
pub struct Halves {
    /// The stage for the shards.
    pub(crate) shards: DocBuf,
    /// How the router puts the streams of the shards together.
    pub(crate) merge: Merge,
    /// The stages for the router.
    pub(crate) router: Vec<DocBuf>,
}

/// How the router puts the streams of the shards together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// One after the other.
    Concatenate,
    /// Each is sorted, and so is the whole. Every document has the bytes of its sort key.
    Sorted,
}
