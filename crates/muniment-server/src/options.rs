//! The options with which a server is started.

use muniment_io::Machine;
use muniment_logger::{LogTarget, Rotation};
use muniment_storage::EngineKind;
use muniment_value::{DocBuf, Error, Result};
use muniment_wire::Compressor;
use muniment_wire::compress::NEGOTIABLE;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The options of a server, into which the binary's flags and configuration file are translated.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The data directory.
    pub dbpath: PathBuf,
    /// Whether a missing data directory is created.
    pub make_dbpath: MakeDbPath,
    /// TCP port; 0 takes a free one.
    pub port: u16,
    /// Addresses or host names to listen on; a path is a Unix socket.
    pub bind_ip: Vec<String>,
    /// Also listen on IPv6 where a bind address has one.
    pub ipv6: bool,
    /// The directory of the Unix socket `mongodb-<port>.sock`; `None` for no Unix socket.
    pub unix_socket_prefix: Option<PathBuf>,
    /// The most connections at a time; the limit of open files may lower it.
    pub max_conns: usize,
    /// How many threads of a pool compute at a time for all connections, one a core by default; 0 gives each
    /// connection a thread of its own.
    pub workers: usize,
    /// Connections that may wait on each socket until they are accepted.
    pub listen_backlog: i32,
    /// Permissions of the Unix socket's file.
    pub socket_permissions: u32,
    /// Compressors that clients may choose from.
    pub compressors: Vec<Compressor>,
    /// The block cache in bytes; `None` for a quarter of the memory.
    pub cache_bytes: Option<u64>,
    /// The engine that keeps the data.
    pub engine: EngineKind,
    /// The server's part in a cluster of shards.
    pub role: ClusterRole,
    /// The replica set that the server is a member of.
    pub replica_set: Option<String>,
    /// The file with the keys by which the members of the set authenticate each other.
    pub key_file: Option<PathBuf>,
    /// Which connections use TLS.
    pub tls_mode: muniment_tls::Mode,
    /// The files and rules of TLS.
    pub tls: muniment_tls::Settings,
    /// What members of the set show each other.
    pub cluster_auth: muniment_member::ClusterAuth,
    /// Clients have to log in.
    pub auth: bool,
    /// Initiates the set with this server as its only member, unless it is initiated.
    pub auto_initiate: bool,
    /// The bytes of the oplog that are kept; `None` for a size that suits the disk (see [`Server::start`]).
    ///
    /// [`Server::start`]: crate::Server::start
    pub oplog_bytes: Option<u64>,
    /// Entries of the oplog younger than this are kept, whatever its size.
    pub oplog_min_retention: Option<Duration>,
    /// How often the journal is flushed to the disk.
    pub journal_commit_interval: Duration,
    /// Opens a data directory whose journal is damaged in its middle, and loses everything after the damage.
    pub accept_data_loss: bool,
    /// The audit log, if there is to be one.
    pub audit: Option<AuditOptions>,
    /// Where the log goes.
    pub log: LogTarget,
    /// What clients have sent is not shown in the log.
    pub redacts_log: bool,
    /// Verbosity 0–5.
    pub verbosity: i32,
    /// Leave connection events out of the log.
    pub quiet: bool,
    /// Whether functions in JavaScript may run (the whole process has one setting).
    pub javascript: bool,
    /// Operations slower than this are logged.
    pub slow_ms: i64,
    /// The share of slow operations that are logged and recorded, 0 to 1.
    pub slow_sample_rate: f64,
    /// The profiling level of every database for which `profile` has set none: 0 nothing, 1 slow operations,
    /// 2 all.
    pub profile_level: i32,
    /// A query for these databases, which selects what is logged and recorded instead of slow operations.
    pub profile_filter: Option<DocBuf>,
    /// Times in the log are local, with their offset from UTC.
    pub log_local_time: bool,
    /// Given options that do not have MongoDB's effect here; the log lists them.
    pub notes: Vec<OptionNote>,
    /// `--setParameter name=value`.
    pub parameters: Vec<(String, String)>,
    /// The process's arguments, for getCmdLineOpts.
    pub argv: Vec<String>,
    /// The options as getCmdLineOpts shows them.
    pub parsed: DocBuf,
    /// The file that the process id is written to.
    pub pid_file: Option<PathBuf>,
    /// The file that the bound port is written to once the server answers.
    pub port_file: Option<PathBuf>,
    /// The server takes the process's signals: SIGTERM ends it in order, SIGUSR1 rotates its log. There can
    /// be one such server in a process.
    pub handle_signals: bool,
    /// The machine that the server runs on. A simulator's machine has no threads, and runs the server's work
    /// itself.
    pub machine: Machine,
}

/// A server's part in a cluster of shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClusterRole {
    /// It has none.
    #[default]
    None,
    /// It holds a part of the data (`--shardsvr`).
    Shard,
    /// It holds what the cluster knows of itself (`--configsvr`).
    Config,
    /// It holds nothing, and passes commands on to the shards (`--configdb`).
    Router(SetAddress),
}

impl ClusterRole {
    /// Whether the server may hold a part of the data: the configuration's set can be a shard, too.
    pub fn may_be_shard(&self) -> bool {
        matches!(self, ClusterRole::Shard | ClusterRole::Config)
    }
}

/// Where a replica set can be reached: `name/host:port,host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAddress {
    /// The set's name.
    pub name: String,
    /// Some of its members.
    pub hosts: Vec<String>,
}

impl SetAddress {
    /// Reads an address. Hosts without a port get `port`.
    ///
    /// # Errors
    /// 9 FailedToParse for anything else.
    pub fn parse(text: &str, port: u16) -> Result<SetAddress> {
        let wrong = || {
            Error::failed_to_parse(format!(
                "'{text}' is not the address of a replica set: setName/host:port,host:port"
            ))
        };
        let (name, hosts) = text.split_once('/').ok_or_else(wrong)?;
        let hosts: Vec<String> = hosts
            .split(',')
            .map(|host| match host.rsplit_once(':') {
                Some((_, end)) if end.parse::<u16>().is_ok() => host.to_string(),
                _ => format!("{host}:{port}"),
            })
            .collect();
        let is_host = |host: &String| !host.starts_with(':') && !host.contains('/');
        if name.is_empty() || !hosts.iter().all(is_host) {
            return Err(wrong());
        }
        let name = name.to_string();
        Ok(SetAddress { name, hosts })
    }

    /// As it is written.
    pub fn text(&self) -> String {
        format!("{}/{}", self.name, self.hosts.join(","))
    }
}

/// The audit log.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditOptions {
    /// Where it goes.
    pub target: AuditTarget,
    /// A query for events, which selects those that are written; without it all are.
    pub filter: Option<DocBuf>,
}

impl AuditOptions {
    /// The path of the audit log, if it goes to a file.
    pub fn path(&self) -> Option<&Path> {
        match &self.target {
            AuditTarget::File { path, .. } => Some(path),
            AuditTarget::Syslog { .. } | AuditTarget::Console => None,
        }
    }
}

/// Where the audit log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditTarget {
    /// A file, which keeps what it has.
    File {
        /// Its path.
        path: PathBuf,
        /// How it is rotated.
        rotation: Rotation,
    },
    /// The system's log.
    Syslog {
        /// Its facility, as `syslog(3)` has it.
        facility: i32,
    },
    /// Standard output.
    Console,
}

/// Whether a missing data directory is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MakeDbPath {
    /// It is created with all its parents.
    #[default]
    Whole,
    /// Only the directory itself is created. A missing parent is an error, since it is likely a mistyped
    /// path, or a disk that is not mounted.
    LastComponent,
    /// A missing directory is an error, as in mongod.
    Never,
}

/// A given option that does not have MongoDB's effect here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionNote {
    /// Its name in the configuration file, or its flag.
    pub option: String,
    /// The value that was given.
    pub value: String,
    /// Why it does not have the effect.
    pub why: &'static str,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            dbpath: PathBuf::from("./muniment-data"),
            make_dbpath: MakeDbPath::default(),
            port: 27017,
            bind_ip: vec!["127.0.0.1".to_string()],
            ipv6: false,
            unix_socket_prefix: Some(PathBuf::from("/tmp")),
            max_conns: 65_536,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            listen_backlog: 4096,
            socket_permissions: 0o700,
            compressors: NEGOTIABLE.to_vec(),
            cache_bytes: None,
            engine: EngineKind::default(),
            role: ClusterRole::None,
            replica_set: None,
            key_file: None,
            tls_mode: muniment_tls::Mode::Disabled,
            tls: muniment_tls::Settings::default(),
            cluster_auth: muniment_member::ClusterAuth::KeyFile,
            auth: false,
            auto_initiate: false,
            oplog_bytes: None,
            oplog_min_retention: None,
            journal_commit_interval: Duration::from_millis(100),
            accept_data_loss: false,
            audit: None,
            log: LogTarget::Stdout,
            redacts_log: false,
            verbosity: 0,
            quiet: false,
            javascript: true,
            slow_ms: 100,
            slow_sample_rate: 1.0,
            profile_level: 0,
            profile_filter: None,
            log_local_time: false,
            notes: Vec::new(),
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

/// The memory that the process may use, in bytes: the lowest limit of its control groups, else the machine's
/// memory.
pub fn memory_limit() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let machine = machine_memory();
    group_limit(&groups, read).map_or(machine, |limit| limit.min(machine))
}

/// The lowest limit of a process's control groups and of those above them. `groups` is the text of
/// `/proc/self/cgroup`. In a container its names may be those of another view of the hierarchy, and the group
/// is then the root that the container sees.
fn group_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        for above in group.ancestors() {
            let text = read(&Path::new(root).join(above).join(file));
            // "max" means no limit.
            let limit = text.and_then(|t| t.trim().parse::<u64>().ok());
            least = [least, limit].into_iter().flatten().min();
        }
    }
    least
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_all_groups_above_holds() {
        let of = |groups: &str, files: &[(&str, &str)]| {
            group_limit(groups, |path| {
                let found = files.iter().find(|(name, _)| Path::new(name) == path);
                found.map(|(_, text)| (*text).to_string())
            })
        };
        let unit = "0::/system.slice/muniment.service\n";
        let files = [
            ("/sys/fs/cgroup/system.slice/memory.max", "536870912\n"),
            (
                "/sys/fs/cgroup/system.slice/muniment.service/memory.max",
                "max\n",
            ),
        ];
        assert_eq!(of(unit, &files), Some(512 << 20));
        // In a container, the visible root is the group itself.
        let root = [("/sys/fs/cgroup/memory.max", "1000000\n")];
        assert_eq!(of(unit, &root), Some(1_000_000));
        assert_eq!(of("0::/\n", &root), Some(1_000_000));
        let earlier = "5:cpu,memory:/a/b\n4:pids:/c\n0::/\n";
        let files = [
            (
                "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                "7000000\n",
            ),
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
        ];
        assert_eq!(of(earlier, &files), Some(7_000_000));
        assert_eq!(of(earlier, &[]), None);
        assert_eq!(of("nonsense\n\n1:x", &files), None);
    }
}
