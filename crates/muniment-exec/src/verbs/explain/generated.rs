//! Explains a read of a generated collection. It has no indexes, so its only plan is a scan from
//! some position on.

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
use crate::verbs::head::Head;
use muniment_query::Filter;
use muniment_value::number::narrow;
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Explains a reading command on a generated collection.
pub(super) fn explain_generated(
    engine: &Database,
    op: &Arc<OpContext>,
    generated: &Generated,
    (what, head): (&Explainable<'_>, &Head<'_>),
    verbosity: Verbosity,
    d: &mut DocBuf,
) -> Result<()> {
    let (filter, hint) = (head.filter, head.hint);
    let sort = match what {
        Explainable::Find(r) => r.sort,
        Explainable::Aggregate(r) => front(r.pipeline).1,
        _ => Doc::EMPTY,
    };
    let ctx = query_context(op, head.let_, Default::default())?;
    let parsed = Filter::parse_query(filter, &ctx)?;
    let shape = match what {
        Explainable::Count(_) => of_command(&parsed, "count"),
        _ => shape(&parsed, sort, Doc::EMPTY),
    };
    let planned = Planned::new(head.namespace, parsed.to_doc(), shape);
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
    Ok(())
}

/// Runs the command and returns how many documents it gives.
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
