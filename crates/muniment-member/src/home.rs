//! What a member of a set has of the server that it lives in.
//!
//! [`Home`] is what the two share. A [`Host`] is what the server does for its member and the member cannot do
//! itself, since it knows no commands, sessions or transactions. The driver calls it, so nothing of it may
//! wait for the driver or for another member.

use crate::address::Address;
use crate::initial_sync::Preference;
use crate::lifecycle::Lifecycle;
use crate::peer::Ways;
use crate::routes::Routes;
use crate::topology::Topology;
use crate::trust::Trust;
use crate::world::World;
use muniment_exec::Database;
use muniment_io::Machine;
use muniment_logger::Logger;
use muniment_storage::EngineKind;
use parking_lot::RwLock;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64};

/// The parts of the server that its member uses, and what the member was started with.
pub struct Home {
    /// Storage and operations.
    pub engine: Arc<Database>,
    /// The log.
    pub log: Arc<Logger>,
    /// How the server comes to end, or to begin anew.
    pub lifecycle: Arc<Lifecycle>,
    /// `topologyVersion`, which changes with the state of the member.
    pub topology: Arc<Topology>,
    /// Where the server can be reached.
    pub address: Arc<Address>,
    /// What `setParameter` sets of the member.
    pub parameters: Arc<MemberParameters>,
    /// By what the set's members know each other.
    pub trust: Trust,
    /// The ways to the other members.
    pub ways: Box<dyn Ways>,
    /// What runs the work that the member does by itself: threads, or a simulator.
    pub world: Box<dyn World>,
    /// What the server runs on.
    pub machine: Machine,
    /// The data directory.
    pub dbpath: PathBuf,
    /// The engine that holds the trees of a copy.
    pub engine_kind: EngineKind,
    /// The addresses on which the server listens.
    pub bind_ip: Vec<String>,
    /// The set is initiated at the first start, with this member alone.
    pub auto_initiate: bool,
    /// The set holds the configuration of a cluster of shards.
    pub of_config: bool,
}

/// The parameters of the server that its member reads.
pub struct MemberParameters {
    /// `maxAcceptableLogicalClockDriftSecs`.
    pub clock_drift_secs: AtomicI64,
    /// `munimentElectWhenPrimaryIsGone`.
    pub elects_when_gone: AtomicBool,
    /// `allowMultipleArbiters`.
    pub many_arbiters: AtomicBool,
    /// `initialSyncSourceReadPreference`.
    pub sync_source: RwLock<Preference>,
    /// `replMemberRoutes`.
    pub routes: Routes,
}

impl Default for MemberParameters {
    fn default() -> MemberParameters {
        MemberParameters {
            clock_drift_secs: AtomicI64::new(365 * 24 * 3600),
            elects_when_gone: AtomicBool::new(true),
            many_arbiters: AtomicBool::new(false),
            sync_source: RwLock::default(),
            routes: Routes::default(),
        }
    }
}

/// See the module's head.
pub trait Host: Send + Sync {
    /// The member is about to take writes: what the server has read of transactions before may be out of date.
    fn begin_leading(&self);
    /// The member takes no writes any more: transactions that are open end.
    fn end_transactions(&self);
    /// A record was applied that changes settings which all members have in common: puts them in force.
    fn take_settings(&self);
    /// The member has become primary: makes the collections that only a primary may make. Unlike the others
    /// this is called by a thread of its own, and may wait.
    fn prepare_as_primary(&self);
    /// Whether a fail point has the member drop the records that have come.
    fn drops_records(&self) -> bool;
    /// Whether a command, named as in its operation, writes: such an operation is interrupted when the member
    /// ceases to be primary.
    fn is_write(&self, command: &str) -> bool;
}
