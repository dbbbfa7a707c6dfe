//! What index keys can decide beyond the bounds: the predicates that are tested on keys before the
//! document is read, and the documents of covered plans.
//!
//! Only fields whose key is their value count: fields without arrays along their paths, and not
//! those whose keys an index kind computes. Null in a key may be a missing field, so predicates
//! that tell the two apart are matched on the document.

use super::index_plan::{BoundIndex, IndexInfo};
use super::key_doc::KeyDoc;
use super::leaf::Leaves;
use super::query::Query;
use muniment_query::filter::{Node, Pred};
use muniment_query::running::Work;
use muniment_query::{Filter, Needs};
use muniment_value::Value;
use std::sync::Arc;

/// The condition on a key, which is tested before its document is read.
pub(crate) struct KeyFilter {
    /// The predicates.
    pub filter: Filter,
    /// How to make the document of a key on which the predicates are tested.
    pub keys: KeyDoc,
}

/// Divides what the bounds left to be matched: a part for the key, and a part for the document.
pub(crate) fn residual(
    leaves: &Leaves<'_>,
    bound: &BoundIndex,
) -> (Option<Arc<KeyFilter>>, Option<Filter>) {
    let (mut on_key, mut on_doc) = (Vec::new(), Vec::new());
    for node in bound
        .residual
        .iter()
        .filter_map(|&c| leaves.children.get(c))
    {
        if !bound.info.clustered && testable(node, &bound.info) {
            on_key.push((*node).clone());
        } else {
            on_doc.push((*node).clone());
        }
    }
    let key_filter = conjunction(on_key, leaves).map(|filter| {
        let mut needs = Needs::default();
        needs.filter(filter.root());
        let needs = needs.into_paths().unwrap_or_default();
        let fields = bound.info.fields();
        let wanted = |i: usize| {
            fields
                .get(i)
                .is_some_and(|(p, _)| needs.iter().any(|n| n == p.as_str()))
        };
        Arc::new(KeyFilter {
            keys: KeyDoc::new(fields, wanted),
            filter,
        })
    });
    (key_filter, conjunction(on_doc, leaves))
}

/// A filter that demands all of the nodes; `None` if there are no nodes.
pub(super) fn conjunction(mut nodes: Vec<Node>, leaves: &Leaves<'_>) -> Option<Filter> {
    let root = match nodes.len() {
        0 | 1 => nodes.pop()?,
        _ => Node::And(nodes),
    };
    Some(Filter::from_root(root, &leaves.collation))
}

/// The place of the index field whose key is the value at `path`.
fn field(info: &IndexInfo, path: &str) -> Option<usize> {
    let at = info.fields().iter().position(|(p, _)| p.as_str() == path)?;
    info.holds_value(at).then_some(at)
}

/// True if the keys of the index tell whether the predicates hold.
fn testable(node: &Node, info: &IndexInfo) -> bool {
    match node {
        Node::True | Node::False => true,
        Node::And(list) | Node::Or(list) | Node::Nor(list) => {
            list.iter().all(|n| testable(n, info))
        }
        Node::Field { path, pred } => field(info, path.as_str()).is_some() && null_is_missing(pred),
        _ => false,
    }
}

/// True if the predicate gives the same answer for null and for a missing field.
fn null_is_missing(pred: &Pred) -> bool {
    match pred {
        Pred::Eq(v) | Pred::Lt(v) | Pred::Lte(v) | Pred::Gt(v) | Pred::Gte(v) => {
            !matches!(v.as_value(), Value::Undefined)
        }
        Pred::In { values, .. } => !values
            .iter()
            .any(|v| matches!(v.as_value(), Value::Undefined)),
        Pred::Regex(_) => true,
        Pred::Not(inner) => null_is_missing(inner),
        Pred::And(list) => list.iter().all(null_is_missing),
        Pred::Other(op) => {
            // No predicate takes long for these two, so the operation is not asked.
            let says = |v| op.matches(v, Work::unasked()).ok();
            says(None) == says(Some(Value::Null))
        }
        _ => false,
    }
}

/// How to make the documents of a covered plan, and whether they are exactly what the query wants.
/// `None` if the keys do not hold everything that is needed. `sorts` is true if the plan sorts
/// these documents, which then need the sort's fields too.
pub(crate) fn cover(
    bound: &BoundIndex,
    query: &Query<'_>,
    sorts: bool,
) -> (Option<Arc<KeyDoc>>, bool) {
    let none = (None, false);
    let Some(needs) = query.needs.filter(|n| !n.is_empty()) else {
        return none;
    };
    let sort = query.sort.filter(|_| sorts);
    let sort = sort.iter().flat_map(|s| s.keys()).map(|k| k.path.as_str());
    let mut wanted = vec![false; bound.info.fields().len()];
    let mut exact = query.only_needs;
    for (is_sort, path) in needs
        .iter()
        .map(|p| (false, p.as_str()))
        .chain(sort.map(|p| (true, p)))
    {
        // The value of a field includes what is below it.
        let above = path.match_indices('.').filter_map(|(at, _)| path.get(..at));
        let whole = field(&bound.info, path);
        let Some(at) = whole.or_else(|| above.into_iter().find_map(|p| field(&bound.info, p)))
        else {
            return none;
        };
        exact &= whole.is_some() && (!is_sort || needs.iter().any(|n| n == path));
        if let Some(w) = wanted.get_mut(at) {
            *w = true;
        }
    }
    let keys = KeyDoc::new(bound.info.fields(), |i| {
        wanted.get(i).copied().unwrap_or(false)
    });
    (Some(Arc::new(keys)), exact)
}
