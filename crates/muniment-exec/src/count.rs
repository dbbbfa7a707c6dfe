//! `count`.

use crate::database::Database;
use crate::explain::{count_ran, fast_count_ran};
use crate::find::Hint;
use crate::operation::OpContext;
use crate::plan::candidate::{Query, candidates};
use crate::plan::choose::{Asked, Choice, choose};
use crate::plan::shape::of_command;
use crate::plan::text::{bind_text, refuse_text};
use crate::run::exec::Recipe;
use muniment_query::filter::Node;
use muniment_query::{Clocks, Filter};
use muniment_storage::Collection;
use muniment_value::{Collation, Doc, Result};
use std::sync::Arc;

/// A `count` command's content.
#[derive(Clone, Debug)]
pub struct CountRequest<'a> {
    /// `db.collection`.
    pub namespace: &'a str,
    /// `query`.
    pub filter: Doc<'a>,
    /// Documents to skip.
    pub skip: u64,
    /// Most documents to count; 0 for no limit (a negative limit's absolute value).
    pub limit: u64,
    /// The hint.
    pub hint: Option<Hint<'a>>,
    /// The command's `let`; empty for none.
    pub let_: Doc<'a>,
    /// How texts compare; `None`: as the collection has it.
    pub collation: Option<Collation>,
}

impl<'a> CountRequest<'a> {
    /// A count of everything in `namespace`.
    pub fn new(namespace: &'a str) -> CountRequest<'a> {
        CountRequest {
            namespace,
            filter: Doc::EMPTY,
            skip: 0,
            limit: 0,
            hint: None,
            let_: Doc::EMPTY,
            collation: None,
        }
    }
}

impl Database {
    /// Counts. Without a filter this is the collection's exact counter; with one that an index
    /// answers alone, no document is read.
    ///
    /// # Errors
    /// As [`Database::find`].
    pub fn count(&self, op: &Arc<OpContext>, request: &CountRequest<'_>) -> Result<u64> {
        let ctx = self
            .query_context(op, request.let_, self.count_collation(request)?)?
            .with_clocks(Clocks::None);
        let filter = Filter::parse_query(request.filter, &ctx)?;
        let Some(collection) = op.collection(&self.store, request.namespace)? else {
            return match self.resolve_view(request.namespace)? {
                Some(view) => self.count_view(op, &view, request),
                None => {
                    op.set_point_plan("EOF");
                    op.set_exec_stats(|| count_ran(None, 0, 0));
                    refuse_text(request.namespace, &filter).map(|()| 0)
                }
            };
        };
        self.count_filter(op, &collection, request, &filter)
    }

    pub(crate) fn count_collation(&self, r: &CountRequest<'_>) -> Result<Collation> {
        self.collation_for(r.namespace, r.collation.as_ref())
    }

    /// Counts what matches `filter`; the request's own is not looked at.
    pub(crate) fn count_filter(
        &self,
        op: &Arc<OpContext>,
        collection: &Arc<Collection>,
        request: &CountRequest<'_>,
        filter: &Filter,
    ) -> Result<u64> {
        let newest = op.reads_newest();
        if matches!(filter.root(), Node::True) && request.hint.is_none() && newest {
            let n = window(collection.count(), request);
            op.set_fast_count("RECORD_STORE_FAST_COUNT");
            op.set_exec_stats(|| fast_count_ran(n));
            return Ok(n);
        }
        let mut exec = self
            .plan_count(op, collection, request, filter, false)?
            .exec;
        exec.announce_below(op);
        let mut n = 0;
        while exec.next_row(op)?.is_some() {
            n += 1;
        }
        op.set_exec_stats(|| count_ran(Some(&exec), n, request.skip));
        Ok(n)
    }

    /// The plan of a count: keys are enough where the index answers the whole filter.
    pub(crate) fn plan_count(
        &self,
        op: &Arc<OpContext>,
        collection: &Arc<Collection>,
        request: &CountRequest<'_>,
        filter: &Filter,
        explain: bool,
    ) -> Result<Choice> {
        let filter = &bind_text(collection, filter)?;
        let query = Query {
            hint: request.hint,
            allowed: self
                .index_filters
                .of(collection, filter, Doc::EMPTY, Doc::EMPTY),
            ..Query::of(filter)
        };
        let candidates = candidates(collection, &query)?;
        let recipe = Recipe {
            skip: request.skip,
            limit: (request.limit > 0).then_some(request.limit),
            keys_only: true,
            ..self.recipe(collection, filter)
        };
        choose(
            &self.plans,
            op,
            &recipe,
            candidates,
            || Asked {
                shape: of_command(filter, "count"),
                filter: Some(request.filter),
            },
            explain,
        )
    }
}

/// What skip and limit leave of a count.
pub(crate) fn window(n: u64, request: &CountRequest<'_>) -> u64 {
    let n = n.saturating_sub(request.skip);
    if request.limit > 0 {
        n.min(request.limit)
    } else {
        n
    }
}
