//! What a plan is built from, beside how it finds its documents.

use super::current::CurrentOp;
use super::sort::SortLimits;
use muniment_query::{Filter, MetaSet, Projection, SortSpec};
use muniment_storage::{Collection, Store};
use muniment_value::DocBuf;
use std::sync::Arc;

/// Which projection stage explain names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectionKind {
    /// Top-level inclusion or exclusion.
    Simple,
    /// Anything else.
    Default,
}

/// What becomes of a row.
#[derive(Clone)]
pub enum Output {
    /// The document as it is stored; in a covered plan the fields that are needed of it.
    Whole,
    /// The projected document.
    Projected {
        /// The projection.
        projection: Projection,
        /// As it was written, for explain.
        source: DocBuf,
        /// Its name in explain.
        kind: ProjectionKind,
    },
    /// The index key (returnKey).
    Key,
}

/// What a plan is built from, beside a candidate.
#[derive(Clone)]
pub struct Recipe {
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
    /// What becomes of rows.
    pub output: Output,
    /// Append `$recordId`.
    pub show_record_id: bool,
    /// Stay at the end and wait.
    pub tailable: bool,
    /// The match must tell the array position.
    pub want_info: bool,
    /// Limits of a blocking sort.
    pub sort_limits: SortLimits,
    /// Only keys are wanted (count): do not fetch when the index answers everything.
    pub keys_only: bool,
    /// The paths that are needed of each document, when not all are.
    pub needs: Option<Arc<[String]>>,
    /// The metadata that documents get.
    pub metadata: MetaSet,
    /// Where the plan takes its view from, when it is one of several of a command.
    pub(crate) shared: Option<Arc<CurrentOp>>,
}
