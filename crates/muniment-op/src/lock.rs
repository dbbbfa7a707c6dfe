//! A lock for which an operation waits until it has to stop.
//!
//! A lock that is given back is free, and the first waiting thread is called. A thread that comes just then
//! may take it before: it need not sleep, and so the lock is not idle until the called thread runs. A thread
//! that gives the lock back only to take it again would keep all others out like that. So a lock is handed
//! over after it was taken over the heads of waiting threads [`MOST`] times, or for [`LONGEST`]: then nobody
//! can take it but a thread that was called for it.
//!
//! A lock that is handed over is never lost. Each thread that ceases to wait without having it calls the next
//! one, and so does the one that hands it over; the one of them that finds nobody waiting frees the lock. A
//! thread that begins to wait meanwhile is in the line before it looks at the lock.

use crate::event::Event;
use crate::interrupt::{Interrupt, NeverInterrupted};
use crate::simulated::now;
use crate::wait::Waits;
use muniment_value::Result;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How often a lock is taken at most over the heads of waiting threads, and for how long.
pub(crate) const MOST: u32 = 32;
const LONGEST: Duration = Duration::from_millis(1);

/// The states of a lock. [`HANDED`]: only a thread that was called may take it.
const FREE: u8 = 0;
const HELD: u8 = 1;
const HANDED: u8 = 2;

/// A mutex that operations wait for. As long as it is free, it costs what a mutex costs.
#[derive(Debug, Default)]
pub struct Lock<T> {
    state: AtomicU8,
    freed: Event,
    passed: UnsafeCell<Passed>,
    data: UnsafeCell<T>,
}

/// How often a lock was given back since a waiting thread got it last, and when that first was. Only the
/// thread that has the lock reads and changes this.
#[derive(Debug, Default)]
struct Passed {
    times: u32,
    since: Option<Instant>,
}

// SAFETY: as with a mutex, only one thread at a time reaches the data, through a guard.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(data: T) -> Lock<T> {
        Lock {
            state: AtomicU8::new(FREE),
            freed: Event::new(),
            passed: UnsafeCell::new(Passed {
                times: 0,
                since: None,
            }),
            data: UnsafeCell::new(data),
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Locked<&Lock<T>, T>> {
        self.take(FREE).then(|| Locked::of(self))
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
            None => {
                self.wait(on, None)?;
                Ok(Locked::of(self))
            }
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
            None => Ok(self.wait(on, Some(until))?.then(|| Locked::of(self))),
        }
    }

    /// Does the same as [`Lock::try_lock`], with a guard that keeps the lock alive.
    #[inline]
    pub fn try_lock_arc(self: &Arc<Self>) -> Option<Locked<Arc<Lock<T>>, T>> {
        self.take(FREE).then(|| Locked::of(Arc::clone(self)))
    }

    /// Does the same as [`Lock::lock_for`], with a guard that keeps the lock alive.
    ///
    /// # Errors
    /// The error of `on` during the wait.
    pub fn lock_arc_for(self: &Arc<Self>, on: &dyn Interrupt) -> Result<Locked<Arc<Lock<T>>, T>> {
        match self.try_lock_arc() {
            Some(locked) => Ok(locked),
            None => {
                self.wait(on, None)?;
                Ok(Locked::of(Arc::clone(self)))
            }
        }
    }

    /// How many threads wait for the lock, as of one moment.
    pub fn waiting(&self) -> usize {
        self.freed.waiting()
    }

    #[inline]
    fn take(&self, from: u8) -> bool {
        let taken = self.state.compare_exchange(from, HELD, SeqCst, SeqCst);
        taken.is_ok()
    }

    /// Waits for the lock. The caller has it if this returns true; it is false after `until`.
    #[cold]
    fn wait(&self, on: &dyn Interrupt, until: Option<Instant>) -> Result<bool> {
        let leaves = Leaves(&self.state, &self.freed);
        // This is dropped first.
        let waiting = Waits::begin(&self.freed, (), on);
        let mut called = false;
        loop {
            if self.take(FREE) || called && self.take(HANDED) {
                break;
            }
            on.check()?;
            if until.is_some_and(|until| now() >= until) {
                return Ok(false);
            }
            called |= waiting.park(until);
        }
        std::mem::forget(leaves);
        if called {
            // SAFETY: this thread has the lock.
            unsafe { *self.passed.get() = Passed::default() };
        }
        Ok(true)
    }

    /// Whether the thread that gives the lock back, while others wait for it, has to hand it over.
    #[cold]
    fn is_due(&self) -> bool {
        // SAFETY: this thread still has the lock.
        let passed = unsafe { &mut *self.passed.get() };
        passed.times += 1;
        let since = *passed.since.get_or_insert_with(now);
        passed.times > MOST || crate::since(since) >= LONGEST
    }
}

/// A thread waits for a lock. Dropped when it ceases to, after it has left the line, unless it has the lock:
/// what was handed over goes to the next one.
struct Leaves<'l>(&'l AtomicU8, &'l Event);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        if self.0.load(SeqCst) == HANDED {
            pass_on(self.0, self.1);
        }
    }
}

/// Calls the next waiting thread for a lock that is handed over, or frees the lock if there is none.
fn pass_on(state: &AtomicU8, freed: &Event) {
    if freed.waiting() > 0 {
        // A thread that leaves the line before this calls it does the same after it has left.
        freed.notify_one(|()| true);
        return;
    }
    let nobody = state.compare_exchange(HANDED, FREE, SeqCst, SeqCst);
    if nobody.is_ok() {
        // A thread that came meanwhile may have found it handed over, to others.
        freed.notify_one(|()| true);
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
    /// A guard for the calling thread, which has the lock.
    fn of(lock: L) -> Locked<L, T> {
        Locked {
            lock,
            inside: PhantomData,
        }
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
    #[inline]
    fn drop(&mut self) {
        let lock = &*self.lock;
        if lock.freed.waiting() > 0 && lock.is_due() {
            lock.state.store(HANDED, SeqCst);
            pass_on(&lock.state, &lock.freed);
            return;
        }
        // The lock is freed before the check for waiting threads: otherwise a thread that begins to wait just
        // then could be missed.
        lock.state.store(FREE, SeqCst);
        lock.freed.notify_one(|()| true);
    }
}
