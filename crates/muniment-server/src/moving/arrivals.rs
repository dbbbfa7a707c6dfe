//! The moves that bring a range to this shard, as far as they are known in memory alone.

use super::figures::Figures;
use super::lanes::Lanes;
use crate::sets::SetPool;
use muniment_storage::{Owned, Timestamp};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A move that nobody has gone on with for this time is forgotten. Its router has lost its right by then.
const IDLE: Duration = Duration::from_secs(15);

/// What comes next.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// The rows after a place.
    Rows(Option<Vec<u8>>),
    /// What sessions remember, after a session.
    Sessions(Option<Vec<u8>>),
    /// What has changed.
    Changes,
}

/// A range that arrives.
pub(super) struct Arrival {
    pub donor: Arc<SetPool>,
    pub range: Owned,
    pub phase: Phase,
    /// Everything that was committed on the donor up to here has arrived.
    pub until: Option<Timestamp>,
    pub used: Instant,
    /// The stint of leadership in which it began.
    pub stint: u64,
}

impl Arrival {
    /// Whether nobody goes on with it any more.
    fn is_left(&self) -> bool {
        muniment_op::since(self.used) >= IDLE
    }
}

/// A range of a collection, by its UUID, that was given away, and when.
pub(super) type Waste = ([u8; 16], Owned, muniment_shard::Timestamp);

/// What a shard keeps of moves in memory.
#[derive(Default)]
pub struct Moving {
    /// The moves that bring a range here, by their ids.
    arrivals: Mutex<HashMap<[u8; 16], Arc<Mutex<Arrival>>>>,
    /// There may be rows to clean.
    pub waste: AtomicBool,
    /// Since when ranges of collections are known to be waste.
    pub(super) since: Mutex<HashMap<Waste, Instant>>,
    /// What has happened since the start.
    pub figures: Figures,
    /// What routers copy into collections that are to take the place of others.
    pub copies: Lanes,
}

impl Moving {
    /// A move begins to bring a range here. Those that nobody goes on with are forgotten.
    pub(super) fn begin(&self, id: [u8; 16], arrival: Arrival) {
        let mut all = self.arrivals.lock();
        all.retain(|_, a| a.try_lock().is_none_or(|a| !a.is_left()));
        all.insert(id, Arc::new(Mutex::new(arrival)));
    }

    /// A move that brings a range here.
    pub(super) fn arrival(&self, id: &[u8; 16]) -> Option<Arc<Mutex<Arrival>>> {
        self.arrivals.lock().get(id).map(Arc::clone)
    }

    /// Forgets a move.
    pub(super) fn end(&self, id: &[u8; 16]) {
        self.arrivals.lock().remove(id);
    }

    /// Whether a router may still go on with a move that brings a range here.
    pub(super) fn goes_on(&self, id: &[u8; 16]) -> bool {
        let arrival = self.arrival(id);
        arrival.is_some_and(|a| a.try_lock().is_none_or(|a| !a.is_left()))
    }
}
