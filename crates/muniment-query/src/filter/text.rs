//! `$text` in a filter: checks where it may stand, binds it to an index, and removes it for the planner.

use super::ops::TextOp;
use super::parse::{Parser, and};
use super::{Filter, Node};
use crate::text::{TextSearch, TextSpec};
use muniment_value::{Error, Result};
use std::sync::Arc;

/// The error of a `$text` after a pipeline's first stage.
pub(super) fn not_first() -> Error {
    Error::location(
        Filter::NO_TEXT_INDEX.0,
        "$match with $text is only allowed as the first pipeline stage",
    )
}

/// Refuses more than one `$text`, one in a `$nor`, and one beside a `$near`.
pub(super) fn check(parser: &Parser<'_>, root: &Node) -> Result<()> {
    if !parser.saw_text {
        return Ok(());
    }
    if count(root, false) > 1 {
        return Err(Error::bad_value("Too many text expressions"));
    }
    if count(root, true) == 0 {
        return Err(Error::bad_value("text expression not allowed in nor"));
    }
    if parser.saw_near {
        return Err(Error::bad_value(
            "text and geoNear not allowed in same query",
        ));
    }
    Ok(())
}

/// The number of `$text`s; with `outside`, those in a `$nor` are not counted.
fn count(node: &Node, outside: bool) -> usize {
    match node {
        Node::Nor(_) if outside => 0,
        Node::And(l) | Node::Or(l) | Node::Nor(l) => l.iter().map(|n| count(n, outside)).sum(),
        node => usize::from(of(node).is_some()),
    }
}

fn of(node: &Node) -> Option<&TextOp> {
    match node {
        Node::Doc(op) => op.text(),
        _ => None,
    }
}

/// True if there is a `$text`; the grammar does not allow one below a path.
pub(super) fn is_in(node: &Node) -> bool {
    match node {
        Node::And(l) | Node::Or(l) => l.iter().any(is_in),
        node => of(node).is_some(),
    }
}

/// The tree with its `$text` bound to an index.
pub(super) fn bind(node: &Node, spec: &Arc<TextSpec>) -> Node {
    let all = |l: &[Node]| l.iter().map(|n| bind(n, spec)).collect();
    match node {
        Node::And(l) => Node::And(all(l)),
        Node::Or(l) => Node::Or(all(l)),
        node => match of(node) {
            Some(op) => Node::Doc(Arc::new(op.bind(spec))),
            None => node.clone(),
        },
    }
}

/// The bound `$text` at the top level.
pub(super) fn find(root: &Node) -> Option<&Arc<TextSearch>> {
    let at = |n| of(n).and_then(TextOp::search);
    match root {
        Node::And(list) => list.iter().find_map(at),
        node => at(node),
    }
}

/// The tree without that `$text`.
pub(super) fn without(root: &Node) -> Node {
    match root {
        Node::And(list) => and(list.iter().filter(|n| of(n).is_none()).cloned().collect()),
        node if of(node).is_some() => Node::True,
        node => node.clone(),
    }
}
