//! Plans for `$text`: the collection's text index, and nothing else.

use super::candidate::{Access, Candidate, Query};
use super::index_plan::{IndexInfo, implies};
use super::leaf::Leaves;
use super::min_max::min_max_error;
use super::or_plan::text_candidate as or_candidate;
use muniment_query::Filter;
use muniment_query::filter::{Node, Pred};
use muniment_query::text::TextSearch;
use muniment_storage::Collection;
use muniment_storage::kinds::TextIndex;
use muniment_value::collation::has_text;
use muniment_value::{Code, Collation, Error, Result, ValueBuf, values_equal};
use std::sync::Arc;

/// A text index that gives the documents of a `$text`.
pub struct TextAccess {
    /// The index.
    pub info: Arc<IndexInfo>,
    /// The values of the fields in front of the words.
    pub before: Vec<ValueBuf>,
    /// What is searched for.
    pub search: Arc<TextSearch>,
    /// What else must be matched on the document.
    pub filter: Option<Filter>,
}

impl TextAccess {
    /// The index as it looks up words.
    pub fn index(&self) -> Option<&dyn TextIndex> {
        self.info.index.kind().and_then(|k| k.text())
    }

    /// True when the index decides alone.
    pub fn is_exact(&self) -> bool {
        self.filter.is_none() && self.search.is_by_terms()
    }
}

/// The filter in the terms of the collection's text index, where it has a `$text`.
///
/// # Errors
/// 27 IndexNotFound without such an index.
pub fn bind_text(collection: &Collection, filter: &Filter) -> Result<Filter> {
    if !filter.has_text() {
        return Ok(filter.clone());
    }
    let indexes = collection.indexes();
    let spec = indexes
        .iter()
        .find_map(|i| Some(i.kind()?.text()?.spec().clone()))
        .ok_or_else(|| Error::new(Code::IndexNotFound, "text index required for $text query"))?;
    Ok(filter.bind_text(&spec))
}

/// Refuses a filter with a `$text` where there is no collection.
///
/// # Errors
/// 27 IndexNotFound.
pub fn refuse_text(namespace: &str, filter: &Filter) -> Result<()> {
    if !filter.has_text() {
        return Ok(());
    }
    Err(Error::new(
        Code::IndexNotFound,
        format!("text index required for $text query (no such collection '{namespace}')"),
    ))
}

/// The plan of a query with a `$text`, over one of `infos`.
///
/// # Errors
/// 2 BadValue for a hint; 291 NoQueryExecutionPlans when the index cannot be used.
pub fn text_candidate(
    namespace: &str,
    query: &Query<'_>,
    infos: &[Arc<IndexInfo>],
) -> Result<Candidate> {
    if query.hint.is_some() {
        return Err(Error::bad_value("text and hint not allowed in same query"));
    }
    if !query.min.is_empty() || !query.max.is_empty() {
        return Err(min_max_error());
    }
    let root = query.filter.root();
    let plan = match text_access(infos, root, query.filter.collation()) {
        Some(access) => Some(Candidate {
            signature: format!("TEXT {}", access.info.name()),
            access: Access::Text(Arc::new(access)),
            filter: None,
            needs_sort: query.sort.is_some(),
            covered: None,
            needed_exactly: false,
            rank: 0,
            express: None,
        }),
        None => or_candidate(query, &Leaves::of(query.filter), infos),
    };
    plan.ok_or_else(|| {
        Error::new(
            Code::NoQueryExecutionPlans,
            format!(
                "error processing query: ns={namespace} planner returned error: failed to use \
                 text index to satisfy $text query (if text index is compound, are equality \
                 predicates given for all prefix fields?)"
            ),
        )
    })
}

/// The scan for a tree that has its `$text` at the top: each of the fields in front of the words
/// needs an equality.
pub fn text_access(
    infos: &[Arc<IndexInfo>],
    root: &Node,
    collation: &Collation,
) -> Option<TextAccess> {
    let search = Filter::text_of(root)?;
    let rest = Filter::without_text(root);
    let leaves = Leaves::of_node(&rest, collation);
    infos.iter().find_map(|info| {
        let text = info.index.kind()?.text()?;
        if let Some(partial) = info.index.partial_filter()
            && !implies(&leaves, partial)
        {
            return None;
        }
        let before = text.before().iter().map(|(path, _)| {
            leaves.leaves.iter().find_map(|l| match l.pred {
                // The index compares texts byte by byte.
                Pred::Eq(v) if !collation.is_simple() && has_text(v.as_value()) => None,
                Pred::Eq(v) if l.path == path.as_str() && l.elem.is_empty() => Some(v.clone()),
                _ => None,
            })
        });
        let before: Vec<ValueBuf> = before.collect::<Option<_>>()?;
        // The entries have these values; no document with an array there is indexed.
        let answered = |n: &Node| {
            let mut fields = text.before().iter().zip(&before);
            matches!(n, Node::Field { path, pred: Pred::Eq(v) }
            if fields.any(|((p, _), b)| {
                p.as_str() == path.as_str() && values_equal(v.as_value(), b.as_value())
            }))
        };
        let mut left: Vec<Node> = leaves
            .children
            .iter()
            .filter(|n| !answered(n))
            .map(|n| (*n).clone())
            .collect();
        let filter = match left.len() {
            0 => None,
            1 => left.pop().map(|n| Filter::from_root(n, collation)),
            _ => Some(Filter::from_root(Node::And(left), collation)),
        };
        Some(TextAccess {
            info: info.clone(),
            before,
            search: search.clone(),
            filter,
        })
    })
}
