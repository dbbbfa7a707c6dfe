//! When the log is synced for the set.
//!
//! A majority counts what is durable, so while a client waits for a majority each record is synced at
//! once, here and at the other members. Otherwise, when all that clients wait for is that members have
//! their writes, records are gathered for [`SPAN`]: a sync for each, and telling each other of it, would
//! take more of the processors than the writes themselves. The primary knows which clients wait. It tells
//! the others with its reports whether it is calm: no client has waited for [`CALM`]. When that changes it
//! says so at once. A reader at another member that waits for what the majority has, as a change stream
//! does, is not known to the primary, and may wait longer by the time of gathering.
//!
//! Invariant: what is to be synced is synced after [`SPAN`] at the latest, whatever the leader has said.

use super::Driver;
use muniment_consensus::Role as CoreRole;
use std::time::{Duration, Instant};

/// Records are gathered for so long before a sync that no client waits for.
const SPAN: Duration = Duration::from_millis(2);
/// When no client has waited for so long, none is expected to.
const CALM: Duration = Duration::from_millis(20);

/// What is to be synced, and how soon.
pub struct Syncs {
    /// When the log is to be synced.
    due: Option<Instant>,
    /// A client waits for what is durable.
    waits: bool,
    /// When a client was last seen to wait; `None`: long ago.
    wanted: Option<Instant>,
    /// Whether the leader was calm by its last report.
    leader_is_calm: bool,
    /// This member, which leads, has told the others that it is calm.
    told_calm: bool,
}

impl Syncs {
    pub fn new() -> Syncs {
        Syncs {
            due: None,
            waits: false,
            wanted: None,
            leader_is_calm: false,
            told_calm: false,
        }
    }

    /// A client waits, seen at the time `now`.
    fn want(&mut self, now: Instant) {
        self.wanted = Some(now);
        self.hurry(now);
    }

    /// Makes what is gathered due now.
    fn hurry(&mut self, now: Instant) {
        self.due = self.due.map(|due| due.min(now));
    }

    /// From when on it is calm if no client comes; `None`: it has been for long.
    fn calm_from(&self) -> Option<Instant> {
        self.wanted.map(|wanted| wanted + CALM)
    }

    fn is_calm(&self, now: Instant) -> bool {
        self.calm_from().is_none_or(|from| from <= now)
    }

    /// The log has something new. `leads`: whether this member leads.
    fn note(&mut self, now: Instant, leads: bool) {
        let gathers = self.is_calm(now) && (leads || self.leader_is_calm);
        let due = if gathers { now + SPAN } else { now };
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// Whether the log is to be synced at the time `now`, once.
    fn take(&mut self, now: Instant) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }
}

impl Driver {
    /// Has the log synced soon, with a [`Driver::flush`], if there are other members to hear of it.
    pub(super) fn persist(&mut self) {
        if !self.is_alone() {
            self.look_who_waits();
            let leads = self.leads();
            self.syncs.note(self.now, leads);
        }
    }

    /// Calls for the sync once it is due.
    pub(super) fn sync_when_due(&mut self) {
        let Some(due) = self.syncs.due else {
            return;
        };
        let now = if due <= self.now {
            self.now
        } else {
            self.instant()
        };
        if self.syncs.take(now) {
            self.node.persister.call();
        }
    }

    /// When the log is to be synced, if it is.
    pub(super) fn synced_by(&self) -> Option<Instant> {
        self.syncs.due
    }

    /// When the others are to hear that it is calm.
    pub(super) fn calm_from(&self) -> Option<Instant> {
        // While a client waits there will be another turn.
        let open = !self.syncs.told_calm && !self.syncs.waits;
        let tells = open && self.leads() && !self.is_alone();
        tells.then(|| self.syncs.calm_from()).flatten()
    }

    /// Sees whether a client waits for what is durable.
    pub(super) fn look_who_waits(&mut self) {
        self.syncs.waits = self.node.take_wanted() || self.store().is_watched();
        if self.syncs.waits {
            self.syncs.want(self.now);
        }
    }

    /// Takes from the leader's report whether it is calm.
    pub(super) fn heard_calm(&mut self, is_calm: bool) {
        self.syncs.leader_is_calm = is_calm;
        if !is_calm {
            self.syncs.hurry(self.now);
        }
    }

    /// After a change of the leader it is not known yet whether the new one is calm: it counts as not calm.
    pub(super) fn forget_calm(&mut self) {
        self.syncs.leader_is_calm = false;
        self.syncs.told_calm = false;
        self.syncs.want(self.now);
    }

    /// Whether this member's report is to say that it is calm.
    pub(super) fn is_calm(&self) -> bool {
        self.leads() && self.syncs.is_calm(self.now)
    }

    /// Whether the others believe something else.
    pub(super) fn is_to_tell_of_calm(&self) -> bool {
        self.leads() && self.syncs.told_calm != self.is_calm()
    }

    /// All the others are told whether this member is calm.
    pub(super) fn told_all(&mut self, is_calm: bool) {
        self.syncs.told_calm = is_calm;
    }

    fn leads(&self) -> bool {
        self.role.0 == CoreRole::Leader
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_waits_for_is_gathered_and_then_synced_once() {
        let (mut s, now) = (Syncs::new(), Instant::now());
        assert!(!s.take(now));
        s.note(now, true);
        s.note(now + SPAN / 2, true);
        assert!(!s.take(now + SPAN / 2) && s.due == Some(now + SPAN));
        assert!(s.take(now + SPAN) && !s.take(now + SPAN));
    }

    #[test]
    fn while_somebody_waits_each_record_is_synced_at_once() {
        let (mut s, mut now) = (Syncs::new(), Instant::now());
        // A client that comes does not wait until the time of gathering is over.
        s.note(now, true);
        assert!(!s.take(now));
        s.want(now);
        assert!(s.take(now));
        s.note(now, true);
        assert!(s.take(now));
        now += CALM - SPAN / 2;
        s.note(now, true);
        assert!(s.take(now));
        now += SPAN;
        s.note(now, true);
        assert!(!s.take(now) && s.take(now + SPAN));
    }

    #[test]
    fn who_follows_gathers_when_the_leader_is_calm() {
        let (mut s, now) = (Syncs::new(), Instant::now());
        s.note(now, false);
        assert!(s.take(now));
        s.leader_is_calm = true;
        s.note(now, false);
        assert!(!s.take(now));
        s.hurry(now);
        assert!(s.take(now));
        // A client waits at this member, too.
        s.want(now);
        s.note(now, false);
        assert!(s.take(now));
    }
}
