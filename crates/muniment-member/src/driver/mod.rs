//! The driver of the consensus: it gives the core what happened, and does what the core says.
//!
//! Everything that reaches it goes through its [`Inbox`](crate::inbox::Inbox): what other members say,
//! requests of commands, how far log and disk are. It alone owns the core, the state file and the ways to
//! the other members, so none of them has a lock but the one on the driver. What it does when something
//! reached it, or time has passed, is a [`Driver::turn`]. A turn is taken by the driver's own thread, by a
//! thread that brings something ([`Node::help`]), or by the simulation of a set in virtual time.
//!
//! Invariants: effects are carried out in their order, and before anything else is given to the core; one
//! that cannot be carried out (a state that cannot be saved, a record that cannot be applied) ends the
//! process, because no member may go on from half of it. The driver must not wait for another member.

mod event;
mod full;
mod gone;
mod link;
mod maintain;
mod others;
mod pace;
mod renumber;
mod request;
mod room;
mod shown;
mod still;
mod syncs;

use super::aside::Aside;
use super::frame::Record;
use super::node::Node;
use super::{Election, Role, SetConfig, initial_sync, rollback};
use crate::home::Host;
use crate::lifecycle::Restart;
use crate::set::ReplicaSet;
use crate::world::Mistake;
pub use event::Event;
use full::Fullness;
use link::Link;
use muniment_consensus::{
    Appended, ConfigRecord, Core, Effect, Fatal, Kind, LocalState, MemberId, Occasion, Position,
    Refusal, Role as CoreRole, StateFile, Times,
};
use muniment_logger::{Caught, Severity, guarded, now_ms};
use muniment_op::{NeverInterrupted, Teller};
use muniment_storage::{Positions, Record as LogRecord};
use muniment_value::{Code, Error, Result, doc};
pub use pace::{ticks, times_of};
pub use request::{Known, Outcome, Request};
use room::unless_full;
pub use shown::role_of_arbiter;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use still::Still;
use syncs::Syncs;

/// `lastElectionReason` of a member that campaigned because it heard of no leader.
const TIMEOUT: &str = "electionTimeout";

/// Once a turn takes longer than this, messages are sent after each event instead of at its end.
const LONG: Duration = Duration::from_millis(5);

/// Answers a request, if the thread that asked still waits.
fn answer<T>(outcome: &Teller<T>, with: T) {
    outcome.tell(with);
}

/// The driver.
pub struct Driver {
    set: Arc<ReplicaSet>,
    host: Arc<dyn Host>,
    node: Arc<Node>,
    core: Core,
    file: StateFile,
    peers: BTreeMap<MemberId, Link>,
    /// The place up to which the core was told of the log's records.
    told: u64,
    /// The place up to which it was told that they are durable.
    durable: u64,
    /// This member's own positions, as the core was last told of them.
    noted: Position,
    /// Configurations that went through the commit door and that the core was not told of yet.
    configs: Vec<(u64, Arc<[u8]>)>,
    /// The records of the message that is being handled.
    records: Vec<Record>,
    outcomes: HashMap<u64, Outcome>,
    /// Requests that wait until a majority confirms that this member leads: [`Request::Confirm`].
    confirms: BTreeMap<u64, Outcome>,
    role: (CoreRole, u64, Option<MemberId>),
    reported: Instant,
    /// What the times of reports count from.
    began: Instant,
    /// When the turn began.
    now: Instant,
    /// When the next tick is due.
    next: Instant,
    /// The length of a tick, in milliseconds.
    tick: u64,
    /// How long members wait for each other.
    times: Times,
    /// The driver's thread rests until then, and has to be called for anything earlier.
    rests_until: Option<Instant>,
    /// Something moved that the others are to hear of.
    moved: bool,
    /// How many ways each other member has open to this one.
    open: BTreeMap<MemberId, u32>,
    /// Whether this member's disk is full, and since when.
    fullness: Fullness,
    /// All the others are to hear of something soon.
    tells_all: bool,
    /// Members that have opened a way to this one, and are still to hear that it arrived.
    met: BTreeSet<MemberId>,
    /// When the log is to be synced.
    syncs: Syncs,
    /// The reason of an election that was asked for, or in which nobody else votes.
    alone: &'static str,
    /// The configuration names this server.
    named: bool,
    /// The version of a configuration without this member, which it was told of.
    left_out: Option<u64>,
    /// Ticks since an unnamed server last checked whether the configuration names it by now.
    unnamed: u64,
    /// What the driver does while this member's files are kept as they are.
    still: Still,
    done: bool,
}

impl Driver {
    /// A driver for a core that has just begun.
    pub fn new(
        set: &Arc<ReplicaSet>,
        host: Arc<dyn Host>,
        node: &Arc<Node>,
        core: Core,
        file: StateFile,
        now: Instant,
        aside: Option<Aside>,
    ) -> Driver {
        let last = core.last();
        let times = core.times();
        let mut driver = Driver {
            set: Arc::clone(set),
            host,
            node: Arc::clone(node),
            core,
            file,
            peers: BTreeMap::new(),
            told: last,
            durable: last,
            noted: Position::default(),
            configs: Vec::new(),
            records: Vec::new(),
            outcomes: HashMap::new(),
            confirms: BTreeMap::new(),
            role: (CoreRole::Follower, 0, None),
            reported: now,
            began: now,
            now,
            next: now,
            tick: 0,
            times,
            rests_until: None,
            moved: true,
            open: BTreeMap::new(),
            fullness: Fullness::default(),
            tells_all: false,
            met: BTreeSet::new(),
            syncs: Syncs::new(),
            alone: TIMEOUT,
            named: true,
            left_out: None,
            unnamed: 0,
            still: Still::new(aside),
            done: false,
        };
        driver.abstain();
        driver.freeze_again();
        driver
    }

    /// Runs in the driver's thread until the server ends or has to begin again.
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
                // It was woken only to rest for a shorter time: see `Inbox::sooner`.
                Some(driver) if driver.rests_on() => {}
                Some(driver) if !driver.has_ended() => {
                    driver.wake();
                    driver.turn_now();
                }
                _ => break,
            }
        }
        // Messages that were held back to go out together are sent before the driver ends.
        if let Some(driver) = node.driver.lock().as_mut() {
            driver.send_all();
            driver.note_frozen();
        }
        // The driver holds the node, so a node that held the driver would keep both alive for ever.
        let driver = node.driver.lock().take();
        drop(driver);
    }

    /// The driver's thread is about to rest. Returns how far the core knows the log, and until when to rest.
    pub fn rest(&mut self) -> (u64, Instant) {
        let due = self.due();
        self.rests_until = Some(due);
        self.node.inbox.rests();
        (self.told, due)
    }

    /// Nothing came, and nothing is due: the driver's thread can rest again.
    pub fn rests_on(&self) -> bool {
        !self.has_ended() && !self.has_news() && self.instant() < self.due()
    }

    /// The driver's thread no longer rests.
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

    /// Ends the server if the turn failed: without a driver a primary's writes are never acknowledged.
    fn end_with(&mut self, turned: std::result::Result<Result<()>, Caught>) {
        let turned = turned.unwrap_or_else(|caught| Err(caught.into_error("the driver")));
        let Err(e) = turned else { return };
        self.done = true;
        // A turn that waited for room on a full disk until the server was told to end has not failed.
        let waited = e.code() == Code::OutOfDiskSpace;
        if !(waited && self.set.home.lifecycle.wait_for_stop_for(Duration::ZERO)) {
            self.fail("replication cannot go on", &e);
        }
    }

    fn instant(&self) -> Instant {
        self.set.home.machine.clock.instant()
    }

    /// Does what comes before the first turn.
    pub fn begin(&mut self, now: Instant) -> Result<()> {
        self.effects()?;
        self.lead_alone(TIMEOUT)?;
        (self.now, self.next) = (now, now);
        self.begin_tick();
        self.flush();
        Ok(())
    }

    /// The server ends, or begins again: there is no further turn.
    pub fn has_ended(&self) -> bool {
        self.done || self.node.inbox.is_stopped()
    }

    /// Takes what came from the inbox.
    pub fn came(&self) -> Vec<Event> {
        self.node.inbox.take()
    }

    /// Something came that no turn has seen.
    pub fn has_news(&self) -> bool {
        let inbox = &self.node.inbox;
        inbox.has_news() || inbox.has_more(self.told)
    }

    /// Whether messages for a member are held back for more to join them, and whether a sync is: for
    /// simulations, which count how often that happens.
    pub fn gathers(&self) -> (bool, bool) {
        (self.gathered_until().is_some(), self.synced_by().is_some())
    }

    /// When something that was put off is to happen.
    pub fn gathers_until(&self) -> Option<Instant> {
        let all = [
            self.gathered_until(),
            self.synced_by(),
            self.calm_from(),
            self.goes_on_at(),
        ];
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

    /// Tells the other members, and the threads that wait here, what has moved.
    fn tell_others(&mut self) -> Result<()> {
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
    fn flush(&mut self) {
        self.send();
        self.sync_when_due();
        if self.oversleeps() {
            self.node.inbox.sooner();
        }
    }

    /// The driver's thread rests for longer than it may, and nobody has called it.
    pub fn oversleeps(&self) -> bool {
        let for_longer = self.rests_until.is_some_and(|until| self.due() < until);
        for_longer && !self.node.inbox.is_called_sooner()
    }

    fn tick(&mut self) -> Result<()> {
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

    fn publish(&self) {
        let (committed, applied) = (self.core.committed(), self.core.applied());
        let leads = self.core.role() == CoreRole::Leader;
        let leading = leads.then(|| self.core.term());
        self.node
            .publish(self.core.members(), committed, applied, leading);
    }

    fn store(&self) -> &Arc<muniment_storage::Store> {
        &self.set.home.engine.store
    }

    /// A sole voter campaigns at once: it has nobody to wait for. `reason`: MongoDB's name for why.
    fn lead_alone(&mut self, reason: &'static str) -> Result<()> {
        self.alone = reason;
        if self.votes_alone() && self.core.campaign() {
            self.effects()?;
        }
        Ok(())
    }

    /// `lastElectionReason`, in MongoDB's words.
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

    /// This member is the only voter, and there is no learner either: no other member is told anything.
    fn is_alone(&self) -> bool {
        let now = self.core.in_force();
        now.voters.len() == 1 && now.voters.contains(&self.node.id) && now.learners.is_empty()
    }

    /// The configuration that holds, if there is one.
    fn config(&self) -> Option<Arc<SetConfig>> {
        self.set.member().config
    }

    fn handle(&mut self, event: Event) -> Result<()> {
        match event {
            // What this member acknowledged now would not be in the copy that replaces all its data.
            Event::Received(message, _) if self.node.is_syncing() => {
                if message.is_of_leader() {
                    self.node.heard_leading(message.from);
                }
            }
            // Records that cannot be written now are dropped, as if lost: the leader sends them again.
            Event::Received(message, records)
                if message.records().is_some()
                    && (self.host.drops_records()
                        || self.sets_aside() && !self.can_set_aside(&message, &records)) => {}
            Event::Received(message, records) => {
                let Some((message, records)) = self.with_room(message, records) else {
                    return Ok(());
                };
                self.records = records;
                // A copy is made by threads of its own: a machine without threads (a simulation) has none.
                let copies = self.set.home.machine.threads;
                match self.core.receive(message) {
                    Err(why @ Fatal::Lost { .. }) if copies => return self.begin_empty(&why),
                    other => other.map_err(fatal)?,
                }
                self.effects()?;
                self.records.clear();
            }
            Event::Report(report) => self.heard(report)?,
            Event::Greeted(from, in_force) => self.greeted(from, &in_force)?,
            Event::Renumbered(greeting) => self.renumbered(*greeting)?,
            Event::Met(from) => {
                self.came_to(from);
                self.core.reached(from);
                self.effects()?;
                self.met.insert(from);
            }
            Event::Left(from) => self.left(from),
            Event::Ask(request) => self.asked(request)?,
        }
        Ok(())
    }

    /// Whether a simulation has this member make a mistake.
    fn makes(&self, mistake: Mistake) -> bool {
        self.set.home.world.makes(mistake)
    }

    fn asked(&mut self, request: Request) -> Result<()> {
        let token = self.node.token();
        match request {
            Request::StepDown(token, patience, freeze, force, outcome) => {
                self.outcomes.insert(token, outcome);
                self.core.step_down(token, patience, freeze, force);
            }
            Request::HandOver(token, to, patience, outcome) => {
                self.outcomes.insert(token, outcome);
                self.core.hand_over(token, to, patience);
            }
            Request::TakeBack(token) => {
                self.outcomes.remove(&token);
                self.core.take_back(token);
                self.moved = true;
            }
            Request::StepUp(outcome) => {
                self.alone = "stepUpRequest";
                match !self.node.is_syncing() && self.core.campaign() {
                    true => self.done(&outcome),
                    false => answer(&outcome, Err(Refusal::NotElectable)),
                }
            }
            Request::Reconfigure(config, outcome) => {
                self.outcomes.insert(token, outcome);
                self.core.reconfigure(token, *config);
            }
            Request::Freeze(ticks, outcome) => {
                self.core.freeze(ticks);
                // The leader may be about to hand over to this member, and has to hear that it is frozen.
                self.moved = true;
                self.lead_alone(TIMEOUT)?;
                self.done(&outcome);
            }
            Request::Needs(member, outcome) => {
                let needs = self.core.needs(member);
                answer(&outcome, needs.then_some(()).ok_or(Refusal::NotLeader));
            }
            Request::Confirm(member, known, outcome) => {
                self.note_appended()?;
                self.core.forget(member);
                let asks = match known {
                    Known::All => self.core.read(token),
                    Known::Perhaps => self.core.needs(member) && self.core.confirm(token),
                };
                if asks {
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
            Request::Become(id, config) => self.become_member(id, config.map(|c| *c))?,
            // The copy that is being made takes the place of all that would be written meanwhile.
            Request::Force(_, outcome) if self.node.is_syncing() || self.sets_aside() => {
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

    /// Answers that a request is done, and publishes that first: the thread that asked is to find it done.
    fn done(&self, outcome: &Outcome) {
        self.publish();
        answer(outcome, Ok(()));
    }

    /// Goes on with a configuration that nobody else was asked about.
    fn force(&mut self, config: muniment_consensus::Config) -> Result<()> {
        self.refuse_all();
        if self.store().is_door_open() {
            self.close_door()?;
        }
        self.node.set_leads(false);
        self.effects()?;
        let Some(mut state) = self.file.read()? else {
            return Err(super::ended());
        };
        state.force(config);
        self.when_there_is_room("the log of the set", || self.store().sync())?;
        // The core is made before the state is stored: the next start must not find one that is unusable.
        let core = self.when_there_is_room("the log", || {
            super::initiate::core_of(&self.set, state.clone(), None)
        })?;
        self.when_there_is_room("the state", || self.file.write(&state))?;
        self.set.change(|m| m.forced = true);
        // The others hear of it by greetings, and each way begins with one.
        self.peers.clear();
        self.begin_anew(core);
        self.effects()
    }

    /// Refuses all requests that wait: they were asked of a core that goes.
    fn refuse_all(&mut self) {
        let confirms = std::mem::take(&mut self.confirms).into_values();
        for outcome in self.outcomes.drain().map(|(_, o)| o).chain(confirms) {
            answer(&outcome, Err(Refusal::NotLeader));
        }
    }

    /// Goes on with another core over the same log, all of which is durable.
    fn begin_anew(&mut self, core: Core) {
        // An unnamed member was frozen for that: `take_config` freezes it again if it still has to.
        let frozen = self.core.frozen_for().filter(|_| self.named);
        self.core = core;
        if let Some(ticks) = frozen {
            self.core.freeze(ticks);
        }
        self.abstain();
        self.core.full(self.node.id, self.node.is_full());
        self.configs.clear();
        self.told = self.core.last();
        self.durable = self.told;
        self.named = true;
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

    /// Tells the core how far this member itself is, if that has changed.
    fn note_places(&mut self, p: &Positions) -> Result<()> {
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
        let mut positions = unless_full(self.store().position())?;
        if self.makes(Mistake::AcknowledgeEarly)
            && let Some(p) = &mut positions
        {
            p.durable = p.appended;
        }
        Ok(positions)
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

    fn save(&self, state: &LocalState) -> Result<()> {
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

    fn close_door(&mut self) -> Result<()> {
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

    fn open_door(&mut self, term: u64, no_op: Option<u64>) -> Result<()> {
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

    fn append(&mut self, first: u64, last: u64) -> Result<()> {
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
    fn put_into_log(&self, records: &[LogRecord<'_>]) -> Result<()> {
        let before = self.store().config_followed();
        self.store().append_replicated(records, &NeverInterrupted)?;
        // Settings are taken over before anybody is told that the records are applied.
        if self.store().config_followed() != before {
            self.host.take_settings();
        }
        Ok(())
    }

    fn restart(&mut self, how: Restart) {
        self.done = true;
        self.node.set_leads(false);
        self.set.home.lifecycle.request_restart(how);
    }

    fn info(&self, id: u32, message: &str, attr: &muniment_value::DocBuf) {
        self.set
            .home
            .log
            .info("REPL", id, "ReplCoord", message, attr);
    }

    fn warn(&self, message: &str, e: &Error) {
        self.set.home.log.log(
            Severity::Warning,
            "REPL",
            21_336,
            "ReplCoord",
            message,
            Some(&doc! { "error": e.to_string() }),
        );
    }

    /// Logs the error and stops the server: this member may not go on from half of an effect.
    fn fail(&self, message: &str, e: &Error) {
        self.set.home.log.log(
            Severity::Error,
            "REPL",
            21_128,
            "ReplCoord",
            message,
            Some(&doc! { "error": e.to_string() }),
        );
        let why = format!("{message}: {e}");
        self.set.home.lifecycle.request_stop(&why);
    }
}

/// The storage's positions, as the consensus counts them.
fn places(p: &Positions) -> Position {
    Position {
        written: p.appended.index,
        applied: p.applied.index,
        durable: p.durable.index,
    }
}

fn fatal(e: muniment_consensus::Fatal) -> Error {
    Error::new(
        Code::UnrecoverableRollbackError,
        format!(
            "this member cannot go on with the set: {e}. Stop it, empty its data directory, and start \
             it again: it copies everything from another member"
        ),
    )
}
