//! `explain`.

use crate::aggregate::{AggregateRequest, Split, SplitPlan};
use crate::count::{CountRequest, window};
use crate::cursor::CurrentOp;
use crate::database::Database;
use crate::distinct::{DistinctRequest, distinct_scan};
use crate::find::{FindRequest, Parsed};
use crate::host::Link;
use crate::operation::OpContext;
use crate::plan::choose::Choice;
use crate::plan::shape::{hash, of_command, shape};
use crate::plan::text::{bind_text, refuse_text};
use crate::run::Stats;
use crate::run::exec::{Exec, Recipe, wrap};
use crate::write::core::{Change, Write, is_everything, with_constants};
use crate::write::{DeleteStatement, FindAndModifyRequest, UpdateStatement};
use muniment_query::stage::geo_near::{at_front, behind_near};
use muniment_query::{Filter, Pipeline, QueryContext, Update};
use muniment_storage::Collection;
use muniment_value::number::narrow;
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, Value, doc};
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
}

/// Fields that explain shows beside the stages.
struct Planned<'p> {
    namespace: &'p str,
    parsed_query: DocBuf,
    shape: String,
    began: Instant,
    choice: Option<Choice>,
    /// planCacheSetFilter restricts its indexes.
    filtered: bool,
}

/// What goes around the plan's own stages.
#[derive(Clone, Copy)]
enum Around<'s> {
    Nothing,
    /// A stage above, with figures that the run found.
    Stage(&'s str),
}

/// What a run of the plan found.
#[derive(Default)]
struct Ran {
    /// Rows that the top stage returns.
    returned: u64,
    /// Figures of the top stage.
    figures: DocBuf,
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
        if let Some((view, stages, hint, let_)) = self.view_below(what)? {
            let pipeline = view.with(stages.as_doc());
            let (db, collection) = view.parts();
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
                let mut planned = Planned {
                    namespace: r.namespace,
                    parsed_query: parsed.filter.to_doc(),
                    shape: shape(&parsed.filter, r.sort, r.projection),
                    began: Instant::now(),
                    choice: None,
                    filtered: false,
                };
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
            Explainable::Aggregate(r) => self.explain_aggregate(op, r, verbosity, &mut d)?,
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
        let mut planned = Planned {
            namespace: r.namespace,
            parsed_query: filter.to_doc(),
            shape: of_command(&filter, "count"),
            began: Instant::now(),
            choice: None,
            filtered: false,
        };
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
            Around::Stage("COUNT"),
            &mut |op, exec| {
                let mut n = 0_i64;
                while exec.next_row(op)?.is_some() {
                    n += 1;
                }
                Ok(Ran {
                    returned: 0,
                    figures: doc! { "nCounted": narrow(n), "nSkipped": narrow(r.skip as i64) },
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
        let mut planned = Planned {
            namespace: r.namespace,
            parsed_query: filter.to_doc(),
            shape: shape(&filter, Doc::EMPTY, Doc::EMPTY),
            began: Instant::now(),
            choice: None,
            filtered: false,
        };
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
        let recipe = Recipe {
            keys_only: true,
            ..self.recipe(&c, &filter)
        };
        let plan = Exec::build(&recipe, &scan.candidate, None).explain(false);
        let plan = rename(plan, "DISTINCT_SCAN");
        let mut value = doc! { "_id": 0 };
        value.append(r.key, 1);
        let covered = |stage: &DocBuf| {
            doc! {
                "stage": "PROJECTION_COVERED",
                "transformBy": &value,
                "inputStage": stage,
            }
        };
        let winner = covered(&plan);
        d.append("queryPlanner", planner_doc(&planned, winner, &[]));
        if verbosity > Verbosity::QueryPlanner {
            // Counted by an operation of its own.
            let own = OpContext::internal("explain");
            let values = self.distinct(&own, r)?;
            let keys = own.counters.keys_examined.load(Relaxed) as i64;
            let docs = own.counters.docs_examined.load(Relaxed) as i64;
            let mut stage = plan;
            stage.append("nReturned", narrow(values.len() as i64));
            stage.append("keysExamined", narrow(keys));
            d.append(
                "executionStats",
                doc! {
                    "executionSuccess": true,
                    "nReturned": narrow(values.len() as i64),
                    "executionTimeMillis": narrow(own.started().elapsed().as_millis() as i64),
                    "totalKeysExamined": narrow(keys),
                    "totalDocsExamined": narrow(docs),
                    "executionStages": covered(&stage),
                },
            );
        }
        Ok(())
    }

    fn explain_aggregate(
        &self,
        op: &Arc<OpContext>,
        r: &AggregateRequest<'_>,
        verbosity: Verbosity,
        d: &mut DocBuf,
    ) -> Result<()> {
        let ctx = self.aggregate_context(op, r)?;
        let namespace = r.namespace();
        if let Some(operand) = at_front(r.pipeline) {
            return self.explain_near(op, r, operand, &ctx, verbosity, d);
        }
        let pipeline = Pipeline::parse(r.pipeline, &ctx)?;
        if pipeline.writes() {
            let link = Link::new(self, &CurrentOp::new(op), r)?;
            pipeline.check_targets(&link.runtime()?)?;
        }
        let mut stages = ArrayBuf::new();
        if r.collection.is_none() || pipeline.has_source() {
            for s in pipeline.sources() {
                stages.push(s);
            }
            d.append("stages", stages);
            return Ok(());
        }
        let split = Split::of(pipeline);
        let mut planned = Planned {
            namespace: &namespace,
            parsed_query: split.filter.to_doc(),
            shape: split.shape(),
            began: Instant::now(),
            choice: None,
            filtered: false,
        };
        let collection = self.store.collection(&namespace);
        let mut cursor = DocBuf::new();
        if let (Some(_), true) = (&split.counts, split.limit != Some(0)) {
            let count = CountRequest {
                filter: planned.parsed_query.as_doc(),
                skip: split.skip,
                limit: split.limit.unwrap_or(0),
                hint: r.hint,
                let_: r.let_,
                collation: r.collation.clone(),
                ..CountRequest::new(&namespace)
            };
            self.explain_count(op, &count, verbosity, &mut cursor)?;
        } else {
            if let Some(c) = &collection {
                planned.filtered = self.is_filtered(c, &split.filter, split.sort_source());
                let how = SplitPlan {
                    shared: None,
                    hint: r.hint,
                    allow_disk_use: r.allow_disk_use,
                    explain: true,
                };
                planned.choice = Some(self.plan_split(op, c, &split, how)?);
            }
            let top = split.rest.is_empty();
            let out = if top { &mut *d } else { &mut cursor };
            report(op, out, planned, verbosity, Around::Nothing, &mut drain)?;
            if top {
                return Ok(());
            }
        }
        stages.push(doc! { "$cursor": cursor });
        for s in split.rest.sources() {
            stages.push(s);
        }
        d.append("stages", stages);
        Ok(())
    }

    /// A pipeline that begins with `$geoNear`.
    fn explain_near(
        &self,
        op: &Arc<OpContext>,
        r: &AggregateRequest<'_>,
        (at, operand): (usize, Value<'_>),
        ctx: &QueryContext,
        verbosity: Verbosity,
        d: &mut DocBuf,
    ) -> Result<()> {
        let namespace = r.namespace();
        let collection = self.store.collection(&namespace);
        let (stage, key, choice) = self.plan_geo_near(
            op,
            collection.as_ref(),
            ctx,
            r.hint,
            r.allow_disk_use,
            operand,
            true,
        )?;
        let filter = stage.filter(key.as_str());
        let planned = Planned {
            namespace: &namespace,
            parsed_query: filter.to_doc(),
            shape: shape(&filter, Doc::EMPTY, Doc::EMPTY),
            began: Instant::now(),
            choice: Some(choice),
            filtered: false,
        };
        let mut cursor = DocBuf::new();
        report(
            op,
            &mut cursor,
            planned,
            verbosity,
            Around::Nothing,
            &mut drain,
        )?;
        let mut stages = ArrayBuf::new();
        stages.push(doc! { "$geoNearCursor": cursor });
        for s in behind_near(r.pipeline, at, ctx)?.sources() {
            stages.push(s);
        }
        d.append("stages", stages);
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
        let mut planned = Planned {
            namespace,
            parsed_query: self.bound(namespace, write.filter.clone())?.to_doc(),
            shape: shape(&write.filter, source.as_doc(), Doc::EMPTY),
            began: Instant::now(),
            choice: None,
            filtered: false,
        };
        if let Some(c) = self.store.collection(namespace) {
            planned.filtered = self.is_filtered(&c, &write.filter, source.as_doc());
            planned.choice = Some(self.plan_write(op, &c, write, true)?);
        }
        let stage = match &write.change {
            Change::Update { .. } => "UPDATE",
            Change::Delete => "DELETE",
        };
        report(
            op,
            d,
            planned,
            verbosity,
            Around::Stage(stage),
            &mut |op, exec| {
                let (mut matched, mut modified) = (0_i64, 0_i64);
                let mut out = Vec::new();
                while let Some(row) = exec.next_row(op)? {
                    matched += 1;
                    if let Change::Update { update, .. } = &write.change {
                        out.clear();
                        modified +=
                            i64::from(update.apply(Doc::new(&row.doc), row.info, &mut out)?);
                    }
                    if !write.multi {
                        break;
                    }
                }
                let figures = match &write.change {
                    Change::Update { upsert, .. } => doc! {
                        "nMatched": narrow(matched),
                        "nWouldModify": narrow(modified),
                        "nWouldUpsert": i32::from(*upsert && matched == 0),
                    },
                    Change::Delete => doc! { "nWouldDelete": narrow(matched) },
                };
                Ok(Ran {
                    returned: 0,
                    figures,
                })
            },
        )
    }
}

/// Runs a find's plan to its end.
fn drain(op: &Arc<OpContext>, exec: &mut Exec) -> Result<Ran> {
    let mut out = Vec::new();
    while let Some(row) = exec.next_row(op)? {
        out.clear();
        exec.emit(&row, &mut out)?;
    }
    Ok(Ran {
        returned: exec.returned(),
        figures: DocBuf::new(),
    })
}

/// `d` with another name of the stage.
fn rename(d: DocBuf, stage: &str) -> DocBuf {
    let mut out = DocBuf::new();
    for e in d.as_doc().iter() {
        if e.name() == "stage" {
            out.append("stage", stage);
        } else {
            out.append_elem(e);
        }
    }
    out
}

fn fast_count(d: &mut DocBuf, planned: &Planned<'_>, verbosity: Verbosity, n: u64) {
    let plan = doc! { "stage": "RECORD_STORE_FAST_COUNT" };
    d.append("queryPlanner", planner_doc(planned, plan.clone(), &[]));
    if verbosity > Verbosity::QueryPlanner {
        let mut stage = plan;
        stage.append("nReturned", 0);
        stage.append("nCounted", narrow(n as i64));
        d.append(
            "executionStats",
            doc! {
                "executionSuccess": true,
                "nReturned": 0,
                "executionTimeMillis": 0,
                "totalKeysExamined": 0,
                "totalDocsExamined": 0,
                "executionStages": stage,
            },
        );
    }
}

fn planner_doc(planned: &Planned<'_>, winner: DocBuf, rejected: &[DocBuf]) -> DocBuf {
    let hash = hash(&planned.shape);
    doc! {
        "namespace": planned.namespace,
        "parsedQuery": &planned.parsed_query,
        "indexFilterSet": planned.filtered,
        "queryHash": hash.as_str(),
        "planCacheShapeHash": hash.as_str(),
        "planCacheKey": hash.as_str(),
        "optimizationTimeMillis": planned.began.elapsed().as_millis() as i64,
        "maxIndexedOrSolutionsReached": false,
        "maxIndexedAndSolutionsReached": false,
        "maxScansToExplodeReached": false,
        "winningPlan": winner,
        "rejectedPlans": rejected.iter().collect::<ArrayBuf>(),
    }
}

/// The plan's stages with what stands around them.
fn stages(exec: &Exec, around: Around<'_>, ran: Option<&Ran>) -> DocBuf {
    let mut d = exec.explain(ran.is_some());
    if let Around::Stage(stage) = around {
        // Counting reads keys only where the index answers everything.
        let plan = d.as_doc();
        let keys_alone = plan.get_str("stage") == Some("IXSCAN") && plan.get("filter").is_none();
        if stage == "COUNT" && keys_alone {
            d = rename(d, "COUNT_SCAN");
        }
        let stats = Stats {
            works: exec.returned(),
            advanced: ran.map_or(0, |r| r.returned),
            eof: true,
            ..exec.stats()
        };
        d = wrap(
            stage,
            ran.is_some(),
            stats,
            |d| {
                if let Some(r) = ran {
                    d.append_all(r.figures.as_doc());
                }
            },
            d,
        );
    }
    d
}

fn totals(exec: &Exec) -> DocBuf {
    doc! {
        "totalKeysExamined": narrow(exec.cx.keys as i64),
        "totalDocsExamined": narrow(exec.cx.docs as i64),
    }
}

/// Appends queryPlanner and, if asked for, executionStats; `run` runs the winner.
fn report(
    op: &Arc<OpContext>,
    d: &mut DocBuf,
    mut planned: Planned<'_>,
    verbosity: Verbosity,
    around: Around<'_>,
    run: &mut dyn FnMut(&Arc<OpContext>, &mut Exec) -> Result<Ran>,
) -> Result<()> {
    let Some(mut choice) = planned.choice.take() else {
        let plan = doc! { "stage": "EOF", "type": "nonExistentNamespace" };
        d.append("queryPlanner", planner_doc(&planned, plan.clone(), &[]));
        if verbosity > Verbosity::QueryPlanner {
            d.append(
                "executionStats",
                doc! {
                    "executionSuccess": true,
                    "nReturned": 0,
                    "executionTimeMillis": 0,
                    "totalKeysExamined": 0,
                    "totalDocsExamined": 0,
                    "executionStages": plan,
                },
            );
        }
        return Ok(());
    };
    let rejected: Vec<DocBuf> = choice
        .rejected
        .iter()
        .map(|e| stages(e, around, None))
        .collect();
    let winner = stages(&choice.exec, around, None);
    d.append("queryPlanner", planner_doc(&planned, winner, &rejected));
    if verbosity == Verbosity::QueryPlanner {
        return Ok(());
    }
    let before = Instant::now();
    choice.exec.cx.timed = true;
    let ran = run(op, &mut choice.exec)?;
    let mut stats = doc! {
        "executionSuccess": true,
        "nReturned": narrow(ran.returned as i64),
        "executionTimeMillis": narrow(before.elapsed().as_millis() as i64),
    };
    stats.append_all(totals(&choice.exec).as_doc());
    stats.append("executionStages", stages(&choice.exec, around, Some(&ran)));
    if verbosity == Verbosity::AllPlansExecution {
        let all: ArrayBuf = choice.trials.iter().collect();
        stats.append("allPlansExecution", all);
    }
    d.append("executionStats", stats);
    Ok(())
}
