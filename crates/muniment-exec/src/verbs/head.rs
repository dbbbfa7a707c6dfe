//! The head of the commands that query one name: find, count and distinct begin with it when they
//! run and when they are explained.

use super::aggregate::{AggregateRequest, aggregate_view};
use crate::cursor::Cursor;
use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::hint::Hint;
use crate::source::Source;
use crate::view::Resolved;
use muniment_query::QueryContext;
use muniment_storage::Collection;
use muniment_value::{ArrayBuf, Collation, Doc, Result, doc};
use std::sync::Arc;

/// The fields that every query has.
#[derive(Clone, Copy)]
pub(crate) struct Head<'r> {
    /// `db.collection`.
    pub namespace: &'r str,
    /// The filter as the client wrote it.
    pub filter: Doc<'r>,
    /// The hint.
    pub hint: Option<Hint<'r>>,
    /// The command's `let`; empty for none.
    pub let_: Doc<'r>,
    /// How strings compare; `None` means by the collation of what is read.
    pub collation: Option<&'r Collation>,
}

impl Head<'_> {
    /// Resolves the name, and makes the context that the query is parsed with.
    ///
    /// # Errors
    /// Those of [`Source::resolve`] and [`Source::context`].
    pub(crate) fn resolve(
        &self,
        engine: &Database,
        op: &Arc<OpContext>,
    ) -> Result<(Source, QueryContext)> {
        let source = Source::resolve(&engine.store, op, self.namespace)?;
        let ctx = source.context(op, self.namespace, self.let_, self.collation)?;
        Ok((source, ctx))
    }

    /// The same for a query that is explained: the collection that has the name now, if it is a
    /// stored one.
    ///
    /// # Errors
    /// Those of [`Source::now`] and [`Source::context`].
    pub(crate) fn stored_now(
        &self,
        engine: &Database,
        op: &Arc<OpContext>,
    ) -> Result<(Option<Arc<Collection>>, QueryContext)> {
        let source = Source::now(&engine.store, self.namespace)?;
        op.check_placement(self.namespace, source.stored().map(|c| &**c))?;
        let ctx = source.context(op, self.namespace, self.let_, self.collation)?;
        Ok((source.collection().cloned(), ctx))
    }

    /// The stages at the beginning of the query as a pipeline: its filter, then the given sort,
    /// skip and limit.
    pub(crate) fn stages(&self, sort: Doc<'_>, skip: u64, limit: u64) -> ArrayBuf {
        let mut stages = ArrayBuf::new();
        if !self.filter.is_empty() {
            stages.push(doc! { "$match": self.filter });
        }
        if !sort.is_empty() {
            stages.push(doc! { "$sort": sort });
        }
        for (name, n) in [("$skip", skip), ("$limit", limit)] {
            if n > 0 {
                let mut stage = doc! {};
                stage.append(name, i64::try_from(n).unwrap_or(i64::MAX));
                stages.push(stage);
            }
        }
        stages
    }

    /// Runs the stages of the command on top of a view.
    ///
    /// # Errors
    /// Those of [`Database::aggregate`].
    pub(crate) fn on_view(
        &self,
        engine: &Database,
        op: &Arc<OpContext>,
        view: &Resolved,
        stages: &ArrayBuf,
        allow_disk_use: Option<bool>,
    ) -> Result<Cursor> {
        let request = AggregateRequest {
            hint: self.hint,
            allow_disk_use,
            collation: self.collation.cloned(),
            ..AggregateRequest::new(view.parts().0, stages.as_doc(), self.let_)
        };
        aggregate_view(engine, op, view, &request, self.namespace)
    }
}
