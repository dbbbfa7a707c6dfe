//! Counts the buffers that commits keep in memory after they are applied.

use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_io::spread::{CachePadded, Spread};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The buffers of commits that are still referred to. A small document keeps alive everything that was
/// committed with it, and a memtable, which counts documents, does not see that.
///
/// The buffers are counted by the memtable that they went into. After that is in tables only readers
/// keep a buffer, and neither a flush nor a waiting writer can make readers let go.
pub(crate) struct Buffers {
    /// The counters, by the place of the thread, so that threads do not contend for one.
    generations: Spread<Mutex<Generations>>,
    copies: bool,
}

/// The number of bytes that are alive.
pub(super) type Live = Arc<CachePadded<AtomicU64>>;

#[derive(Default)]
struct Generations {
    active: Live,
    /// The counters of sealed memtables, with their cuts, ascending.
    sealed: VecDeque<(Timestamp, Live)>,
}

impl Buffers {
    /// No buffers yet. `copies`: documents are copied out of the buffers, because in a store without
    /// flushes one small document would keep a large buffer alive for ever.
    pub fn new(copies: bool) -> Buffers {
        Buffers {
            generations: Spread::default(),
            copies,
        }
    }

    /// Notes that the memtable was sealed at `cut`. The gate keeps commits out meanwhile.
    pub fn seal(&self, cut: Timestamp) {
        for all in self.generations.iter() {
            let mut all = all.lock();
            let sealed = std::mem::take(&mut all.active);
            all.sealed.push_back((cut, sealed));
        }
    }

    /// The bytes that the active memtable keeps alive, and those that the active and the sealed
    /// memtables do which are not in tables. The tables hold everything up to `persisted`.
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

    /// The counter for what the calling thread commits now.
    pub(super) fn active(&self) -> Live {
        self.generations.own().lock().active.clone()
    }

    /// Makes a buffer of bytes that `live` counts until nothing refers to it.
    pub(super) fn count(&self, mut bytes: Vec<u8>, live: &Live) -> Bytes {
        if bytes.is_empty() {
            return Bytes::new();
        }
        if bytes.capacity() > 2 * bytes.len() + 1024 {
            // The buffer was made for more bytes than came.
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
