//! The ways between the members of a set, as in the simulator of a set: connections that carry frames in order, slowly,
//! and break.

use super::world::{Inner, MS, What};
use crate::replica_set::simulation::network::{Road, Wire};
use std::collections::BTreeMap;

/// The pause before a member connects again.
pub const PAUSE: u64 = 250 * MS;
/// The ways that members have asked for, and the connections that are open.
#[derive(Default)]
pub struct Roads {
    pub roads: BTreeMap<u64, Road>,
    pub wires: BTreeMap<u64, Wire>,
}

impl Roads {
    /// What a member has put on its ways is sent soon.
    pub fn serve_soon(&mut self, inner: &mut Inner, (m, run): (usize, u64)) {
        for (id, road) in &mut self.roads {
            if road.from == m && road.run == run && road.waits() {
                road.serving = true;
                let soon = inner.random.below(MS);
                inner.at(soon, What::Serve(*id));
            }
        }
    }

    /// A member's process has ended.
    pub fn gone(&mut self, inner: &mut Inner, m: usize) {
        self.roads.retain(|_, road| road.from != m);
        // What it has sent may still arrive; what was on the way to it has nowhere to go.
        self.wires
            .retain(|_, wire| wire.to != m && (wire.from != m || !wire.flight.is_empty()));
        let to = self.roads.iter().filter(|(_, road)| road.to == m);
        let broken: Vec<u64> = to.map(|(id, _)| *id).collect();
        for road in broken {
            self.break_off(inner, road);
        }
    }

    /// A connection breaks, and is made anew.
    pub fn break_off(&mut self, inner: &mut Inner, id: u64) {
        let Some(wire) = self.roads.get_mut(&id).and_then(Road::loses) else {
            return;
        };
        if let Some(wire) = self.wires.get_mut(&wire) {
            wire.breaks(&mut inner.random);
        }
        inner.at(PAUSE, What::Connect(id));
    }
}
