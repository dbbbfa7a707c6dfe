//! `explain` shows what a command would do; its executionStats show what running it took.

mod below;
mod generated;
mod pipeline;
pub(crate) mod ran;
mod reply;

pub use pipeline::MapReduceRequest;
pub(crate) use reply::fast_count_ran;
pub use reply::{Verbosity, omitted};

use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::shape::{of_command, shape};
use crate::plan::text::{bind_text, refuse_text};
use crate::source::Source;
use crate::verbs::aggregate::AggregateRequest;
use crate::verbs::count::{CountRequest, count_stages, plan_count, window};
use crate::verbs::distinct::{
    DistinctRequest, distinct, distinct_scan, distinct_stages, plan_distinct,
};
use crate::verbs::explain::generated::explain_generated;
use crate::verbs::explain::pipeline::{explain_aggregate, explain_map_reduce, front};
use crate::verbs::explain::ran::stage_of;
use crate::verbs::explain::ran::write_figures;
use crate::verbs::find::plan_find;
use crate::verbs::find::request::{FindRequest, Parsed};
use crate::verbs::find::view::find_stages;
use crate::verbs::head::Head;
use crate::verbs::planning::is_filtered;
use crate::verbs::write::bulk::{Statement, Target};
use crate::verbs::write::change::Change;
use crate::verbs::write::change::Write;
use crate::verbs::write::perform::plan_write;
use crate::verbs::write::update::with_constants;
use crate::verbs::write::{DeleteStatement, FindAndModifyRequest, UpdateStatement};
use below::explain_view;
use muniment_query::Filter;
use muniment_query::filter::Node;
use muniment_query::stage::change_stream;
use muniment_storage::Collection;
use muniment_value::number::narrow;
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, doc};
use reply::{Around, Planned, Ran, counted, drain, fast_count, planner_doc, report, whole};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// What can be explained.
#[allow(missing_docs)] // each variant is named after its command
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
    /// The namespace that the command reads or writes, `db.collection`. `None` is an aggregation
    /// that reads no collection.
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

    /// The query part of a command that reads. `namespace` is what [`Explainable::namespace`]
    /// returned.
    fn head<'h>(&'h self, namespace: &'h str) -> Option<Head<'h>> {
        Some(match self {
            Explainable::Find(r) => r.head(),
            Explainable::Count(r) => r.head(),
            Explainable::Distinct(r) => r.head(),
            Explainable::Aggregate(r) => Head {
                namespace,
                filter: front(r.pipeline).0,
                hint: r.hint,
                let_: r.let_,
                collation: r.collation.as_ref(),
            },
            _ => return None,
        })
    }

    /// The pipeline that does what the reading command does, for views.
    ///
    /// # Errors
    /// 168 InvalidPipelineOperator for an option that no stage can express.
    pub fn stages(&self) -> Result<ArrayBuf> {
        Ok(match self {
            Explainable::Find(r) => find_stages(r)?,
            Explainable::Count(r) => count_stages(r),
            Explainable::Distinct(r) => distinct_stages(r),
            Explainable::Aggregate(r) => r.pipeline.values().collect(),
            _ => ArrayBuf::new(),
        })
    }

    /// Refuses to explain a write to something that cannot be written to. Explaining writes
    /// nothing, but MongoDB refuses it as it refuses the write.
    fn refuse(&self, source: &Source, namespace: &str) -> Result<()> {
        match self {
            Explainable::Update { .. }
            | Explainable::Delete { .. }
            | Explainable::FindAndModify(_) => source.refuse_write(namespace),
            Explainable::MapReduce(_) => source.refuse_view(namespace),
            _ => Ok(()),
        }
    }
}

/// Implements [`Database::explain`].
pub(crate) fn explain(
    engine: &Database,
    op: &Arc<OpContext>,
    what: &Explainable<'_>,
    verbosity: Verbosity,
) -> Result<DocBuf> {
    let mut d = doc! { "explainVersion": "1" };
    let named = what.namespace();
    let namespace = named.as_deref().unwrap_or_default();
    if named.is_some() {
        let source = Source::now(&engine.store, namespace)?;
        let head = what.head(namespace);
        if let (Source::Generated(generated), Some(head)) = (&source, &head) {
            explain_generated(engine, op, generated, (what, head), verbosity, &mut d)?;
            return Ok(d);
        }
        what.refuse(&source, namespace)?;
        if let Some(head) = &head
            && let Some(view) = source.as_view(&engine.store, namespace)?
        {
            explain_view(engine, op, &view, (what, head), verbosity, &mut d)?;
            return Ok(d);
        }
    }
    match what {
        Explainable::Find(r) => explain_find(engine, op, r, verbosity, &mut d)?,
        Explainable::Count(r) => explain_count(engine, op, r, verbosity, &mut d)?,
        Explainable::Distinct(r) => explain_distinct(engine, op, r, verbosity, &mut d)?,
        Explainable::Aggregate(r) if change_stream::at_front(r.pipeline).is_some() => {
            return Err(change_stream::not_explained());
        }
        Explainable::Aggregate(r) => explain_aggregate(engine, op, r, verbosity, &mut d)?,
        Explainable::MapReduce(r) => explain_map_reduce(engine, op, r, verbosity, &mut d)?,
        Explainable::Update { .. } | Explainable::Delete { .. } | Explainable::FindAndModify(_) => {
            let on = Target::new(engine, namespace)?;
            explain_statement(engine, op, what, &on, verbosity, &mut d)?;
        }
    }
    Ok(d)
}

/// Binds the filter's `$text` to the collection's text index.
fn bound(collection: Option<&Arc<Collection>>, namespace: &str, filter: Filter) -> Result<Filter> {
    match collection {
        Some(c) => bind_text(c, &filter),
        None => refuse_text(namespace, &filter).map(|()| filter),
    }
}

fn explain_find(
    engine: &Database,
    op: &Arc<OpContext>,
    r: &FindRequest<'_>,
    verbosity: Verbosity,
    d: &mut DocBuf,
) -> Result<()> {
    let (collection, ctx) = r.head().stored_now(engine, op)?;
    let mut parsed = Parsed::new(&ctx, r.filter, r.sort, r.projection)?;
    parsed.filter = bound(collection.as_ref(), r.namespace, parsed.filter)?;
    let mut planned = Planned::new(
        r.namespace,
        parsed.filter.to_doc(),
        shape(&parsed.filter, r.sort, r.projection),
    );
    if let Some(c) = collection {
        planned.filtered = is_filtered(engine, &c, &parsed.filter, r.sort, r.projection);
        planned.choice = Some(plan_find(engine, op, &c, r, parsed, true)?);
    }
    report(op, d, planned, verbosity, Around::Nothing, &mut drain)
}

/// The stored collection that an explained query reads, if there is one, and the filter as the
/// planner gets it.
fn filter_of(
    engine: &Database,
    op: &Arc<OpContext>,
    head: Head<'_>,
) -> Result<(Option<Arc<Collection>>, Filter)> {
    let (collection, ctx) = head.stored_now(engine, op)?;
    let filter = Filter::parse_query(head.filter, &ctx)?;
    let filter = bound(collection.as_ref(), head.namespace, filter)?;
    Ok((collection, filter))
}

fn explain_count(
    engine: &Database,
    op: &Arc<OpContext>,
    r: &CountRequest<'_>,
    verbosity: Verbosity,
    d: &mut DocBuf,
) -> Result<()> {
    let (collection, filter) = filter_of(engine, op, r.head())?;
    let mut planned = Planned::new(r.namespace, filter.to_doc(), of_command(&filter, "count"));
    if let Some(c) = &collection {
        if matches!(filter.root(), Node::True) && r.hint.is_none() {
            let n = window(c.count(), r);
            fast_count(d, &planned, verbosity, n);
            return Ok(());
        }
        planned.filtered = is_filtered(engine, c, &filter, Doc::EMPTY, Doc::EMPTY);
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
    let (collection, filter) = filter_of(engine, op, r.head())?;
    let mut planned = Planned::new(
        r.namespace,
        filter.to_doc(),
        shape(&filter, Doc::EMPTY, Doc::EMPTY),
    );
    let Some(c) = collection else {
        return report(op, d, planned, verbosity, Around::Nothing, &mut drain);
    };
    planned.filtered = is_filtered(engine, &c, &filter, Doc::EMPTY, Doc::EMPTY);
    let scan = match planned.filtered {
        true => None,
        false => distinct_scan(&c, r, &filter, op.work())?,
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
        // This scan is chosen by its bounds and not by a trial, so there are no other plans to
        // show.
        stats.append("allPlansExecution", ArrayBuf::new());
    }
    d.append("executionStats", stats);
    Ok(())
}

/// Explains a write.
fn explain_statement(
    engine: &Database,
    op: &Arc<OpContext>,
    what: &Explainable<'_>,
    on: &Target<'_>,
    verbosity: Verbosity,
    d: &mut DocBuf,
) -> Result<()> {
    match what {
        Explainable::Update { statement, .. } => {
            let variables = with_constants(statement.let_, statement.constants);
            let ctx = on.context(op, variables.as_doc(), statement.collation.as_ref())?;
            let update = statement.parse(&ctx)?;
            let write = statement.write(&ctx, &update)?;
            explain_write(engine, op, on, &write, verbosity, d)
        }
        Explainable::Delete { statement, .. } => statement.with_write(op, on, |write| {
            explain_write(engine, op, on, write, verbosity, d)
        }),
        Explainable::FindAndModify(r) => {
            r.check()?;
            let ctx = on.context(op, r.let_, r.collation.as_ref())?;
            let update = r.parse(&ctx)?;
            let write = r.write(&ctx, update.as_ref())?;
            explain_write(engine, op, on, &write, verbosity, d)
        }
        _ => Ok(()),
    }
}

fn explain_write(
    engine: &Database,
    op: &Arc<OpContext>,
    on: &Target<'_>,
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
        on.namespace,
        bound(on.collection(), on.namespace, write.filter.clone())?.to_doc(),
        shape(&write.filter, source.as_doc(), Doc::EMPTY),
    );
    if let Some(c) = on.collection() {
        planned.filtered = is_filtered(engine, c, &write.filter, source.as_doc(), Doc::EMPTY);
        planned.choice = Some(plan_write(engine, op, c, write, true)?);
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
                    let changes =
                        update.apply(Doc::new(&row.doc), row.info, &mut out, op.work())?;
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
