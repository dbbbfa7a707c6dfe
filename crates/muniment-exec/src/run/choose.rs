//! Chooses which of several plans runs: by rules, by the plan cache, or by a trial.

use super::announce::{How, note_reads};
use super::exec::Exec;
use super::recipe::{Output, Recipe};
use super::still_as_planned;
use crate::operation::OpContext;
use crate::plan::access::{Access, Candidate, NATURAL};
use crate::plan::cache::{PlanCache, Won};
use crate::plan::query::Query;
use crate::plan::query::Told;
use muniment_query::QueryContext;
use muniment_query::filter::Node;
use muniment_value::number::narrow;
use muniment_value::{Code, Doc, DocBuf, Error, Result, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A trial ends when a plan has given so many rows.
const TRIAL_ROWS: usize = 101;
/// A trial ends when the plans have taken so many steps each.
const TRIAL_WORKS: u64 = 10_000;
/// The steps that one plan takes before it is the next one's turn.
const TRIAL_SLICE: u64 = 64;
/// A plan from the cache that needs this many times its earlier steps has to win a new trial.
const REPLAN_FACTOR: u64 = 10;
/// The most bytes of an entry's parts that the plan cache keeps only for people to read.
const MOST_KEPT: usize = 256 << 10;
/// The plan that was chosen, and those that were not.
pub(crate) struct Choice {
    /// The winner. The rows that its trial gave are buffered in it.
    pub exec: Exec,
    /// The other plans, in the state in which their trial left them.
    pub rejected: Vec<Exec>,
    /// The figures of every plan in the trial, the winner's first, for allPlansExecution. Empty if
    /// there was no trial or nobody asked for the figures.
    pub trials: Vec<DocBuf>,
}

/// The query as the plan cache identifies it.
pub(crate) struct Asked<'q> {
    /// The shape. Queries with the same shape may share a plan.
    pub shape: String,
    /// The filter as the client wrote it, if it comes from a client.
    pub filter: Option<Doc<'q>>,
}

impl From<String> for Asked<'_> {
    fn from(shape: String) -> Self {
        let filter = None;
        Asked { shape, filter }
    }
}

/// The figures of a plan in its trial.
fn trial_doc(exec: &Exec, score: f64) -> DocBuf {
    let int = |n: u64| narrow(i64::try_from(n).unwrap_or(i64::MAX));
    doc! {
        "nReturned": int(exec.buffered() as u64),
        "executionTimeMillisEstimate": 0,
        "totalKeysExamined": int(exec.cx.keys),
        "totalDocsExamined": int(exec.cx.docs),
        "score": score,
        "executionStages": exec.explain(true),
    }
}

/// Chooses among `candidates`, of which there is at least one, and opens the winner. `asked`
/// describes the query for the plan cache. With `explain`, all plans are compared even if the cache
/// has one.
///
/// # Errors
/// The errors that running the plans raises.
pub(crate) fn choose<'q>(
    cache: &PlanCache,
    op: &Arc<OpContext>,
    recipe: &Recipe,
    candidates: Vec<Candidate>,
    asked: impl FnOnce() -> Asked<'q>,
    explain: bool,
) -> Result<Choice> {
    let choice = select(cache, op, recipe, candidates, asked, explain)?;
    if !explain {
        choice.exec.candidate().note_use();
        note_reads(op, &choice.exec.candidate().access);
        if matches!(choice.exec.candidate().access, Access::CollScan { .. }) {
            recipe.collection.note_scan(recipe.tailable);
        }
    }
    Ok(choice)
}

/// Removes the plans that read a whole collection, for `notablescan`. As in MongoDB this is aimed
/// at queries that lack an index. A query for all documents is let through, and so are the server's
/// own collections, which are small.
///
/// # Errors
/// 291 NoQueryExecutionPlans if no plan is left.
fn refuse_scans(recipe: &Recipe, candidates: &mut Vec<Candidate>) -> Result<()> {
    let ns = recipe.collection.namespace();
    let (db, name) = ns.split_once('.').unwrap_or((&ns, ""));
    let own = matches!(db, "admin" | "config" | "local") || name.starts_with("system.");
    if own || matches!(recipe.filter.root(), Node::True) {
        return Ok(());
    }
    let hinted = candidates.iter().any(|c| c.signature == NATURAL);
    let there = !candidates.is_empty();
    candidates.retain(|c| !matches!(c.access, Access::CollScan { .. }));
    if !there || !candidates.is_empty() {
        return Ok(());
    }
    let why = match (recipe.tailable, hinted) {
        (true, _) => {
            "Running with 'notablescan', so tailable cursors (which always do a table scan) are not \
             allowed"
        }
        (_, true) => "hint $natural is not allowed, because 'notablescan' is enabled",
        _ => "No indexed plans available, and running with 'notablescan' 1",
    };
    let sort = recipe.sort.as_ref().map(|(_, d)| d.as_doc());
    let query = Query {
        told: Told {
            limit: recipe.limit.unwrap_or(0),
            skip: recipe.skip,
            sort,
            ..Told::default()
        },
        ..Query::of(&recipe.filter)
    };
    Err(query.refused(&ns, Code::NoQueryExecutionPlans, why))
}

fn select<'q>(
    cache: &PlanCache,
    op: &Arc<OpContext>,
    recipe: &Recipe,
    mut candidates: Vec<Candidate>,
    asked: impl FnOnce() -> Asked<'q>,
    explain: bool,
) -> Result<Choice> {
    let alone = |candidate: Candidate, how: How| {
        let mut exec = Exec::build(recipe, Arc::new(candidate), None);
        exec.how = how;
        Choice {
            exec,
            rejected: Vec::new(),
            trials: Vec::new(),
        }
    };
    if cache.no_scans.load(Relaxed) {
        refuse_scans(recipe, &mut candidates)?;
    }
    candidates.sort_by_key(|c| (c.rank, c.needs_sort, c.covered.is_none()));
    let Some(first) = candidates.first() else {
        let nothing = Candidate::alone(Access::Eof, "EOF");
        return Ok(alone(nothing, How::default()));
    };
    // No plan is better than a unique point or an empty result, so there is no need to compare.
    if candidates.len() == 1 || (first.rank <= 1 && !explain) {
        // A plan that looks up one key is not worth an entry in the plan cache.
        let cacheable = first.express.is_none() && !matches!(first.access, Access::IdHack(_));
        let shape = (cacheable && op.observed()).then(|| asked().shape);
        let how = How {
            shape,
            ..How::default()
        };
        return Ok(alone(candidates.swap_remove(0), how));
    }
    let candidates: Vec<Arc<Candidate>> = candidates.into_iter().map(Arc::new).collect();
    let Asked { shape, filter } = asked();
    let mut how = How {
        shape: Some(shape.clone()),
        ..How::default()
    };
    // A trial need not buffer more rows than the query asks for.
    let rows = recipe
        .limit
        .and_then(|l| usize::try_from(l.saturating_add(recipe.skip)).ok())
        .map_or(TRIAL_ROWS, |l| l.clamp(1, TRIAL_ROWS));
    if !explain
        && let Some(entry) = cache.get(&recipe.collection, &shape)
        && let Some(c) = candidates.iter().find(|c| *c.signature == *entry.signature)
    {
        let mut exec = Exec::build(recipe, c.clone(), None);
        let allowed = entry.works.saturating_mul(REPLAN_FACTOR).max(1000);
        exec.trial(op, allowed, rows)
            .map_err(Error::while_executing)?;
        if exec.at_eof() || exec.buffered() >= rows {
            how.cached = true;
            exec.how = how;
            return Ok(Choice {
                exec,
                rejected: Vec::new(),
                trials: Vec::new(),
            });
        }
        let (expected, took) = (entry.works, exec.cx.works);
        how.replanned = Some(format!(
            "cached plan was less efficient than expected: expected trial execution to take \
             {expected} works but it took at least {took} works"
        ));
        exec.lose();
        cache.evict(&recipe.collection, &shape);
    }
    let snapshot = match &recipe.shared {
        Some(shared) => shared.view(&recipe.store, &recipe.collection)?,
        None => op.view(&recipe.store, &recipe.collection)?,
    };
    let mut plans: Vec<Exec> = candidates
        .iter()
        .map(|c| Exec::build(recipe, c.clone(), Some(snapshot.clone())))
        .collect();
    for candidate in &candidates {
        still_as_planned(&snapshot, &recipe.collection, &candidate.access.indexes())?;
    }
    race(op, &mut plans, rows)?;
    let score = |e: &Exec| {
        let c = e.candidate();
        let productivity = e.buffered() as f64 / e.cx.works.max(1) as f64;
        let bonus = if e.at_eof() { 1.0 } else { 0.0 };
        // A tie goes to the plan without a sort, then without a fetch, then to the rules' order.
        let ties = f64::from(u8::from(!c.needs_sort)) * 1e-4
            + f64::from(u8::from(c.covered.is_some())) * 1e-5;
        1.0 + productivity + bonus + ties
    };
    let mut best = 0;
    let mut best_score = f64::NEG_INFINITY;
    for (i, p) in plans.iter().enumerate() {
        let s = score(p);
        if s > best_score {
            best = i;
            best_score = s;
        }
    }
    let mut exec = plans.swap_remove(best);
    how.tried = true;
    exec.how = how;
    let scores: Vec<f64> = std::iter::once(&exec).chain(&plans).map(score).collect();
    let trials: Vec<DocBuf> = std::iter::once(&exec)
        .chain(&plans)
        .zip(&scores)
        .map(|(e, score)| trial_doc(e, *score))
        .collect();
    for p in &mut plans {
        p.lose();
    }
    if explain {
        return Ok(Choice {
            exec,
            rejected: plans,
            trials,
        });
    }
    let mut won = Won {
        at_ms: QueryContext::new().now_ms,
        query: query_of(recipe, filter),
        plan: exec.explain(false),
        trials,
        scores,
    };
    won.strip(MOST_KEPT);
    let signature = &exec.candidate().signature;
    cache.put(&recipe.collection, &shape, signature, exec.cx.works, won);
    Ok(Choice {
        exec,
        rejected: plans,
        trials: Vec::new(),
    })
}

/// Runs the plans in turns until one of them has ended or given `rows` rows, or all have taken many
/// steps.
fn race(op: &Arc<OpContext>, plans: &mut [Exec], rows: usize) -> Result<()> {
    let mut works = 0;
    while works < TRIAL_WORKS {
        works += TRIAL_SLICE;
        for p in plans.iter_mut() {
            p.trial(op, TRIAL_SLICE, rows)
                .map_err(Error::while_executing)?;
        }
        if plans.iter().any(|p| p.at_eof() || p.buffered() >= rows) {
            break;
        }
    }
    Ok(())
}

/// `{query, sort, projection}` of the query that is run. `filter` is its filter as the client wrote
/// it.
fn query_of(recipe: &Recipe, filter: Option<Doc<'_>>) -> DocBuf {
    let projection = match &recipe.output {
        Output::Projected { source, .. } => Some(source),
        _ => None,
    };
    doc! {
        "query": filter.map_or_else(|| recipe.filter.to_doc(), |f| f.to_buf()),
        "sort": recipe.sort.as_ref().map_or_else(DocBuf::new, |(_, source)| source.clone()),
        "projection": projection.cloned().unwrap_or_default(),
    }
}
