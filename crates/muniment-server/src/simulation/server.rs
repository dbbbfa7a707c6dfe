//! A member of a set, as the simulator has it.

use crate::replica_set::simulation::hands::Hands;
use crate::replica_set::simulation::member::Member;
use crate::state::ServerState;
use muniment_member::driver::Driver;
use muniment_member::node::Node;
use muniment_value::Result;
use parking_lot::Mutex;
use std::sync::Arc;

/// A member of a set, and what the simulator keeps of it.
pub struct Server {
    pub member: Member,
    /// The number of its set.
    pub set: usize,
    /// What it has while its process lives.
    pub up: Option<Up>,
    /// A turn is about to begin, since something came.
    pub called: bool,
    pub syncing: bool,
    /// Its driver rests until then.
    pub due: u64,
    pub leads: bool,
}

/// A member's process.
pub struct Up {
    pub state: Arc<ServerState>,
    pub node: Arc<Node>,
    pub hands: Hands,
    pub driver: Arc<Mutex<Driver>>,
    /// What the turn has come to that was begun last; `None` in it while it goes on.
    pub turn: Option<Arc<Mutex<Option<Result<()>>>>>,
}

impl Server {
    pub fn new(member: Member, set: usize) -> Server {
        Server {
            member,
            set,
            up: None,
            called: false,
            syncing: false,
            due: 0,
            leads: false,
        }
    }

    /// Its process ends.
    pub fn ends(&mut self, process: bool, seed: u64) {
        self.up = None;
        self.member.crash(process, seed);
    }
}
