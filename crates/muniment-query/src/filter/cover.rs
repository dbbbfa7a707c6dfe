//! The geometries of a filter, for the planner.

use super::{Node, Pred};
use crate::running::Work;
use muniment_value::Result;

/// Covers the geometries below a node.
pub(super) fn node(n: &Node, work: Work<'_>) -> Result<()> {
    match n {
        Node::And(list) | Node::Or(list) | Node::Nor(list) => {
            list.iter().try_for_each(|n| node(n, work))
        }
        Node::Field { pred: p, .. } => pred(p, work),
        Node::True | Node::False | Node::Expr { .. } | Node::Doc(_) => Ok(()),
    }
}

fn pred(p: &Pred, work: Work<'_>) -> Result<()> {
    match p {
        Pred::Not(p) => pred(p, work),
        Pred::And(list) | Pred::ElemMatchValue(list) => list.iter().try_for_each(|p| pred(p, work)),
        Pred::ElemMatchObject(n) => node(n, work),
        Pred::Other(op) => op.geo().map_or(Ok(()), |geo| geo.cover(work)),
        _ => Ok(()),
    }
}
