//! What all connections of a server share: the parts of the server, each in a file of its own.
//!
//! A function takes the part that it needs, and the whole only if it needs several.

use crate::audit::Audit;
use crate::auth::Auth;
use crate::concern::WriteConcern;
use crate::connections::Connections;
use crate::distributed::running::Distributed;
use crate::failpoint::FailPoints;
use crate::metrics::Metrics;
use crate::moving::arrivals::Moving;
use crate::options::{ClusterRole, ServerOptions};
use crate::outputs::Outputs;
use crate::parameters::Parameters;
use crate::profiling::Profiling;
use crate::router::Router;
use crate::router::balancing::Balancer;
use crate::sessions::Sessions;
use crate::sets::Sets;
use crate::settings::Settings;
use crate::snapshots::Snapshots;
use crate::transactions::Transactions;
use muniment_exec::Database;
use muniment_logger::Logger;
use muniment_member::{Address, Home, Lifecycle, ReplicaSet, Told, Topology, Trust, Ways, World};
use muniment_value::{Code, DocBuf};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;

/// All that is shared.
pub struct ServerState {
    /// The options.
    pub options: ServerOptions,
    /// Where the server can be reached.
    pub address: Arc<Address>,
    /// Since when it runs, and how it comes to end.
    pub lifecycle: Arc<Lifecycle>,
    /// The log.
    pub log: Arc<Logger>,
    /// Storage, cursors, operations.
    pub engine: Arc<Database>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// setParameter.
    pub parameters: Parameters,
    /// configureFailPoint.
    pub failpoints: FailPoints,
    /// Users, and who has logged in.
    pub auth: Auth,
    /// The audit log, if there is one.
    pub audit: Option<Audit>,
    /// Settings that all members of a set have in common.
    pub settings: Settings,
    /// What `profile` has set.
    pub profiling: Profiling,
    /// Connections.
    pub connections: Connections,
    /// Logical sessions.
    pub sessions: Sessions,
    /// Views of reads at a point in time.
    pub snapshots: Snapshots,
    /// Transactions of sessions.
    pub transactions: Transactions,
    /// Transactions over several shards.
    pub distributed: Distributed,
    /// Ranges that move between shards.
    pub moving: Moving,
    /// Collections that routers write the documents of `$out` into.
    pub outputs: Outputs,
    /// `topologyVersion`.
    pub topology: Arc<Topology>,
    /// The replica set that the server is a member of.
    pub replica_set: Option<Arc<ReplicaSet>>,
    /// What the server has as a router of a cluster of shards.
    pub router: Option<Router>,
    /// What moves ranges between shards, on a server with the configuration.
    pub balancer: Balancer,
    /// By what the set's members know each other, and what there is of TLS.
    pub trust: Trust,
    /// The data are those of a member of a set with others, and the server was started without
    /// `--replSet`: they can be read, but not changed, for the member has to go on from them.
    pub kept_for_set: bool,
    /// What replSetResizeOplog has set.
    pub oplog_window: Mutex<DocBuf>,
}

/// What [`ServerState::new`] needs beside the options.
pub struct Parts {
    /// Storage, cursors, operations.
    pub engine: Arc<Database>,
    /// The log.
    pub log: Arc<Logger>,
    /// See [`ServerState::audit`].
    pub audit: Option<Audit>,
    /// Parsed parameters.
    pub parameters: Parameters,
    /// The bound TCP port.
    pub port: u16,
    /// The file of the Unix socket.
    pub socket: Option<PathBuf>,
    /// Most connections.
    pub max_conns: usize,
    /// See [`ServerState::kept_for_set`].
    pub kept_for_set: bool,
    /// The ways to the other members.
    pub ways: Box<dyn Ways>,
    /// See [`ServerState::oplog_window`].
    pub oplog_window: DocBuf,
    /// See [`ServerState::trust`].
    pub trust: Trust,
    /// What runs the work that a member does by itself: threads, or a simulator.
    pub world: Box<dyn World>,
    /// What the member was told before it began anew.
    pub told: Told,
}

impl ServerState {
    /// The state of a server that starts now.
    pub fn new(options: ServerOptions, parts: Parts) -> ServerState {
        let address = Arc::new(Address::new(parts.port, parts.socket));
        let lifecycle = Arc::<Lifecycle>::default();
        let topology = Arc::<Topology>::default();
        let home = Home {
            engine: Arc::clone(&parts.engine),
            log: Arc::clone(&parts.log),
            lifecycle: Arc::clone(&lifecycle),
            topology: Arc::clone(&topology),
            address: Arc::clone(&address),
            parameters: Arc::clone(&parts.parameters.member),
            trust: parts.trust.clone(),
            ways: parts.ways,
            world: parts.world,
            machine: options.machine.clone(),
            dbpath: options.dbpath.clone(),
            engine_kind: options.engine,
            bind_ip: options.bind_ip.clone(),
            auto_initiate: options.auto_initiate,
            of_config: options.role == ClusterRole::Config,
        };
        let name = options.replica_set.clone();
        let routes = parts.parameters.member.routes.clone();
        let sets = || Sets::new(parts.port, &parts.trust, &routes);
        ServerState {
            address,
            lifecycle,
            log: parts.log,
            metrics: Arc::new(Metrics::default()),
            parameters: parts.parameters,
            failpoints: FailPoints::default(),
            auth: Auth::new(options.auth),
            audit: parts.audit,
            settings: Settings::new(parts.engine.image_seconds()),
            profiling: Profiling::new(crate::profiling::default_of(&options)),
            connections: Connections::new(parts.max_conns),
            sessions: Sessions::new(&parts.engine.memory),
            snapshots: Snapshots::default(),
            transactions: Transactions::default(),
            distributed: Distributed::new(sets()),
            moving: Moving::default(),
            outputs: Outputs::default(),
            topology,
            engine: parts.engine,
            replica_set: name.map(|name| Arc::new(ReplicaSet::new(name, home))),
            router: Router::new(&options, sets),
            balancer: Balancer::default(),
            trust: parts.trust,
            kept_for_set: parts.kept_for_set,
            oplog_window: Mutex::new(parts.oplog_window),
            options,
        }
    }

    /// Whether commands may ask for what only sets have: the server is a member of one, or passes them on to some.
    pub fn is_of_set(&self) -> bool {
        self.replica_set.is_some() || self.router.is_some()
    }

    /// From here on operations fail with 11600 and connections end.
    pub fn begin_stopping(&self) {
        self.lifecycle.begin_stopping();
        if let Some(set) = &self.replica_set {
            set.copies.close();
        }
        self.engine.operations.kill_all(Code::InterruptedAtShutdown);
        self.topology.wake_all();
    }

    /// Ends the threads of the replica set's member.
    pub fn end_member(&self) {
        if let Some(node) = self.replica_set.as_ref().and_then(|set| set.node()) {
            node.stop();
        }
        self.lifecycle.join();
    }

    /// Whether the server takes writes. A member of a set that is not its primary does not, nor does a server
    /// whose data are kept for a set ([`ServerState::kept_for_set`]).
    pub fn is_writable(&self) -> bool {
        match &self.replica_set {
            Some(set) => set.is_primary(),
            None => !self.kept_for_set,
        }
    }

    /// The default write concern.
    pub fn default_write_concern(&self) -> WriteConcern {
        let set = self.settings.default_concern.read().write.clone();
        set.unwrap_or_else(|| match &self.replica_set {
            Some(set) if set.implies_majority() => WriteConcern::IMPLICIT_OF_A_SET,
            _ => WriteConcern::IMPLICIT,
        })
    }
}
