//! The version number of all data: MongoDB's timestamp.

use std::fmt;

/// MongoDB's timestamp: seconds since 1970 in the upper half, an increment in the lower one. It rises
/// strictly from commit to commit, and is the version number of everything that is stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The timestamp before every commit.
    pub const ZERO: Timestamp = Timestamp(0);
    /// The timestamp after every commit. Reads at it see the newest version.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// A timestamp from its two halves.
    pub fn new(seconds: u32, increment: u32) -> Timestamp {
        Timestamp(u64::from(seconds) << 32 | u64::from(increment))
    }

    /// The seconds since 1970.
    pub fn seconds(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The number of the commit within its second, from 1.
    pub fn increment(self) -> u32 {
        self.0 as u32
    }

    /// The timestamp of the next commit after this one, when the clock shows `now_ms` (milliseconds since
    /// 1970). If the clock stands still or goes back, only the increment rises.
    #[must_use]
    pub fn next(self, now_ms: i64) -> Timestamp {
        let seconds = u32::try_from(now_ms / 1000).unwrap_or(0);
        Timestamp(self.0 + 1).max(Timestamp::new(seconds, 1))
    }

    /// The timestamp `n` commits later.
    #[must_use]
    pub fn plus(self, n: u32) -> Timestamp {
        Timestamp(self.0 + u64::from(n))
    }

    /// The timestamp `n` commits earlier.
    #[must_use]
    pub fn minus(self, n: u32) -> Timestamp {
        Timestamp(self.0.saturating_sub(u64::from(n)))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({}, {})", self.seconds(), self.increment())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_whatever_the_clock_does() {
        let t = Timestamp::ZERO.next(5_000);
        assert_eq!((t.seconds(), t.increment()), (5, 1));
        assert_eq!(t.next(5_999), Timestamp::new(5, 2));
        assert_eq!(t.next(1_000), Timestamp::new(5, 2));
        assert_eq!(t.next(-1), Timestamp::new(5, 2));
        assert_eq!(t.next(6_000), Timestamp::new(6, 1));
    }
}
