//! Everything that a plan is built from except how it finds its documents.

use super::current::CurrentOp;
use super::sort::SortLimits;
use muniment_query::{Filter, MetaSet, Projection, SortSpec};
use muniment_storage::{Collection, Store};
use muniment_value::DocBuf;
use std::sync::Arc;

/// The projection stage that explain names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProjectionKind {
    /// An inclusion or exclusion of top-level fields.
    Simple,
    /// Any other projection.
    Default,
}

/// The form in which a row is returned.
#[derive(Clone)]
pub(crate) enum Output {
    /// The document as it is stored. A covered plan returns only the fields that are needed.
    Whole,
    /// The projected document.
    Projected {
        /// The projection.
        projection: Projection,
        /// The projection as the client wrote it, for explain.
        source: DocBuf,
        /// The name of the projection in explain.
        kind: ProjectionKind,
    },
    /// The index key, for returnKey.
    Key,
}

/// Everything that a plan is built from besides its candidate.
#[derive(Clone)]
pub(crate) struct Recipe {
    /// The store.
    pub store: Arc<Store>,
    /// The collection.
    pub collection: Arc<Collection>,
    /// The whole filter.
    pub filter: Filter,
    /// The sort with its source.
    pub sort: Option<(SortSpec, DocBuf)>,
    /// Documents to skip.
    pub skip: u64,
    /// Documents to return; `None` for all.
    pub limit: Option<u64>,
    /// The form in which rows are returned.
    pub output: Output,
    /// True if `$recordId` is appended.
    pub show_record_id: bool,
    /// True if the key by which a router merges the documents is appended, as `$sortKey`.
    pub sort_key: bool,
    /// True if the plan stays at the end of the collection to give later documents.
    pub tailable: bool,
    /// True if matching has to find out the array position.
    pub want_info: bool,
    /// Limits of a blocking sort.
    pub sort_limits: SortLimits,
    /// True if only keys are wanted, as for a count. Documents are then not fetched if the index
    /// answers everything.
    pub keys_only: bool,
    /// The paths that are needed of each document; `None` if all are.
    pub needs: Option<Arc<[String]>>,
    /// The metadata that documents get.
    pub metadata: MetaSet,
    /// The source of the plan's view, if it is one of several plans of a command.
    pub(crate) shared: Option<Arc<CurrentOp>>,
}
