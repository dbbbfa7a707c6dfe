//! Plans for `$or` with an index for each branch. The branches are scanned one after the other, or
//! merged if each comes in the sort's order.
//!
//! Conditions beside the `$or` under an `$and` are added to every branch, so that they may bound
//! the branch's scan. A branch without an index of its own may be an `$or` whose branches have
//! indexes.

use super::access::{Access, Branch, Candidate, IndexAccess, MergeInput};
use super::index_plan::{BoundIndex, IndexInfo};
use super::key_filter::{conjunction, residual};
use super::leaf::{Leaves, conjuncts};
use super::order::sort_begins;
use super::query::Query;
use super::text_access::text_access;
use super::wildcard::binds;
use muniment_query::Filter;
use muniment_query::filter::{Node, Pred};
use std::sync::Arc;

/// How deep nested `$or`s are looked into.
const MAX_DEPTH: usize = 4;
/// The most scans that are merged, because each of them stays open. The scans of an OR run one
/// after the other, so their number is not limited.
const MAX_MERGED: usize = 1000;
/// Conditions beside an `$or` are added to every branch only if that makes the filter at most so
/// many values longer. Otherwise they are matched once on what all branches found.
const MAX_SPREAD: usize = 1 << 18;

/// The plans that use an `$or` of the filter, at most one of each kind.
pub(crate) fn or_candidates(
    query: &Query<'_>,
    leaves: &Leaves<'_>,
    infos: &[Arc<IndexInfo>],
) -> Vec<Candidate> {
    let plans = leaves
        .ors
        .iter()
        .filter_map(|(child, list)| or_candidate(query, leaves, *child, list, infos));
    let mut out: Vec<Candidate> = plans.min_by_key(|c| c.rank).into_iter().collect();
    if query.sort.is_some() {
        let merges = leaves.ors.iter().filter_map(|(child, list)| {
            let outer = Outer::of(leaves, *child, list);
            let mut plan = Plan::new("SORT_MERGE");
            let inputs = plan.inputs(query, list, &outer, infos)?;
            Some(plan.candidate(Access::SortMerge(inputs), outer.filter, false))
        });
        out.extend(merges.min_by_key(|c| c.rank));
    }
    out
}

fn or_candidate(
    query: &Query<'_>,
    leaves: &Leaves<'_>,
    child: usize,
    list: &[Node],
    infos: &[Arc<IndexInfo>],
) -> Option<Candidate> {
    let outer = Outer::of(leaves, child, list);
    let mut plan = Plan::new("OR");
    let branches = plan.branches(query, list, &outer, infos, MAX_DEPTH)?;
    let access = Access::Or {
        branches,
        rooted: leaves.children.len() == 1,
    };
    Some(plan.candidate(access, outer.filter, query.sort.is_some()))
}

/// The plan for a query with its `$text` inside an `$or`. Every branch needs an index, or there is
/// no plan.
pub(crate) fn text_candidate(
    query: &Query<'_>,
    leaves: &Leaves<'_>,
    infos: &[Arc<IndexInfo>],
) -> Option<Candidate> {
    let (child, list) = leaves.ors.iter().find(|(_, list)| has_text(list))?;
    or_candidate(query, leaves, *child, list, infos)
}

fn has_text(nodes: &[Node]) -> bool {
    nodes.iter().any(|n| match n {
        Node::And(list) | Node::Or(list) => has_text(list),
        node => Filter::text_of(node).is_some(),
    })
}

/// The conditions beside an `$or`.
struct Outer<'f> {
    /// Conditions that are added to every branch.
    each: Vec<&'f Node>,
    /// Conditions that are matched on the branches' documents instead.
    filter: Option<Filter>,
}

impl<'f> Outer<'f> {
    fn of(leaves: &Leaves<'f>, at: usize, branches: &[Node]) -> Outer<'f> {
        let beside = leaves.children.iter().enumerate();
        let beside: Vec<&Node> = beside.filter(|(i, _)| *i != at).map(|(_, n)| *n).collect();
        let values: usize = beside.iter().map(|n| weight(n)).sum();
        if values.saturating_mul(branches.len()) <= MAX_SPREAD || has_text(branches) {
            return Outer {
                each: beside,
                filter: None,
            };
        }
        Outer {
            filter: conjunction(beside.into_iter().cloned().collect(), leaves),
            each: Vec::new(),
        }
    }

    /// The branch's conditions with those from beside the `$or`.
    fn with(&self, branch: &'f Node) -> Vec<&'f Node> {
        conjuncts(branch)
            .iter()
            .chain(self.each.iter().copied())
            .collect()
    }
}

/// The approximate number of values in a tree.
fn weight(node: &Node) -> usize {
    fn of_pred(pred: &Pred) -> usize {
        match pred {
            Pred::In { values, regexes } => 1 + values.len() + regexes.len(),
            Pred::Not(p) => of_pred(p),
            Pred::And(list) | Pred::ElemMatchValue(list) => list.iter().map(of_pred).sum(),
            Pred::ElemMatchObject(node) => weight(node),
            _ => 1,
        }
    }
    match node {
        Node::And(list) | Node::Or(list) | Node::Nor(list) => list.iter().map(weight).sum(),
        Node::Field { pred, .. } => of_pred(pred),
        _ => 1,
    }
}

/// The sums over the branches of one plan.
struct Plan {
    signature: String,
    /// The index that the signature named last. Successive branches that use the same index name it
    /// once.
    named: String,
    rank: usize,
    scans: usize,
}

impl Plan {
    fn new(signature: &str) -> Plan {
        Plan {
            signature: signature.into(),
            named: String::new(),
            rank: 0,
            scans: 0,
        }
    }

    /// Adds a scan to the sums.
    fn take(&mut self, bound: &BoundIndex) {
        self.scans += 1;
        let name = bound.info.name();
        if name != self.named {
            self.signature.push(' ');
            self.signature.push_str(&name);
            self.named = name;
        }
        self.rank = self.rank.saturating_add(bound.rank());
    }

    fn candidate(self, access: Access, filter: Option<Filter>, needs_sort: bool) -> Candidate {
        Candidate {
            access,
            filter,
            needs_sort,
            covered: None,
            needed_exactly: false,
            signature: self.signature,
            rank: self.rank.max(2),
            express: None,
        }
    }

    /// A scan for every branch; `None` if a branch has none.
    fn branches<'f>(
        &mut self,
        query: &Query<'_>,
        list: &'f [Node],
        outer: &Outer<'f>,
        infos: &[Arc<IndexInfo>],
        depth: usize,
    ) -> Option<Arc<[Branch]>> {
        let mut branches = Vec::new();
        for branch in list.iter().filter(|b| !matches!(b, Node::False)) {
            let nodes = outer.with(branch);
            if nodes.iter().any(|n| Filter::text_of(n).is_some()) {
                let node = Node::And(nodes.into_iter().cloned().collect());
                let access = text_access(infos, &node, query.filter.collation())?;
                self.signature.push_str(" TEXT ");
                self.signature.push_str(&access.info.name());
                self.scans += 1;
                branches.push(Branch {
                    access: Access::Text(Arc::new(access)),
                    filter: None,
                });
                continue;
            }
            let leaves = Leaves::of_all(nodes, query.filter.collation());
            let best = infos
                .iter()
                .flat_map(|i| binds(i, &leaves, false))
                .filter(BoundIndex::narrows)
                .min_by_key(|b| (b.rank(), usize::MAX - b.points, b.residual.len()));
            // A nested $or may be better than a scan of all keys of an index.
            let nested = !leaves.ors.is_empty() && depth > 0;
            if let Some(bound) = best.filter(|b| !(nested && b.is_whole())) {
                self.take(&bound);
                let (key_filter, filter) = residual(&leaves, &bound);
                branches.push(Branch {
                    access: Access::Index(Arc::new(IndexAccess {
                        bound,
                        backward: false,
                        range: None,
                        key_filter,
                    })),
                    filter,
                });
                continue;
            }
            let depth = depth.checked_sub(1)?;
            self.signature.push_str(" (");
            let with_text = leaves.ors.iter().find(|(_, list)| has_text(list));
            let (child, inner) = with_text.or(leaves.ors.first())?;
            let beside = Outer::of(&leaves, *child, inner);
            let inner = self.branches(query, inner, &beside, infos, depth)?;
            self.signature.push(')');
            self.named.clear();
            branches.push(Branch {
                access: Access::Or {
                    branches: inner,
                    rooted: false,
                },
                filter: beside.filter,
            });
        }
        Some(branches.into())
    }

    /// A scan in the sort's order for every branch. The keys of all of them compare in the same
    /// way.
    fn inputs<'f>(
        &mut self,
        query: &Query<'_>,
        list: &'f [Node],
        outer: &Outer<'f>,
        infos: &[Arc<IndexInfo>],
    ) -> Option<Vec<MergeInput>> {
        let sort = query.sort?;
        if list.len() > MAX_MERGED {
            return None;
        }
        let mut order = None;
        let mut inputs = Vec::new();
        for branch in list.iter().filter(|b| !matches!(b, Node::False)) {
            let leaves = Leaves::of_all(outer.with(branch), query.filter.collation());
            let fitting = infos
                .iter()
                .flat_map(|i| binds(i, &leaves, false))
                .filter(BoundIndex::narrows)
                .filter_map(|b| sort_begins(&b, sort).map(|s| (b, s)))
                .filter(|(_, s)| order.as_ref().is_none_or(|o| *o == s.order));
            let (bound, begins) = fitting.min_by_key(|(b, _)| (b.rank(), b.residual.len()))?;
            self.take(&bound);
            let (key_filter, filter) = residual(&leaves, &bound);
            inputs.push(MergeInput {
                leading: begins.leading,
                disjoint: false,
                access: Arc::new(IndexAccess {
                    bound,
                    backward: begins.order.backward,
                    range: None,
                    key_filter,
                }),
                filter,
            });
            order = Some(begins.order);
        }
        (inputs.len() > 1).then_some(inputs)
    }
}
