//! Planner, executor, cursors and write operations: the part between the commands and the storage.
//!
//! Invariants: every read sees one [`muniment_storage::Snapshot`] at a time, and no idle cursor
//! holds one for long; every write goes through a [`muniment_storage::WriteUnit`], and after its
//! `lock` the document is matched again before anything is changed; everything that can run long
//! asks its [`OpContext`] whether it may go on. This crate must not know the wire or command
//! documents: the server parses those into the request structures here.
//!
//! The layers, each of which imports only earlier ones: `operation` (running operations and what
//! ends them), `plan` (how documents can be found), `run` (finding them), `cursor` (a result
//! between batches), `database` (the engine of a server), `source` (what a name stands for),
//! `verbs`, and the `door`.

#![warn(unreachable_pub)]

mod changes;
mod context;
mod cursor;
mod database;
mod door;
mod moved_databases;
mod operation;
mod oplog;
mod plan;
mod run;
mod source;
#[cfg(test)]
mod tests;
mod tickets;
mod timeseries;
mod verbs;
mod view;

pub use changes::{EventTokens, check_parts, check_watched, mark_before, read_token, stages_of};
pub use cursor::{
    BatchEnd, BatchLimits, Cursor, CursorInfo, CursorManager, CursorMetrics, CursorOwner,
    GetMoreRequest, KillResult, Tail, find_context, opens_change_stream,
};
pub use database::{Database, Figures};
pub use moved_databases::check_database;
pub use muniment_query::stage::search_indexes_refused;
pub use operation::{
    CatalogChange, Counters, Expectations, Expected, OpContext, OpGuard, OpStart, Opens,
    Operations, Origin, PlanFigures, ReplyRoom, Retry, SMALL_REPLY, StatementFigures, StatementIds,
    StatementOutcome, Waiting, session_doc,
};
pub use oplog::{
    Generated, GeneratedFigures, OPLOG, Undone, generated_in, id_doc, is_generated,
    refuse_generated,
};
pub use plan::hint::Hint;
pub use source::{Source, series_of};
pub use tickets::{TICKETS, Ticket, TicketFigures, TicketPool, Tickets};
pub use timeseries::{
    BUCKETS, BucketFigures, TimeSeries, buckets_options, granularity_span, series_options,
    series_view, stored_name,
};
pub use verbs::aggregate::AggregateRequest;
pub use verbs::count::CountRequest;
pub use verbs::distinct::{DistinctRequest, DistinctValues};
pub use verbs::explain::{Explainable, MapReduceRequest, Verbosity, omitted};
pub use verbs::find::FindRequest;
pub use verbs::plan_cache::{ShapeSpec, shape_without_query};
pub use verbs::ttl::TtlOutcome;
pub use verbs::write::{
    Batch, BulkOutcome, DeleteStatement, Documents, FindAndModifyOutcome, FindAndModifyRequest,
    HalfWritten, InsertOptions, MergeRequest, Merged, TEMPORARY, UpdateStatement,
    VERSION_COLLECTION, VERSION_DOCUMENT, ValidationLog, WriteError, check_on, in_find_and_modify,
    with_constants, with_id,
};
pub use view::{
    MAX_DEPTH as MAX_VIEW_DEPTH, Resolved, View, check_pipeline as check_view_pipeline,
};
