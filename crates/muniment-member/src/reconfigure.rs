//! How the set gets another configuration, or this member one that nobody else was asked about.

use crate::config::{self, SetConfig};
use crate::driver::Request;
use crate::initiate::check_own;
use crate::lifecycle::ended;
use crate::member_config::invalid;
use crate::node::Node;
use crate::role::Role;
use crate::set::ReplicaSet;
use muniment_consensus::{MemberId, Refusal};
use muniment_op::Interrupt;
use muniment_value::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// So long a reconfiguration waits for another one, and for a new primary.
const SETTLES: Duration = Duration::from_secs(10);
/// So long after a refusal the primary is asked again at the latest.
const AGAIN: Duration = Duration::from_millis(20);

impl ReplicaSet {
    /// Takes another configuration. `concern_is_set`: whether a default write concern is set.
    ///
    /// # Errors
    /// 10107 unless it is primary or `force`; 103 for what does not follow the one that holds; 74
    /// if it does not name this server.
    pub fn reconfigure(
        &self,
        interrupt: &dyn Interrupt,
        mut config: SetConfig,
        force: bool,
        concern_is_set: bool,
    ) -> Result<()> {
        let (member, old) = self.initialized()?;
        if member.role != Role::Primary && !force {
            return Err(Error::new(
                Code::NotWritablePrimary,
                format!(
                    "New config is rejected :: caused by :: replSetReconfig should only be run on \
                     a writable PRIMARY. Current state {};",
                    member.role.state().1
                ),
            ));
        }
        config.check_follows(&old, force)?;
        let many = &self.home.parameters.many_arbiters;
        config.check_arbiters(many.load(Ordering::Relaxed))?;
        check_implied_concern(concern_is_set, &config, &old)?;
        let me = check_own(self, &config, Code::NodeNotFound)?;
        config.id = old.id;
        let node = self.node().ok_or_else(ended)?;
        let now = Arc::clone(node.members().in_force());
        if force {
            // The version and the next member's number are raised by a random step: two configurations that
            // are forced at once, on different members, then differ in both, and the newer one prevails.
            let step = step_of_forced(self)?;
            let raised = config.version.max(old.version) + i64::from(step);
            config.version = raised.min(config::MAX_VERSION).max(old.version + 1);
            config.check_version()?;
            config.term = None;
            let mut before = now.config.clone();
            before.next_id += u64::from(step);
            let mut wanted = before.number(config.to_core());
            // This server keeps its member's number, whatever address the configuration has for it.
            stay(&mut wanted, me, node.id);
            let asked = |outcome| Request::Force(Box::new(wanted), outcome);
            return node.ask_and_wait(asked, interrupt)?.map_err(|_| {
                Error::new(
                    Code::ConfigurationInProgress,
                    "the member copies another one's data, or is locked: wait for its end, unlock it, or restart \
                     it",
                )
            });
        }
        config.term = Some(member.term);
        let wanted = now.config.number(config.to_core());
        let answer = ask_until_settled(self, &node, interrupt, &wanted)?;
        answer.map_err(|refusal| match refusal {
            Refusal::NotLeader => Error::new(Code::NotWritablePrimary, "not primary"),
            Refusal::Busy => Error::new(
                Code::ConfigurationInProgress,
                "Cannot run replSetReconfig because the node is currently updating its \
                 configuration",
            ),
            Refusal::NotElectable => invalid(
                "the primary has to stay a voting member with a priority above 0: step down first",
            ),
            Refusal::ManyVoters => Error::new(
                Code::NewReplicaSetConfigurationIncompatible,
                "Non force replica set reconfig can only add or remove at most 1 voting member.",
            ),
            Refusal::BadNumbers | Refusal::NobodyCaughtUp => {
                Error::internal("the members of the new configuration have no numbers")
            }
        })
    }
}

/// Checks that the implicit write concern, which writes without one get, does not change by the way.
///
/// # Errors
/// 103, unless a default write concern is set.
fn check_implied_concern(is_set: bool, new: &SetConfig, old: &SetConfig) -> Result<()> {
    match is_set || new.implies_majority() == old.implies_majority() {
        true => Ok(()),
        false => Err(Error::new(
            Code::NewReplicaSetConfigurationIncompatible,
            "Reconfig attempted to install a config that would change the implicit default write \
             concern. Use the setDefaultRWConcern command to set a cluster-wide write concern and try \
             the reconfig again.",
        )),
    }
}

/// Gives the member with this `_id` this number. The member that had it gets the other one's, since no two
/// members may have the same number.
fn stay(config: &mut muniment_consensus::Config, me: i32, id: MemberId) {
    let own = config.members.iter_mut().find(|m| m.key == me);
    let Some(before) = own.map(|own| std::mem::replace(&mut own.id, id)) else {
        return;
    };
    let mut others = config.members.iter_mut();
    if let Some(other) = others.find(|m| m.key != me && m.id == id) {
        other.id = before;
    }
}

/// By how much a configuration that is forced raises the version: 10,000 to 20,000, as in MongoDB.
///
/// # Errors
/// The machine's.
fn step_of_forced(set: &ReplicaSet) -> Result<u32> {
    let mut random = [0; 4];
    set.home.machine.clock.random(&mut random)?;
    Ok(10_000 + u32::from_le_bytes(random) % 10_000)
}

/// Asks for another configuration again and again while the set is not settled, for some time.
///
/// # Errors
/// What `interrupt` says; 91 when the driver has ended.
fn ask_until_settled(
    set: &ReplicaSet,
    node: &Node,
    interrupt: &dyn Interrupt,
    wanted: &muniment_consensus::Config,
) -> Result<std::result::Result<(), Refusal>> {
    let store = &set.home.engine.store;
    let mut end = Instant::now() + SETTLES;
    loop {
        // Under fsyncLock nothing is written, so no change can be committed before it ends.
        if store.write_lock_depth() > 0 {
            store.wait_for_unlock(interrupt)?;
            end = Instant::now() + SETTLES;
        }
        let before = node.place();
        let wanted = Box::new(wanted.clone());
        let asked = |outcome| Request::Reconfigure(wanted, outcome);
        let answer = node.ask_and_wait(asked, interrupt)?;
        // The set is busy until a new primary has committed something, or another change is committed.
        if answer != Err(Refusal::Busy) || Instant::now() > end {
            return Ok(answer);
        }
        // Not everything that makes the set busy wakes this thread when it ends: it asks again soon.
        let moved = || node.place() != before || store.write_lock_depth() > 0;
        let soon = end.min(Instant::now() + AGAIN);
        node.moved.wait_until(interrupt, soon, moved)?;
    }
}
