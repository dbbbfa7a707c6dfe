//! `count`.

mod stored;

pub use stored::CountRequest;
pub(crate) use stored::{count_filter, plan_count, window};

use crate::context::query_context;
use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::text::refuse_text;
use crate::source::Source;
use crate::verbs::aggregate::{AggregateRequest, aggregate_view};
use crate::verbs::explain::ran::count_ran;
use crate::view::Resolved;
use muniment_query::{Clocks, Filter};
use muniment_value::{ArrayBuf, Doc, Result, doc, number};
use std::sync::Arc;

/// As [`Database::count`].
pub(crate) fn count(
    engine: &Database,
    op: &Arc<OpContext>,
    request: &CountRequest<'_>,
) -> Result<u64> {
    let source = Source::resolve(&engine.store, op, request.namespace)?;
    let collation = source.collation(request.namespace, request.collation.as_ref())?;
    let ctx = query_context(op, request.let_, collation)?.with_clocks(Clocks::None);
    let filter = Filter::parse_query(request.filter, &ctx)?;
    if let Source::Collection(collection) = &source {
        return count_filter(engine, op, collection, request, &filter);
    }
    match source.as_view(&engine.store, request.namespace)? {
        Some(view) => count_view(engine, op, &view, request),
        None => {
            op.set_point_plan("EOF");
            op.set_exec_stats(|| count_ran(None, 0, 0));
            refuse_text(request.namespace, &filter).map(|()| 0)
        }
    }
}

/// The stages that a count stands for.
pub(crate) fn count_stages(r: &CountRequest<'_>) -> ArrayBuf {
    let mut stages = ArrayBuf::new();
    if !r.filter.is_empty() {
        stages.push(doc! { "$match": r.filter });
    }
    if r.skip > 0 {
        stages.push(doc! { "$skip": i64::try_from(r.skip).unwrap_or(i64::MAX) });
    }
    if r.limit > 0 {
        stages.push(doc! { "$limit": i64::try_from(r.limit).unwrap_or(i64::MAX) });
    }
    stages.push(doc! { "$count": "count" });
    stages
}

pub(crate) fn count_view(
    engine: &Database,
    op: &Arc<OpContext>,
    view: &Resolved,
    r: &CountRequest<'_>,
) -> Result<u64> {
    let stages = count_stages(r);
    let request = AggregateRequest {
        hint: r.hint,
        collation: r.collation.clone(),
        ..AggregateRequest::new(view.parts().0, stages.as_doc(), r.let_)
    };
    let mut cursor = aggregate_view(engine, op, view, &request, r.namespace)?;
    let n = cursor
        .next_doc(op)?
        .and_then(|d| Doc::new(&d).get("count").and_then(number::to_i64_exact));
    Ok(n.and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
}
