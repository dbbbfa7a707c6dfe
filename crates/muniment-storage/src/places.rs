//! The index and timestamp of the newest records of the log, on a member of a replica set.
//!
//! The records that may not be committed, durable or visible yet are kept, and the one before them.

use muniment_io::Timestamp;
use muniment_log::Position;
use std::collections::VecDeque;

/// The positions of the newest records.
pub(crate) struct Places {
    /// The record before the others.
    base: Position,
    /// Those after it, without gaps.
    newer: VecDeque<Position>,
    /// The newest that is known to be committed.
    committed: Position,
    /// The index up to which everything is said to be committed. It may be ahead of the records here,
    /// which may come after that is known.
    target: u64,
}

impl Places {
    /// Nothing after `base`, with `committed` at or before it.
    pub fn new(base: Position, committed: Position) -> Places {
        Places {
            base,
            newer: VecDeque::new(),
            committed,
            target: committed.index,
        }
    }

    /// Notes a record that was appended.
    pub fn push(&mut self, position: Position) {
        self.newer.push_back(position);
    }

    /// The newest record.
    pub fn last(&self) -> Position {
        self.newer.back().copied().unwrap_or(self.base)
    }

    /// The newest record that is known to be committed.
    pub fn committed(&self) -> Position {
        self.committed
    }

    /// The record with this index; `None` for older ones and later ones.
    pub fn at(&self, index: u64) -> Option<Position> {
        match index.checked_sub(self.base.index)? {
            0 => Some(self.base),
            n => self.newer.get(usize::try_from(n - 1).ok()?).copied(),
        }
    }

    /// The newest record at or before `at`; `None` if it is older than what is kept.
    pub fn up_to(&self, at: Timestamp) -> Option<Position> {
        match self.newer.partition_point(|p| p.at <= at).checked_sub(1) {
            Some(i) => self.newer.get(i).copied(),
            None => (self.base.at <= at).then_some(self.base),
        }
    }

    /// Everything up to `index` is committed. What stands before the others, and is visible and
    /// durable, need not be kept. Returns the newest record that is committed and there.
    pub fn commit(&mut self, index: u64, visible: Timestamp, durable: u64) -> Position {
        self.target = self.target.max(index);
        let last = self.last().index;
        if let Some(committed) = self.at(self.target.min(last)) {
            self.committed = committed;
        }
        let done = self.committed.index.min(durable);
        while let Some(next) = self.newer.front()
            && next.index <= done
            && next.at <= visible
        {
            self.base = *next;
            self.newer.pop_front();
        }
        self.committed
    }

    /// Whether records have come that were known to be committed before they came.
    pub fn is_behind(&self) -> bool {
        self.committed.index < self.target.min(self.last().index)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn p(index: u64) -> Position {
        Position {
            index,
            term: index / 4,
            at: Timestamp(index * 10),
        }
    }

    #[test]
    fn what_is_not_done_is_found() {
        let mut places = Places::new(p(5), p(5));
        assert_eq!((places.last(), places.committed()), (p(5), p(5)));
        (6..=12).for_each(|i| places.push(p(i)));
        assert_eq!(
            (places.at(4), places.at(5), places.at(12)),
            (None, Some(p(5)), Some(p(12)))
        );
        assert_eq!(places.at(13), None);
        assert_eq!(places.up_to(Timestamp(79)), Some(p(7)));
        assert_eq!(
            (places.up_to(Timestamp(49)), places.up_to(Timestamp(50))),
            (None, Some(p(5)))
        );
        // Record 8 is committed, but neither durable nor visible.
        assert_eq!(places.commit(8, Timestamp(90), 6), p(8));
        assert_eq!((places.at(5), places.at(6)), (None, Some(p(6))));
        assert_eq!(places.commit(7, Timestamp(70), 12), p(8));
        assert_eq!((places.at(6), places.at(7)), (None, Some(p(7))));
        // More is committed than has come.
        assert_eq!(places.commit(20, Timestamp(120), 12), p(12));
        assert!(!places.is_behind());
        places.push(p(13));
        assert!(places.is_behind());
        assert_eq!(places.commit(0, Timestamp(130), 12), p(13));
        assert_eq!((places.at(12), places.last()), (Some(p(12)), p(13)));
    }
}
