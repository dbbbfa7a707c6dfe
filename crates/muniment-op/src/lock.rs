//! A lock for which an operation waits until it has to stop.

use crate::event::Event;
use crate::interrupt::{Interrupt, NeverInterrupted};
use muniment_value::Result;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

/// A mutex that operations wait for. As long as it is free, it costs what a mutex costs.
#[derive(Debug, Default)]
pub struct Lock<T> {
    held: AtomicBool,
    freed: Event,
    data: UnsafeCell<T>,
}

// SAFETY: as with a mutex, only one thread at a time reaches the data, through a guard.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(data: T) -> Lock<T> {
        Lock {
            held: AtomicBool::new(false),
            freed: Event::new(),
            data: UnsafeCell::new(data),
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Locked<&Lock<T>, T>> {
        Locked::take(self)
    }

    /// Takes the lock, however long that takes.
    pub fn lock(&self) -> Locked<&Lock<T>, T> {
        loop {
            // This wait is never interrupted.
            if let Ok(locked) = self.lock_for(&NeverInterrupted) {
                return locked;
            }
        }
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// The error of `on` during the wait.
    #[inline]
    pub fn lock_for(&self, on: &dyn Interrupt) -> Result<Locked<&Lock<T>, T>> {
        match self.try_lock() {
            Some(locked) => Ok(locked),
            None => self.freed.wait_for((), on, || self.try_lock()),
        }
    }

    /// Takes the lock if that is possible by `until`.
    ///
    /// # Errors
    /// The error of `on` during the wait.
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

    /// Does the same as [`Lock::try_lock`], with a guard that keeps the lock alive.
    #[inline]
    pub fn try_lock_arc(self: &Arc<Self>) -> Option<Locked<Arc<Lock<T>>, T>> {
        Locked::take(Arc::clone(self))
    }

    /// Does the same as [`Lock::lock_for`], with a guard that keeps the lock alive.
    ///
    /// # Errors
    /// The error of `on` during the wait.
    pub fn lock_arc_for(self: &Arc<Self>, on: &dyn Interrupt) -> Result<Locked<Arc<Lock<T>>, T>> {
        match self.try_lock_arc() {
            Some(locked) => Ok(locked),
            None => self.freed.wait_for((), on, || self.try_lock_arc()),
        }
    }

    /// How many threads wait for the lock, as of one moment.
    pub fn waiting(&self) -> usize {
        self.freed.waiting()
    }
}

/// A guard of a lock. Dropping it lets the next waiting thread have the lock.
#[must_use]
pub struct Locked<L: Deref<Target = Lock<T>>, T> {
    lock: L,
    /// Makes the guard exactly as shareable between threads as the data, which it gives access to, not as the
    /// lock.
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
        // SAFETY: only one guard exists at a time, and this borrows it.
        unsafe { &*self.lock.data.get() }
    }
}

impl<L: Deref<Target = Lock<T>>, T> DerefMut for Locked<L, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the same as in `deref`.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<L: Deref<Target = Lock<T>>, T> Drop for Locked<L, T> {
    fn drop(&mut self) {
        // The lock is freed before the check for waiting threads: otherwise a thread that begins to wait just
        // then could be missed.
        self.lock.held.store(false, SeqCst);
        self.lock.freed.notify_one(|()| true);
    }
}
