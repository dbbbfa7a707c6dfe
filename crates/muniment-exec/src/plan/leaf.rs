//! A filter's tree in the form that the planner needs: predicates by their full paths, with the
//! `$elemMatch`es around them, and the `$or`s.

use muniment_query::Filter;
use muniment_query::filter::{Node, Pred};
use muniment_value::Collation;

/// An `$elemMatch` around a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ElemCtx {
    /// A number that identifies the `$elemMatch` within its filter.
    pub id: usize,
    /// The number of components of its path.
    pub depth: usize,
}

/// A predicate on a full path.
#[derive(Clone, Debug)]
pub(crate) struct Leaf<'f> {
    /// The full dotted path.
    pub path: String,
    /// The predicate.
    pub pred: &'f Pred,
    /// Which child of the top-level `$and` it belongs to.
    pub child: usize,
    /// The `$elemMatch`es around it, outermost first.
    pub elem: Vec<ElemCtx>,
}

impl Leaf<'_> {
    /// True if the path has a numeric component, which may mean an array element or a field's name.
    pub(crate) fn has_numeric_part(&self) -> bool {
        self.path
            .split('.')
            .any(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
    }
}

/// The conditions of which a tree demands all.
pub(crate) fn conjuncts(root: &Node) -> &[Node] {
    match root {
        Node::True => &[],
        Node::And(list) => list,
        other => std::slice::from_ref(other),
    }
}

/// A filter in parts.
#[derive(Debug, Default)]
pub(crate) struct Leaves<'f> {
    /// The children of the top-level `$and` (or the only node).
    pub children: Vec<&'f Node>,
    /// The predicates that every match satisfies.
    pub leaves: Vec<Leaf<'f>>,
    /// How many predicates each child has, whether usable or not. Only if the bounds answer all of
    /// them exactly need the child not be matched again.
    pub parts: Vec<usize>,
    /// The children that are an `$or`, by their places.
    pub ors: Vec<(usize, &'f [Node])>,
    /// The collation by which the filter compares strings.
    pub collation: Collation,
}

impl<'f> Leaves<'f> {
    /// Divides a filter into its parts.
    pub(crate) fn of(filter: &'f Filter) -> Leaves<'f> {
        Leaves::of_node(filter.root(), filter.collation())
    }

    /// Divides a tree into its parts.
    pub(crate) fn of_node(root: &'f Node, collation: &Collation) -> Leaves<'f> {
        Leaves::of_all(conjuncts(root).iter().collect(), collation)
    }

    /// Divides a conjunction into its parts.
    pub(crate) fn of_all(children: Vec<&'f Node>, collation: &Collation) -> Leaves<'f> {
        let mut out = Leaves {
            collation: collation.clone(),
            children,
            ..Leaves::default()
        };
        let mut next_elem = 0;
        for (i, child) in out.children.clone().into_iter().enumerate() {
            out.parts.push(0);
            out.walk(child, i, "", &[], &mut next_elem);
        }
        out
    }

    fn part(&mut self, child: usize) {
        if let Some(n) = self.parts.get_mut(child) {
            *n += 1;
        }
    }

    fn walk(
        &mut self,
        node: &'f Node,
        child: usize,
        prefix: &str,
        elem: &[ElemCtx],
        next_elem: &mut usize,
    ) {
        match node {
            Node::True => {}
            Node::And(list) => {
                for n in list {
                    self.walk(n, child, prefix, elem, next_elem);
                }
            }
            Node::Field { path, pred } => {
                let full = if prefix.is_empty() {
                    path.as_str().to_string()
                } else {
                    format!("{prefix}.{}", path.as_str())
                };
                self.walk_pred(full, pred, child, elem, next_elem);
            }
            Node::Or(list) => {
                self.part(child);
                if prefix.is_empty() {
                    self.ors.push((child, list));
                }
            }
            Node::Expr { implied, .. } => {
                // The expression has to be matched in any case; what it implies can only add
                // bounds.
                self.part(child);
                if let Some(n) = implied
                    && prefix.is_empty()
                {
                    self.walk(n, child, prefix, elem, next_elem);
                }
            }
            Node::False | Node::Nor(_) | Node::Doc(_) => self.part(child),
            #[allow(unreachable_patterns)] // nodes the planner does not know yet
            _ => self.part(child),
        }
    }

    fn walk_pred(
        &mut self,
        path: String,
        pred: &'f Pred,
        child: usize,
        elem: &[ElemCtx],
        next_elem: &mut usize,
    ) {
        match pred {
            Pred::And(list) => {
                for p in list {
                    self.walk_pred(path.clone(), p, child, elem, next_elem);
                }
            }
            Pred::ElemMatchObject(node) => {
                // It has to be matched in any case that there is an array.
                self.part(child);
                let mut inner = elem.to_vec();
                inner.push(ElemCtx {
                    id: *next_elem,
                    depth: path.split('.').count(),
                });
                *next_elem += 1;
                self.walk(node, child, &path, &inner, next_elem);
            }
            _ => {
                self.part(child);
                self.leaves.push(Leaf {
                    path,
                    pred,
                    child,
                    elem: elem.to_vec(),
                });
            }
        }
    }
}
