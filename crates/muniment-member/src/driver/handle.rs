//! What the driver does with each thing that reaches it: messages of other members, and requests of commands.

use super::anew::core_of;
use super::{Driver, Event, Known, Outcome, Request, TIMEOUT, answer, fatal};
use crate::lifecycle::ended;
use muniment_consensus::{Fatal, Occasion, Refusal};
use muniment_value::Result;

impl Driver {
    pub(super) fn handle(&mut self, event: Event) -> Result<()> {
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

    /// Tells the core of what was acknowledged before a request to hand over: the member that takes over is to have it.
    fn before_handover(&mut self, token: u64, outcome: Outcome) -> Result<()> {
        self.outcomes.insert(token, outcome);
        self.note_appended()
    }

    pub(super) fn asked(&mut self, request: Request) -> Result<()> {
        let token = self.node.token();
        match request {
            Request::StepDown(token, patience, freeze, force, outcome) => {
                self.before_handover(token, outcome)?;
                self.core.step_down(token, patience, freeze, force);
            }
            Request::HandOver(token, to, patience, outcome) => {
                self.before_handover(token, outcome)?;
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
    pub(super) fn done(&self, outcome: &Outcome) {
        self.publish();
        answer(outcome, Ok(()));
    }

    /// A sole voter campaigns at once: it has nobody to wait for. `reason`: MongoDB's name for why.
    pub(super) fn lead_alone(&mut self, reason: &'static str) -> Result<()> {
        self.alone = reason;
        if self.votes_alone() && self.core.campaign() {
            self.effects()?;
        }
        Ok(())
    }

    /// `lastElectionReason`, in MongoDB's words.
    pub(super) fn reason(&self) -> &'static str {
        match self.core.occasion() {
            Occasion::Silence => TIMEOUT,
            Occasion::Asked => self.alone,
            Occasion::Handed => "stepUpRequestSkipDryRun",
            Occasion::Better => "priorityTakeover",
        }
    }

    /// Goes on with a configuration that nobody else was asked about.
    pub(super) fn force(&mut self, config: muniment_consensus::Config) -> Result<()> {
        self.refuse_all();
        if self.store().is_door_open() {
            self.close_door()?;
        }
        self.node.set_leads(false);
        self.effects()?;
        let Some(mut state) = self.file.read()? else {
            return Err(ended());
        };
        state.force(config);
        self.when_there_is_room("the log of the set", || self.store().sync())?;
        // The core is made before the state is stored: the next start must not find one that is unusable.
        let core =
            self.when_there_is_room("the log", || core_of(&self.set, state.clone(), None))?;
        self.when_there_is_room("the state", || self.file.write(&state))?;
        self.set.change(|m| m.forced = true);
        // The others hear of it by greetings, and each way begins with one.
        self.peers.clear();
        self.begin_anew(core);
        self.effects()
    }
}
