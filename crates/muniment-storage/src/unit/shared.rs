//! The parts that all write units of a store share.

use crate::latch::Latches;
use muniment_io::spread::{self, Spread};
use muniment_value::KeyLimits;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The number of places over which the numbers of write units are spread.
const OWNERS: usize = 16;

/// The latches that units take, the numbers that tell units apart, and the limits on the keys of one
/// document.
///
/// Invariant: no two units have the same number, so a latch has one owner.
pub(crate) struct Units {
    pub latches: Latches,
    /// The number of units so far, by places.
    owners: Spread<AtomicU64, OWNERS>,
    /// See `Store::set_key_limits`.
    most_keys: AtomicUsize,
    /// The limit on the bytes of the keys.
    most_key_bytes: AtomicUsize,
}

impl Units {
    /// The state before the first unit.
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

    /// The limits on the keys that a document may have in one index.
    pub fn key_limits(&self) -> KeyLimits {
        KeyLimits {
            keys: self.most_keys.load(Relaxed),
            bytes: self.most_key_bytes.load(Relaxed),
        }
    }

    /// Sets these limits.
    pub fn set_key_limits(&self, limits: KeyLimits) {
        self.most_keys.store(limits.keys, Relaxed);
        self.most_key_bytes.store(limits.bytes, Relaxed);
    }
}
