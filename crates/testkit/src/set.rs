//! A replica set of real servers.

use crate::{Server, ServerOptions};
use muniment_value::{ArrayBuf, DocBuf, Value, doc};
use muniment_wire::{Connection, Reserved};
use std::time::{Duration, Instant};

/// A replica set. Its members end when it is dropped.
pub struct Set {
    /// The set's name.
    pub name: String,
    /// The members in the order of the configuration. A member that does not run was killed.
    pub members: Vec<Server>,
    /// The ports of the members, reserved so that no other process gets one while a member is down.
    ports: Vec<Reserved>,
}

/// How long a set may take for anything that it does by itself, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn is_true(d: &DocBuf, name: &str) -> bool {
    matches!(d.as_doc().get(name), Some(Value::Bool(true)))
}

/// The number of members that are to vote.
fn voters(c: &mut Connection) -> Option<usize> {
    let reply = c.command("admin", &doc! { "replSetGetConfig": 1 }).ok()?;
    let config = reply.as_doc().get_doc("config")?;
    let votes = |v: Value<'_>| v.as_doc()?.get("votes")?.as_i64_exact();
    let members = config.get_array("members")?;
    Some(members.values().filter(|v| votes(*v) == Some(1)).count())
}

impl Set {
    /// Starts this many servers for a set, which do not know each other yet.
    pub fn prepare(n: usize, options: &ServerOptions) -> Set {
        Set::named("rs0", n, options)
    }

    /// As [`Set::prepare`], for a set with this name.
    pub fn named(name: &str, n: usize, options: &ServerOptions) -> Set {
        let ports: Vec<Reserved> = (0..n).map(|_| Reserved::new().unwrap()).collect();
        let members = ports
            .iter()
            .map(|port| {
                let options = options.clone().port(port.port()).arg("--replSet").arg(name);
                Server::start(options)
            })
            .collect();
        let name = name.to_string();
        Set {
            name,
            members,
            ports,
        }
    }

    /// Starts a set of this many members, and waits until one is primary and all others have caught up. Its
    /// election timeout is a second.
    pub fn start(n: usize) -> Set {
        let set = Set::prepare(n, &ServerOptions::new());
        set.begin();
        set
    }

    /// Initiates the set with all its members.
    pub fn begin(&self) {
        let members = 0..self.members.len();
        let members = members.map(|i| doc! { "_id": i as i32, "host": self.host(i) });
        self.initiate(&self.config(members.collect()));
    }

    /// The address of the set: `name/host:port,host:port`.
    pub fn address(&self) -> String {
        let hosts: Vec<String> = (0..self.members.len()).map(|i| self.host(i)).collect();
        format!("{}/{}", self.name, hosts.join(","))
    }

    /// Has the primary end these commands as `data` says, members' own as well, when `mode` says so: `failCommand`'s data
    /// and mode, as the shell writes them.
    ///
    /// # Panics
    /// If the server was not started with `enableTestCommands`.
    pub fn fail_commands(&self, commands: &[&str], mode: &str, data: &str) {
        let point = format!(
            "{{configureFailPoint: 'failCommand', mode: {mode}, data: {{failCommands: ['{}'], \
             failInternalCommands: true, {data}}}}}",
            commands.join("', '")
        );
        crate::ask::run(&mut self.connect(self.primary()), "admin", &point);
    }

    /// The address of a member.
    pub fn host(&self, i: usize) -> String {
        self.ports[i].address().to_string()
    }

    /// Reserves another port for a member, which uses it from its next start on. The member's host is the new
    /// one at once.
    pub fn move_member(&mut self, i: usize) -> String {
        self.ports[i] = Reserved::new().unwrap();
        self.members[i].set_port(self.ports[i].port());
        self.host(i)
    }

    /// Adds a server with the same options and no data, which is in no configuration and does not run yet.
    pub fn add_server(&mut self, options: &ServerOptions) -> usize {
        let port = Reserved::new().unwrap();
        let options = options.clone().port(port.port());
        let options = options.arg("--replSet").arg(&*self.name);
        self.members.push(Server::prepare(options));
        self.ports.push(port);
        self.members.len() - 1
    }

    /// A configuration of these members with a short election timeout.
    pub fn config(&self, members: Vec<DocBuf>) -> DocBuf {
        doc! {
            "_id": self.name.as_str(),
            "members": members.iter().collect::<ArrayBuf>(),
            "settings": doc! { "electionTimeoutMillis": 1000, "heartbeatIntervalMillis": 200 },
        }
    }

    /// Initiates the set at its first member.
    pub fn initiate(&self, config: &DocBuf) {
        let mut c = self.members[0].connect();
        c.command("admin", &doc! { "replSetInitiate": config })
            .unwrap();
        self.settle();
    }

    /// A connection to a member.
    pub fn connect(&self, i: usize) -> Connection {
        self.members[i].connect()
    }

    /// Waits until one member is primary, and returns its index.
    pub fn primary(&self) -> usize {
        self.until("nobody is primary", || {
            self.running().find(|i| {
                self.hello(*i)
                    .is_some_and(|d| is_true(&d, "isWritablePrimary"))
            })
        })
    }

    /// The running members.
    pub fn running(&self) -> impl Iterator<Item = usize> + '_ {
        let all = 0..self.members.len();
        all.filter(|i| self.members[*i].pid().is_some())
    }

    fn hello(&self, i: usize) -> Option<DocBuf> {
        let mut c = Connection::connect_timeout(&self.host(i), Duration::from_secs(1)).ok()?;
        c.set_timeout(Some(Duration::from_secs(5))).ok()?;
        c.command("admin", &doc! { "hello": 1 }).ok()
    }

    /// Waits until one member is primary, all other running members are secondaries with the same data, and
    /// the votes are those of the configuration.
    pub fn settle(&self) {
        let primary = self.primary();
        self.until("the others have not caught up", || {
            let mut c = self.connect(primary);
            let status = c.command("admin", &doc! { "replSetGetStatus": 1 }).ok()?;
            let members = status.as_doc().get_array("members")?;
            let with = |state: i32| {
                members.values().filter_map(move |v| {
                    let d = v.as_doc()?;
                    let is = matches!(d.get("state"), Some(Value::Int32(n)) if n == state);
                    let at = d.get_doc("optime")?;
                    let Value::Timestamp { t, i } = at.get("ts")? else {
                        return None;
                    };
                    is.then_some((at.get("t")?.as_i64_exact()?, t, i))
                })
            };
            let first = with(1).next().filter(|_| with(1).count() == 1)?;
            let caught_up = with(2).filter(|at| *at >= first).count() + 1;
            let voting = status.as_doc().get("votingMembersCount")?.as_i64_exact()?;
            // Arbiters do not have to catch up.
            let state = |v: Value<'_>| v.as_doc()?.get("state")?.as_i64_exact();
            let arbiters = members.values().filter(|v| state(*v) == Some(7)).count();
            let all = caught_up + arbiters >= members.count().min(self.running().count());
            (all && voting as usize >= voters(&mut c)?).then_some(())
        });
    }

    /// Waits until `found` returns something.
    pub fn until<T>(&self, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = found() {
                return found;
            }
            if Instant::now() > end {
                let status = |i| {
                    let mut c = self.connect(i);
                    let reply = c.command_raw("admin", &doc! { "replSetGetStatus": 1 });
                    reply.map_or_else(|e| e.to_string(), |d| d.as_doc().to_display())
                };
                let states: Vec<String> = self.running().map(status).collect();
                eprintln!("{}", states.join("\n"));
                let logs: Vec<String> = self.members.iter().map(Server::log).collect();
                panic!("{what}\n{}", logs.join("\n---- the next member's log:\n"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
