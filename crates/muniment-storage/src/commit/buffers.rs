//! What commits keep in memory after they are applied.

use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_io::spread::{CachePadded, Spread};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The buffers of commits that anything refers to still: a small document that stays keeps alive
/// all that was committed with it, which a memtable that counts documents does not see.
///
/// They are counted by the memtable that they went into. Once that is in tables, only readers keep a
/// buffer, and neither a flush nor a waiting writer can make those let go.
pub(crate) struct Buffers {
    /// A thread counts in that of its place.
    generations: Spread<Mutex<Generations>>,
    copies: bool,
}

/// Bytes that are alive.
pub(super) type Live = Arc<CachePadded<AtomicU64>>;

#[derive(Default)]
struct Generations {
    active: Live,
    /// Those of sealed memtables, with their cuts, ascending.
    sealed: VecDeque<(Timestamp, Live)>,
}

impl Buffers {
    /// None yet. `copies`: nothing ever makes them go, since there are no flushes, so what may stay is
    /// copied out of them.
    pub fn new(copies: bool) -> Buffers {
        Buffers {
            generations: Spread::default(),
            copies,
        }
    }

    /// The memtable was sealed at `cut`. Nobody commits meanwhile.
    pub fn seal(&self, cut: Timestamp) {
        for all in self.generations.iter() {
            let mut all = all.lock();
            let sealed = std::mem::take(&mut all.active);
            all.sealed.push_back((cut, sealed));
        }
    }

    /// Bytes that the active memtable keeps alive, and those that it and the sealed ones do which
    /// are not in tables: these are, up to `persisted`.
    pub fn live(&self, persisted: Timestamp) -> (u64, u64) {
        let (mut active, mut sealed) = (0, 0);
        for all in self.generations.iter() {
            let mut all = all.lock();
            while all.sealed.front().is_some_and(|(cut, _)| *cut <= persisted) {
                all.sealed.pop_front();
            }
            active += all.active.load(Relaxed);
            sealed += all.sealed.iter().map(|(_, n)| n.load(Relaxed)).sum::<u64>();
        }
        (active, active + sealed)
    }

    /// See [`Buffers::new`].
    pub(super) fn copies(&self) -> bool {
        self.copies
    }

    /// What the calling thread counts what it commits now in.
    pub(super) fn active(&self) -> Live {
        self.generations.own().lock().active.clone()
    }

    /// Makes a buffer of bytes that `live` counts until nothing refers to it.
    pub(super) fn count(&self, mut bytes: Vec<u8>, live: &Live) -> Bytes {
        if bytes.is_empty() {
            return Bytes::new();
        }
        if bytes.capacity() > 2 * bytes.len() + 1024 {
            // It was made for more than came.
            bytes.shrink_to_fit();
        }
        live.fetch_add(bytes.capacity() as u64, Relaxed);
        Bytes::from_owner(Counted {
            bytes,
            live: live.clone(),
        })
    }
}

struct Counted {
    bytes: Vec<u8>,
    live: Live,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.live.fetch_sub(self.bytes.capacity() as u64, Relaxed);
    }
}
