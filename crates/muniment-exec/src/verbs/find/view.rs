//! A find on a view runs as a pipeline over the collection below the view.

use super::request::FindRequest;
use crate::cursor::Cursor;
use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::hint::{Hint, natural};
use crate::view::Resolved;
use muniment_value::{ArrayBuf, Code, Doc, Error, Result, Value, doc};
use std::sync::Arc;

fn unsupported(option: &str) -> Error {
    Error::new(
        Code::InvalidPipelineOperator,
        format!("Option {option} not supported in aggregation."),
    )
}

/// The aggregation stages that do what a find does.
///
/// # Errors
/// 168 InvalidPipelineOperator for an option that no stage can express.
pub(crate) fn find_stages(r: &FindRequest<'_>) -> Result<ArrayBuf> {
    for (given, option) in [
        (!r.min.is_empty(), "min"),
        (!r.max.is_empty(), "max"),
        (r.return_key, "returnKey"),
        (r.show_record_id, "showRecordId"),
        (r.sort_key, "sortKey"),
        (r.tailable, "tailable"),
        (r.no_cursor_timeout, "noCursorTimeout"),
    ] {
        if given {
            return Err(unsupported(option));
        }
    }
    if r.sort.get_elem("$natural").is_some() {
        return Err(Error::new(
            Code::InvalidPipelineOperator,
            "Sort option {$natural: 1} not supported in aggregation.",
        ));
    }
    let finds_only = |v: Value<'_>| {
        v.as_doc()
            .is_some_and(|d| d.get_elem("$elemMatch").is_some())
    };
    if r.projection.values().any(finds_only) {
        return Err(Error::new(
            Code::InvalidPipelineOperator,
            "Unrecognized expression '$elemMatch'",
        ));
    }
    let mut stages = r.head().stages(r.sort, r.skip, r.limit);
    if !r.projection.is_empty() {
        stages.push(doc! { "$project": r.projection });
    }
    Ok(stages)
}

pub(crate) fn find_view(
    engine: &Database,
    op: &Arc<OpContext>,
    view: &Resolved,
    r: &FindRequest<'_>,
) -> Result<Cursor> {
    let reversed = doc! { "_id": -1 };
    let mut read = r.clone();
    if view.namespace == r.namespace {
        // This reads the buckets of a time series and no view. Their natural order is that of
        // `_id`, so a natural sort or hint becomes one that a stage can do; and unlike a cursor on
        // a view, this one may be without a timeout, so `find_stages` must not refuse that.
        read.no_cursor_timeout = false;
        let hinted = match r.hint {
            Some(Hint::Pattern(p)) if r.sort.is_empty() => natural(p),
            _ => None,
        };
        if let Some(backward) = natural(r.sort).or(hinted) {
            read.sort = if backward {
                reversed.as_doc()
            } else {
                Doc::EMPTY
            };
        }
    }
    let stages = find_stages(&read)?;
    let head = r.head();
    let mut cursor = head.on_view(engine, op, view, &stages, r.allow_disk_use)?;
    cursor.flags.single_batch = r.single_batch;
    cursor.flags.no_timeout = r.no_cursor_timeout;
    Ok(cursor)
}
