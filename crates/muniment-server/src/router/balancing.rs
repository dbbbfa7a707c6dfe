//! The balancer as other parts of the server see it.

use super::Router;
use muniment_exec::OpContext;
use muniment_value::Code;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// See the module's head.
#[derive(Default)]
pub struct Balancer {
    /// The way to the configuration's set, which is this server's own, and to the shards.
    router: OnceLock<Router>,
    /// How many rounds there were.
    rounds: AtomicU64,
    /// The next round begins at once.
    wanted: AtomicBool,
    /// The operation of the round that runs.
    round: Mutex<Option<Arc<OpContext>>>,
}

impl Balancer {
    /// How many rounds there were, and whether one runs.
    pub fn status(&self) -> (u64, bool) {
        (self.rounds.load(Relaxed), self.round.lock().is_some())
    }

    /// Has the next round begin within a second.
    pub fn wake(&self) {
        self.wanted.store(true, Relaxed);
    }

    /// Whether somebody wants a round, which is then taken to begin.
    pub fn is_wanted(&self) -> bool {
        self.wanted.swap(false, Relaxed)
    }

    /// Ends the round of a member that leads its set no more.
    pub fn check(&self, leads: bool) {
        if let Some(op) = &*self.round.lock()
            && !leads
        {
            op.kill(Code::PrimarySteppedDown);
        }
    }

    /// A round begins.
    pub fn begin(&self, op: &Arc<OpContext>) {
        *self.round.lock() = Some(Arc::clone(op));
    }

    /// The round has ended.
    pub fn end(&self) {
        *self.round.lock() = None;
        self.rounds.fetch_add(1, Relaxed);
    }

    /// Its router, which is made when it is first needed.
    pub fn router(&self, made: impl FnOnce() -> Router) -> &Router {
        self.router.get_or_init(made)
    }
}
