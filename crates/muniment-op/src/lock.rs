//! A lock whose waits end with their operation.

use crate::event::Event;
use crate::interrupt::{Interrupt, NeverInterrupted};
use muniment_value::Result;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

/// A mutex that operations wait for. Where it is free, it costs what a mutex does.
#[derive(Debug, Default)]
pub struct Lock<T> {
    held: AtomicBool,
    freed: Event,
    data: UnsafeCell<T>,
}

// SAFETY: as with a mutex, one thread at a time gets at what is inside, through a guard.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A lock that is free.
    pub const fn new(data: T) -> Lock<T> {
        Lock {
            held: AtomicBool::new(false),
            freed: Event::new(),
            data: UnsafeCell::new(data),
        }
    }

    /// Locks it if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Locked<&Lock<T>, T>> {
        Locked::take(self)
    }

    /// Locks it, however long that takes.
    pub fn lock(&self) -> Locked<&Lock<T>, T> {
        loop {
            // It is never interrupted.
            if let Ok(locked) = self.lock_for(&NeverInterrupted) {
                return locked;
            }
        }
    }

    /// Locks it.
    ///
    /// # Errors
    /// What `on` says while it waits.
    #[inline]
    pub fn lock_for(&self, on: &dyn Interrupt) -> Result<Locked<&Lock<T>, T>> {
        match self.try_lock() {
            Some(locked) => Ok(locked),
            None => self.freed.wait_for((), on, || self.try_lock()),
        }
    }

    /// Locks it if that can be done by `until`.
    ///
    /// # Errors
    /// What `on` says while it waits.
    pub fn lock_until(
        &self,
        on: &dyn Interrupt,
        until: Instant,
    ) -> Result<Option<Locked<&Lock<T>, T>>> {
        match self.try_lock() {
            Some(locked) => Ok(Some(locked)),
            None => self.freed.wait_for_until((), on, until, || self.try_lock()),
        }
    }

    /// As [`Lock::try_lock`], with a guard that keeps the lock alive.
    #[inline]
    pub fn try_lock_arc(self: &Arc<Self>) -> Option<Locked<Arc<Lock<T>>, T>> {
        Locked::take(Arc::clone(self))
    }

    /// As [`Lock::lock_for`], with a guard that keeps the lock alive.
    ///
    /// # Errors
    /// What `on` says while it waits.
    pub fn lock_arc_for(self: &Arc<Self>, on: &dyn Interrupt) -> Result<Locked<Arc<Lock<T>>, T>> {
        match self.try_lock_arc() {
            Some(locked) => Ok(locked),
            None => self.freed.wait_for((), on, || self.try_lock_arc()),
        }
    }

    /// How many wait for it: a snapshot.
    pub fn waiting(&self) -> usize {
        self.freed.waiting()
    }
}

/// A lock that is held; dropping it gives it to the next that waits.
#[must_use]
pub struct Locked<L: Deref<Target = Lock<T>>, T> {
    lock: L,
    /// What is inside is reached through this, so that the guard is as shareable as that, not as the lock.
    inside: PhantomData<T>,
}

impl<L: Deref<Target = Lock<T>>, T> Locked<L, T> {
    fn take(lock: L) -> Option<Locked<L, T>> {
        let taken = lock.held.compare_exchange(false, true, SeqCst, SeqCst);
        taken.is_ok().then_some(())?;
        Some(Locked {
            lock,
            inside: PhantomData,
        })
    }
}

impl<L: Deref<Target = Lock<T>>, T> Deref for Locked<L, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: only one guard is there at a time, and this borrows it.
        unsafe { &*self.lock.data.get() }
    }
}

impl<L: Deref<Target = Lock<T>>, T> DerefMut for Locked<L, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<L: Deref<Target = Lock<T>>, T> Drop for Locked<L, T> {
    fn drop(&mut self) {
        // Before the look at those that wait.
        self.lock.held.store(false, SeqCst);
        self.lock.freed.notify_one(|()| true);
    }
}
