//! What the driver does while its disk is full: it waits, and its member does not lead meanwhile.

use super::Driver;
use crate::{Election, Role};
use muniment_value::{Code, Result, doc};
use std::time::Duration;

impl Driver {
    /// Calls `store`, and waits for room and calls it again as long as the disk is full. Meanwhile the
    /// member takes part in nothing, and the others do without it. Nor does it say that it is primary:
    /// another member may be by then, and this one would not hear of that.
    pub(super) fn when_there_is_room<T>(
        &self,
        what: &str,
        mut store: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut warned = false;
        let was_primary = self.set.is_primary();
        loop {
            match store() {
                Err(e) if e.code() == Code::OutOfDiskSpace => {
                    if !std::mem::replace(&mut warned, true) {
                        let told = format!("{what} could not be stored: {e}");
                        self.set.home.log.startup_warning(21_406, &told);
                        // If this member is the only voter, no other one can have become primary.
                        if !self.votes_alone() {
                            self.leads_no_more();
                        }
                    }
                    self.set.copies.give_room();
                    let pause = Duration::from_millis(100);
                    if self.set.home.world.pause(&self.set.home.lifecycle, pause) {
                        return Err(e);
                    }
                }
                done => {
                    if warned && self.store().is_door_open() && !self.votes_alone() {
                        self.node.set_leads(true);
                        if was_primary {
                            self.show_primary(None);
                        }
                    }
                    return done;
                }
            }
        }
    }

    /// Tells everybody that this member is no primary.
    pub(super) fn leads_no_more(&self) {
        self.set.no_primary(&*self.host);
        self.node.set_leads(false);
    }

    /// Tells everybody that this member is primary. `election`: the one that it won; `None` if it was
    /// primary before.
    pub(super) fn show_primary(&self, election: Option<Election>) {
        let term = self.core.term() as i64;
        if election.is_none() {
            self.set.primary_again();
        }
        self.set.figures().stepped_up();
        self.set.change(|m| {
            m.role = Role::Primary;
            m.term = term;
            m.leader = Some(m.id);
            m.show_term();
            if let Some(election) = election {
                m.election = Some(election);
            }
        });
        self.info(
            21_331,
            "Transition to primary complete; database writes are now permitted",
            &doc! { "term": term },
        );
    }

    /// Syncs the log if this member is alone: with nobody else to wait for, a record that the core asks for
    /// can be durable, and so committed, at once.
    pub(super) fn settle_alone(&mut self) -> Result<()> {
        if self.is_alone() {
            self.when_there_is_room("the log of the set", || self.store().sync())?;
        }
        Ok(())
    }
}

/// `None` while a full disk keeps the log closed: it is opened again when there is room.
pub(super) fn unless_full<T>(asked: Result<T>) -> Result<Option<T>> {
    match asked {
        Err(e) if e.code() == Code::OutOfDiskSpace => Ok(None),
        other => other.map(Some),
    }
}
