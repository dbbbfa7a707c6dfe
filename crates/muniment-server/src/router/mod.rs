//! A router: it holds no data, and passes commands on to the shards that do.
//!
//! A command comes on the same road as on any server, and its `CommandSpec` says what a router does with it
//! ([`Routed`](crate::registry::Routed)): the router runs it itself, or passes it on as it came, with the time of
//! the cluster and the user's session. The reply is passed back as the shard wrote it.
//!
//! Invariants: what a router knows of the cluster is what the configuration's set has acknowledged by a
//! majority; the database of a cluster stays on the shard that was chosen for it, so what was read of that once
//! holds; a command is sent a second time only if it was not executed, or if it may be executed twice.

mod accounts;
pub mod balancer;
pub mod balancing;
pub mod catalog;
pub mod configuration;
pub mod consistency;
mod cursors;
pub mod databases;
mod dispatch;
pub mod distribution;
pub mod draining;
pub mod forward;
pub mod fsync;
pub mod operations;
pub mod over_shards;
pub mod place;
mod presence;
pub mod relay;
pub mod settings;
mod shard_cursors;
pub mod sharded;
mod statements;
pub mod streams;
mod tables;
mod times;
mod together;
mod transactions;
mod views;

use crate::options::{ClusterRole, ServerOptions, SetAddress};
use crate::sets::Sets;
use accounts::Accounts;
use catalog::Catalog;
use cursors::Cursors;
use shard_cursors::ShardCursors;
use sharded::reshard::progress::Running;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tables::Tables;
use times::Times;
use transactions::Transactions;
use views::Views;

pub use crate::sets::{Reach, SetPool};
pub use accounts::keep as keep_accounts;
pub use dispatch::run;
pub use presence::keep as keep_presence;
pub use shard_cursors::keep as keep_cursors;
pub use tables::{FORMER_KEYS, Known};

/// What a router has beside the parts of other servers.
pub struct Router {
    /// The set that holds the cluster's configuration.
    pub config: Arc<SetPool>,
    /// The sets that the router speaks to.
    sets: Sets,
    /// What is known of databases and shards.
    pub catalog: Catalog,
    /// Which shard owns which part of sharded collections.
    pub tables: Tables,
    /// The names that are not those of views over sharded collections.
    pub views: Views,
    cursors: Cursors,
    shard_cursors: ShardCursors,
    pub(crate) transactions: Transactions,
    /// What is known of users and roles.
    pub accounts: Accounts,
    /// The newest time of the cluster that was heard of.
    pub times: Times,
    /// The collections that this router divides anew.
    pub resharding: Running,
    /// The log of changes is there ([`sharded::chunks::note`]).
    has_changelog: AtomicBool,
    /// The same of the balancer's actions.
    has_actionlog: AtomicBool,
}

impl Router {
    /// The router of a server with these options, if they ask for one.
    pub fn new(options: &ServerOptions, sets: impl FnOnce() -> Sets) -> Option<Router> {
        let ClusterRole::Router(address) = &options.role else {
            return None;
        };
        Some(Router::of_set(address, sets()))
    }

    /// A router of the cluster whose configuration is in the set at this address.
    pub fn of_set(address: &SetAddress, sets: Sets) -> Router {
        Router {
            config: sets.of(address),
            sets,
            catalog: Catalog::default(),
            tables: Tables::default(),
            views: Views::default(),
            cursors: Cursors::default(),
            shard_cursors: ShardCursors::default(),
            transactions: Transactions::default(),
            accounts: Accounts::default(),
            times: Times::default(),
            resharding: Running::default(),
            has_changelog: AtomicBool::new(false),
            has_actionlog: AtomicBool::new(false),
        }
    }
}

impl Router {
    /// The sets that it speaks to.
    pub fn sets(&self) -> Vec<Arc<SetPool>> {
        self.sets.all()
    }

    /// How many cursors of clients are open on shards.
    pub fn open_cursors(&self) -> usize {
        self.cursors.len()
    }
}
