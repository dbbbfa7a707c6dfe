//! What the writers remember: every write that was sent, and when it was acknowledged.

use std::time::Instant;

/// What a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// Inserts `count` documents from number `first` on.
    Insert {
        /// The first one's number.
        first: u64,
        /// How many.
        count: u32,
    },
    /// Brings the writer's counter to this value.
    Update {
        /// The value.
        value: u64,
    },
}

/// A write that was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    /// What it changes.
    pub what: What,
    /// When its acknowledgement was read. For w:0: when the reply to a later command of the
    /// same connection showed that it had been applied.
    pub acknowledged: Option<Instant>,
}

/// One writer's writes of a round, in the order in which they were sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// The writes.
    pub writes: Vec<Write>,
    inserted: u64,
    updated: u64,
}

impl History {
    /// Notes that the next `count` documents are sent; gives the first one's number.
    pub(crate) fn insert(&mut self, count: u32) -> u64 {
        let first = self.inserted + 1;
        self.inserted += u64::from(count);
        self.note(What::Insert { first, count });
        first
    }

    /// Notes that the next update is sent; gives the counter's value after it.
    pub(crate) fn update(&mut self) -> u64 {
        self.updated += 1;
        self.note(What::Update {
            value: self.updated,
        });
        self.updated
    }

    fn note(&mut self, what: What) {
        self.writes.push(Write {
            what,
            acknowledged: None,
        });
    }

    /// Everything sent so far that was not acknowledged yet, now is.
    pub(crate) fn acknowledge(&mut self, at: Instant) {
        for w in self.writes.iter_mut().rev() {
            if w.acknowledged.is_some() {
                break;
            }
            w.acknowledged = Some(at);
        }
    }

    /// The greatest number of a document that was sent; 0 for none.
    pub(crate) fn inserted(&self) -> u64 {
        self.inserted
    }

    /// The greatest value of the counter that was sent; 0 for none.
    pub(crate) fn updated(&self) -> u64 {
        self.updated
    }
}
