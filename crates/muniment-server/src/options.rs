//! How to start a server.

use muniment_io::Machine;
use muniment_storage::EngineKind;
use muniment_value::DocBuf;
use std::path::PathBuf;
use std::time::Duration;

/// Options of a server; the binary's flags and configuration file end up here.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The data directory.
    pub dbpath: PathBuf,
    /// TCP port; 0 takes a free one.
    pub port: u16,
    /// Addresses or host names to listen on; a path is a Unix socket.
    pub bind_ip: Vec<String>,
    /// Also listen on IPv6 where a bind address has one.
    pub ipv6: bool,
    /// Directory of the Unix socket `mongodb-<port>.sock`; `None`: no Unix socket.
    pub unix_socket_prefix: Option<PathBuf>,
    /// Most connections at a time; bounded by the limit of open files.
    pub max_conns: usize,
    /// Block cache in bytes; `None`: a quarter of the memory there is.
    pub cache_bytes: Option<u64>,
    /// In what the data is kept.
    pub engine: EngineKind,
    /// The replica set that the server is a member of.
    pub replica_set: Option<String>,
    /// The file with the keys by which the set's members know each other.
    pub key_file: Option<PathBuf>,
    /// Initiate the set with this server as its only member, if it is not initiated.
    pub auto_initiate: bool,
    /// Bytes of the oplog that are kept; `None`: what suits the disk (see [`Server::start`]).
    ///
    /// [`Server::start`]: crate::Server::start
    pub oplog_bytes: Option<u64>,
    /// Entries of the oplog that are not older than this are kept, whatever its size.
    pub oplog_min_retention: Option<Duration>,
    /// How often the journal is flushed to the disk.
    pub journal_commit_interval: Duration,
    /// Open a data directory whose journal is damaged in its middle, losing what lies behind.
    pub accept_data_loss: bool,
    /// Where the log goes.
    pub log: LogTarget,
    /// Verbosity 0–5.
    pub verbosity: i32,
    /// Leave connection events out of the log.
    pub quiet: bool,
    /// Whether functions in JavaScript may run (the whole process has one setting).
    pub javascript: bool,
    /// Operations slower than this are logged.
    pub slow_ms: i64,
    /// `--setParameter name=value`.
    pub parameters: Vec<(String, String)>,
    /// The process's arguments, for getCmdLineOpts.
    pub argv: Vec<String>,
    /// The options as getCmdLineOpts shows them.
    pub parsed: DocBuf,
    /// Receives the process id.
    pub pid_file: Option<PathBuf>,
    /// Receives the bound port once the server answers.
    pub port_file: Option<PathBuf>,
    /// End cleanly on SIGTERM and SIGINT (one server a process).
    pub handle_signals: bool,
    /// What the server runs on. Without threads nothing of it runs by itself: a simulator's.
    pub machine: Machine,
}

/// Where the log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Keep what is in it.
        append: bool,
    },
    /// Memory only.
    Silent,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            dbpath: PathBuf::from("./muniment-data"),
            port: 27017,
            bind_ip: vec!["127.0.0.1".to_string()],
            ipv6: false,
            unix_socket_prefix: Some(PathBuf::from("/tmp")),
            max_conns: 65_536,
            cache_bytes: None,
            engine: EngineKind::default(),
            replica_set: None,
            key_file: None,
            auto_initiate: false,
            oplog_bytes: None,
            oplog_min_retention: None,
            journal_commit_interval: Duration::from_millis(100),
            accept_data_loss: false,
            log: LogTarget::Stdout,
            verbosity: 0,
            quiet: false,
            javascript: true,
            slow_ms: 100,
            parameters: Vec::new(),
            argv: Vec::new(),
            parsed: DocBuf::new(),
            pid_file: None,
            port_file: None,
            handle_signals: false,
            machine: Machine::default(),
        }
    }
}

impl ServerOptions {
    /// For embedded servers and tests: a free port of 127.0.0.1, no Unix socket, no log.
    pub fn embedded(dbpath: PathBuf) -> ServerOptions {
        ServerOptions {
            dbpath,
            port: 0,
            unix_socket_prefix: None,
            log: LogTarget::Silent,
            ..ServerOptions::default()
        }
    }
}

/// Memory that the process may use, in bytes: the cgroup's limit if there is one, else the
/// machine's.
pub fn memory_limit() -> u64 {
    let machine = machine_memory();
    let cgroup = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .iter()
    .find_map(|p| std::fs::read_to_string(p).ok()?.trim().parse::<u64>().ok());
    cgroup.map_or(machine, |limit| limit.min(machine))
}

/// The machine's memory in bytes.
pub fn machine_memory() -> u64 {
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|t| {
            let line = t.lines().find(|l| l.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(1 << 30, |kib| kib * 1024)
}
