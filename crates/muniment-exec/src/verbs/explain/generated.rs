//! `explain` of what is made when it is read: no plan but a scan from a place on.

use super::pipeline::front;
use super::reply::{Planned, planner_doc, whole};
use super::{Explainable, Verbosity};
use crate::context::query_context;
use crate::database::Database;
use crate::operation::OpContext;
use crate::oplog::Generated;
use crate::plan::shape::{of_command, shape};
use crate::verbs::aggregate::aggregate;
use crate::verbs::count::count;
use crate::verbs::distinct::distinct;
use crate::verbs::find::find;
use muniment_query::Filter;
use muniment_value::number::narrow;
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Explains a reading command on a generated collection; false for another command.
pub(super) fn explain_generated(
    engine: &Database,
    op: &Arc<OpContext>,
    generated: &Generated,
    what: &Explainable<'_>,
    verbosity: Verbosity,
    d: &mut DocBuf,
) -> Result<bool> {
    let owned;
    let (namespace, filter, sort, hint, let_) = match what {
        Explainable::Find(r) => (r.namespace, r.filter, r.sort, r.hint, r.let_),
        Explainable::Count(r) => (r.namespace, r.filter, Doc::EMPTY, r.hint, r.let_),
        Explainable::Distinct(r) => (r.namespace, r.filter, Doc::EMPTY, r.hint, r.let_),
        Explainable::Aggregate(r) => {
            owned = r.namespace();
            let (filter, sort) = front(r.pipeline);
            (owned.as_str(), filter, sort, r.hint, r.let_)
        }
        _ => return Ok(false),
    };
    let ctx = query_context(op, let_, Default::default())?;
    let parsed = Filter::parse_query(filter, &ctx)?;
    let shape = match what {
        Explainable::Count(_) => of_command(&parsed, "count"),
        _ => shape(&parsed, sort, Doc::EMPTY),
    };
    let planned = Planned::new(namespace, parsed.to_doc(), shape);
    let scan = generated.plan(filter, generated.is_backward(sort, hint)?);
    let around = |scan: &DocBuf| match what {
        Explainable::Count(_) => doc! { "stage": "COUNT", "inputStage": scan },
        _ => scan.clone(),
    };
    let mut planner = doc! { "queryPlanner": planner_doc(&planned, &around(&scan), &[]) };
    if verbosity > Verbosity::QueryPlanner {
        let began = Instant::now();
        let examined = || op.counters.docs_examined.load(Relaxed);
        let before = examined();
        let returned = run_generated(engine, op, what)?;
        let examined = narrow((examined() - before) as i64);
        let mut stage = scan.clone();
        stage.append("docsExamined", examined);
        let mut stats = doc! {
            "executionSuccess": true,
            "nReturned": narrow(returned as i64),
            "executionTimeMillis": narrow(began.elapsed().as_millis() as i64),
            "totalKeysExamined": 0,
            "totalDocsExamined": examined,
            "executionStages": whole(&around(&stage)),
        };
        if verbosity == Verbosity::AllPlansExecution {
            stats.append("allPlansExecution", ArrayBuf::new());
        }
        planner.append("executionStats", stats);
    }
    match what {
        Explainable::Aggregate(r) => {
            let mut stages = ArrayBuf::new();
            stages.push(doc! { "$cursor": planner });
            let behind = r.pipeline.values().skip(usize::from(!filter.is_empty()));
            behind.for_each(|s| {
                stages.push(s);
            });
            d.append("stages", stages);
        }
        _ => {
            d.append_all(planner.as_doc());
        }
    }
    Ok(true)
}

/// Runs the command; how much it gives.
fn run_generated(engine: &Database, op: &Arc<OpContext>, what: &Explainable<'_>) -> Result<u64> {
    let mut cursor = match what {
        Explainable::Find(r) => find(engine, op, r)?,
        Explainable::Aggregate(r) => aggregate(engine, op, r)?,
        Explainable::Count(r) => return count(engine, op, r),
        Explainable::Distinct(r) => return Ok(distinct(engine, op, r)?.len() as u64),
        _ => return Ok(0),
    };
    let mut n = 0;
    while cursor.next_doc(op)?.is_some() {
        n += 1;
    }
    Ok(n)
}
