//! The memory of the writers: every write that was sent, and the time of its acknowledgement.

use std::time::Instant;

/// The change that a write makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// An insert of `count` documents from number `first` on.
    Insert {
        /// The number of the first document.
        first: u64,
        /// The number of documents.
        count: u32,
    },
    /// An update that brings the writer's counter to this value.
    Update {
        /// The counter's new value.
        value: u64,
    },
}

/// A write that was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    /// The change that it makes.
    pub what: What,
    /// The time at which its acknowledgement was read. For w:0, the time at which the reply to a
    /// later command of the same connection showed that the write had been applied.
    pub acknowledged: Option<Instant>,
}

/// One writer's writes of a round, in the order in which they were sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub writes: Vec<Write>,
    inserted: u64,
    updated: u64,
}

impl History {
    /// Notes that the next `count` documents are sent; returns the number of the first one.
    pub(crate) fn insert(&mut self, count: u32) -> u64 {
        let first = self.inserted + 1;
        self.inserted += u64::from(count);
        self.note(What::Insert { first, count });
        first
    }

    /// Notes that the next update is sent; returns the counter's value after it.
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

    /// Marks all writes that were sent so far as acknowledged at `at`, except those that were
    /// before.
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
