//! Deletes.

use super::bulk::{BulkOutcome, Statement, StatementOutcome, Target};
use super::core::{Change, Write};
use crate::database::Database;
use crate::find::Hint;
use crate::operation::OpContext;
use muniment_value::{Collation, Doc, Result};
use std::sync::Arc;

/// One element of `delete.deletes`.
#[derive(Clone, Debug)]
pub struct DeleteStatement<'a> {
    /// `q`.
    pub filter: Doc<'a>,
    /// `limit: 0`: all that match; `limit: 1`: one.
    pub multi: bool,
    /// The hint.
    pub hint: Option<Hint<'a>>,
    /// The command's `let`.
    pub let_: Doc<'a>,
    /// How texts compare; `None`: as the collection has it.
    pub collation: Option<Collation>,
}

impl Statement for DeleteStatement<'_> {
    fn with_write<R>(
        &self,
        engine: &Database,
        op: &OpContext,
        on: &Target<'_>,
        run: impl FnOnce(&Write<'_>) -> Result<R>,
    ) -> Result<R> {
        let collation = on.collation(engine, self.collation.as_ref())?;
        let ctx = engine.query_context(op, self.let_, collation)?;
        run(&Write::new(
            &ctx,
            self.filter,
            Doc::EMPTY,
            self.hint,
            self.multi,
            Change::Delete,
        )?)
    }
}

impl Database {
    /// Runs one delete statement; `matched` in the outcome is how many were deleted.
    ///
    /// # Errors
    /// The statement's error; what was deleted before stays deleted.
    pub fn delete(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        statement: &DeleteStatement<'_>,
    ) -> Result<StatementOutcome> {
        self.run_statement(op, namespace, statement)
    }

    /// Runs the statements of a delete command.
    pub fn delete_many<'d>(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        statements: &mut dyn Iterator<Item = Result<DeleteStatement<'d>>>,
        ordered: bool,
    ) -> BulkOutcome {
        self.run_statements(op, namespace, statements, ordered)
    }
}
