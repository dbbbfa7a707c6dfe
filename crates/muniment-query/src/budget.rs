//! One budget of memory for all operations of a server.
//!
//! Every stage that holds much has a limit of its own; many at once would still be more than the
//! machine has. So each books what it holds here too, and spills early, or fails where it may not
//! spill, once all together hold more than there is. What a cursor keeps between its batches stays
//! booked. Invariants: what is booked is given back when its [`Share`] is dropped; a stage is never
//! pressed below [`FLOOR`], so that all of them get on. Must not know stages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Bytes that a stage may hold whatever the others do.
pub const FLOOR: usize = 1 << 20;
/// Bookings are rounded up to this: an atomic operation every so many bytes.
const STEP: usize = 64 << 10;

/// The budget.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: AtomicUsize,
    used: AtomicUsize,
    pressed: AtomicU64,
}

impl Default for MemoryBudget {
    /// Without a limit.
    fn default() -> MemoryBudget {
        MemoryBudget {
            limit: AtomicUsize::new(usize::MAX),
            used: AtomicUsize::new(0),
            pressed: AtomicU64::new(0),
        }
    }
}

impl MemoryBudget {
    /// Sets the bytes that all stages together may hold.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Relaxed);
    }

    /// The bytes that all stages together may hold.
    pub fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// Bytes that are booked now.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// How often a stage was told that the budget is used up.
    pub fn pressed(&self) -> u64 {
        self.pressed.load(Relaxed)
    }

    /// True when more is booked than there is.
    pub fn is_over(&self) -> bool {
        self.used() > self.limit()
    }
}

/// What one stage has booked.
#[derive(Debug)]
pub struct Share {
    budget: Arc<MemoryBudget>,
    booked: usize,
}

impl Share {
    /// Nothing booked yet.
    pub fn new(budget: &Arc<MemoryBudget>) -> Share {
        Share {
            budget: budget.clone(),
            booked: 0,
        }
    }

    /// Books that the stage holds so many bytes now. True when it should let go of them, because
    /// it came to hold more while the budget is used up.
    #[inline]
    pub fn holds(&mut self, bytes: usize) -> bool {
        let rounded = bytes.checked_next_multiple_of(STEP).unwrap_or(bytes);
        if rounded == self.booked {
            return false;
        }
        self.book(rounded)
    }

    /// The bytes that all stages together may hold.
    pub fn limit(&self) -> usize {
        self.budget.limit()
    }

    /// True when it holds more than the floor while the budget is used up.
    pub fn is_pressed(&self) -> bool {
        self.booked > FLOOR && self.budget.is_over()
    }

    fn book(&mut self, rounded: usize) -> bool {
        let more = rounded > self.booked;
        if more {
            self.budget.used.fetch_add(rounded - self.booked, Relaxed);
        } else {
            self.budget.used.fetch_sub(self.booked - rounded, Relaxed);
        }
        self.booked = rounded;
        let pressed = more && rounded > FLOOR && self.budget.is_over();
        if pressed {
            self.budget.pressed.fetch_add(1, Relaxed);
        }
        pressed
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.booked, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_are_given_back() {
        let budget = Arc::new(MemoryBudget::default());
        budget.set_limit(4 * FLOOR);
        let (mut a, mut b) = (Share::new(&budget), Share::new(&budget));
        assert!(!a.holds(3 * FLOOR));
        // Up to the floor everybody may.
        assert!(!b.holds(FLOOR));
        assert!(b.holds(2 * FLOOR) && budget.is_over());
        // Not again before it grows on.
        assert!(!b.holds(2 * FLOOR));
        assert!(!b.holds(0));
        assert_eq!((budget.used(), budget.pressed()), (3 * FLOOR, 1));
        drop(a);
        assert!(!b.holds(4 * FLOOR));
        drop(b);
        assert_eq!(budget.used(), 0);
    }
}
