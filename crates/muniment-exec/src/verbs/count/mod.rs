//! The `count` command: counts the documents of a collection or a view that match a query.

mod stored;

pub use stored::CountRequest;
pub(crate) use stored::{count_filter, plan_count, window};

use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::text::refuse_text;
use crate::source::Source;
use crate::verbs::explain::ran::count_ran;
use crate::view::Resolved;
use muniment_query::{Clocks, Filter};
use muniment_value::{ArrayBuf, Doc, Result, doc, number};
use std::sync::Arc;

/// Implements [`Database::count`].
pub(crate) fn count(
    engine: &Database,
    op: &Arc<OpContext>,
    request: &CountRequest<'_>,
) -> Result<u64> {
    let (source, ctx) = request.head().resolve(engine, op)?;
    let filter = Filter::parse_query(request.filter, &ctx.with_clocks(Clocks::None))?;
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

/// The aggregation stages that give the same number as this count, for a view.
pub(crate) fn count_stages(r: &CountRequest<'_>) -> ArrayBuf {
    let mut stages = r.head().stages(Doc::EMPTY, r.skip, r.limit);
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
    let mut cursor = r.head().on_view(engine, op, view, &stages, None)?;
    let n = cursor
        .next_doc(op)?
        .and_then(|d| Doc::new(&d).get("count").and_then(number::to_i64_exact));
    Ok(n.and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
}
