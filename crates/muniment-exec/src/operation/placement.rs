//! What a router expects of the collections that its operation reads or writes.

use super::OpContext;
use muniment_shard::{Generation, Version};
use muniment_storage::{Collection, Owned, Placement, Timestamp, snapshot_unavailable, stale};
use muniment_value::Result;
use std::sync::Arc;

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
    /// The router asks all shards of the cluster, so each may answer with what it owned at the time of its view. The
    /// time of the newest change of ranges that the router knows.
    pub all_shards: Option<Timestamp>,
    /// The ranges of shard keys of a collection to which the operation is limited: others are done already.
    pub within: Option<(String, Arc<[Owned]>)>,
    /// The router's `$$NOW`, which all shards use, in milliseconds since 1970.
    pub now_ms: Option<i64>,
    /// The router's `$$CLUSTER_TIME`, if it puts the results of shards together.
    pub cluster_time: Option<Timestamp>,
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
            None => self.check_continued(namespace, found),
            Some(expectations) => {
                let held = found.and_then(|c| Some((c.uuid(), c.placement()?)));
                expectations.check(namespace, held.as_ref().map(|(uuid, p)| (*uuid, &**p)))
            }
        }
    }

    /// The names of the collections that a router knows to be sharded, if one has sent it.
    pub(crate) fn known_sharded(&self) -> Option<Arc<[String]>> {
        let expectations = self.expectations.get()?;
        let names = expectations.sharded.iter().map(|(name, _)| name.clone());
        Some(names.collect())
    }

    /// Has the operation continue a cursor for a router that knew these sharded collections when it was opened.
    pub(crate) fn continues_for_router(&self, sharded: Arc<[String]>) {
        let _ = self.continued.set(sharded);
    }

    /// What a cursor opens later is either one of the collections that its router knew to be sharded, or it is not
    /// sharded: otherwise the cursor would show this shard's part for the whole.
    fn check_continued(&self, namespace: &str, found: Option<&Collection>) -> Result<()> {
        let Some(sharded) = self.continued.get() else {
            return Ok(());
        };
        let held = found.and_then(|c| Some((c.uuid(), c.placement()?)));
        match held {
            Some((uuid, placement)) if !sharded.iter().any(|name| name == namespace) => Err(stale(
                namespace,
                Some((uuid, &placement)),
                "the collection is sharded",
            )),
            _ => Ok(()),
        }
    }

    /// Whether a sharded collection has come to this shard after a time at which all shards are read. It was sharded
    /// then, so this shard had nothing of it.
    pub(crate) fn is_later_than(&self, collection: &Collection, at: Timestamp) -> bool {
        let all = self
            .expectations
            .get()
            .is_some_and(|e| e.all_shards.is_some());
        let since = |p: &Placement| Timestamp::new(p.timestamp.t, p.timestamp.i) <= at;
        all && collection.named_since() > at && collection.placement().is_some_and(|p| since(&p))
    }

    /// The ranges of a collection to which the operation is limited.
    pub(crate) fn ranges_of(&self, collection: &Collection) -> Option<Arc<[Owned]>> {
        let (name, ranges) = self.expectations.get()?.within.as_ref()?;
        (**name == *collection.name()).then(|| Arc::clone(ranges))
    }

    /// Checks that a view of a collection, which the operation has opened with this time, has what the router expects:
    /// ranges may have come or gone since the operation looked the collection up.
    ///
    /// # Errors
    /// 13388 StaleConfig; 246 SnapshotUnavailable if what the shard owned at an older time is gone.
    #[inline]
    pub(crate) fn check_seen(&self, collection: &Collection, at: Timestamp) -> Result<()> {
        match collection.placement() {
            None if collection.whole_since() > at => Err(snapshot_unavailable()),
            None => Ok(()),
            Some(placement) => self.check_seen_of(collection, &placement, at),
        }
    }

    fn check_seen_of(
        &self,
        collection: &Collection,
        placement: &Placement,
        at: Timestamp,
    ) -> Result<()> {
        let at = muniment_shard::Timestamp::new(at.seconds(), at.increment());
        if placement.forgotten() > at && !self.reads_newest() {
            return Err(snapshot_unavailable());
        }
        let Some(expectations) = self.expectations.get() else {
            return Ok(());
        };
        if expectations.all_shards.is_some() {
            return Ok(());
        }
        let (name, held) = (collection.name(), Some((collection.uuid(), placement)));
        expectations.check(&name, held)?;
        match at < placement.changed() {
            true => {
                let why = "the view is older than the newest change of ranges";
                Err(stale(&name, held, why))
            }
            false => Ok(()),
        }
    }
}

impl Expectations {
    /// Compares what is `held` here: the collection's UUID and its placement; `None` if it is not sharded, or not there.
    fn check(&self, namespace: &str, held: Option<([u8; 16], &Placement)>) -> Result<()> {
        let expected = self.sharded.iter().find(|(name, _)| name == namespace);
        let all = self.all_shards.is_some();
        let differs = match (expected, held) {
            (None, None) => return Ok(()),
            (_, None) if all => return Ok(()),
            (Some(_), None) => "the collection is not sharded here",
            (None, Some(_)) => "the collection is sharded",
            (Some((_, expected)), Some((uuid, placement))) => {
                let same = placement.generation(uuid) == expected.generation;
                if same && all {
                    return Ok(());
                }
                if !same || placement.version != expected.version {
                    "the router knows another version"
                } else if placement.undecided {
                    "the configuration is about to decide on a change of ranges"
                } else {
                    return Ok(());
                }
            }
        };
        Err(stale(namespace, held, differs))
    }
}
