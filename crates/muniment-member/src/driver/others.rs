//! The driver's part on the other members: the ways to them, and what they tell each other of how
//! they are.

use super::Driver;
use super::link::Link;
use super::turn::places;
use crate::greeting::{Greeting, is_going, own_address};
use crate::peer::To;
use crate::report::{HeardOf, Report};
use crate::{Ahead, Role, SetConfig, wall_ms};
use muniment_consensus::{InForce, MemberId, Role as CoreRole};
use muniment_logger::{Severity, now_ms};
use muniment_value::{Code, Doc, DocBuf, Error, Result, doc};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Driver {
    /// Makes sure that there is a way to every other member of a configuration and to those that still
    /// vote, and none to anybody else.
    pub(super) fn connect_to_others(
        &mut self,
        config: &SetConfig,
        in_force: &InForce,
    ) -> Result<()> {
        let members = in_force.config.members.iter();
        let others = members.filter_map(|m| Some((m.id, config.member(m.key)?.host.clone())));
        // Members that are to go but still vote may be needed to commit that they go.
        let going = in_force.config.going().into_iter();
        let going = going.filter(|(id, _)| is_going(in_force, *id));
        let others: BTreeMap<MemberId, String> = others
            .chain(going)
            .filter(|(id, _)| *id != self.node.id)
            .collect();
        let version = in_force.config.version;
        let own = own_address(self.set.home.address.port, &in_force.config, self.node.id);
        let mut ahead = BTreeMap::new();
        self.set.change(|m| {
            m.ahead.retain(|_, ahead| ahead.version > version);
            ahead.clone_from(&m.ahead);
        });
        self.peers.retain(|id, link| {
            let same = |host: &String| host == link.way.host() && link.told == own;
            // Committing that a member goes may need the acknowledgement of that very member.
            let goes = is_going(in_force, *id) && !others.contains_key(id);
            ahead.contains_key(id) || goes || others.get(id).is_some_and(same)
        });
        for (id, host) in others {
            match self.peers.get(&id) {
                None => self.connect_to(id, host, config, in_force)?,
                // A way that is opened again greets with the configuration of that time: a server takes the
                // number that it is addressed by only if the caller's configuration is newer than its own.
                Some(link) if !ahead.contains_key(&id) => {
                    *link.greeting.lock() = self.greeting(id, config, in_force);
                }
                Some(_) => {}
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
        let greeting = Arc::new(Mutex::new(self.greeting(id, config, in_force)));
        let to = To {
            id,
            greeting: Arc::clone(&greeting),
            dialled: self.set.home.parameters.routes.to(&host),
            caller: self.set.caller(),
            host,
            patience: self.patience(),
            silence: self.answer_time(),
        };
        let way = self.set.home.ways.to(to, self.store())?;
        let own = own_address(self.set.home.address.port, &in_force.config, self.node.id);
        self.peers.insert(id, Link::new(way, own, greeting));
        Ok(())
    }

    /// The command that opens a way to this member.
    fn greeting(&self, to: MemberId, config: &SetConfig, in_force: &InForce) -> DocBuf {
        let greeting = Greeting {
            set: config.id,
            from: self.node.id,
            to,
            host: own_address(self.set.home.address.port, &in_force.config, self.node.id),
            in_force: in_force.clone(),
        };
        doc! { "_replSetStream": config.name.as_str(), "greeting": greeting.to_doc() }
    }

    /// A member that this one does not know yet, or knows at another address, is answered all the same: it
    /// may lead, and without an answer could never send the records of the configuration that it is in. A
    /// configuration that was forced is in no log, so this member takes it from the greeting, unless it is
    /// joining the set: then it takes part in nothing, gets its configuration with the copy, and only has to
    /// find the others.
    pub(super) fn greeted(&mut self, from: MemberId, newer: &InForce) -> Result<()> {
        if newer.config.version <= self.core.in_force().config.version {
            return Ok(());
        }
        let joins = self.core.in_force().voters.is_empty();
        if newer.config.is_forced() && !joins {
            return self.take_forced(newer);
        }
        self.node.hear_of(newer);
        let Ok(theirs) = SetConfig::parse(Doc::new(&newer.config.document)) else {
            return Ok(());
        };
        let key = newer.config.member(from).map(|m| m.key);
        let member = key.and_then(|key| theirs.member(key));
        let (Some(member), Some(config)) = (member, self.config()) else {
            return Ok(());
        };
        let ahead = Ahead {
            version: newer.config.version,
            host: member.host.clone(),
        };
        let own = own_address(self.set.home.address.port, &newer.config, self.node.id);
        let same = |link: &Link| link.way.host() == member.host && link.told == own;
        if self.peers.get(&from).is_some_and(same) {
            return Ok(());
        }
        self.set.change(|m| _ = m.ahead.insert(from, ahead));
        self.connect_to(from, member.host.clone(), &config, newer)
    }

    /// Delays the log for the members whose configuration says so. A member that joins gets it at once until
    /// it has joined: before that it has no older data for the delay to preserve.
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
        // A delayed member that no longer finds a record when it is due has to copy everything anew.
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
        self.core.full(from, report.full);
        let told = muniment_consensus::Report {
            term: report.term as u64,
            log_term: report.log_term,
            position: report.position,
        };
        let met = report.met;
        self.told_of_leader(from, told.term, report.follows);
        if self.role.2 == Some(from) {
            self.heard_calm(report.calm);
        }
        let patience = self.patience();
        let (now, clock) = self.clock();
        let joins = |driver: &Driver| {
            driver
                .node
                .heard
                .lock()
                .of(from)
                .is_some_and(HeardOf::joins)
        };
        let joined = joins(self);
        self.node
            .hear(|heard| heard.note(report, now, clock, now_ms(), patience));
        if joined && !joins(self) {
            // What is written from here on is to come late.
            self.delay_others();
        }
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
        let due = since >= every || self.is_to_tell_of_calm() || self.tells_all;
        if !due && !self.moved && self.met.is_empty() {
            return Ok(());
        }
        let (role, _, leader) = self.role;
        let to_all = due || role == CoreRole::Leader && since >= every / 4;
        let calm = self.is_calm();
        if to_all {
            // This is noted even if nothing can be sent below: later reports say it, too.
            self.told_all(calm);
        }
        let member = self.set.member();
        let Some(p) = self.positions()? else {
            return Ok(());
        };
        let (now, sent) = self.clock();
        let wall = |at| wall_ms(self.store(), at);
        let walls = (wall(p.applied.at), wall(p.durable.at));
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
                full: self.node.is_full(),
                met,
                term: self.core.term() as i64,
                log_term: p.appended.term,
                position: places(&p),
                applied_at: (p.applied.at, p.applied.term as i64),
                durable_at: (p.durable.at, p.durable.term as i64),
                walls,
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
            self.tells_all = false;
        }
        self.moved = false;
        self.met.clear();
        Ok(())
    }

    /// All the others are told how this member is at least this often.
    pub(super) fn report_every(&self) -> Duration {
        let every = self.config().map_or(2000, |c| c.heartbeat_ms);
        let every = Duration::from_millis(u64::try_from(every).unwrap_or(2000));
        // A member that is silent for the whole patience counts as down.
        every.min(self.patience() / 2)
    }

    pub(super) fn look_after_peers(&mut self) -> Result<()> {
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
        now.values().try_for_each(|e| self.refused_with(e))
    }

    /// Logs that a member refuses this one. That is logged once, although every attempt to connect may fail
    /// in this way.
    fn refused(&self, host: &str, e: &Error) {
        self.set.home.log.log(
            Severity::Warning,
            "REPL",
            23_715,
            "ReplCoord",
            "A member and this one do not prove to each other that they know the key of the set",
            Some(&doc! { "member": host, "error": e.to_string() }),
        );
    }
}
