//! Makes all plans that could answer a query.

use super::access::{Access, Candidate, NATURAL};
use super::express::{by_field, by_id};
use super::hint::{Hint, natural};
use super::index_plan::IndexInfo;
use super::leaf::Leaves;
use super::min_max::{min_max, min_max_error};
use super::near::near_candidate;
use super::or_plan::or_candidates;
use super::query::Query;
use super::scan::finish;
use super::text::text_candidate;
use super::wildcard::binds;
use muniment_query::Filter;
use muniment_query::filter::Node;
use muniment_query::running::Work;
use muniment_storage::{Collection, Index, IndexSpec};
use muniment_value::{Code, Doc, Error, Result, cmp_values};
use std::cmp::Ordering;
use std::sync::Arc;

/// The message for a hint that names no usable index.
const BAD_HINT: &str = "hint provided does not correspond to an existing index";

fn collscan(query: &Query<'_>, backward: bool) -> Candidate {
    let filter = match query.filter.root() {
        Node::True => None,
        _ => Some(query.filter.clone()),
    };
    Candidate {
        access: Access::CollScan { backward },
        filter,
        needs_sort: query.sort.is_some(),
        covered: None,
        needed_exactly: false,
        signature: "COLLSCAN".into(),
        rank: usize::MAX,
        express: None,
    }
}

/// The plan that looks up one `_id`, if the query asks for nothing else.
fn by_id_alone(collection: &Collection, query: &Query<'_>) -> Option<Candidate> {
    if !query.look_up.by_id
        || query.allowed.is_some()
        || !query.min.is_empty()
        || !query.max.is_empty()
        || collection.is_time_series()
    {
        return None;
    }
    let id = query.filter.id_equality_by(collection.collation())?;
    Some(Candidate {
        express: query.look_up.express.then(|| by_id(collection)),
        ..Candidate::alone(Access::IdHack(id.clone()), "IDHACK")
    })
}

/// Computes the covering of the filter's geometries, if an index needs one.
fn cover(collection: &Collection, filter: &Filter, work: Work<'_>) -> Result<()> {
    let needs_cover = |i: &Arc<Index>| i.kind().is_some_and(|k| k.needs_cover());
    match collection.indexes().iter().any(needs_cover) {
        true => filter.cover(work),
        false => Ok(()),
    }
}

/// All candidates. There is at least one.
///
/// # Errors
/// 2 BadValue for a hint that fits no index; 51173 and similar codes for min and max; the
/// interruption of `work` while geometries are covered.
pub(crate) fn candidates(
    collection: &Collection,
    query: &Query<'_>,
    work: Work<'_>,
) -> Result<Vec<Candidate>> {
    // An index filter overrules hints.
    let hint = query.hint.filter(|_| query.allowed.is_none());
    if hint.is_none()
        && let Some(candidate) = by_id_alone(collection, query)
    {
        return Ok(vec![candidate]);
    }
    let namespace = collection.namespace();
    if matches!(query.filter.root(), Node::False) {
        return Ok(vec![Candidate::alone(Access::Eof, "EOF")]);
    }
    cover(collection, query.filter, work)?;
    if query.filter.has_text() {
        let usable = |i: &&Arc<Index>| {
            let spec = i.spec();
            !spec.hidden && query.allowed.as_ref().is_none_or(|a| a.allows(&spec))
        };
        let infos: Vec<Arc<IndexInfo>> = collection
            .indexes()
            .iter()
            .filter(usable)
            .map(|i| IndexInfo::of(i, collection))
            .collect();
        return Ok(vec![text_candidate(&namespace, query, &infos)?]);
    }
    let bounded_by_hand = !query.min.is_empty() || !query.max.is_empty();
    if let Some(Hint::Pattern(p)) = hint
        && let Some(backward) = natural(p)
    {
        if bounded_by_hand {
            return Err(min_max_error());
        }
        if query.filter.near().is_some() {
            let reason = "hint $natural is not allowed with $near";
            return Err(query.refused(&namespace, Code::BadValue, reason));
        }
        let mut scan = collscan(query, backward);
        scan.signature = NATURAL.into();
        return Ok(vec![scan]);
    }
    let mut indexes = collection.indexes();
    if let Some(allowed) = &query.allowed {
        let left = indexes.iter().filter(|i| allowed.allows(&i.spec()));
        indexes = left.cloned().collect();
    }
    let leaves = Leaves::of(query.filter);
    if let Some(hint) = hint {
        let mut named = indexes.iter().filter(|i| is_hinted(hint, &i.spec()));
        let Some(index) = named.next() else {
            // A damaged index is not usable, but if the hint means it, its error is the answer.
            for damaged in collection.listed_indexes() {
                let spec = damaged.spec();
                if is_hinted(hint, &spec) {
                    damaged.check_usable(collection)?;
                }
            }
            return Err(query.refused(&namespace, Code::BadValue, BAD_HINT));
        };
        if let Some(other) = named.next() {
            // The two have the same keys and differ in collation or partial filter.
            let names = [index, other].map(|i| i.spec().name.clone()).join(", ");
            let reason =
                format!("Hint matched multiple indexes, must hint by index name. Matched: {names}");
            return Err(query.refused(&namespace, Code::IndexNotFound, &reason));
        }
        let info = IndexInfo::of(index, collection);
        if let Some((path, near)) = query.filter.near() {
            let candidate = near_candidate(&namespace, query, &[info], path, near)?;
            return Ok(vec![candidate]);
        }
        if bounded_by_hand {
            return Ok(vec![min_max(query, &info, &leaves)?]);
        }
        // If the hint names a sparse index, it is used even though it leaves documents out.
        let mut out: Vec<Candidate> = binds(&info, &leaves, true)
            .into_iter()
            .map(|bound| finish(query, &leaves, bound, None))
            .collect();
        if info.index.kind().is_some_and(|k| k.wildcard().is_some()) {
            out.extend(or_candidates(query, &leaves, &[info]));
        }
        if out.is_empty() {
            return Err(Error::new(
                Code::NoQueryExecutionPlans,
                format!("{} No query solutions", query.text(&namespace)),
            ));
        }
        return Ok(out);
    }
    if bounded_by_hand {
        return Err(min_max_error());
    }
    let infos: Vec<Arc<IndexInfo>> = indexes
        .iter()
        .filter(|i| !i.spec().hidden)
        .map(|i| IndexInfo::of(i, collection))
        .collect();
    if let Some((path, near)) = query.filter.near() {
        let candidate = near_candidate(&namespace, query, &infos, path, near)?;
        return Ok(vec![candidate]);
    }
    let mut out: Vec<Candidate> = Vec::new();
    for info in &infos {
        for bound in binds(info, &leaves, false) {
            let narrows = bound.narrows();
            let c = finish(query, &leaves, bound, None);
            if narrows || (query.sort.is_some() && !c.needs_sort) {
                out.push(c);
            }
        }
    }
    if let Some(one) = by_field(query, collection, &out) {
        return Ok(vec![one]);
    }
    out.extend(or_candidates(query, &leaves, &infos));
    if out.is_empty() {
        out.push(collscan(query, false));
    }
    Ok(out)
}

/// Scans of the indexes on which the filter puts no bounds.
pub(crate) fn unbounded(collection: &Collection, query: &Query<'_>) -> Vec<Candidate> {
    let leaves = Leaves::of(query.filter);
    collection
        .indexes()
        .iter()
        .filter(|i| !i.spec().hidden && query.allowed.as_ref().is_none_or(|a| a.allows(&i.spec())))
        .flat_map(|i| binds(&IndexInfo::of(i, collection), &leaves, false))
        .filter(|b| b.bounded == 0)
        .map(|b| finish(query, &leaves, b, None))
        .collect()
}

fn is_hinted(hint: Hint<'_>, spec: &IndexSpec) -> bool {
    !spec.hidden
        && match hint {
            Hint::Name(n) => spec.name == n,
            Hint::Pattern(p) => same_pattern(spec.key.as_doc(), p),
        }
}

/// Two key patterns are the same if their names and numeric directions are.
fn same_pattern(a: Doc<'_>, b: Doc<'_>) -> bool {
    let (mut x, mut y) = (a.iter(), b.iter());
    loop {
        match (x.next(), y.next()) {
            (None, None) => return true,
            (Some(e), Some(f)) => {
                if e.name_bytes() != f.name_bytes()
                    || cmp_values(e.value(), f.value()) != Ordering::Equal
                {
                    return false;
                }
            }
            _ => return false,
        }
    }
}
