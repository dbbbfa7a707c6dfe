//! `aggregate`.

use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::find::Hint;
use crate::operation::OpContext;
use muniment_value::{Doc, Result};
use std::sync::Arc;

/// An `aggregate` command's content.
#[derive(Clone, Debug)]
pub struct AggregateRequest<'a> {
    /// The database.
    pub db: &'a str,
    /// The collection; `None` for `aggregate: 1`.
    pub collection: Option<&'a str>,
    /// The array of stages.
    pub pipeline: Doc<'a>,
    /// The hint.
    pub hint: Option<Hint<'a>>,
    /// `allowDiskUse`: `Some(false)` makes a stage above the memory limit an error.
    pub allow_disk_use: Option<bool>,
    /// The command's `let`.
    pub let_: Doc<'a>,
}

impl Engine {
    /// Opens an aggregation: leading `$match`, `$sort`, `$skip`, `$limit` and a dependency-only
    /// projection are planned like a find; the rest runs on top. Counting everything
    /// (`$match {}` and `$group {_id: 1, n: {$sum: 1}}`, or `$count`) reads the counter.
    ///
    /// # Errors
    /// As [`Engine::find`]; the stages' own.
    pub fn aggregate(&self, op: &Arc<OpContext>, request: &AggregateRequest<'_>) -> Result<Cursor> {
        let _ = (op, request);
        todo!()
    }
}
