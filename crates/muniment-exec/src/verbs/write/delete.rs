//! The statements of a `delete` command.

use super::bulk::{Statement, Target};
use crate::operation::OpContext;
use crate::plan::hint::Hint;
use crate::verbs::write::change::Change;
use crate::verbs::write::change::Write;
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
    /// How strings compare; `None` means by the collection's collation.
    pub collation: Option<Collation>,
}

impl Statement for DeleteStatement<'_> {
    fn with_write<R>(
        &self,
        op: &Arc<OpContext>,
        on: &Target<'_>,
        run: impl FnOnce(&Write<'_>) -> Result<R>,
    ) -> Result<R> {
        let ctx = on.context(op, self.let_, self.collation.as_ref())?;
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
