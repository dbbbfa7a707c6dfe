//! What a write unit has staged: its operations for the log, and the puts into the trees that these
//! cause. Recovery fills the same structure from a record, so that both put the same.
//!
//! Keys and documents stand in the payload of the log's record and are not copied again: the trees refer
//! to them there. Bytes that only the trees need (index entries) stand in an arena.

use super::buffers::Buffers;
use super::door::Opening;
use super::ops::{Encoder, TOGETHER};
use crate::by_hash::HashKeyed;
use crate::index::KeySet;
use crate::inner::Inner;
use crate::sessions::{self, Advanced, SESSIONS, SessionChange, SessionHead};
use crate::transaction::Transaction;
use bytes::Bytes;
use muniment_tree::{Batch, Op as TreeOp, TreeId};
use muniment_value::Result;
use std::ops::Range;
use std::sync::Arc;

/// A piece of this length has an allocation of its own. Otherwise one document that stays would keep its
/// neighbours in memory.
const OWN: usize = 1024;

/// Commits up to this many bytes may stay in memory as a whole in a store without flushes, where nothing
/// makes them go.
const SMALL: usize = 4096;

/// Room is made in advance for at most this many puts, because their number is a guess.
const MOST_EXPECTED: usize = 1 << 14;

/// The place of a key or a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    /// In the payload of the log's record.
    Logged { start: u32, end: u32 },
    /// In the arena.
    Kept { start: u32, end: u32 },
    /// An allocation of its own: its place in the list of these.
    Owned { at: u32 },
}

/// One change of a key.
#[derive(Clone)]
pub(crate) struct Put {
    /// The tree of the key.
    pub tree: u32,
    /// The key.
    pub key: Piece,
    /// The new value; `None` deletes the key.
    pub value: Option<Piece>,
    /// See [`TreeOp::fresh`].
    pub fresh: bool,
    /// The previous put with the same hash, plus one.
    chain: u32,
}

/// Counts the index keys that writes have added and removed, including those of `_id`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCounts {
    /// Keys that were added: `keysInserted` of the profiler.
    pub inserted: u64,
    /// Keys that were removed: `keysDeleted`.
    pub deleted: u64,
}

/// Staged operations and puts.
pub(crate) struct Stage {
    /// The operations.
    pub log: Encoder,
    arena: Vec<u8>,
    owned: Vec<Bytes>,
    owned_bytes: usize,
    puts: Vec<Put>,
    /// Puts by the hash of tree and key; made only when a staged key is looked up.
    by_key: HashKeyed<u32>,
    indexed: usize,
    /// A key may be put twice, and then the later put replaces the earlier one.
    replacing: bool,
    /// How many documents there are more (or fewer) than before.
    pub docs: i64,
    /// How many bytes of documents there are more (or fewer) than before.
    pub bytes: i64,
    /// Index keys that the operations add and remove.
    pub keys: KeyCounts,
    /// The transaction that it is a part of.
    pub of: Option<Arc<Transaction>>,
    /// The opening of the door under which it was begun.
    pub opening: Opening,
}

impl Stage {
    /// An empty stage. `opening`: the door's opening before anything was read for the write.
    pub fn new(opening: Opening) -> Stage {
        Stage {
            opening,
            log: Encoder::new(),
            arena: Vec::new(),
            owned: Vec::new(),
            owned_bytes: 0,
            puts: Vec::new(),
            by_key: HashKeyed::default(),
            indexed: 0,
            replacing: false,
            docs: 0,
            bytes: 0,
            keys: KeyCounts::default(),
            of: None,
        }
    }

    /// The newest value of a key without what is staged. Only the holder of the key's latch may
    /// ask, or the value could change at once.
    ///
    /// # Errors
    /// 112 WriteConflict in a transaction if the key has changed since its view; 301.
    pub fn beneath(&self, store: &Inner, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        match &self.of {
            Some(transaction) => transaction.newest(tree, key),
            None => store.newest(tree, key),
        }
    }

    /// Stages an addition to a session's record.
    pub fn session(&mut self, change: &SessionChange) {
        let (key, added) = self
            .log
            .session(&change.key.to_bytes(), &change.added.encode());
        self.session_puts(&change.next, key, added);
    }

    /// Stages the end of a session's record.
    pub fn forget_session(&mut self, key: &[u8], head: &SessionHead) {
        let (logged, _) = self.log.session(key, &[]);
        self.forget_session_puts(key, head, logged);
    }

    /// Stages the puts for the end of a session's record. `logged`: the range of its key in the log.
    pub fn forget_session_puts(&mut self, key: &[u8], head: &SessionHead, logged: Range<usize>) {
        self.session_rows(&head.forget(key));
        self.put(SESSIONS, Stage::logged(logged), None, false);
    }

    /// Stages the puts for a session's record; `key`, `added`: their ranges in the log.
    pub fn session_puts(&mut self, next: &Advanced, key: Range<usize>, added: Range<usize>) {
        self.session_rows(&next.rows);
        let value = match &next.head {
            None => Stage::logged(added),
            Some(head) => self.keep(&[&head.encode()]),
        };
        self.put(SESSIONS, Stage::logged(key), Some(value), false);
    }

    fn session_rows(&mut self, rows: &[sessions::Put]) {
        for (key, value) in rows {
            let key = self.keep(&[key]);
            let value = value.as_ref().map(|v| self.keep(&[v]));
            self.put(SESSIONS, key, value, false);
        }
    }

    /// Makes room for this many more operations with `logged` bytes of keys and documents, puts, and
    /// bytes in the arena.
    pub fn reserve(&mut self, ops: usize, logged: usize, puts: usize, kept: usize) {
        self.log.reserve(ops, logged);
        self.puts.reserve_exact(puts + 1);
        self.arena.reserve_exact(kept);
    }

    /// Makes room for exactly the entries of a document. It is for documents with many or long keys, for
    /// which buffers that grow by doubling would take much more memory.
    pub fn expect(&mut self, set: &KeySet, record_key: &[u8]) {
        let mut bytes = 0;
        let mut keys = 0;
        for (key, bits) in set.iter() {
            bytes += key.len() + bits.len() + record_key.len() + 10;
            keys += 1;
        }
        self.arena.reserve_exact(bytes);
        self.puts.reserve_exact(keys);
    }

    /// Makes room for about this many more puts. The number is a guess, so it is trusted only up to a
    /// limit.
    pub fn expect_puts(&mut self, puts: usize) {
        self.puts.reserve(puts.min(MOST_EXPECTED));
    }

    /// A record without an operation, which serves only to get a timestamp.
    pub fn of_nothing(opening: Opening) -> Stage {
        let mut stage = Stage::new(opening);
        stage.log.begin_record(0);
        stage
    }

    /// The stage for a record that is in the log already.
    pub fn of_payload(payload: &[u8]) -> Stage {
        Stage {
            log: Encoder::of(payload),
            ..Stage::new(Opening::NONE)
        }
    }

    /// True if there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// True if it adds nothing except to the catalog and a little to the records of sessions. It may use
    /// the space that is kept back then. A findAndModify that removes a document does not count, because
    /// the session's record gets the whole document.
    pub fn frees(&self) -> bool {
        let small = |p: &Put| match (p.tree, p.value) {
            (_, None) | (crate::keys::META, _) => true,
            (SESSIONS, Some(value)) => self.bytes_of(value).len() <= sessions::LITTLE,
            _ => false,
        };
        self.puts.iter().all(small) && self.docs <= 0
    }

    /// How many keys are put or deleted.
    pub fn puts(&self) -> usize {
        self.puts.len()
    }

    /// True if it changes the catalog.
    pub fn changes_catalog(&self) -> bool {
        self.puts.iter().any(|p| p.tree == crate::keys::META)
    }

    /// The bytes of the record and of the index entries so far.
    pub fn len(&self) -> usize {
        self.log.len() + self.arena.len() + self.owned_bytes
    }

    /// Allows a key to be put a second time from now on.
    pub fn replaces(&mut self) {
        self.replacing = true;
    }

    /// A piece of the record that [`Stage::log`] wrote.
    pub fn logged(range: Range<usize>) -> Piece {
        Piece::Logged {
            // A record never reaches 4 GB, because the door refuses it.
            start: range.start as u32,
            end: range.end as u32,
        }
    }

    /// Keeps bytes that only the trees need.
    pub fn keep(&mut self, parts: &[&[u8]]) -> Piece {
        let start = self.arena.len() as u32;
        for part in parts {
            self.arena.extend_from_slice(part);
        }
        Piece::Kept {
            start,
            end: self.arena.len() as u32,
        }
    }

    /// Keeps a value that only the trees need.
    pub fn keep_value(&mut self, value: &Bytes) -> Piece {
        if value.len() < OWN {
            return self.keep(&[value]);
        }
        self.owned_bytes += value.len();
        self.owned.push(value.clone());
        Piece::Owned {
            at: self.owned.len() as u32 - 1,
        }
    }

    /// Puts (`None`: deletes) a key. `fresh`: see [`TreeOp::fresh`].
    pub fn put(&mut self, tree: u32, key: Piece, value: Option<Piece>, fresh: bool) {
        if self.replacing {
            self.index();
            if let Some(at) = self.find(tree, self.bytes_of(key))
                && let Some(put) = self.puts.get_mut(at)
            {
                // After a deletion in the same unit it is not known whether the trees have the key, so
                // the put is not fresh.
                put.fresh &= value.is_some();
                put.value = value;
                return;
            }
        }
        self.puts.push(Put {
            tree,
            key,
            value,
            fresh: fresh && value.is_some(),
            chain: 0,
        });
    }

    fn bytes_of(&self, piece: Piece) -> &[u8] {
        match piece {
            Piece::Logged { start, end } => self.log.get(start as usize..end as usize),
            Piece::Kept { start, end } => self
                .arena
                .get(start as usize..end as usize)
                .unwrap_or_default(),
            Piece::Owned { at } => self.owned.get(at as usize).map_or(&[], |b| &**b),
        }
    }

    fn hash(tree: u32, key: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(key, u64::from(tree))
    }

    fn index(&mut self) {
        for at in self.indexed..self.puts.len() {
            let Some(put) = self.puts.get(at) else { break };
            let hash = Stage::hash(put.tree, self.bytes_of(put.key));
            let before = self.by_key.insert(hash, at as u32 + 1).unwrap_or(0);
            if let Some(put) = self.puts.get_mut(at) {
                put.chain = before;
            }
        }
        self.indexed = self.puts.len();
    }

    fn find(&self, tree: u32, key: &[u8]) -> Option<usize> {
        let mut at = self.by_key.get(&Stage::hash(tree, key)).copied()?;
        while at > 0 {
            let put = self.puts.get(at as usize - 1)?;
            if put.tree == tree && self.bytes_of(put.key) == key {
                return Some(at as usize - 1);
            }
            at = put.chain;
        }
        None
    }

    /// What is staged for a key. `None`: nothing; `Some(None)`: its deletion.
    pub fn staged(&mut self, tree: u32, key: &[u8]) -> Option<Option<&[u8]>> {
        self.index();
        let at = self.find(tree, key)?;
        let value = self.puts.get(at)?.value;
        Some(value.map(|v| self.bytes_of(v)))
    }

    /// The staged keys of one tree that begin with `prefix`, with what is staged for them.
    pub fn staged_with<'s>(
        &'s self,
        tree: u32,
        prefix: &'s [u8],
    ) -> impl Iterator<Item = (&'s [u8], Option<&'s [u8]>)> {
        self.puts.iter().filter_map(move |p| {
            let key = self.bytes_of(p.key);
            (p.tree == tree && key.starts_with(prefix))
                .then(|| (key, p.value.map(|v| self.bytes_of(v))))
        })
    }

    /// The record's payload and the puts, which refer to it.
    pub fn finish(self, now_ms: i64, buffers: &Buffers) -> (Bytes, Batch) {
        let sealed = self.seal(now_ms, buffers);
        (sealed.payload.clone(), sealed.into_batch())
    }

    /// The record's payload, and the puts as they stand in it.
    pub fn seal(mut self, now_ms: i64, buffers: &Buffers) -> Sealed {
        self.log.complete(now_ms);
        self.split(buffers)
    }

    /// The same for a record that is in the log already.
    pub fn split(self, buffers: &Buffers) -> Sealed {
        let live = buffers.active();
        let mut payload = self.log.into_payload();
        let logged = payload.len();
        // A small arena goes after the record into the same buffer, which saves an allocation. The
        // buffer stays as long as either is used, so the record has to be small, too, and the store has
        // to have flushes.
        let small = self.arena.len() <= TOGETHER && logged <= OWN;
        let together = small && !buffers.copies();
        if together {
            payload.extend_from_slice(&self.arena);
        }
        let payload = buffers.count(payload, &live);
        let (payload, arena) = match together {
            true => (payload.slice(..logged), payload.slice(logged..)),
            false => (payload, buffers.count(self.arena, &live)),
        };
        Sealed {
            copies: buffers.copies() && payload.len() + arena.len() > SMALL,
            payload,
            arena,
            owned: self.owned,
            puts: self.puts,
        }
    }
}

/// A stage to which nothing is added any more.
#[derive(Clone)]
pub(crate) struct Sealed {
    /// The record's payload.
    pub payload: Bytes,
    /// The pieces in the arena.
    pub arena: Bytes,
    /// The pieces with an allocation of their own.
    pub owned: Vec<Bytes>,
    /// Parts of `payload` and `arena` that stay in memory have to be copied out of them.
    pub copies: bool,
    /// The puts in the order in which they were staged.
    pub puts: Vec<Put>,
}

impl Sealed {
    fn bytes(&self, piece: Piece) -> Bytes {
        let part = |from: &Bytes, start: u32, end: u32| {
            part(from, start as usize..end as usize, self.copies)
        };
        match piece {
            Piece::Logged { start, end } => part(&self.payload, start, end),
            Piece::Kept { start, end } => part(&self.arena, start, end),
            Piece::Owned { at } => self.owned.get(at as usize).cloned().unwrap_or_default(),
        }
    }

    /// The puts alone.
    pub fn into_batch(self) -> Batch {
        let mut batch = Batch::new();
        self.add_to(&mut batch);
        batch
    }

    /// Adds the puts to a commit's.
    pub fn add_to(self, batch: &mut Batch) {
        let op = |p: &Put| TreeOp {
            tree: TreeId(p.tree),
            key: self.bytes(p.key),
            value: p.value.map(|v| self.bytes(v)),
            fresh: p.fresh,
        };
        // The puts go tree by tree, which saves searches for the tree, and the tree with the greatest
        // number first. A collection has a lower number than its indexes, so a writer that meets a
        // document before it is visible finds all its entries written.
        batch.reserve_exact(self.puts.len());
        let mut below = u32::MAX;
        loop {
            let rest = self.puts.iter().map(|p| p.tree).filter(|t| *t < below);
            let Some(tree) = rest.max() else { break };
            batch.extend(self.puts.iter().filter(|p| p.tree == tree).map(op));
            below = tree;
        }
    }
}

/// A part of a buffer. It keeps the whole buffer alive unless it is copied.
pub(crate) fn part(from: &Bytes, range: Range<usize>, copies: bool) -> Bytes {
    match copies {
        true => Bytes::copy_from_slice(from.get(range).unwrap_or_default()),
        false => from.slice(range),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_io::Timestamp;

    #[test]
    fn what_a_session_remembers_frees_space_only_while_it_is_small() {
        use crate::session_key::SessionKey;
        use crate::sessions::{Run, SessionHead, SessionRecord, SessionState};
        for (len, frees) in [(20, true), (1 << 20, false)] {
            let mut s = Stage::new(Opening::NONE);
            let k = s.log.delete(1, &[7], &[]);
            s.put(1, Stage::logged(k), None, false);
            s.docs -= 1;
            let mut added = SessionRecord::new(1, SessionState::Retryable, 1);
            // The entry of a findAndModify that removes has the document.
            added.push(Run {
                first: 0,
                count: 1,
                result: vec![0; len],
            });
            let key = SessionKey::of_nobody([1; 16]);
            s.session(&SessionChange::new(key, added, &SessionHead::default()));
            assert_eq!(s.frees(), frees, "{len}");
        }
    }

    #[test]
    fn a_guess_takes_no_more_memory_than_some() {
        let mut s = Stage::new(Opening::NONE);
        s.expect_puts(usize::MAX);
        assert!(s.puts.capacity() <= 2 * MOST_EXPECTED);
    }

    #[test]
    fn a_unit_reads_what_it_has_staged() {
        let mut s = Stage::new(Opening::NONE);
        for i in 0..100_u8 {
            let (k, d) = s.log.insert(1, &[i], &[i, i]);
            s.put(1, Stage::logged(k), Some(Stage::logged(d)), true);
            let entry = s.keep(&[&[9, i], b"e"]);
            s.put(2, entry, Some(entry), true);
        }
        assert_eq!(s.staged(1, &[7]), Some(Some(&[7, 7][..])));
        assert_eq!(s.staged(3, &[7]), None);
        s.replaces();
        let k = s.log.delete(1, &[7], &[]);
        s.put(1, Stage::logged(k), None, false);
        assert_eq!(s.staged(1, &[7]), Some(None));
        assert_eq!(s.staged_with(2, &[9, 7]).count(), 1);
        let buffers = Buffers::new(false);
        let (payload, batch) = s.finish(0, &buffers);
        drop(payload);
        let (none, some) = (Timestamp::ZERO, Timestamp(5));
        assert!(buffers.live(none).0 > 0);
        assert_eq!(batch.len(), 200);
        let gone: Vec<_> = batch.iter().filter(|o| o.value.is_none()).collect();
        assert_eq!(gone.len(), 1);
        assert!(!gone[0].fresh && gone[0].key == [7][..]);
        // The buffers of what is in tables are kept only by readers, and no writer waits for readers.
        buffers.seal(some);
        assert!(buffers.live(none).0 == 0 && buffers.live(none).1 > 0);
        assert_eq!(buffers.live(some), (0, 0));
        drop(batch);
    }
}
