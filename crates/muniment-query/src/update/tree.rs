//! The tree into which the update's paths are merged, so that one walk over a document applies all of them.
//!
//! Invariants: there is nothing below a leaf; the children of a node are sorted in the order in which MongoDB
//! applies them ([`order`]), so that new fields appear in that order.

use super::registry::LeafOp;
use crate::bytes::array_position;
use muniment_value::{Code, Error, Result};
use std::cmp::Ordering;
use std::sync::Arc;

/// The most components of an update's path. A longer one could not be stored anyway.
const MAX_PARTS: usize = 200;

/// A node below which there are further paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Children by name, sorted.
    pub named: Vec<Named>,
    /// The child of the positional `$`.
    pub positional: Option<Box<Node>>,
    /// Children of `$[]` and `$[id]`. If there are any, `named` and `positional` are empty.
    pub each: Vec<Each>,
}

/// A child with a name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// The name.
    pub name: Arc<str>,
    /// The element of an array that the name can stand for.
    pub index: Option<usize>,
    /// The subtree of the child.
    pub node: Node,
}

/// A child that stands for many elements of an array.
#[derive(Clone, Debug)]
pub(crate) struct Each {
    /// The index of the array filter that the elements must satisfy; `None` for `$[]`.
    pub filter: Option<usize>,
    /// The subtree of the child.
    pub node: Node,
}

/// A leaf or a tree.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// The end of a path.
    Leaf(Leaf),
    /// A part of a path with more components.
    Inner(Tree),
}

/// The end of a path.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    /// The operation.
    pub op: Arc<dyn LeafOp>,
    /// The path as written.
    pub path: Arc<str>,
}

impl Named {
    fn new(name: Arc<str>, node: Node) -> Named {
        Named {
            index: array_position(&name),
            name,
            node,
        }
    }
}

/// The order in which MongoDB applies and creates fields. Names are compared as text; but of two names that
/// begin with a digit, the shorter one comes first, so that 9 is before 10. A name that begins with a zero
/// and has more characters counts as text.
fn order(a: &str, b: &str) -> Ordering {
    let number = |s: &str| match s.as_bytes() {
        [b'0', _, ..] => false,
        [first, ..] => first.is_ascii_digit(),
        [] => false,
    };
    if number(a) && number(b) {
        return a.len().cmp(&b.len()).then_with(|| a.cmp(b));
    }
    a.cmp(b)
}

/// One component of an update's path.
enum Part<'p> {
    Name(&'p str),
    Positional,
    Each(Option<usize>),
}

/// Splits an update's path and checks its components. `filter_index` finds the array filters.
fn split<'p>(
    path: &'p str,
    filter_index: &mut dyn FnMut(&str, &str) -> Result<usize>,
) -> Result<Vec<Part<'p>>> {
    if path.is_empty() {
        return Err(Error::new(
            Code::EmptyFieldName,
            "An empty update path is not valid.",
        ));
    }
    let mut parts = Vec::new();
    let mut positional = false;
    for (i, part) in path.split('.').enumerate() {
        if part.is_empty() {
            return Err(Error::new(
                Code::EmptyFieldName,
                format!(
                    "The update path '{path}' contains an empty field name, which is not allowed."
                ),
            ));
        }
        if i >= MAX_PARTS {
            return Err(crate::bytes::too_deep());
        }
        let id = part.strip_prefix("$[").and_then(|p| p.strip_suffix(']'));
        if part == "$" {
            if i == 0 {
                return Err(Error::bad_value(format!(
                    "Cannot have positional (i.e. '$') element in the first position in path '{path}'"
                )));
            }
            if positional {
                return Err(Error::bad_value(format!(
                    "Too many positional (i.e. '$') elements found in path '{path}'"
                )));
            }
            positional = true;
            parts.push(Part::Positional);
        } else if let Some(id) = id {
            if i == 0 {
                return Err(Error::bad_value(format!(
                    "Cannot have array filter identifier (i.e. '$[<id>]') element in the first \
                     position in path '{path}'"
                )));
            }
            parts.push(Part::Each(if id.is_empty() {
                None
            } else {
                Some(filter_index(id, path)?)
            }));
        } else {
            parts.push(Part::Name(part));
        }
    }
    Ok(parts)
}

/// 52, for a field that begins with a dollar in a place where that is not allowed.
pub(crate) fn dollar_field(field: &str, path: &str) -> Error {
    Error::new(
        Code::DollarPrefixedFieldName,
        format!(
            "The dollar ($) prefixed field '{field}' in '{path}' is not allowed in the context of \
             an update's replacement document. Consider using an aggregation pipeline with \
             $replaceWith."
        ),
    )
}

/// The first `n` components of `path`.
fn prefix(path: &str, n: usize) -> &str {
    match path.match_indices('.').nth(n.saturating_sub(1)) {
        Some((at, _)) if n > 0 => path.get(..at).unwrap_or(path),
        _ => path,
    }
}

fn conflict(path: &str, parts: usize) -> Error {
    Error::new(
        Code::ConflictingUpdateOperators,
        format!(
            "Updating the path '{path}' would create a conflict at '{}'",
            prefix(path, parts)
        ),
    )
}

impl Tree {
    /// Adds `op` at `path`.
    ///
    /// # Errors
    /// 40 ConflictingUpdateOperators if the path is above, below or equal to an existing one; 56 and 2 for
    /// malformed paths.
    pub(crate) fn insert(
        &mut self,
        path: &Arc<str>,
        op: Arc<dyn LeafOp>,
        filter_index: &mut dyn FnMut(&str, &str) -> Result<usize>,
    ) -> Result<()> {
        let leaf = Node::Leaf(Leaf {
            op,
            path: Arc::clone(path),
        });
        // This is the short way for the first path of an update, if it is a single name. Most updates have no
        // other path.
        let is_name = !path.is_empty() && !path.starts_with('$') && !path.contains('.');
        if is_name && self.named.is_empty() && self.each.is_empty() {
            self.named = vec![Named::new(Arc::clone(path), leaf)];
            return Ok(());
        }
        let parts = split(path, filter_index)?;
        let mut at = self;
        let last = parts.len().saturating_sub(1);
        let mut leaf = Some(leaf);
        for (i, part) in parts.into_iter().enumerate() {
            let make = |leaf: &mut Option<Node>| {
                if i == last {
                    leaf.take().unwrap_or_else(|| Node::Inner(Tree::default()))
                } else {
                    Node::Inner(Tree::default())
                }
            };
            let (node, new) = at
                .child(part, &mut || make(&mut leaf))
                .ok_or_else(|| conflict(path, i))?;
            match node {
                Node::Inner(t) if i < last => at = t,
                _ if new => return Ok(()),
                _ => return Err(conflict(path, i + 1)),
            }
        }
        Ok(())
    }

    /// The child for `part`, which is made if it does not exist, and whether it was made. `None` if the node
    /// has children of the other kind (`$[]` next to names).
    fn child(
        &mut self,
        part: Part<'_>,
        make: &mut dyn FnMut() -> Node,
    ) -> Option<(&mut Node, bool)> {
        let each = matches!(part, Part::Each(_));
        if each && !(self.named.is_empty() && self.positional.is_none()) {
            return None;
        }
        if !each && !self.each.is_empty() {
            return None;
        }
        match part {
            Part::Positional => {
                let new = self.positional.is_none();
                let node = self.positional.get_or_insert_with(|| Box::new(make()));
                Some((node, new))
            }
            Part::Each(filter) => {
                let found = self.each.iter().position(|e| e.filter == filter);
                let at = found.unwrap_or_else(|| {
                    self.each.push(Each {
                        filter,
                        node: make(),
                    });
                    self.each.len() - 1
                });
                self.each
                    .get_mut(at)
                    .map(|e| (&mut e.node, found.is_none()))
            }
            Part::Name(name) => {
                let (at, new) = self.named_at(name, make);
                self.named.get_mut(at).map(|n| (&mut n.node, new))
            }
        }
    }

    /// The index of the child `name`, which is made if it does not exist.
    fn named_at(&mut self, name: &str, make: &mut dyn FnMut() -> Node) -> (usize, bool) {
        match self.named.binary_search_by(|c| order(&c.name, name)) {
            Ok(at) => (at, false),
            Err(at) => {
                self.named.insert(at, Named::new(name.into(), make()));
                (at, true)
            }
        }
    }

    /// The child with this name.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        if self.named.len() <= 8 {
            return self.named.iter().position(|c| c.name.as_bytes() == name);
        }
        let name = std::str::from_utf8(name).ok()?;
        self.named.binary_search_by(|c| order(&c.name, name)).ok()
    }

    /// Whether the names that stand for elements of an array are in the order of the elements, with each
    /// element once. All names without leading zeros are.
    pub(crate) fn ascends(&self) -> bool {
        let positions = self.named.iter().filter_map(|c| c.index);
        positions.is_sorted_by(|a, b| a < b)
    }

    /// A copy in which the positional child has its index as a name. This is for the rare case that a `$` and
    /// a name may stand for the same element.
    ///
    /// # Errors
    /// 40 if both do and cannot be merged.
    pub(crate) fn resolve(&self, index: usize) -> Result<Tree> {
        let mut tree = self.clone();
        if let Some(node) = tree.positional.take() {
            let name = index.to_string();
            let mut node = Some(*node);
            let make = &mut || node.take().unwrap_or_else(|| Node::Inner(Tree::default()));
            let (at, new) = tree.named_at(&name, make);
            if !new && let (Some(there), Some(node)) = (tree.named.get_mut(at), node) {
                there.node.merge(node, &name)?;
            }
        }
        Ok(tree)
    }

    fn merge(&mut self, other: Tree) -> Result<()> {
        // A tree cannot have both names and `$[]`.
        let plain = |t: &Tree| !t.named.is_empty() || t.positional.is_some();
        if (plain(&other) && !self.each.is_empty()) || (plain(self) && !other.each.is_empty()) {
            return Err(created_conflict("$[]"));
        }
        for n in other.named {
            let mut node = Some(n.node);
            let make = &mut || node.take().unwrap_or_else(|| Node::Inner(Tree::default()));
            let (at, _) = self.named_at(&n.name, make);
            if let (Some(node), Some(there)) = (node, self.named.get_mut(at)) {
                there.node.merge(node, &n.name)?;
            }
        }
        for e in other.each {
            match self.each.iter_mut().find(|x| x.filter == e.filter) {
                Some(there) => there.node.merge(e.node, "$[]")?,
                None => self.each.push(e),
            }
        }
        match (&mut self.positional, other.positional) {
            (Some(there), Some(node)) => there.merge(*node, "$")?,
            (None, Some(node)) => self.positional = Some(node),
            (_, None) => {}
        }
        Ok(())
    }
}

fn created_conflict(at: &str) -> Error {
    Error::new(
        Code::ConflictingUpdateOperators,
        format!("Update created a conflict at '{at}'"),
    )
}

impl Node {
    /// Merges another node for the same element into this one.
    ///
    /// # Errors
    /// 40 if one of them is a leaf.
    pub(crate) fn merge(&mut self, other: Node, name: &str) -> Result<()> {
        match (self, other) {
            (Node::Inner(a), Node::Inner(b)) => a.merge(b),
            (Node::Leaf(l), _) => Err(created_conflict(&l.path)),
            (_, Node::Leaf(l)) => Err(created_conflict(if l.path.is_empty() {
                name
            } else {
                &l.path
            })),
        }
    }

    /// Calls `f` for every leaf, in order, until it returns an error.
    pub(crate) fn each_leaf(&self, f: &mut dyn FnMut(&Leaf) -> Result<()>) -> Result<()> {
        match self {
            Node::Leaf(l) => f(l),
            Node::Inner(t) => {
                for n in &t.named {
                    n.node.each_leaf(f)?;
                }
                if let Some(n) = &t.positional {
                    n.each_leaf(f)?;
                }
                for e in &t.each {
                    e.node.each_leaf(f)?;
                }
                Ok(())
            }
        }
    }
}
