//! The counter of inserts: it hands out the next number, and knows up to which number all inserts
//! are done.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Hands out numbers. A number may be read once it and all numbers below it are acknowledged.
#[derive(Debug)]
pub(crate) struct Counter {
    next: AtomicU64,
    /// All numbers below this one are acknowledged.
    below: AtomicU64,
    /// The acknowledged numbers above a gap, which are not below `below` yet.
    ahead: Mutex<BTreeSet<u64>>,
}

impl Counter {
    /// Makes a counter that begins at `first`; all numbers below it count as acknowledged.
    pub(crate) fn new(first: u64) -> Counter {
        Counter {
            next: AtomicU64::new(first),
            below: AtomicU64::new(first),
            ahead: Mutex::new(BTreeSet::new()),
        }
    }

    /// Takes the next number.
    pub(crate) fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The greatest number that may be read; `None` when there is none.
    pub(crate) fn last(&self) -> Option<u64> {
        self.below.load(Ordering::Acquire).checked_sub(1)
    }

    /// Notes that `n` is written, or never will be; a failed insert that was not noted would hold
    /// back all numbers after it.
    pub(crate) fn acknowledge(&self, n: u64) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let mut below = self.below.load(Ordering::Relaxed);
        if n != below {
            ahead.insert(n);
            return;
        }
        below += 1;
        while ahead.remove(&below) {
            below += 1;
        }
        self.below.store(below, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_no_hole_below_it_may_be_read() {
        let c = Counter::new(10);
        assert_eq!(c.last(), Some(9));
        assert_eq!([c.take(), c.take(), c.take()], [10, 11, 12]);
        c.acknowledge(12);
        c.acknowledge(11);
        assert_eq!(c.last(), Some(9));
        c.acknowledge(10);
        assert_eq!(c.last(), Some(12));
        assert_eq!(Counter::new(0).last(), None);
    }
}
