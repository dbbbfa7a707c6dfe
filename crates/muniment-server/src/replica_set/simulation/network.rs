//! The network between members: connections that carry frames in order, slowly, and break.
//!
//! A connection is one way. What is on it when it breaks is lost, or arrives all the same a little
//! later, beside a new one: as bytes do that are in a socket's buffer. While a link is cut off, what
//! is on the way waits, as TCP sends it again, until the connection is given up.

use super::hands::{NewWay, Queue};
use super::oracle::Found;
use super::random::Random;
use super::sim::{MS, Sim, What};
use crate::replica_set::host_of;
use crate::state::ServerState;
use muniment_member::frame::put_report;
use muniment_member::incoming;
use muniment_member::incoming::Incoming;
use muniment_member::peer::Records;
use muniment_storage::Store;
use muniment_value::{Code, DocBuf};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// A way that a member has asked for.
pub struct Road {
    pub from: usize,
    /// The process that asked.
    pub run: u64,
    pub to: usize,
    pub greeting: Arc<Mutex<DocBuf>>,
    pub queue: Arc<Mutex<Queue>>,
    /// The connection that is open.
    pub wire: Option<u64>,
    /// What waits is about to be sent.
    pub serving: bool,
    /// What reads the log for it.
    pub records: Records,
}

/// An open connection.
pub struct Wire {
    pub road: u64,
    pub from: usize,
    pub to: usize,
    /// The receiving process.
    pub run: u64,
    pub incoming: Incoming,
    pub flight: VecDeque<Vec<u8>>,
    /// The first of it is about to arrive.
    pub arriving: bool,
    /// Since when it waits for a link that is cut off.
    pub stuck: Option<u64>,
}

impl Road {
    /// The way to another member that a process has asked for.
    pub fn new((from, run): (usize, u64), to: usize, way: NewWay) -> Road {
        Road {
            from,
            run,
            to,
            greeting: way.greeting,
            queue: way.queue,
            wire: None,
            serving: false,
            records: Default::default(),
        }
    }

    /// The other member is called; `None` if it does not answer, or nothing `reaches` it.
    pub fn calls(&self, other: Option<&Arc<ServerState>>, reaches: bool) -> Option<Incoming> {
        self.queue.lock().refused = reaches && other.is_none();
        let state = other.filter(|_| reaches)?;
        let set = state.replica_set.as_ref()?;
        let greeting = self.greeting.lock().clone();
        let met = incoming::greet(set, &host_of(state), greeting.as_doc(), false);
        met.ok().flatten()
    }

    /// A connection is open.
    pub fn gets(&mut self, wire: u64) {
        self.wire = Some(wire);
        self.records = Default::default();
        self.queue.lock().connected = true;
    }

    /// The connection breaks: what waits is lost. The connection's number, if there was one.
    pub fn loses(&mut self) -> Option<u64> {
        let wire = self.wire.take()?;
        let mut queue = self.queue.lock();
        queue.connected = false;
        queue.messages.clear();
        queue.given.clear();
        queue.report = None;
        Some(wire)
    }

    /// Whether something waits that nobody is about to send.
    pub fn waits(&self) -> bool {
        let queue = self.queue.lock();
        let something = !queue.messages.is_empty() || queue.report.is_some();
        something && self.wire.is_some() && !self.serving
    }

    /// Takes the frames of what waits. False if some of it cannot be read from the log any more.
    pub fn take(&mut self, store: &Arc<Store>) -> (Vec<Vec<u8>>, bool) {
        let (messages, report) = {
            let mut queue = self.queue.lock();
            (std::mem::take(&mut queue.messages), queue.report.take())
        };
        let (mut out, mut all) = (Vec::new(), true);
        for mut message in messages {
            loop {
                match self.records.put(store, &mut message, &mut out, 0) {
                    Ok(Some(rest)) => message = rest,
                    Ok(None) => break,
                    Err(_) => {
                        all = false;
                        break;
                    }
                }
            }
        }
        if let Some(report) = report {
            put_report(&mut out, report.as_doc());
        }
        (frames(&out), all)
    }
}

impl Wire {
    /// The connection of a way, to a process of the other member.
    pub fn new((id, road): (u64, &Road), run: u64, incoming: Incoming) -> Wire {
        Wire {
            road: id,
            from: road.from,
            to: road.to,
            run,
            incoming,
            flight: Default::default(),
            arriving: false,
            stuck: None,
        }
    }

    /// It breaks. Some of what is on it arrives all the same.
    pub fn breaks(&mut self, random: &mut Random) {
        let n = random.below(self.flight.len() as u64 + 1);
        self.flight.truncate(n as usize);
    }
}

/// Splits bytes into messages of the wire protocol.
fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(header) = muniment_wire::Header::parse(bytes) {
        let (one, rest) = bytes.split_at(header.message_length as usize);
        all.push(one.to_vec());
        bytes = rest;
    }
    all
}

impl Sim {
    /// A connection breaks, and is made anew.
    pub(super) fn break_off(&mut self, id: u64) {
        let Some(wire) = self.roads.get_mut(&id).and_then(Road::loses) else {
            return;
        };
        if let Some(wire) = self.wires.get_mut(&wire) {
            wire.breaks(&mut self.random);
        }
        self.at(250 * MS, What::Connect(id));
    }

    pub(super) fn connect(&mut self, id: u64) {
        let Some(road) = self.roads.get_mut(&id) else {
            return;
        };
        let (from, to) = (road.from, road.to);
        if road.queue.lock().dropped || road.wire.is_some() {
            return;
        }
        let reached = !self.cut_off.contains(&(from, to)) && !self.cut_off.contains(&(to, from));
        let (run, other) = (self.members[to].run, &self.members[to].running);
        let other = other.as_ref().map(|r| &r.state);
        let Some(incoming) = road.calls(other, reached) else {
            self.at(250 * MS, What::Connect(id));
            return;
        };
        self.number += 1;
        road.gets(self.number);
        let wire = Wire::new((id, road), run, incoming);
        self.wires.insert(self.number, wire);
    }

    /// Sends what waits.
    pub(super) fn serve(&mut self, id: u64) -> Found {
        let Some(road) = self.roads.get_mut(&id) else {
            return Ok(());
        };
        road.serving = false;
        if road.queue.lock().dropped {
            self.roads.remove(&id);
            return Ok(());
        }
        let Some(wire) = road.wire else { return Ok(()) };
        let Some(r) = &self.members[road.from].running else {
            return Ok(());
        };
        let (frames, all) = road.take(r.store());
        let Some(wire_) = self.wires.get_mut(&wire) else {
            return Ok(());
        };
        wire_.flight.extend(frames);
        let lost = !self.calm && self.random.below(1000) < self.world.loss;
        if !wire_.flight.is_empty() && !std::mem::replace(&mut wire_.arriving, true) {
            let delay = 1 + self.random.below(self.world.delay);
            self.at(delay, What::Arrive(wire));
        }
        if !all || lost {
            self.break_off(id);
        }
        Ok(())
    }

    pub(super) fn arrive(&mut self, id: u64) -> Found {
        let Some(wire) = self.wires.get_mut(&id) else {
            return Ok(());
        };
        let (from, to, road) = (wire.from, wire.to, wire.road);
        if !self.is(to, self.wires[&id].run) {
            self.wires.remove(&id);
            return Ok(());
        }
        let wire = self.wires.get_mut(&id).unwrap();
        if self.cut_off.contains(&(from, to)) {
            let now = self.time.now();
            let since = *wire.stuck.get_or_insert(now);
            if now - since > 1000 * MS {
                self.break_off(road);
                self.wires.remove(&id);
                return Ok(());
            }
            self.at(20 * MS, What::Arrive(id));
            return Ok(());
        }
        wire.stuck = None;
        wire.arriving = false;
        let Some(frame) = wire.flight.pop_front() else {
            return Ok(());
        };
        let r = self.members[to].running.as_ref().unwrap();
        let taken = wire.incoming.take(&r.state.lifecycle, &frame);
        if !wire.flight.is_empty() {
            wire.arriving = true;
            let delay = 1 + self.random.below(self.world.delay / 4 + 1);
            self.at(delay, What::Arrive(id));
        } else if self.roads.get(&road).is_none_or(|r| r.wire != Some(id)) {
            self.wires.remove(&id);
        }
        if taken
            .as_ref()
            .is_err_and(|e| e.code() == Code::NodeNotFound)
        {
            // It was removed, or is elsewhere by now: the connection ends.
            self.wires.remove(&id);
            self.break_off(road);
            return Ok(());
        }
        taken.map_err(|e| format!("member {to} does not understand {from}: {e}"))?;
        // The thread that brings a message takes the turn, or finds that another one has the driver.
        match self.random.one_in(2) {
            true => self.help(to),
            false => self.after(to),
        }
    }
}
