//! Planner, executor, cursors and the write operations: what stands between the commands and the
//! storage.
//!
//! Invariants: every read sees one [`muniment_storage::Snapshot`] at a time, and no idle cursor
//! holds one for long; every write goes through a [`muniment_storage::WriteSet`], whose `lock` is
//! followed by a second match before anything is changed; everything that can run long asks its
//! [`OpContext`] whether it may go on. Must not know the wire or command documents: the server
//! parses those into the request structures here.

mod aggregate;
mod changes;
mod count;
mod cursor;
mod database;
mod distinct;
mod explain;
mod find;
mod geo_near;
mod host;
mod join;
mod join_cache;
mod operation;
mod oplog;
mod plan;
mod run;
#[cfg(test)]
mod tests;
mod tickets;
mod timeseries;
mod ttl;
mod view;
mod write;

pub use aggregate::AggregateRequest;
pub use count::CountRequest;
pub use cursor::{
    BatchEnd, BatchLimits, Cursor, CursorInfo, CursorManager, CursorMetrics, CursorOwner,
    GetMoreRequest, KillResult, Origin,
};
pub use database::{Database, Figures};
pub use distinct::DistinctRequest;
pub use explain::{Explainable, MapReduceRequest, Verbosity, omitted};
pub use find::{FindRequest, Hint};
pub use muniment_query::stage::search_indexes_refused;
pub use operation::{
    Counters, DisconnectProbe, OpContext, OpGuard, OpStart, Operations, PlanFigures,
};
pub use oplog::{
    GeneratedFigures, OPLOG, Undone, generated_in, is_generated, refuse_generated, session_doc,
};
pub use plan::filters::{ShapeSpec, shape_without_query};
pub use tickets::{TICKETS, TicketFigures, TicketPool, Tickets};
pub use timeseries::{
    BUCKETS, BucketFigures, TimeSeries, buckets_options, granularity_span, series_options,
    series_view,
};
pub use ttl::TtlOutcome;
pub use view::{
    MAX_DEPTH as MAX_VIEW_DEPTH, Resolved, View, check_pipeline as check_view_pipeline,
};
pub use write::{
    BulkOutcome, DeleteStatement, Documents, FindAndModifyOutcome, FindAndModifyRequest,
    InsertOptions, Retry, StatementFigures, StatementIds, StatementOutcome, UpdateStatement,
    VERSION_COLLECTION, VERSION_DOCUMENT, WriteError,
};
