//! A cluster of shards of real servers.

use crate::{Server, ServerOptions, Set};
use muniment_value::doc;
use muniment_wire::Connection;

/// A cluster of shards. Its servers end when it is dropped.
pub struct Cluster {
    /// The set with the configuration.
    pub config: Set,
    /// The shards, named `s0`, `s1`, …
    pub shards: Vec<Set>,
    /// The routers.
    pub routers: Vec<Server>,
}

impl Cluster {
    /// Starts this many shards of this many members each, a configuration of one member, and this many routers.
    ///
    /// # Panics
    /// If a part does not start, or cannot be made a shard.
    pub fn start(shards: usize, members: usize, routers: usize) -> Cluster {
        let cluster = Cluster::prepare(shards, members, routers, &[]);
        cluster.add_shards(&mut cluster.connect());
        cluster
    }

    /// Starts the servers of a cluster with these further arguments. No shard is added yet.
    ///
    /// # Panics
    /// If a part does not start.
    pub fn prepare(shards: usize, members: usize, routers: usize, args: &[&str]) -> Cluster {
        Cluster::prepare_with(1, shards, members, routers, args)
    }

    /// The same with this many members of the configuration.
    ///
    /// # Panics
    /// If a part does not start.
    pub fn prepare_with(
        config: usize,
        shards: usize,
        members: usize,
        routers: usize,
        args: &[&str],
    ) -> Cluster {
        let all = args.iter();
        let options = all.fold(ServerOptions::new(), |options, arg| options.arg(*arg));
        Cluster::prepare_on(&options, config, shards, members, routers)
    }

    /// The same with these options for the servers that have data. Their arguments are the routers', too.
    ///
    /// # Panics
    /// If a part does not start.
    pub fn prepare_on(
        options: &ServerOptions,
        config: usize,
        shards: usize,
        members: usize,
        routers: usize,
    ) -> Cluster {
        let of_config = options.clone().arg("--configsvr");
        let config = Set::named("cfg", config, &of_config);
        config.begin();
        let of_shards = options.clone().arg("--shardsvr");
        let shards: Vec<Set> = (0..shards)
            .map(|i| {
                let set = Set::named(&format!("s{i}"), members, &of_shards);
                set.begin();
                set
            })
            .collect();
        let options = options.router_with_arguments();
        let options = options.arg("--configdb").arg(config.address());
        let routers: Vec<Server> = (0..routers)
            .map(|_| Server::start(options.clone()))
            .collect();
        Cluster {
            config,
            shards,
            routers,
        }
    }

    /// Adds the shards.
    ///
    /// # Panics
    /// If one cannot be added.
    pub fn add_shards(&self, c: &mut Connection) {
        for shard in &self.shards {
            c.command("admin", &doc! { "addShard": shard.address() })
                .unwrap();
        }
    }

    /// A connection to the first router.
    pub fn connect(&self) -> Connection {
        self.routers[0].connect()
    }
}

/// A cluster of three shards and a server, with a connection to each, for tests that compare their answers. The cluster's
/// `d.c` is divided by a hash of `_id`.
///
/// # Panics
/// As [`Cluster::start`].
pub fn divided_and_alone() -> ((Cluster, Server), Connection, Connection) {
    let cluster = Cluster::start(3, 1, 1);
    let server = Server::start(ServerOptions::new());
    let (mut c, alone) = (cluster.connect(), server.connect());
    let divide = "{shardCollection: 'd.c', key: {_id: 'hashed'}}";
    crate::ask::run(&mut c, "admin", divide);
    ((cluster, server), c, alone)
}
