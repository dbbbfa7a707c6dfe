//! A lock that many share and one may have alone, whose waits can be interrupted.
//!
//! Whoever wants it alone says so first, and newcomers hold back until he had his turn: without
//! that, a stream of short holders that overlap would keep him out for ever, because a wait that
//! ends every few milliseconds to look at its operation gives up its place in the lock's queue.

use muniment_io::spread::{CachePadded, Spread};
use muniment_query::Interrupt;
use muniment_value::Result;
use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, RawRwLock, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How long a wait lasts before its operation is asked whether it may go on.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// How long a newcomer pauses while somebody wants it alone.
const STEP_BACK: Duration = Duration::from_micros(200);

/// Held together with others.
pub(crate) type Shared = ArcRwLockReadGuard<RawRwLock, CachePadded<()>>;
/// Held alone.
pub(crate) struct Alone {
    _all: Vec<ArcRwLockWriteGuard<RawRwLock, CachePadded<()>>>,
}

/// The lock: who shares it takes the one of his thread's place, who wants it alone all of them.
#[derive(Default)]
pub(crate) struct Gate<const PLACES: usize = 16> {
    places: Spread<Arc<RwLock<CachePadded<()>>>, PLACES>,
    /// How many want it alone.
    wanted: AtomicUsize,
}

impl<const PLACES: usize> Gate<PLACES> {
    /// Takes it together with others. A thread that has it must not take it again.
    ///
    /// # Errors
    /// What `interrupt` says while it waits.
    pub fn share(&self, interrupt: &dyn Interrupt) -> Result<Shared> {
        let lock = self.places.own();
        if self.wanted.load(SeqCst) == 0
            && let Some(guard) = lock.try_read_arc()
        {
            return Ok(guard);
        }
        let _told = Waiting::new(interrupt);
        let mut looked = Instant::now();
        loop {
            if self.wanted.load(SeqCst) > 0 {
                std::thread::sleep(STEP_BACK);
            } else if let Some(guard) = lock.try_read_arc_for(LOOK) {
                return Ok(guard);
            }
            if looked.elapsed() >= LOOK {
                interrupt.check()?;
                looked = Instant::now();
            }
        }
    }

    /// Takes it alone.
    ///
    /// # Errors
    /// What `interrupt` says while it waits.
    pub fn own(&self, interrupt: &dyn Interrupt) -> Result<Alone> {
        let _wanted = Wanted::new(&self.wanted);
        let mut told = None;
        let mut all = Vec::with_capacity(PLACES);
        // All in the same order, so that two who want it do not wait for each other.
        for lock in self.places.iter() {
            loop {
                if let Some(guard) = lock.try_write_arc_for(LOOK) {
                    all.push(guard);
                    break;
                }
                told.get_or_insert_with(|| Waiting::new(interrupt));
                interrupt.check()?;
            }
        }
        Ok(Alone { _all: all })
    }

    /// As [`Gate::own`], for so long.
    pub fn own_for(&self, patience: Duration) -> Option<Alone> {
        let _wanted = Wanted::new(&self.wanted);
        let until = Instant::now() + patience;
        let all = self
            .places
            .iter()
            .map(|lock| lock.try_write_arc_until(until));
        let all: Option<Vec<_>> = all.collect();
        Some(Alone { _all: all? })
    }
}

/// Tells an operation that it waits, and when it ends.
struct Waiting<'i>(&'i dyn Interrupt);

impl<'i> Waiting<'i> {
    fn new(interrupt: &'i dyn Interrupt) -> Waiting<'i> {
        interrupt.waits_for_lock(true);
        Waiting(interrupt)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waits_for_lock(false);
    }
}

struct Wanted<'g>(&'g AtomicUsize);

impl<'g> Wanted<'g> {
    fn new(wanted: &'g AtomicUsize) -> Wanted<'g> {
        wanted.fetch_add(1, SeqCst);
        Wanted(wanted)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_query::NeverInterrupted;
    use muniment_value::{Code, Error};
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_stream_of_holders_lets_one_have_it_alone() {
        let (gate, stop) = (Gate::<16>::default(), AtomicBool::new(false));
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    while !stop.load(SeqCst) {
                        // Longer than one wait for it lasts, and overlapping.
                        let held = gate.share(&NeverInterrupted).unwrap();
                        std::thread::sleep(LOOK * 3 / 2);
                        drop(held);
                    }
                });
            }
            std::thread::sleep(LOOK);
            let began = Instant::now();
            for _ in 0..5 {
                drop(gate.own(&NeverInterrupted).unwrap());
            }
            stop.store(true, SeqCst);
            assert!(began.elapsed() < LOOK * 100, "{:?}", began.elapsed());
        });
    }

    #[test]
    fn waits_end_when_their_operation_does() {
        struct Killed;
        impl Interrupt for Killed {
            fn check(&self) -> Result<()> {
                Err(Error::new(Code::Interrupted, "killed"))
            }
        }
        let gate = Gate::<4>::default();
        let alone = gate.own(&NeverInterrupted).unwrap();
        assert!(gate.share(&Killed).is_err() && gate.own(&Killed).is_err());
        assert!(gate.own_for(LOOK).is_none());
        drop(alone);
        let _shared = gate.share(&Killed).unwrap();
        assert!(gate.own(&Killed).is_err());
    }
}
