//! Explains a command on a view: the command becomes a pipeline on the collection below the view.

use super::pipeline::explain_aggregate;
use super::{Explainable, Verbosity};
use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::hint::{Hint, natural_hint};
use crate::source::Source;
use crate::timeseries::BUCKETS;
use crate::verbs::aggregate::AggregateRequest;
use crate::verbs::head::Head;
use crate::view::Resolved;
use muniment_value::{ArrayBuf, DocBuf, Result};
use std::sync::Arc;

/// Explains a reading command on a view as the pipeline that stands for it.
pub(super) fn explain_view(
    engine: &Database,
    op: &Arc<OpContext>,
    view: &Resolved,
    (what, head): (&Explainable<'_>, &Head<'_>),
    verbosity: Verbosity,
    d: &mut DocBuf,
) -> Result<()> {
    if let Some(given) = head.collation {
        view.check_collation(head.namespace, given)?;
    }
    let mut pipeline = view.with(what.stages()?.as_doc());
    let (db, mut collection) = view.parts();
    let natural = natural_hint(false);
    let mut hint = head.hint;
    // A router has to know of a collection below the view that is sharded.
    let below = Source::now(&engine.store, &view.namespace)?;
    op.check_placement(&view.namespace, below.stored().map(|c| &**c))?;
    if let Some(series) = below.buckets() {
        op.check_placement(&series.name(), Some(series))?;
        // Buckets are made from the stored measurements when they are read. What can be shown is
        // the plan that reads the measurements; the query's stages run above the made buckets and
        // have no part in it.
        collection = collection.strip_prefix(BUCKETS).unwrap_or(collection);
        pipeline = ArrayBuf::new();
        hint = Some(Hint::Pattern(natural.as_doc()));
    }
    let request = AggregateRequest {
        collection: Some(collection),
        hint,
        collation: Some(view.collation.clone()),
        ..AggregateRequest::new(db, pipeline.as_doc(), head.let_)
    };
    explain_aggregate(engine, op, &request, verbosity, d)
}
