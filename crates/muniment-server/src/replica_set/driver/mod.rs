//! What drives the consensus: it gives the core what happened, and does what the core says.
//!
//! Everything that reaches it goes through its [`Inbox`]: what other members say, requests of
//! commands, how far log and disk are. It alone owns the core, the state file and the ways to the
//! other members, so none of them has a lock but the one on the driver. What it does when something
//! reached it, or time has passed, is a [`Driver::turn`]. Its thread takes it, or who brings something
//! ([`Node::help`]), or who simulates a set in virtual time.
//!
//! Invariants: effects are carried out in their order, and before anything else is given to the
//! core; what cannot be carried out (a state that cannot be saved, a record that cannot be applied)
//! ends the process, because nobody may go on from half of it. Must not wait for another member.

mod link;
mod maintain;
mod others;
mod room;
mod syncs;

use super::frame::Record;
use super::node::{Node, Outcome};
use super::report::Report;
use super::{Election, Role, SetConfig, initial_sync, rollback};
use crate::failpoint::STOP_PRODUCER;
use crate::guard::{Caught, guarded};
use crate::log::{Severity, now_ms};
use crate::state::{Restart, ServerState, hostname};
use link::Link;
use muniment_query::NeverInterrupted;
use muniment_repl::{
    Appended, Core, Effect, InForce, Kind, LocalState, MemberId, Message, Occasion, Position,
    Refusal, Role as CoreRole, StateFile,
};
use muniment_storage::{Positions, Record as LogRecord};
use muniment_value::{Code, Doc, Error, Result, doc};
use room::unless_full;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};
use syncs::Syncs;

/// A follower's election timeout is so many ticks.
pub const ELECTION_TICKS: u64 = 20;
/// A leader's heartbeats are so many ticks apart.
pub const HEARTBEAT_TICKS: u64 = 2;

/// `lastElectionReason` of who heard of no leader.
const TIMEOUT: &str = "electionTimeout";

/// A turn in which messages do not wait for its end any more.
const LONG: Duration = Duration::from_millis(5);

/// What reaches the driver.
pub enum Event {
    /// A message of another member, with its records.
    Received(Message, Vec<Record>),
    /// Another member's word on itself.
    Report(Report),
    /// A member has opened its way to this one, and has a newer configuration.
    Greeted(MemberId, Box<InForce>),
    /// A member has opened its way to this one: what it was to answer before has not arrived.
    Met(MemberId),
    /// A request of a command.
    Ask(Request),
}

/// What commands ask for, and where the answer goes.
pub enum Request {
    /// `replSetStepDown`: ticks to wait for a successor, ticks not to campaign, without one too.
    StepDown(u64, u64, bool, Outcome),
    /// `replSetReconfig`.
    Reconfigure(Box<muniment_repl::Config>, Outcome),
    /// `replSetFreeze`: so many ticks.
    Freeze(u64, Outcome),
    /// `replSetMaintenance`: whether it begins, and why it does not.
    Maintain(bool, SyncSender<Result<()>>),
    /// Whether it leads: this member, which has lost what it had, does not count.
    Confirm(MemberId, Outcome),
    /// `replSetReconfig` that nobody else is asked about.
    Force(Box<muniment_repl::Config>, Outcome),
}

/// Answers who asked, if it still waits.
fn answer<T>(outcome: &SyncSender<T>, with: T) {
    let _ = outcome.send(with);
}

/// The driver.
pub struct Driver {
    server: Arc<ServerState>,
    node: Arc<Node>,
    core: Core,
    file: StateFile,
    peers: BTreeMap<MemberId, Link>,
    /// The place up to which the core was told of the log's records.
    told: u64,
    /// The place up to which it was told that they are durable.
    durable: u64,
    /// What it was told of this member's own positions.
    noted: Position,
    /// Configurations that went through the door and that the core was not told of yet.
    configs: Vec<(u64, Arc<[u8]>)>,
    /// The records of the message that is being handled.
    records: Vec<Record>,
    token: u64,
    outcomes: HashMap<u64, Outcome>,
    /// Who waits for a majority to say that this member leads: [`Request::Confirm`].
    confirms: BTreeMap<u64, Outcome>,
    role: (CoreRole, u64, Option<MemberId>),
    reported: Instant,
    /// What the times of reports count from.
    began: Instant,
    /// When the turn began.
    now: Instant,
    /// When the next tick is due.
    next: Instant,
    /// Its thread rests until then, and has to be called for anything earlier.
    rests_until: Option<Instant>,
    /// Something moved that the others are to hear of.
    moved: bool,
    /// Who is to hear that its way leads here.
    met: BTreeSet<MemberId>,
    /// When the log is to be synced.
    syncs: Syncs,
    /// Why it leads if nobody else votes.
    alone: &'static str,
    /// The configuration names this server.
    named: bool,
    done: bool,
}

impl Driver {
    /// For a core that has just begun.
    pub fn new(
        server: &Arc<ServerState>,
        node: &Arc<Node>,
        core: Core,
        file: StateFile,
        now: Instant,
    ) -> Driver {
        let last = core.last();
        let mut driver = Driver {
            server: Arc::clone(server),
            node: Arc::clone(node),
            core,
            file,
            peers: BTreeMap::new(),
            told: last,
            durable: last,
            noted: Position::default(),
            configs: Vec::new(),
            records: Vec::new(),
            token: 0,
            outcomes: HashMap::new(),
            confirms: BTreeMap::new(),
            role: (CoreRole::Follower, 0, None),
            reported: now,
            began: now,
            now,
            next: now,
            rests_until: None,
            moved: true,
            met: BTreeSet::new(),
            syncs: Syncs::new(),
            alone: TIMEOUT,
            named: true,
            done: false,
        };
        driver.abstain();
        driver
    }

    /// Runs until the server ends or has to begin again.
    pub fn run(mut self) {
        let node = Arc::clone(&self.node);
        let began = guarded(|| self.begin(self.instant()));
        self.end_with(began);
        *node.driver.lock() = Some(self);
        loop {
            let (told, due) = match node.driver.lock().as_mut() {
                Some(driver) if !driver.has_ended() => driver.rest(),
                _ => break,
            };
            node.inbox.wait(told, due);
            match node.driver.lock().as_mut() {
                // It was only called to rest for shorter.
                Some(driver) if driver.rests_on() => {}
                Some(driver) if !driver.has_ended() => {
                    driver.wake();
                    driver.turn_now();
                }
                _ => break,
            }
        }
        // What was gathered goes out with who ends.
        if let Some(driver) = node.driver.lock().as_mut() {
            driver.send_all();
        }
        // It knows the node, and the node must not go on knowing it.
        let driver = node.driver.lock().take();
        drop(driver);
    }

    /// Its thread rests: what it knows of the log, and until when.
    pub fn rest(&mut self) -> (u64, Instant) {
        let due = self.due();
        self.rests_until = Some(due);
        self.node.inbox.rests();
        (self.told, due)
    }

    /// Nothing came, and nothing is due: its thread can rest anew.
    pub fn rests_on(&self) -> bool {
        !self.has_ended() && !self.has_news() && self.instant() < self.due()
    }

    /// Its thread rests no longer.
    pub fn wake(&mut self) {
        self.rests_until = None;
    }

    /// A turn with what came. An error ends the server.
    pub fn turn_now(&mut self) {
        let events = self.came();
        let turned = guarded(|| self.turn(events, self.instant()));
        self.end_with(turned);
    }

    /// [`Driver::short_turn`], now. An error ends the server.
    pub fn turn_for_log(&mut self) {
        let turned = guarded(|| self.short_turn(self.instant()));
        self.end_with(turned);
    }

    /// A turn for nothing but new records, which are sent. By them alone nothing is committed, so that
    /// nothing follows for which who calls this would have to wait.
    ///
    /// # Errors
    /// Nobody may go on after one.
    pub fn short_turn(&mut self, now: Instant) -> Result<()> {
        self.now = now;
        self.note_appended()?;
        self.effects()?;
        if let Some(p) = self.positions()? {
            self.note_places(&p)?;
        }
        self.tell_others()
    }

    /// A primary without its driver would take writes that nobody ever acknowledges.
    fn end_with(&mut self, turned: std::result::Result<Result<()>, Caught>) {
        let turned = turned.unwrap_or_else(|caught| Err(caught.into_error("the driver")));
        let Err(e) = turned else {
            return;
        };
        self.done = true;
        // Who waited for room until the server ended has done all it could.
        let waited = e.code() == Code::OutOfDiskSpace;
        if !(waited && self.server.wait_for_stop_for(Duration::ZERO)) {
            self.fail("replication cannot go on", &e);
        }
    }

    fn instant(&self) -> Instant {
        self.server.options.machine.clock.instant()
    }

    /// What comes before the first turn.
    pub fn begin(&mut self, now: Instant) -> Result<()> {
        self.effects()?;
        self.lead_alone(TIMEOUT)?;
        (self.now, self.next) = (now, now + self.tick_length());
        self.flush();
        Ok(())
    }

    /// The server ends, or begins anew: there is no further turn.
    pub fn has_ended(&self) -> bool {
        self.done || self.node.inbox.is_stopped()
    }

    /// What came.
    pub fn came(&self) -> Vec<Event> {
        self.node.inbox.take()
    }

    /// Something came.
    pub fn has_news(&self) -> bool {
        let inbox = &self.node.inbox;
        inbox.has_news() || inbox.has_more(self.told)
    }

    /// Something that was given to a way waits for more, or so does a sync.
    #[cfg(test)]
    pub fn gathers(&self) -> (bool, bool) {
        (self.gathered_until().is_some(), self.synced_by().is_some())
    }

    /// When something that was put off is to happen.
    pub fn gathers_until(&self) -> Option<Instant> {
        let all = [self.gathered_until(), self.synced_by(), self.calm_from()];
        all.into_iter().flatten().min()
    }

    /// When there has to be a turn although nothing came.
    fn due(&self) -> Instant {
        let put_off = self.gathers_until();
        put_off.map_or(self.next, |at| at.min(self.next))
    }

    /// Does what follows from what came, from what is new in the log, and from the time.
    ///
    /// # Errors
    /// Nobody may go on after one.
    pub fn turn(&mut self, events: Vec<Event>, now: Instant) -> Result<()> {
        self.now = now;
        for event in events {
            self.handle(event)?;
            // Who is long at it answers meanwhile.
            if self.instant().saturating_duration_since(now) > LONG {
                self.flush();
            }
        }
        self.note_log()?;
        if now >= self.next {
            self.tick()?;
        }
        self.tell_others()
    }

    /// What has moved goes to the other members, and to those who wait here.
    fn tell_others(&mut self) -> Result<()> {
        self.look_who_waits();
        // A core that gives up speaks of a log that is not this one any more.
        if !self.done {
            self.report()?;
            self.publish();
        }
        self.flush();
        Ok(())
    }

    /// Sends what was given to the ways to other members. Then has the log synced, which would take the
    /// core from who sends. What waits for more of it is left for later.
    fn flush(&mut self) {
        self.send();
        self.sync_when_due();
        if self.oversleeps() {
            self.node.inbox.sooner();
        }
    }

    /// Its thread rests for longer than it may, and nobody has called it.
    pub fn oversleeps(&self) -> bool {
        let for_longer = self.rests_until.is_some_and(|until| self.due() < until);
        for_longer && !self.node.inbox.is_called_sooner()
    }

    fn tick(&mut self) -> Result<()> {
        if !self.node.is_syncing() {
            self.core.tick();
            self.effects()?;
            self.lead_alone("singleNodePromptElection")?;
        }
        if self.core.role() != CoreRole::Leader {
            for outcome in std::mem::take(&mut self.confirms).into_values() {
                answer(&outcome, Err(Refusal::NotLeader));
            }
        }
        // Who was stopped for long does not make up for it at once.
        self.next = (self.next + self.tick_length()).max(self.now);
        self.look_after_peers();
        self.measure_distances();
        if let Some(begins) = unless_full(self.store().log_begins_behind())? {
            self.core.trimmed(begins.index + 1);
            self.effects()?;
        }
        Ok(())
    }

    fn publish(&self) {
        let (committed, applied) = (self.core.committed(), self.core.applied());
        let leads = self.core.role() == CoreRole::Leader;
        let leading = leads.then(|| self.core.term());
        self.node
            .publish(self.core.members(), committed, applied, leading);
    }

    fn store(&self) -> &Arc<muniment_storage::Store> {
        &self.server.engine.store
    }

    /// Who votes alone need not wait for anybody to be elected. `reason`: MongoDB's name for that.
    fn lead_alone(&mut self, reason: &'static str) -> Result<()> {
        self.alone = reason;
        if self.votes_alone() && self.core.campaign() {
            self.effects()?;
        }
        Ok(())
    }

    /// `lastElectionReason`: MongoDB has a member of a higher priority take over by itself.
    fn reason(&self) -> &'static str {
        match self.core.occasion() {
            Occasion::Silence => TIMEOUT,
            Occasion::Asked => self.alone,
            Occasion::Handed => "stepUpRequestSkipDryRun",
            Occasion::Better => "priorityTakeover",
        }
    }

    fn votes_alone(&self) -> bool {
        let voters = &self.core.in_force().voters;
        voters.len() == 1 && voters.contains(&self.node.id)
    }

    /// It is the only one that votes, and nobody else is to hear of anything.
    fn is_alone(&self) -> bool {
        let now = self.core.in_force();
        now.voters.len() == 1 && now.voters.contains(&self.node.id) && now.learners.is_empty()
    }

    /// The configuration that holds, if there is one.
    fn config(&self) -> Option<Arc<SetConfig>> {
        self.server.replica_set.as_ref()?.member().config
    }

    fn tick_length(&self) -> Duration {
        let timeout = self.config().map_or(10_000, |c| c.election_ms);
        let timeout = u64::try_from(timeout).unwrap_or(10_000);
        Duration::from_millis((timeout / ELECTION_TICKS).max(1))
    }

    fn handle(&mut self, event: Event) -> Result<()> {
        match event {
            // What is acknowledged from here on would not be in the copy that takes the place of all.
            Event::Received(message, _) if self.node.is_syncing() => {
                if message.is_of_leader() {
                    self.node.heard_leading(message.from);
                }
            }
            // They come again when it is off: to the consensus they are lost.
            Event::Received(message, _)
                if message.records().is_some() && self.server.failpoints.fires(STOP_PRODUCER) => {}
            Event::Received(message, records) => {
                #[cfg(test)]
                let (message, records) = self.bent(message, records);
                self.records = records;
                self.core.receive(message).map_err(fatal)?;
                self.effects()?;
                self.records.clear();
            }
            Event::Report(report) => self.heard(report)?,
            Event::Greeted(from, in_force) => self.greeted(from, &in_force)?,
            Event::Met(from) => {
                self.core.reached(from);
                self.effects()?;
                self.met.insert(from);
            }
            Event::Ask(request) => self.asked(request)?,
        }
        Ok(())
    }

    #[cfg(test)]
    fn bent(&self, mut message: Message, mut records: Vec<Record>) -> (Message, Vec<Record>) {
        let bugs = self.server.world.bugs();
        bugs.received(&mut message, &mut records, self.store());
        (message, records)
    }

    fn asked(&mut self, request: Request) -> Result<()> {
        self.token += 1;
        let token = self.token;
        match request {
            Request::StepDown(patience, freeze, force, outcome) => {
                self.outcomes.insert(token, outcome);
                self.core.step_down(token, patience, freeze, force);
            }
            Request::Reconfigure(config, outcome) => {
                self.outcomes.insert(token, outcome);
                self.core.reconfigure(token, *config);
            }
            Request::Freeze(ticks, outcome) => {
                self.core.freeze(ticks);
                // The leader may be about to hand over to it.
                self.moved = true;
                self.lead_alone(TIMEOUT)?;
                self.done(&outcome);
            }
            Request::Confirm(member, outcome) => {
                self.core.forget(member);
                if self.core.read(token) {
                    self.confirms.insert(token, outcome);
                } else {
                    answer(&outcome, Err(Refusal::NotLeader));
                }
            }
            Request::Maintain(begins, outcome) => {
                let done = self.maintain(begins);
                self.lead_alone(TIMEOUT)?;
                self.publish();
                answer(&outcome, done);
            }
            // The copy that is being made takes the place of all that would be written meanwhile.
            Request::Force(_, outcome) if self.node.is_syncing() => {
                answer(&outcome, Err(Refusal::Busy));
            }
            Request::Force(config, outcome) => {
                self.force(*config)?;
                self.lead_alone(TIMEOUT)?;
                self.done(&outcome);
            }
        }
        self.effects()
    }

    /// Who is told that it is done finds it done.
    fn done(&self, outcome: &Outcome) {
        self.publish();
        answer(outcome, Ok(()));
    }

    /// Goes on with a configuration that nobody else was asked about.
    fn force(&mut self, config: muniment_repl::Config) -> Result<()> {
        // What others wait for was asked of the core that goes.
        let confirms = std::mem::take(&mut self.confirms).into_values();
        for outcome in self.outcomes.drain().map(|(_, o)| o).chain(confirms) {
            answer(&outcome, Err(Refusal::NotLeader));
        }
        if self.store().is_door_open() {
            self.close_door()?;
        }
        self.effects()?;
        let Some(mut state) = self.file.read()? else {
            return Err(super::ended());
        };
        state.force(config);
        self.when_there_is_room("the state", || self.file.write(&state))?;
        self.when_there_is_room("the log of the set", || self.store().sync())?;
        if let Some(set) = &self.server.replica_set {
            set.change(&self.server, |m| m.forced = true);
        }
        self.core = self.when_there_is_room("the log", || {
            super::initiate::core_of(&self.server, state.clone())
        })?;
        self.abstain();
        self.configs.clear();
        self.told = self.core.last();
        self.durable = self.told;
        self.named = true;
        self.effects()
    }

    /// Tells the core of what is new in the log, of what is durable, and of what this member's readers
    /// see. A record may be durable, or not yet visible, when the core is told of it: what it was told
    /// of each is remembered apart.
    fn note_log(&mut self) -> Result<()> {
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

    /// Tells the core how far this member itself is.
    fn note_places(&mut self, p: &Positions) -> Result<()> {
        let now = places(p);
        if now != self.noted {
            self.noted = now;
            let mine = muniment_repl::Report {
                term: self.core.term(),
                log_term: p.appended.term,
                position: now,
            };
            self.core.report(self.node.id, mine);
            self.effects()?;
        }
        Ok(())
    }

    fn note_appended(&mut self) -> Result<()> {
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
    fn positions(&self) -> Result<Option<Positions>> {
        let positions = unless_full(self.store().position());
        #[cfg(test)]
        let positions = positions.map(|p| self.server.world.bugs().positions(p));
        positions
    }

    fn effects(&mut self) -> Result<()> {
        while let Some(effect) = self.core.next_effect() {
            self.carry_out(effect)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, effect: Effect) -> Result<()> {
        match effect {
            Effect::Save(state) => self.save(&state)?,
            Effect::CloseDoor => self.close_door()?,
            Effect::OpenDoor { term, no_op } => self.open_door(term, no_op)?,
            Effect::Append { first, last } => self.append(first, last)?,
            Effect::Write(record) => {
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
                #[cfg(test)]
                let index = self.server.world.bugs().committed(index, self.told);
                self.store().set_committed(index)?;
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
                    // Who is told that it is done finds it done.
                    self.publish();
                    answer(&outcome, result);
                }
            }
            Effect::FarBehind(member) => self.info(
                21_783,
                "A member needs more of the log than is kept",
                &doc! { "member": member as i64 },
            ),
            Effect::InitialSync { from, at_least } => {
                initial_sync::begin(&self.server, &self.node, from, at_least)?
            }
            Effect::Restart { .. } => {
                self.restart(Restart::Storage);
            }
        }
        Ok(())
    }

    fn save(&self, state: &LocalState) -> Result<()> {
        if let Some(behind) = state.cut {
            // Before it is noted that they go: the next start may be one after a crash.
            let written = self.when_there_is_room("what is rolled back", || {
                rollback::write(&self.server, behind)
            });
            let (files, documents) = match written {
                // Without it nothing could be written down, and the member could never come back.
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
            // Only who writes can make room, and nobody else ever votes.
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

    fn close_door(&mut self) -> Result<()> {
        self.leads_no_more();
        self.store().close_door();
        self.server.transactions.kill_all(&self.server);
        self.note_appended()?;
        self.core.door_closed().map_err(fatal)
    }

    fn open_door(&mut self, term: u64, no_op: Option<u64>) -> Result<()> {
        let before = self.positions()?.unwrap_or_default().applied;
        let began_ms = now_ms();
        self.server.transactions.begin_leading();
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
            at: self.server.engine.store.visible(),
            began_ms,
            ready_ms: now_ms(),
        }));
        self.moved = true;
        crate::replica_set::became_primary(&self.server);
        Ok(())
    }

    fn append(&mut self, first: u64, last: u64) -> Result<()> {
        let wanted = first..=last;
        let records: Vec<LogRecord<'_>> = self
            .records
            .iter()
            .filter(|r| wanted.contains(&r.index))
            .map(|r| LogRecord {
                index: r.index,
                term: r.term,
                at: r.at,
                payload: &r.payload,
            })
            .collect();
        let before = self.store().config_followed();
        self.when_there_is_room("the log of the set", || {
            // What was stored before it failed is there.
            let there = self.store().appended()?.index;
            let left = records.partition_point(|r| r.index <= there);
            let left = records.get(left..).unwrap_or_default();
            self.store().append_replicated(left, &NeverInterrupted)
        })?;
        // Before anybody is told that it is applied.
        if self.store().config_followed() != before {
            crate::settings::take(&self.server);
        }
        self.told = last;
        self.moved = true;
        self.persist();
        let set = self.server.replica_set.as_ref();
        if let Some(set) = set.filter(|set| set.member().role == Role::Startup2) {
            // The log from its beginning is as good as a copy.
            set.change(&self.server, |m| m.role = Role::Secondary);
        }
        Ok(())
    }

    fn take_role(&mut self, role: CoreRole, term: u64, leader: Option<MemberId>) {
        self.role = (role, term, leader);
        self.moved = true;
        self.forget_calm();
        if let Some(set) = &self.server.replica_set {
            set.change(&self.server, |m| {
                if role == CoreRole::Leader {
                    // It is told with the door, in a moment.
                    return;
                }
                m.term = term as i64;
                m.leader = leader;
                if leader.is_some() {
                    m.show_term();
                }
                if m.role == Role::Primary {
                    m.role = Role::Secondary;
                }
                if m.role == Role::Startup {
                    m.role = Role::Secondary;
                }
            });
        }
    }

    fn take_config(&mut self, in_force: &InForce) -> Result<()> {
        let config = SetConfig::parse(Doc::new(&in_force.config.document))?;
        let me = in_force.config.member(self.node.id).map(|m| m.key);
        // The configuration may have it under an address that is not this server's.
        let own = config.own(self.server.port, &hostname()).map(|m| m.id);
        let me = me.filter(|me| own == Some(*me));
        if me.is_some() != self.named {
            self.named = me.is_some();
            self.core.freeze(if self.named { 0 } else { u64::MAX });
        }
        if let Some(set) = &self.server.replica_set {
            set.change(&self.server, |m| {
                m.me = me;
                m.config = Some(Arc::new(config.clone()));
                if m.leader.is_some() {
                    m.show_term();
                }
                match (me, m.role) {
                    (None, _) => m.role = Role::Removed,
                    (Some(_), Role::Removed) => m.role = Role::Secondary,
                    _ => {}
                }
            });
        }
        self.connect_to_others(&config, in_force)?;
        self.node
            .heard
            .lock()
            .retain(|id| in_force.config.member(id).is_some());
        self.node.inbox.set_eager(!self.is_alone());
        self.store().set_others(!self.is_alone());
        self.moved = true;
        self.persist();
        Ok(())
    }

    fn restart(&mut self, how: Restart) {
        self.done = true;
        self.server.request_restart(how);
    }

    fn info(&self, id: u32, message: &str, attr: &muniment_value::DocBuf) {
        self.server.log.info("REPL", id, "ReplCoord", message, attr);
    }

    fn warn(&self, message: &str, e: &Error) {
        self.server.log.log(
            Severity::Warning,
            "REPL",
            21_336,
            "ReplCoord",
            message,
            Some(&doc! { "error": e.to_string() }),
        );
    }

    /// Nobody may go on from half of an effect.
    fn fail(&self, message: &str, e: &Error) {
        self.server.log.log(
            Severity::Error,
            "REPL",
            21_128,
            "ReplCoord",
            message,
            Some(&doc! { "error": e.to_string() }),
        );
        self.server.request_stop(&format!("{message}: {e}"));
    }
}

/// As the consensus counts.
fn places(p: &Positions) -> Position {
    Position {
        written: p.appended.index,
        applied: p.applied.index,
        durable: p.durable.index,
    }
}

fn fatal(e: muniment_repl::Fatal) -> Error {
    Error::new(
        Code::UnrecoverableRollbackError,
        format!(
            "this member cannot go on with the set: {e}. Stop it, empty its data directory, and start \
             it again: it copies everything from another member"
        ),
    )
}
