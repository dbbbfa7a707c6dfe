//! The network between members: connections that carry frames in order, slowly, and break.
//!
//! A connection is one way. What is on it when it breaks is lost, or arrives all the same a little
//! later, beside a new one: as bytes do that are in a socket's buffer. While a link is cut off, what
//! is on the way waits, as TCP sends it again, until the connection is given up.

use super::hands::Queue;
use super::oracle::Found;
use super::sim::{MS, Sim, What};
use crate::replica_set::host_of;
use muniment_member::frame::put_report;
use muniment_member::incoming;
use muniment_member::incoming::Incoming;
use muniment_member::peer::Records;
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

/// Splits bytes into messages of the wire protocol.
pub fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
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
        let Some(road) = self.roads.get_mut(&id) else {
            return;
        };
        let Some(wire) = road.wire.take() else {
            return;
        };
        {
            let mut queue = road.queue.lock();
            queue.connected = false;
            queue.messages.clear();
            queue.given.clear();
            queue.report = None;
        }
        // Some of what is on it arrives all the same.
        if let Some(wire) = self.wires.get_mut(&wire) {
            let n = self.random.below(wire.flight.len() as u64 + 1);
            wire.flight.truncate(n as usize);
        }
        self.at(250 * MS, What::Connect(id));
    }

    pub(super) fn connect(&mut self, id: u64) {
        let Some(road) = self.roads.get(&id) else {
            return;
        };
        let (from, to) = (road.from, road.to);
        if road.queue.lock().dropped || road.wire.is_some() {
            return;
        }
        let reached = !self.cut_off.contains(&(from, to)) && !self.cut_off.contains(&(to, from));
        let run = self.members[to].run;
        let incoming = match &self.members[to].running {
            Some(r) if reached => {
                let greeting = road.greeting.lock().clone();
                let host = host_of(&r.state);
                incoming::greet(r.set(), &host, greeting.as_doc(), false)
            }
            _ => Ok(None),
        };
        road.queue.lock().refused = reached && self.members[to].running.is_none();
        let Ok(Some(incoming)) = incoming else {
            self.at(250 * MS, What::Connect(id));
            return;
        };
        self.number += 1;
        let wire = self.number;
        let road = self.roads.get_mut(&id).unwrap();
        road.wire = Some(wire);
        road.records = Default::default();
        road.queue.lock().connected = true;
        self.wires.insert(
            wire,
            Wire {
                road: id,
                from,
                to,
                run,
                incoming,
                flight: Default::default(),
                arriving: false,
                stuck: None,
            },
        );
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
        let from = road.from;
        let Some(r) = &self.members[from].running else {
            return Ok(());
        };
        let (messages, report) = {
            let mut queue = road.queue.lock();
            (std::mem::take(&mut queue.messages), queue.report.take())
        };
        let mut out = Vec::new();
        let mut failed = false;
        for mut message in messages {
            while let Some(rest) = match road.records.put(r.store(), &mut message, &mut out, 0) {
                Ok(rest) => rest,
                Err(_) => {
                    failed = true;
                    None
                }
            } {
                message = rest;
            }
        }
        if let Some(report) = report {
            put_report(&mut out, report.as_doc());
        }
        let all = frames(&out);
        let Some(wire_) = self.wires.get_mut(&wire) else {
            return Ok(());
        };
        wire_.flight.extend(all);
        let lost = !self.calm && self.random.below(1000) < self.world.loss;
        if !wire_.flight.is_empty() && !std::mem::replace(&mut wire_.arriving, true) {
            let delay = 1 + self.random.below(self.world.delay);
            self.at(delay, What::Arrive(wire));
        }
        if failed || lost {
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
