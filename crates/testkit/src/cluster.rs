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
        let config = Set::named("cfg", 1, &ServerOptions::new().arg("--configsvr"));
        config.begin();
        let options = ServerOptions::new().arg("--shardsvr");
        let shards: Vec<Set> = (0..shards)
            .map(|i| {
                let set = Set::named(&format!("s{i}"), members, &options);
                set.begin();
                set
            })
            .collect();
        let options = ServerOptions::new().router();
        let options = options.arg("--configdb").arg(config.address());
        let routers: Vec<Server> = (0..routers)
            .map(|_| Server::start(options.clone()))
            .collect();
        let cluster = Cluster {
            config,
            shards,
            routers,
        };
        let mut c = cluster.connect();
        for shard in &cluster.shards {
            c.command("admin", &doc! { "addShard": shard.address() })
                .unwrap();
        }
        cluster
    }

    /// A connection to the first router.
    pub fn connect(&self) -> Connection {
        self.routers[0].connect()
    }
}
