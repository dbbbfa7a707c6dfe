//! The two parts of a `$group` (and of a `$bucket`, which is one): the shards of a cluster accumulate, and give
//! the states of their accumulators instead of results; the router merges the states of equal groups.
//!
//! A part is the stage with one more field, which only members of the cluster may write. The first part gives
//! `{_id: …, FIELD: STATE, …}`, in the order of the fields, where a state is the value that
//! [`Accumulator::save`](super::accumulators::Accumulator::save) writes.

use super::accumulators::{self, Order};
use super::spread::{Halves, Merge, Whole};
use crate::context::QueryContext;
use muniment_value::{Doc, DocBuf, Elem, Value, doc};

/// The part of a stage that a member of a cluster runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    #[default]
    Whole,
    /// The first part, which gives the states of its accumulators.
    First,
    /// The second part, which merges them.
    Second,
}

/// The fields that ask for a part.
const FIRST: &str = "$willBeMerged";
const SECOND: &str = "$doingMerge";

impl Part {
    /// The part that this field of the operand asks for; `None` for any other field, or in a client's pipeline.
    pub(super) fn of(f: Elem<'_>, ctx: &QueryContext) -> Option<Part> {
        if !ctx.member || f.value().as_bool() != Some(true) {
            return None;
        }
        match f.name() {
            FIRST => Some(Part::First),
            SECOND => Some(Part::Second),
            _ => None,
        }
    }
}

/// Divides a `$group`.
pub(super) fn of_group(whole: &Whole<'_>) -> Option<Halves> {
    if let Some(halves) = of_count(whole) {
        return Some(halves);
    }
    divided(whole, whole.source.value().as_doc()?)
}

/// Divides a `$bucket`.
pub(super) fn of_bucket(whole: &Whole<'_>) -> Option<Halves> {
    let options = whole.source.value().as_doc()?;
    divided(whole, options.get_doc("output").unwrap_or(Doc::EMPTY))
}

/// The stage in two parts, if its fields allow that.
fn divided(whole: &Whole<'_>, fields: Doc<'_>) -> Option<Halves> {
    if whole.sorted && fields.iter().any(needs_order) {
        return None;
    }
    let part = |mark: &str| {
        let mut operand = whole.source.value().as_doc().unwrap_or(Doc::EMPTY).to_buf();
        operand.append(mark, true);
        stage(whole.source.name(), Value::Document(operand.as_doc()))
    };
    Some(Halves {
        shards: part(FIRST),
        merge: Merge::Concatenate,
        router: vec![part(SECOND)],
    })
}

/// Whether the result of the accumulator in this field depends on the order of its documents.
fn needs_order(f: Elem<'_>) -> bool {
    let accumulator = f.value().as_doc().and_then(|d| d.first());
    let spec = accumulator.and_then(|a| accumulators::find(a.name()).ok());
    spec.is_some_and(|s| s.order == Order::Kept)
}

/// Divides a stage that only counts documents. The shards count, which they may do without reading documents, and
/// the router adds the numbers up.
pub(super) fn of_count(whole: &Whole<'_>) -> Option<Halves> {
    let counts = whole.counts?;
    let mut group = DocBuf::new();
    match &counts.id {
        Some(id) => group.append("_id", doc! { "$literal": id }),
        None => group.append("_id", Value::Null),
    };
    for f in &counts.fields {
        if f.is_empty() {
            return None;
        }
        group.append(f, doc! { "$sum": format!("${f}") });
    }
    let mut router = vec![doc! { "$group": group }];
    if counts.id.is_none() {
        router.push(doc! { "$project": doc! { "_id": 0 } });
    }
    Some(Halves {
        shards: stage(whole.source.name(), whole.source.value()),
        merge: Merge::Concatenate,
        router,
    })
}

/// The stage with this name and operand.
pub(super) fn stage(name: &str, operand: Value<'_>) -> DocBuf {
    let mut d = DocBuf::new();
    d.append(name, operand);
    d
}
