//! What every experiment needs: a target to work on, the preset, progress, and the null
//! responder's ceiling to judge figures by.

use crate::disk;
use crate::doubts::Doubts;
use crate::environment;
use crate::process::{self, Process};
use crate::progress::Progress;
use crate::report::table::{bytes, rate};
use crate::sizes::Sizes;
use crate::targets::Endpoint;
use crate::uri::Uri;
use crate::workers::Inserts;
use crate::workloads::only::Only;
use muniment_load::conn::{Conn, number_at, string_at};
use muniment_load::fail::{Failure, Result};
use muniment_load::hist::Latency;
use muniment_load::load::{self, Limit, Load};
use muniment_load::placement::{self, Placement, Server};
use muniment_load::stop;
use muniment_options::{Given, Opt, Takes};
use muniment_value::{DocBuf, doc};
use std::path::PathBuf;
use std::time::Duration;

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// Half a minute an experiment.
    Smoke,
    /// About a hundredth of the post's counts.
    Quick,
    /// The post's own counts.
    Paper,
}

impl Preset {
    const ALL: [Preset; 3] = [Preset::Smoke, Preset::Quick, Preset::Paper];

    /// The option that chooses one; `about` says what it changes.
    pub const fn option(about: &'static str) -> Opt {
        let takes = Takes::OneOf(&["smoke", "quick", "paper"]);
        Opt::new("preset", "PRESET", takes, about)
    }

    /// The one that a command line has chosen; smoke if it has not.
    pub fn of(given: &Given) -> Preset {
        let name = given.text("preset");
        let named = Preset::ALL.into_iter().find(|p| Some(p.name()) == name);
        named.unwrap_or(Preset::Smoke)
    }

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Smoke => "smoke",
            Preset::Quick => "quick",
            Preset::Paper => "paper",
        }
    }

    /// One of three, by preset.
    pub fn pick<T>(self, smoke: T, quick: T, paper: T) -> T {
        match self {
            Preset::Smoke => smoke,
            Preset::Quick => quick,
            Preset::Paper => paper,
        }
    }
}

/// The database all experiments work in. It is dropped before and after.
pub(crate) const DB: &str = "muniment_bench";

/// A server to measure, and what is known about it.
pub struct Target {
    /// `host:port`.
    pub address: String,
    /// Its process, when it runs on this host.
    pub pid: Option<u32>,
    /// Where its files are, when the lab started it.
    pub data: Option<PathBuf>,
    /// True when client and server share this host.
    pub same_host: bool,
    /// maxWriteBatchSize of its hello.
    pub max_batch: usize,
    /// The cache it was started with, bytes.
    pub cache: Option<f64>,
    /// The database that is worked in: [`DB`], unless a workload has its own.
    pub database: String,
    process: Option<Process>,
}

impl Target {
    /// A new connection.
    pub fn connect(&self) -> Result<Conn> {
        Conn::connect(&self.address)
    }

    /// `n` new connections.
    pub fn connections(&self, n: usize) -> Result<Vec<Conn>> {
        (0..n).map(|_| self.connect()).collect()
    }

    /// Drops a collection of [`DB`]; one that is not there is no error.
    pub fn drop_collection(&self, conn: &mut Conn, coll: &str) -> Result<()> {
        match conn.command(DB, &doc! { "drop": coll }) {
            Ok(_) => Ok(()),
            Err(e) if e.0.contains("(26 ") => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Documents in a collection, counted without a filter.
    pub fn count(&self, conn: &mut Conn, coll: &str) -> Result<u64> {
        let r = conn.command(DB, &doc! { "count": coll })?;
        Ok(number_at(r.as_doc(), "n").unwrap_or(0.0) as u64)
    }

    /// Fails with the server's last words if the lab started it and it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        self.process.as_mut().map_or(Ok(()), Process::check_alive)
    }
}

/// The running lab.
pub struct Lab {
    /// Where targets come from.
    pub endpoint: Endpoint,
    /// What the target is called when there are several.
    pub target_name: Option<String>,
    /// How much is done.
    pub preset: Preset,
    /// What was given of the options that belong to single experiments.
    pub options: Given,
    /// Which parts of experiments are run.
    pub only: Only,
    /// How often an experiment wanted to know where a single connection can be.
    pub placements_asked: usize,
    /// The cache of embedded servers, GiB, whatever an experiment would give them.
    pub cache_gb: Option<f64>,
    /// What the user sees meanwhile.
    pub progress: Progress,
    /// Where embedded servers get their temporary directories.
    pub data_parent: PathBuf,
    /// What is known about the environment so far.
    pub environment: Vec<(String, String)>,
    /// The disk's own write + fdatasync, when it was measured where the server's files are.
    pub fdatasync: Option<Latency>,
    /// What is being measured, for [`Lab::memory`].
    pub doing: String,
    /// For each embedded server: what it served, its largest resident size and its configured
    /// cache, both bytes.
    pub memory: Vec<(String, f64, f64)>,
    /// What stands against trusting its loads.
    doubts: Doubts,
    /// What the surroundings of the running experiment have to say against its figures.
    pub warnings: Vec<String>,
    /// What the servers of this experiment held at their end.
    pub sizes: Vec<Sizes>,
    /// The targets that the environment knows.
    described: Vec<Option<String>>,
    null: Option<(Process, String)>,
    ceilings: Vec<(usize, f64)>,
}

impl Lab {
    /// A lab that has not started anything.
    pub fn new(endpoint: Endpoint, preset: Preset, data_parent: PathBuf) -> Lab {
        Lab {
            endpoint,
            target_name: None,
            preset,
            options: Given::default(),
            only: Only::default(),
            placements_asked: 0,
            cache_gb: None,
            progress: Progress::new(),
            data_parent,
            environment: Vec::new(),
            doubts: Doubts::default(),
            warnings: Vec::new(),
            sizes: Vec::new(),
            described: Vec::new(),
            fdatasync: None,
            doing: String::new(),
            memory: Vec::new(),
            null: None,
            ceilings: Vec::new(),
        }
    }

    /// The cache that an embedded server gets to which an experiment would give `own`, GiB.
    pub fn cache(&self, own: Option<f64>) -> Option<f64> {
        self.cache_gb.or(own)
    }

    /// The target: the one asked for, or a fresh embedded server with this cache (or the one that
    /// was asked for).
    pub fn target(&mut self, cache_gb: Option<f64>) -> Result<Target> {
        let cache_gb = self.cache(cache_gb);
        let mut t = match self.endpoint.clone() {
            Endpoint::Server(uri) => external(&uri)?,
            started => {
                let program = match started {
                    Endpoint::Program(p) => p,
                    _ => process::own()?,
                };
                let (process, address) = process::server(&program, &self.data_parent, cache_gb)?;
                Target {
                    pid: Some(process.pid()),
                    data: Some(process.dir().to_path_buf()),
                    address,
                    same_host: true,
                    max_batch: 100_000,
                    cache: cache_gb.map(|g| g * 1024.0 * 1024.0 * 1024.0),
                    database: DB.into(),
                    process: Some(process),
                }
            }
        };
        let mut c = t.connect()?;
        let hello = hello(&mut c)?;
        if let Some(n) = number_at(hello.as_doc(), "maxWriteBatchSize") {
            t.max_batch = (n as usize).max(1);
        }
        self.describe(&t, &mut c);
        let dropped = c.command(DB, &doc! { "dropDatabase": 1 });
        dropped.map_err(|e| e.while_doing("emptying the lab's own database"))?;
        Ok(t)
    }

    /// Leaves an external target as it was found; ends an embedded one.
    pub fn done(&mut self, target: Target) {
        if let Some(s) = target.pid.and_then(muniment_load::procs::sample)
            && let Some(cache) = target.cache
        {
            self.memory.push((self.doing.clone(), s.peak_rss, cache));
        }
        let Ok(mut c) = target.connect() else {
            // Nothing more can be done about a server that has gone away.
            return;
        };
        let name = match (&self.target_name, &target.process) {
            (Some(n), _) => n.clone(),
            (None, Some(_)) => "embedded".into(),
            (None, None) => target.address.clone(),
        };
        self.sizes
            .extend(Sizes::of(&mut c, &name, &target.database));
        if target.process.is_none() {
            // As above.
            let _ = c.command(DB, &doc! { "dropDatabase": 1 });
        }
    }

    /// Waits until the server has finished what it does after a load (flushes, compaction), so that
    /// the next measurement does not pay for it: for half a second no tenth of a second in which it
    /// uses more than 15 ms of CPU or writes more than a megabyte. Gives a warning when it had not
    /// finished by `longest`. A server whose process cannot be read gets a pause of half a second.
    pub fn settle(&mut self, target: &Target, longest: Duration) {
        const LOOK: Duration = Duration::from_millis(100);
        const QUIET: u32 = 5;
        let Some(mut last) = target.pid.and_then(muniment_load::procs::sample) else {
            std::thread::sleep(LOOK * QUIET);
            return;
        };
        let begin = std::time::Instant::now();
        let mut quiet = 0;
        while quiet < QUIET && !stop::asked() {
            if begin.elapsed() > longest {
                self.warnings.push(format!(
                    "The server was still busy {:.0} s after a load: the next measurement pays for it.",
                    longest.as_secs_f64()
                ));
                return;
            }
            std::thread::sleep(LOOK);
            let Some(now) = target.pid.and_then(muniment_load::procs::sample) else {
                return;
            };
            let cpu = (now.cpu_seconds - last.cpu_seconds) / LOOK.as_secs_f64();
            let busy = cpu > 0.15 || now.written - last.written > 1e6;
            quiet = if busy { 0 } else { quiet + 1 };
            last = now;
        }
    }

    /// Completes the environment with the server's own words, the first time.
    fn describe(&mut self, t: &Target, c: &mut Conn) {
        if self.described.contains(&self.target_name) {
            return;
        }
        let first = self.described.is_empty();
        self.described.push(self.target_name.clone());
        if first {
            // In front of what was learned before there was a server.
            let host = environment::host(t.data.as_deref());
            self.environment.splice(0..0, host);
        }
        let name = self
            .target_name
            .as_ref()
            .map_or_else(String::new, |n| format!("{n}: "));
        let told = of_server(t, c);
        let told = told.into_iter().map(|(k, v)| (format!("{name}{k}"), v));
        self.environment.extend(told);
        if first {
            self.probe_disk(t);
        }
    }

    /// Adds to the environment how long the disk takes to write and sync.
    fn probe_disk(&mut self, t: &Target) {
        self.progress
            .step("Measuring the disk's own write + fdatasync");
        let own_disk = t
            .data
            .clone()
            .or_else(|| t.same_host.then(|| self.data_parent.clone()));
        let probe = own_disk.map(|d| disk::write_and_sync(&d, 200, Duration::from_secs(3)));
        let text = match &probe {
            Some(Ok(l)) => format!(
                "p50 {:.3} ms, p99 {:.3} ms, {} times{}",
                l.quantile_ms(0.5),
                l.quantile_ms(0.99),
                l.count(),
                if t.process.is_some() {
                    ""
                } else {
                    ", in this host's temporary directory, which may not be the server's disk"
                }
            ),
            Some(Err(e)) => format!("not measured: {e}"),
            None => "not measured: the target's disk is not on this host".into(),
        };
        self.environment
            .push(("4 KiB write + fdatasync".to_string(), text));
        self.fdatasync = probe.and_then(Result::ok);
    }

    /// The address of the null responder, started on first use.
    pub fn null_address(&mut self) -> Result<String> {
        if let Some((_, a)) = &self.null {
            return Ok(a.clone());
        }
        let (p, a) = process::null_responder(&self.data_parent)?;
        self.null = Some((p, a.clone()));
        Ok(a)
    }

    /// The null responder's process id, once it runs.
    pub fn null_pid(&self) -> Option<u32> {
        self.null.as_ref().map(|(p, _)| p.pid())
    }

    /// Inserts a second that the client reaches with this many connections when the server does
    /// nothing: measured once a run. `None` (with the reason on stderr) if it cannot be.
    pub fn ceiling(&mut self, connections: usize) -> Option<f64> {
        if let Some((_, c)) = self.ceilings.iter().find(|(n, _)| *n == connections) {
            return Some(*c);
        }
        if stop::asked() {
            return None;
        }
        match self.best_ceiling(connections) {
            Ok(c) => {
                self.ceilings.push((connections, c));
                self.environment.push((
                    format!(
                        "Null responder, {connections} connection{}",
                        if connections == 1 { "" } else { "s" }
                    ),
                    format!("{} inserts/s: the client's ceiling", rate(c)),
                ));
                Some(c)
            }
            Err(e) => {
                self.progress.end_line();
                eprintln!("The null responder's ceiling was not measured: {e}");
                None
            }
        }
    }

    /// Where threads happen to run makes one round several times as fast as another: the best of a
    /// few is what can be done, in each placement that a single connection can have.
    fn best_ceiling(&mut self, connections: usize) -> Result<f64> {
        let server = self.null_server()?;
        let placements = match connections {
            1 => placement::possible(&server),
            _ => vec![Placement::Anywhere],
        };
        let mut best = 0.0f64;
        for _ in 0..4 / placements.len() {
            for &p in &placements {
                let load = self.placed(&server, p, "the null responder", |lab| {
                    lab.measure_ceiling(connections)
                })?;
                best = best.max(load.rate());
            }
        }
        Ok(best)
    }

    /// The null responder as what is pinned.
    pub fn null_server(&mut self) -> Result<Server> {
        Ok(Server {
            address: self.null_address()?,
            pid: self.null_pid(),
            same_host: true,
        })
    }

    fn measure_ceiling(&mut self, connections: usize) -> Result<Load> {
        let address = self.null_address()?;
        self.progress.step(format!(
            "Measuring the client's own ceiling with {connections} connection(s)"
        ));
        let workers = (0..connections)
            .map(|_| {
                Ok(Inserts::w1_document(
                    Conn::connect(&address)?,
                    "ceiling",
                    None,
                ))
            })
            .collect::<Result<Vec<_>>>()?;
        let pid = self.null_pid();
        load::run(
            "null responder",
            workers,
            Limit::time(Duration::from_millis(250)),
            pid,
            &mut self.progress,
        )
    }

    /// Keeps what stands against trusting `load`, which the report calls `name`: a client that may
    /// be the bottleneck, by its workers' time and by what so many connections can do at all.
    pub fn doubt(&mut self, name: &str, load: &Load, connections: usize) {
        self.doubt_client(name, load);
        let Some(c) = self.ceiling(connections) else {
            return;
        };
        let x = load.samples.operations as f64 / load.samples.seconds;
        if x > c / 2.0 {
            self.doubts.near(name, connections, x);
        }
        // What was done with a real server can be done.
        for (n, c) in &mut self.ceilings {
            if *n == connections && x.is_finite() {
                *c = c.max(x);
            }
        }
    }

    /// As [`Lab::doubt`], by the workers' time alone: for loads of large requests.
    pub fn doubt_client(&mut self, name: &str, load: &Load) {
        if let Some(b) = load.client_bound() {
            self.doubts.bound(name, b);
        }
    }

    /// The doubts of the experiment that ends.
    pub fn take_doubts(&mut self) -> Vec<String> {
        let doubts = std::mem::take(&mut self.doubts);
        doubts.told(|connections| {
            let found = self.ceilings.iter().find(|c| c.0 == connections);
            found.map_or(f64::NAN, |c| c.1)
        })
    }
}

fn hello(c: &mut Conn) -> Result<DocBuf> {
    c.command("admin", &doc! { "hello": 1 })
        .or_else(|_| c.command("admin", &doc! { "isMaster": 1 }))
}

/// Connects to the host that takes writes.
fn external(uri: &Uri) -> Result<Target> {
    let mut reasons = Vec::new();
    for h in &uri.hosts {
        let tried = Conn::connect(h).and_then(|mut c| {
            c.set_timeout(Some(Duration::from_secs(10)))?;
            let reply = hello(&mut c)?;
            Ok((c, reply))
        });
        let (mut c, reply) = match tried {
            Ok(x) => x,
            Err(e) => {
                reasons.push(format!("{h}: {e}"));
                continue;
            }
        };
        let d = reply.as_doc();
        let flag = |n: &str| d.get(n).and_then(|v| v.as_bool()) == Some(true);
        let set = string_at(d, "setName");
        if uri.replica_set.is_some() && uri.replica_set != set {
            reasons.push(format!(
                "{h}: it belongs to replica set {}, not {}",
                set.as_deref().unwrap_or("(none)"),
                uri.replica_set.as_deref().unwrap_or("")
            ));
            continue;
        }
        if !uri.direct && !flag("isWritablePrimary") && !flag("ismaster") {
            reasons.push(format!(
                "{h}: it takes no writes{}",
                string_at(d, "primary").map_or(String::new(), |p| format!(" (its primary is {p})"))
            ));
            continue;
        }
        let same_host = c.is_loopback();
        let pid = if same_host {
            c.command("admin", &doc! { "serverStatus": 1 })
                .ok()
                .and_then(|r| number_at(r.as_doc(), "pid"))
                .map(|p| p as u32)
        } else {
            None
        };
        return Ok(Target {
            address: h.clone(),
            pid,
            data: None,
            same_host,
            max_batch: 100_000,
            cache: None,
            database: DB.into(),
            process: None,
        });
    }
    Err(Failure(format!(
        "no server to work on:\n  {}",
        reasons.join("\n  ")
    )))
}

/// What a server says of itself, and where it runs: a name and a text each.
fn of_server(t: &Target, c: &mut Conn) -> Vec<(&'static str, String)> {
    let place = match (&t.process, t.same_host) {
        (Some(_), _) => "on the same host, embedded server",
        (None, true) => "on the same host: they share its cores",
        (None, false) => "on different hosts",
    };
    let mut told = vec![("Client and server", place.to_string())];
    let mut admin = |cmd: DocBuf| c.command("admin", &cmd).ok();
    if let Some(r) = admin(doc! { "buildInfo": 1 }) {
        let mut v = string_at(r.as_doc(), "version").unwrap_or_else(|| "unknown".into());
        if let Some(m) = string_at(r.as_doc(), "muniment.version")
            .or_else(|| string_at(r.as_doc(), "munimentVersion"))
        {
            v = format!("Muniment {m}, speaking as {v}");
        }
        told.push(("Server version", v));
    }
    if let Some(r) = admin(doc! { "serverStatus": 1 }) {
        let engine = string_at(r.as_doc(), "muniment.engine")
            .or_else(|| string_at(r.as_doc(), "storageEngine.name"));
        told.push((
            "Storage engine",
            engine.unwrap_or_else(|| "not said".into()),
        ));
    }
    if let Some(cache) = t.cache {
        told.push(("Configured cache", bytes(cache)));
    }
    let concern = admin(doc! { "getDefaultRWConcern": 1 }).and_then(|r| {
        let d = r.as_doc();
        let source = d.get_str("defaultWriteConcernSource");
        d.get_doc("defaultWriteConcern")
            .map(|w| format!("{w:?} ({})", source.unwrap_or("source not said")))
    });
    told.push((
        "Default write concern, read back",
        concern.unwrap_or_else(|| "not said by getDefaultRWConcern".into()),
    ));
    told
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_host_is_described_whatever_was_known_before() {
        let (address, _) =
            muniment_load::fake::server(|_, _| doc! { "ok": 1.0, "isWritablePrimary": true });
        let uri = crate::uri::parse(&format!("mongodb://{address}")).unwrap();
        let parent = std::env::temp_dir();
        let mut lab = Lab::new(Endpoint::Server(uri), Preset::Smoke, parent);
        // As an experiment without a server leaves it.
        lab.environment.push(("One connection".into(), "x".into()));
        let target = lab.target(None).unwrap();
        let at = |key: &str| lab.environment.iter().position(|(k, _)| k == key);
        assert_eq!(at("CPU"), Some(0));
        assert!(at("One connection") > at("Kernel"));
        assert!(at("4 KiB write + fdatasync").is_some());
        assert_eq!(lab.cache(Some(1.0)), Some(1.0));
        lab.cache_gb = Some(0.5);
        assert_eq!(
            (lab.cache(Some(1.0)), lab.cache(None)),
            (Some(0.5), Some(0.5))
        );
        lab.done(target);
    }
}
