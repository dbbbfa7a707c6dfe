//! A leaf of a tree: up to [`LEAF`] keys with their versions.
//!
//! Entries lie in slots in the order of their arrival; `order` sorts them. So an insert moves a
//! few bytes and not entries. `heads` are four bytes of each key after the prefix that every key
//! between the leaf's two fences must have: a search seldom touches a key's own memory, which the
//! core that put it has in its cache. (The last leaf has no second fence. There it is the prefix of
//! the keys that are in it, which may become shorter.)

use super::node::{common, head as head8};
use crate::views::Needed;
use bytes::Bytes;
use muniment_io::Timestamp;
use std::cmp::Ordering;
use std::mem::size_of;

/// Keys in a full leaf: one bit each in `dirty`.
pub(super) const LEAF: usize = 64;

/// What the allocator and `Bytes` keep for one value or key, about.
const SHARE: usize = 16;

/// A value, or a deletion, and when it was written.
pub(super) type Old = (Timestamp, Option<Bytes>);

/// A key's versions.
pub(super) struct Entry {
    pub(super) key: Bytes,
    pub(super) at: Timestamp,
    pub(super) value: Option<Bytes>,
    /// What was before, ascending.
    pub(super) older: Vec<Old>,
    /// Nothing, or a deletion, lies beneath the oldest version that was ever here: a deletion at
    /// the bottom says nothing.
    pub(super) born: bool,
}

/// Bytes of a version's value.
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

    /// Bytes of what it refers to (its own are the leaf's).
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

    /// True if it may have something to give up, now or later.
    fn is_dirty(&self) -> bool {
        !self.older.is_empty() || (self.born && self.value.is_none())
    }

    /// When the version after `older[i]` was written.
    fn successor(&self, i: usize) -> Timestamp {
        self.older.get(i + 1).map_or(self.at, |(t, _)| *t)
    }

    /// Gives up what is older than what a reader at `floor` sees, below which no view reads. Returns the
    /// bytes of the values given up.
    fn cut(&mut self, floor: Timestamp) -> usize {
        let dead = (0..self.older.len())
            .take_while(|i| self.successor(*i) <= floor)
            .count();
        let freed = self.older.drain(..dead).map(|(_, v)| value_bytes(&v)).sum();
        self.trim();
        freed
    }

    /// Gives up every version that no view can read. `visible` sinks to the first timestamp that has to
    /// become visible before more can go; other versions that stay are held by views.
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

    /// Deletions at the bottom go; so does the list's memory when nothing is left.
    fn trim(&mut self) {
        if self.born {
            let gone = self.older.iter().take_while(|(_, v)| v.is_none()).count();
            self.older.drain(..gone);
        }
        if self.older.is_empty() {
            self.older = Vec::new();
        }
    }

    /// A chain that has grown is shortened: first by the oldest reader, which is cheap to know,
    /// then by the list of all of them, each time it has doubled. Bytes of values given up.
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

    /// True if the entry changes no reader's result any more.
    ///
    /// An entry that was born here began with a put. That is gone only when no view could read it, so
    /// its successor is visible, and so is the deletion that is left now.
    fn is_gone(&self) -> bool {
        self.born && self.value.is_none() && self.older.is_empty()
    }
}

/// Reads how far views have come, no more often than it must.
pub(super) trait Floor {
    /// A timestamp below which no view reads, at or above `enough` if that can be said.
    fn floor(&mut self, enough: Timestamp) -> Timestamp;
    /// The exact list.
    fn needed(&mut self) -> &Needed;
}

/// A leaf. Its lock is taken only while the index of its tree is held, for reading at least.
pub(super) struct Leaf {
    /// The first key that may be here.
    pub(super) low: Bytes,
    /// The first key that may not; `None` in the last leaf.
    pub(super) high: Option<Bytes>,
    /// So many bytes of `low` every key between `low` and `high` begins with; in the last leaf, every
    /// key in it.
    skip: usize,
    /// `u32::MAX` after the last.
    heads: [u32; LEAF],
    order: [u8; LEAF],
    slots: Vec<Entry>,
    /// By slot: entries that may have something to give up.
    dirty: u64,
    /// In which queue it waits to be swept.
    pub(super) queued: Option<u8>,
    /// No longer in the index.
    pub(super) dead: bool,
}

/// The four bytes of `key` after the first `skip`, as a number that sorts as they do.
fn head(key: &[u8], skip: usize) -> u32 {
    (head8(key, skip) >> 32) as u32
}

/// What a put found.
pub(super) enum Put {
    Done,
    /// There is no room: the same again after a split.
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

    /// Bytes of its entries, counted anew.
    pub(super) fn bytes(&self) -> i64 {
        let entries: usize = self.slots.iter().map(Entry::bytes).sum();
        entries as i64 + capacity(0, self.slots.capacity())
    }

    /// The entry at a place in the order of keys.
    pub(super) fn entry(&self, place: usize) -> &Entry {
        &self.slots[usize::from(self.order[place])]
    }

    /// An entry's key against another one with the same head. Keys that end within their heads, as
    /// those of records do, need not be fetched from memory: the shorter one is the lower one.
    fn compare(&self, entry: &Entry, key: &[u8]) -> Ordering {
        let whole = self.skip + size_of::<u32>();
        match entry.key.len().max(key.len()) <= whole {
            true => entry.key.len().cmp(&key.len()),
            false => entry.key[..].cmp(key),
        }
    }

    /// Where `key` is (`Ok`), or belongs (`Err`).
    pub(super) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let n = self.len();
        if !self.has_prefix(key) {
            return Err(match *key < self.low[..] {
                true => 0,
                false => n,
            });
        }
        let head = head(key, self.skip);
        // Ascending keys, as those of records and most `_id`s are: after the last.
        if let Some(last) = n.checked_sub(1)
            && (head > self.heads[last]
                || head == self.heads[last] && self.compare(self.entry(last), key).is_lt())
        {
            return Err(n);
        }
        // All of them, without a branch: faster than a binary search that waits for each line of
        // the cache in turn.
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

    /// The first place whose key is at or above `key`; above it if `excluded`.
    pub(super) fn place(&self, key: &[u8], excluded: bool) -> usize {
        match self.find(key) {
            Ok(i) => i + usize::from(excluded),
            Err(i) => i,
        }
    }

    /// Writes a version. `fresh`: see [`Op`](crate::Op); `bottom`: nothing is ever beneath.
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
            // Nothing was here and nothing is beneath: there is nothing to delete.
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

    /// A new entry at a place.
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

    /// A version of a key that is here.
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
        // The same key out of the newer buffer: the older one need not stay for it.
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

    /// Gives up, in all dirty entries, what nobody can read; entries that say nothing go. The
    /// first timestamp that has to become visible before more can go; `MAX` if only views hold it.
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
            // A transaction that writes by an older view is to find that something was here.
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

    /// All entries in the order of keys, each with its slot and whether it is dirty; none stays.
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

    /// Sorted entries into the empty leaf.
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

    /// Cuts off what is at or after `separator` into a new leaf, from `place` on.
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

    /// Takes over the leaf after this one, which must have room here.
    pub(super) fn absorb(&mut self, right: &mut Leaf, bytes: &mut i64) {
        self.fence(right.high.clone());
        for (_, entry, dirty) in right.take(bytes) {
            self.fit_prefix(&entry.key);
            let (place, head) = (self.len(), head(&entry.key, self.skip));
            self.dirty |= u64::from(dirty) << place;
            self.push(place, head, entry, bytes);
        }
    }

    /// Another end.
    fn fence(&mut self, high: Option<Bytes>) {
        self.high = high;
        self.skip = self.prefix();
        self.renew_heads();
    }

    /// The heads, when the prefix has changed.
    fn renew_heads(&mut self) {
        for place in 0..self.len() {
            self.heads[place] = head(&self.entry(place).key, self.skip);
        }
    }

    /// The length of the prefix, from what is here.
    fn prefix(&self) -> usize {
        match (&self.high, self.len()) {
            (Some(high), _) => common(&self.low, high),
            (None, 0) => self.low.len(),
            // All others lie between the two.
            (None, n) => common(&self.low, &self.entry(n - 1).key),
        }
    }

    /// False if `key` does not begin as all keys here do. Then it lies beside all of them.
    fn has_prefix(&self, key: &[u8]) -> bool {
        self.high.is_some() || key.starts_with(&self.low[..self.skip])
    }

    /// Shortens the prefix to what a key that comes in has of it.
    fn fit_prefix(&mut self, key: &[u8]) {
        if !self.has_prefix(key) {
            self.skip = common(&self.low, key);
            self.renew_heads();
        }
    }
}

/// Bytes of slots that came.
fn capacity(before: usize, after: usize) -> i64 {
    (after as i64 - before as i64) * size_of::<Entry>() as i64
}
