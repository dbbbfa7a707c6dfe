//! The messages by which routers copy into collections that are to take the place of others, as far as they are known in
//! memory alone: a late one must not undo a later one.

use muniment_op::Lock;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The messages of a router that has sent none for this time are forgotten.
const IDLE: Duration = Duration::from_secs(600);

/// A collection, and one of several ways of messages to it.
pub(super) type Lane = ([u8; 16], i64);

/// The number of the newest message of a lane, and when it came.
pub(super) type Newest = Arc<Lock<(i64, Instant)>>;

/// The messages that routers have sent, as far as they are known in memory.
#[derive(Default)]
pub struct Lanes(Mutex<HashMap<Lane, Newest>>);

impl Lanes {
    /// The newest message of a lane, or of none.
    pub(super) fn newest(&self, lane: Lane) -> Newest {
        let mut all = self.0.lock();
        let is_used = |n: &Newest| n.try_lock().is_none_or(|n| muniment_op::since(n.1) < IDLE);
        all.retain(|_, newest| is_used(newest));
        let new = || Arc::new(Lock::new((i64::MIN, muniment_op::now())));
        Arc::clone(all.entry(lane).or_insert_with(new))
    }
}
