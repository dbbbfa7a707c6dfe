//! What a write unit has staged: its operations for the log, and the puts into the trees that
//! they come to. Recovery fills the same structure from a record, so that both ways put the same.
//!
//! Keys and documents stand in the payload of the log's record and are not copied again: the
//! trees refer to them there. What only the trees need (index entries) stands in an arena.

use super::ops::Encoder;
use bytes::Bytes;
use muniment_tree::{Batch, Op as TreeOp, TreeId};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

/// What is so long has an allocation of its own.
const OWN: usize = 1024;

/// Bytes of the payload or of the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    start: u32,
    end: u32,
    logged: bool,
}

struct Put {
    tree: u32,
    key: Piece,
    value: Option<Piece>,
    fresh: bool,
    /// The put before it with the same hash, plus one.
    chain: u32,
}

/// The hash is one already.
#[derive(Default)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

/// A map by something that is a hash.
pub(crate) type HashKeyed<V> = HashMap<u64, V, BuildHasherDefault<Identity>>;

/// Staged operations and puts.
pub(crate) struct Stage {
    /// The operations.
    pub log: Encoder,
    arena: Vec<u8>,
    puts: Vec<Put>,
    /// Puts by the hash of tree and key; only made when somebody asks.
    by_key: HashKeyed<u32>,
    indexed: usize,
    /// A key may be put twice: the later put takes the earlier one's place.
    replacing: bool,
    /// Documents and bytes more (or less) than before.
    pub docs: i64,
    /// See `docs`.
    pub bytes: i64,
}

impl Stage {
    /// Nothing staged.
    pub fn new() -> Stage {
        Stage {
            log: Encoder::new(),
            arena: Vec::new(),
            puts: Vec::new(),
            by_key: HashKeyed::default(),
            indexed: 0,
            replacing: false,
            docs: 0,
            bytes: 0,
        }
    }

    /// For what a record that is in the log already comes to.
    pub fn of_payload(payload: &[u8]) -> Stage {
        Stage {
            log: Encoder::of(payload),
            ..Stage::new()
        }
    }

    /// True if there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// True if nothing is added but to the catalog: it may use the space that is kept back.
    pub fn frees(&self) -> bool {
        self.puts
            .iter()
            .all(|p| p.value.is_none() || p.tree == crate::keys::META)
            && self.docs <= 0
    }

    /// Bytes of the record and of the entries so far.
    pub fn len(&self) -> usize {
        self.log.len() + self.arena.len()
    }

    /// From now on a key may be put a second time.
    pub fn replaces(&mut self) {
        self.replacing = true;
    }

    /// A piece of the record that [`Stage::log`] wrote.
    pub fn logged(range: Range<usize>) -> Piece {
        Piece {
            // A record is never as long as 4 GB: the door refuses it.
            start: range.start as u32,
            end: range.end as u32,
            logged: true,
        }
    }

    /// Keeps bytes that only the trees need.
    pub fn keep(&mut self, parts: &[&[u8]]) -> Piece {
        let start = self.arena.len() as u32;
        for part in parts {
            self.arena.extend_from_slice(part);
        }
        Piece {
            start,
            end: self.arena.len() as u32,
            logged: false,
        }
    }

    /// Puts (`None`: deletes) a key. `fresh`: see [`TreeOp::fresh`].
    pub fn put(&mut self, tree: u32, key: Piece, value: Option<Piece>, fresh: bool) {
        if self.replacing {
            self.index();
            let bytes = self.bytes_of(key).to_vec();
            if let Some(at) = self.find(tree, &bytes)
                && let Some(put) = self.puts.get_mut(at)
            {
                // Deleted and put again within one unit: what lies beneath is not known.
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
        let range = piece.start as usize..piece.end as usize;
        match piece.logged {
            true => self.log.get(range),
            false => self.arena.get(range).unwrap_or_default(),
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

    /// What is staged for a key: `None`: nothing; `Some(None)`: its deletion.
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
    pub fn finish(mut self, now_ms: i64) -> (Bytes, Batch) {
        self.log.set_wall_clock(now_ms);
        self.split()
    }

    /// The puts alone.
    pub fn into_batch(self) -> Batch {
        self.split().1
    }

    fn split(self) -> (Bytes, Batch) {
        let payload = Bytes::from(self.log.into_payload());
        let arena = Bytes::from(self.arena);
        let slice = |p: Piece| {
            let range = p.start as usize..p.end as usize;
            match p.logged {
                true => payload.slice(range),
                // A whole document of its own: one that stays must not keep its neighbours.
                false if range.len() >= OWN => {
                    Bytes::copy_from_slice(arena.get(range).unwrap_or_default())
                }
                false => arena.slice(range),
            }
        };
        let op = |p: &Put| TreeOp {
            tree: TreeId(p.tree),
            key: slice(p.key),
            value: p.value.map(slice),
            fresh: p.fresh,
        };
        // Tree by tree, which spares the search for it, and the greatest number first: a
        // collection has a lower one than its indexes, so whoever meets a document before it is
        // visible finds all its entries written.
        let mut batch = Batch::with_capacity(self.puts.len());
        let mut below = u32::MAX;
        loop {
            let rest = self.puts.iter().map(|p| p.tree).filter(|t| *t < below);
            let Some(tree) = rest.max() else { break };
            batch.extend(self.puts.iter().filter(|p| p.tree == tree).map(op));
            below = tree;
        }
        (payload, batch)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_unit_reads_what_it_has_staged() {
        let mut s = Stage::new();
        for i in 0..100_u8 {
            let (k, d) = s.log.insert(1, &[i], &[i, i]);
            s.put(1, Stage::logged(k), Some(Stage::logged(d)), true);
            let entry = s.keep(&[&[9, i], b"e"]);
            s.put(2, entry, Some(entry), true);
        }
        assert_eq!(s.staged(1, &[7]), Some(Some(&[7, 7][..])));
        assert_eq!(s.staged(3, &[7]), None);
        s.replaces();
        let k = s.log.delete(1, &[7]);
        s.put(1, Stage::logged(k), None, false);
        assert_eq!(s.staged(1, &[7]), Some(None));
        assert_eq!(s.staged_with(2, &[9, 7]).count(), 1);
        let (_, batch) = s.finish(0);
        assert_eq!(batch.len(), 200);
        let gone: Vec<_> = batch.iter().filter(|o| o.value.is_none()).collect();
        assert_eq!(gone.len(), 1);
        assert!(!gone[0].fresh && gone[0].key == [7][..]);
    }
}
