//! The barriers that members without any data are at: see [`barrier`](super::barrier).

use muniment_consensus::MemberId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The barrier of a member that has not asked for so long, and an election timeout, begins anew.
const FORGOTTEN: Duration = Duration::from_secs(30);

/// The barriers by member. A barrier is kept while its member asks again and again.
#[derive(Default)]
pub struct Barriers(Mutex<BTreeMap<MemberId, Barrier>>);

/// What a member that has nothing waits for.
#[derive(Clone, Copy)]
pub struct Barrier {
    /// The term in which it was set up.
    pub term: u64,
    /// Since when it stands.
    pub since: Instant,
    asked: Instant,
    /// The record, once there is one.
    pub record: Option<u64>,
}

impl Barriers {
    /// The barrier of a member in this term.
    pub fn of(&self, member: MemberId, term: u64, election: Duration) -> Barrier {
        let now = Instant::now();
        let mut all = self.0.lock();
        let new = Barrier {
            term,
            since: now,
            asked: now,
            record: None,
        };
        let barrier = all.entry(member).or_insert(new);
        if barrier.term != term || barrier.asked.elapsed() > FORGOTTEN + election {
            *barrier = new;
        }
        barrier.asked = now;
        *barrier
    }

    /// The barrier has its record.
    pub fn made(&self, member: MemberId, term: u64, record: u64) {
        let mut all = self.0.lock();
        if let Some(barrier) = all.get_mut(&member).filter(|b| b.term == term) {
            barrier.record = Some(record);
        }
    }

    /// The member has passed its barrier: the next copy needs another one.
    pub fn passed(&self, member: MemberId) {
        self.0.lock().remove(&member);
    }
}
