//! Express plans: an equality on one field that can match only one document is looked up without
//! planning (MongoDB 8.0's EXPRESS_IXSCAN, EXPRESS_CLUSTERED_IXSCAN, EXPRESS_UPDATE and
//! EXPRESS_DELETE).
//!
//! By `_id`, they replace what was called IDHACK. IDHACK remains for look-ups that have something
//! around them (a batch size, returnKey, a computed projection, an upsert). By another field they
//! need a plain index that begins with the field: a unique one on that field alone, or any one if
//! the query asks for a single document.

use super::access::{Access, BY_ID, CLUSTERED, Candidate, IXSCAN, Verb};
use super::query::Query;
use muniment_query::filter::{Node, Pred};
use muniment_storage::Collection;
use muniment_value::{DocBuf, Value, doc};

/// The name of the stage that looks up an `_id` in this collection.
pub(crate) fn by_id(collection: &Collection) -> &'static str {
    match collection.is_keyed_by_id() {
        true => CLUSTERED,
        false => IXSCAN,
    }
}

/// The `planSummary` of a look-up by `_id` that is made without a plan.
pub(crate) fn summary(collection: &Collection, express: bool, write: Option<Verb>) -> &'static str {
    if !express {
        return BY_ID;
    }
    match (collection.is_keyed_by_id(), write) {
        (false, None) => "EXPRESS_IXSCAN { _id: 1 }",
        (false, Some(Verb::Update)) => "EXPRESS_IXSCAN { _id: 1 },EXPRESS_UPDATE",
        (false, Some(Verb::Delete)) => "EXPRESS_IXSCAN { _id: 1 },EXPRESS_DELETE",
        (true, None) => CLUSTERED,
        (true, Some(Verb::Update)) => "EXPRESS_CLUSTERED_IXSCAN,EXPRESS_UPDATE",
        (true, Some(Verb::Delete)) => "EXPRESS_CLUSTERED_IXSCAN,EXPRESS_DELETE",
    }
}

/// The plan that looks up an equality on one field, if `all` has one. Among several, the index with
/// the fewest fields wins.
pub(crate) fn by_field(
    query: &Query<'_>,
    collection: &Collection,
    all: &[Candidate],
) -> Option<Candidate> {
    let look_up = query.look_up;
    if !look_up.by_field
        || query.sort.is_some()
        || collection.is_keyed_by_id()
        || collection.is_time_series()
    {
        return None;
    }
    let Node::Field {
        path,
        pred: Pred::Eq(v),
    } = query.filter.root()
    else {
        return None;
    };
    // The key of such a value does not decide whether a document matches.
    if matches!(
        v.as_value(),
        Value::Null | Value::Undefined | Value::Array(_) | Value::Regex { .. }
    ) {
        return None;
    }
    let fitting = all.iter().filter_map(|c| {
        let Access::Index(a) = &c.access else {
            return None;
        };
        let info = &a.bound.info;
        let first = info.fields().first()?;
        let fields = info.fields().len();
        let fits = c.filter.is_none()
            && a.key_filter.is_none()
            && info.index.kind().is_none()
            && first.0.as_str() == path.as_str()
            && a.bound.single_point(0)
            && (look_up.one || info.unique && fields == 1);
        fits.then_some(((fields, !info.unique), c))
    });
    let (_, best) = fitting.min_by_key(|(order, _)| *order)?;
    Some(Candidate {
        express: Some(IXSCAN),
        ..best.clone()
    })
}

/// The stage as explain shows it. A stage that is part of a write has the write's name.
pub(crate) fn stage_doc(candidate: &Candidate, write: Option<&str>) -> Option<DocBuf> {
    let own = candidate.express?;
    let mut d = doc! { "stage": write.unwrap_or(own) };
    match &candidate.access {
        Access::Index(a) => {
            let info = &a.bound.info;
            d.append("keyPattern", info.pattern().as_doc().to_display().as_str());
            d.append("indexName", info.index.spec().name.as_str());
        }
        _ if own == IXSCAN => {
            d.append("keyPattern", "{ _id: 1 }");
            d.append("indexName", "_id_");
        }
        _ => {}
    }
    Some(d)
}
