//! What the core says is to be done, and how it is done.
//!
//! Invariant: effects are carried out in their order, and before anything else is given to the core.

use super::{Driver, answer, fatal};
use crate::frame::Record;
use crate::lifecycle::Restart;
use crate::role::Role;
use crate::set::Election;
use crate::world::Mistake;
use crate::{initial_sync, rollback};
use muniment_consensus::{ConfigRecord, Effect, LocalState, Role as CoreRole};
use muniment_logger::now_ms;
use muniment_op::NeverInterrupted;
use muniment_storage::Record as LogRecord;
use muniment_value::{Code, Error, Result, doc};

impl Driver {
    pub(super) fn effects(&mut self) -> Result<()> {
        while let Some(effect) = self.core.next_effect() {
            self.carry_out(effect)?;
        }
        Ok(())
    }

    pub(super) fn carry_out(&mut self, effect: Effect) -> Result<()> {
        match effect {
            Effect::Save(state) => self.save(&state)?,
            Effect::CloseDoor => self.close_door()?,
            Effect::OpenDoor { term, no_op } => self.open_door(term, no_op)?,
            Effect::Append { first, last } => self.append(first, last)?,
            Effect::Write(record) => {
                // The storage's commit door checks all else, but cannot read a configuration record.
                if ConfigRecord::decode(&record).is_none() {
                    return Err(Error::internal(
                        "a configuration was not written, since its record could not be read",
                    ));
                }
                let version = self.core.in_force().config.version as i64;
                let told = doc! { "msg": "Reconfig set", "version": version };
                let note = doc! { "op": "n", "ns": "", "o": told };
                let commit = self.when_there_is_room("the configuration", || {
                    self.store()
                        .commit_config(&record, note.as_doc(), &NeverInterrupted)
                })?;
                self.configs.push((commit.index, record));
                self.settle_alone()?;
                self.note_appended()?;
            }
            Effect::Send(message) => {
                if let Some(link) = self.peers.get_mut(&message.to) {
                    link.send(message);
                }
            }
            Effect::Committed(index) => {
                let all = self.makes(Mistake::CommitAll).then_some(self.told);
                self.store()
                    .set_committed(all.map_or(index, |all| all.max(index)))?;
                self.moved = true;
            }
            Effect::Role { role, term, leader } => self.take_role(role, term, leader),
            Effect::Config(in_force) => self.take_config(&in_force)?,
            Effect::Readable { token, .. } => {
                if let Some(outcome) = self.confirms.remove(&token) {
                    answer(&outcome, Ok(()));
                }
            }
            Effect::Outcome { token, result } => {
                if let Some(outcome) = self.outcomes.remove(&token) {
                    // As in `done`: the thread that asked is to find it done.
                    self.publish();
                    answer(&outcome, result);
                }
            }
            Effect::FarBehind(member) => self.info(
                21_783,
                "A member needs more of the log than is kept",
                &doc! { "member": member as i64 },
            ),
            // The directory that the copy is to replace is locked. The leader will ask for it again.
            Effect::InitialSync { .. } if self.sets_aside() => {}
            // A copy would fill the disk over and over, and this member would answer nobody meanwhile.
            Effect::InitialSync { .. } if self.node.is_full() => {}
            Effect::InitialSync { from, at_least } => {
                initial_sync::begin(&self.set, &self.node, from, at_least)?
            }
            Effect::Restart { .. } => {
                self.restart(Restart::Storage);
            }
        }
        Ok(())
    }

    pub(super) fn save(&self, state: &LocalState) -> Result<()> {
        let state = &self.as_of_log(state)?;
        if let Some(behind) = state.cut {
            // The files come before the state: a crash in between would lose what is cut without a trace.
            let home = &self.set.home;
            let written = self.when_there_is_room("what is rolled back", || {
                rollback::write(&home.engine, &home.machine, &home.dbpath, behind)
            });
            let (files, documents) = match written {
                // The log no longer tells what is rolled back: an error would keep the member out for ever.
                Err(e) if e.code() == Code::ChangeStreamHistoryLost => {
                    self.warn("what is rolled back could not be written to files", &e);
                    Default::default()
                }
                other => other?,
            };
            let attr = doc! {
                "cutBehind": behind as i64,
                "documents": documents as i64,
                "files": files.join(", "),
            };
            let giving_up = "Rollback: giving up what lost an election";
            self.info(21_612, giving_up, &attr);
        }
        match self.file.write(state) {
            // A sole voter goes on: only a primary's writes make room, and nobody else's vote counts.
            Err(e) if e.code() == Code::OutOfDiskSpace && self.votes_alone() => {
                self.warn("the state of the election could not be stored", &e);
                Ok(())
            }
            Err(e) if e.code() == Code::OutOfDiskSpace => {
                self.when_there_is_room("the state", || self.file.write(state))
            }
            other => other,
        }
    }

    pub(super) fn close_door(&mut self) -> Result<()> {
        self.set.no_primary(&*self.host);
        // A leader that hands over leads until another member takes over: most threads that wait for a
        // write concern have it by then, instead of being told that the leadership ended.
        if self.core.role() != CoreRole::Leader {
            self.node.set_leads(false);
        }
        self.store().close_door();
        self.host.end_transactions();
        self.note_appended()?;
        self.core.door_closed().map_err(fatal)
    }

    pub(super) fn open_door(&mut self, term: u64, no_op: Option<u64>) -> Result<()> {
        self.has_nothing_aside()?;
        let before = self.positions()?.unwrap_or_default().applied;
        let began_ms = now_ms();
        self.host.begin_leading();
        self.when_there_is_room("the log", || self.store().open_door(term))?;
        self.node.set_leads(true);
        if no_op.is_some() {
            // On a full disk there is no primary until there is room for the record with which a
            // term begins.
            self.when_there_is_room("the election of this member", || {
                self.store().commit_nothing(&NeverInterrupted)
            })?;
            self.settle_alone()?;
        }
        self.note_appended()?;
        self.show_primary(no_op.map(|_| Election {
            reason: self.reason(),
            before: (before.at, before.term as i64),
            at: self.set.home.engine.store.visible(),
            began_ms,
            ready_ms: now_ms(),
        }));
        self.moved = true;
        crate::set::became_primary(&self.set, &self.host);
        Ok(())
    }

    pub(super) fn append(&mut self, first: u64, last: u64) -> Result<()> {
        if self.sets_aside() {
            return self.set_aside(first, last);
        }
        let wanted = first..=last;
        let records: Vec<LogRecord<'_>> = self
            .records
            .iter()
            .filter(|r| wanted.contains(&r.index))
            .map(Record::as_logged)
            .collect();
        match self.put_into_log(&records) {
            Err(e) if e.code() == Code::OutOfDiskSpace => return self.go_on_without(&e),
            other => other?,
        }
        self.told = last;
        self.moved = true;
        self.persist();
        if self.set.member().role == Role::Startup2 {
            // A member that gets the log from its beginning needs no copy.
            self.set.change(|m| m.role = Role::Secondary);
        }
        Ok(())
    }

    /// Appends records to the log and applies them.
    pub(super) fn put_into_log(&self, records: &[LogRecord<'_>]) -> Result<()> {
        let before = self.store().config_followed();
        self.store().append_replicated(records, &NeverInterrupted)?;
        // Settings are taken over before anybody is told that the records are applied.
        if self.store().config_followed() != before {
            self.host.take_settings();
        }
        Ok(())
    }

    pub(super) fn restart(&mut self, how: Restart) {
        self.done = true;
        self.node.set_leads(false);
        self.set.home.lifecycle.request_restart(how);
    }
}
