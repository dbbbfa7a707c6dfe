//! `explain`: what a command would do, and in its executionStats what doing it took.

mod below;
mod generated;
mod pipeline;
pub(crate) mod ran;
mod reply;

pub use pipeline::MapReduceRequest;
pub(crate) use reply::fast_count_ran;
pub use reply::{Verbosity, omitted};

use crate::context::query_context;
use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::hint::{Hint, natural_hint};
use crate::plan::shape::{of_command, shape};
use crate::plan::text::{bind_text, refuse_text};
use crate::source::Source;
use crate::timeseries::BUCKETS;
use crate::verbs::aggregate::AggregateRequest;
use crate::verbs::count::plan_count;
use crate::verbs::count::{CountRequest, window};
use crate::verbs::distinct::{DistinctRequest, distinct_scan};
use crate::verbs::distinct::{distinct, plan_distinct};
use crate::verbs::explain::generated::explain_generated;
use crate::verbs::explain::pipeline::{explain_aggregate, explain_map_reduce};
use crate::verbs::explain::ran::stage_of;
use crate::verbs::explain::ran::write_figures;
use crate::verbs::find::plan_find;
use crate::verbs::find::request::{FindRequest, Parsed};
use crate::verbs::write::change::Change;
use crate::verbs::write::change::Write;
use crate::verbs::write::perform::plan_write;
use crate::verbs::write::update::with_constants;
use crate::verbs::write::{DeleteStatement, FindAndModifyRequest, UpdateStatement};
use below::view_below;
use muniment_query::Filter;
use muniment_query::filter::Node;
use muniment_query::stage::change_stream;
use muniment_storage::{Collection, Store};
use muniment_value::number::narrow;
use muniment_value::{ArrayBuf, Collation, Doc, DocBuf, Result, doc};
use reply::{Around, Planned, Ran, counted, drain, fast_count, planner_doc, report, whole};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// What can be explained.
#[allow(missing_docs)] // the commands' names
pub enum Explainable<'a> {
    Find(&'a FindRequest<'a>),
    Count(&'a CountRequest<'a>),
    Distinct(&'a DistinctRequest<'a>),
    Aggregate(&'a AggregateRequest<'a>),
    Update {
        namespace: &'a str,
        statement: &'a UpdateStatement<'a>,
    },
    Delete {
        namespace: &'a str,
        statement: &'a DeleteStatement<'a>,
    },
    FindAndModify(&'a FindAndModifyRequest<'a>),
    MapReduce(&'a MapReduceRequest<'a>),
}

impl Explainable<'_> {
    /// What the command reads or writes, `db.collection`; `None` for an aggregation of none.
    pub(crate) fn namespace(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Explainable::Find(r) => r.namespace.into(),
            Explainable::Count(r) => r.namespace.into(),
            Explainable::Distinct(r) => r.namespace.into(),
            Explainable::Aggregate(r) => format!("{}.{}", r.db, r.collection?).into(),
            Explainable::Update { namespace, .. } | Explainable::Delete { namespace, .. } => {
                (*namespace).into()
            }
            Explainable::FindAndModify(r) => r.namespace.into(),
            Explainable::MapReduce(r) => r.find.namespace.into(),
        })
    }

    /// What that stands for.
    fn source(&self, store: &Store) -> Result<Option<Source>> {
        self.namespace()
            .map(|namespace| Source::now(store, &namespace))
            .transpose()
    }
}

/// As [`Source::collation`], of a command that has one.
fn collation(
    source: &Option<Source>,
    namespace: &str,
    given: Option<&Collation>,
) -> Result<Collation> {
    match source {
        Some(source) => source.collation(namespace, given),
        None => Ok(given.cloned().unwrap_or_default()),
    }
}

/// As [`Database::explain`].
pub(crate) fn explain(
    engine: &Database,
    op: &Arc<OpContext>,
    what: &Explainable<'_>,
    verbosity: Verbosity,
) -> Result<DocBuf> {
    let mut d = doc! { "explainVersion": "1" };
    let source = what.source(&engine.store)?;
    if let Some(Source::Generated(generated)) = &source
        && explain_generated(engine, op, generated, what, verbosity, &mut d)?
    {
        return Ok(d);
    }
    if let Some((view, stages, hint, let_)) = view_below(&engine.store, what, source.as_ref())? {
        let mut pipeline = view.with(stages.as_doc());
        let (db, mut collection) = view.parts();
        let natural = natural_hint(false);
        let mut hint = hint;
        if Source::now(&engine.store, &view.namespace)?
            .buckets()
            .is_some()
        {
            // The plan of the measurements that buckets are made of; nothing below the making
            // of buckets has a part in the rest.
            collection = collection.strip_prefix(BUCKETS).unwrap_or(collection);
            pipeline = ArrayBuf::new();
            hint = Some(Hint::Pattern(natural.as_doc()));
        }
        let request = AggregateRequest {
            collection: Some(collection),
            hint,
            collation: Some(view.collation.clone()),
            ..AggregateRequest::new(db, pipeline.as_doc(), let_)
        };
        explain_aggregate(engine, op, &request, verbosity, &mut d)?;
        return Ok(d);
    }
    match what {
        Explainable::Find(r) => {
            let collation = collation(&source, r.namespace, r.collation.as_ref())?;
            explain_find(engine, op, r, collation, verbosity, &mut d)?;
        }
        Explainable::Count(r) => explain_count(engine, op, r, verbosity, &mut d)?,
        Explainable::Distinct(r) => explain_distinct(engine, op, r, verbosity, &mut d)?,
        Explainable::Aggregate(r) if change_stream::at_front(r.pipeline).is_some() => {
            return Err(change_stream::not_explained());
        }
        Explainable::Aggregate(r) => explain_aggregate(engine, op, r, verbosity, &mut d)?,
        Explainable::MapReduce(r) => explain_map_reduce(engine, op, r, verbosity, &mut d)?,
        Explainable::Update {
            namespace,
            statement,
        } => {
            let variables = with_constants(statement.let_, statement.constants);
            let collation = collation(&source, namespace, statement.collation.as_ref())?;
            let ctx = query_context(op, variables.as_doc(), collation)?;
            let update = statement.parse(&ctx)?;
            let write = statement.write(&ctx, &update)?;
            explain_write(engine, op, namespace, &write, verbosity, &mut d)?;
        }
        Explainable::Delete {
            namespace,
            statement,
        } => {
            let collation = collation(&source, namespace, statement.collation.as_ref())?;
            let ctx = query_context(op, statement.let_, collation)?;
            let write = Write::new(
                &ctx,
                statement.filter,
                Doc::EMPTY,
                statement.hint,
                statement.multi,
                Change::Delete,
            )?;
            explain_write(engine, op, namespace, &write, verbosity, &mut d)?;
        }
        Explainable::FindAndModify(r) => {
            r.check()?;
            let collation = collation(&source, r.namespace, r.collation.as_ref())?;
            let ctx = query_context(op, r.let_, collation)?;
            let update = r.parse(&ctx)?;
            let write = r.write(&ctx, update.as_ref())?;
            explain_write(engine, op, r.namespace, &write, verbosity, &mut d)?;
        }
    }
    Ok(d)
}

/// The filter with a `$text` in the terms of the collection's index.
fn bound(store: &Store, namespace: &str, filter: Filter) -> Result<Filter> {
    match store.collection(namespace) {
        Some(c) => bind_text(&c, &filter),
        None => refuse_text(namespace, &filter).map(|()| filter),
    }
}

/// True if planCacheSetFilter restricts the indexes of this shape.
fn is_filtered(engine: &Database, collection: &Collection, filter: &Filter, sort: Doc<'_>) -> bool {
    let filter = engine
        .index_filters
        .of(collection, filter, sort, Doc::EMPTY);
    filter.is_some()
}

fn explain_find(
    engine: &Database,
    op: &Arc<OpContext>,
    r: &FindRequest<'_>,
    collation: Collation,
    verbosity: Verbosity,
    d: &mut DocBuf,
) -> Result<()> {
    let ctx = query_context(op, r.let_, collation)?;
    let mut parsed = Parsed::new(&ctx, r.filter, r.sort, r.projection)?;
    parsed.filter = bound(&engine.store, r.namespace, parsed.filter)?;
    let mut planned = Planned::new(
        r.namespace,
        parsed.filter.to_doc(),
        shape(&parsed.filter, r.sort, r.projection),
    );
    if let Some(c) = engine.store.collection(r.namespace) {
        let filters = &engine.index_filters;
        planned.filtered = filters
            .of(&c, &parsed.filter, r.sort, r.projection)
            .is_some();
        planned.choice = Some(plan_find(engine, op, &c, r, parsed, true)?);
    }
    report(op, d, planned, verbosity, Around::Nothing, &mut drain)
}

/// The query of a command that has no more than that, as it is planned.
fn query_of(
    engine: &Database,
    op: &Arc<OpContext>,
    namespace: &str,
    query: Doc<'_>,
    let_: Doc<'_>,
    collation: Option<&Collation>,
) -> Result<Filter> {
    let collation = Source::now(&engine.store, namespace)?.collation(namespace, collation)?;
    let ctx = query_context(op, let_, collation)?;
    bound(&engine.store, namespace, Filter::parse_query(query, &ctx)?)
}

fn explain_count(
    engine: &Database,
    op: &Arc<OpContext>,
    r: &CountRequest<'_>,
    verbosity: Verbosity,
    d: &mut DocBuf,
) -> Result<()> {
    let collation = r.collation.as_ref();
    let filter = query_of(engine, op, r.namespace, r.filter, r.let_, collation)?;
    let mut planned = Planned::new(r.namespace, filter.to_doc(), of_command(&filter, "count"));
    let collection = engine.store.collection(r.namespace);
    if let Some(c) = &collection {
        if matches!(filter.root(), Node::True) && r.hint.is_none() {
            let n = window(c.count(), r);
            fast_count(d, &planned, verbosity, n);
            return Ok(());
        }
        planned.filtered = is_filtered(engine, c, &filter, Doc::EMPTY);
        planned.choice = Some(plan_count(engine, op, c, r, &filter, true)?);
    }
    report(
        op,
        d,
        planned,
        verbosity,
        Around::Stage("COUNT", &counted(0, 0)),
        &mut |op, exec| {
            let mut n = 0;
            while exec.next_row(op)?.is_some() {
                n += 1;
            }
            Ok(Ran {
                figures: counted(n, r.skip),
                ..Ran::default()
            })
        },
    )
}

fn explain_distinct(
    engine: &Database,
    op: &Arc<OpContext>,
    r: &DistinctRequest<'_>,
    verbosity: Verbosity,
    d: &mut DocBuf,
) -> Result<()> {
    let collation = r.collation.as_ref();
    let filter = query_of(engine, op, r.namespace, r.filter, r.let_, collation)?;
    let mut planned = Planned::new(
        r.namespace,
        filter.to_doc(),
        shape(&filter, Doc::EMPTY, Doc::EMPTY),
    );
    let Some(c) = engine.store.collection(r.namespace) else {
        return report(op, d, planned, verbosity, Around::Nothing, &mut drain);
    };
    planned.filtered = is_filtered(engine, &c, &filter, Doc::EMPTY);
    let scan = match planned.filtered {
        true => None,
        false => distinct_scan(&c, r, &filter)?,
    };
    let Some(scan) = scan else {
        planned.choice = Some(plan_distinct(engine, op, &c, r, &filter, true)?);
        return report(op, d, planned, verbosity, Around::Nothing, &mut drain);
    };
    let recipe = engine.recipe(&c, &filter);
    let winner = scan.explain(&recipe, r.key, None);
    d.append("queryPlanner", planner_doc(&planned, &winner, &[]));
    if verbosity == Verbosity::QueryPlanner {
        return Ok(());
    }
    let read = || {
        let c = &op.counters;
        (c.keys_examined.load(Relaxed), c.docs_examined.load(Relaxed))
    };
    let (began, before) = (Instant::now(), read());
    let values = distinct(engine, op, r)?.as_doc().count() as u64;
    let (keys, docs) = read();
    let (keys, docs) = (keys - before.0, docs - before.1);
    let took = began.elapsed();
    let stages = scan.explain(&recipe, r.key, Some(scan.ran(values, keys, took)));
    let mut stats = doc! {
        "executionSuccess": true,
        "nReturned": narrow(values as i64),
        "executionTimeMillis": narrow(took.as_millis() as i64),
        "totalKeysExamined": narrow(keys as i64),
        "totalDocsExamined": narrow(docs as i64),
        "executionStages": whole(&stages),
    };
    if verbosity == Verbosity::AllPlansExecution {
        // There is no other that it could have been tried against.
        stats.append("allPlansExecution", ArrayBuf::new());
    }
    d.append("executionStats", stats);
    Ok(())
}

fn explain_write(
    engine: &Database,
    op: &Arc<OpContext>,
    namespace: &str,
    write: &Write<'_>,
    verbosity: Verbosity,
    d: &mut DocBuf,
) -> Result<()> {
    let source = write
        .sort
        .as_ref()
        .map(|(_, s)| s.clone())
        .unwrap_or_default();
    let mut planned = Planned::new(
        namespace,
        bound(&engine.store, namespace, write.filter.clone())?.to_doc(),
        shape(&write.filter, source.as_doc(), Doc::EMPTY),
    );
    if let Some(c) = engine.store.collection(namespace) {
        planned.filtered = is_filtered(engine, &c, &write.filter, source.as_doc());
        planned.choice = Some(plan_write(engine, op, &c, write, true)?);
    }
    let stage = stage_of(&write.change);
    let figures = |matched, modified| write_figures(&write.change, matched, modified);
    report(
        op,
        d,
        planned,
        verbosity,
        Around::Stage(stage, &figures(0, 0)),
        &mut |op, exec| {
            let (mut matched, mut modified) = (0, 0);
            let mut out = Vec::new();
            while let Some(row) = exec.next_row(op)? {
                matched += 1;
                if let Change::Update { update, .. } = &write.change {
                    out.clear();
                    let changes = update.apply(Doc::new(&row.doc), row.info, &mut out)?;
                    modified += u64::from(changes);
                }
                if !write.multi {
                    break;
                }
            }
            Ok(Ran {
                figures: figures(matched, modified),
                ..Ran::default()
            })
        },
    )
}
