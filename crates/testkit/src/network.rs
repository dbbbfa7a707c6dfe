//! A network between the servers of a cluster of shards, which can be cut.
//!
//! Each server dials each other one by a link of its own: one process relays them all (`muniment bench relay`), and the
//! servers' parameter `replMemberRoutes` leads there. Clients reach routers directly.

use crate::{Cluster, Server, binary};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A link, from a server to a member of a set, by their places in [`Network::places`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The server that dials.
    pub from: usize,
    /// The member that it dials.
    pub to: usize,
}

/// What a cut holds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing passes.
    Both,
    /// What the server that dials sends does not arrive.
    Out,
    /// What the member answers does not arrive.
    In,
}

/// The network of a cluster. It ends when it is dropped.
pub struct Network {
    relay: Child,
    lines: ChildStdin,
    replies: BufReader<ChildStdout>,
    links: Vec<Link>,
    places: usize,
}

/// The servers of a cluster: the members of the configuration and of the shards, and then the routers.
fn servers(cluster: &mut Cluster) -> Vec<&mut Server> {
    let sets = std::iter::once(&mut cluster.config).chain(&mut cluster.shards);
    let members = sets.flat_map(|set| &mut set.members);
    members.chain(&mut cluster.routers).collect()
}

impl Network {
    /// Puts a network between the servers of a cluster, which all start again.
    ///
    /// # Panics
    /// If the relay or a server does not start.
    pub fn between(cluster: &mut Cluster) -> Network {
        let sets = std::iter::once(&cluster.config).chain(&cluster.shards);
        let hosts = sets.flat_map(|set| (0..set.members.len()).map(|i| set.host(i)));
        let hosts: Vec<String> = hosts.collect();
        let mut servers = servers(cluster);
        let places = servers.len();
        let from = |from| (0..hosts.len()).map(move |to| Link { from, to });
        let links: Vec<Link> = (0..places)
            .flat_map(from)
            .filter(|link| link.from != link.to)
            .collect();
        let mut command = Command::new(binary());
        command.args(["bench", "relay"]);
        for link in &links {
            command.args(["--listen", "127.0.0.1:0", "--to", &hosts[link.to]]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut relay = command.spawn().unwrap();
        let lines = relay.stdin.take().unwrap();
        let mut replies = BufReader::new(relay.stdout.take().unwrap());
        let mut routes = vec![Vec::new(); places];
        for link in &links {
            let mut line = String::new();
            replies.read_line(&mut line).unwrap();
            let listens = line.split(' ').nth(1).unwrap_or_else(|| panic!("{line}"));
            routes[link.from].push(format!("{}={listens}", hosts[link.to]));
        }
        // Routers begin last, as they look for the configuration.
        for (server, routes) in servers.iter_mut().zip(&routes) {
            let routes = format!("replMemberRoutes={}", routes.join(","));
            server.add_args(&["--setParameter", &routes]);
            server.restart();
        }
        Network {
            relay,
            lines,
            replies,
            links,
            places,
        }
    }

    /// How many servers there are: the members of the configuration come first, then those of the shards, then the
    /// routers.
    pub fn places(&self) -> usize {
        self.places
    }

    /// The links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Cuts the links that `which` chooses.
    ///
    /// # Panics
    /// If the relay has ended.
    pub fn part(&mut self, cut: Cut, which: impl Fn(Link) -> bool) {
        let way = match cut {
            Cut::Both => "",
            Cut::Out => " out",
            Cut::In => " in",
        };
        for n in 0..self.links.len() {
            if which(self.links[n]) {
                self.tell(&format!("partition{way} @{}", n + 1));
            }
        }
    }

    /// Mends all links.
    ///
    /// # Panics
    /// If the relay has ended.
    pub fn heal(&mut self) {
        self.tell("heal");
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.lines, "{line}").unwrap();
        let mut reply = String::new();
        self.replies.read_line(&mut reply).unwrap();
        assert_eq!(reply.trim(), "ok", "{line}");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.relay.kill();
        let _ = self.relay.wait();
    }
}
