//! Opens a generated collection for a find, or as the source of a pipeline.

use super::read::{Follower, Forward, Span};
use super::{Generated, Made, Order};
use crate::context::query_context;
use crate::cursor::{Cursor, CursorFlags, Opener};
use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::hint::Hint;
use crate::run::current::CurrentOp;
use crate::verbs::aggregate::AggregateRequest;
use crate::verbs::aggregate::link::Link;
use crate::verbs::find::request::{FindRequest, Parsed};
use bytes::Bytes;
use muniment_query::running::Task;
use muniment_query::{DocStream, Filter, Pipeline, Projection, QueryContext};
use muniment_value::{Doc, Error, Result, array, doc};
use std::sync::Arc;

/// Opens a pipeline over a generated collection.
pub(crate) fn open_generated(
    link: &Link,
    generated: &Generated,
    pipeline: Pipeline,
    stages: Doc<'_>,
    ctx: &QueryContext,
    hint: Option<Hint<'_>>,
) -> Result<Box<dyn DocStream>> {
    link.op.get().set_point_plan("COLLSCAN");
    let (order, rest) = generated.ordered(&link.engine, &link.op.get(), stages, hint)?;
    let source = generated.open(&link.engine, &link.op, order)?;
    let pipeline = match rest {
        Some(stages) => Pipeline::parse(stages.as_doc(), ctx)?,
        None => pipeline,
    };
    pipeline.open(source, &link.runtime()?)
}

/// The part of a find after filter and sort. It continues when its source, which had nothing more
/// for now, has more.
struct Window {
    source: Box<dyn DocStream>,
    filter: Filter,
    skip: u64,
    left: Option<u64>,
    projection: Option<Projection>,
    /// True if the filter has been applied below.
    filtered: bool,
    /// The operation for which this matches and projects.
    task: Task,
}

impl DocStream for Window {
    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if self.left == Some(0) {
                return Ok(None);
            }
            let Some(bytes) = self.source.next()? else {
                return Ok(None);
            };
            let doc = Doc::new(&bytes);
            if !self.filtered && !self.filter.matches(doc, self.task.work())? {
                continue;
            }
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            self.left = self.left.map(|n| n - 1);
            let Some(projection) = &self.projection else {
                return Ok(Some(bytes));
            };
            let info = match projection.needs_match_info() {
                true => self.filter.matches_info(doc, self.task.work())?,
                false => None,
            };
            let mut out = Vec::with_capacity(bytes.len());
            projection.apply(doc, info.unwrap_or_default(), &mut out, self.task.work())?;
            return Ok(Some(Bytes::from(out)));
        }
    }
}

/// Refuses options of a find that need stored documents.
fn refuse_options(r: &FindRequest<'_>) -> Result<()> {
    for (given, option) in [
        (!r.min.is_empty(), "min"),
        (!r.max.is_empty(), "max"),
        (r.return_key, "returnKey"),
        (r.show_record_id, "showRecordId"),
        (r.sort_key, "sortKey"),
    ] {
        if given {
            return Err(Error::bad_value(format!(
                "Option {option} needs an index or a record, which {} has not",
                r.namespace
            )));
        }
    }
    Ok(())
}

/// Opens a find on a generated collection.
pub(crate) fn find_generated(
    engine: &Database,
    op: &Arc<OpContext>,
    generated: &Generated,
    request: &FindRequest<'_>,
    parsed: Parsed,
    flags: CursorFlags,
) -> Result<Cursor> {
    refuse_options(request)?;
    let backward = generated.is_backward(request.sort, request.hint)?;
    let own = generated.order_of(request.sort);
    let sort = parsed.sort.as_ref().filter(|_| own.is_none());
    op.set_point_plan("COLLSCAN");
    let current = CurrentOp::new(op);
    let mut span = generated.span(engine, op, request.filter);
    let mut tail: Option<Arc<Follower>> = None;
    let source: Box<dyn DocStream> = match &generated.source {
        Made::Log(shown) if request.tailable => {
            if sort.is_some() || backward || own.is_some() {
                return Err(Error::bad_value(
                    "error processing query: tailable cursors may only be sorted by {$natural: 1}",
                ));
            }
            span.until = Span::ALL.within(request.filter, generated.path()).until;
            let show = shown.now(engine, op);
            let stream = Forward::open(&engine.store, &current, span, show)?;
            tail = Some(stream.follower());
            Box::new(stream)
        }
        Made::Table(_) if request.tailable => {
            return Err(Error::bad_value(format!(
                "error processing query: ns={} tailable cursor requested on non capped \
                 collection",
                request.namespace
            )));
        }
        _ => generated.open(engine, &current, Order { span, backward })?,
    };
    let filtered = sort.is_some();
    let source = match sort {
        None => source,
        Some((_, by)) => {
            let stages = array![doc! { "$match": request.filter }, doc! { "$sort": by }];
            let collation = parsed.filter.collation().clone();
            let ctx = query_context(op, request.let_, collation)?;
            let below = AggregateRequest {
                allow_disk_use: request.allow_disk_use,
                ..AggregateRequest::new("", Doc::EMPTY, Doc::EMPTY)
            };
            let link = Link::new(engine, &current, &below)?;
            Pipeline::parse(stages.as_doc(), &ctx)?.open(source, &link.runtime()?)?
        }
    };
    let window = Window {
        source,
        filter: parsed.filter,
        skip: request.skip,
        left: (request.limit > 0).then_some(request.limit),
        projection: parsed.projection,
        filtered,
        task: Task::of(current.clone()),
    };
    let mut cursor = Cursor::of_stream(request.namespace, None, Box::new(window), current)
        .opened_by(Opener::Find);
    if let Some(tail) = tail {
        cursor = cursor.with_tail(tail);
    }
    cursor.flags = flags;
    Ok(cursor)
}
