//! Deletes.

use super::bulk::{BulkOutcome, StatementOutcome};
use super::core::{Change, Write};
use crate::engine::Engine;
use crate::find::Hint;
use crate::operation::OpContext;
use muniment_value::{Doc, Result};
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
}

impl Engine {
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
        let ctx = self.query_context(statement.let_)?;
        let write = Write::new(
            &ctx,
            statement.filter,
            Doc::EMPTY,
            statement.hint,
            statement.multi,
            Change::Delete,
        )?;
        let done = self.write(op, namespace, &write)?;
        Ok(StatementOutcome {
            matched: done.matched,
            modified: 0,
            upserted: None,
            commit: done.commit,
        })
    }

    /// Runs the statements of a delete command.
    pub fn delete_many<'d>(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        statements: &mut dyn Iterator<Item = Result<DeleteStatement<'d>>>,
        ordered: bool,
    ) -> BulkOutcome {
        let mut out = BulkOutcome::default();
        for (i, s) in statements.enumerate() {
            let r = s.and_then(|s| self.delete(op, namespace, &s));
            if !out.note(i, r, ordered) {
                break;
            }
        }
        out
    }
}
