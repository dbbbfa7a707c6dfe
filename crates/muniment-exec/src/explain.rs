//! `explain`.

use crate::aggregate::AggregateRequest;
use crate::count::CountRequest;
use crate::distinct::DistinctRequest;
use crate::engine::Engine;
use crate::find::FindRequest;
use crate::operation::OpContext;
use crate::write::{DeleteStatement, FindAndModifyRequest, UpdateStatement};
use muniment_value::{DocBuf, Result};
use std::sync::Arc;

/// How much explain tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Plans only.
    QueryPlanner,
    /// Runs the winner and counts.
    ExecutionStats,
    /// Also what the trial of the others showed.
    AllPlansExecution,
}

/// What can be explained.
#[allow(missing_docs)] // the commands' names
pub enum Explainable<'a> {
    Find(&'a FindRequest<'a>),
    Count(&'a CountRequest<'a>),
    Distinct(&'a DistinctRequest<'a>),
    Aggregate(&'a AggregateRequest<'a>),
    Update {
        namespace: &'a str,
        statement: &'a UpdateStatement<'a>,
    },
    Delete {
        namespace: &'a str,
        statement: &'a DeleteStatement<'a>,
    },
    FindAndModify(&'a FindAndModifyRequest<'a>),
}

impl Engine {
    /// Explains: `{explainVersion, queryPlanner, executionStats}` (for an aggregation with stages
    /// on top `{explainVersion, stages: […]}`). Writes nothing. The caller adds `command`,
    /// `serverInfo`, `serverParameters` and `ok`.
    ///
    /// # Errors
    /// As the command itself.
    pub fn explain(
        &self,
        op: &Arc<OpContext>,
        what: &Explainable<'_>,
        verbosity: Verbosity,
    ) -> Result<DocBuf> {
        let _ = (op, what, verbosity);
        todo!()
    }
}
