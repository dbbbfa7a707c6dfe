//! Counting the documents of a stored collection.

use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::hint::Hint;
use crate::plan::query::{Query, Told};
use crate::plan::shape::of_command;
use crate::plan::text::bind_text;
use crate::run::choose::{Asked, Choice};
use crate::run::recipe::Recipe;
use crate::verbs::explain::fast_count_ran;
use crate::verbs::explain::ran::count_ran;
use crate::verbs::head::Head;
use crate::verbs::planning::{plan, query};
use muniment_query::Filter;
use muniment_query::filter::Node;
use muniment_storage::{Collection, Timestamp};
use muniment_value::{Collation, Doc, Result};
use std::sync::Arc;

/// The fields of a `count` command.
#[derive(Clone, Debug)]
pub struct CountRequest<'a> {
    /// `db.collection`.
    pub namespace: &'a str,
    /// `query`.
    pub filter: Doc<'a>,
    /// Documents to skip.
    pub skip: u64,
    /// Most documents to count; 0 for no limit. A negative limit comes here as its absolute value.
    pub limit: u64,
    /// The hint.
    pub hint: Option<Hint<'a>>,
    /// The command's `let`; empty for none.
    pub let_: Doc<'a>,
    /// How strings compare; `None` means by the collection's collation.
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

    /// The part of the request that all queries have.
    pub(crate) fn head(&self) -> Head<'_> {
        Head {
            namespace: self.namespace,
            filter: self.filter,
            hint: self.hint,
            let_: self.let_,
            collation: self.collation.as_ref(),
        }
    }
}

/// Applies the request's skip and limit to a count of `n` documents.
pub(crate) fn window(n: u64, request: &CountRequest<'_>) -> u64 {
    let n = n.saturating_sub(request.skip);
    if request.limit > 0 {
        n.min(request.limit)
    } else {
        n
    }
}

/// The number of documents, if it is kept: `None` while there may be rows that this shard does not own. A range may
/// begin to arrive while the number is read, so this is looked at before and after.
fn total(collection: &Collection) -> Option<u64> {
    let owns_all = || !collection.may_have_foreign_rows();
    let n = owns_all().then(|| collection.count())?;
    owns_all().then_some(n)
}

/// Counts the documents that match `filter`. The caller has parsed it from `request.filter`, which
/// is not read here.
pub(crate) fn count_filter(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    request: &CountRequest<'_>,
    filter: &Filter,
) -> Result<u64> {
    let newest = op.reads_newest();
    let whole = matches!(filter.root(), Node::True) && request.hint.is_none() && newest;
    if whole && let Some(n) = total(collection) {
        let n = window(n, request);
        op.check_seen(collection, Timestamp::MAX)?;
        op.set_fast_count("RECORD_STORE_FAST_COUNT");
        op.set_exec_stats(|| fast_count_ran(n));
        return Ok(n);
    }
    let mut exec = plan_count(engine, op, collection, request, filter, false)?.exec;
    exec.announce_below(op);
    let mut n = 0;
    while exec.next_row(op)?.is_some() {
        n += 1;
    }
    op.set_exec_stats(|| count_ran(Some(&exec), n, request.skip));
    Ok(n)
}

/// The plan of a count. Where the index answers the whole filter, the plan reads keys and no
/// documents.
pub(crate) fn plan_count(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    request: &CountRequest<'_>,
    filter: &Filter,
    explain: bool,
) -> Result<Choice> {
    let filter = &bind_text(collection, filter)?;
    let told = Told {
        limit: request.limit,
        skip: request.skip,
        ..Told::default()
    };
    let query = Query {
        hint: request.hint,
        ..query(engine, collection, filter, told)
    };
    let recipe = Recipe {
        skip: request.skip,
        limit: (request.limit > 0).then_some(request.limit),
        keys_only: true,
        ..engine.recipe(collection, filter)
    };
    plan(
        engine,
        op,
        &query,
        &recipe,
        || Asked {
            shape: of_command(filter, "count"),
            filter: Some(request.filter),
        },
        explain,
    )
}
