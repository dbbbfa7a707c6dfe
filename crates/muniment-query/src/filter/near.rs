//! `$near` in a filter: checks where it may stand, and removes it for the planner.

use super::parse::{Parser, and};
use super::{Node, Pred};
use crate::geo::NearQuery;
use muniment_value::path::Path;
use muniment_value::{Error, Result};
use std::sync::Arc;

/// The error for a `$near` in a filter that is not planned.
pub fn not_here() -> Error {
    Error::location(
        5_626_500,
        "$geoNear, $near, and $nearSphere are not allowed in this context, as these operators \
         require sorting geospatial data. If you do not need sort, consider using $geoWithin \
         instead.",
    )
}

/// Refuses more than one `$near`, and one that is not a condition of the whole filter.
pub(super) fn check(parser: &Parser<'_>, root: &Node) -> Result<()> {
    if !parser.saw_near {
        return Ok(());
    }
    let all = count(root);
    let top = match root {
        Node::And(list) => list.iter().filter(|n| of(n).is_some()).count(),
        node => usize::from(of(node).is_some()),
    };
    if all > 1 {
        return Err(Error::bad_value("Too many geoNear expressions"));
    }
    if top != 1 {
        return Err(Error::bad_value("geoNear must be top-level expr"));
    }
    Ok(())
}

fn of(node: &Node) -> Option<(&Path, &Arc<NearQuery>)> {
    match node {
        Node::Field {
            path,
            pred: Pred::Other(op),
        } => op.near().map(|n| (path, n)),
        _ => None,
    }
}

/// The `$near` at the top level.
pub(super) fn find(root: &Node) -> Option<(&Path, &Arc<NearQuery>)> {
    match root {
        Node::And(list) => list.iter().find_map(of),
        node => of(node),
    }
}

/// The tree without that `$near`.
pub(super) fn without(root: &Node) -> Node {
    match root {
        Node::And(list) => and(list.iter().filter(|n| of(n).is_none()).cloned().collect()),
        node if of(node).is_some() => Node::True,
        node => node.clone(),
    }
}

fn count(node: &Node) -> usize {
    match node {
        Node::And(l) | Node::Or(l) | Node::Nor(l) => l.iter().map(count).sum(),
        Node::Field { pred, .. } => in_pred(pred),
        _ => 0,
    }
}

fn in_pred(pred: &Pred) -> usize {
    match pred {
        Pred::Not(p) => in_pred(p),
        Pred::And(l) | Pred::ElemMatchValue(l) => l.iter().map(in_pred).sum(),
        Pred::ElemMatchObject(node) => count(node),
        Pred::Other(op) => usize::from(op.near().is_some()),
        _ => 0,
    }
}
