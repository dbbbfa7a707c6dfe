//! `$or` with an index per branch: one after the other, or merged where each gives the sort.
//!
//! What stands beside the `$or` under an `$and` is asked of every branch, so that it may bound
//! the branch's scan; a branch without an index of its own may be an `$or` that has them.

use super::candidate::{Access, Branch, Candidate, IndexAccess, MergeInput, Query};
use super::index_plan::{BoundIndex, IndexInfo, binds};
use super::key_filter::residual;
use super::leaf::Leaves;
use super::order::sort_begins;
use super::text::text_access;
use muniment_query::Filter;
use muniment_query::filter::Node;
use std::sync::Arc;

/// `$or`s within `$or`s that are looked into.
const MAX_DEPTH: usize = 4;
/// Scans of one plan at most.
const MAX_SCANS: usize = 1000;

/// The plans by an `$or` of the filter, at most one of each kind.
pub fn or_candidates(
    query: &Query<'_>,
    leaves: &Leaves<'_>,
    infos: &[Arc<IndexInfo>],
) -> Vec<Candidate> {
    let plans = leaves.ors.iter().filter_map(|(child, list)| {
        let mut plan = Plan::new("OR");
        let outer = outer(leaves, *child);
        let branches = plan.branches(query, list, &outer, infos, MAX_DEPTH)?;
        Some(plan.candidate(
            Access::Or {
                branches,
                rooted: outer.is_empty(),
            },
            query.sort.is_some(),
        ))
    });
    let mut out: Vec<Candidate> = plans.min_by_key(|c| c.rank).into_iter().collect();
    if query.sort.is_some() {
        let merges = leaves.ors.iter().filter_map(|(child, list)| {
            let mut plan = Plan::new("SORT_MERGE");
            let inputs = plan.inputs(query, list, &outer(leaves, *child), infos)?;
            Some(plan.candidate(Access::SortMerge(inputs), false))
        });
        out.extend(merges.min_by_key(|c| c.rank));
    }
    out
}

/// The plan of a query that has its `$text` in an `$or`: all branches are indexed, or there is
/// none.
pub fn text_candidate(
    query: &Query<'_>,
    leaves: &Leaves<'_>,
    infos: &[Arc<IndexInfo>],
) -> Option<Candidate> {
    let (child, list) = leaves.ors.iter().find(|(_, list)| has_text(list))?;
    let mut plan = Plan::new("OR");
    let outer = outer(leaves, *child);
    let branches = plan.branches(query, list, &outer, infos, MAX_DEPTH)?;
    let rooted = outer.is_empty();
    Some(plan.candidate(Access::Or { branches, rooted }, query.sort.is_some()))
}

fn has_text(nodes: &[Node]) -> bool {
    nodes.iter().any(|n| match n {
        Node::And(list) | Node::Or(list) => has_text(list),
        node => Filter::text_of(node).is_some(),
    })
}

/// What stands beside child `at`.
fn outer(leaves: &Leaves<'_>, at: usize) -> Vec<Node> {
    let children = leaves.children.iter().enumerate();
    children
        .filter(|(i, _)| *i != at)
        .map(|(_, n)| (*n).clone())
        .collect()
}

/// The branch with what every branch must satisfy.
fn with_outer(branch: &Node, outer: &[Node]) -> Node {
    let mut nodes = match branch {
        Node::And(list) => list.clone(),
        other => vec![other.clone()],
    };
    nodes.extend(outer.iter().cloned());
    Node::And(nodes)
}

/// What is gathered over the branches of one plan.
struct Plan {
    signature: String,
    rank: usize,
    scans: usize,
}

impl Plan {
    fn new(signature: &str) -> Plan {
        Plan {
            signature: signature.into(),
            rank: 0,
            scans: 0,
        }
    }

    /// Books a scan; `None` when there are too many.
    fn take(&mut self, bound: &BoundIndex) -> Option<()> {
        self.scans += 1;
        self.signature.push(' ');
        self.signature.push_str(&bound.info.name());
        self.rank += bound.rank();
        (self.scans <= MAX_SCANS).then_some(())
    }

    fn candidate(self, access: Access, needs_sort: bool) -> Candidate {
        Candidate {
            access,
            filter: None,
            needs_sort,
            covered: None,
            needed_exactly: false,
            signature: self.signature,
            rank: self.rank.max(2),
        }
    }

    /// A scan for every branch; `None` when one has none.
    fn branches(
        &mut self,
        query: &Query<'_>,
        list: &[Node],
        outer: &[Node],
        infos: &[Arc<IndexInfo>],
        depth: usize,
    ) -> Option<Vec<Branch>> {
        let mut branches = Vec::new();
        for branch in list.iter().filter(|b| !matches!(b, Node::False)) {
            let node = with_outer(branch, outer);
            if Filter::text_of(&node).is_some() {
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
            let leaves = Leaves::of_node(&node, query.filter.collation());
            let best = infos
                .iter()
                .flat_map(|i| binds(i, &leaves, false))
                .filter(BoundIndex::narrows)
                .min_by_key(|b| (b.rank(), usize::MAX - b.points, b.residual.len()));
            if let Some(bound) = best {
                self.take(&bound)?;
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
            let inner = self.branches(query, inner, &self::outer(&leaves, *child), infos, depth)?;
            self.signature.push(')');
            branches.push(Branch {
                access: Access::Or {
                    branches: inner,
                    rooted: false,
                },
                filter: None,
            });
        }
        Some(branches)
    }

    /// A scan in the sort's order for every branch, all with keys that compare alike.
    fn inputs(
        &mut self,
        query: &Query<'_>,
        list: &[Node],
        outer: &[Node],
        infos: &[Arc<IndexInfo>],
    ) -> Option<Vec<MergeInput>> {
        let sort = query.sort?;
        let mut order = None;
        let mut inputs = Vec::new();
        for branch in list.iter().filter(|b| !matches!(b, Node::False)) {
            let node = with_outer(branch, outer);
            let leaves = Leaves::of_node(&node, query.filter.collation());
            let fitting = infos
                .iter()
                .flat_map(|i| binds(i, &leaves, false))
                .filter(BoundIndex::narrows)
                .filter_map(|b| sort_begins(&b, sort).map(|s| (b, s)))
                .filter(|(_, s)| order.as_ref().is_none_or(|o| *o == s.order));
            let (bound, begins) = fitting.min_by_key(|(b, _)| (b.rank(), b.residual.len()))?;
            self.take(&bound)?;
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
