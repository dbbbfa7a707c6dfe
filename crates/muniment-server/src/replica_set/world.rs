//! Who runs what a member of a set does by itself: threads, or somebody who calls each step in
//! virtual time.

use super::driver::Driver;
use super::node::Node;
use crate::state::ServerState;
use muniment_value::Result;
use std::sync::Arc;
use std::time::Duration;

/// Something that is to be done beside what runs.
pub type Job = Box<dyn FnOnce() + Send>;

/// See the module's head.
pub trait World: Send + Sync {
    /// Calls the driver's turns, and the persister's, until the server ends.
    ///
    /// # Errors
    /// The system has no thread.
    fn drive(&self, server: &ServerState, node: &Arc<Node>, driver: Driver) -> Result<()>;

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
        server.spawn_member("persister", move || node.persister.run(&node, &store))?;
        server.spawn_member("replication", move || driver.run())
    }

    fn beside(&self, name: &str, job: Job) -> Result<()> {
        std::thread::Builder::new()
            .name(name.to_string())
            .stack_size(1 << 20)
            .spawn(job)?;
        Ok(())
    }

    fn pause(&self, server: &ServerState, time: Duration) -> bool {
        server.wait_for_stop_for(time)
    }
}
