//! The driver's part on the other members: the ways to them, and what they tell each other of how
//! they are.

use super::link::Link;
use super::{Driver, ELECTION_TICKS, places};
use crate::log::Severity;
use crate::log::now_ms;
use crate::replica_set::peer::To;
use crate::replica_set::prove::Caller;
use crate::replica_set::report::{HeardOf, Report};
use crate::replica_set::{Ahead, Role, SetConfig};
use muniment_repl::{InForce, MemberId, Role as CoreRole};
use muniment_value::{Code, Doc, Error, Result, doc};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Driver {
    /// Has a way to every other member of a configuration, and to nobody else.
    pub(super) fn connect_to_others(
        &mut self,
        config: &SetConfig,
        in_force: &InForce,
    ) -> Result<()> {
        let others: BTreeMap<MemberId, String> = in_force
            .config
            .members
            .iter()
            .filter(|m| m.id != self.node.id)
            .filter_map(|m| Some((m.id, config.member(m.key)?.host.clone())))
            .collect();
        let version = in_force.config.version;
        let mut ahead = BTreeMap::new();
        if let Some(set) = &self.server.replica_set {
            set.change(&self.server, |m| {
                m.ahead.retain(|_, ahead| ahead.version > version);
                ahead.clone_from(&m.ahead);
            });
        }
        self.peers.retain(|id, link| {
            ahead.contains_key(id) || others.get(id).is_some_and(|host| host == link.way.host())
        });
        for (id, host) in others {
            if !self.peers.contains_key(&id) {
                self.connect_to(id, host, config, in_force)?;
            }
        }
        self.delay_others();
        Ok(())
    }

    fn connect_to(
        &mut self,
        id: MemberId,
        host: String,
        config: &SetConfig,
        in_force: &InForce,
    ) -> Result<()> {
        let to = To {
            id,
            greeting: crate::replica_set::greeting(config, in_force, self.node.id, id),
            dialled: self.server.parameters.routes.read().to(&host).to_string(),
            caller: Caller::of(&self.server),
            host,
            patience: self.patience(),
            silence: self.tick_length() * ELECTION_TICKS as u32,
        };
        let way = self.server.ways.to(to, self.store())?;
        self.peers.insert(id, Link::new(way));
        Ok(())
    }

    /// A member that this one does not know yet is answered all the same: it may lead, and without
    /// an answer could never send the records of the configuration that it is in.
    pub(super) fn greeted(&mut self, from: MemberId, newer: &InForce) -> Result<()> {
        let now = Arc::clone(self.core.in_force());
        if self.peers.contains_key(&from) || newer.config.version <= now.config.version {
            return Ok(());
        }
        let Ok(theirs) = SetConfig::parse(Doc::new(&newer.config.document)) else {
            return Ok(());
        };
        let key = newer.config.member(from).map(|m| m.key);
        let member = key.and_then(|key| theirs.member(key));
        let set = self.server.replica_set.as_ref();
        let (Some(member), Some(config), Some(set)) = (member, self.config(), set) else {
            return Ok(());
        };
        let ahead = Ahead {
            version: newer.config.version,
            host: member.host.clone(),
        };
        set.change(&self.server, |m| _ = m.ahead.insert(from, ahead));
        self.connect_to(from, member.host.clone(), &config, &now)
    }

    /// Has those wait for the log whose configuration says so. Who joins gets it at once until it has
    /// joined: it has nothing to look back at before.
    pub(super) fn delay_others(&mut self) {
        let Some(config) = self.config() else {
            return;
        };
        let in_force = Arc::clone(self.core.in_force());
        let mut longest = 0;
        for (id, link) in &self.peers {
            let member = in_force.config.member(*id);
            let delay = member.and_then(|m| config.member(m.key));
            let delay = delay.map_or(0, |m| m.delay_secs);
            longest = longest.max(delay);
            let waits_for_vote = member.is_some_and(|m| m.votes) && !in_force.voters.contains(id);
            let joins =
                waits_for_vote || self.node.heard.lock().of(*id).is_some_and(HeardOf::joins);
            let now = if joins { 0 } else { delay };
            link.way.set_delay(now);
            self.core.delayed(*id, delay > 0, now > 0);
        }
        // Who does not find it when it is due has to copy everything anew.
        let kept = Duration::from_secs(u64::from(longest)) + self.patience() * 6;
        let kept = if longest == 0 { Duration::ZERO } else { kept };
        self.store().keep_log_for_others(kept);
    }

    pub(super) fn heard(&mut self, report: Report) -> Result<()> {
        let from = report.from;
        self.core
            .syncing(from, report.state == Role::Startup2.state().0);
        let recovers = report.state == Role::Recovering.state().0;
        self.core.abstain(from, report.abstains || recovers);
        let told = muniment_repl::Report {
            term: report.term as u64,
            log_term: report.log_term,
            position: report.position,
        };
        let met = report.met;
        if self.role.2 == Some(from) {
            self.heard_calm(report.calm);
        }
        let patience = self.patience();
        let (now, clock) = self.clock();
        self.node
            .heard
            .lock()
            .note(report, now, clock, now_ms(), patience);
        self.core.report(from, told);
        if met {
            self.core.reached(from);
        }
        self.effects()
    }

    /// The time, and the same in microseconds of the own clock, which reports tell.
    fn clock(&self) -> (Instant, i64) {
        let now = self.instant();
        let since = now.saturating_duration_since(self.began).as_micros();
        (now, i64::try_from(since).unwrap_or(i64::MAX))
    }

    pub(super) fn patience(&self) -> Duration {
        let secs = self.config().map_or(10, |c| c.heartbeat_timeout_secs);
        Duration::from_secs(u64::try_from(secs).unwrap_or(10).max(1))
    }

    /// Tells the others how this member is: the leader at once when something moved, all of them
    /// now and then.
    pub(super) fn report(&mut self) -> Result<()> {
        let every = self.report_every();
        let since = self.now.saturating_duration_since(self.reported);
        let due = since >= every || self.is_to_tell_of_calm();
        if !due && !self.moved && self.met.is_empty() {
            return Ok(());
        }
        let (role, _, leader) = self.role;
        let to_all = due || role == CoreRole::Leader && since >= every / 4;
        let calm = self.is_calm();
        if to_all {
            // Also where it cannot be said now: later ones say it, too.
            self.told_all(calm);
        }
        let Some(set) = &self.server.replica_set else {
            return Ok(());
        };
        let member = set.member();
        let Some(p) = self.positions()? else {
            return Ok(());
        };
        let (now, sent) = self.clock();
        for (id, link) in &mut self.peers {
            let met = self.met.contains(id);
            let moved = self.moved && Some(*id) == leader;
            if !to_all && !moved && !met {
                continue;
            }
            let report = Report {
                from: self.node.id,
                calm,
                abstains: self.core.abstains(),
                met,
                term: self.core.term() as i64,
                log_term: p.appended.term,
                position: places(&p),
                applied_at: (p.applied.at, p.applied.term as i64),
                durable_at: (p.durable.at, p.durable.term as i64),
                state: member.role.state().0,
                config: member
                    .config
                    .as_ref()
                    .map_or((0, -1), |c| (c.version, c.term.unwrap_or(-1))),
                elected_at: (member.role == Role::Primary)
                    .then(|| member.election.map(|e| e.at))
                    .flatten(),
                follows: leader,
                sent,
                echo: self.node.heard.lock().echo(*id, now),
            };
            link.report(report.to_doc());
        }
        if to_all {
            self.reported = self.now;
        }
        self.moved = false;
        self.met.clear();
        Ok(())
    }

    /// All the others are told how this member is at least as often.
    pub(super) fn report_every(&self) -> Duration {
        let every = self.config().map_or(2000, |c| c.heartbeat_ms);
        Duration::from_millis(u64::try_from(every).unwrap_or(2000))
    }

    pub(super) fn look_after_peers(&mut self) {
        self.delay_others();
        let now: BTreeMap<MemberId, Error> = self
            .peers
            .iter()
            .filter_map(|(id, link)| Some((*id, link.way.trouble()?)))
            .collect();
        let before = std::mem::replace(&mut *self.node.troubles.lock(), now.clone());
        let refused = |e: &Error| e.code() == Code::AuthenticationFailed;
        for (id, e) in now.iter().filter(|(_, e)| refused(e)) {
            if !before.get(id).is_some_and(refused) {
                let host = self.peers.get(id).map_or("", |link| link.way.host());
                self.refused(host, e);
            }
        }
    }

    /// Said once: it is tried again and again.
    fn refused(&self, host: &str, e: &Error) {
        self.server.log.log(
            Severity::Warning,
            "REPL",
            23_715,
            "ReplCoord",
            "A member and this one do not prove to each other that they know the key of the set",
            Some(&doc! { "member": host, "error": e.to_string() }),
        );
    }
}
