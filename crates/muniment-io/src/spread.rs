//! Data that all threads use all the time, spread over several cache lines.
//!
//! A counter or a lock that every command touches travels between the cores: each time another core has
//! changed it, some 100 ns are lost, as much as a look-up in a tree takes. Here each thread has a place of
//! its own, which it shares with few others.

use parking_lot::RawRwLock;
use parking_lot::lock_api::{self, GuardNoSend};
use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A value that has its cache lines to itself.
#[derive(Default)]
#[repr(align(64))]
pub struct CachePadded<T>(pub T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The calling thread's place among `places`, which is always the same.
#[inline]
pub fn place(places: usize) -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: Cell<usize> = const { Cell::new(usize::MAX) });
    let mut own = OWN.get();
    if own == usize::MAX {
        own = THREADS.fetch_add(1, Relaxed);
        OWN.set(own);
    }
    own % places
}

/// One `T` for each of several places. (If a `T` has an `Arc`, its content needs to be [`CachePadded`], too.)
pub struct Spread<T, const PLACES: usize = 16>([CachePadded<T>; PLACES]);

impl<T: Default, const PLACES: usize> Default for Spread<T, PLACES> {
    fn default() -> Self {
        Spread::of(|_| T::default())
    }
}

impl<T: std::fmt::Debug, const PLACES: usize> std::fmt::Debug for Spread<T, PLACES> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T, const PLACES: usize> Spread<T, PLACES> {
    /// Makes the value of each place with `make`.
    pub fn of(make: impl FnMut(usize) -> T) -> Self {
        Spread(std::array::from_fn(make).map(CachePadded))
    }

    /// The value of the calling thread's place.
    #[inline]
    pub fn own(&self) -> &T {
        &self.0[place(PLACES)].0
    }

    /// The value of a place.
    #[inline]
    pub fn at(&self, place: usize) -> &T {
        &self.0[place % PLACES].0
    }

    /// The values of all places.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &padded.0)
    }
}

/// A readers-writer lock that costs readers next to nothing, and writers as much as `PLACES` locks.
pub type SpreadLock<T, const PLACES: usize = 16> = lock_api::RwLock<SpreadRaw<PLACES>, T>;

/// The lock of a [`SpreadLock`]: a reader takes the lock of its place, a writer takes all.
pub struct SpreadRaw<const PLACES: usize>([CachePadded<RawRwLock>; PLACES]);

// SAFETY: a writer holds every place's lock for writing, so no thread holds any of them for reading. A guard
// stays with its thread (`GuardNoSend`), whose place never changes, so a thread unlocks what it has locked.
unsafe impl<const PLACES: usize> lock_api::RawRwLock for SpreadRaw<PLACES> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = SpreadRaw([const { CachePadded(RawRwLock::INIT) }; PLACES]);
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        self.0[place(PLACES)].0.lock_shared();
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.0[place(PLACES)].0.try_lock_shared()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller guarantees that this thread has locked it.
        unsafe { self.0[place(PLACES)].0.unlock_shared() }
    }

    fn lock_exclusive(&self) {
        // All writers lock in the same order, so that two of them do not wait for each other.
        self.0.iter().for_each(|padded| padded.0.lock_exclusive());
    }

    fn try_lock_exclusive(&self) -> bool {
        for (n, padded) in self.0.iter().enumerate() {
            if !padded.0.try_lock_exclusive() {
                // SAFETY: the locks before this one were taken just now.
                let undo = |padded: &CachePadded<RawRwLock>| unsafe { padded.0.unlock_exclusive() };
                self.0.iter().take(n).for_each(undo);
                return false;
            }
        }
        true
    }

    unsafe fn unlock_exclusive(&self) {
        for padded in &self.0 {
            // SAFETY: the caller guarantees that all of them are locked.
            unsafe { padded.0.unlock_exclusive() }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_writer_is_alone() {
        let lock = SpreadLock::<(u64, u64), 4>::new((0, 0));
        std::thread::scope(|s| {
            for writer in [true, false, true, false, false, false] {
                let lock = &lock;
                s.spawn(move || {
                    for _ in 0..20_000 {
                        if writer {
                            let mut both = lock.write();
                            both.0 += 1;
                            both.1 += 1;
                        } else {
                            let both = lock.read();
                            assert_eq!(both.0, both.1);
                        }
                    }
                });
            }
        });
        assert_eq!(*lock.read(), (40_000, 40_000));
        let reader = lock.read();
        assert!(lock.try_write().is_none());
        drop(reader);
        // The locks that were taken before the refusal were given back.
        assert!(lock.try_read().is_some());
        assert!(lock.try_write().is_some());
    }

    #[test]
    fn a_thread_keeps_its_place() {
        let all = Spread::<AtomicUsize, 4>::default();
        all.own().fetch_add(1, Relaxed);
        all.own().fetch_add(1, Relaxed);
        assert_eq!(all.at(place(4)).load(Relaxed), 2);
        assert_eq!(all.iter().map(|n| n.load(Relaxed)).sum::<usize>(), 2);
    }
}
