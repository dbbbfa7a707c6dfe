//! Explaining a command on a view: it is one on what lies below.

use super::Explainable;
use crate::plan::hint::Hint;
use crate::source::Source;
use crate::verbs::count::count_stages;
use crate::verbs::distinct::distinct_stages;
use crate::verbs::find::view::find_stages;
use crate::view::Resolved;
use muniment_storage::Store;
use muniment_value::{ArrayBuf, Doc, Result};

/// The view that is read, and the stages that stand for the command; 166 for a write.
#[allow(clippy::type_complexity)] // the pieces of one request
pub(crate) fn view_below<'w>(
    store: &Store,
    what: &'w Explainable<'w>,
    source: Option<&Source>,
) -> Result<Option<(Resolved, ArrayBuf, Option<Hint<'w>>, Doc<'w>)>> {
    let (Some(namespace), Some(source)) = (what.namespace(), source) else {
        return Ok(None);
    };
    match what {
        Explainable::Update { .. } | Explainable::Delete { .. } | Explainable::FindAndModify(_) => {
            return source.refuse_write(&namespace).map(|()| None);
        }
        Explainable::MapReduce(_) => return source.refuse_view(&namespace).map(|()| None),
        _ => {}
    }
    let Some(view) = source.as_view(store, &namespace)? else {
        return Ok(None);
    };
    let given = match what {
        Explainable::Find(r) => &r.collation,
        Explainable::Count(r) => &r.collation,
        Explainable::Distinct(r) => &r.collation,
        Explainable::Aggregate(r) => &r.collation,
        _ => &None,
    };
    if let Some(given) = given {
        view.check_collation(&namespace, given)?;
    }
    let (stages, hint, let_) = match what {
        Explainable::Find(r) => (find_stages(r)?, r.hint, r.let_),
        Explainable::Count(r) => (count_stages(r), r.hint, r.let_),
        Explainable::Distinct(r) => (distinct_stages(r), r.hint, r.let_),
        Explainable::Aggregate(r) => {
            let mut stages = ArrayBuf::new();
            for v in r.pipeline.values() {
                stages.push(v);
            }
            (stages, r.hint, r.let_)
        }
        _ => return Ok(None),
    };
    Ok(Some((view, stages, hint, let_)))
}
