//! Latches: the right to write a record or a unique key.
//!
//! A latch is a 64-bit hash in a sharded table. Two different keys collide only if their hashes are
//! equal (2⁻⁶⁴), however many keys a batch holds. With a fixed set of locks, two batches of a thousand
//! records would always collide.
//!
//! The order that rules deadlock out: a unit that *waits* for a record latch holds nothing; a unit that
//! waits for a unique-key latch holds at most one record latch and unique-key latches with smaller
//! hashes. In all other cases a unit only tries.

use crate::by_hash::HashKeyed;
use muniment_op::{Event, Interrupt};
use muniment_value::Result;
use parking_lot::Mutex;
use std::time::Duration;

const SHARDS: usize = 64;

#[derive(Default)]
struct Shard {
    held: Mutex<HashKeyed<u64>>,
    /// The waiting threads, by the latch.
    released: Event<u64>,
}

/// The table of one store.
pub(crate) struct Latches {
    shards: Vec<Shard>,
}

/// What [`Latches::try_lock`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// It is the caller's now.
    Taken,
    /// It was the caller's already.
    Mine,
    /// Another owner has it.
    Busy,
}

/// The hash of a record's latch.
pub(crate) fn record_hash(collection: u32, record_key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(record_key, u64::from(collection))
}

/// The hash of the latch for a unique index's key. Its seed differs from those of records, so that an
/// index and a collection with the same id do not share latches.
pub(crate) fn unique_hash(index: u32, key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, 0x756e_6971_0000_0000 | u64::from(index))
}

impl Latches {
    /// An empty table.
    pub fn new() -> Latches {
        Latches {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
        }
    }

    fn shard(&self, hash: u64) -> Option<&Shard> {
        self.shards.get((hash >> 58) as usize % SHARDS)
    }

    /// Takes the latch for `owner` if it is free.
    pub fn try_lock(&self, hash: u64, owner: u64) -> Tried {
        let Some(shard) = self.shard(hash) else {
            return Tried::Busy;
        };
        match shard.held.lock().entry(hash) {
            std::collections::hash_map::Entry::Vacant(v) => {
                v.insert(owner);
                Tried::Taken
            }
            std::collections::hash_map::Entry::Occupied(o) if *o.get() == owner => Tried::Mine,
            std::collections::hash_map::Entry::Occupied(_) => Tried::Busy,
        }
    }

    /// Waits for the latch. The module's head says which units may.
    ///
    /// # Errors
    /// What the operation's interrupt says while it waits.
    pub fn lock(&self, hash: u64, owner: u64, interrupt: &dyn Interrupt) -> Result<Tried> {
        let Some(shard) = self.shard(hash) else {
            return Ok(Tried::Busy);
        };
        match self.try_lock(hash, owner) {
            Tried::Busy => shard
                .released
                .wait_for(hash, interrupt, || self.unless_busy(hash, owner)),
            tried => Ok(tried),
        }
    }

    fn unless_busy(&self, hash: u64, owner: u64) -> Option<Tried> {
        Some(self.try_lock(hash, owner)).filter(|tried| *tried != Tried::Busy)
    }

    /// As [`Latches::lock`], for a limited time. Every unit may call it, since the wait has an end.
    ///
    /// # Errors
    /// What the operation's interrupt says while it waits.
    pub fn lock_for(
        &self,
        hash: u64,
        owner: u64,
        patience: Duration,
        interrupt: &dyn Interrupt,
    ) -> Result<Tried> {
        let Some(shard) = self.shard(hash) else {
            return Ok(Tried::Busy);
        };
        let tried = self.try_lock(hash, owner);
        if tried != Tried::Busy {
            return Ok(tried);
        }
        let until = muniment_op::now() + patience;
        let ready = || self.unless_busy(hash, owner);
        let got = shard
            .released
            .wait_for_until(hash, interrupt, until, ready)?;
        Ok(got.unwrap_or(Tried::Busy))
    }

    /// Waits until the latch is given back, or is free. The caller must not hold any latch itself.
    ///
    /// # Errors
    /// What the operation's interrupt says while it waits.
    pub fn wait_free(&self, hash: u64, interrupt: &dyn Interrupt) -> Result<()> {
        let Some(shard) = self.shard(hash) else {
            return Ok(());
        };
        let free = || (!shard.held.lock().contains_key(&hash)).then_some(());
        shard.released.wait_for(hash, interrupt, free)?;
        // The call that woke this thread was meant for one that takes the latch, so it is passed on.
        shard.released.notify_one(|h| *h == hash);
        Ok(())
    }

    /// Gives a latch to `owner`, whether or not another owner has it. It is for the time while the door is
    /// closed: what an owner of an earlier opening has staged can never be committed.
    pub fn seize(&self, hash: u64, owner: u64) {
        if let Some(shard) = self.shard(hash) {
            shard.held.lock().insert(hash, owner);
        }
    }

    /// Gives a latch back. It stays with another owner who has seized it.
    pub fn unlock(&self, hash: u64, owner: u64) {
        if let Some(shard) = self.shard(hash) {
            {
                let mut held = shard.held.lock();
                if held.get(&hash) != Some(&owner) {
                    return;
                }
                held.remove(&hash);
            }
            // Only the thread that came first is woken; others would only find the latch taken again.
            shard.released.notify_one(|h| *h == hash);
        }
    }
}
