//! Known bugs, put in on purpose, to see that the simulator finds them. The driver asks here in tests
//! alone.

use crate::replica_set::frame::Record;
use muniment_consensus::{Body, Message};
use muniment_storage::{Positions, Store};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bugs {
    /// Records are told to be durable before they were synced.
    pub acknowledge_early: bool,
    /// A record that is there is taken for the leader's, whatever its term.
    pub ignore_terms: bool,
    /// The storage is told that everything it has is committed.
    pub commit_all: bool,
    /// A member that has lost its disk is filled without asking whether the leader still leads.
    pub copies_unasked: bool,
    /// What a locked member sets aside is acknowledged before it was synced.
    pub aside_unsynced: bool,
    /// What was set aside is dropped when the lock ends.
    pub aside_dropped: bool,
    /// What is remembered beside the log says that what was only set aside is committed.
    pub state_ahead: bool,
}

impl Bugs {
    /// How far the member says that it is.
    pub fn positions(self, p: Option<Positions>) -> Option<Positions> {
        p.map(|p| Positions {
            durable: match self.acknowledge_early {
                true => p.appended,
                false => p.durable,
            },
            ..p
        })
    }

    /// What the storage is told to be committed, of a log that ends at `last`.
    pub fn committed(self, index: u64, last: u64) -> u64 {
        match self.commit_all {
            true => index.max(last),
            false => index,
        }
    }

    /// What came from another member, as the core sees it.
    pub fn received(self, message: &mut Message, records: &mut [Record], store: &Store) {
        let Body::Append {
            index,
            log_term,
            entries,
            ..
        } = &mut message.body
        else {
            return;
        };
        if !self.ignore_terms {
            return;
        }
        let own = |index: u64| {
            let mut records = store.records_behind(index.checked_sub(1)?).ok()?;
            records.next().ok()?.map(|r| r.term)
        };
        *log_term = own(*index).unwrap_or(*log_term);
        for e in entries.iter_mut() {
            e.term = own(e.index).unwrap_or(e.term);
        }
        for r in records {
            r.term = own(r.index).unwrap_or(r.term);
        }
    }
}
