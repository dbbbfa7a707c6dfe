//! What is drawn from a seed, and the time that the simulator lets pass.

use muniment_io::Clock;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Numbers that follow from a seed (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// The time of a run, in microseconds since its begin.
pub struct Time {
    base: Instant,
    now: AtomicU64,
}

impl Time {
    pub fn new() -> Arc<Time> {
        Arc::new(Time {
            base: Instant::now(),
            now: AtomicU64::new(0),
        })
    }

    pub fn now(&self) -> u64 {
        self.now.load(SeqCst)
    }

    pub fn instant(&self) -> Instant {
        self.base + Duration::from_micros(self.now())
    }

    /// In microseconds since the begin.
    pub fn of(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.base).as_micros() as u64
    }

    /// The same, of a time that is not before this one.
    pub fn of_up(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.base).as_nanos();
        since.div_ceil(1000) as u64
    }

    pub fn go_to(&self, now: u64) {
        self.now.store(now, SeqCst);
    }
}

/// The clock of one member, which may be wrong.
pub struct SimClock {
    pub time: Arc<Time>,
    pub ahead_ms: i64,
    pub random: Mutex<Random>,
}

/// Some day.
pub const DAY_MS: i64 = 1_800_000_000_000;

impl Clock for SimClock {
    fn now_ms(&self) -> i64 {
        DAY_MS + self.ahead_ms + (self.time.now() / 1000) as i64
    }

    fn instant(&self) -> Instant {
        self.time.instant()
    }

    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut random = self.random.lock();
        bytes.fill_with(|| random.next() as u8);
        Ok(())
    }
}
