//! The server that is crashed and comes back.

use super::concern::{Concern, Crash, Server};
use super::judge::Promise;
use super::undone::Undone;
use crate::process::{self, Process, ServerOptions, TempDir};
use crate::uri::Uri;
use muniment_load::access::Peer;
use muniment_load::conn::{Conn, number_at, string_at};
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::stop;
use muniment_value::{Doc, DocBuf, doc};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time that a server may take to answer again, or a replica set to have a new primary.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that can be crashed.
pub(crate) trait Victim: Send {
    /// The server or member that takes writes now.
    fn server(&self) -> &Peer;

    /// Brings the server down.
    ///
    /// # Errors
    /// The server could not be brought down.
    fn crash(&mut self) -> Result<()>;

    /// Brings the server back and returns how long that took.
    ///
    /// # Errors
    /// The server does not come back.
    fn revive(&mut self) -> Result<Duration>;

    /// The time for which a server that was cut off or stopped may go on without noticing; the
    /// writers write for that long after the fault.
    fn lingers(&self) -> Duration {
        Duration::ZERO
    }

    /// The promise for a write concern, if the victim knows it better than its kind of server
    /// tells.
    fn promise(&self, _concern: &Concern) -> Option<Promise> {
        None
    }

    /// Asks the members about the round with this mark and so many writers, after the server is
    /// back and before anything is compared. `None` for a server that cannot undo anything.
    ///
    /// # Errors
    /// The members cannot be asked.
    fn aftermath(&mut self, _mark: u64, _writers: usize) -> Result<Option<Aftermath>> {
        Ok(None)
    }
}

/// The state of a set's members after a fault.
pub(crate) struct Aftermath {
    /// The writes that the members undid.
    pub undone: Undone,
    /// Members whose content differs from the primary's, in words.
    pub differing: Vec<String>,
}

/// A server that the lab starts, in a temporary directory.
pub(crate) struct Embedded {
    process: Process,
    options: ServerOptions,
    server: Peer,
}

impl Embedded {
    /// Starts a server below `parent`. For power cuts it runs under the file layer, where each sync
    /// takes `sync_us` microseconds longer.
    ///
    /// # Errors
    /// This system has no such layer, or the server does not start.
    pub(crate) fn start(
        parent: &Path,
        crash: Crash,
        journal_ms: Option<u64>,
        sync_us: u64,
    ) -> Result<Embedded> {
        let dir = TempDir::new(parent)?;
        let data = dir.path().join("data");
        let layer = match crash {
            Crash::Process | Crash::Fault(_) => None,
            Crash::Power => {
                let bytes = powerloss_image::LAYER.ok_or_else(|| {
                    Failure::new(
                        "--crash power: the file layer that drops what was not synced replaces calls of glibc on Linux; this build has none",
                    )
                })?;
                let library = dir.path().join("powerloss.so");
                std::fs::write(&library, bytes).context("writing the power-loss layer")?;
                Some(powerloss_image::Settings {
                    library,
                    dir: data.clone(),
                    shadow: Some(dir.path().join("shadow")),
                    sync_us,
                    ..powerloss_image::Settings::default()
                })
            }
        };
        let options = ServerOptions {
            program: process::own()?,
            data,
            journal_ms,
            layer,
            ..ServerOptions::default()
        };
        let (process, address) = process::server_with(dir, &options)?;
        Ok(Embedded {
            process,
            options,
            server: Peer::open(address),
        })
    }

    /// Replaces the server's directory by its state after the power cut, in which unsynced data may
    /// be missing.
    fn cut_power(&self) -> Result<()> {
        let cut = self.options.layer.as_ref().map(|layer| layer.cut_power());
        cut.transpose()
            .map(drop)
            .context("the disk after the power cut")
    }
}

impl Victim for Embedded {
    fn server(&self) -> &Peer {
        &self.server
    }

    fn crash(&mut self) -> Result<()> {
        self.process.kill9();
        Ok(())
    }

    fn revive(&mut self) -> Result<Duration> {
        self.cut_power()?;
        let begin = Instant::now();
        self.server = Peer::open(self.process.server_again(&self.options)?);
        Conn::connect(&self.server)?;
        Ok(begin.elapsed())
    }
}

/// A server that the lab did not start, crashed and started by shell commands.
pub(crate) struct External {
    server: Peer,
    /// The set's members; empty for a single server.
    members: Vec<Peer>,
    pid: Option<u32>,
    dbpath: Option<String>,
    kill: String,
    start: Option<String>,
    /// The longest time that the server may take to be gone after the command that kills it.
    stop_wait: Duration,
    /// Running shells, whose servers may run in their foreground.
    started: Vec<Child>,
    /// The file that receives their output.
    log: PathBuf,
    _dir: TempDir,
}

/// The commands that crash and start an external server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Templates {
    /// Brings the server down; `None` stands for `kill -9 {pid}`.
    pub kill: Option<String>,
    /// Starts the server; `None` is allowed only for a replica set.
    pub start: Option<String>,
    /// The longest time that the server may take to be gone.
    pub stop_wait: Duration,
}

impl External {
    /// Makes a victim of the server, which the lab has found to take writes.
    ///
    /// # Errors
    /// A template has a placeholder for something that the server does not report.
    pub(crate) fn new(
        server: &Peer,
        same_host: bool,
        uri: &Uri,
        t: &Templates,
        parent: &Path,
    ) -> Result<External> {
        let dir = TempDir::new(parent)?;
        let mut v = External {
            server: server.clone(),
            members: Vec::new(),
            pid: None,
            dbpath: None,
            kill: match &t.kill {
                Some(k) => k.clone(),
                None if same_host => "kill -9 {pid}".into(),
                None => {
                    return Err(Failure(format!(
                        "--kill is needed: {server} is on another host, where 'kill -9 {{pid}}' cannot be run"
                    )));
                }
            },
            start: t.start.clone(),
            stop_wait: t.stop_wait,
            started: Vec::new(),
            log: dir.path().join("commands.log"),
            _dir: dir,
        };
        let reply = hello(server)?;
        if !uri.direct && string_at(reply.as_doc(), "setName").is_some() {
            let all = members(reply.as_doc(), &uri.hosts);
            v.members = all.into_iter().map(|h| server.sibling(h)).collect();
        }
        v.look()?;
        for template in [Some(&v.kill), v.start.as_ref()].into_iter().flatten() {
            v.filled(template)?;
        }
        Ok(v)
    }

    /// Whether another member takes over when the primary is killed.
    pub(crate) fn is_set(&self) -> bool {
        !self.members.is_empty()
    }

    /// Asks the server for its process id and its directory; it may report neither.
    fn look(&mut self) -> Result<()> {
        let mut c = Conn::connect(&self.server)?;
        let mut ask = |command: DocBuf| c.command("admin", &command).ok();
        let status = ask(doc! { "serverStatus": 1 });
        self.pid = status
            .and_then(|r| number_at(r.as_doc(), "pid"))
            .map(|p| p as u32);
        let line = ask(doc! { "getCmdLineOpts": 1 });
        self.dbpath = line.and_then(|r| string_at(r.as_doc(), "parsed.storage.dbPath"));
        Ok(())
    }

    /// Fills in the placeholders of a template.
    fn filled(&self, template: &str) -> Result<String> {
        let address = self.server.address();
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let pid = self.pid.map(|p| p.to_string());
        let places = [
            ("{host}", Some(host)),
            ("{port}", Some(port)),
            ("{pid}", pid.as_deref()),
            ("{dbpath}", self.dbpath.as_deref()),
        ];
        let mut text = template.to_string();
        for (place, value) in places {
            if !text.contains(place) {
                continue;
            }
            let value = value.ok_or_else(|| {
                Failure(format!(
                    "'{template}': {} does not say its {place} (serverStatus.pid, getCmdLineOpts.parsed.storage.dbPath); write it out",
                    self.server
                ))
            })?;
            text = text.replace(place, value);
        }
        Ok(text)
    }

    /// Runs `sh -c` with its output in the log.
    fn shell(&self, command: &str) -> Result<Command> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .context("making the commands' log")?;
        let err = log.try_clone().context("making the commands' log")?;
        let mut c = Command::new("sh");
        c.arg("-c").arg(command);
        c.stdin(Stdio::null()).stdout(log).stderr(err);
        // Ctrl-C at the terminal must end only the lab; the server is not ours and keeps running.
        std::os::unix::process::CommandExt::process_group(&mut c, 0);
        Ok(c)
    }

    fn printed(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(6)..);
        match tail.unwrap_or_default() {
            [] => "the commands printed nothing".into(),
            some => format!("the commands printed:\n    {}", some.join("\n    ")),
        }
    }

    /// Waits until nothing listens at the address any more.
    fn wait_until_gone(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            // A shell whose server has ended must be waited for, because its process id would
            // remain otherwise.
            self.started
                .retain_mut(|c| matches!(c.try_wait(), Ok(None)));
            if !Conn::listens(&self.server) {
                return Ok(());
            }
            if begin.elapsed() > self.stop_wait {
                return Err(Failure(format!(
                    "{} still answers {} s after '{}' (--stop-wait gives it longer); {}",
                    self.server,
                    self.stop_wait.as_secs_f64(),
                    self.kill,
                    self.printed()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for a server that takes writes: the same one, or another member of the set.
    fn wait_for_primary(&mut self) -> Result<()> {
        let hosts = match self.members.as_slice() {
            [] => vec![self.server.clone()],
            some => some.to_vec(),
        };
        let begin = Instant::now();
        loop {
            for h in &hosts {
                if hello(h).is_ok_and(|r| writable(r.as_doc())) {
                    self.server.clone_from(h);
                    return self.look();
                }
            }
            if stop::asked() {
                return Err(Failure::new("interrupted"));
            }
            if begin.elapsed() > PATIENCE {
                let names: Vec<&str> = hosts.iter().map(Peer::address).collect();
                return Err(Failure(format!(
                    "none of {} takes writes {} s after the crash; {}",
                    names.join(", "),
                    PATIENCE.as_secs(),
                    self.printed()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Victim for External {
    fn server(&self) -> &Peer {
        &self.server
    }

    fn crash(&mut self) -> Result<()> {
        let command = self.filled(&self.kill)?;
        let status = self.shell(&command)?.status().context(&command)?;
        if !status.success() {
            return Err(Failure(format!(
                "--kill '{command}' ended with {status}; {}",
                self.printed()
            )));
        }
        Ok(())
    }

    fn revive(&mut self) -> Result<Duration> {
        self.wait_until_gone()?;
        let begin = Instant::now();
        if let Some(start) = &self.start {
            let command = self.filled(start)?;
            let child = self.shell(&command)?.spawn().context(&command)?;
            self.started.push(child);
        }
        self.wait_for_primary()?;
        Ok(begin.elapsed())
    }
}

fn hello(server: &Peer) -> Result<DocBuf> {
    let mut c = Conn::connect(server)?;
    c.set_timeout(Some(Duration::from_secs(5)))?;
    c.command("admin", &doc! { "hello": 1 })
        .or_else(|_| c.command("admin", &doc! { "isMaster": 1 }))
}

/// Whether a hello reply comes from a server that takes writes.
fn writable(hello: Doc<'_>) -> bool {
    ["isWritablePrimary", "ismaster"]
        .iter()
        .any(|f| hello.get(f).and_then(|v| v.as_bool()) == Some(true))
}

/// The addresses of a set's members: those in the hello reply, and those that the user gave.
fn members(hello: Doc<'_>, said: &[String]) -> Vec<String> {
    let hosts = hello.get_array("hosts");
    let mut all: Vec<String> = hosts
        .iter()
        .flat_map(|h| h.values())
        .filter_map(|v| v.as_str().map(String::from))
        .collect();
    for h in said {
        if !all.contains(h) {
            all.push(h.clone());
        }
    }
    all
}

/// The kind of the server, as far as its durability is known; `interval` is its commit
/// interval if it is a Muniment.
pub(crate) fn kind(server: &Peer, is_set: bool, interval: Duration) -> Result<Server> {
    if is_set {
        return Ok(Server::Set);
    }
    let r = Conn::connect(server)?.command("admin", &doc! { "buildInfo": 1 })?;
    let ours = ["muniment.version", "munimentVersion"]
        .iter()
        .any(|f| string_at(r.as_doc(), f).is_some());
    Ok(if ours {
        Server::Muniment(interval)
    } else {
        Server::Other
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use muniment_value::array;

    fn external(pid: Option<u32>) -> External {
        let dir = TempDir::new(&std::env::temp_dir()).unwrap();
        External {
            server: Peer::open("h:7"),
            members: Vec::new(),
            pid,
            dbpath: Some("/d".into()),
            kill: String::new(),
            start: None,
            stop_wait: Duration::ZERO,
            started: Vec::new(),
            log: dir.path().join("log"),
            _dir: dir,
        }
    }

    #[test]
    fn templates_are_filled_in() {
        let v = external(Some(42));
        assert_eq!(
            v.filled("kill {pid}; x --port {port} -h {host} {dbpath} ${HOME} {pid}")
                .unwrap(),
            "kill 42; x --port 7 -h h /d ${HOME} 42"
        );
        let e = external(None).filled("kill {pid}").unwrap_err().0;
        assert!(e.contains("does not say its {pid}"), "{e}");
    }

    #[test]
    fn a_command_that_fails_is_quoted() {
        let mut v = external(None);
        v.kill = "echo no such thing; exit 3".into();
        let e = v.crash().unwrap_err().0;
        assert!(
            e.contains("exit status: 3") && e.contains("no such thing"),
            "{e}"
        );
    }

    #[test]
    fn a_hello_tells_the_members_and_who_takes_writes() {
        let hosts = array!["a:1", "b:2"];
        let r = doc! { "setName": "rs", "hosts": hosts, "isWritablePrimary": true };
        assert!(writable(r.as_doc()));
        assert!(!writable(doc! { "isWritablePrimary": false }.as_doc()));
        assert!(writable(doc! { "ismaster": true }.as_doc()));
        assert_eq!(
            members(r.as_doc(), &["b:2".into(), "c:3".into()]),
            ["a:1", "b:2", "c:3"]
        );
    }

    /// Starts a member that answers as the null responder does: it is writable and empty.
    fn member() -> muniment_wire::NullServer {
        muniment_wire::NullServer::start("127.0.0.1:0", doc! { "_id": 1 }.as_doc()).unwrap()
    }

    #[test]
    fn after_a_primarys_end_the_audit_goes_on_with_the_new_one() {
        let (old, new) = (member(), member());
        let mut v = external(None);
        v.members = vec![Peer::open(old.address()), Peer::open(new.address())];
        v.server = Peer::open(old.address());
        v.stop_wait = Duration::from_secs(10);
        assert!(v.is_set());
        old.stop();
        v.revive().unwrap();
        assert_eq!(v.server().address(), new.address());
    }

    #[test]
    fn a_server_that_survives_its_killing_is_an_error() {
        let survivor = member();
        let mut v = external(None);
        v.server = Peer::open(survivor.address());
        v.kill = "true".into();
        v.crash().unwrap();
        let e = v.revive().unwrap_err().0;
        assert!(
            e.contains("still answers") && e.contains("--stop-wait"),
            "{e}"
        );
    }
}
