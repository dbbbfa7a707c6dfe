//! What all connections of a server share.

use crate::cluster_parameters::ClusterParameters;
use crate::concern::WriteConcern;
use crate::failpoint::FailPoints;
use crate::log::Logger;
use crate::metrics::Metrics;
use crate::options::ServerOptions;
use crate::parameters::Parameters;
use crate::profiler::Profile;
use crate::replica_set::{Copied, Keys, ReplicaSet, Told, Ways, World};
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::snapshots::Snapshots;
use crate::transactions::Transactions;
use muniment_exec::Database;
use muniment_op::{Client, Interrupt, Sleepers};
use muniment_value::{Code, DocBuf, Error};
use muniment_wire::Stream;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A connection as others see it.
pub struct ConnShared {
    /// Its number.
    pub id: u64,
    /// The client's address; empty for a Unix socket.
    pub peer: Arc<str>,
    /// The socket.
    pub stream: Arc<Stream>,
    /// The client at the other end.
    pub remote: Arc<Client>,
    /// When it was opened.
    pub since: Instant,
    /// What the client said about itself.
    pub client: Mutex<ClientInfo>,
    /// The document of the running command, for currentOp.
    pub command: Mutex<Vec<u8>>,
    /// True while a command runs, and until its reply is sent.
    pub busy: AtomicBool,
    /// The client takes nothing of a reply that is being sent.
    pub stuck: AtomicBool,
    /// What connectionStatus calls the connection, made when it is first asked for.
    pub uuid: OnceLock<[u8; 16]>,
}

/// `hello.client`.
#[derive(Clone, Debug, Default)]
pub struct ClientInfo {
    /// The whole document.
    pub document: Option<DocBuf>,
    /// `application.name`.
    pub app_name: Option<Arc<str>>,
}

/// The default concerns that setDefaultRWConcern keeps.
#[derive(Clone, Debug, Default)]
pub struct DefaultConcern {
    /// Write concern, if it was set.
    pub write: Option<WriteConcern>,
    /// Read concern level, if it was set.
    pub read: Option<String>,
    /// When they were set, in milliseconds since 1970.
    pub set_at_ms: Option<i64>,
}

/// All that is shared.
pub struct ServerState {
    /// The options.
    pub options: ServerOptions,
    /// The data are those of a member of a set with others, and the server was started without
    /// `--replSet`: they can be read, but not changed, for the member has to go on from them.
    pub kept_for_set: bool,
    /// Storage, cursors, operations.
    pub engine: Arc<Database>,
    /// The log.
    pub log: Arc<Logger>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// setParameter.
    pub parameters: Parameters,
    /// setClusterParameter.
    pub cluster_parameters: ClusterParameters,
    /// Held by the thread that stores or takes over settings which all members have in common.
    pub settings: Settings,
    /// configureFailPoint.
    pub failpoints: FailPoints,
    /// The replica set that the server is a member of.
    pub replica_set: Option<ReplicaSet>,
    /// The ways to its other members.
    pub ways: Box<dyn Ways>,
    /// The keys by which the set's members know each other.
    pub keys: Option<Arc<Keys>>,
    /// What replSetResizeOplog has set.
    pub oplog_window: Mutex<DocBuf>,
    /// What runs the work that a member does by itself: threads, or a simulator.
    pub world: Box<dyn World>,
    /// Logical sessions.
    pub sessions: Sessions,
    /// Views of reads at a point in time.
    pub snapshots: Snapshots,
    /// Transactions of sessions.
    pub transactions: Transactions,
    /// setDefaultRWConcern.
    pub default_concern: RwLock<DefaultConcern>,
    /// What `profile` set by database.
    pub profile: RwLock<BTreeMap<String, Profile>>,
    /// What holds for databases for which nothing was set.
    pub profile_default: Profile,
    /// Some database has a profiling level or a filter of its own.
    pub profiling: AtomicBool,
    /// Open connections.
    pub connections: Mutex<HashMap<u64, Arc<ConnShared>>>,
    /// How many there are.
    pub open_connections: AtomicU64,
    /// How many were ever opened.
    pub created_connections: AtomicU64,
    /// How many were refused.
    pub rejected_connections: AtomicU64,
    /// How many were closed because they took too long to send a message, or to take a reply.
    pub slow_connections: AtomicU64,
    /// Connections that wait for memory to receive a message.
    pub waiting_messages: AtomicUsize,
    /// Connections that wait for memory for a reply.
    pub waiting_replies: Arc<AtomicUsize>,
    /// Connections that wait in an awaitable hello.
    pub awaiting_topology: AtomicU64,
    /// Most connections at a time.
    pub max_conns: usize,
    /// When the server started.
    pub started: Instant,
    /// The same in milliseconds since 1970.
    pub started_ms: i64,
    /// topologyVersion.processId.
    pub process_id: [u8; 12],
    /// The bound TCP port.
    pub port: u16,
    /// `host:port` as serverStatus shows it.
    pub host: String,
    /// Set once the server ends.
    pub stopping: Arc<AtomicBool>,
    /// The threads whose waits end with the server, or when it is asked to end.
    pub stops: Sleepers,
    stop: Mutex<Option<StopRequest>>,
    stop_signal: Condvar,
    topology: Mutex<i64>,
    topology_signal: Condvar,
    member_threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Why the server ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopRequest {
    /// For the log.
    pub reason: String,
    /// How the server begins again at once; `None`: not at all.
    pub restart: Option<Restart>,
}

/// Why a member begins anew in the same process, with its sockets: it must not go on from what it has in
/// memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The state says what is to be cut off the log.
    Storage,
    /// A copy of another member's data takes the place of its own.
    Synced(Box<Copied>),
}

/// What [`ServerState::new`] needs beside the options.
pub struct Parts {
    /// Storage, cursors, operations.
    pub engine: Arc<Database>,
    /// The log.
    pub log: Arc<Logger>,
    /// Parsed parameters.
    pub parameters: Parameters,
    /// The bound TCP port.
    pub port: u16,
    /// Most connections.
    pub max_conns: usize,
    /// See [`ServerState::kept_for_set`].
    pub kept_for_set: bool,
    /// See [`ServerState::ways`].
    pub ways: Box<dyn Ways>,
    /// See [`ServerState::oplog_window`].
    pub oplog_window: DocBuf,
    /// See [`ServerState::keys`].
    pub keys: Option<Arc<Keys>>,
    /// See [`ServerState::world`].
    pub world: Box<dyn World>,
    /// What the member was told before it began anew.
    pub told: Told,
}

impl ServerState {
    /// The state of a server that starts now.
    pub fn new(options: ServerOptions, parts: Parts) -> ServerState {
        let host = format!("{}:{}", hostname(), parts.port);
        let sessions = Sessions::new(&parts.engine.memory);
        let profile_default = crate::profiler::default_of(&options);
        ServerState {
            replica_set: options.replica_set.clone().map(ReplicaSet::new),
            ways: parts.ways,
            world: parts.world,
            options,
            kept_for_set: parts.kept_for_set,
            keys: parts.keys,
            oplog_window: Mutex::new(parts.oplog_window),
            cluster_parameters: ClusterParameters::new(parts.engine.image_seconds()),
            engine: parts.engine,
            log: parts.log,
            metrics: Arc::new(Metrics::default()),
            parameters: parts.parameters,
            settings: Settings::default(),
            failpoints: FailPoints::default(),
            sessions,
            snapshots: Snapshots::default(),
            transactions: Transactions::default(),
            default_concern: RwLock::new(DefaultConcern::default()),
            profile: RwLock::new(BTreeMap::new()),
            profiling: AtomicBool::new(profile_default.acts()),
            profile_default,
            connections: Mutex::new(HashMap::new()),
            open_connections: AtomicU64::new(0),
            created_connections: AtomicU64::new(0),
            rejected_connections: AtomicU64::new(0),
            slow_connections: AtomicU64::new(0),
            waiting_messages: AtomicUsize::new(0),
            waiting_replies: Arc::default(),
            awaiting_topology: AtomicU64::new(0),
            max_conns: parts.max_conns,
            started: Instant::now(),
            started_ms: crate::log::now_ms(),
            process_id: muniment_value::new_object_id(),
            port: parts.port,
            host,
            stopping: Arc::new(AtomicBool::new(false)),
            stops: Sleepers::new(),
            stop: Mutex::new(None),
            stop_signal: Condvar::new(),
            topology: Mutex::new(0),
            topology_signal: Condvar::new(),
            member_threads: Mutex::default(),
        }
    }

    /// True once the server ends.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The client of the connection with this number has gone.
    pub fn hangs_up(&self, connection: u64) {
        let connection = self.connections.lock().get(&connection).map(Arc::clone);
        if let Some(connection) = connection {
            connection.remote.leave();
        }
    }

    /// True once the server was asked to end, or to begin anew.
    pub fn is_ending(&self) -> bool {
        self.stop.lock().is_some() || self.is_stopping()
    }

    /// Asks the server to end; the thread that waits in [`ServerState::wait_for_stop`] ends it.
    pub fn request_stop(&self, reason: &str) {
        let mut stop = self.stop.lock();
        // A request to end is final, and overrules a request to begin anew.
        if stop.as_ref().is_none_or(|asked| asked.restart.is_some()) {
            *stop = Some(StopRequest {
                reason: reason.to_string(),
                restart: None,
            });
        }
        self.stop_signal.notify_all();
        drop(stop);
        self.stops.wake_all();
    }

    /// Asks the server to end and to begin anew.
    pub fn request_restart(&self, how: Restart) {
        let mut stop = self.stop.lock();
        if stop.is_none() {
            *stop = Some(StopRequest {
                reason: "the member begins anew".to_string(),
                restart: Some(how),
            });
        }
        self.stop_signal.notify_all();
        drop(stop);
        self.stops.wake_all();
    }

    /// Starts a thread of the replica set's member, which ends with the server.
    ///
    /// # Errors
    /// If the system has no thread.
    pub fn spawn_member(
        &self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> muniment_value::Result<()> {
        let thread = std::thread::Builder::new()
            .name(name.to_string())
            .stack_size(2 << 20)
            .spawn(run)?;
        self.member_threads.lock().push(thread);
        Ok(())
    }

    /// Ends the threads of the replica set's member.
    pub fn end_member(&self) {
        if let Some(node) = self.replica_set.as_ref().and_then(|set| set.node()) {
            node.stop();
        }
        let threads = std::mem::take(&mut *self.member_threads.lock());
        for thread in threads {
            // A thread that panicked has been reported already, and has no result.
            let _ = thread.join();
        }
    }

    /// True if the server is to end and not to begin anew.
    pub fn is_asked_to_end(&self) -> bool {
        let stop = self.stop.lock();
        stop.as_ref().is_some_and(|asked| asked.restart.is_none())
    }

    /// Waits until someone asks the server to end.
    pub fn wait_for_stop(&self) -> StopRequest {
        let mut stop = self.stop.lock();
        loop {
            if let Some(r) = stop.clone() {
                return r;
            }
            self.stop_signal.wait(&mut stop);
        }
    }

    /// Waits until someone asks the server to end, or for `time`; true if it ends.
    pub fn wait_for_stop_for(&self, time: Duration) -> bool {
        let mut stop = self.stop.lock();
        if stop.is_none() {
            self.stop_signal.wait_for(&mut stop, time);
        }
        stop.is_some() || self.is_stopping()
    }

    /// From here on operations fail with 11600 and connections end.
    pub fn begin_stopping(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.stops.wake_all();
        if let Some(set) = &self.replica_set {
            set.copies.close();
        }
        self.engine.operations.kill_all(Code::InterruptedAtShutdown);
        let _topology = self.topology.lock();
        self.topology_signal.notify_all();
    }

    /// topologyVersion.counter.
    pub fn topology_counter(&self) -> i64 {
        *self.topology.lock()
    }

    /// The topology has changed: awaitable hellos that wait for that are answered.
    pub fn topology_changed(&self) {
        *self.topology.lock() += 1;
        self.topology_signal.notify_all();
    }

    /// Whether the server takes writes. A member of a set that is not its primary does not, nor does a server
    /// whose data are kept for a set ([`ServerState::kept_for_set`]).
    pub fn is_writable(&self) -> bool {
        match &self.replica_set {
            Some(set) => set.is_primary(),
            None => !self.kept_for_set,
        }
    }

    /// Waits until the topology's counter differs from `seen`, the server ends, or `time` has
    /// passed.
    pub fn wait_topology(&self, seen: i64, time: Duration) {
        let end = Instant::now() + time;
        let mut counter = self.topology.lock();
        self.awaiting_topology.fetch_add(1, Ordering::Relaxed);
        while *counter == seen && !self.is_stopping() {
            if self
                .topology_signal
                .wait_until(&mut counter, end)
                .timed_out()
            {
                break;
            }
        }
        self.awaiting_topology.fetch_sub(1, Ordering::Relaxed);
    }

    /// The default write concern.
    pub fn default_write_concern(&self) -> WriteConcern {
        let set = self.default_concern.read().write.clone();
        set.unwrap_or_else(|| match &self.replica_set {
            Some(set) if set.implies_majority() => WriteConcern::IMPLICIT_OF_A_SET,
            _ => WriteConcern::IMPLICIT,
        })
    }
}

fn over(is_over: bool) -> muniment_value::Result<()> {
    match is_over {
        true => Err(Error::new(
            Code::InterruptedAtShutdown,
            "interrupted at shutdown",
        )),
        false => Ok(()),
    }
}

/// The interrupt of what has to stop as soon as the server is asked to end, or to begin anew.
pub struct Ending<'s>(pub &'s ServerState);

impl Interrupt for Ending<'_> {
    fn check(&self) -> muniment_value::Result<()> {
        over(self.0.is_ending())
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        show(&self.0.stops);
    }
}

/// The interrupt of what may go on until the server, when it ends, stops operations.
pub struct Stopping<'s>(pub &'s ServerState);

impl Interrupt for Stopping<'_> {
    fn check(&self) -> muniment_value::Result<()> {
        over(self.0.is_stopping())
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        show(&self.0.stops);
    }
}

/// The machine's name.
pub fn hostname() -> String {
    let mut buf = [0_u8; 256];
    // SAFETY: the buffer is ours and its length is given.
    let rc = unsafe { libc::gethostname(buf.as_mut_ptr().cast(), buf.len()) };
    if rc != 0 {
        return "localhost".to_string();
    }
    let end = buf.iter().position(|b| *b == 0).unwrap_or(buf.len());
    String::from_utf8_lossy(buf.get(..end).unwrap_or_default()).into_owned()
}
