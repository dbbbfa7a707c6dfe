//! What all write units of a store share.

use crate::latch::Latches;
use muniment_io::spread::{self, Spread};
use muniment_value::KeyLimits;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Among how many places the numbers of write units are spread.
const OWNERS: usize = 16;

/// The latches that units take, the numbers that tell units apart, and how much one document may bring.
///
/// Invariant: no two units have the same number, so a latch has one owner.
pub(crate) struct Units {
    pub latches: Latches,
    /// Units so far, by places.
    owners: Spread<AtomicU64, OWNERS>,
    /// See `Store::set_key_limits`.
    most_keys: AtomicUsize,
    /// The same, bytes of them.
    most_key_bytes: AtomicUsize,
}

impl Units {
    /// No unit yet.
    pub fn new(limits: KeyLimits) -> Units {
        Units {
            latches: Latches::new(),
            owners: Spread::default(),
            most_keys: AtomicUsize::new(limits.keys),
            most_key_bytes: AtomicUsize::new(limits.bytes),
        }
    }

    /// A number that no other write unit has.
    #[inline]
    pub fn next_owner(&self) -> u64 {
        let place = spread::place(OWNERS);
        let own = self.owners.at(place).fetch_add(1, Relaxed);
        own * OWNERS as u64 + place as u64
    }

    /// How much the keys may be that a document has in one index.
    pub fn key_limits(&self) -> KeyLimits {
        KeyLimits {
            keys: self.most_keys.load(Relaxed),
            bytes: self.most_key_bytes.load(Relaxed),
        }
    }

    /// Sets that.
    pub fn set_key_limits(&self, limits: KeyLimits) {
        self.most_keys.store(limits.keys, Relaxed);
        self.most_key_bytes.store(limits.bytes, Relaxed);
    }
}
