//! The parts of explain's replies: queryPlanner and executionStats.

use crate::operation::OpContext;
use crate::plan::shape::hash;
use crate::run::Stats;
use crate::run::choose::Choice;
use crate::run::exec::Exec;
use crate::run::wrap;
use muniment_query::{Filter, QueryContext};
use muniment_value::number::narrow;
use muniment_value::{ArrayBuf, Doc, DocBuf, Error, Result, Value, doc};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much explain reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Plans only.
    QueryPlanner,
    /// Also runs the winning plan and reports what it did.
    ExecutionStats,
    /// Also reports what the trials of the other plans showed.
    AllPlansExecution,
}

/// Fields that explain shows beside the stages, and the plans themselves.
pub(super) struct Planned<'p> {
    pub namespace: &'p str,
    pub parsed_query: DocBuf,
    pub shape: String,
    pub began: Instant,
    pub choice: Option<Choice>,
    /// True if planCacheSetFilter restricts the indexes of this query's shape.
    pub filtered: bool,
}

impl<'p> Planned<'p> {
    pub(super) fn new(namespace: &'p str, parsed_query: DocBuf, shape: String) -> Planned<'p> {
        Planned {
            namespace,
            parsed_query,
            shape,
            began: Instant::now(),
            choice: None,
            filtered: false,
        }
    }
}

/// The stage that stands above the plan's own stages, if any.
#[derive(Clone, Copy)]
pub(super) enum Around<'s> {
    Nothing,
    /// The stage's name, and its figures for the case that the collection does not exist.
    Stage(&'s str, &'s DocBuf),
}

/// The result of a run of the plan.
#[derive(Default)]
pub(super) struct Ran {
    /// Rows that the top stage returns.
    pub returned: u64,
    /// Figures of the top stage.
    pub figures: DocBuf,
    /// The error that ended the run early.
    pub error: Option<Error>,
}

/// Runs a find's plan to its end.
pub(super) fn drain(op: &Arc<OpContext>, exec: &mut Exec) -> Result<Ran> {
    let mut out = Vec::new();
    while let Some(row) = exec.next_row(op)? {
        out.clear();
        exec.emit(&row, &mut out)?;
    }
    Ok(Ran {
        returned: exec.returned(),
        ..Ran::default()
    })
}

/// Copies `d`, giving its stage another name.
pub(super) fn rename(d: DocBuf, stage: &str) -> DocBuf {
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

/// Bytes that queryPlanner and executionStats may have each: a reply is one document of 16 MB.
const ROOM: usize = 6 << 20;

/// The bytes that are left for one part of the reply.
struct Room(usize);

impl Room {
    /// Takes so many bytes and returns true, or returns false if fewer are left.
    fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.0;
        if fits {
            self.0 -= bytes;
        }
        fits
    }

    /// The whole plan, or only its first stage's name if there is no room for all of it. `isCached`
    /// is always false because explain never takes its plan from the cache.
    fn plan(&mut self, plan: &DocBuf) -> DocBuf {
        let mut d = doc! { "isCached": false };
        if self.take(plan.as_doc().byte_len()) {
            d.append_all(plan.as_doc());
        } else {
            d.append_some("stage", plan.as_doc().get("stage"));
            d.append("warning", "stats tree exceeded BSON size limit for explain");
        }
        d
    }
}

/// MongoDB's message in place of a field that is too large for the reply.
pub fn omitted(field: &str) -> String {
    format!("{field} has been omitted due to BSON size limit for explain")
}

/// The plan as far as a reply has room for it.
pub(super) fn whole(plan: &DocBuf) -> DocBuf {
    Room(ROOM).plan(plan)
}

pub(super) fn fast_count(d: &mut DocBuf, planned: &Planned<'_>, verbosity: Verbosity, n: u64) {
    let plan = doc! { "stage": "RECORD_STORE_FAST_COUNT" };
    d.append("queryPlanner", planner_doc(planned, &plan, &[]));
    if verbosity > Verbosity::QueryPlanner {
        d.append("executionStats", nothing_read(0, &fast_count_ran(n)));
    }
}

/// The executionStats of a count that was read from the collection's counter.
pub(crate) fn fast_count_ran(n: u64) -> DocBuf {
    let mut stage = doc! { "stage": "RECORD_STORE_FAST_COUNT" };
    Stats {
        eof: true,
        ..Stats::default()
    }
    .append(&mut stage);
    stage.append_all(counted(n, 0).as_doc());
    stage
}

/// executionStats of a plan that reads nothing.
fn nothing_read(millis: i64, stage: &DocBuf) -> DocBuf {
    doc! {
        "executionSuccess": true,
        "nReturned": 0,
        "executionTimeMillis": narrow(millis),
        "totalKeysExamined": 0,
        "totalDocsExamined": 0,
        "executionStages": whole(stage),
    }
}

pub(super) fn planner_doc(planned: &Planned<'_>, winner: &DocBuf, rejected: &[DocBuf]) -> DocBuf {
    let hash = hash(&planned.shape);
    let mut room = Room(ROOM);
    let mut d = doc! { "namespace": planned.namespace };
    match room.take(planned.parsed_query.as_doc().byte_len()) {
        true => d.append("parsedQuery", &planned.parsed_query),
        false => d.append("warning", omitted("parsedQuery").as_str()),
    };
    d.append_all(
        doc! {
            "indexFilterSet": planned.filtered,
            "queryHash": hash.as_str(),
            "planCacheShapeHash": hash.as_str(),
            "planCacheKey": hash.as_str(),
            "optimizationTimeMillis": planned.began.elapsed().as_millis() as i64,
            "maxIndexedOrSolutionsReached": false,
            "maxIndexedAndSolutionsReached": false,
            "maxScansToExplodeReached": false,
            "prunedSimilarIndexes": false,
            "winningPlan": room.plan(winner),
        }
        .as_doc(),
    );
    let rejected: ArrayBuf = rejected.iter().map(|p| room.plan(p)).collect();
    d.append("rejectedPlans", rejected);
    d
}

/// The plan's stages below the stage that `around` names.
pub(super) fn stages(exec: &Exec, around: Around<'_>, ran: Option<&Ran>) -> DocBuf {
    let Around::Stage(stage, _) = around else {
        return exec.explain(ran.is_some());
    };
    // MongoDB shows a write by `_id` as one EXPRESS stage, which includes the look-up.
    let express = match stage {
        "UPDATE" => Some("EXPRESS_UPDATE"),
        "DELETE" => Some("EXPRESS_DELETE"),
        _ => None,
    };
    if let Some(name) = express
        && let Some(mut d) = exec.explain_express(ran.map(|r| r.returned), Some(name))
    {
        if let Some(r) = ran {
            let figures = r.figures.as_doc();
            for name in ["nWouldModify", "nWouldUpsert", "nWouldDelete"] {
                let n = figures.get(name).and_then(|v| v.as_i64_exact());
                d.append(name, n.unwrap_or(0));
            }
        }
        return d;
    }
    let mut d = exec.explain(ran.is_some());
    // COUNT_SCAN counts index keys and reads no documents, which is right only if the index answers
    // the whole filter.
    if stage == "COUNT" && exec.counts_keys() {
        d = rename(d, "COUNT_SCAN");
    }
    let stats = Stats {
        works: exec.returned(),
        advanced: ran.map_or(0, |r| r.returned),
        eof: true,
        ..exec.stats()
    };
    let figures = |d: &mut DocBuf| {
        if let Some(r) = ran {
            d.append_all(r.figures.as_doc());
        }
    };
    wrap(stage, ran.is_some(), stats, figures, d)
}

/// The plan that explain shows when the collection does not exist.
pub(super) fn on_nothing(around: Around<'_>, ran: bool) -> DocBuf {
    let ended = Stats {
        eof: true,
        ..Stats::default()
    };
    let mut d = doc! { "stage": "EOF" };
    if ran {
        ended.append(&mut d);
    }
    d.append("type", "nonExistentNamespace");
    match around {
        Around::Nothing => d,
        Around::Stage(stage, figures) => {
            let figures = |d: &mut DocBuf| {
                if ran {
                    d.append_all(figures.as_doc());
                }
            };
            wrap(stage, ran, ended, figures, d)
        }
    }
}

/// Appends queryPlanner.
pub(super) fn plans(d: &mut DocBuf, planned: &Planned<'_>, around: Around<'_>) {
    let (winner, rejected) = match &planned.choice {
        None => (on_nothing(around, false), Vec::new()),
        Some(choice) => (
            stages(&choice.exec, around, None),
            choice
                .rejected
                .iter()
                .map(|e| stages(e, around, None))
                .collect(),
        ),
    };
    d.append("queryPlanner", planner_doc(planned, &winner, &rejected));
}

/// Appends executionStats of a plan on a collection that does not exist.
pub(super) fn nothing_ran(d: &mut DocBuf, around: Around<'_>) {
    d.append("executionStats", nothing_read(0, &on_nothing(around, true)));
}

/// Appends executionStats of a plan that ran for `took`. `trials` has the figures of all plans, if
/// the client asked for them.
pub(super) fn figures(
    d: &mut DocBuf,
    exec: &Exec,
    around: Around<'_>,
    ran: &Ran,
    took: Duration,
    trials: Option<&[DocBuf]>,
) {
    let mut stats = doc! { "executionSuccess": ran.error.is_none() };
    if let Some(e) = &ran.error {
        stats.append("errorMessage", e.message());
        stats.append("errorCode", e.code().0);
    }
    let read = doc! {
        "nReturned": narrow(ran.returned as i64),
        "executionTimeMillis": narrow(took.as_millis() as i64),
        "totalKeysExamined": narrow(exec.cx.keys as i64),
        "totalDocsExamined": narrow(exec.cx.docs as i64),
    };
    stats.append_all(read.as_doc());
    let mut room = Room(ROOM);
    stats.append(
        "executionStages",
        room.plan(&stages(exec, around, Some(ran))),
    );
    if let Some(trials) = trials {
        let fitting = trials.iter().filter(|t| room.take(t.as_doc().byte_len()));
        let all: ArrayBuf = fitting.collect();
        stats.append("allPlansExecution", all);
    }
    d.append("executionStats", stats);
}

/// Appends queryPlanner and, if asked for, executionStats; `run` runs the winner.
pub(super) fn report(
    op: &Arc<OpContext>,
    d: &mut DocBuf,
    mut planned: Planned<'_>,
    verbosity: Verbosity,
    around: Around<'_>,
    run: &mut dyn FnMut(&Arc<OpContext>, &mut Exec) -> Result<Ran>,
) -> Result<()> {
    plans(d, &planned, around);
    if verbosity == Verbosity::QueryPlanner {
        return Ok(());
    }
    let Some(choice) = &mut planned.choice else {
        nothing_ran(d, around);
        return Ok(());
    };
    let before = Instant::now();
    choice.exec.cx.timed = true;
    let ran = match run(op, &mut choice.exec) {
        // An error of the plan is reported with the figures up to it. An interrupted explain fails
        // as a whole.
        Err(e) if !e.is_interruption() => Ran {
            returned: choice.exec.returned(),
            error: Some(e),
            ..Ran::default()
        },
        other => other?,
    };
    let trials = (verbosity == Verbosity::AllPlansExecution).then_some(&*choice.trials);
    figures(d, &choice.exec, around, &ran, before.elapsed(), trials);
    Ok(())
}

/// The figures that are particular to a COUNT stage.
pub(super) fn counted(n: u64, skip: u64) -> DocBuf {
    doc! { "nCounted": narrow(n as i64), "nSkipped": narrow(skip as i64) }
}

/// A stage of a pipeline as the client wrote it, or only its name where it is too large. A `$match`
/// is shown as it was parsed, as in `parsedQuery`.
pub(super) fn listed(stage: Doc<'_>, ctx: &QueryContext) -> DocBuf {
    let mut d = DocBuf::new();
    let Some(e) = stage.first() else {
        return d;
    };
    if stage.byte_len() > ROOM / 16 {
        d.append(e.name(), doc! { "warning": omitted(e.name()).as_str() });
        return d;
    }
    match (e.name(), e.value()) {
        ("$match", Value::Document(filter)) => match Filter::parse_match(filter, ctx, false) {
            Ok(filter) => d.append("$match", filter.to_doc()),
            Err(_) => d.append_elem(e),
        },
        ("$facet", Value::Document(facets)) => {
            let mut shown = DocBuf::new();
            for facet in facets {
                let stages = facet.value().as_array().unwrap_or(Doc::EMPTY);
                let stages = stages.values().filter_map(|v| v.as_doc());
                shown.append(
                    facet.name(),
                    stages.map(|s| listed(s, ctx)).collect::<ArrayBuf>(),
                );
            }
            d.append("$facet", shown)
        }
        _ => d.append_elem(e),
    };
    d
}
