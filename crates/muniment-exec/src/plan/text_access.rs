//! The scan of a text index for a `$text`.

use super::access::TextAccess;
use super::index_plan::{IndexInfo, implies};
use super::leaf::Leaves;
use muniment_query::Filter;
use muniment_query::filter::{Node, Pred};
use muniment_value::collation::has_text;
use muniment_value::{Collation, ValueBuf, values_equal};
use std::sync::Arc;

/// The scan for a tree with its `$text` at the top. Every field of the index before the words needs
/// an equality.
pub(crate) fn text_access(
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
                // The index compares strings byte by byte, and the query by its collation.
                Pred::Eq(v) if !collation.is_simple() && has_text(v.as_value()) => None,
                Pred::Eq(v) if l.path == path.as_str() && l.elem.is_empty() => Some(v.clone()),
                _ => None,
            })
        });
        let before: Vec<ValueBuf> = before.collect::<Option<_>>()?;
        // All entries that the scan reads have these values, and a document with an array there is
        // not indexed, so these conditions hold already.
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
