//! `explain`: what a command would do, and in its executionStats what doing it took.

mod generated;
mod pipeline;
mod reply;

pub use pipeline::MapReduceRequest;
pub(crate) use reply::fast_count_ran;
pub use reply::omitted;

use crate::aggregate::AggregateRequest;
use crate::count::{CountRequest, window};
use crate::database::Database;
use crate::distinct::{DistinctRequest, distinct_scan};
use crate::find::{FindRequest, Hint, Parsed, natural_hint};
use crate::operation::OpContext;
use crate::plan::shape::{of_command, shape};
use crate::plan::text::{bind_text, refuse_text};
use crate::run::exec::Exec;
use crate::timeseries::BUCKETS;
use crate::write::core::{Change, Write, is_everything, with_constants};
use crate::write::{DeleteStatement, FindAndModifyRequest, UpdateStatement};
use muniment_query::stage::change_stream;
use muniment_query::{Filter, Update};
use muniment_storage::Collection;
use muniment_value::number::narrow;
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, doc};
use reply::{
    Around, Planned, Ran, counted, drain, fast_count, on_nothing, planner_doc, report, stages,
    whole,
};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// How much explain tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Plans only.
    QueryPlanner,
    /// Runs the winner and counts.
    ExecutionStats,
    /// Also what the trial of the others showed.
    AllPlansExecution,
}

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

impl Database {
    /// Explains: `{explainVersion, queryPlanner, executionStats}` (for an aggregation with stages
    /// on top `{explainVersion, stages: […]}`). Writes nothing. The caller adds `command`,
    /// `serverInfo`, `serverParameters` and `ok`.
    ///
    /// # Errors
    /// As the command itself.
    pub fn explain(
        &self,
        op: &Arc<OpContext>,
        what: &Explainable<'_>,
        verbosity: Verbosity,
    ) -> Result<DocBuf> {
        let mut d = doc! { "explainVersion": "1" };
        if self.explain_generated(op, what, verbosity, &mut d)? {
            return Ok(d);
        }
        if let Some((view, stages, hint, let_)) = self.view_below(what)? {
            let mut pipeline = view.with(stages.as_doc());
            let (db, mut collection) = view.parts();
            let natural = natural_hint(false);
            let mut hint = hint;
            if self.buckets_of(&view.namespace).is_some() {
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
            self.explain_aggregate(op, &request, verbosity, &mut d)?;
            return Ok(d);
        }
        match what {
            Explainable::Find(r) => {
                let collation = self.collation_for(r.namespace, r.collation.as_ref())?;
                let ctx = self.query_context(op, r.let_, collation)?;
                let mut parsed = Parsed::new(&ctx, r.filter, r.sort, r.projection)?;
                parsed.filter = self.bound(r.namespace, parsed.filter)?;
                let mut planned = Planned::new(
                    r.namespace,
                    parsed.filter.to_doc(),
                    shape(&parsed.filter, r.sort, r.projection),
                );
                if let Some(c) = self.store.collection(r.namespace) {
                    let filters = &self.index_filters;
                    planned.filtered = filters
                        .of(&c, &parsed.filter, r.sort, r.projection)
                        .is_some();
                    planned.choice = Some(self.plan_find(op, &c, r, parsed, true)?);
                }
                report(op, &mut d, planned, verbosity, Around::Nothing, &mut drain)?;
            }
            Explainable::Count(r) => self.explain_count(op, r, verbosity, &mut d)?,
            Explainable::Distinct(r) => self.explain_distinct(op, r, verbosity, &mut d)?,
            Explainable::Aggregate(r) if change_stream::at_front(r.pipeline).is_some() => {
                return Err(change_stream::not_explained());
            }
            Explainable::Aggregate(r) => self.explain_aggregate(op, r, verbosity, &mut d)?,
            Explainable::MapReduce(r) => self.explain_map_reduce(op, r, verbosity, &mut d)?,
            Explainable::Update {
                namespace,
                statement,
            } => {
                let variables = with_constants(statement.let_, statement.constants);
                let collation = self.collation_for(namespace, statement.collation.as_ref())?;
                let ctx = self.query_context(op, variables.as_doc(), collation)?;
                let update = statement.parse(&ctx)?;
                let write = statement.write(&ctx, &update)?;
                self.explain_write(op, namespace, &write, verbosity, &mut d)?;
            }
            Explainable::Delete {
                namespace,
                statement,
            } => {
                let collation = self.collation_for(namespace, statement.collation.as_ref())?;
                let ctx = self.query_context(op, statement.let_, collation)?;
                let write = Write::new(
                    &ctx,
                    statement.filter,
                    Doc::EMPTY,
                    statement.hint,
                    statement.multi,
                    Change::Delete,
                )?;
                self.explain_write(op, namespace, &write, verbosity, &mut d)?;
            }
            Explainable::FindAndModify(r) => {
                r.check()?;
                let collation = self.collation_for(r.namespace, r.collation.as_ref())?;
                let ctx = self.query_context(op, r.let_, collation)?;
                let update = match r.update {
                    Some(u) => Some(Update::parse(u, r.array_filters, &ctx)?),
                    None => None,
                };
                let write = r.write(&ctx, update.as_ref())?;
                self.explain_write(op, r.namespace, &write, verbosity, &mut d)?;
            }
        }
        Ok(d)
    }

    /// The filter with a `$text` in the terms of the collection's index.
    fn bound(&self, namespace: &str, filter: Filter) -> Result<Filter> {
        match self.store.collection(namespace) {
            Some(c) => bind_text(&c, &filter),
            None => refuse_text(namespace, &filter).map(|()| filter),
        }
    }

    /// True if planCacheSetFilter restricts the indexes of this shape.
    fn is_filtered(&self, collection: &Collection, filter: &Filter, sort: Doc<'_>) -> bool {
        let filter = self.index_filters.of(collection, filter, sort, Doc::EMPTY);
        filter.is_some()
    }

    fn explain_count(
        &self,
        op: &Arc<OpContext>,
        r: &CountRequest<'_>,
        verbosity: Verbosity,
        d: &mut DocBuf,
    ) -> Result<()> {
        let ctx = self.query_context(op, r.let_, self.count_collation(r)?)?;
        let filter = self.bound(r.namespace, Filter::parse_query(r.filter, &ctx)?)?;
        let mut planned = Planned::new(r.namespace, filter.to_doc(), of_command(&filter, "count"));
        let collection = self.store.collection(r.namespace);
        if let Some(c) = &collection {
            if is_everything(&filter) && r.hint.is_none() {
                let n = window(c.count(), r);
                fast_count(d, &planned, verbosity, n);
                return Ok(());
            }
            planned.filtered = self.is_filtered(c, &filter, Doc::EMPTY);
            planned.choice = Some(self.plan_count(op, c, r, &filter, true)?);
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
        &self,
        op: &Arc<OpContext>,
        r: &DistinctRequest<'_>,
        verbosity: Verbosity,
        d: &mut DocBuf,
    ) -> Result<()> {
        let ctx = self.query_context(op, r.let_, self.distinct_collation(r)?)?;
        let filter = self.bound(r.namespace, Filter::parse_query(r.filter, &ctx)?)?;
        let mut planned = Planned::new(
            r.namespace,
            filter.to_doc(),
            shape(&filter, Doc::EMPTY, Doc::EMPTY),
        );
        let Some(c) = self.store.collection(r.namespace) else {
            return report(op, d, planned, verbosity, Around::Nothing, &mut drain);
        };
        planned.filtered = self.is_filtered(&c, &filter, Doc::EMPTY);
        let scan = match planned.filtered {
            true => None,
            false => distinct_scan(&c, r, &filter)?,
        };
        let Some(scan) = scan else {
            planned.choice = Some(self.plan_distinct(op, &c, r, &filter, true)?);
            return report(op, d, planned, verbosity, Around::Nothing, &mut drain);
        };
        let recipe = self.recipe(&c, &filter);
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
        let values = self.distinct(op, r)?.as_doc().count() as u64;
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
        &self,
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
            self.bound(namespace, write.filter.clone())?.to_doc(),
            shape(&write.filter, source.as_doc(), Doc::EMPTY),
        );
        if let Some(c) = self.store.collection(namespace) {
            planned.filtered = self.is_filtered(&c, &write.filter, source.as_doc());
            planned.choice = Some(self.plan_write(op, &c, write, true)?);
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
}

/// The stage of a write.
pub(crate) fn stage_of(change: &Change<'_>) -> &'static str {
    match change {
        Change::Update { .. } => "UPDATE",
        Change::Delete => "DELETE",
    }
}

/// What the stage of a write tells.
pub(crate) fn write_figures(change: &Change<'_>, matched: u64, modified: u64) -> DocBuf {
    match change {
        Change::Update { upsert, .. } => doc! {
            "nMatched": narrow(matched as i64),
            "nWouldModify": narrow(modified as i64),
            "nWouldUpsert": i32::from(*upsert && matched == 0),
        },
        Change::Delete => doc! { "nWouldDelete": narrow(matched as i64) },
    }
}

/// What a write's plan did, as executionStats show it.
pub(crate) fn wrote(exec: &Exec, change: &Change<'_>, matched: u64, modified: u64) -> DocBuf {
    let figures = write_figures(change, matched, modified);
    below(exec, stage_of(change), figures)
}

/// The same of a write to a collection that does not exist.
pub(crate) fn nothing_wrote(change: &Change<'_>) -> DocBuf {
    let figures = write_figures(change, 0, 0);
    on_nothing(Around::Stage(stage_of(change), &figures), true)
}

/// What a find did in a collection that does not exist.
pub(crate) fn nothing_found() -> DocBuf {
    on_nothing(Around::Nothing, true)
}

/// What a count's plan did; `None`: the collection does not exist.
pub(crate) fn count_ran(exec: Option<&Exec>, n: u64, skip: u64) -> DocBuf {
    let figures = counted(n, skip);
    match exec {
        Some(exec) => below(exec, "COUNT", figures),
        None => on_nothing(Around::Stage("COUNT", &figures), true),
    }
}

fn below(exec: &Exec, stage: &str, figures: DocBuf) -> DocBuf {
    let ran = Ran {
        figures,
        ..Ran::default()
    };
    stages(exec, Around::Stage(stage, &DocBuf::new()), Some(&ran))
}
