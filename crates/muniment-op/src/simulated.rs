//! The time and the rest of a thread that a simulator runs.
//!
//! A simulator of several servers runs each of their activities in a thread of its own, one at a time, and lets time
//! pass as it likes. Whatever decides by the time asks [`now`], and whatever waits does so in
//! [`Sleep::park`](crate::Sleep::park), so a simulator needs these two places only. A thread of a server pays for a
//! look at a variable of its own.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Mistakes that a simulation has servers make, to see that it finds them. They lie where it cannot put them in from
/// outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A shard that gives a range away takes writes to it until the end.
    NoGate,
    /// What has changed on the donor until it was frozen is not copied.
    LastRoundSkipped,
    /// What sessions remember of retryable writes stays on the donor.
    SessionsForgotten,
    /// A donor tells what sessions remember although its set may give it up.
    SessionsUnconfirmed,
    /// A reader sees what the shard owns now, and not what it owned at the reader's time.
    NewestFilter,
    /// Shards are told of a decision before it is made.
    ResolveFirst,
    /// A write of many documents is taken to have treated all ranges, whatever the shards have owned.
    NotAccounted,
}

/// What stands in the place of the clock and of the scheduler of the operating system.
pub trait Simulated {
    /// The time.
    fn now(&self) -> Instant;

    /// Milliseconds since 1970.
    fn wall_ms(&self) -> i64;

    /// Rests until some time, which may be soon: a simulator does not know which thread another one wakes. It returns
    /// after `until` at the latest.
    fn park(&self, until: Option<Instant>);

    /// Whether servers are to make a mistake here.
    fn makes(&self, _: Mistake) -> bool {
        false
    }
}

thread_local! {
    static WORLD: RefCell<Option<Arc<dyn Simulated>>> = const { RefCell::new(None) };
}

/// From here on the calling thread lives in this world.
pub fn lives_in(world: Option<Arc<dyn Simulated>>) {
    WORLD.with(|w| *w.borrow_mut() = world);
}

/// The world of the calling thread; `None` for that of the operating system.
pub(crate) fn world() -> Option<Arc<dyn Simulated>> {
    WORLD.try_with(|w| w.borrow().clone()).ok().flatten()
}

/// Whether the calling thread lives in a simulation, where the threads that it starts do not live.
pub fn is_simulated() -> bool {
    world().is_some()
}

/// The time, by which waits and deadlines go.
pub fn now() -> Instant {
    world().map_or_else(Instant::now, |w| w.now())
}

/// The time as people have it, in milliseconds since 1970.
pub fn wall_ms() -> i64 {
    let of_system = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |d| d.as_millis() as i64)
    };
    world().map_or_else(of_system, |w| w.wall_ms())
}

/// Whether the calling thread is to make a mistake here; never outside of simulations.
pub fn makes(mistake: Mistake) -> bool {
    world().is_some_and(|w| w.makes(mistake))
}

/// How long ago a time was.
pub fn since(then: Instant) -> std::time::Duration {
    now().saturating_duration_since(then)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{Simulated, lives_in, now, wall_ms};
    use crate::{Event, NeverInterrupted, sleep_until};
    use parking_lot::Mutex;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// A world in which each rest takes a second.
    struct Slow(Mutex<Instant>);

    impl Simulated for Slow {
        fn now(&self) -> Instant {
            *self.0.lock()
        }

        fn wall_ms(&self) -> i64 {
            7
        }

        fn park(&self, _: Option<Instant>) {
            *self.0.lock() += Duration::from_secs(1);
        }
    }

    #[test]
    fn waits_of_a_simulated_thread_take_its_time_and_no_other() {
        let began = Instant::now();
        let test = std::thread::spawn(move || {
            lives_in(Some(Arc::new(Slow(Mutex::new(began)))));
            sleep_until(began + Duration::from_secs(3600), &NeverInterrupted).unwrap();
            assert_eq!(now(), began + Duration::from_secs(3600));
            let until = now() + Duration::from_secs(60);
            let came = Event::new().wait_until(&NeverInterrupted, until, || false);
            assert!(!came.unwrap());
            assert_eq!(wall_ms(), 7);
            assert_eq!(now(), until);
        });
        test.join().unwrap();
        assert!(began.elapsed() < Duration::from_secs(60));
        assert!(now() < began + Duration::from_secs(60));
    }
}
