//! The choice of the nodes and links that operations use.

use super::degree::Degrees;
use super::shuffle::Shuffle;
use super::{Operation, Profile};
use crate::distributions::Distribution;
use crate::distributions::zipfian::{Zipfian, zeta_approximate};
use muniment_load::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The two types of links.
pub(crate) const LINK_TYPES: [i64; 2] = [123_456_789, 123_456_790];
/// The smallest id of a node.
pub(crate) const FIRST_ID: i64 = 1;
/// The most links that a getlink asks for.
const MULTIGET: u64 = 127;

/// The state that all workers share.
#[derive(Debug)]
pub(crate) struct Graph {
    pub profile: Profile,
    /// The number of nodes that are loaded.
    pub ids: u64,
    /// The number of links of each node.
    pub degrees: Degrees,
    uncorrelated: Shuffle,
    correlated: Shuffle,
    nodes: Shuffle,
    next_node: AtomicU64,
}

impl Graph {
    /// A graph of `ids` nodes.
    pub(crate) fn new(profile: Profile, ids: u64) -> Arc<Graph> {
        Arc::new(Graph {
            profile,
            ids,
            degrees: Degrees::new(profile, ids),
            uncorrelated: Shuffle::new(Shuffle::UNCORRELATED, ids),
            correlated: Shuffle::new(Shuffle::DEGREE, ids),
            nodes: Shuffle::new(Shuffle::NODES, ids),
            next_node: AtomicU64::new(FIRST_ID as u64 + ids),
        })
    }

    /// Takes the id of a new node.
    pub(crate) fn new_node(&self) -> i64 {
        self.next_node.fetch_add(1, Ordering::Relaxed) as i64
    }

    /// The number of links that are loaded.
    #[cfg(test)]
    pub(crate) fn links(&self) -> u64 {
        (0..self.ids)
            .map(|i| self.degrees.of(i, 0) + self.degrees.of(i, 1))
            .sum()
    }
}

/// The choices of one worker.
#[derive(Debug)]
pub(crate) struct Chooser {
    graph: Arc<Graph>,
    link_reads: Zipfian,
    /// The distribution of half a percent of the link writes. The other writes are drawn with the
    /// distribution of link reads: a mistake in the original's configuration keys that is repeated
    /// here, since the published figures were measured with it.
    link_writes: Zipfian,
    node_reads: Zipfian,
    node_updates: Zipfian,
    /// The worker's random numbers.
    pub rng: Rng,
}

impl Chooser {
    /// Makes the choices of a worker.
    pub(crate) fn new(graph: &Arc<Graph>, seed: u64) -> Chooser {
        let n = graph.ids;
        let zipf = |shape| Zipfian::with_zeta(0, n, shape, zeta_approximate(n, shape));
        Chooser {
            link_reads: zipf(0.8),
            link_writes: zipf(0.741),
            node_reads: zipf(0.625),
            node_updates: zipf(0.606),
            graph: graph.clone(),
            rng: Rng::new(seed),
        }
    }

    /// Chooses the next operation: r = U·100 is compared with the cumulative sums of the mix.
    pub(crate) fn operation(&mut self) -> Operation {
        let mut r = self.rng.unit() * 100.0;
        let mix = self.graph.profile.mix();
        for (operation, percent) in mix {
            if r <= *percent {
                return *operation;
            }
            r -= percent;
        }
        Operation::GetNode
    }

    /// Limits a drawn rank to the last rank.
    fn clamp(&self, rank: u64) -> u64 {
        rank.min(self.graph.ids - 1)
    }

    /// Chooses the first id of a link to read, or to write if `writes` is set.
    pub(crate) fn id1(&mut self, writes: bool) -> i64 {
        let blended = self.rng.unit() < 0.995;
        let rank = match (writes, blended) {
            (true, false) => self.link_writes.draw(&mut self.rng),
            _ => self.link_reads.draw(&mut self.rng),
        };
        let rank = self.clamp(rank);
        let shuffle = match blended {
            true => &self.graph.uncorrelated,
            false => &self.graph.correlated,
        };
        FIRST_ID + shuffle.permute(rank) as i64
    }

    /// Chooses one of the two types.
    pub(crate) fn link_type(&mut self) -> usize {
        self.rng.below(LINK_TYPES.len() as u64) as usize
    }

    /// Chooses the second id of a link, which exists with probability `existing`.
    pub(crate) fn id2(&mut self, id1: i64, link_type: usize, existing: f64) -> i64 {
        let links = self
            .graph
            .degrees
            .of((id1 - FIRST_ID) as u64, link_type as u64);
        match self.graph.profile {
            Profile::V2 if self.rng.unit() >= existing => {
                self.rng.below(FIRST_ID as u64 + self.graph.ids) as i64
            }
            Profile::V2 => id1 + self.rng.below(links.max(1)) as i64,
            Profile::Y2015 => {
                let range = ((1.0 / existing) * links as f64).ceil() as u64;
                id1 + self.rng.below(range.max(1)) as i64
            }
        }
    }

    /// Chooses the number of links of a getlink: geometric, 2.6 on average in addition to the
    /// first.
    pub(crate) fn multiget(&mut self) -> u64 {
        let u = self.rng.unit();
        let beyond = ((1.0 - u).ln() / (1.0_f64 - 0.382).ln()).ceil() as u64;
        (1 + beyond).min(MULTIGET)
    }

    /// Chooses a node to read.
    pub(crate) fn node_to_read(&mut self) -> i64 {
        let rank = self.node_reads.draw(&mut self.rng);
        self.node(rank)
    }

    /// Chooses a node to update.
    pub(crate) fn node_to_update(&mut self) -> i64 {
        let rank = self.node_updates.draw(&mut self.rng);
        self.node(rank)
    }

    /// Chooses a node to delete. The choice is uniform, since a node can be deleted only once.
    pub(crate) fn node_to_delete(&mut self) -> i64 {
        let rank = self.rng.below(self.graph.ids);
        self.node(rank)
    }

    fn node(&self, rank: u64) -> i64 {
        FIRST_ID + self.graph.nodes.permute(self.clamp(rank)) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_in_the_graph_and_operations_in_their_shares() {
        for profile in [Profile::Y2015, Profile::V2] {
            let sum: f64 = profile.mix().iter().map(|(_, p)| p).sum();
            assert!((sum - 100.0).abs() < 1e-4, "{sum}");
            let graph = Graph::new(profile, 3000);
            let mut c = Chooser::new(&graph, 3);
            let mut lists = 0;
            for _ in 0..20_000 {
                lists += u32::from(c.operation() == Operation::GetLinkList);
                let id = c.id1(true);
                assert!((1..=3000).contains(&id) && (1..=3000).contains(&c.id1(false)));
                assert!(c.id2(id, 1, 0.5) >= 0);
                for n in [c.node_to_read(), c.node_to_update(), c.node_to_delete()] {
                    assert!((1..=3000).contains(&n));
                }
            }
            let want = if profile == Profile::V2 {
                0.2257
            } else {
                0.5071
            };
            assert!((f64::from(lists) / 2e4 - want).abs() < 0.02, "{lists}");
        }
    }

    #[test]
    fn a_getlink_asks_for_3_6_links_on_average() {
        let graph = Graph::new(Profile::V2, 2000);
        let mut c = Chooser::new(&graph, 1);
        let n: u64 = (0..100_000).map(|_| c.multiget()).sum();
        assert!((n as f64 / 1e5 - 3.6).abs() < 0.05, "{n}");
    }

    #[test]
    fn new_nodes_come_behind_those_of_the_load() {
        let graph = Graph::new(Profile::V2, 10);
        assert_eq!([graph.new_node(), graph.new_node()], [11, 12]);
        assert!(graph.links() >= 20);
    }
}
