//! The door itself: whose turn it is, who may commit, and what became visible.

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

/// How often who waits for another commit looks before it sleeps.
pub(super) const SPINS: usize = 64;

/// The order of commits. What every commit changes is one cache line, the first.
#[repr(C, align(64))]
pub(crate) struct Door {
    /// The newest timestamp given out; held while a record is appended. The standard library's,
    /// because who waits for it looks a few times and then sleeps: parking_lot's gives up the core
    /// seven times first, and each time all other threads get their turn.
    serial: std::sync::Mutex<Timestamp>,
    /// Commits that are appended and not yet visible, in order; true: applied.
    flying: Mutex<VecDeque<(Timestamp, bool)>>,
    /// Bytes of payload appended.
    bytes: AtomicU64,
    landed: Condvar,
    waiting: AtomicUsize,
    /// What every commit from here on is later than, whatever the clock shows.
    ahead: AtomicU64,
    /// Changed seldom, read by every commit.
    set: CachePadded<Setting>,
}

/// Whether the door is open, and for what.
struct Setting {
    /// The opening that it is in; 0: it is closed. Changed by a thread that has its turn inside.
    opening: AtomicU64,
    /// How often it was opened.
    openings: AtomicU64,
    term: AtomicU64,
    /// Of a member of a replica set.
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
    /// Told of each that is committed here.
    listener: Option<Listener>,
}

/// Told of a record that was appended: see [`Store::listen`](crate::Store::listen).
pub(crate) type Listener = Box<dyn FnMut(Position, Announce) + Send>;

/// One stretch of time in which the door is open. What was read before it may be another member's
/// past: a commit must have begun in the opening that it goes through in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening(u64);

impl Opening {
    /// Of what is not committed by itself.
    pub const NONE: Opening = Opening(0);
}

/// 10107.
pub(crate) fn not_primary() -> Error {
    Error::new(Code::NotWritablePrimary, "not primary")
}

impl Door {
    /// A door after `last`, of that wall clock: open in its term, or, of a member with these places,
    /// closed.
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

    /// The opening that the door is in: before anything is read that a commit depends on.
    ///
    /// # Errors
    /// 10107 NotWritablePrimary if it is closed.
    pub fn opening(&self) -> Result<Opening> {
        match self.set.opening.load(SeqCst) {
            0 => Err(not_primary()),
            n => Ok(Opening(n)),
        }
    }

    /// Checks that it is still in an opening.
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

    /// Lets commits in, which append in this term.
    pub fn open(&self, term: u64) {
        let _turn = self.enter();
        let set = &self.set;
        set.term.store(term, SeqCst);
        let n = set.openings.fetch_add(1, SeqCst) + 1;
        set.opening.store(n, SeqCst);
    }

    /// Lets no thread in any more. One that was inside has appended its record, and may still be
    /// applying it.
    pub fn close(&self) {
        let _turn = self.enter();
        self.set.opening.store(0, SeqCst);
    }

    /// The term that commits append in.
    pub fn term(&self) -> u64 {
        self.set.term.load(Relaxed)
    }

    /// The thread inside the door has appended a record, at this time of the wall clock, and tells the
    /// listener who announces it.
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

    /// A record that another member committed, at this time of its wall clock, is in the log: the
    /// next one is later. The caller is inside.
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

    /// Sets what is told of records from here on; false if it is no member's door.
    pub fn listen(&self, listener: Option<Listener>) -> bool {
        let member = self.set.member.as_ref();
        member.is_some_and(|member| {
            member.lock().listener = listener;
            true
        })
    }

    /// The places of records, of a member.
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

    /// The newest record that the majority has, of a member that is not alone.
    pub fn majority(&self) -> Option<Position> {
        // A server alone commits without taking the lock for it.
        match self.set.others.load(SeqCst) {
            true => Some(self.places()?.committed()),
            false => None,
        }
    }

    /// The thread inside has appended a record, and applies it now. True if that may be done inside
    /// (`few` puts, and no other record is being applied), else it is to [land](Door::land).
    pub fn take_off(&self, at: Timestamp, few: bool) -> bool {
        let mut flying = self.flying.lock();
        let inside = few && flying.is_empty();
        if !inside {
            flying.push_back((at, false));
        }
        inside
    }

    /// Bytes of a payload that was appended.
    pub fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// What the next commit is later than at least.
    pub fn ahead(&self) -> Timestamp {
        Timestamp(self.ahead.load(SeqCst))
    }

    /// Every commit from here on is later than `to`.
    pub fn advance(&self, to: Timestamp) {
        // The thread whose turn it was has its timestamp by now; the next one looks at `ahead` after
        // this.
        let _turn = self.enter();
        self.ahead.fetch_max(to.0, SeqCst);
    }

    /// Waits for the caller's turn. The thread inside writes a record and a few keys, which takes a few
    /// microseconds: less than giving up the core and getting it back. A thread that panicked inside
    /// has left a timestamp that was given out, or the one before.
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

    /// `at` is applied: moves the visible timestamp on as far as it goes, and returns when it has
    /// reached `at`.
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
        // Somebody before us is still applying: for microseconds, unless it was preempted.
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
