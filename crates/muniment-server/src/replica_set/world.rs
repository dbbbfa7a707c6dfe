//! What runs the work that a member of a set does by itself: threads, or a simulator that calls each step
//! in virtual time.

use super::driver::Driver;
use super::initial_sync;
use super::node::Node;
use crate::state::ServerState;
use muniment_consensus::MemberId;
use muniment_value::Result;
use std::sync::Arc;
use std::time::Duration;

/// Something that is to be done concurrently.
pub type Job = Box<dyn FnOnce() + Send>;

/// See the module's head.
pub trait World: Send + Sync {
    /// Calls the driver's turns, and the persister's, until the server ends.
    ///
    /// # Errors
    /// The system has no thread.
    fn drive(&self, server: &ServerState, node: &Arc<Node>, driver: Driver) -> Result<()>;

    /// Fills this member with what another one has ([`initial_sync::run`]).
    ///
    /// # Errors
    /// The system has no thread.
    fn fill(
        &self,
        server: &Arc<ServerState>,
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
    fn pause(&self, server: &ServerState, time: Duration) -> bool;

    /// Bugs that are put in to see whether they are found.
    #[cfg(test)]
    fn bugs(&self) -> super::simulation::Bugs {
        super::simulation::Bugs::default()
    }
}

/// Threads do it.
pub struct Threads;

impl World for Threads {
    fn drive(&self, server: &ServerState, node: &Arc<Node>, driver: Driver) -> Result<()> {
        let (node, store) = (Arc::clone(node), Arc::clone(&server.engine.store));
        server
            .lifecycle
            .spawn("persister", move || node.persister.run(&node, &store))?;
        server.lifecycle.spawn("replication", move || driver.run())
    }

    fn fill(
        &self,
        server: &Arc<ServerState>,
        node: &Arc<Node>,
        leader: MemberId,
        at_least: u64,
    ) -> Result<()> {
        let (state, node) = (Arc::clone(server), Arc::clone(node));
        let run = move || initial_sync::run(&state, &node, leader, at_least);
        server.lifecycle.spawn("initial sync", run)
    }

    fn beside(&self, name: &str, job: Job) -> Result<()> {
        std::thread::Builder::new()
            .name(name.to_string())
            .stack_size(1 << 20)
            .spawn(job)?;
        Ok(())
    }

    fn pause(&self, server: &ServerState, time: Duration) -> bool {
        server.lifecycle.wait_for_stop_for(time)
    }
}
