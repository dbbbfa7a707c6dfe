//! A connection of a pool, and whether a worker has it.

use crate::connections::ConnShared;
use crate::serving::Served;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire},
};

/// No worker has the connection, and nothing has arrived for it.
pub(super) const IDLE: u8 = 0;
/// It waits for a worker.
pub(super) const READY: u8 = 1;
/// A worker has it.
pub(super) const SERVED: u8 = 2;
/// A worker has it, and more has arrived.
pub(super) const AGAIN: u8 = 3;
/// It has ended.
pub(super) const ENDED: u8 = 4;

/// A connection of the pool.
pub(super) struct Entry {
    pub(super) shared: Arc<ConnShared>,
    /// Whether a worker has the connection; only that one takes `served`.
    pub(super) state: AtomicU8,
    pub(super) served: Mutex<Option<Box<Served>>>,
    /// The client has closed its end, or sent urgent data.
    pub(super) odd: AtomicBool,
    /// The last span in which it had a message.
    pub(super) span: AtomicU32,
    /// The connection has not given its buffers back, and when it had its last message, in milliseconds of
    /// the pool's clock.
    pub(super) awake: AtomicBool,
    pub(super) last: AtomicU64,
    /// How often it was served in that span.
    pub(super) times: AtomicU32,
}

impl Entry {
    /// A connection in this state, at a time in milliseconds of the pool's clock.
    pub(super) fn new(
        shared: &Arc<ConnShared>,
        served: Box<Served>,
        state: u8,
        now_ms: u64,
    ) -> Arc<Entry> {
        Arc::new(Entry {
            shared: Arc::clone(shared),
            state: AtomicU8::new(state),
            served: Mutex::new(Some(served)),
            odd: AtomicBool::new(false),
            span: AtomicU32::new(0),
            awake: AtomicBool::new(true),
            last: AtomicU64::new(now_ms),
            times: AtomicU32::new(0),
        })
    }

    /// Something has arrived. Returns whether the connection has to be given to a worker.
    pub(super) fn arrives(&self) -> bool {
        let change = |state| match state {
            IDLE => Some(READY),
            SERVED => Some(AGAIN),
            _ => None,
        };
        self.state.fetch_update(AcqRel, Acquire, change) == Ok(IDLE)
    }
}
