//! What a router expects of the collections that its operation reads or writes.

use super::OpContext;
use muniment_shard::{Generation, Version};
use muniment_storage::{Collection, Timestamp, stale};
use muniment_value::Result;

/// A router's view of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The generation.
    pub generation: Generation,
    /// The newest version among the chunks that the router thinks this shard has.
    pub version: Version,
}

/// A router's view of the collections of an operation. Those that it does not name are not sharded.
#[derive(Clone, Debug, Default)]
pub struct Expectations {
    /// The sharded ones, with their full names.
    pub sharded: Vec<(String, Expected)>,
    /// The router puts the results together with those of other shards.
    pub merges: bool,
}

impl OpContext {
    /// Binds the operation to a router's view: where it differs from what is so here, the operation fails. Only the
    /// first call counts.
    pub fn expect(&self, expectations: Expectations) {
        let _ = self.expectations.set(expectations);
    }

    /// Whether a router has sent it, and puts its results together with those of other shards.
    pub fn is_merged(&self) -> bool {
        self.expectations.get().is_some_and(|e| e.merges)
    }

    /// Notes the time at which the shards read for an operation of a router. Only the first call counts.
    pub fn reads_at(&self, at: Timestamp) {
        let _ = self.reading_at.set(at);
    }

    /// The time that [`OpContext::reads_at`] has noted.
    pub fn reading_at(&self) -> Option<Timestamp> {
        self.reading_at.get().copied()
    }

    /// Whether a router has said what it expects.
    pub fn is_of_router(&self) -> bool {
        self.expectations.get().is_some()
    }

    /// Checks that a collection, or its absence, is what the router expects. An operation that does not come from a
    /// router may use any.
    ///
    /// # Errors
    /// 13388 StaleConfig.
    #[inline]
    pub fn check_placement(&self, namespace: &str, found: Option<&Collection>) -> Result<()> {
        match self.expectations.get() {
            None => Ok(()),
            Some(expectations) => expectations.check(namespace, found),
        }
    }
}

impl Expectations {
    fn check(&self, namespace: &str, found: Option<&Collection>) -> Result<()> {
        let expected = self.sharded.iter().find(|(name, _)| name == namespace);
        let placement = found.and_then(|c| Some((c.uuid(), c.placement()?)));
        let held = placement.as_ref().map(|(uuid, p)| (*uuid, &**p));
        match (expected, held) {
            (None, None) => Ok(()),
            (Some((_, expected)), Some((uuid, placement))) => {
                let is = Expected {
                    generation: placement.generation(uuid),
                    version: placement.version,
                };
                match is == *expected {
                    true => Ok(()),
                    false => Err(stale(namespace, held, "the router knows another version")),
                }
            }
            (Some(_), None) => Err(stale(namespace, None, "the collection is not sharded here")),
            (None, Some(_)) => Err(stale(namespace, held, "the collection is sharded")),
        }
    }
}
