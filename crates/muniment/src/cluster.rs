//! `muniment cluster`: a whole cluster of shards on one machine, for development: the configuration, the shards and a
//! router are started, watched and ended together.

use crate::BAD_OPTIONS;
use crate::command::Spec;
use muniment_lab::stdout::say;
use muniment_options::{Given, Group, HELP, Opt, Page};
use muniment_value::{ArrayBuf, Code, DocBuf, doc};
use muniment_wire::Connection;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// `muniment cluster`.
pub const COMMAND: Spec = Spec {
    name: "cluster",
    arguments: "[--shards N] [--option …]",
    about: "a cluster of shards on this machine (muniment cluster --help)",
    page,
    below: Vec::new,
    run: main,
};

const OPTIONS: &[Opt] = &[
    Opt::text("shards", "N", "the number of shards (2)"),
    Opt::text("members", "N", "the members of each shard (1)"),
    Opt::text(
        "port",
        "PORT",
        "the router's port (27017); the other servers have the ports after it",
    ),
    Opt::path(
        "dir",
        "DIR",
        "the directory for data and logs (./muniment-cluster); it is used again if it is there",
    ),
    HELP,
];

fn page() -> Page {
    Page {
        head: "\
Usage: muniment cluster [--shards N] [--members N] [--port PORT] [--dir DIR]

Starts a configuration, shards and a router on this machine, for development, and prints the connection
string. All of them listen on 127.0.0.1, ask nobody for credentials, and end together: with Ctrl-C, or when
one of them ends.

"
        .into(),
        groups: vec![Group::untitled(OPTIONS)],
        once: true,
        ..Page::default()
    }
}

/// How long a server may take to do what is asked of it at the start.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether a server has ended.
const LOOK: Duration = Duration::from_millis(200);

/// What is wanted.
struct Plan {
    shards: u16,
    members: u16,
    port: u16,
    dir: PathBuf,
}

impl Plan {
    fn of(given: &Given) -> Result<Plan, String> {
        let number = |name: &str, default: u16, most: u16| match given.text(name) {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(n) if (1..=most).contains(&n) => Ok(n),
                _ => Err(format!("--{name} '{text}' is no number from 1 to {most}")),
            },
        };
        let dir = given.path("dir").filter(|d| !d.as_os_str().is_empty());
        let plan = Plan {
            shards: number("shards", 2, 100)?,
            members: number("members", 1, 7)?,
            port: number("port", 27017, u16::MAX)?,
            dir: dir.map_or_else(|| PathBuf::from("muniment-cluster"), PathBuf::from),
        };
        match plan.last_port() <= u32::from(u16::MAX) {
            true => Ok(plan),
            false => Err(format!(
                "--port {} leaves too few ports after it",
                plan.port
            )),
        }
    }

    /// The last one of the ports that the cluster takes.
    fn last_port(&self) -> u32 {
        u32::from(self.port) + 1 + u32::from(self.shards) * u32::from(self.members)
    }

    /// Refuses ports that other servers have, which would be taken for servers of the cluster.
    fn check_ports(&self) -> Result<(), String> {
        let all = (u32::from(self.port)..=self.last_port()).filter_map(|p| u16::try_from(p).ok());
        for port in all {
            std::net::TcpListener::bind(("127.0.0.1", port)).map_err(|e| {
                format!(
                    "cannot listen on port {port}: {e}; the cluster takes the ports {} to {}, and --port names the first",
                    self.port,
                    self.last_port()
                )
            })?;
        }
        Ok(())
    }
}

/// The processes of the cluster. They are ended when this is dropped, and with this process.
struct Processes(Vec<(String, Child)>);

impl Processes {
    /// Starts a server, whose log goes to a file.
    fn start(&mut self, name: &str, log: &Path, args: &[&str]) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
        let mut command = Command::new(program);
        command
            .args(args)
            .arg("--logpath")
            .arg(log)
            .arg("--logappend")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // SAFETY: only async-signal-safe calls are made between fork and exec.
        unsafe {
            command.pre_exec(|| {
                // Ctrl-C reaches this process alone, which then ends the others in order.
                libc::setpgid(0, 0);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                let mut none: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut none);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
                Ok(())
            });
        }
        let child = command.spawn().map_err(|e| format!("{name}: {e}"))?;
        self.0.push((name.to_string(), child));
        Ok(())
    }

    /// The first that has ended.
    fn ended(&mut self) -> Option<String> {
        let mut all = self.0.iter_mut();
        all.find_map(|(name, child)| match child.try_wait() {
            Ok(Some(status)) => Some(format!("{name} has ended ({status})")),
            _ => None,
        })
    }

    /// Runs a command on a server, until it succeeds or fails with another error than one of the start.
    fn command(&mut self, port: u16, cmd: &DocBuf) -> Result<DocBuf, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let asked = Connection::connect(&format!("127.0.0.1:{port}"))
                .and_then(|mut c| c.command("admin", cmd));
            let e = match asked {
                Ok(reply) => return Ok(reply),
                Err(e) => e,
            };
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            let starting = [
                Code::HostUnreachable,
                Code::SocketException,
                Code::NotWritablePrimary,
                Code::FailedToSatisfyReadPreference,
            ];
            if !starting.contains(&e.code()) || Instant::now() > until {
                return Err(format!("the server on port {port}: {}", e.message()));
            }
            std::thread::sleep(LOOK / 4);
        }
    }

    /// Starts the members of a set, and initiates it if it is new.
    fn set(
        &mut self,
        plan: &Plan,
        name: &str,
        role: &str,
        ports: &[u16],
    ) -> Result<String, String> {
        for port in ports {
            let dir = plan.dir.join(format!("{name}-{port}"));
            std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
            let log = plan.dir.join(format!("{name}-{port}.log"));
            let (port, dir) = (port.to_string(), dir.to_string_lossy().into_owned());
            let args = [
                "serve",
                role,
                "--replSet",
                name,
                "--port",
                &port,
                "--dbpath",
                &dir,
            ];
            self.start(&format!("{name} on port {port}"), &log, &args)?;
        }
        let hosts: Vec<String> = ports.iter().map(|p| format!("127.0.0.1:{p}")).collect();
        let first = *ports.first().ok_or("a set without members")?;
        let hello = self.command(first, &doc! { "hello": 1 })?;
        if hello.as_doc().get("setName").is_none() {
            let members = hosts.iter().enumerate();
            let members: ArrayBuf = members
                .map(|(i, host)| doc! { "_id": i as i32, "host": host.as_str() })
                .collect();
            for port in ports {
                self.command(*port, &doc! { "hello": 1 })?;
            }
            let config = doc! { "_id": name, "members": members };
            self.command(first, &doc! { "replSetInitiate": config })?;
        }
        Ok(format!("{name}/{}", hosts.join(",")))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // The router first, so that clients are told by it.
        for (_, child) in self.0.iter_mut().rev() {
            // SAFETY: the function takes plain numbers.
            unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
        }
        for (_, child) in &mut self.0 {
            let _ = child.wait();
        }
    }
}

fn main(args: Vec<OsString>) -> ExitCode {
    let page = page();
    let given = match page.parse(args) {
        Ok(given) if given.has("help") => {
            say(&page.text());
            return ExitCode::SUCCESS;
        }
        Ok(given) => given,
        Err(e) => return misused(&e.to_string()),
    };
    let plan = match Plan::of(&given) {
        Ok(plan) => plan,
        Err(why) => return misused(&why),
    };
    match run(&plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("muniment cluster: {why}");
            ExitCode::FAILURE
        }
    }
}

fn misused(why: &str) -> ExitCode {
    eprintln!("muniment cluster: {why}\nTry 'muniment cluster --help'.");
    ExitCode::from(BAD_OPTIONS)
}

/// Blocks the signals that ask to end, so that they can be waited for.
fn block_signals() -> libc::sigset_t {
    // SAFETY: the set is owned by this function, and initialised before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    }
}

/// Whether one of the signals comes within a moment.
fn is_asked_to_end(signals: &libc::sigset_t) -> bool {
    let moment = libc::timespec {
        tv_sec: 0,
        tv_nsec: LOOK.as_nanos() as libc::c_long,
    };
    // SAFETY: the set was initialised, and nothing is asked about the signal.
    unsafe { libc::sigtimedwait(signals, std::ptr::null_mut(), &raw const moment) > 0 }
}

fn run(plan: &Plan) -> Result<(), String> {
    let signals = block_signals();
    let began = Instant::now();
    plan.check_ports()?;
    let mut all = Processes(Vec::new());
    let config = all.set(plan, "config", "--configsvr", &[plan.port + 1])?;
    let mut shards = Vec::new();
    for i in 0..plan.shards {
        let first = plan.port + 2 + i * plan.members;
        let ports: Vec<u16> = (first..first + plan.members).collect();
        shards.push(all.set(plan, &format!("shard{i}"), "--shardsvr", &ports)?);
    }
    let (port, log) = (plan.port.to_string(), plan.dir.join("router.log"));
    let args = ["router", "--configdb", &config, "--port", &port];
    all.start("the router", &log, &args)?;
    for shard in &shards {
        all.command(plan.port, &doc! { "addShard": shard.as_str() })?;
    }
    say(&format!(
        "mongodb://127.0.0.1:{port}/\n\n{} shards behind a router, in {} ms; data and logs are in {}. Ctrl-C ends \
         them.\n",
        plan.shards,
        began.elapsed().as_millis(),
        plan.dir.display()
    ));
    while !is_asked_to_end(&signals) {
        if let Some(ended) = all.ended() {
            return Err(format!("{ended}; see its log in {}", plan.dir.display()));
        }
    }
    Ok(())
}
