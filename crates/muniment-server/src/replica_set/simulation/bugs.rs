//! Known bugs, put in on purpose, to see that the simulator finds them. The driver asks for those that lie
//! between its core and its storage ([`Mistake`]); the others are made here.

use muniment_consensus::{Body, Message};
use muniment_member::driver::Event;
use muniment_member::frame::Record;
use muniment_member::world::Mistake;
use muniment_storage::Store;

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
    /// Whether the member makes a mistake that lies between its core and its storage.
    pub fn make(self, mistake: Mistake) -> bool {
        match mistake {
            Mistake::AcknowledgeEarly => self.acknowledge_early,
            Mistake::CommitAll => self.commit_all,
            Mistake::AsideUnsynced => self.aside_unsynced,
            Mistake::AsideDropped => self.aside_dropped,
            Mistake::StateAhead => self.state_ahead,
        }
    }

    /// Bends what has come from other members, before the driver takes it.
    pub fn came(self, events: &mut [Event], store: &Store) {
        for event in events {
            if let Event::Received(message, records) = event {
                self.received(message, records, store);
            }
        }
    }

    /// What came from another member, as the core is to see it.
    fn received(self, message: &mut Message, records: &mut [Record], store: &Store) {
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
