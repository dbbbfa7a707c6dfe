//! Hints: the record number under which the document with an `_id` was found the last time.
//!
//! A number belongs to one document for ever, and a document's `_id` never changes. So a hint is checked
//! against the document that it leads to: if the view has that document and it has the `_id`, it is the
//! right one, and `_id_` need not be searched. A wrong hint costs a look, and cannot make an answer
//! wrong. That is why hints need not be taken away when documents go, and why a table without locks
//! suffices, in which a newer hint replaces an older one.
//!
//! Must not be asked where documents are not numbered.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Chunks of the table, each made when it is first written to.
const CHUNKS: usize = 256;
/// Hints in a chunk: 32 KB of them, 8 MB in all.
const CHUNK: usize = 4096;
/// Bits of a number; above them stands a part of the hash.
const BITS: u32 = 48;

/// The table of one store.
pub(crate) struct Hints {
    chunks: Vec<OnceLock<Box<[AtomicU64]>>>,
}

/// The place of a hint in the table.
struct Place {
    chunk: usize,
    at: usize,
    tag: u64,
}

fn place(tree: u32, key: &[u8]) -> Place {
    let hash = xxhash_rust::xxh3::xxh3_64_with_seed(key, u64::from(tree));
    Place {
        chunk: hash as usize % CHUNKS,
        at: (hash as usize / CHUNKS) % CHUNK,
        tag: hash >> BITS,
    }
}

impl Default for Hints {
    fn default() -> Hints {
        Hints {
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
        }
    }
}

impl Hints {
    fn slot(&self, p: &Place) -> Option<&AtomicU64> {
        self.chunks.get(p.chunk)?.get()?.get(p.at)
    }

    /// The number that was noted for a key of `_id_`. It may, rarely, be that of another key.
    pub fn get(&self, tree: u32, key: &[u8]) -> Option<u64> {
        let p = place(tree, key);
        let hint = self.slot(&p)?.load(Relaxed);
        let number = hint & ((1 << BITS) - 1);
        (number != 0 && hint >> BITS == p.tag).then_some(number)
    }

    /// Notes the number for a key.
    pub fn note(&self, tree: u32, key: &[u8], number: u64) {
        if number >> BITS != 0 {
            return;
        }
        let p = place(tree, key);
        let Some(chunk) = self.chunks.get(p.chunk) else {
            return;
        };
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| AtomicU64::new(0)).collect());
        if let Some(slot) = chunk.get(p.at) {
            slot.store(p.tag << BITS | number, Relaxed);
        }
    }

    /// Takes away a hint that led nowhere.
    pub fn forget(&self, tree: u32, key: &[u8]) {
        if let Some(slot) = self.slot(&place(tree, key)) {
            slot.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn hints_are_of_their_key_or_of_none() {
        let hints = Hints::default();
        assert_eq!(hints.get(1, b"a"), None);
        for n in 1..2000_u64 {
            hints.note(1, &n.to_be_bytes(), n);
        }
        let kept = (1..2000_u64).filter(|n| hints.get(1, &n.to_be_bytes()) == Some(*n));
        assert!(kept.count() > 1900);
        assert!(hints.get(2, &7_u64.to_be_bytes()).is_none());
        hints.note(1, b"a", 1 << BITS);
        assert_eq!(hints.get(1, b"a"), None);
        hints.note(1, b"a", (1 << BITS) - 1);
        assert_eq!(hints.get(1, b"a"), Some((1 << BITS) - 1));
        hints.forget(1, b"a");
        assert_eq!(hints.get(1, b"a"), None);
    }
}
