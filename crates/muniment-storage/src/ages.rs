//! The time since commits came to this server.
//!
//! Timestamps are an order and no measure of time: a client may have brought one from a year ahead,
//! after which timestamps only count up until the wall clock is there, and the wall clock may be set in
//! either direction. Code that asks how much time has passed since a commit (how long versions and the
//! log are kept, how far the majority lags, whether a delayed member may have a record) asks here. The
//! answer comes from a clock that cannot be set.
//!
//! That clock knows nothing of the time before the start. For records of that time, the wall clock that
//! each carries is compared with the wall clock at the start. A record whose wall clock is ahead counts
//! as "just before the start", so that a clock that was wrong once does not keep anything for longer
//! than a whole window.
//!
//! An age is never reported too great, except for records from before the start if the wall clock was
//! set meanwhile. It is reported too small by [`STEP`] or by 1/1024 of itself at most.

use muniment_io::{Clock, Timestamp};
use parking_lot::Mutex;
#[cfg(test)]
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The least time between two marks, in milliseconds.
const STEP: i64 = 100;
/// Old marks may be further apart: by this part of their age.
const PART: i64 = 1024;
/// The marks are thinned out when there are this many, and again whenever they have doubled since.
const MANY: usize = 4096;

/// The moment by which everything up to a timestamp had come.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at: Timestamp,
    /// In milliseconds since the start; negative: before it.
    seen: i64,
    /// The wall clock of the newest record at that moment.
    wall: i64,
}

#[derive(Default)]
struct Marks {
    /// The marks, ascending.
    all: Vec<Mark>,
    thin_at: usize,
    /// True when the records of the log from before the start have their marks.
    knows_past: bool,
}

/// The ages of commits.
pub(crate) struct Ages {
    began: Instant,
    began_wall: i64,
    /// Everything up to this timestamp came before the start.
    first: Timestamp,
    marks: Mutex<Marks>,
}

impl Ages {
    /// The ages of a server that starts now with everything up to `first`, whose newest record has this
    /// wall clock.
    pub fn new(clock: &dyn Clock, first: Timestamp, wall: i64) -> Ages {
        let mark = Mark {
            at: first,
            seen: 0,
            wall,
        };
        Ages {
            began: clock.instant(),
            began_wall: clock.now_ms(),
            first,
            marks: Mutex::new(Marks {
                all: vec![mark],
                thin_at: MANY,
                knows_past: false,
            }),
        }
    }

    fn since_start(&self, now: Instant) -> i64 {
        let since = now.saturating_duration_since(self.began).as_millis();
        i64::try_from(since).unwrap_or(i64::MAX)
    }

    /// Notes that everything up to `at` has come by `now`; the newest record has this wall clock. It has
    /// to be called every [`STEP`] or more often, or ages are reported too small.
    pub fn note(&self, at: Timestamp, now: Instant, wall: i64) {
        let seen = self.since_start(now);
        let marks = &mut *self.marks.lock();
        if let Some(last) = marks.all.last()
            && (at <= last.at || seen - last.seen < STEP && last.at > self.first)
        {
            return;
        }
        marks.all.push(Mark { at, seen, wall });
        if marks.all.len() >= marks.thin_at {
            thin(&mut marks.all, seen);
            marks.thin_at = (marks.all.len() * 2).max(MANY);
        }
    }

    /// The least time since everything up to `at` had come.
    pub fn age(&self, at: Timestamp, now: Instant) -> Duration {
        let marks = self.marks.lock();
        let i = marks.all.partition_point(|m| m.at < at);
        let seen = marks.all.get(i).map(|m| m.seen);
        let now = self.since_start(now);
        millis(seen.map_or(0, |seen| now - seen))
    }

    /// The same of one record, with the wall clock that it carries.
    pub fn age_of(&self, at: Timestamp, wall: i64, now: Instant) -> Duration {
        if at > self.first {
            return self.age(at, now);
        }
        let before = self.began_wall.saturating_sub(wall).max(0);
        millis(self.since_start(now).saturating_add(before))
    }

    /// The newest timestamp such that everything up to it came at least `age` ago.
    pub fn older_than(&self, age: Duration, now: Instant) -> Option<Timestamp> {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let until = self.since_start(now).saturating_sub(age);
        let marks = self.marks.lock();
        let i = marks.all.partition_point(|m| m.seen <= until);
        Some(marks.all.get(i.checked_sub(1)?)?.at)
    }

    /// The oldest timestamp that it knows. If the store was empty at the start, that is the first one
    /// that came: nothing can have been asked for before that.
    pub fn first(&self) -> Timestamp {
        let marks = self.marks.lock();
        let known = marks.all.iter().map(|m| m.at);
        let mut known = known.filter(|at| *at > Timestamp::ZERO && *at >= self.first);
        known.next().unwrap_or(self.first)
    }

    /// About the wall clock of the record at a timestamp; `None` for a record without a mark yet.
    pub fn wall(&self, at: Timestamp) -> Option<i64> {
        let marks = self.marks.lock();
        let i = marks.all.partition_point(|m| m.at < at);
        marks.all.get(i).map(|m| m.wall)
    }

    /// True until [`Ages::learn`] was called.
    pub fn is_to_learn(&self) -> bool {
        !self.marks.lock().knows_past
    }

    /// Takes up the marks of the time before the start, which the log knows: timestamps, ascending, and
    /// the wall clock of the record that follows each.
    pub fn learn(&self, past: &[(Timestamp, i64)]) {
        let marks = &mut *self.marks.lock();
        if std::mem::replace(&mut marks.knows_past, true) {
            return;
        }
        let past: Vec<_> = past.iter().filter(|(at, _)| *at < self.first).collect();
        let mut before = Vec::with_capacity(past.len());
        let mut seen = 0;
        // The newest comes first, because an older record came no later, whatever its wall clock says.
        for (at, wall) in past.into_iter().rev() {
            seen = wall.saturating_sub(self.began_wall).min(seen);
            let (at, wall) = (*at, *wall);
            before.push(Mark { at, seen, wall });
        }
        before.reverse();
        marks.all.splice(0..0, before);
    }
}

fn millis(n: i64) -> Duration {
    Duration::from_millis(u64::try_from(n).unwrap_or(0))
}

/// Removes marks that are closer to each other than their age justifies. The last one stays.
fn thin(all: &mut Vec<Mark>, now: i64) {
    let mut kept: Option<i64> = None;
    let mut i = 0;
    let next: Vec<i64> = all.iter().skip(1).map(|m| m.seen).collect();
    all.retain(|mark| {
        let next = next.get(i).copied();
        i += 1;
        let apart = STEP.max(now.saturating_sub(mark.seen) / PART);
        // Without this mark its neighbours would be too far apart.
        let stays = match (kept, next) {
            (Some(kept), Some(next)) => next - kept > apart,
            _ => true,
        };
        if stays {
            kept = Some(mark.seen);
        }
        stays
    });
}

/// A steady clock and a wall clock, each set by hand.
#[cfg(test)]
pub(crate) struct ByHand(Instant, AtomicI64, AtomicI64);

#[cfg(test)]
impl ByHand {
    pub fn new(wall: i64) -> ByHand {
        ByHand(Instant::now(), AtomicI64::new(0), AtomicI64::new(wall))
    }

    pub fn pass(&self, ms: i64) {
        self.1.fetch_add(ms, SeqCst);
        self.2.fetch_add(ms, SeqCst);
    }

    pub fn set_wall(&self, ms: i64) {
        self.2.store(ms, SeqCst);
    }
}

#[cfg(test)]
impl Clock for ByHand {
    fn now_ms(&self) -> i64 {
        self.2.load(SeqCst)
    }

    fn instant(&self) -> Instant {
        self.0 + millis(self.1.load(SeqCst))
    }

    fn random(&self, _: &mut [u8]) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const DAY: i64 = 86_400_000;

    #[test]
    fn ages_do_not_go_by_timestamps_or_the_wall_clock() {
        let clock = ByHand::new(100 * DAY);
        let ages = Ages::new(&clock, Timestamp(5), 100 * DAY);
        let age = |at: u64| ages.age(Timestamp(at), clock.instant()).as_millis() as i64;
        let older = |ms: i64| ages.older_than(millis(ms), clock.instant()).map(|t| t.0);
        let ahead = 1 << 40;
        for i in 1..=100 {
            clock.pass(1000);
            // All commits fall into the same second, a year ahead, and the wall clock jumps to and fro.
            clock.2.fetch_add([DAY, -DAY][i as usize % 2], SeqCst);
            ages.note(Timestamp(ahead + i), clock.instant(), clock.now_ms());
        }
        assert_eq!((age(ahead + 100), age(ahead + 41)), (0, 59_000));
        assert_eq!((age(ahead), age(5), age(ahead + 101)), (99_000, 100_000, 0));
        assert_eq!(
            (older(0), older(59_000)),
            (Some(ahead + 100), Some(ahead + 41))
        );
        assert_eq!((older(100_000), older(100_001)), (Some(5), None));
    }

    #[test]
    fn what_came_before_the_start_goes_by_its_records() {
        let clock = ByHand::new(100 * DAY);
        let ages = Ages::new(&clock, Timestamp(50), 100 * DAY);
        let age = |at: u64| ages.age(Timestamp(at), clock.instant()).as_millis() as i64;
        let of = |at: u64, wall: i64| {
            let age = ages.age_of(Timestamp(at), wall, clock.instant());
            age.as_millis() as i64
        };
        assert!(ages.is_to_learn());
        // The clock was a year ahead when the second one was written, and right when the third was.
        let past = [(10, 97), (20, 465), (30, 99), (40, 100), (50, 100)];
        let past = past.map(|(at, day)| (Timestamp(at), day * DAY));
        ages.learn(&past);
        ages.learn(&[(Timestamp(1), 1)]);
        assert!(!ages.is_to_learn());
        assert_eq!([10, 15, 20, 30, 35].map(age), [3 * DAY, DAY, DAY, DAY, 0]);
        // The clocks may do anything from here on: the marks are made.
        clock.pass(DAY);
        clock.2.fetch_sub(40 * DAY, SeqCst);
        ages.note(Timestamp(60), clock.instant(), clock.now_ms());
        assert_eq!([10, 30, 40, 55].map(age), [4 * DAY, 2 * DAY, DAY, 0]);
        assert_eq!((of(40, 99 * DAY), of(40, 465 * DAY)), (2 * DAY, DAY));
        assert_eq!(of(60, 3 * DAY), 0);
    }

    #[test]
    fn few_marks_tell_of_a_long_time() {
        let clock = ByHand::new(0);
        let ages = Ages::new(&clock, Timestamp(0), 0);
        // Three days, a commit every tenth of a second.
        let all = 3 * 864_000_u64;
        for i in 1..=all {
            clock.pass(STEP);
            ages.note(Timestamp(i), clock.instant(), 0);
        }
        assert!(ages.marks.lock().all.len() < 40_000);
        for i in (1..all).step_by(9_973) {
            let real = (all - i) as i64 * STEP;
            let told = ages.age(Timestamp(i), clock.instant()).as_millis() as i64;
            assert!(
                told <= real && told >= real - STEP - real / 500,
                "{real} {told}"
            );
        }
    }
}
