//! The door itself: it gives commits their turns, refuses them while it is closed, and moves the visible
//! timestamp on.

use super::announce::Announce;
use crate::places::Places;
use muniment_io::Timestamp;
use muniment_io::spread::CachePadded;
use muniment_log::Position;
use muniment_tree::Views;
use muniment_value::{Code, Error, Result};
use parking_lot::{Condvar, MappedMutexGuard, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{MutexGuard, PoisonError};

/// How often a thread looks for another commit to end before it sleeps.
pub(super) const SPINS: usize = 64;

/// The order of commits. All that every commit changes is in the first cache line.
#[repr(C, align(64))]
pub(crate) struct Door {
    /// The newest timestamp given out; held while a record is appended. It is the standard library's
    /// mutex, because a waiting thread looks a few times and then sleeps. parking_lot's gives up the
    /// core seven times first, and each time all other threads get their turn.
    serial: std::sync::Mutex<Timestamp>,
    /// Commits that are appended and not yet visible, in order; true: applied.
    flying: Mutex<VecDeque<(Timestamp, bool)>>,
    /// Bytes of payload appended.
    bytes: AtomicU64,
    landed: Condvar,
    waiting: AtomicUsize,
    /// Every later commit gets a timestamp after this one, whatever the clock shows.
    ahead: AtomicU64,
    /// Settings that change seldom and are read by every commit, so they are on a cache line of their
    /// own.
    set: CachePadded<Setting>,
}

/// Whether the door is open, and in which term.
struct Setting {
    /// The number of the current opening; 0: the door is closed. A thread changes it only in its turn.
    opening: AtomicU64,
    /// How often it was opened.
    openings: AtomicU64,
    term: AtomicU64,
    /// Present on a member of a replica set.
    member: Option<Mutex<Member>>,
    /// There are other members, as far as is known.
    others: AtomicBool,
    /// See [`Store::keep`](crate::Store::keep).
    kept: AtomicBool,
}

/// The newest records of a member, and the listener.
struct Member {
    places: Places,
    /// The wall clock of the newest record.
    wall: i64,
    /// Called for each record that is committed here.
    listener: Option<Listener>,
}

/// Called for a record that was appended: see [`Store::listen`](crate::Store::listen).
pub(crate) type Listener = Box<dyn FnMut(Position, Announce) + Send>;

/// A stretch of time in which the door is open. A commit has to begin and end in the same opening:
/// records that it read in an earlier one may have been given up by another primary since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening(u64);

impl Opening {
    /// The opening of something that is never committed by itself.
    pub const NONE: Opening = Opening(0);
}

/// The error 10107.
pub(crate) fn not_primary() -> Error {
    Error::new(Code::NotWritablePrimary, "not primary")
}

impl Door {
    /// A door after `last`, whose wall clock this was. It is open in the term of `last`; a member's,
    /// which has these places, is closed.
    pub fn new(last: Position, member: Option<Places>, wall: i64) -> Door {
        let open = u64::from(member.is_none());
        Door {
            serial: std::sync::Mutex::new(last.at),
            flying: Mutex::default(),
            landed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
            set: CachePadded(Setting {
                opening: AtomicU64::new(open),
                openings: AtomicU64::new(open),
                term: AtomicU64::new(last.term),
                others: AtomicBool::new(true),
                kept: AtomicBool::new(false),
                member: member.map(|places| {
                    Mutex::new(Member {
                        places,
                        wall,
                        listener: None,
                    })
                }),
            }),
        }
    }

    /// The current opening. It has to be taken before anything is read that a commit depends on.
    ///
    /// # Errors
    /// 10107 NotWritablePrimary if the door is closed.
    pub fn opening(&self) -> Result<Opening> {
        match self.set.opening.load(SeqCst) {
            0 => Err(not_primary()),
            n => Ok(Opening(n)),
        }
    }

    /// Checks that an opening has not ended.
    ///
    /// # Errors
    /// 10107 NotWritablePrimary.
    pub fn check(&self, opening: Opening) -> Result<()> {
        match opening != Opening::NONE && self.set.opening.load(SeqCst) == opening.0 {
            true => Ok(()),
            false => Err(not_primary()),
        }
    }

    /// True if no thread may commit.
    pub fn is_closed(&self) -> bool {
        self.set.opening.load(SeqCst) == 0
    }

    /// Opens the door for commits in this term.
    pub fn open(&self, term: u64) {
        let _turn = self.enter();
        let set = &self.set;
        set.term.store(term, SeqCst);
        let n = set.openings.fetch_add(1, SeqCst) + 1;
        set.opening.store(n, SeqCst);
    }

    /// Closes the door. A thread that was inside has appended its record, and may still be applying it.
    pub fn close(&self) {
        let _turn = self.enter();
        self.set.opening.store(0, SeqCst);
    }

    /// The term of new records.
    pub fn term(&self) -> u64 {
        self.set.term.load(Relaxed)
    }

    /// Notes that the thread inside the door has appended a record, at this time of the wall clock, and
    /// tells the listener what announces it.
    #[inline]
    pub fn appended(&self, position: Position, wall: i64, announce: Announce) {
        if let Some(member) = &self.set.member {
            let mut member = member.lock();
            member.places.push(position);
            member.wall = wall;
            if let Some(listener) = &mut member.listener {
                listener(position, announce);
            }
        }
    }

    /// Notes that a record which another member committed, at this time of its wall clock, is in the
    /// log, so that the next one gets a later timestamp. The caller is inside.
    pub fn followed(&self, turn: &mut Timestamp, position: Position, wall: i64) {
        *turn = position.at;
        self.set.term.store(position.term, SeqCst);
        if let Some(member) = &self.set.member {
            let mut member = member.lock();
            member.places.push(position);
            member.wall = wall;
        }
    }

    /// The newest record of a member, with the wall clock that it carries.
    pub fn newest(&self) -> Option<(Timestamp, i64)> {
        let member = self.set.member.as_ref()?.lock();
        Some((member.places.last().at, member.wall))
    }

    /// Sets the listener for later records; false if this is not the door of a member.
    pub fn listen(&self, listener: Option<Listener>) -> bool {
        let member = self.set.member.as_ref();
        member.is_some_and(|member| {
            member.lock().listener = listener;
            true
        })
    }

    /// The places of records, on a member.
    pub fn places(&self) -> Option<MappedMutexGuard<'_, Places>> {
        let member = self.set.member.as_ref()?;
        Some(parking_lot::MutexGuard::map(member.lock(), |m| {
            &mut m.places
        }))
    }

    /// See [`Store::set_others`](crate::Store::set_others).
    pub fn set_others(&self, are: bool) {
        self.set.others.store(are, SeqCst);
    }

    /// See [`Store::keep`](crate::Store::keep).
    pub fn keep(&self) {
        self.set.kept.store(true, SeqCst);
    }

    /// See [`Store::is_kept`](crate::Store::is_kept).
    pub fn is_kept(&self) -> bool {
        self.set.kept.load(SeqCst)
    }

    /// The newest record that the majority has, on a member that is not alone.
    pub fn majority(&self) -> Option<Position> {
        // A server that is alone commits without taking the lock of the places.
        match self.set.others.load(SeqCst) {
            true => Some(self.places()?.committed()),
            false => None,
        }
    }

    /// Called by the thread inside, which has appended a record and applies it next. True if it may
    /// apply it inside (`few` puts, and no other record is being applied); otherwise it has to
    /// [land](Door::land) it.
    pub fn take_off(&self, at: Timestamp, few: bool) -> bool {
        let mut flying = self.flying.lock();
        let inside = few && flying.is_empty();
        if !inside {
            flying.push_back((at, false));
        }
        inside
    }

    /// Counts the bytes of a payload that was appended.
    pub fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// The next commit gets a timestamp after this one.
    pub fn ahead(&self) -> Timestamp {
        Timestamp(self.ahead.load(SeqCst))
    }

    /// Makes every later commit later than `to`.
    pub fn advance(&self, to: Timestamp) {
        // A thread inside may have read `ahead` already, so this waits for its turn to end. Every thread
        // after it sees the new value.
        let _turn = self.enter();
        self.ahead.fetch_max(to.0, SeqCst);
    }

    /// Waits for the caller's turn. The thread inside writes a record and a few keys, which takes a few
    /// microseconds: less than giving up the core and getting it back. A thread that panicked inside has
    /// left either a timestamp that was given out or the one before, so a poisoned lock can be used.
    pub fn enter(&self) -> MutexGuard<'_, Timestamp> {
        for _ in 0..SPINS {
            if let Ok(guard) = self.serial.try_lock() {
                return guard;
            }
            std::hint::spin_loop();
        }
        self.serial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of payload appended since the start.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Notes that `at` is applied, moves the visible timestamp on as far as it goes, and returns when it
    /// has reached `at`.
    pub fn land(&self, at: Timestamp, views: &Views) {
        let mut flying = self.flying.lock();
        if let Some(mine) = flying.iter_mut().find(|(t, _)| *t == at) {
            mine.1 = true;
        }
        let mut reached = None;
        while let Some((t, true)) = flying.front() {
            reached = Some(*t);
            flying.pop_front();
        }
        if let Some(t) = reached {
            views.advance(t);
            if self.waiting.load(SeqCst) > 0 {
                self.landed.notify_all();
            }
        }
        if views.visible() >= at {
            return;
        }
        // An earlier commit is still being applied. That takes microseconds, unless its thread was
        // preempted.
        drop(flying);
        for _ in 0..SPINS {
            if views.visible() >= at {
                return;
            }
            std::hint::spin_loop();
        }
        self.waiting.fetch_add(1, SeqCst);
        let mut flying = self.flying.lock();
        while views.visible() < at {
            self.landed.wait(&mut flying);
        }
        drop(flying);
        self.waiting.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn visible_moves_in_order_whoever_is_faster() {
        let views = Views::new(Timestamp(0));
        let door = Arc::new(Door::new(Position::default(), None, 0));
        for t in 1..=3 {
            door.flying.lock().push_back((Timestamp(t), false));
        }
        let landed = std::thread::scope(|s| {
            let late = s.spawn(|| {
                door.land(Timestamp(3), &views);
                views.visible()
            });
            let later = s.spawn(|| {
                door.land(Timestamp(2), &views);
                views.visible()
            });
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(views.visible(), Timestamp(0));
            door.land(Timestamp(1), &views);
            (late.join().unwrap(), later.join().unwrap())
        });
        assert_eq!(landed.0, Timestamp(3));
        assert!(landed.1 >= Timestamp(2));
        assert!(door.flying.lock().is_empty());
    }

    #[test]
    fn what_began_in_another_opening_does_not_go_through() {
        let places = Places::new(Position::default(), Position::default());
        let door = Door::new(Position::default(), Some(places), 0);
        assert!(door.is_closed() && door.opening().is_err());
        assert!(door.check(Opening::NONE).is_err());
        door.open(3);
        let first = door.opening().unwrap();
        door.check(first).unwrap();
        assert!(door.check(Opening::NONE).is_err());
        door.close();
        assert_eq!(
            door.check(first).unwrap_err().code(),
            Code::NotWritablePrimary
        );
        door.open(5);
        assert!(door.check(first).is_err());
        door.check(door.opening().unwrap()).unwrap();
        assert_eq!(door.term(), 5);
    }
}
