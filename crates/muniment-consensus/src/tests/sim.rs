//! The simulator: members in one thread and virtual time, a network that delays, loses, duplicates and parts,
//! disks that lose what was not synced, and crashes between any two effects, all drawn from one seed. After
//! every step it checks the invariants ([`crate::tests::oracle`]).
//!
//! At the end everything is repaired, and the set has to come to rest with one leader and equal logs.

use crate::tests::Bugs;
use crate::tests::cluster::{arbiter, member};
use crate::tests::node::{Event, Node, Packet};
use crate::tests::oracle::Oracle;
use crate::timer::Draw;
use crate::*;
use std::collections::{BTreeMap, BTreeSet};

/// The milliseconds of a tick.
const TICK: u64 = 10;
const ELECTION: u64 = 10;

/// The faults of a seed's world, and how frequent they are.
struct World {
    delay: u64,
    /// How many of a thousand messages are lost.
    loss: u64,
    twice: u64,
    sync: u64,
    fault_every: u64,
    write_every: u64,
    admin: bool,
    trims: bool,
    splits: bool,
    storm: bool,
    blinks: bool,
    /// Whether members with data lose their disks, in sets that can commit nothing without them.
    losses: bool,
    until: u64,
}

enum What {
    Tick(MemberId),
    Arrive(MemberId, MemberId, Packet),
    Tell(MemberId, u64),
    Synced(MemberId, u64, u64),
    Write,
    Fault,
    Heal,
    Fall(MemberId),
    Blink(MemberId),
    Start(MemberId),
    Admin,
    Fill(MemberId),
}

/// The counts of events in a run.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Course {
    pub elections: u64,
    pub committed: u64,
    pub given_up: u64,
    pub crashes: u64,
    pub syncs: u64,
    pub configs: u64,
    pub woken: u64,
    /// Arbiters that lost their directories.
    pub emptied: u64,
    /// Runs in which a leader committed something with the help of an arbiter's vote.
    pub arbitrated: u64,
    /// How often a member believed that its leader's process had ended.
    pub gone: u64,
    /// Members with data that lost their disks, and those that were filled although nothing was committed
    /// since.
    pub lost: u64,
    pub filled: u64,
}

/// A member with data that has lost its disk.
struct Hollow {
    id: MemberId,
    /// The leader that was asked to confirm: its number and term, and the token of its question.
    asked: Option<(MemberId, u64, u64)>,
    /// The place that the member is to wait for.
    waits: u64,
    /// The member has a copy, and waits.
    filled: bool,
}

pub(crate) struct Sim {
    draw: Draw,
    world: World,
    bugs: Bugs,
    now: u64,
    number: u64,
    queue: BTreeMap<(u64, u64), What>,
    nodes: BTreeMap<MemberId, Node>,
    waiters: BTreeMap<MemberId, (Waiters, Waits)>,
    telling: BTreeSet<MemberId>,
    syncing: BTreeSet<MemberId>,
    cut_off: BTreeSet<(MemberId, MemberId)>,
    oracle: Oracle,
    calm: bool,
    /// A leader that has committed nothing yet, and will fail as soon as it does.
    new_leader: Option<MemberId>,
    hollow: Option<Hollow>,
    /// Losses are drawn from a source of their own, so that they do not change the worlds without losses.
    losses: Draw,
    token: u64,
    course: Course,
}

type Found = Result<(), String>;

/// What each waiter waits for: place, term and concern.
type Waits = BTreeMap<WaiterId, (u64, u64, Concern)>;

impl Sim {
    pub(crate) fn new(seed: u64, bugs: Bugs) -> Sim {
        let mut draw = Draw::new(seed ^ 0x5eed);
        let mut losses = Draw::new(seed ^ 0x1055);
        // Storms have short terms: leaders fail before they have told all members of anything.
        let storm = draw.below(3) == 0;
        let members = match storm {
            true => 3,
            false => [3, 3, 3, 4, 5, 5, 7][draw.below(7) as usize],
        };
        let mut world = World {
            delay: 1 + draw.below(40),
            loss: [0, 0, 20, 100][draw.below(4) as usize],
            twice: [0, 20, 100][draw.below(3) as usize],
            sync: [1, 10, 40, 150][draw.below(4) as usize],
            fault_every: 60 + draw.below(500),
            write_every: 4 + draw.below(40),
            admin: draw.below(2) == 0,
            trims: draw.below(2) == 0,
            splits: draw.below(2) == 0,
            storm,
            blinks: false,
            losses: false,
            until: 2_500,
        };
        if storm {
            world.loss = 100 + draw.below(200);
            world.fault_every = 400 + draw.below(1000);
            (world.splits, world.admin, world.trims) = (true, false, false);
        }
        let mut config = Config {
            version: 1,
            next_id: members + 1,
            members: (1..=members).map(member).collect(),
            ..Config::default()
        };
        if draw.below(2) == 0 {
            for m in &mut config.members {
                // The first two members can always lead.
                m.priority = match (m.id, draw.below(4)) {
                    (1 | 2, _) => 1000,
                    (_, n) => 1000 * n as u32,
                };
            }
        }
        if draw.below(2) == 0 {
            world.blinks = draw.below(2) == 0;
            let most = (members - 1) / 2;
            let arbiters = 1 + draw.below(most);
            for m in &mut config.members {
                if m.id + arbiters > members {
                    *m = arbiter(m.id);
                }
            }
            let with_data = (members - arbiters) as usize;
            world.losses = with_data == majority(members as usize) && losses.below(2) == 0;
        }
        let mut sim = Sim {
            draw,
            world,
            bugs,
            now: 0,
            number: 0,
            queue: BTreeMap::new(),
            nodes: BTreeMap::new(),
            waiters: BTreeMap::new(),
            telling: BTreeSet::new(),
            syncing: BTreeSet::new(),
            cut_off: BTreeSet::new(),
            oracle: Oracle::default(),
            calm: false,
            new_leader: None,
            hollow: None,
            losses,
            token: 0,
            course: Course::default(),
        };
        let in_force = InForce {
            index: 0,
            voters: config.wanted_voters(),
            learners: BTreeSet::new(),
            config,
        };
        for id in 1..=members {
            sim.join(&LocalState {
                id,
                in_force: in_force.clone(),
                ..LocalState::default()
            });
        }
        sim.at(sim.world.write_every, What::Write);
        sim.at(sim.world.fault_every, What::Fault);
        if sim.world.admin {
            sim.at(300, What::Admin);
        }
        sim
    }

    fn at(&mut self, after: u64, what: What) {
        self.number += 1;
        self.queue.insert((self.now + after, self.number), what);
    }

    fn join(&mut self, state: &LocalState) {
        self.replace(state);
        let first = self.draw.below(TICK);
        self.at(first, What::Tick(state.id));
    }

    fn replace(&mut self, state: &LocalState) {
        let options = Options {
            times: Times {
                heartbeat: 2,
                ..Times::of(ELECTION)
            },
            seed: self.draw.below(u64::MAX),
        };
        let mut node = Node::new(options, state);
        node.bugs = self.bugs;
        node.start();
        // Events that were scheduled for the replaced member must not happen to this one.
        node.starts += self.nodes.get(&state.id).map_or(0, |n| n.starts);
        self.nodes.insert(state.id, node);
    }

    /// Runs to the end.
    pub(crate) fn run(mut self) -> Result<Course, String> {
        while self.now < self.world.until {
            self.step()?;
        }
        self.calm_down();
        let end = self.now + 60 * TICK * ELECTION;
        while self.now < end && !self.at_rest() {
            for _ in 0..50 {
                self.step()?;
            }
        }
        if !self.at_rest() {
            return Err(format!(
                "the set does not come to rest:\n{}",
                self.picture()
            ));
        }
        self.course.committed = self.oracle.committed.len() as u64;
        Ok(self.course)
    }

    fn step(&mut self) -> Found {
        let Some(((at, _), what)) = self.queue.pop_first() else {
            return Err("nothing is left to happen".into());
        };
        self.now = at;
        match what {
            What::Tick(id) => {
                self.with(id, Node::tick)?;
                // The members' clocks differ slightly.
                let next = TICK - 1 + self.draw.below(3);
                self.at(next, What::Tick(id));
                if self.world.trims && self.draw.below(200) == 0 {
                    self.trim(id);
                }
            }
            What::Arrive(from, to, packet) => {
                if !self.cut_off.contains(&(from, to)) && self.is_up(to) {
                    self.with(to, |n| n.receive(packet))?;
                }
            }
            What::Tell(id, start) => {
                self.telling.remove(&id);
                if self.is_up(id) && self.nodes[&id].starts == start {
                    self.with(id, Node::tell)?;
                }
            }
            What::Synced(id, start, to) => {
                self.syncing.remove(&id);
                if self.is_up(id) && self.nodes[&id].starts == start {
                    self.with(id, |n| n.sync(to))?;
                }
            }
            What::Write => {
                if !self.calm {
                    self.write()?;
                    self.at(self.world.write_every, What::Write);
                }
            }
            What::Fault => {
                if !self.calm {
                    self.fault()?;
                    let next = 1 + self.draw.below(2 * self.world.fault_every);
                    self.at(next, What::Fault);
                }
            }
            What::Heal => self.cut_off.clear(),
            What::Fall(id) => {
                if !self.calm {
                    self.fall(id)?;
                }
            }
            What::Blink(id) => {
                if !self.calm && self.draw.below(2) == 0 {
                    self.crash(id)?;
                    self.at(1, What::Start(id));
                } else if !self.calm {
                    self.empty(id);
                }
            }
            What::Start(id) => {
                if !self.is_up(id) {
                    self.with(id, Node::start)?;
                }
            }
            What::Fill(id) => self.fill(id)?,
            What::Admin => {
                if !self.calm {
                    self.admin()?;
                    let next = 50 + self.draw.below(400);
                    self.at(next, What::Admin);
                }
            }
        }
        Ok(())
    }

    fn is_up(&self, id: MemberId) -> bool {
        self.nodes.get(&id).is_some_and(Node::is_up)
    }

    /// Does something to a member, and handles the events that result.
    fn with(&mut self, id: MemberId, f: impl FnOnce(&mut Node)) -> Found {
        let Some(node) = self.nodes.get_mut(&id) else {
            return Ok(());
        };
        let was_up = node.is_up();
        f(node);
        let events = std::mem::take(&mut node.events);
        if was_up && !node.is_up() {
            self.course.crashes += 1;
            let later = 1 + self.draw.below(400);
            self.at(later, What::Start(id));
        }
        self.oracle.look(&self.nodes[&id])?;
        if self.is_arbiter(id) && self.nodes[&id].last() > 0 {
            return Err(format!("the arbiter {id} stores records"));
        }
        for event in events {
            self.happened(id, event)?;
        }
        let node = &self.nodes[&id];
        let (start, last) = (node.starts, node.last());
        if node.is_up() && !node.untold.is_empty() && self.telling.insert(id) {
            let soon = self.draw.below(4);
            self.at(soon, What::Tell(id, start));
        }
        if self.nodes[&id].is_up() && self.nodes[&id].durable < last && self.syncing.insert(id) {
            let soon = 1 + self.draw.below(self.world.sync);
            self.at(soon, What::Synced(id, start, last));
        }
        self.wake(id)
    }

    fn happened(&mut self, id: MemberId, event: Event) -> Found {
        match event {
            Event::Sent(to, packet) => self.send(id, to, packet),
            Event::Opened { term, no_op: true } => {
                self.course.elections += 1;
                self.waiters.remove(&id);
                self.new_leader = None;
                if self.world.storm {
                    match self.draw.below(2) {
                        0 => {
                            let soon = self.draw.below(5);
                            self.at(soon, What::Fall(id));
                        }
                        _ => self.new_leader = Some(id),
                    }
                }
                if self.arbiter_needed(id) {
                    self.course.arbitrated += 1;
                }
                return self.oracle.elected(&self.nodes[&id], term);
            }
            Event::Committed { records, .. } => {
                // A new leader's first commit is a critical moment, so the leader may fail then.
                if self.new_leader.take_if(|leader| *leader == id).is_some() {
                    self.at(0, What::Fall(id));
                }
                return self.oracle.commits(id, records);
            }
            Event::GaveUp(records) => {
                self.course.given_up += records.len() as u64;
                self.waiters.remove(&id);
                return self.oracle.gave_up(id, &records);
            }
            Event::Config(_) => self.admit(id),
            Event::Readable { token, index } => {
                self.confirmed(id, token);
                return self.oracle.read(token, index);
            }
            Event::InitialSync { from, .. } if self.is_hollow(id) => return self.ask_for(id, from),
            Event::InitialSync { from, at_least } => self.resync(id, from, at_least, 0),
            Event::Fatal(text) => return Err(format!("member {id} cannot go on: {text}")),
            Event::FarBehind(far) if self.is_arbiter(far) => {
                return Err(format!("the arbiter {far} is said to be far behind"));
            }
            _ => {}
        }
        Ok(())
    }

    fn send(&mut self, from: MemberId, to: MemberId, packet: Packet) {
        // An arbiter's vote is a critical moment, so the arbiter may restart then.
        if self.world.blinks && is_vote(&packet) && self.is_arbiter(from) {
            self.at(0, What::Blink(from));
        }
        let mut parts = vec![packet];
        if self.world.splits
            && let [Packet::Raft { message, records }] = parts.as_slice()
            && records.len() > 1
        {
            let (mut message, _) = Message::decode(message).expect("a sound message");
            let n = 1 + self.draw.below(records.len() as u64 - 1) as usize;
            if let Some(rest) = message.split_off(n) {
                let (a, b) = records.split_at(n);
                let part = |m: &Message, records: &[_]| Packet::Raft {
                    message: m.encode(),
                    records: records.to_vec(),
                };
                parts = vec![part(&message, a), part(&rest, b)];
            }
        }
        for packet in parts {
            for _ in 0..if self.draw.below(1000) < self.world.twice {
                2
            } else {
                1
            } {
                let lost = self.draw.below(1000) < self.world.loss && !self.calm;
                let delay = 1 + self.draw.below(self.world.delay);
                if !lost {
                    self.at(delay, What::Arrive(from, to, packet.clone()));
                }
            }
        }
    }

    fn write(&mut self) -> Found {
        let open = self.nodes.values().filter(|n| n.door.is_some());
        let ids: Vec<_> = open.map(|n| n.id).collect();
        for id in ids {
            for _ in 0..=self.draw.below(3) {
                self.token += 1;
                let value = self.token.to_string();
                let mut index = None;
                self.with(id, |n| index = n.write(&value))?;
                let Some(index) = index else { break };
                self.wait_for(id, index);
            }
            if self.draw.below(4) == 0 {
                self.token += 1;
                let token = self.token;
                self.oracle.asks(token);
                self.with(id, |n| {
                    n.input(|core| {
                        core.read(token);
                        Ok(())
                    });
                })?;
            }
        }
        Ok(())
    }

    /// Lets a client wait until two members have a write.
    fn wait_for(&mut self, id: MemberId, index: u64) {
        let journaled = self.draw.below(2) == 0;
        let node = &self.nodes[&id];
        let (Some(core), Some(record)) = (&node.core, node.record(index)) else {
            return;
        };
        let w = W::Members(2);
        let concern = Concern { w, journaled };
        let progress = Progress {
            members: core.members(),
            committed: core.committed(),
        };
        let (waiters, what) = self.waiters.entry(id).or_default();
        if let Some(waiter) = waiters.wait(index, &concern, progress) {
            what.insert(waiter, (index, record.term, concern));
        }
    }

    fn wake(&mut self, id: MemberId) -> Found {
        let Some(core) = self.nodes[&id]
            .core
            .as_ref()
            .filter(|c| c.role() == Role::Leader)
        else {
            return Ok(());
        };
        let Some((waiters, what)) = self.waiters.get_mut(&id) else {
            return Ok(());
        };
        let progress = Progress {
            members: core.members(),
            committed: core.committed(),
        };
        for waiter in waiters.satisfied(progress) {
            self.course.woken += 1;
            if let Some((index, term, concern)) = what.remove(&waiter) {
                self.oracle.acknowledged(index, term, concern.journaled)?;
            }
        }
        Ok(())
    }

    /// Whether a member is an arbiter. A member with a given number is an arbiter always or never.
    fn is_arbiter(&self, id: MemberId) -> bool {
        let core = self.nodes.get(&id).and_then(|n| n.core.as_ref());
        core.is_some_and(|c| c.is_arbiter(id))
    }

    /// Whether the other members with data that are up could not have elected this one without an arbiter.
    fn arbiter_needed(&self, id: MemberId) -> bool {
        let Some(core) = &self.nodes[&id].core else {
            return false;
        };
        let voters = &core.in_force().voters;
        let up = voters
            .iter()
            .filter(|v| self.is_up(**v) && !core.is_arbiter(**v));
        up.count() < majority(voters.len())
    }

    fn any_arbiter(&mut self) -> Option<MemberId> {
        let arbiters = self.nodes.keys().filter(|id| self.is_arbiter(**id));
        let arbiters: Vec<_> = arbiters.copied().collect();
        let any = self.draw.below(arbiters.len() as u64) as usize;
        arbiters.get(any).copied()
    }

    /// Lets an arbiter lose its directory, and starts it again with an empty one.
    fn empty(&mut self, id: MemberId) {
        let Some(core) = &self.nodes[&id].core else {
            return;
        };
        if self.world.losses && !self.all_remember() {
            return;
        }
        let config = core.in_force().config.clone();
        self.course.emptied += 1;
        self.syncing.remove(&id);
        self.telling.remove(&id);
        self.replace(&joining(id, config));
    }

    fn fault(&mut self) -> Found {
        let ids: Vec<_> = self.nodes.keys().copied().collect();
        let any = ids[self.draw.below(ids.len() as u64) as usize];
        let leader = self.nodes.values().find(|n| n.leads()).map(|n| n.id);
        let victim = match self.draw.below(2) {
            0 => leader.unwrap_or(any),
            _ => any,
        };
        let heal = 20 + self.draw.below(600);
        if self.draw.below(3) == 0
            && let Some(id) = self.any_arbiter()
        {
            self.empty(id);
        }
        if self.world.losses && self.losses.below(2) == 0 {
            self.lose()?;
        }
        match self.draw.below(11) {
            0 | 1 => self.crash(victim)?,
            // The process has ended, and some members see it at once.
            9 => {
                self.crash(victim)?;
                self.see_gone(victim)?;
            }
            // The process has not ended, but some members believe so.
            10 => self.see_gone(victim)?,
            2 => {
                let fuse = self.draw.below(12) as u32;
                self.with(victim, |n| n.fuse = Some(fuse))?;
            }
            3 | 4 => {
                let side: BTreeSet<_> = ids.iter().filter(|_| self.draw.below(2) == 0).collect();
                for a in &ids {
                    for b in &ids {
                        if side.contains(a) != side.contains(b) {
                            self.cut_off.insert((*a, *b));
                        }
                    }
                }
                self.at(heal, What::Heal);
            }
            5 => {
                for other in &ids {
                    self.cut_off.insert((victim, *other));
                    self.cut_off.insert((*other, victim));
                }
                self.at(heal, What::Heal);
            }
            6 => {
                for other in &ids {
                    if self.draw.below(2) == 0 {
                        self.cut_off.insert((victim, *other));
                    }
                }
                self.at(heal, What::Heal);
            }
            7 => {
                if self.draw.below(3) == 0 {
                    for id in ids {
                        self.crash(id)?;
                    }
                }
            }
            _ => self.cut_off.clear(),
        }
        Ok(())
    }

    /// Makes some of a leader's followers believe that its process has ended.
    fn see_gone(&mut self, leader: MemberId) -> Found {
        let ids: Vec<_> = self.nodes.keys().copied().collect();
        for id in ids {
            if id != leader && self.draw.below(4) > 0 {
                self.course.gone += 1;
                self.with(id, |n| {
                    n.input(|core| {
                        core.gone(leader);
                        Ok(())
                    });
                })?;
            }
        }
        Ok(())
    }

    /// Makes a leader fail: it crashes, or is cut off. A member that was cut off before is connected again.
    fn fall(&mut self, id: MemberId) -> Found {
        self.cut_off.clear();
        match self.draw.below(2) {
            0 => self.crash(id),
            _ => {
                for other in self.nodes.keys().filter(|other| **other != id) {
                    self.cut_off.insert((id, *other));
                    self.cut_off.insert((*other, id));
                }
                Ok(())
            }
        }
    }

    fn crash(&mut self, id: MemberId) -> Found {
        let keep = self.draw.below(4);
        self.with(id, |n| {
            if n.is_up() {
                n.crash(keep);
            }
        })
    }

    fn admin(&mut self) -> Found {
        let Some(id) = self.nodes.values().find(|n| n.leads()).map(|n| n.id) else {
            return Ok(());
        };
        let Some(core) = &self.nodes[&id].core else {
            return Ok(());
        };
        let in_force = core.in_force().clone();
        let members = &in_force.config.members;
        let other = members[self.draw.below(members.len() as u64) as usize].id;
        self.token += 1;
        let token = self.token;
        let (patience, force) = (self.draw.below(40), self.draw.below(2) == 0);
        match self.draw.below(5) {
            0 => self.with(id, |n| {
                n.input(|core| {
                    core.step_down(token, patience, patience, force);
                    Ok(())
                });
                if force && patience % 3 == 0 {
                    n.input(|core| {
                        core.take_back(token);
                        Ok(())
                    });
                }
            }),
            1 => self.with(id, |n| {
                n.input(|core| {
                    core.hand_over(token, other, patience);
                    Ok(())
                });
            }),
            2 => self.with(other, |n| {
                n.input(|core| {
                    core.campaign();
                    Ok(())
                });
            }),
            // In a world with losses, the members without which nothing is committed stay the same.
            _ if self.world.losses => Ok(()),
            _ => {
                let mut next = in_force.config.clone();
                next.version += 1;
                match self.draw.below(4) {
                    0 if next.members.len() > 3 => next.members.retain(|m| m.id != other),
                    1 if next.members.len() < 6 => {
                        let key = 100 + next.next_id;
                        next.members.push(match self.draw.below(3) {
                            0 => arbiter(key),
                            _ => member(key),
                        });
                    }
                    2 => {
                        let voting = next.members.iter().filter(|m| m.votes).count();
                        let with_data = |m: &&mut Member| m.id == other && !m.arbiter;
                        if let Some(m) = next.members.iter_mut().find(with_data) {
                            m.votes = !m.votes || voting <= 3;
                        }
                    }
                    _ => {
                        let priority = self.draw.below(3) as u32;
                        let may_change = |m: &&mut Member| m.id == other && m.id > 2 && !m.arbiter;
                        if let Some(m) = next.members.iter_mut().find(may_change) {
                            m.priority = priority * 1000;
                        }
                    }
                }
                let next = in_force.config.number(next);
                self.course.configs += 1;
                self.with(id, |n| {
                    n.input(|core| {
                        core.reconfigure(token, next);
                        Ok(())
                    });
                })
            }
        }
    }

    /// Lets the new members of a configuration begin with nothing.
    fn admit(&mut self, id: MemberId) {
        let Some(core) = &self.nodes[&id].core else {
            return;
        };
        let config = core.in_force().config.clone();
        let ids = config.members.iter().map(|m| m.id);
        let new: Vec<_> = ids.filter(|m| !self.nodes.contains_key(m)).collect();
        for id in new {
            self.join(&joining(id, config.clone()));
        }
    }

    fn trim(&mut self, id: MemberId) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let Some(core) = &mut node.core else { return };
        let most = core.committed().min(node.durable);
        while node.base < most {
            let Some(gone) = node.log.pop_front() else {
                break;
            };
            (node.base, node.base_term) = (gone.index, gone.term);
        }
        core.trimmed(node.base + 1);
    }

    /// Makes the member's data a copy of what its leader has committed.
    fn resync(&mut self, id: MemberId, from: MemberId, at_least: u64, waits: u64) {
        let source = self.nodes.get(&from).filter(|n| n.leads());
        let Some((source, core)) = source.and_then(|n| Some((n, n.core.as_ref()?))) else {
            return;
        };
        let at = core.committed();
        let term = source.record(at).map_or(source.base_term, |r| r.term);
        let in_force = (**core.in_force()).clone();
        let led = match core.role() {
            Role::Leader => (from, core.term()),
            _ => (0, 0),
        };
        let Some(node) = self
            .nodes
            .get_mut(&id)
            .filter(|n| (n.committed < at || waits > 0) && at >= at_least)
        else {
            return;
        };
        self.course.syncs += 1;
        node.crash(0);
        let synced = node.state().synced(at, term, in_force, led, waits);
        node.saved = synced.encode();
        node.log.clear();
        (node.base, node.base_term, node.durable) = (at, term, at);
        self.at(1, What::Start(id));
    }

    fn is_hollow(&self, id: MemberId) -> bool {
        self.hollow
            .as_ref()
            .is_some_and(|h| h.id == id && !h.filled)
    }

    /// Whether no member has forgotten anything that still matters. If two members had, the set would be
    /// lost.
    fn all_remember(&self) -> bool {
        let has_all = |h: &Hollow| {
            let core = self.nodes.get(&h.id).and_then(|n| n.core.as_ref());
            h.filled && core.is_some_and(|c| c.applied() >= h.waits)
        };
        let begins = |n: &Node| n.state().in_force.voters.is_empty();
        self.hollow.as_ref().is_none_or(has_all) && !self.nodes.values().any(begins)
    }

    /// Lets a member with data lose its disk. It does nothing while another member that has lost its disk
    /// lacks something that it had acknowledged, or while an arbiter has forgotten how it voted.
    fn lose(&mut self) -> Found {
        if !self.all_remember() {
            return Ok(());
        }
        let ids = self.nodes.keys().copied();
        let with_data: Vec<_> = ids.filter(|id| !self.is_arbiter(*id)).collect();
        let id = with_data[self.losses.below(with_data.len() as u64) as usize];
        // A member that is down may have been an arbiter.
        let Some(core) = &self.nodes[&id].core else {
            return Ok(());
        };
        let config = core.in_force().config.clone();
        self.course.lost += 1;
        self.syncing.remove(&id);
        self.telling.remove(&id);
        self.waiters.remove(&id);
        self.replace(&joining(id, config));
        self.hollow = Some(Hollow {
            id,
            asked: None,
            waits: 0,
            filled: false,
        });
        // Sometimes the others have to elect a leader before the member is filled.
        if self.losses.below(2) == 0
            && let Some(leader) = self.nodes.values().find(|n| n.leads()).map(|n| n.id)
        {
            self.crash(leader)?;
        }
        Ok(())
    }

    /// Lets the leader that a member without data has heard of make a record and ask the others whether it
    /// leads.
    fn ask_for(&mut self, id: MemberId, from: MemberId) -> Found {
        self.token += 1;
        let token = self.token;
        let Some(leader) = self.nodes.get(&from).filter(|n| n.leads()) else {
            return Ok(());
        };
        let Some(core) = leader.core.as_ref().filter(|c| c.needs(id)) else {
            return Ok(());
        };
        let term = core.term();
        let asked = self.hollow.as_ref().and_then(|h| h.asked);
        if asked.is_some_and(|(leader, at, _)| (leader, at) == (from, term)) {
            // The question may have been lost on its way.
            if self.losses.below(20) > 0 {
                return Ok(());
            }
        }
        let one_of_two = core.in_force().counts().writable == 2;
        let last = leader.last();
        let mut waits = None;
        self.with(from, |n| waits = n.write("begins anew"))?;
        let Some(waits) = waits.or(one_of_two.then_some(last)) else {
            return Ok(());
        };
        if let Some(h) = &mut self.hollow {
            (h.asked, h.waits) = (Some((from, term, token)), waits);
        }
        self.with(from, |n| {
            n.input(|core| {
                core.forget(id);
                core.confirm(token);
                Ok(())
            });
        })
    }

    /// Notes that a majority has confirmed that this member leads.
    fn confirmed(&mut self, leader: MemberId, token: u64) {
        let Some(h) = &self.hollow else { return };
        let (id, asked) = (h.id, h.asked);
        let core = self.nodes[&leader].core.as_ref();
        let leads = |term| core.is_some_and(|c| c.role() == Role::Leader && c.term() == term);
        if !h.filled && asked.is_some_and(|(l, term, t)| (l, t) == (leader, token) && leads(term)) {
            let soon = 1 + self.losses.below(30);
            self.at(soon, What::Fill(id));
        }
    }

    /// Gives the member its copy.
    fn fill(&mut self, id: MemberId) -> Found {
        let Some(h) = self.hollow.as_ref().filter(|h| h.id == id && !h.filled) else {
            return Ok(());
        };
        let (waits, Some((from, term, _))) = (h.waits, h.asked) else {
            return Ok(());
        };
        let leads = |n: &&Node| n.core.as_ref().is_some_and(|c| c.term() == term);
        if !self.nodes.get(&from).filter(leads).is_some_and(Node::leads) || !self.is_up(id) {
            return Ok(());
        }
        self.resync(id, from, 0, waits);
        if let Some(h) = &mut self.hollow {
            h.filled = true;
        }
        self.course.filled += 1;
        // Sometimes the leader fails at about the same time.
        if !self.calm && self.losses.below(2) == 0 {
            let soon = self.losses.below(40);
            self.at(soon, What::Fall(from));
        }
        Ok(())
    }

    /// Ends all faults.
    fn calm_down(&mut self) {
        self.calm = true;
        self.cut_off.clear();
        self.world.trims = false;
        let ids: Vec<_> = self.nodes.keys().copied().collect();
        for id in ids {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.fuse = None;
            }
            self.at(1, What::Start(id));
        }
    }

    /// Whether one member leads, and all members of its configuration have committed its whole log.
    fn at_rest(&self) -> bool {
        let mut leaders = self.nodes.values().filter(|n| n.leads());
        // A removed member may still believe that it leads.
        let leader = leaders
            .by_ref()
            .max_by_key(|n| n.core.as_ref().map(Core::term));
        let Some((node, core)) = leader.and_then(|n| Some((n, n.core.as_ref()?))) else {
            return false;
        };
        let in_force = core.in_force();
        let settled = in_force.voters == in_force.config.wanted_voters();
        let told = |n: &Node| {
            let same = |c: &Core| c.term() == core.term() && c.in_force() == in_force;
            n.core.as_ref().is_some_and(same)
        };
        let same = |m: &Member| {
            if m.arbiter {
                return self.nodes.get(&m.id).is_some_and(told);
            }
            self.nodes.get(&m.id).is_some_and(|n| {
                n.last() == node.last()
                    && n.committed == node.last()
                    && n.core.as_ref().is_some_and(|c| c.term() == core.term())
                    && (n.log.back().zip(node.log.back())).is_none_or(|(a, b)| a == b)
            })
        };
        node.door.is_some() && settled && in_force.config.members.iter().all(same)
    }

    fn picture(&self) -> String {
        let lines = self.nodes.values().map(|n| {
            let core = n.core.as_ref();
            let state = core.map(|c| (c.role(), c.term(), c.committed(), c.leader()));
            let in_force = core.map(|c| (c.in_force().voters.clone(), c.in_force().learners.clone()));
            let (base, last, durable) = (n.base, n.last(), n.durable);
            format!(
                "{}: {state:?} {in_force:?} base {base} last {last} durable {durable} door {:?} untold {}",
                n.id,
                n.door,
                n.untold.len()
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn is_vote(packet: &Packet) -> bool {
    let Packet::Raft { message, .. } = packet else {
        return false;
    };
    let (message, _) = Message::decode(message).expect("a sound message");
    matches!(
        message.body,
        Body::VoteReply {
            preliminary: false,
            reject: false,
            ..
        }
    )
}

/// The state of a member that has nothing, and knows the configuration from another one.
fn joining(id: MemberId, config: Config) -> LocalState {
    LocalState {
        in_force: InForce {
            config,
            ..InForce::default()
        },
        ..LocalState::joining(id)
    }
}

fn run(seed: u64, bugs: Bugs) -> Result<Course, String> {
    let run = std::panic::catch_unwind(|| Sim::new(seed, bugs).run());
    run.unwrap_or_else(|_| Err("a panic, see above".into()))
}

/// Runs the seeds. If one fails, the message says how to run it again.
fn run_all(seeds: std::ops::Range<u64>) {
    let mut sum = Course::default();
    for seed in seeds.clone() {
        match run(seed, Bugs::default()) {
            Ok(c) => {
                sum.elections += c.elections;
                sum.committed += c.committed;
                sum.given_up += c.given_up;
                sum.crashes += c.crashes;
                sum.syncs += c.syncs;
                sum.configs += c.configs;
                sum.woken += c.woken;
                sum.emptied += c.emptied;
                sum.arbitrated += c.arbitrated;
                sum.gone += c.gone;
                sum.lost += c.lost;
                sum.filled += c.filled;
            }
            Err(why) => panic!(
                "seed {seed}: {why}\nrun it again: MUNIMENT_SEED={seed} cargo test -p muniment-consensus simulate"
            ),
        }
    }
    println!("seeds {seeds:?}: {sum:?}");
    if seeds.end - seeds.start >= 100 {
        let all = [
            sum.given_up,
            sum.crashes,
            sum.syncs,
            sum.configs,
            sum.woken,
            sum.emptied,
            sum.arbitrated,
            sum.gone,
            sum.lost,
            sum.filled,
        ];
        assert!(
            all.iter().all(|n| *n > 0),
            "something never happened: {sum:?}"
        );
    }
}

#[test]
fn simulate() {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    if let Some(seed) = number("MUNIMENT_SEED") {
        return run_all(seed..seed + 1);
    }
    let seeds = match std::env::var_os("MUNIMENT_LONG") {
        Some(_) => 10_000,
        None => 200,
    };
    run_all(0..number("MUNIMENT_SEEDS").unwrap_or(seeds));
}

/// The first seed that finds a bug, and that finds nothing without the bug.
fn first_to_find(bugs: Bugs) -> Option<(u64, String)> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut found = (0..1000).filter_map(|seed| Some((seed, run(seed, bugs).err()?)));
    let found = found.find(|(seed, _)| run(*seed, Bugs::default()).is_ok());
    std::panic::set_hook(hook);
    found
}

#[test]
fn known_bugs_are_found() {
    let none = Bugs::default();
    let bugs = [
        (
            "acknowledge early",
            Bugs {
                acknowledge_early: true,
                ..none
            },
        ),
        (
            "ignore terms",
            Bugs {
                ignore_terms: true,
                ..none
            },
        ),
        (
            "forget votes",
            Bugs {
                forget_votes: true,
                ..none
            },
        ),
        (
            "commit old terms",
            Bugs {
                commit_old_terms: true,
                ..none
            },
        ),
        (
            "arbiters acknowledge",
            Bugs {
                arbiters_acknowledge: true,
                ..none
            },
        ),
        (
            "arbiters forget votes",
            Bugs {
                arbiters_forget_votes: true,
                ..none
            },
        ),
        (
            "empty arbiters vote",
            Bugs {
                empty_arbiters_vote: true,
                ..none
            },
        ),
        (
            "arbiters stand for election",
            Bugs {
                arbiters_stand: true,
                ..none
            },
        ),
        (
            "filled members wait for nothing",
            Bugs {
                waits_for_nothing: true,
                ..none
            },
        ),
    ];
    let only = std::env::var("MUNIMENT_BUG").unwrap_or_default();
    for (name, bugs) in bugs.into_iter().filter(|(name, _)| name.contains(&only)) {
        let found = first_to_find(bugs);
        let (seed, why) = found.unwrap_or_else(|| panic!("{name}: not found in 1000 seeds"));
        println!(
            "{name}: found at seed {seed}: {}",
            why.lines().next().unwrap_or_default()
        );
    }
}
