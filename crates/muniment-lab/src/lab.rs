//! The context that every experiment gets: a target to work on, the preset, progress, and the rate
//! of the null responder by which figures are judged.

use crate::disk;
use crate::doubts::Doubts;
use crate::environment;
use crate::process::{self, Process};
use crate::progress::Progress;
use crate::report::table::{bytes, rate};
use crate::responder::Responder;
use crate::sizes::Sizes;
use crate::targets::Endpoint;
use crate::uri::Uri;
use crate::workers::Inserts;
use crate::workloads::only::Only;
use muniment_load::access::Peer;
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

/// The amount of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// About half a minute for each experiment.
    Smoke,
    /// About a hundredth of the counts in the blog post that the experiments repeat.
    Quick,
    /// The counts of that blog post.
    Paper,
}

impl Preset {
    const ALL: [Preset; 3] = [Preset::Smoke, Preset::Quick, Preset::Paper];

    /// The option that chooses the preset; `about` says what the preset changes.
    pub const fn option(about: &'static str) -> Opt {
        let takes = Takes::OneOf(&["smoke", "quick", "paper"]);
        Opt::new("preset", "PRESET", takes, about)
    }

    /// The preset that a command line has chosen; smoke if none was given.
    pub fn of(given: &Given) -> Preset {
        let name = given.text("preset");
        let named = Preset::ALL.into_iter().find(|p| Some(p.name()) == name);
        named.unwrap_or(Preset::Smoke)
    }

    /// The preset's name, as the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Smoke => "smoke",
            Preset::Quick => "quick",
            Preset::Paper => "paper",
        }
    }

    /// Chooses one of three values by the preset.
    pub fn pick<T>(self, smoke: T, quick: T, paper: T) -> T {
        match self {
            Preset::Smoke => smoke,
            Preset::Quick => quick,
            Preset::Paper => paper,
        }
    }
}

/// The database in which all experiments work. It is dropped before and after.
pub(crate) const DB: &str = "muniment_bench";

/// A server to measure, and the facts that are known about it.
pub struct Target {
    /// The server.
    pub peer: Peer,
    /// The process id of the server, when it runs on this host.
    pub pid: Option<u32>,
    /// The directory of its files, when the lab started it.
    pub data: Option<PathBuf>,
    /// True when client and server share this host.
    pub same_host: bool,
    /// The maxWriteBatchSize of its hello reply.
    pub max_batch: usize,
    /// The cache size that it was started with, bytes.
    pub cache: Option<f64>,
    /// The database in which the experiment works: [`DB`], unless a workload has its own.
    pub database: String,
    process: Option<Process>,
}

impl Target {
    /// Opens a connection.
    pub fn connect(&self) -> Result<Conn> {
        Conn::connect(&self.peer)
    }

    /// Opens `n` connections.
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

    /// Counts the documents of a collection without a filter.
    pub fn count(&self, conn: &mut Conn, coll: &str) -> Result<u64> {
        let r = conn.command(DB, &doc! { "count": coll })?;
        Ok(number_at(r.as_doc(), "n").unwrap_or(0.0) as u64)
    }

    /// Fails, with the end of the server's output, if the lab started the server and it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        self.process.as_mut().map_or(Ok(()), Process::check_alive)
    }
}

/// The state of a running lab.
pub struct Lab {
    /// The endpoint of every target that the lab makes.
    pub endpoint: Endpoint,
    /// The name of the current target when there are several.
    pub target_name: Option<String>,
    /// The preset, which sets the amount of work.
    pub preset: Preset,
    /// The parsed command line, in which experiments look up the options that belong to them.
    pub options: Given,
    /// The parts of experiments that are run.
    pub only: Only,
    /// How often an experiment has asked for the placements of a single connection. If it never
    /// did, `--only cores=` had no effect and the user is told.
    pub placements_asked: usize,
    /// The cache of embedded servers, GiB; it overrides the size that an experiment would choose.
    pub cache_gb: Option<f64>,
    /// The display of progress.
    pub progress: Progress,
    /// The directory in which embedded servers get their temporary directories.
    pub data_parent: PathBuf,
    /// The facts about host and servers found so far, as name and text.
    pub environment: Vec<(String, String)>,
    /// The latency of the disk's own write + fdatasync, if it could be measured.
    pub fdatasync: Option<Latency>,
    /// A description of the current measurement, which becomes its entry in [`Lab::memory`].
    pub doing: String,
    /// For each embedded server: a description of the measurement that it served, its largest
    /// resident size and its configured cache, both in bytes.
    pub memory: Vec<(String, f64, f64)>,
    /// The reasons to distrust the loads of the current experiment.
    doubts: Doubts,
    /// Warnings about circumstances of the running experiment that put its figures in question.
    pub warnings: Vec<String>,
    /// The amounts of data that the servers of this experiment held at their end.
    pub sizes: Vec<Sizes>,
    /// The targets that the environment describes already.
    described: Vec<Option<String>>,
    null: Option<(Process, String)>,
    ceilings: Vec<(usize, f64)>,
}

impl Lab {
    /// Makes a lab that has not started anything.
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

    /// The cache size for an embedded server, GiB: the command line's, or else `own`, the
    /// experiment's choice.
    pub fn cache(&self, own: Option<f64>) -> Option<f64> {
        self.cache_gb.or(own)
    }

    /// Makes the target: connects to the server that the user named, or starts a fresh embedded
    /// server with this cache (or with the cache that the user asked for).
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
                    peer: Peer::open(address),
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

    /// Ends the use of a target: an external server is left as it was found, an embedded one is
    /// ended.
    pub fn done(&mut self, target: Target) {
        if let Some(s) = target.pid.and_then(muniment_load::procs::sample)
            && let Some(cache) = target.cache
        {
            self.memory.push((self.doing.clone(), s.peak_rss, cache));
        }
        let Ok(mut c) = target.connect() else {
            // A server that has gone away has nothing left to measure or to clean up.
            return;
        };
        let name = match (&self.target_name, &target.process) {
            (Some(n), _) => n.clone(),
            (None, Some(_)) => "embedded".into(),
            (None, None) => target.peer.to_string(),
        };
        self.sizes
            .extend(Sizes::of(&mut c, &name, &target.database));
        if target.process.is_none() {
            // A failure is ignored for the same reason.
            let _ = c.command(DB, &doc! { "dropDatabase": 1 });
        }
    }

    /// Waits until the server has finished the work that a load leaves to do; see
    /// [`Lab::settle_all`]. A server whose process cannot be read gets a pause of half a second.
    pub fn settle(&mut self, target: &Target, longest: Duration) {
        let pids: Vec<u32> = target.pid.into_iter().collect();
        self.settle_all(&pids, longest);
    }

    /// Waits until these processes have finished the work that a load leaves to do (flushes,
    /// compaction), so that the next measurement does not pay for it. They count as quiet after half
    /// a second in which no tenth of a second used more than 15 ms of CPU or wrote more than a
    /// megabyte, taken together. Warns if they were not quiet after `longest`. If one of them cannot
    /// be read, or if there is none, it waits for half a second.
    pub fn settle_all(&mut self, pids: &[u32], longest: Duration) {
        const LOOK: Duration = Duration::from_millis(100);
        const QUIET: u32 = 5;
        let used = || {
            let all = pids.iter().map(|pid| muniment_load::procs::sample(*pid));
            let all = all.collect::<Option<Vec<_>>>().filter(|a| !a.is_empty())?;
            let cpu: f64 = all.iter().map(|s| s.cpu_seconds).sum();
            let written: f64 = all.iter().map(|s| s.written).sum();
            Some((cpu, written))
        };
        let Some(mut last) = used() else {
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
            let Some(now) = used() else {
                return;
            };
            let busy = (now.0 - last.0) / LOOK.as_secs_f64() > 0.15 || now.1 - last.1 > 1e6;
            quiet = if busy { 0 } else { quiet + 1 };
            last = now;
        }
    }

    /// Adds the server's own description to the environment, once for each target.
    fn describe(&mut self, t: &Target, c: &mut Conn) {
        if self.described.contains(&self.target_name) {
            return;
        }
        let first = self.described.is_empty();
        self.described.push(self.target_name.clone());
        if first {
            // The host's facts come first, in front of entries that were added before there was a
            // server.
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

    /// Measures how long the disk takes to write and sync, and adds that to the environment.
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

    /// The address of the null responder, which is started on first use.
    pub fn null_address(&mut self) -> Result<String> {
        if let Some((_, a)) = &self.null {
            return Ok(a.clone());
        }
        let (p, a) = process::null_responder(&self.data_parent, Responder::Threads)?;
        self.null = Some((p, a.clone()));
        Ok(a)
    }

    /// The null responder's process id; `None` before it was started.
    pub fn null_pid(&self) -> Option<u32> {
        self.null.as_ref().map(|(p, _)| p.pid())
    }

    /// The inserts a second that the client reaches with this many connections against a server
    /// that does nothing. It is measured once a run. `None` (with the reason on stderr) if it
    /// cannot be measured.
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

    /// Measures several rounds and keeps the best. The cores that threads happen to run on make one
    /// round several times as fast as another, and the ceiling is the most that can be done; a
    /// single connection is measured in each placement that it can have.
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

    /// Starts another null responder, of this form. It ends when the process is dropped.
    pub(crate) fn another_null(&self, form: Responder) -> Result<(Process, Server)> {
        let (process, address) = process::null_responder(&self.data_parent, form)?;
        let server = Server {
            address,
            pid: Some(process.pid()),
            same_host: true,
        };
        Ok((process, server))
    }

    /// Describes the null responder as a server that can be pinned to cores.
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
                    Conn::connect(&Peer::open(&address))?,
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

    /// Notes the reasons to distrust `load`, which the report calls `name`: the client may be the
    /// bottleneck, either because its workers used most of their time themselves or because the
    /// rate is close to the most that so many connections can do.
    pub fn doubt(&mut self, name: &str, load: &Load, connections: usize) {
        self.doubt_client(name, load);
        let Some(c) = self.ceiling(connections) else {
            return;
        };
        let x = load.samples.operations as f64 / load.samples.seconds;
        if x > c / 2.0 {
            self.doubts.near(name, connections, x);
        }
        // A rate that was reached with a real server is possible, so the ceiling is at least as
        // high.
        for (n, c) in &mut self.ceilings {
            if *n == connections && x.is_finite() {
                *c = c.max(x);
            }
        }
    }

    /// Judges a load as [`Lab::doubt`] does, but by the workers' time alone: the ceiling is
    /// measured with small requests and says nothing about loads of large ones.
    pub fn doubt_client(&mut self, name: &str, load: &Load) {
        if let Some(b) = load.client_bound() {
            self.doubts.bound(name, b);
        }
    }

    /// Takes the doubts of the experiment that ends, in words.
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

/// Connects to the first of the hosts that takes writes.
fn external(uri: &Uri) -> Result<Target> {
    let mut reasons = Vec::new();
    for h in uri.peers() {
        let tried = Conn::connect(&h).and_then(|mut c| {
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
            peer: h,
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

/// The server's description of itself, and where it runs, as name and text.
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
        // An experiment that needs no server can have left entries in the environment.
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
