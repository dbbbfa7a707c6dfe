//! A running cluster of shards: the set that holds the configuration, the shards, and a router.
//! Every set has one member, and all of them listen on free ports of the loopback interface.
//!
//! Dropping the value ends everything: processes and directories.

use super::cluster::{PATIENCE, ask, given_up, writable};
use crate::process::{self, Process, ServerOptions, TempDir};
use crate::uri::Uri;
use muniment_load::fail::Result;
use muniment_value::{DocBuf, array, doc};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The cache of the configuration's server, GiB: it holds a few kilobytes.
const CONFIG_CACHE_GB: f64 = 0.1;
/// The longest time that a command of a cluster that runs may take.
const LONG: Duration = Duration::from_secs(600);
/// The codes of a router's errors in its first moments, when it does not reach the configuration or
/// a shard yet, as they stand in a failure's text.
const STARTING: [&str; 4] = ["(6 ", "(133 ", "(9001 ", "(10107 "];

/// The longest path of a Unix socket, in bytes.
const LONGEST_SOCKET: usize = 107;

/// The only member of a set.
struct Member {
    process: Process,
    address: String,
    /// The directory of its data.
    data: PathBuf,
    /// The file of its Unix socket, which it has as a server that was started by hand has one.
    socket: Option<PathBuf>,
}

impl Member {
    /// Starts a member, which waits for its set's configuration.
    fn start(
        program: &Path,
        parent: &Path,
        role: &str,
        set: &str,
        cache_gb: f64,
    ) -> Result<Member> {
        let dir = TempDir::new(parent)?;
        let sockets = std::fs::canonicalize(dir.path()).ok();
        let fits = |dir: &PathBuf| socket_in(dir, "65535").as_os_str().len() <= LONGEST_SOCKET;
        let sockets = sockets.filter(fits);
        let mut more = [role, "--replSet", set].map(String::from).to_vec();
        if let Some(dir) = &sockets {
            more.extend(["--unixSocketPrefix".into(), dir.display().to_string()]);
        }
        let options = ServerOptions {
            program: program.to_path_buf(),
            data: dir.path().join("data"),
            cache_gb: Some(cache_gb),
            more,
            ..ServerOptions::default()
        };
        let (process, address) =
            process::server_with(dir, &options).map_err(|e| e.while_doing(set))?;
        Ok(Member {
            process,
            socket: sockets.and_then(|dir| {
                let (_, port) = address.rsplit_once(':')?;
                Some(socket_in(&dir, port))
            }),
            address,
            data: options.data,
        })
    }

    /// Makes a set of this member, and waits until it takes writes.
    fn initiate(&self, set: &str) -> Result<()> {
        let members = array![doc! { "_id": 0, "host": self.address.as_str() }];
        let config = doc! { "_id": set, "members": members };
        ask(&self.address, PATIENCE, &doc! { "replSetInitiate": config })?;
        let begin = Instant::now();
        loop {
            let hello = ask(&self.address, PATIENCE, &doc! { "hello": 1 })?;
            if writable(&hello) {
                return Ok(());
            }
            given_up(begin, PATIENCE, || format!("{set} has no primary"))?;
        }
    }
}

/// A cluster that runs.
pub(crate) struct Sharded {
    // The router ends first, so that no command meets a shard that is gone.
    router: Process,
    router_address: String,
    shards: Vec<Member>,
    config: Member,
}

impl Sharded {
    /// Starts a cluster of so many shards of `program` below `parent`, each with this cache, and
    /// waits until its router knows all of them.
    ///
    /// # Errors
    /// A server cannot be started, or the cluster does not come up.
    pub(crate) fn start(
        shards: usize,
        program: &Path,
        parent: &Path,
        cache_gb: f64,
    ) -> Result<Sharded> {
        let config = Member::start(program, parent, "--configsvr", "config", CONFIG_CACHE_GB)?;
        config.initiate("config")?;
        let mut members = Vec::new();
        for i in 0..shards {
            let set = name(i);
            let member = Member::start(program, parent, "--shardsvr", &set, cache_gb)?;
            member.initiate(&set).map_err(|e| e.while_doing(&set))?;
            members.push(member);
        }
        let of_config = format!("config/{}", config.address);
        let (router, router_address) = process::router(program, parent, &of_config)?;
        let mut cluster = Sharded {
            router,
            router_address,
            shards: members,
            config,
        };
        for i in 0..shards {
            cluster.add(i)?;
        }
        Ok(cluster)
    }

    /// Makes a shard known to the cluster.
    fn add(&mut self, i: usize) -> Result<()> {
        let address = self.shards.get(i).map_or("", |s| s.address.as_str());
        let command = doc! { "addShard": format!("{}/{address}", name(i)) };
        let begin = Instant::now();
        loop {
            let e = match ask(&self.router_address, PATIENCE, &command) {
                Ok(_) => return Ok(()),
                Err(e) => e,
            };
            self.check_alive()?;
            if !STARTING.iter().any(|code| e.0.contains(code)) {
                return Err(e.while_doing("addShard"));
            }
            given_up(begin, PATIENCE, || e.0.clone())?;
        }
    }

    /// Divides a collection that does not exist yet evenly over the shards, by the hash of `_id`.
    ///
    /// # Errors
    /// The router refuses it.
    pub(crate) fn divide(&self, db: &str, collection: &str) -> Result<()> {
        self.divide_by(db, collection, doc! { "_id": "hashed" })
    }

    /// Divides a collection by this key.
    ///
    /// # Errors
    /// The router refuses it.
    pub(crate) fn divide_by(&self, db: &str, collection: &str, key: DocBuf) -> Result<()> {
        self.at_router(&doc! { "enableSharding": db })?;
        let namespace = format!("{db}.{collection}");
        self.at_router(&doc! { "shardCollection": namespace, "key": key })?;
        Ok(())
    }

    /// Runs a command on the database admin of the router, however long it takes within reason.
    ///
    /// # Errors
    /// The router's.
    pub(crate) fn at_router(&self, command: &DocBuf) -> Result<DocBuf> {
        ask(&self.router_address, LONG, command)
    }

    /// Runs a command on the database admin of a shard.
    ///
    /// # Errors
    /// The shard's.
    pub(crate) fn at_shard(&self, i: usize, command: &DocBuf) -> Result<DocBuf> {
        ask(self.shard(i).unwrap_or_default(), LONG, command)
    }

    /// The connection string by which clients reach the router.
    pub(crate) fn uri(&self) -> Uri {
        Uri {
            hosts: vec![self.router_address.clone()],
            replica_set: None,
            direct: false,
            access: Arc::default(),
        }
    }

    /// The address of a shard's member, for questions about what that shard holds.
    pub(crate) fn shard(&self, i: usize) -> Option<&str> {
        self.shards.get(i).map(|s| s.address.as_str())
    }

    /// By what a process on this host reaches a shard's member at the least cost, as the router does.
    pub(crate) fn near_shard(&self, i: usize) -> Option<&str> {
        let socket = self.shards.get(i)?.socket.as_deref().and_then(Path::to_str);
        socket.or_else(|| self.shard(i))
    }

    /// The process id of the router.
    pub(crate) fn router_pid(&self) -> u32 {
        self.router.pid()
    }

    /// The process id of the server with the configuration.
    pub(crate) fn config_pid(&self) -> u32 {
        self.config.process.pid()
    }

    /// The process ids of the shards, in order.
    pub(crate) fn shard_pids(&self) -> Vec<u32> {
        self.shards.iter().map(|s| s.process.pid()).collect()
    }

    /// The directories of the shards' data, in order.
    pub(crate) fn shard_data(&self) -> Vec<&Path> {
        self.shards.iter().map(|s| s.data.as_path()).collect()
    }

    /// Checks that all servers run.
    ///
    /// # Errors
    /// A server has ended; the error names it and quotes the end of its output.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        self.router.check_alive()?;
        for (i, s) in self.shards.iter_mut().enumerate() {
            let alive = s.process.check_alive();
            alive.map_err(|e| e.while_doing(&name(i)))?;
        }
        let config = self.config.process.check_alive();
        config.map_err(|e| e.while_doing("config"))
    }
}

/// The Unix socket in a directory of the server with this port.
fn socket_in(dir: &Path, port: &str) -> PathBuf {
    dir.join(format!("mongodb-{port}.sock"))
}

/// The name of a shard's set.
pub(crate) fn name(i: usize) -> String {
    format!("shard{i}")
}
