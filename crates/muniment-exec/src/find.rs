//! `find`.

use crate::cursor::{Cursor, CursorFlags, Opener};
use crate::database::Database;
use crate::explain::nothing_found;
use crate::operation::OpContext;
use crate::oplog;
use crate::plan::candidate::{Query, candidates, natural};
use crate::plan::choose::{Asked, Choice, choose};
use crate::plan::express::{self, LookUp};
use crate::plan::shape::shape;
use crate::plan::text::{bind_text, refuse_text};
use crate::run::exec::{Output, ProjectionKind, Recipe};
use crate::run::still_there;
use bytes::Bytes;
use muniment_query::filter::near::not_here;
use muniment_query::{Filter, Interrupt, MetaSet, Needs, Projection, QueryContext, SortSpec};
use muniment_storage::Collection;
use muniment_value::{Code, Collation, Doc, DocBuf, Error, Result, Value, ValueBuf, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// An index hint.
#[derive(Clone, Copy, Debug)]
pub enum Hint<'a> {
    /// By name.
    Name(&'a str),
    /// By key pattern, or `{$natural: ±1}`.
    Pattern(Doc<'a>),
}

/// A `find` command's content. `Default` gives an empty filter and no option.
#[derive(Clone, Debug)]
pub struct FindRequest<'a> {
    /// `db.collection`.
    pub namespace: &'a str,
    /// The filter.
    pub filter: Doc<'a>,
    /// The projection; empty for none.
    pub projection: Doc<'a>,
    /// The sort; empty for none. `{$natural: ±1}` is understood.
    pub sort: Doc<'a>,
    /// Documents to skip.
    pub skip: u64,
    /// Most documents to return over all batches; 0 for no limit.
    pub limit: u64,
    /// The hint.
    pub hint: Option<Hint<'a>>,
    /// Inclusive lower bound on the hinted index's keys; empty for none.
    pub min: Doc<'a>,
    /// Exclusive upper bound; empty for none.
    pub max: Doc<'a>,
    /// Return index keys instead of documents.
    pub return_key: bool,
    /// Add `$recordId`.
    pub show_record_id: bool,
    /// Tailable, for capped collections.
    pub tailable: bool,
    /// getMore waits for data; with `tailable` only.
    pub await_data: bool,
    /// The cursor does not time out.
    pub no_cursor_timeout: bool,
    /// Close the cursor after the first batch.
    pub single_batch: bool,
    /// The first batch's size was given.
    pub batched: bool,
    /// `allowDiskUse`: `Some(false)` makes a sort above the memory limit an error.
    pub allow_disk_use: Option<bool>,
    /// The command's `let`, as it came (values may be expressions).
    pub let_: Doc<'a>,
    /// How texts compare; `None`: as the collection has it.
    pub collation: Option<Collation>,
}

impl<'a> FindRequest<'a> {
    /// A find of everything in `namespace`.
    pub fn new(namespace: &'a str) -> FindRequest<'a> {
        FindRequest {
            namespace,
            filter: Doc::EMPTY,
            projection: Doc::EMPTY,
            sort: Doc::EMPTY,
            skip: 0,
            limit: 0,
            hint: None,
            min: Doc::EMPTY,
            max: Doc::EMPTY,
            return_key: false,
            show_record_id: false,
            tailable: false,
            await_data: false,
            no_cursor_timeout: false,
            single_batch: false,
            batched: false,
            allow_disk_use: None,
            let_: Doc::EMPTY,
            collation: None,
        }
    }
}

impl<'a> Hint<'a> {
    /// Reads a command's `hint`: a string or a document; an empty document is no hint.
    ///
    /// # Errors
    /// 9 FailedToParse "Hint must be a string or an object".
    pub fn parse(value: Value<'a>) -> Result<Option<Hint<'a>>> {
        match value {
            Value::String(s) => Ok(Some(Hint::Name(s))),
            Value::Document(d) if d.is_empty() => Ok(None),
            Value::Document(d) => {
                if let Some(v) = d.get("$natural")
                    && (d.count() > 1
                        || !matches!(muniment_value::number::to_i64_exact(v), Some(1 | -1)))
                {
                    return Err(Error::bad_value(
                        "$natural hint must stand alone, with the value 1 or -1",
                    ));
                }
                Ok(Some(Hint::Pattern(d)))
            }
            _ => Err(Error::failed_to_parse("Hint must be a string or an object")),
        }
    }
}

impl FindRequest<'_> {
    /// True when an `_id` alone decides what is found.
    fn may_look_up(&self) -> bool {
        self.hint.is_none()
            && self.min.is_empty()
            && self.max.is_empty()
            && self.skip == 0
            && !self.show_record_id
            && !self.tailable
    }

    /// The short ways that MongoDB takes with such a request.
    fn look_up(&self, metadata: MetaSet) -> LookUp {
        let by_id = self.may_look_up();
        let simple = projection_kind(self.projection) == ProjectionKind::Simple;
        let express = by_id && !self.return_key && !self.batched && metadata.is_empty();
        LookUp {
            by_id,
            express: express && simple,
            by_field: express && self.projection.is_empty(),
            one: self.limit == 1,
        }
    }
}

/// A find with everything parsed: what runs and what explain looks at.
pub(crate) struct Parsed {
    pub filter: Filter,
    pub sort: Option<(SortSpec, DocBuf)>,
    pub natural: Option<bool>,
    pub projection: Option<Projection>,
    /// What the sort and the projection ask for.
    pub metadata: MetaSet,
}

impl Parsed {
    pub(crate) fn new(
        ctx: &QueryContext,
        filter: Doc<'_>,
        sort: Doc<'_>,
        projection: Doc<'_>,
    ) -> Result<Parsed> {
        let filter = Filter::parse_query(filter, ctx)?;
        let given = filter.metadata();
        let behind;
        let ctx = if given.is_empty() {
            ctx
        } else {
            behind = ctx.clone().with_metadata(given);
            &behind
        };
        let natural = natural(sort);
        if sort.count() > 1 && sort.iter().any(|e| e.name() == "$natural") {
            return Err(Error::bad_value(
                "Cannot include '$natural' in compound sort",
            ));
        }
        let sort = if sort.is_empty() || natural.is_some() {
            None
        } else {
            Some((SortSpec::parse(sort, ctx)?, sort.to_buf()))
        };
        let projection = if projection.is_empty() {
            None
        } else {
            Some(Projection::parse(projection, Some(&filter), ctx)?)
        };
        Ok(Parsed {
            filter,
            sort,
            natural,
            projection,
            metadata: ctx.metadata.asked(),
        })
    }
}

/// `{$natural: ±1}` as a hint.
pub(crate) fn natural_hint(backward: bool) -> DocBuf {
    doc! { "$natural": if backward { -1 } else { 1 } }
}

/// A projection of numbers and booleans on top-level names.
pub(crate) fn projection_kind(source: Doc<'_>) -> ProjectionKind {
    let simple = source.iter().all(|e| {
        !e.name().contains(['.', '$'])
            && (e.value().is_number() || matches!(e.value(), Value::Bool(_)))
    });
    if simple {
        ProjectionKind::Simple
    } else {
        ProjectionKind::Default
    }
}

impl Database {
    /// Plans a find and opens its cursor (nothing is read yet). A collection that does not exist
    /// gives an empty cursor.
    ///
    /// # Errors
    /// What parsing filter, projection and sort raises; 2 BadValue for a bad hint
    /// ("error processing query: … planner returned error: bad hint"), for min/max without a
    /// fitting hint (51173 and its like), for a tailable cursor on a collection that is not
    /// capped.
    pub fn find(&self, op: &Arc<OpContext>, request: &FindRequest<'_>) -> Result<Cursor> {
        let there = op.collection(&self.store, request.namespace)?;
        let given = request.collation.as_ref();
        let collation = self.collation_on(request.namespace, there.as_deref(), given)?;
        let ctx = self.query_context(op, request.let_, collation)?;
        let parsed = Parsed::new(&ctx, request.filter, request.sort, request.projection)?;
        let flags = CursorFlags {
            tailable: request.tailable,
            await_data: request.await_data,
            no_timeout: request.no_cursor_timeout,
            single_batch: request.single_batch,
            follows: false,
        };
        let Some(collection) = there else {
            if let Some(generated) = oplog::generated(request.namespace) {
                return self.find_generated(op, generated, request, parsed, flags);
            }
            return match self.resolve_view(request.namespace)? {
                Some(view) => self.find_view(op, &view, request),
                None => {
                    op.set_point_plan("EOF");
                    op.set_exec_stats(nothing_found);
                    refuse_text(request.namespace, &parsed.filter)?;
                    Ok(Cursor::empty(request.namespace, flags))
                }
            };
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
            let doc = self.find_by_id(op, &collection, &parsed, id);
            let context = |e: Error| e.context(&Opener::Find.context(request.namespace));
            let doc = doc.map_err(context)?;
            let keyed = collection.is_keyed_by_id();
            op.set_exec_stats(|| express::ran(summary, keyed, u64::from(doc.is_some()), None));
            return Ok(Cursor::of_one(request.namespace, doc, flags));
        }
        if request.tailable {
            check_tailable(&collection, request, &parsed)?;
        }
        let choice = self.plan_find(op, &collection, request, parsed, false);
        let context = Opener::Find.context(request.namespace);
        let choice = choice.map_err(|e| e.executing_context(&context))?;
        let mut exec = choice.exec;
        exec.announce(op);
        Ok(Cursor::of_exec(request.namespace, collection, exec, flags))
    }

    /// One document by `_id`: no planner, no stages.
    fn find_by_id(
        &self,
        op: &OpContext,
        collection: &Collection,
        parsed: &Parsed,
        id: &ValueBuf,
    ) -> Result<Option<Bytes>> {
        op.check()?;
        let found = match op.reads_newest() {
            false => {
                let view = op.view(&self.store, collection)?;
                view.find_by_id(collection, id.as_value())?
            }
            true => {
                let view = self.store.glance()?;
                still_there(view.timestamp(), collection, [])?;
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
            parsed.filter.matches_info(Doc::new(&doc))?
        } else {
            None
        };
        let mut out = Vec::with_capacity(doc.len());
        projection.apply(Doc::new(&doc), info.unwrap_or_default(), &mut out)?;
        Ok(Some(Bytes::from(out)))
    }

    /// Plans a find without running more than a trial.
    pub(crate) fn plan_find(
        &self,
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
        if request.tailable && parsed.filter.has_text() {
            return Err(Error::bad_value(
                "text and tailable cursor not allowed in same query",
            ));
        }
        let natural = parsed.natural.map(natural_hint);
        let hint = match &natural {
            Some(_) if parsed.filter.has_text() => {
                return Err(Error::bad_value(
                    "text expression not allowed with $natural sort order",
                ));
            }
            Some(n) => Some(Hint::Pattern(n.as_doc())),
            None => request.hint,
        };
        // What is new stands at the end of the collection, where no index leads.
        let forward = natural_hint(false);
        let hint = match request.tailable {
            true => Some(Hint::Pattern(forward.as_doc())),
            false => hint,
        };
        // These change what is returned, or what must be known for it.
        let whole = request.show_record_id || request.return_key || !parsed.metadata.is_empty();
        let needs = parsed.projection.as_ref().filter(|_| !whole).and_then(|p| {
            let mut needs = Needs::default();
            p.needs(&mut needs).then(|| needs.into_paths()).flatten()
        });
        // MongoDB has the buckets' places only in $geoNear.
        if collection.is_time_series() && parsed.filter.near().is_some() {
            return Err(not_here());
        }
        let query = Query {
            filter: &parsed.filter,
            sort: parsed.sort.as_ref().map(|(s, _)| s),
            needs: needs.as_deref(),
            only_needs: parsed
                .projection
                .as_ref()
                .is_some_and(|p| p.included_paths().is_some()),
            hint,
            min: request.min,
            max: request.max,
            allowed: self.index_filters.of(
                collection,
                &parsed.filter,
                request.sort,
                request.projection,
            ),
            look_up: request.look_up(parsed.metadata),
        };
        let candidates = candidates(collection, &query)?;
        let want_info = parsed
            .projection
            .as_ref()
            .is_some_and(Projection::needs_match_info);
        let output = match parsed.projection {
            _ if request.return_key => Output::Key,
            None => Output::Whole,
            Some(projection) => Output::Projected {
                projection,
                source: request.projection.to_buf(),
                kind: projection_kind(request.projection),
            },
        };
        let recipe = Recipe {
            shared: None,
            store: self.store.clone(),
            collection: collection.clone(),
            filter: parsed.filter.clone(),
            sort: parsed.sort,
            skip: request.skip,
            limit: (request.limit > 0).then_some(request.limit),
            output,
            // returnKey gives the key and nothing else.
            show_record_id: request.show_record_id,
            tailable: request.tailable,
            want_info,
            sort_limits: self.sort_limits(request.allow_disk_use),
            keys_only: false,
            needs: None,
            metadata: parsed.metadata,
        };
        choose(
            &self.plans,
            op,
            &recipe,
            candidates,
            || Asked {
                shape: shape(&parsed.filter, request.sort, request.projection),
                filter: Some(request.filter),
            },
            explain,
        )
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
