//! A lock that many share and one may have alone, whose waits can be interrupted.
//!
//! A thread that wants it alone says so first, and newcomers hold back until that one had its turn.
//! Without that, a stream of short holders that overlap would keep it out for ever.
//!
//! Where a holder may take long (a transaction shares the lock of its collections until it ends)
//! that would stop all newcomers for as long. There the lock is wanted for a moment only
//! ([`own_all`]), and then the newcomers have their turn for several times as long, before the next
//! moment, which is twice as long. Their turn does not grow for ever, so that a thread which wants it
//! alone waits for a small multiple of the time for which the slowest holder has it.
//!
//! Those that share it are counted. A newcomer counts itself and then looks whether anybody wants it
//! alone; one that wants it says so and then looks whether anybody is counted: one of the two sees the
//! other. The last one that leaves calls the one that waits for it.
//!
//! A gate that is shared often has a counter for each of some places, so that those who share it do not
//! take turns at one of them. One that is not has a single one: there is a gate for every collection.

use muniment_io::spread::{CachePadded, place};
use muniment_op::{Event, Interrupt, NeverInterrupted};
use muniment_value::Result;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a thread that can also do without it waits for something that is mostly held for moments.
pub(crate) const MOMENT: Duration = Duration::from_millis(10);

/// The newcomers' turn lasts so many times as long as they were held back.
const TURNS: u32 = 8;

/// The longest turn of newcomers.
const LONGEST_TURN: Duration = Duration::from_secs(1);

/// A gate that was shared so often gets the counters of its places.
const OFTEN: u32 = 64;

/// What a thread waits for at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Share,
    All,
}

/// The gate itself, which its holders keep.
#[derive(Default)]
struct State {
    /// Those that share it by the counter that a gate begins with.
    first: AtomicUsize,
    /// Those that share it by the counters of places. Made by one that shares `first`, so that nobody
    /// has the gate alone meanwhile.
    places: OnceLock<Box<[CachePadded<AtomicUsize>]>>,
    /// How many want it alone, or have it.
    wanted: AtomicUsize,
    /// Somebody has it alone.
    alone: AtomicBool,
    moved: Event<For>,
}

impl State {
    fn counter(&self, place: Option<usize>) -> &AtomicUsize {
        let places = self.places.get().zip(place);
        let own = places.and_then(|(all, place)| all.get(place));
        own.map_or(&self.first, |counter| &**counter)
    }

    /// Nobody has it in whatever way. `first` is looked at first: see `places`.
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

/// A place of a gate, by which threads share it. Each has the count of its references on lines of its
/// own.
#[repr(align(128))]
struct Place {
    gate: Arc<State>,
    number: usize,
}

/// Held together with others.
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

/// Held alone.
pub(crate) struct Alone {
    // Given back before newcomers are let in.
    _alone: Taken,
    _wanted: Wanted,
}

/// The gate: a thread that shares it is counted at its place, one that wants it alone looks at all of
/// them.
#[derive(Default)]
pub(crate) struct Gate<const PLACES: usize = 16> {
    state: Arc<State>,
    places: OnceLock<Box<[Arc<Place>]>>,
    /// How often it was shared while there were no places.
    shares: AtomicU32,
}

impl<const PLACES: usize> Gate<PLACES> {
    /// Shares it, unless somebody wants it alone.
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

    /// Takes it together with others if it is free, or is within a moment.
    pub fn try_share(&self) -> Option<Shared> {
        self.take().or_else(|| {
            let until = Instant::now() + MOMENT;
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

    /// As [`Gate::own`], for so long.
    pub fn own_for(&self, patience: Duration) -> Option<Alone> {
        let wanted = Wanted::new(&self.state);
        let until = Instant::now() + patience;
        let take = || Taken::take(&self.state);
        let moved = &self.state.moved;
        let taken = moved.wait_for_until(For::All, &NeverInterrupted, until, take);
        taken.ok().flatten().map(|taken| Alone {
            _alone: taken,
            _wanted: wanted,
        })
    }
}

/// Has all of these alone, none for longer than it has to wait for another one. While it waits it holds
/// others back for short times first, and for as long as the slowest holder takes in the end.
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
            let until = Instant::now() + patience;
            if let Ok(all) = try_own_all(gates) {
                return Ok(all);
            }
            told.get_or_insert_with(|| Waiting::new(interrupt));
            if let Some(all) = wait_for_all(gates, interrupt, until)? {
                return Ok(all);
            }
        }
        let turn = Instant::now() + patience.saturating_mul(TURNS).min(LONGEST_TURN);
        // During the newcomers' turn it may be free for a moment, too.
        if let Some(all) = wait_for_all(gates, interrupt, turn)? {
            return Ok(all);
        }
        patience = patience.saturating_mul(2);
    }
}

/// Takes all of them, or says which one is taken.
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

/// Takes all of them as soon as all are free at a time; `None` if they are not by `until`.
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

/// Somebody has it alone.
struct Taken(Arc<State>);

impl Taken {
    /// For one that has said that it wants it.
    fn take(gate: &Arc<State>) -> Option<Taken> {
        if !gate.is_free() || gate.alone.swap(true, SeqCst) {
            return None;
        }
        let taken = Taken(gate.clone());
        // One that came before it was wanted may have been counted since.
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

/// Newcomers are held back.
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
                        // Longer than one wait for it lasts, and overlapping.
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
                // These would wait as long as the one that wants both, were they held back.
                for _ in 0..50 {
                    drop(gate.share(&NeverInterrupted).unwrap());
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            assert!(!had.load(SeqCst));
            drop(long);
        });
        assert!(had.load(SeqCst));
        // Nor do short ones that overlap keep it out.
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

    /// Some that have it for long, one after another and overlapping, do not keep out one that wants
    /// it alone: it waits for a few times as long as each of them has it.
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
        // One that is shared seldom stays small.
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
