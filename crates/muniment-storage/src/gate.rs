//! A lock that many threads share and one may have alone, whose waits can be interrupted.
//!
//! A thread that wants it alone says so first, and newcomers hold back until it has had its turn.
//! Without that, a stream of short holders that overlap would keep it out for ever.
//!
//! A holder may take long: a transaction shares the lock of its collections until it ends. Newcomers
//! would be held back for as long. For such locks ([`own_all`]) the thread that wants it alone holds
//! newcomers back for a moment only, and then gives them a turn several times as long. The next moment
//! is twice as long. A newcomers' turn has a longest time, so the waiting thread gets the lock after a
//! small multiple of the time for which the slowest holder has it.
//!
//! Holders that share the lock are counted. A newcomer counts itself and then looks whether a thread
//! wants the lock alone; that thread says so and then looks whether a holder is counted. One of the two
//! always sees the other. The last holder that leaves wakes the waiting thread.
//!
//! A gate that is shared often has several counters, each for some of the threads, so that these do not
//! contend for one cache line. A gate that is shared seldom has a single counter, because there is a
//! gate for every collection and the counters take memory.

use muniment_io::spread::{CachePadded, place};
use muniment_op::{Event, Interrupt, NeverInterrupted};
use muniment_value::Result;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a thread waits for a lock that is mostly held for moments, if it can also do without it.
pub(crate) const MOMENT: Duration = Duration::from_millis(10);

/// The newcomers' turn lasts this multiple of the time for which they were held back.
const TURNS: u32 = 8;

/// The longest turn of newcomers.
const LONGEST_TURN: Duration = Duration::from_secs(1);

/// A gate that was shared this often gets several counters.
const OFTEN: u32 = 64;

/// What a thread waits for at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Share,
    All,
}

/// The state of a gate, which its holders keep alive.
#[derive(Default)]
struct State {
    /// The counter that a gate begins with.
    first: AtomicUsize,
    /// The counters of a gate that is shared often. A thread makes them while it is counted in `first`,
    /// so that no thread has the gate alone meanwhile.
    places: OnceLock<Box<[CachePadded<AtomicUsize>]>>,
    /// The number of threads that want it alone, or have it.
    wanted: AtomicUsize,
    /// True while a thread has it alone.
    alone: AtomicBool,
    moved: Event<For>,
}

impl State {
    fn counter(&self, place: Option<usize>) -> &AtomicUsize {
        let places = self.places.get().zip(place);
        let own = places.and_then(|(all, place)| all.get(place));
        own.map_or(&self.first, |counter| &**counter)
    }

    /// True if no thread holds it in either way. `first` is read first: while a thread makes the
    /// counters of `places`, it is counted there.
    fn is_free(&self) -> bool {
        let nobody = |n: &AtomicUsize| n.load(SeqCst) == 0;
        let places = || self.places.get().map_or(&[][..], |places| places);
        nobody(&self.first) && places().iter().all(|n| nobody(n)) && !self.alone.load(SeqCst)
    }

    #[inline]
    fn leave(&self, place: Option<usize>) {
        self.counter(place).fetch_sub(1, SeqCst);
        if self.moved.waiting() > 0 && self.is_free() {
            self.moved.notify_those(|what| *what == For::All);
        }
    }
}

/// One of the counters of a gate, with what its threads need. It fills cache lines of its own, so that
/// the reference count of each is not shared either.
#[repr(align(128))]
struct Place {
    gate: Arc<State>,
    number: usize,
}

/// The gate, held together with others.
pub(crate) struct Shared(By);

enum By {
    First(Arc<State>),
    Place(Arc<Place>),
}

impl Drop for Shared {
    #[inline]
    fn drop(&mut self) {
        match &self.0 {
            By::First(gate) => gate.leave(None),
            By::Place(place) => place.gate.leave(Some(place.number)),
        }
    }
}

/// The gate, held alone.
pub(crate) struct Alone {
    // Dropped first, so that the gate is free before newcomers are let in.
    _alone: Taken,
    _wanted: Wanted,
}

/// A lock that many threads share and one may have alone. A thread that shares it is counted at its
/// place; a thread that wants it alone looks at all places.
#[derive(Default)]
pub(crate) struct Gate<const PLACES: usize = 16> {
    state: Arc<State>,
    places: OnceLock<Box<[Arc<Place>]>>,
    /// How often it was shared while it had one counter.
    shares: AtomicU32,
}

impl<const PLACES: usize> Gate<PLACES> {
    /// Shares it, unless a thread wants it alone.
    #[inline]
    fn take(&self) -> Option<Shared> {
        let places = self.places.get();
        let held = match places.and_then(|places| places.get(place(PLACES))) {
            Some(place) => {
                self.state.counter(Some(place.number)).fetch_add(1, SeqCst);
                Shared(By::Place(place.clone()))
            }
            None => {
                self.state.first.fetch_add(1, SeqCst);
                Shared(By::First(self.state.clone()))
            }
        };
        if self.state.wanted.load(SeqCst) > 0 {
            return None;
        }
        if matches!(held.0, By::First(_)) && self.shares.fetch_add(1, Relaxed) >= OFTEN {
            self.spread();
        }
        Some(held)
    }

    #[cold]
    fn spread(&self) {
        let counters = || (0..PLACES).map(|_| CachePadded::default()).collect();
        self.state.places.get_or_init(counters);
        let place = |number| {
            let gate = self.state.clone();
            Arc::new(Place { gate, number })
        };
        self.places.get_or_init(|| (0..PLACES).map(place).collect());
    }

    /// Takes it together with others. A thread that has it must not take it again.
    ///
    /// # Errors
    /// What `interrupt` says while it waits.
    #[inline]
    pub fn share(&self, interrupt: &dyn Interrupt) -> Result<Shared> {
        match self.take() {
            Some(held) => Ok(held),
            None => self.wait_to_share(interrupt),
        }
    }

    #[cold]
    fn wait_to_share(&self, interrupt: &dyn Interrupt) -> Result<Shared> {
        let _told = Waiting::new(interrupt);
        let moved = &self.state.moved;
        moved.wait_for(For::Share, interrupt, || self.take())
    }

    /// Takes it together with others if that is possible now or within a moment.
    pub fn try_share(&self) -> Option<Shared> {
        self.take().or_else(|| {
            let until = muniment_op::now() + MOMENT;
            let moved = &self.state.moved;
            let got = moved.wait_for_until(For::Share, &NeverInterrupted, until, || self.take());
            got.ok().flatten()
        })
    }

    /// Takes it alone.
    ///
    /// # Errors
    /// What `interrupt` says while it waits.
    pub fn own(&self, interrupt: &dyn Interrupt) -> Result<Alone> {
        let wanted = Wanted::new(&self.state);
        let taken = match Taken::take(&self.state) {
            Some(taken) => taken,
            None => {
                let _told = Waiting::new(interrupt);
                let take = || Taken::take(&self.state);
                self.state.moved.wait_for(For::All, interrupt, take)?
            }
        };
        Ok(Alone {
            _alone: taken,
            _wanted: wanted,
        })
    }

    /// As [`Gate::own`]; gives up after `patience`.
    pub fn own_for(&self, patience: Duration) -> Option<Alone> {
        let wanted = Wanted::new(&self.state);
        let until = muniment_op::now() + patience;
        let take = || Taken::take(&self.state);
        let moved = &self.state.moved;
        let taken = moved.wait_for_until(For::All, &NeverInterrupted, until, take);
        taken.ok().flatten().map(|taken| Alone {
            _alone: taken,
            _wanted: wanted,
        })
    }
}

/// Takes all of these alone. None is held while another one is waited for, so two threads cannot wait
/// for each other. Newcomers are held back for short times first, and in the end for as long as the
/// slowest holder takes.
///
/// # Errors
/// What `interrupt` says while it waits.
pub(crate) fn own_all<const PLACES: usize>(
    gates: &[&Gate<PLACES>],
    interrupt: &dyn Interrupt,
) -> Result<Vec<Alone>> {
    let mut patience = MOMENT;
    let mut told = None;
    loop {
        {
            let _wanted: Vec<_> = gates.iter().map(|g| Wanted::new(&g.state)).collect();
            let until = muniment_op::now() + patience;
            if let Ok(all) = try_own_all(gates) {
                return Ok(all);
            }
            told.get_or_insert_with(|| Waiting::new(interrupt));
            if let Some(all) = wait_for_all(gates, interrupt, until)? {
                return Ok(all);
            }
        }
        let turn = muniment_op::now() + patience.saturating_mul(TURNS).min(LONGEST_TURN);
        // The gates may be free for a moment even during the newcomers' turn.
        if let Some(all) = wait_for_all(gates, interrupt, turn)? {
            return Ok(all);
        }
        patience = patience.saturating_mul(2);
    }
}

/// Takes all of them, or says which one is held by another thread.
fn try_own_all<const PLACES: usize>(
    gates: &[&Gate<PLACES>],
) -> std::result::Result<Vec<Alone>, Arc<State>> {
    let take = |gate: &&Gate<PLACES>| {
        let wanted = Wanted::new(&gate.state);
        let taken = Taken::take(&gate.state).ok_or_else(|| gate.state.clone())?;
        Ok(Alone {
            _alone: taken,
            _wanted: wanted,
        })
    };
    gates.iter().map(take).collect()
}

/// Takes all of them as soon as all are free at once; `None` if they are not by `until`.
fn wait_for_all<const PLACES: usize>(
    gates: &[&Gate<PLACES>],
    interrupt: &dyn Interrupt,
    until: Instant,
) -> Result<Option<Vec<Alone>>> {
    loop {
        let busy = match try_own_all(gates) {
            Ok(all) => return Ok(Some(all)),
            Err(busy) => busy,
        };
        let free = || busy.is_free().then_some(());
        let waited = busy
            .moved
            .wait_for_until(For::All, interrupt, until, free)?;
        if waited.is_none() {
            return Ok(None);
        }
    }
}

/// Tells an operation that it waits, and at its end that it does not any more.
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

/// The gate is held alone while this lives.
struct Taken(Arc<State>);

impl Taken {
    /// Takes the gate for a thread that has said that it wants it.
    fn take(gate: &Arc<State>) -> Option<Taken> {
        if !gate.is_free() || gate.alone.swap(true, SeqCst) {
            return None;
        }
        let taken = Taken(gate.clone());
        // A newcomer that came before the gate was wanted may have been counted since.
        let nobody = |n: &AtomicUsize| n.load(SeqCst) == 0;
        let places = gate.places.get().map_or(&[][..], |places| places);
        let free = nobody(&gate.first) && places.iter().all(|n| nobody(n));
        free.then_some(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.alone.store(false, SeqCst);
        self.0.moved.notify_those(|what| *what == For::All);
    }
}

/// Newcomers are held back while this lives.
struct Wanted(Arc<State>);

impl Wanted {
    fn new(gate: &Arc<State>) -> Wanted {
        gate.wanted.fetch_add(1, SeqCst);
        Wanted(gate.clone())
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.wanted.fetch_sub(1, SeqCst);
        if self.0.wanted.load(SeqCst) == 0 {
            self.0.moved.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_op::Sleepers;
    use muniment_value::{Code, Error};

    #[test]
    fn a_stream_of_holders_lets_one_have_it_alone() {
        let (gate, stop) = (Gate::<16>::default(), AtomicBool::new(false));
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    while !stop.load(SeqCst) {
                        // Each holder has it for longer than one wait lasts, and they overlap.
                        let held = gate.share(&NeverInterrupted).unwrap();
                        std::thread::sleep(MOMENT * 3 / 2);
                        drop(held);
                    }
                });
            }
            std::thread::sleep(MOMENT);
            let began = Instant::now();
            for _ in 0..5 {
                drop(gate.own(&NeverInterrupted).unwrap());
            }
            stop.store(true, SeqCst);
            assert!(began.elapsed() < MOMENT * 100, "{:?}", began.elapsed());
        });
    }

    #[test]
    fn one_that_holds_it_for_long_keeps_nobody_else_out() {
        let (gate, other) = (Gate::<16>::default(), Gate::<16>::default());
        let long = gate.share(&NeverInterrupted).unwrap();
        let (had, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|s| {
            s.spawn(|| {
                let alone = own_all(&[&other, &gate], &NeverInterrupted).unwrap();
                had.store(true, SeqCst);
                assert_eq!(alone.len(), 2);
            });
            for gate in [&gate, &other] {
                // If newcomers were held back, these would wait as long as the thread that wants both.
                for _ in 0..50 {
                    drop(gate.share(&NeverInterrupted).unwrap());
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            assert!(!had.load(SeqCst));
            drop(long);
        });
        assert!(had.load(SeqCst));
        // Short holders that overlap do not keep it out either.
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    while !stop.load(SeqCst) {
                        let held = gate.share(&NeverInterrupted).unwrap();
                        std::thread::sleep(MOMENT * 3 / 2);
                        drop(held);
                    }
                });
            }
            std::thread::sleep(MOMENT);
            drop(own_all(&[&gate], &NeverInterrupted).unwrap());
            stop.store(true, SeqCst);
        });
    }

    /// A stream of long holders that overlap does not keep out a thread that wants the gate alone: it
    /// waits for a small multiple of the time for which each holder has it.
    #[test]
    fn a_stream_of_long_holders_lets_one_have_it_alone() {
        struct Late(Instant);
        impl Interrupt for Late {
            fn check(&self) -> Result<()> {
                match self.0.elapsed() < Duration::from_secs(60) {
                    true => Ok(()),
                    false => Err(Error::new(Code::MaxTimeMSExpired, "too late")),
                }
            }

            fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}

            fn wakes_at(&self) -> Option<Instant> {
                Some(self.0 + Duration::from_secs(60))
            }
        }
        let (gate, stop) = (Gate::<16>::default(), AtomicBool::new(false));
        std::thread::scope(|s| {
            for i in 0..8 {
                let (gate, stop) = (&gate, &stop);
                s.spawn(move || {
                    std::thread::sleep(Duration::from_millis(60 * i));
                    while !stop.load(SeqCst) {
                        let held = gate.share(&NeverInterrupted).unwrap();
                        std::thread::sleep(Duration::from_millis(480));
                        drop(held);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(500));
            let alone = own_all(&[&gate], &Late(Instant::now())).map(drop);
            stop.store(true, SeqCst);
            alone.unwrap();
        });
    }

    #[test]
    fn nobody_shares_it_with_one_that_has_it_alone_while_the_places_are_made() {
        for _ in 0..20 {
            let (gate, owned) = (Gate::<4>::default(), AtomicBool::new(false));
            std::thread::scope(|s| {
                for _ in 0..4 {
                    s.spawn(|| {
                        for _ in 0..2 * OFTEN {
                            let _shared = gate.share(&NeverInterrupted).unwrap();
                            assert!(!owned.load(SeqCst));
                        }
                    });
                }
                for _ in 0..10 {
                    let _alone = gate.own(&NeverInterrupted).unwrap();
                    owned.store(true, SeqCst);
                    std::thread::yield_now();
                    owned.store(false, SeqCst);
                }
            });
            assert!(gate.places.get().is_some());
        }
        // A gate that is shared seldom stays small.
        let gate = Gate::<4>::default();
        for _ in 0..OFTEN {
            drop(gate.share(&NeverInterrupted).unwrap());
        }
        assert!(gate.places.get().is_none());
    }

    #[test]
    fn waits_end_when_their_operation_does() {
        struct Killed;
        impl Interrupt for Killed {
            fn check(&self) -> Result<()> {
                Err(Error::new(Code::Interrupted, "killed"))
            }

            fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}
        }
        let gate = Gate::<4>::default();
        let alone = gate.own(&NeverInterrupted).unwrap();
        assert!(gate.share(&Killed).is_err() && gate.own(&Killed).is_err());
        assert!(gate.own_for(MOMENT).is_none());
        drop(alone);
        let _shared = gate.share(&Killed).unwrap();
        assert!(gate.own(&Killed).is_err() && own_all(&[&gate], &Killed).is_err());
    }
}
