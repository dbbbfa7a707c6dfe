//! One turn of the driver: what came is handled, the core is told how far the log is, time passes, and the
//! others hear of what moved.

use super::pace::{LONGEST_TICK, TICKS, times_of};
use super::room::unless_full;
use super::{Driver, Event, TIMEOUT, answer};
use crate::config::SetConfig;
use crate::world::Mistake;
use muniment_consensus::{Appended, Kind, Position, Refusal, Role as CoreRole};
use muniment_storage::Positions;
use muniment_value::Result;
use std::time::{Duration, Instant};

/// Once a turn takes longer than this, messages are sent after each event instead of at its end.
const LONG: Duration = Duration::from_millis(5);

impl Driver {
    /// Does what comes before the first turn.
    pub fn begin(&mut self, now: Instant) -> Result<()> {
        self.effects()?;
        self.lead_alone(TIMEOUT)?;
        (self.now, self.next) = (now, now);
        self.begin_tick();
        self.flush();
        Ok(())
    }

    /// Does what follows from what came, from what is new in the log, and from the time.
    ///
    /// # Errors
    /// After any error the driver must not go on.
    pub fn turn(&mut self, events: Vec<Event>, now: Instant) -> Result<()> {
        self.now = now;
        for event in events {
            self.handle(event)?;
            if self.done {
                // The core's state is no longer this member's, so that nobody is told of it.
                self.flush();
                return Ok(());
            }
            // In a long turn other members would otherwise wait for answers that are ready.
            if self.instant().saturating_duration_since(now) > LONG {
                self.flush();
            }
        }
        self.settle_still()?;
        self.note_log()?;
        if now >= self.next {
            self.tick()?;
        }
        self.tell_others()
    }

    /// Takes a turn for nothing but new records, which are sent. New records alone commit nothing, so the
    /// calling thread is not held up by what follows from a commit.
    ///
    /// # Errors
    /// After any error the driver must not go on.
    pub fn short_turn(&mut self, now: Instant) -> Result<()> {
        self.now = now;
        self.note_appended()?;
        self.effects()?;
        if let Some(p) = self.positions()? {
            self.note_places(&p)?;
        }
        self.tell_others()
    }

    /// Tells the other members, and the threads that wait here, what has moved.
    pub(super) fn tell_others(&mut self) -> Result<()> {
        self.look_who_waits();
        // A core that was given up describes a log that is no longer this member's.
        if !self.done {
            self.report()?;
            self.publish();
        }
        self.flush();
        Ok(())
    }

    /// Sends what was given to the ways to other members, and only then has the log synced: syncing first
    /// would compete with the sender for the CPU. What is held back for more to join it stays for later.
    pub(super) fn flush(&mut self) {
        self.send();
        self.sync_when_due();
        if self.oversleeps() {
            self.node.inbox.sooner();
        }
    }

    pub(super) fn tick(&mut self) -> Result<()> {
        // This comes before the core could campaign: the member may have been locked while it had no driver.
        self.abstain();
        self.look_at_room();
        if !self.node.is_syncing() {
            self.look_for_leader();
            self.count_tick();
            self.effects()?;
            self.lead_alone("singleNodePromptElection")?;
        }
        if self.core.role() != CoreRole::Leader {
            for outcome in std::mem::take(&mut self.confirms).into_values() {
                answer(&outcome, Err(Refusal::NotLeader));
            }
        }
        self.begin_tick();
        self.look_after_peers()?;
        self.look_for_own_address()?;
        self.measure_distances();
        if let Some(begins) = unless_full(self.store().log_begins_behind())? {
            self.core.trimmed(begins.index + 1);
            self.effects()?;
        }
        Ok(())
    }

    pub(super) fn publish(&self) {
        let (committed, applied) = (self.core.committed(), self.core.applied());
        let leads = self.core.role() == CoreRole::Leader;
        let leading = leads.then(|| self.core.term());
        self.node
            .publish(self.core.members(), committed, applied, leading);
    }

    /// Tells the core of what is new in the log, of what is durable, and of what this member's readers
    /// see. A record may be durable, or not yet visible, when the core is told of it: what it was told
    /// of each is remembered apart.
    pub(super) fn note_log(&mut self) -> Result<()> {
        self.note_appended()?;
        self.effects()?;
        let Some(p) = self.positions()? else {
            return Ok(());
        };
        let durable = p.durable.index.min(self.told);
        if durable > self.durable {
            self.durable = durable;
            self.moved = true;
            self.core.persisted(durable);
            self.effects()?;
        }
        self.note_places(&p)
    }

    /// Tells the core how far this member itself is, if that has changed.
    pub(super) fn note_places(&mut self, p: &Positions) -> Result<()> {
        let now = places(p);
        if now != self.noted {
            self.noted = now;
            let mine = muniment_consensus::Report {
                term: self.core.term(),
                log_term: p.appended.term,
                position: now,
            };
            self.core.report(self.node.id, mine);
            self.effects()?;
        }
        Ok(())
    }

    pub(super) fn note_appended(&mut self) -> Result<()> {
        let position = self.store().appended()?;
        if position.index <= self.told {
            return Ok(());
        }
        let term = position.term;
        let records = (self.told + 1..=position.index).map(|index| {
            let config = self.configs.iter().find(|(at, _)| *at == index);
            Appended {
                index,
                term,
                kind: config.map_or(Kind::Plain, |(_, record)| Kind::Config(record.clone())),
            }
        });
        let records = records.collect();
        self.told = position.index;
        self.configs.retain(|(at, _)| *at > position.index);
        self.core.appended(records);
        self.persist();
        Ok(())
    }

    /// How far the log is; `None` while a full disk keeps it from being there at all.
    pub(super) fn positions(&self) -> Result<Option<Positions>> {
        let mut positions = unless_full(self.store().position())?;
        if self.makes(Mistake::AcknowledgeEarly)
            && let Some(p) = &mut positions
        {
            p.durable = p.appended;
        }
        Ok(positions)
    }

    /// The core's clock goes on to the end of the tick, and the next one begins.
    pub(super) fn count_tick(&mut self) {
        self.core.pass(self.tick);
    }

    /// The next tick begins. It ends when something is due, and after a regular tick at the latest.
    pub(super) fn begin_tick(&mut self) {
        let longest = LONGEST_TICK.as_millis() as u64;
        let regular = (self.times.election / TICKS).clamp(1, longest);
        self.tick = regular.min(self.core.due_in());
        // After a long pause the process does not catch up on the ticks that it missed.
        self.next = (self.next + Duration::from_millis(self.tick)).max(self.now);
    }

    /// Takes over how long members wait for each other by the configuration in force.
    pub(super) fn set_times(&mut self, config: &SetConfig) {
        let times = times_of(config);
        if std::mem::replace(&mut self.times, times).answer != times.answer {
            // The ways are kept and not made anew: what is on its way may be this very configuration.
            for link in self.peers.values() {
                link.way.set_silence(self.answer_time());
            }
        }
        self.core.set_times(times);
    }

    /// A member that does not answer within this time counts as gone.
    pub(super) fn answer_time(&self) -> Duration {
        Duration::from_millis(self.times.answer)
    }
}

/// The storage's positions, as the consensus counts them.
pub(super) fn places(p: &Positions) -> Position {
    Position {
        written: p.appended.index,
        applied: p.applied.index,
        durable: p.durable.index,
    }
}
