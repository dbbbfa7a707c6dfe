//! A leaf of a tree: up to [`LEAF`] keys with their versions.
//!
//! Entries are in slots in the order of their arrival, and `order` sorts them, so an insert moves a few bytes
//! and no entries. `heads` has four bytes of each key, after the prefix that every key between the leaf's two
//! fences must have. So a search seldom touches the memory of a key itself, which is probably in the cache of
//! the core that put it. (The last leaf has no second fence. Its prefix is that of its actual keys, and may
//! become shorter.)

use super::node::{common, head as head8};
use crate::views::Needed;
use bytes::Bytes;
use muniment_io::Timestamp;
use std::cmp::Ordering;
use std::mem::size_of;

/// The keys of a full leaf. Each has one bit in `dirty`.
pub(super) const LEAF: usize = 64;

/// Approximately what the allocator and `Bytes` need for one value or key.
const SHARE: usize = 16;

/// A value, or a deletion, and the time of its write.
pub(super) type Old = (Timestamp, Option<Bytes>);

/// A key with its versions.
pub(super) struct Entry {
    pub(super) key: Bytes,
    pub(super) at: Timestamp,
    pub(super) value: Option<Bytes>,
    /// The older versions, ascending.
    pub(super) older: Vec<Old>,
    /// Set if there was nothing, or a deletion, beneath the oldest version that was ever here. A deletion
    /// that is the oldest version then has no effect.
    pub(super) born: bool,
}

/// The bytes of a version's value.
fn value_bytes(value: &Option<Bytes>) -> usize {
    value.as_ref().map_or(0, |v| v.len() + SHARE)
}

impl Entry {
    /// The newest version at or below `at`.
    pub(super) fn get(&self, at: Timestamp) -> Option<&Option<Bytes>> {
        if self.at <= at {
            return Some(&self.value);
        }
        let n = self.older.partition_point(|(t, _)| *t <= at);
        Some(&self.older.get(n.checked_sub(1)?)?.1)
    }

    /// The bytes that the entry refers to (its own are counted with the leaf).
    fn bytes(&self) -> usize {
        self.key.len()
            + SHARE
            + value_bytes(&self.value)
            + self.older_bytes()
            + self.older.capacity() * size_of::<Old>()
    }

    fn older_bytes(&self) -> usize {
        self.older.iter().map(|(_, v)| value_bytes(v)).sum()
    }

    /// True if the entry may have versions to drop, now or later.
    fn is_dirty(&self) -> bool {
        !self.older.is_empty() || (self.born && self.value.is_none())
    }

    /// The time of the version after `older[i]`.
    fn successor(&self, i: usize) -> Timestamp {
        self.older.get(i + 1).map_or(self.at, |(t, _)| *t)
    }

    /// Drops the versions that are older than what a reader at `floor` sees. No view may read below it.
    /// Returns the bytes of the dropped values.
    fn cut(&mut self, floor: Timestamp) -> usize {
        let dead = (0..self.older.len())
            .take_while(|i| self.successor(*i) <= floor)
            .count();
        let freed = self.older.drain(..dead).map(|(_, v)| value_bytes(&v)).sum();
        self.trim();
        freed
    }

    /// Drops every version that no view can read. `visible` is lowered to the first timestamp that has to
    /// become visible before more can be dropped; views need the other versions that stay.
    fn prune(&mut self, needed: &Needed, visible: &mut Timestamp) {
        let mut kept = 0;
        for i in 0..self.older.len() {
            let successor = self.successor(i);
            if !needed.version(self.older[i].0, Some(successor)) {
                continue;
            }
            if successor > needed.horizon() {
                *visible = successor.min(*visible);
            }
            self.older.swap(kept, i);
            kept += 1;
        }
        self.older.truncate(kept);
        if self.older.capacity() > 8 && self.older.capacity() > 4 * kept {
            self.older.shrink_to(2 * kept);
        }
        self.trim();
    }

    /// Drops deletions that are the oldest versions, and the memory of an empty list.
    fn trim(&mut self) {
        if self.born {
            let gone = self.older.iter().take_while(|(_, v)| v.is_none()).count();
            self.older.drain(..gone);
        }
        if self.older.is_empty() {
            self.older = Vec::new();
        }
    }

    /// Shortens a chain that has grown: first by the oldest reader, which is cheap to know, then by the list
    /// of all readers, each time the chain has doubled. Returns the bytes of the dropped values.
    fn shorten(&mut self, floor: &mut impl Floor) -> usize {
        let Some((second, _)) = self.older.get(1) else {
            return 0;
        };
        let mut freed = self.cut(floor.floor(*second));
        if self.older.len() >= 4 && self.older.len().is_power_of_two() {
            freed += self.older_bytes();
            self.prune(floor.needed(), &mut { Timestamp::MAX });
            freed -= self.older_bytes();
        }
        freed
    }

    /// True if the entry does not change any reader's result any more.
    ///
    /// An entry that was born here began with a put. That is gone only when no view could read it, so
    /// its successor is visible, and so is the deletion that is left now.
    fn is_gone(&self) -> bool {
        self.born && self.value.is_none() && self.older.is_empty()
    }
}

/// Tells how far the views have advanced. It reads that no more often than necessary.
pub(super) trait Floor {
    /// A timestamp below which no view reads. It is at or above `enough` if that is possible.
    fn floor(&mut self, enough: Timestamp) -> Timestamp;
    /// The exact list of needed versions.
    fn needed(&mut self) -> &Needed;
}

/// A leaf. Its lock is taken only while the index of its tree is locked, at least for reading.
pub(super) struct Leaf {
    /// The first key that may be in the leaf.
    pub(super) low: Bytes,
    /// The first key that may not be in it; `None` for the last leaf.
    pub(super) high: Option<Bytes>,
    /// How many bytes of `low` every key between `low` and `high` begins with; in the last leaf, every key
    /// that is in it.
    skip: usize,
    /// The heads in the order of keys; `u32::MAX` after the last one.
    heads: [u32; LEAF],
    order: [u8; LEAF],
    slots: Vec<Entry>,
    /// A bit for each slot whose entry may have versions to drop.
    dirty: u64,
    /// The queue in which the leaf waits to be swept.
    pub(super) queued: Option<u8>,
    /// Set when the leaf is no longer in the index.
    pub(super) dead: bool,
}

/// The four bytes of `key` after the first `skip`, as a number that sorts in the same way.
fn head(key: &[u8], skip: usize) -> u32 {
    (head8(key, skip) >> 32) as u32
}

/// The outcome of a put.
pub(super) enum Put {
    Done,
    /// There is no room. The caller has to split the leaf and try again.
    Full(Bytes, Option<Bytes>),
}

impl Leaf {
    /// An empty leaf between two fences.
    pub(super) fn new(low: Bytes, high: Option<Bytes>) -> Leaf {
        let mut leaf = Leaf {
            low,
            high,
            skip: 0,
            heads: [u32::MAX; LEAF],
            order: [0; LEAF],
            slots: Vec::new(),
            dirty: 0,
            queued: None,
            dead: false,
        };
        leaf.skip = leaf.prefix();
        leaf
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty != 0
    }

    /// True for keys between the fences.
    pub(super) fn covers(&self, key: &[u8]) -> bool {
        key >= &self.low[..] && self.high.as_ref().is_none_or(|high| key < &high[..])
    }

    /// The bytes of the entries, counted anew.
    pub(super) fn bytes(&self) -> i64 {
        let entries: usize = self.slots.iter().map(Entry::bytes).sum();
        entries as i64 + capacity(0, self.slots.capacity())
    }

    /// The entry at a position in the order of keys.
    pub(super) fn entry(&self, place: usize) -> &Entry {
        &self.slots[usize::from(self.order[place])]
    }

    /// Compares an entry's key with another one that has the same head. Keys that end within their heads, as
    /// those of records do, need not be fetched from memory: the shorter one is less.
    fn compare(&self, entry: &Entry, key: &[u8]) -> Ordering {
        let whole = self.skip + size_of::<u32>();
        match entry.key.len().max(key.len()) <= whole {
            true => entry.key.len().cmp(&key.len()),
            false => entry.key[..].cmp(key),
        }
    }

    /// The position of `key` (`Ok`), or the one where it belongs (`Err`).
    pub(super) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let n = self.len();
        if !self.has_prefix(key) {
            return Err(match *key < self.low[..] {
                true => 0,
                false => n,
            });
        }
        let head = head(key, self.skip);
        // Ascending keys, as those of records and most `_id`s are, belong after the last one.
        if let Some(last) = n.checked_sub(1)
            && (head > self.heads[last]
                || head == self.heads[last] && self.compare(self.entry(last), key).is_lt())
        {
            return Err(n);
        }
        // All heads are compared, without branches. That is faster than a binary search, which waits for one
        // cache line after another.
        let below = self.heads.iter().filter(|h| **h < head).count().min(n);
        let heads = &self.heads[below..n];
        if heads.first() != Some(&head) {
            return Err(below);
        }
        let same = heads.partition_point(|h| *h == head);
        let found = self.order[below..below + same]
            .binary_search_by(|slot| self.compare(&self.slots[usize::from(*slot)], key));
        match found {
            Ok(i) => Ok(below + i),
            Err(i) => Err(below + i),
        }
    }

    /// The first position whose key is at or above `key`, or above it if `excluded`.
    pub(super) fn place(&self, key: &[u8], excluded: bool) -> usize {
        match self.find(key) {
            Ok(i) => i + usize::from(excluded),
            Err(i) => i,
        }
    }

    /// Writes a version. For `fresh` see [`Op`](crate::Op); with `bottom` there is never anything beneath.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn put(
        &mut self,
        key: Bytes,
        value: Option<Bytes>,
        at: Timestamp,
        fresh: bool,
        bottom: bool,
        floor: &mut impl Floor,
        bytes: &mut i64,
    ) -> Put {
        let place = match self.find(&key) {
            Ok(place) => {
                let slot = usize::from(self.order[place]);
                self.overwrite(slot, key, value, at, floor, bytes);
                return Put::Done;
            }
            // There is nothing here or beneath that could be deleted.
            Err(_) if bottom && value.is_none() => return Put::Done,
            Err(_) if self.len() == LEAF => return Put::Full(key, value),
            Err(place) => place,
        };
        self.fit_prefix(&key);
        let head = head(&key, self.skip);
        let entry = Entry {
            key,
            at,
            born: bottom || (fresh && value.is_some()),
            value,
            older: Vec::new(),
        };
        *bytes += entry.bytes() as i64;
        self.push(place, head, entry, bytes);
        Put::Done
    }

    /// Inserts a new entry at a position.
    fn push(&mut self, place: usize, head: u32, entry: Entry, bytes: &mut i64) {
        let n = self.len();
        self.heads.copy_within(place..n, place + 1);
        self.heads[place] = head;
        self.order.copy_within(place..n, place + 1);
        self.order[place] = n as u8;
        let before = self.slots.capacity();
        if n == before {
            self.slots.reserve_exact((n * 2).clamp(4, LEAF) - n);
        }
        self.slots.push(entry);
        *bytes += capacity(before, self.slots.capacity());
    }

    /// Writes a version of a key that is in the leaf.
    fn overwrite(
        &mut self,
        slot: usize,
        key: Bytes,
        value: Option<Bytes>,
        at: Timestamp,
        floor: &mut impl Floor,
        bytes: &mut i64,
    ) {
        let entry = &mut self.slots[slot];
        let before = entry.older.capacity();
        *bytes += value_bytes(&value) as i64;
        // The key is replaced by the same key in the newer buffer, so that the older buffer can be freed.
        entry.key = key;
        if at == entry.at {
            *bytes -= value_bytes(&entry.value) as i64;
            entry.value = value;
        } else if at > entry.at {
            let old = std::mem::replace(&mut entry.value, value);
            if entry.older.is_empty() {
                entry.older.reserve_exact(2);
            }
            entry.older.push((entry.at, old));
            entry.at = at;
            *bytes -= entry.shorten(floor) as i64;
        } else {
            match entry.older.binary_search_by_key(&at, |(t, _)| *t) {
                Ok(i) => {
                    *bytes -= value_bytes(&entry.older[i].1) as i64;
                    entry.older[i].1 = value;
                }
                Err(i) => entry.older.insert(i, (at, value)),
            }
        }
        let slots = entry.older.capacity() as i64 - before as i64;
        *bytes += slots * size_of::<Old>() as i64;
        match entry.is_dirty() {
            true => self.dirty |= 1 << slot,
            false => self.dirty &= !(1 << slot),
        }
    }

    /// Drops everything in the dirty entries that no view can read, and removes entries without effect.
    /// Returns the first timestamp that has to become visible before more can be dropped; `MAX` if only views
    /// keep the rest.
    pub(super) fn sweep(&mut self, needed: &Needed, bytes: &mut i64) -> Timestamp {
        let mut visible = Timestamp::MAX;
        let mut left = self.dirty;
        let mut gone: u64 = 0;
        while left != 0 {
            let slot = left.trailing_zeros() as usize;
            left &= left - 1;
            let entry = &mut self.slots[slot];
            *bytes -= entry.bytes() as i64;
            entry.prune(needed, &mut visible);
            // A transaction that writes by an older view must find out that there was something here.
            if entry.is_gone() && needed.no_writer_before(entry.at) {
                gone |= 1 << slot;
                continue;
            }
            *bytes += entry.bytes() as i64;
            if !entry.is_dirty() {
                self.dirty &= !(1 << slot);
            }
        }
        if gone != 0 {
            let entries = self.take(bytes);
            let kept = entries
                .filter(|(slot, _, _)| gone & (1 << slot) == 0)
                .map(|(_, entry, dirty)| (entry, dirty));
            let kept: Vec<_> = kept.collect();
            self.fill(kept, bytes);
        }
        visible
    }

    /// Removes and returns all entries in the order of keys, each with its slot and whether it is dirty.
    fn take(&mut self, bytes: &mut i64) -> impl Iterator<Item = (usize, Entry, bool)> + use<> {
        let n = self.len();
        let (order, dirty) = (self.order, self.dirty);
        *bytes -= capacity(0, self.slots.capacity());
        let mut slots: Vec<Option<Entry>> = std::mem::take(&mut self.slots)
            .into_iter()
            .map(Some)
            .collect();
        self.dirty = 0;
        self.heads = [u32::MAX; LEAF];
        (0..n).filter_map(move |place| {
            let slot = usize::from(order[place]);
            Some((slot, slots[slot].take()?, dirty & (1 << slot) != 0))
        })
    }

    /// Fills the empty leaf with sorted entries.
    fn fill(&mut self, entries: Vec<(Entry, bool)>, bytes: &mut i64) {
        if let Some((last, _)) = entries.last() {
            self.fit_prefix(&last.key);
        }
        self.slots.reserve_exact(entries.len());
        for (n, (entry, dirty)) in entries.into_iter().enumerate() {
            self.heads[n] = head(&entry.key, self.skip);
            self.order[n] = n as u8;
            self.dirty |= u64::from(dirty) << n;
            self.slots.push(entry);
        }
        *bytes += capacity(0, self.slots.capacity());
    }

    /// Moves the keys at or after `separator`, which begin at `place`, to a new leaf.
    pub(super) fn split(&mut self, place: usize, separator: Bytes, bytes: &mut i64) -> Leaf {
        let mut right = Leaf::new(separator.clone(), self.high.replace(separator));
        if place == self.len() {
            self.fence(self.high.clone());
            return right;
        }
        let entries = self.take(bytes);
        self.skip = self.prefix();
        let mut left: Vec<_> = entries.map(|(_, entry, dirty)| (entry, dirty)).collect();
        right.fill(left.split_off(place), bytes);
        self.fill(left, bytes);
        right
    }

    /// Takes over the entries of the next leaf, for which this one must have room.
    pub(super) fn absorb(&mut self, right: &mut Leaf, bytes: &mut i64) {
        self.fence(right.high.clone());
        for (_, entry, dirty) in right.take(bytes) {
            self.fit_prefix(&entry.key);
            let (place, head) = (self.len(), head(&entry.key, self.skip));
            self.dirty |= u64::from(dirty) << place;
            self.push(place, head, entry, bytes);
        }
    }

    /// Sets another end.
    fn fence(&mut self, high: Option<Bytes>) {
        self.high = high;
        self.skip = self.prefix();
        self.renew_heads();
    }

    /// Computes the heads anew after the prefix has changed.
    fn renew_heads(&mut self) {
        for place in 0..self.len() {
            self.heads[place] = head(&self.entry(place).key, self.skip);
        }
    }

    /// The length of the prefix, by the present keys.
    fn prefix(&self) -> usize {
        match (&self.high, self.len()) {
            (Some(high), _) => common(&self.low, high),
            (None, 0) => self.low.len(),
            // All other keys are between these two.
            (None, n) => common(&self.low, &self.entry(n - 1).key),
        }
    }

    /// False if `key` lacks the prefix of all keys here. It is then less than all of them, or greater.
    fn has_prefix(&self, key: &[u8]) -> bool {
        self.high.is_some() || key.starts_with(&self.low[..self.skip])
    }

    /// Shortens the prefix to the part that a new key has as well.
    fn fit_prefix(&mut self, key: &[u8]) {
        if !self.has_prefix(key) {
            self.skip = common(&self.low, key);
            self.renew_heads();
        }
    }
}

/// The bytes by which the memory for slots has grown.
fn capacity(before: usize, after: usize) -> i64 {
    (after as i64 - before as i64) * size_of::<Entry>() as i64
}
