//! What runs the work that a member of a set does by itself: threads, or a simulator that calls each step
//! in virtual time.

use super::driver::Driver;
use super::initial_sync;
use super::node::Node;
use super::set::ReplicaSet;
use crate::lifecycle::Lifecycle;
use muniment_consensus::MemberId;
use muniment_value::Result;
use std::sync::Arc;
use std::time::Duration;

/// Something that is to be done concurrently.
pub type Job = Box<dyn FnOnce() + Send>;

/// Mistakes that a simulation has a member make, to see that it finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Records are told to be durable before they were synced.
    AcknowledgeEarly,
    /// The storage is told that everything it has is committed.
    CommitAll,
    /// What a locked member sets aside is acknowledged before it was synced.
    AsideUnsynced,
    /// What was set aside is dropped when the lock ends.
    AsideDropped,
    /// What is remembered beside the log says that what was only set aside is committed.
    StateAhead,
}

/// See the module's head.
pub trait World: Send + Sync {
    /// Calls the driver's turns, and the persister's, until the server ends.
    ///
    /// # Errors
    /// The system has no thread.
    fn drive(&self, set: &ReplicaSet, node: &Arc<Node>, driver: Driver) -> Result<()>;

    /// Fills this member with what another one has ([`initial_sync::run`]).
    ///
    /// # Errors
    /// The system has no thread.
    fn fill(
        &self,
        set: &Arc<ReplicaSet>,
        node: &Arc<Node>,
        leader: MemberId,
        at_least: u64,
    ) -> Result<()>;

    /// Does something soon, which ends by itself.
    ///
    /// # Errors
    /// The system has no thread.
    fn beside(&self, name: &str, job: Job) -> Result<()>;

    /// Waits so long, or until the server is to end; true if it is.
    fn pause(&self, lifecycle: &Lifecycle, time: Duration) -> bool;

    /// Whether the member is to make a mistake here. No member that runs on threads makes any; a simulation
    /// cannot put them in from outside, since they lie between the core and the storage.
    fn makes(&self, _: Mistake) -> bool {
        false
    }
}

/// Threads do it.
pub struct Threads;

impl World for Threads {
    fn drive(&self, set: &ReplicaSet, node: &Arc<Node>, driver: Driver) -> Result<()> {
        let (node, store) = (Arc::clone(node), Arc::clone(&set.home.engine.store));
        let lifecycle = &set.home.lifecycle;
        lifecycle.spawn("persister", move || node.persister.run(&node, &store))?;
        lifecycle.spawn("replication", move || driver.run())
    }

    fn fill(
        &self,
        set: &Arc<ReplicaSet>,
        node: &Arc<Node>,
        leader: MemberId,
        at_least: u64,
    ) -> Result<()> {
        let (filled, node) = (Arc::clone(set), Arc::clone(node));
        let run = move || initial_sync::run(&filled, &node, leader, at_least);
        set.home.lifecycle.spawn("initial sync", run)
    }

    fn beside(&self, name: &str, job: Job) -> Result<()> {
        std::thread::Builder::new()
            .name(name.to_string())
            .stack_size(1 << 20)
            .spawn(job)?;
        Ok(())
    }

    fn pause(&self, lifecycle: &Lifecycle, time: Duration) -> bool {
        lifecycle.wait_for_stop_for(time)
    }
}
