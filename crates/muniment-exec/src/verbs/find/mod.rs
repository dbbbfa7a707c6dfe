//! The `find` command: resolves the name, plans the query and opens a cursor. A look-up by `_id`
//! needs neither planner nor stages.

pub(crate) mod request;
pub(crate) mod view;

pub use request::FindRequest;

use crate::cursor::{Cursor, CursorFlags, Opener};
use crate::database::Database;
use crate::operation::OpContext;
use crate::oplog::open::find_generated;
use crate::plan::express;
use crate::plan::hint::{Hint, natural_hint};
use crate::plan::query::Query;
use crate::plan::shape::shape;
use crate::plan::text::{bind_text, refuse_text};
use crate::run::choose::{Asked, Choice};
use crate::run::recipe::{Output, Recipe};
use crate::run::still_there;
use crate::source::Source;
use crate::verbs::explain::ran::looked_up;
use crate::verbs::explain::ran::nothing_found;
use crate::verbs::planning::{plan, query, suffice};
use bytes::Bytes;
use muniment_query::filter::near::not_here;
use muniment_query::{Interrupt, Meta, MetaSet, Needs, Projection};
use muniment_storage::Collection;
use muniment_value::{Code, Doc, DocBuf, Error, Result, ValueBuf};
use request::{Parsed, projection_kind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use view::find_view;

/// Implements [`Database::find`].
pub(crate) fn find(
    engine: &Database,
    op: &Arc<OpContext>,
    request: &FindRequest<'_>,
) -> Result<Cursor> {
    let (source, ctx) = request.head().resolve(engine, op)?;
    if request.sort_key {
        ctx.metadata.note(MetaSet::NONE.with(Meta::MergeKey));
    }
    let parsed = Parsed::new(&ctx, request.filter, request.sort, request.projection)?;
    if request.sort_key && parsed.sort.is_none() && parsed.filter.near().is_none() {
        return Err(Error::bad_value("a find without an order has no sort keys"));
    }
    let flags = CursorFlags {
        tailable: request.tailable,
        await_data: request.await_data,
        no_timeout: request.no_cursor_timeout,
        single_batch: request.single_batch,
        follows: false,
    };
    let collection = match source {
        Source::Collection(collection) => collection,
        Source::Generated(generated) => {
            return find_generated(engine, op, generated, request, parsed, flags);
        }
        other => {
            return match other.as_view(&engine.store, request.namespace)? {
                Some(view) => find_view(engine, op, &view, request),
                None => {
                    op.set_point_plan("EOF");
                    op.set_exec_stats(nothing_found);
                    refuse_text(request.namespace, &parsed.filter)?;
                    Ok(Cursor::empty(request.namespace, flags))
                }
            };
        }
    };
    if request.may_look_up()
        && !request.return_key
        && parsed.metadata.is_empty()
        && collection.finds_by_id()
        && let Some(id) = parsed.filter.id_equality_by(collection.collation())
    {
        let express = request.look_up(parsed.metadata).express;
        let summary = express::summary(&collection, express, None);
        op.set_point_plan(summary);
        let doc = find_by_id(engine, op, &collection, &parsed, id);
        let context = |e: Error| e.context(&Opener::Find.context(request.namespace));
        let doc = doc.map_err(context)?;
        let keyed = collection.is_keyed_by_id();
        op.set_exec_stats(|| looked_up(summary, keyed, u64::from(doc.is_some()), None));
        return Ok(Cursor::of_one(request.namespace, doc, flags));
    }
    if request.tailable {
        check_tailable(&collection, request, &parsed)?;
    }
    let choice = plan_find(engine, op, &collection, request, parsed, false);
    let context = Opener::Find.context(request.namespace);
    let choice = choice.map_err(|e| e.executing_context(&context))?;
    let mut exec = choice.exec;
    exec.announce(op);
    Ok(Cursor::of_exec(request.namespace, collection, exec, flags))
}

/// Finds one document by its `_id` without a planner and without stages.
fn find_by_id(
    engine: &Database,
    op: &OpContext,
    collection: &Collection,
    parsed: &Parsed,
    id: &ValueBuf,
) -> Result<Option<Bytes>> {
    op.check()?;
    let found = match op.reads_newest() {
        false => {
            let view = op.view(&engine.store, collection)?;
            view.find_by_id(collection, id.as_value())?
        }
        true => {
            let view = engine.store.glance()?;
            still_there(view.timestamp(), collection, [])?;
            op.check_seen(collection, view.timestamp())?;
            view.find_by_id(collection, id.as_value())?
        }
    };
    let Some((_, doc)) = found else {
        return Ok(None);
    };
    op.counters
        .keys_examined
        .fetch_add(u64::from(!collection.is_keyed_by_id()), Relaxed);
    op.counters.docs_examined.fetch_add(1, Relaxed);
    let Some(projection) = &parsed.projection else {
        return Ok(Some(doc));
    };
    let info = if projection.needs_match_info() {
        parsed.filter.matches_info(Doc::new(&doc), op.work())?
    } else {
        None
    };
    let mut out = Vec::with_capacity(doc.len());
    projection.apply(
        Doc::new(&doc),
        info.unwrap_or_default(),
        &mut out,
        op.work(),
    )?;
    Ok(Some(Bytes::from(out)))
}

/// Plans a find. At most the trials of competing plans are run.
pub(crate) fn plan_find(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    request: &FindRequest<'_>,
    parsed: Parsed,
    explain: bool,
) -> Result<Choice> {
    let parsed = Parsed {
        filter: bind_text(collection, &parsed.filter)?,
        ..parsed
    };
    let scan = scan_asked_for(request, &parsed)?;
    let hint = match &scan {
        Some(scan) => Some(Hint::Pattern(scan.as_doc())),
        None => request.hint,
    };
    let needs = needed_paths(request, &parsed);
    // MongoDB allows a geo query on the buckets' places only in $geoNear.
    if collection.is_time_series() && parsed.filter.near().is_some() {
        return Err(not_here());
    }
    let projection = parsed.projection.as_ref();
    let only_needs = projection.is_some_and(|p| p.included_paths().is_some());
    let want_info = projection.is_some_and(Projection::needs_match_info);
    let recipe = Recipe {
        shared: None,
        store: engine.store.clone(),
        collection: collection.clone(),
        filter: parsed.filter,
        sort: parsed.sort,
        skip: request.skip,
        limit: (request.limit > 0).then_some(request.limit),
        output: output(request, parsed.projection),
        // returnKey gives the key and nothing else.
        show_record_id: request.show_record_id,
        sort_key: request.sort_key,
        tailable: request.tailable,
        want_info,
        sort_limits: engine.sort_limits(request.allow_disk_use),
        keys_only: false,
        needs: None,
        metadata: parsed.metadata,
    };
    let query = Query {
        sort: recipe.sort.as_ref().map(|(s, _)| s),
        needs: needs.as_deref(),
        only_needs,
        hint,
        min: request.min,
        max: request.max,
        look_up: request.look_up(recipe.metadata),
        ..query(engine, collection, &recipe.filter, request.told())
    };
    plan(
        engine,
        op,
        &query,
        &recipe,
        || Asked {
            shape: shape(&recipe.filter, request.sort, request.projection),
            filter: Some(request.filter),
        },
        explain,
    )
}

/// The `$natural` hint for the collection scan that the request asks for, if it asks for one.
///
/// # Errors
/// 2 BadValue for one that asks for `$text`, too.
fn scan_asked_for(request: &FindRequest<'_>, parsed: &Parsed) -> Result<Option<DocBuf>> {
    let has_text = parsed.filter.has_text();
    if request.tailable && has_text {
        return Err(Error::bad_value(
            "text and tailable cursor not allowed in same query",
        ));
    }
    if parsed.natural.is_some() && has_text {
        return Err(Error::bad_value(
            "text expression not allowed with $natural sort order",
        ));
    }
    // A tailable cursor waits at the collection's end, where no index leads, so it scans forward.
    Ok(match request.tailable {
        true => Some(natural_hint(false)),
        false => parsed.natural.map(natural_hint),
    })
}

/// The paths that the projection reads; `None` if the documents are needed whole.
fn needed_paths(request: &FindRequest<'_>, parsed: &Parsed) -> Option<Vec<String>> {
    // With these options they are, even if the projection names a few fields.
    if request.show_record_id || request.return_key {
        return None;
    }
    let mut needs = Needs::default();
    if !parsed.projection.as_ref()?.needs(&mut needs) {
        return None;
    }
    let sort = parsed.sort.as_ref().map(|(s, _)| s);
    needs
        .into_paths()
        .filter(|paths| suffice(paths, sort, parsed.metadata))
}

fn output(request: &FindRequest<'_>, projection: Option<Projection>) -> Output {
    match projection {
        _ if request.return_key => Output::Key,
        None => Output::Whole,
        Some(projection) => Output::Projected {
            projection,
            source: request.projection.to_buf(),
            kind: projection_kind(request.projection),
        },
    }
}

fn check_tailable(
    collection: &Collection,
    request: &FindRequest<'_>,
    parsed: &Parsed,
) -> Result<()> {
    if collection.is_time_series() {
        return Err(Error::new(
            Code::InvalidPipelineOperator,
            "Option tailable not supported in aggregation.",
        ));
    }
    if !collection.is_capped() {
        return Err(Error::bad_value(format!(
            "error processing query: ns={} tailable cursor requested on non capped collection",
            request.namespace
        )));
    }
    if parsed.sort.is_some() || parsed.natural == Some(true) {
        return Err(Error::bad_value(
            "error processing query: tailable cursors may only be sorted by {$natural: 1}",
        ));
    }
    Ok(())
}
