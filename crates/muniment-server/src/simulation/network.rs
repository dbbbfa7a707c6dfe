//! What happens on the ways between members: they connect, send, and frames arrive.

use super::cluster::Found;
use super::roads::PAUSE;
use super::sim::Sim;
use super::world::{MS, What};
use crate::replica_set::simulation::hands::NewWay;
use crate::replica_set::simulation::network::{Road, Wire};
use muniment_value::Code;

/// A connection over a link that is cut is given up after so long.
const SILENCE: u64 = 1000 * MS;

impl Sim {
    /// A member has asked for ways to others of its set.
    pub fn new_roads(&mut self, m: usize, ways: Vec<NewWay>) {
        let set = self.servers[&m].set;
        let mut inner = self.world.lock();
        for way in ways {
            let to = inner.sets[set][way.to as usize - 1];
            let road = Road::new((m, inner.processes[m].run), to, way);
            let id = inner.next_number();
            self.roads.roads.insert(id, road);
            let soon = inner.random.below(5 * MS);
            inner.at(soon, What::Connect(id));
        }
    }

    pub fn connect(&mut self, id: u64) -> Found {
        let Some(road) = self.roads.roads.get_mut(&id) else {
            return Ok(());
        };
        if road.queue.lock().dropped || road.wire.is_some() {
            return Ok(());
        }
        let (from, to) = (road.from, road.to);
        let mut inner = self.world.lock();
        let reached = !inner.is_cut(from, to);
        let other = self.servers[&to].up.as_ref().map(|up| &up.state);
        let Some(incoming) = road.calls(other, reached) else {
            inner.at(PAUSE, What::Connect(id));
            return Ok(());
        };
        let number = inner.next_number();
        road.gets(number);
        let wire = Wire::new((id, road), inner.processes[to].run, incoming);
        self.roads.wires.insert(number, wire);
        drop(inner);
        self.after(to)
    }

    /// Sends what waits.
    pub fn serve_road(&mut self, id: u64) {
        let Some(road) = self.roads.roads.get_mut(&id) else {
            return;
        };
        road.serving = false;
        if road.queue.lock().dropped {
            self.roads.roads.remove(&id);
            return;
        }
        let (Some(wire), Some(up)) = (road.wire, &self.servers[&road.from].up) else {
            return;
        };
        let (frames, all) = road.take(&up.state.engine.store);
        let Some(wired) = self.roads.wires.get_mut(&wire) else {
            return;
        };
        wired.flight.extend(frames);
        let mut inner = self.world.lock();
        let inner = &mut *inner;
        let lost = !inner.calm && inner.random.below(1000) < inner.rough.loss;
        if !wired.flight.is_empty() && !std::mem::replace(&mut wired.arriving, true) {
            let delay = inner.delay();
            inner.at(delay, What::Arrive(wire));
        }
        if !all || lost {
            self.roads.break_off(inner, id);
        }
    }

    /// A frame arrives.
    pub fn arrive(&mut self, id: u64) -> Found {
        let Some(wire) = self.roads.wires.get_mut(&id) else {
            return Ok(());
        };
        let (from, to, road, run) = (wire.from, wire.to, wire.road, wire.run);
        let mut inner = self.world.lock();
        let up = self.servers[&to].up.as_ref();
        let Some(up) = up.filter(|_| inner.processes[to].run == run) else {
            self.roads.wires.remove(&id);
            return Ok(());
        };
        if inner.is_cut(from, to) {
            let now = inner.now();
            let since = *wire.stuck.get_or_insert(now);
            match now - since > SILENCE {
                true => {
                    self.roads.break_off(&mut inner, road);
                    self.roads.wires.remove(&id);
                }
                false => inner.at(20 * MS, What::Arrive(id)),
            }
            return Ok(());
        }
        (wire.stuck, wire.arriving) = (None, false);
        let Some(frame) = wire.flight.pop_front() else {
            return Ok(());
        };
        let taken = wire.incoming.take(&up.state.lifecycle, &frame);
        if !wire.flight.is_empty() {
            wire.arriving = true;
            let delay = 1 + inner.delay() / 4;
            inner.at(delay, What::Arrive(id));
        } else if self
            .roads
            .roads
            .get(&road)
            .is_none_or(|r| r.wire != Some(id))
        {
            self.roads.wires.remove(&id);
        }
        if let Err(e) = taken {
            if e.code() != Code::NodeNotFound {
                return Err(format!("member {to} does not understand {from}: {e}"));
            }
            // It is elsewhere by now: the connection ends.
            self.roads.wires.remove(&id);
            self.roads.break_off(&mut inner, road);
            return Ok(());
        }
        drop(inner);
        self.after(to)
    }
}
