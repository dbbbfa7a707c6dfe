//! `explain` of pipelines: first the planner's part as `$cursor`, then the stages above it.

use super::reply::{Around, Planned, Ran, drain, figures, listed, nothing_ran, plans, report};
use super::{Explainable, Verbosity, explain};
use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::shape::shape;
use crate::run::current::CurrentOp;
use crate::run::exec::Exec;
use crate::verbs::aggregate::AggregateRequest;
use crate::verbs::aggregate::aggregate_context;
use crate::verbs::aggregate::link::Link;
use crate::verbs::aggregate::near::NearRows;
use crate::verbs::aggregate::near::{Planning, plan_geo_near};
use crate::verbs::aggregate::rows::Given;
use crate::verbs::aggregate::rows::Rows;
use crate::verbs::aggregate::split::Split;
use crate::verbs::aggregate::split::SplitPlan;
use crate::verbs::aggregate::split::count_split;
use crate::verbs::aggregate::split::plan_split;
use crate::verbs::count::CountRequest;
use crate::verbs::explain::explain_count;
use crate::verbs::find::FindRequest;
use crate::verbs::planning::is_filtered;
use muniment_query::stage::Watched;
use muniment_query::stage::geo_near::{at_front, behind_near};
use muniment_query::{DocStream, Pipeline, QueryContext};
use muniment_storage::Collection;
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, Value, doc};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// A `mapReduce` in the form in which it is explained: as the pipeline that MongoDB makes of it.
pub struct MapReduceRequest<'a> {
    /// The query that reads the input.
    pub find: &'a FindRequest<'a>,
    /// The stages after the query, each with the number of documents that it returned if it was
    /// run.
    pub stages: &'a [(DocBuf, Option<u64>)],
}

/// A pipeline that reads the rows of a plan.
struct Above<'a> {
    /// The name under which the plan is shown, such as `$cursor`.
    name: &'a str,
    rest: Pipeline,
    link: Link,
    ctx: &'a QueryContext,
    verbosity: Verbosity,
    runs: bool,
}

/// The filter and the sort at the beginning of a pipeline; each is empty if there is none.
pub(super) fn front(pipeline: Doc<'_>) -> (Doc<'_>, Doc<'_>) {
    let mut stages = pipeline.values().filter_map(|v| v.as_doc()).peekable();
    let filter = stages.peek().and_then(|d| d.get_doc("$match"));
    if filter.is_some() {
        stages.next();
    }
    let sort = stages.next().and_then(|d| d.get_doc("$sort"));
    (filter.unwrap_or(Doc::EMPTY), sort.unwrap_or(Doc::EMPTY))
}

/// The collection with this name, if there is one. A router has to know whether it is sharded.
fn expected(engine: &Database, op: &OpContext, namespace: &str) -> Result<Option<Arc<Collection>>> {
    let collection = engine.store.collection(namespace);
    op.check_placement(namespace, collection.as_deref())?;
    Ok(collection)
}

pub(super) fn explain_aggregate(
    engine: &Database,
    op: &Arc<OpContext>,
    r: &AggregateRequest<'_>,
    verbosity: Verbosity,
    d: &mut DocBuf,
) -> Result<()> {
    let current = CurrentOp::new(op);
    let ctx = aggregate_context(engine, op, r)?.with_operation(current.clone());
    let namespace = r.namespace();
    if let Some(operand) = at_front(r.pipeline) {
        return explain_near(engine, op, r, operand, &ctx, verbosity, d);
    }
    let pipeline = Pipeline::parse(r.pipeline, &ctx)?;
    let link = Link::new(engine, &current, r)?;
    if pipeline.writes() {
        pipeline.check_targets(&link.runtime()?)?;
    }
    let mut stages = ArrayBuf::new();
    if r.collection.is_none() || pipeline.has_source() {
        pipeline.sources().for_each(|s| {
            stages.push(listed(s, &ctx));
        });
        d.append("stages", stages);
        return Ok(());
    }
    let runs = verbosity > Verbosity::QueryPlanner;
    let split = Split::of(pipeline);
    let mut planned = Planned::new(&namespace, split.filter.to_doc(), split.shape());
    let collection = expected(engine, op, &namespace)?;
    if let (Some(counts), true) = (&split.counts, split.limit != Some(0)) {
        let count = CountRequest {
            filter: planned.parsed_query.as_doc(),
            skip: split.skip,
            limit: split.limit.unwrap_or(0),
            hint: r.hint,
            let_: r.let_,
            collation: r.collation.clone(),
            ..CountRequest::new(&namespace)
        };
        let mut cursor = DocBuf::new();
        explain_count(engine, op, &count, verbosity, &mut cursor)?;
        let mut cursor = doc! { "$cursor": cursor };
        let mut n = None;
        if runs {
            let counted = match &collection {
                Some(c) => count_split(engine, op, c, r.hint, &split)?,
                None => 0,
            };
            append(&mut cursor, counted);
            n = Some(u64::from(counts.result(counted).is_some()));
        }
        stages.push(cursor);
        for s in split.rest.sources() {
            let mut s = listed(s, &ctx);
            n.into_iter().for_each(|n| append(&mut s, n));
            stages.push(s);
        }
        d.append("stages", stages);
        return Ok(());
    }
    if let Some(c) = &collection {
        planned.filtered = is_filtered(engine, c, &split.filter, split.sort_source(), Doc::EMPTY);
        let how = SplitPlan {
            shared: None,
            hint: r.hint,
            allow_disk_use: r.allow_disk_use,
            explain: true,
        };
        planned.choice = Some(plan_split(engine, op, c, &split, how)?);
    }
    if split.rest.is_empty() {
        return report(op, d, planned, verbosity, Around::Nothing, &mut drain);
    }
    let above = Above {
        name: "$cursor",
        rest: split.rest,
        link,
        ctx: &ctx,
        verbosity,
        runs,
    };
    above.explain(planned, |exec| Box::new(Rows::of(exec, &current)), d)
}

/// Explains a pipeline that begins with `$geoNear`.
fn explain_near(
    engine: &Database,
    op: &Arc<OpContext>,
    r: &AggregateRequest<'_>,
    (at, operand): (usize, Value<'_>),
    ctx: &QueryContext,
    verbosity: Verbosity,
    d: &mut DocBuf,
) -> Result<()> {
    let namespace = r.namespace();
    let collection = engine.store.collection(&namespace);
    // The later stages say which metadata the first one has to give.
    let rest = behind_near(r.pipeline, at, ctx)?;
    let (stage, key, choice) = plan_geo_near(
        engine,
        op,
        collection.as_ref(),
        ctx,
        operand,
        &Planning {
            hint: r.hint,
            allow_disk_use: r.allow_disk_use,
            explain: true,
        },
    )?;
    let filter = stage.filter(key.as_str());
    let parsed_query = filter.to_doc();
    let mut planned = Planned::new(
        &namespace,
        parsed_query,
        shape(&filter, Doc::EMPTY, Doc::EMPTY),
    );
    planned.choice = Some(choice);
    let runs = verbosity > Verbosity::QueryPlanner;
    let current = CurrentOp::new(op);
    let above = Above {
        name: "$geoNearCursor",
        rest,
        link: Link::new(engine, &current, r)?,
        ctx,
        verbosity,
        runs,
    };
    let rows = |exec| -> Box<dyn DocStream> { Box::new(NearRows::of(exec, stage, key, &current)) };
    above.explain(planned, rows, d)
}

pub(super) fn explain_map_reduce(
    engine: &Database,
    op: &Arc<OpContext>,
    r: &MapReduceRequest<'_>,
    verbosity: Verbosity,
    d: &mut DocBuf,
) -> Result<()> {
    let cursor = explain(engine, op, &Explainable::Find(r.find), verbosity)?;
    let mut reads = DocBuf::new();
    for name in ["queryPlanner", "executionStats"] {
        reads.append_some(name, cursor.as_doc().get(name));
    }
    let n = cursor
        .as_doc()
        .get_doc("executionStats")
        .and_then(|s| s.get("nReturned"))
        .and_then(|v| v.as_i64_exact());
    let mut first = doc! { "$cursor": reads };
    n.into_iter().for_each(|n| append(&mut first, n as u64));
    let mut stages = ArrayBuf::new();
    stages.push(first);
    let ctx = QueryContext::new().with_operation(op.clone());
    for (stage, given) in r.stages {
        let mut s = listed(stage.as_doc(), &ctx);
        given.iter().for_each(|n| append(&mut s, *n));
        stages.push(s);
    }
    d.append("stages", stages);
    Ok(())
}

/// Appends the figures of a stage that has no stopwatch of its own; its time is shown as 0.
fn append(d: &mut DocBuf, returned: u64) {
    d.append("nReturned", returned as i64);
    d.append("executionTimeMillisEstimate", 0_i64);
}

impl Above<'_> {
    /// Appends the plan and the stages above it to `d`; `rows` makes the stream of the plan's rows.
    fn explain(
        mut self,
        mut planned: Planned<'_>,
        rows: impl FnOnce(Arc<Mutex<Exec>>) -> Box<dyn DocStream>,
        d: &mut DocBuf,
    ) -> Result<()> {
        let mut cursor = DocBuf::new();
        plans(&mut cursor, &planned, Around::Nothing);
        let mut stages = ArrayBuf::new();
        if !self.runs {
            let mut first = DocBuf::new();
            first.append(self.name, cursor);
            stages.push(first);
            self.rest.sources().for_each(|s| {
                stages.push(listed(s, self.ctx));
            });
            d.append("stages", stages);
            return Ok(());
        }
        // Explain must not write: the writing stage is taken off, and its documents are dropped.
        let writer = self.rest.take_writer();
        let trials = planned
            .choice
            .as_mut()
            .map(|c| std::mem::take(&mut c.trials));
        let exec = planned.choice.take().map(|c| {
            let mut exec = c.exec;
            exec.cx.timed = true;
            Arc::new(Mutex::new(exec))
        });
        let source = match &exec {
            Some(exec) => rows(exec.clone()),
            None => Box::new(Given(VecDeque::new())),
        };
        let (source, first_figures) = Watched::new(source);
        let before = Instant::now();
        let rt = self.link.runtime()?;
        let (mut top, above) = self.rest.open_watched(Box::new(source), &rt)?;
        while top.next()?.is_some() {}
        drop(top);
        let took = before.elapsed();
        match &exec {
            None => nothing_ran(&mut cursor, Around::Nothing),
            Some(exec) => {
                let exec = exec.lock();
                let ran = Ran {
                    returned: exec.returned(),
                    ..Ran::default()
                };
                let trials = trials.filter(|_| self.verbosity == Verbosity::AllPlansExecution);
                let trials = trials.as_deref();
                figures(&mut cursor, &exec, Around::Nothing, &ran, took, trials);
            }
        }
        let mut first = DocBuf::new();
        first.append(self.name, cursor);
        first_figures.append(&mut first);
        stages.push(first);
        for (stage, figures) in above {
            let mut stage = listed(stage.as_doc(), self.ctx);
            figures.append(&mut stage);
            stages.push(stage);
        }
        if let Some(writer) = writer {
            let mut stage = listed(writer.as_doc(), self.ctx);
            append(&mut stage, 0);
            stages.push(stage);
        }
        d.append("stages", stages);
        Ok(())
    }
}
