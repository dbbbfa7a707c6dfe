//! The executionStats of commands that run for real, made only for operations that are observed (by
//! the profiler, for example).

use super::reply::{Around, Ran, counted, on_nothing, stages};
use crate::plan::access::BY_ID;
use crate::run::exec::Exec;
use crate::run::{Stats, wrap};
use crate::verbs::write::change::Change;
use muniment_value::number::narrow;
use muniment_value::{DocBuf, doc};

/// The name of the stage that stands for a write.
pub(crate) fn stage_of(change: &Change<'_>) -> &'static str {
    match change {
        Change::Update { .. } => "UPDATE",
        Change::Delete => "DELETE",
    }
}

/// The figures that are particular to a write's stage.
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

/// The executionStats of a write's plan.
pub(crate) fn wrote(exec: &Exec, change: &Change<'_>, matched: u64, modified: u64) -> DocBuf {
    let figures = write_figures(change, matched, modified);
    below(exec, stage_of(change), figures)
}

/// The executionStats of a write to a collection that does not exist.
pub(crate) fn nothing_wrote(change: &Change<'_>) -> DocBuf {
    let figures = write_figures(change, 0, 0);
    on_nothing(Around::Stage(stage_of(change), &figures), true)
}

/// The executionStats of a find in a collection that does not exist.
pub(crate) fn nothing_found() -> DocBuf {
    on_nothing(Around::Nothing, true)
}

/// The executionStats of a count's plan. `exec` is `None` if the collection does not exist.
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

/// The executionStats of a look-up by `_id` that was made without a plan, in the form that explain
/// would give it. `found` is the number of documents found. `wrote` is the change that was made to
/// them and how many documents it modified.
pub(crate) fn looked_up(
    summary: &str,
    keyed_by_id: bool,
    found: u64,
    wrote: Option<(&Change<'_>, u64)>,
) -> DocBuf {
    let stage = summary.rsplit(',').next().unwrap_or(summary);
    let stage = stage.split(' ').next().unwrap_or(stage);
    let figures = wrote.map(|(change, modified)| write_figures(change, found, modified));
    let keys = if keyed_by_id { 0 } else { found };
    let examined = doc! { "keysExamined": keys as i64, "docsExamined": found as i64 };
    if stage == BY_ID {
        let stats = Stats {
            advanced: found,
            works: found,
            eof: true,
            ..Stats::default()
        };
        let mut d = doc! { "stage": stage };
        stats.append(&mut d);
        d.append_all(examined.as_doc());
        return match (wrote, figures) {
            (Some((change, _)), Some(figures)) => {
                let figures = |d: &mut DocBuf| {
                    d.append_all(figures.as_doc());
                };
                wrap(stage_of(change), true, stats, figures, d)
            }
            _ => d,
        };
    }
    let mut d = doc! { "stage": stage };
    if !keyed_by_id {
        d.append("keyPattern", "{ _id: 1 }");
        d.append("indexName", "_id_");
    }
    d.append_all(examined.as_doc());
    // A write's stage returns no documents.
    d.append("nReturned", if wrote.is_some() { 0 } else { found as i64 });
    if let Some(figures) = figures {
        for name in ["nWouldModify", "nWouldUpsert", "nWouldDelete"] {
            let n = figures.as_doc().get(name).and_then(|v| v.as_i64_exact());
            d.append(name, n.unwrap_or(0));
        }
    }
    d
}
