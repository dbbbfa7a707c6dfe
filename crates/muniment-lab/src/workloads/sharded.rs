//! W5 on shards: the post's scenarios on one server and on clusters of more and more shards, all of
//! them on this machine. Each number of shards gets a cluster of its own, fresh and alone.
//!
//! The post gained by this because one of its servers did not use its machine. What can be gained
//! today is what one server leaves idle, so the CPU time of every process is measured with the rates.

use super::move_cost::{self, MoveCost};
use super::router_cost::{self, RouterCost};
use super::scenarios::{
    Data, Extent, LOAD, LONGEST_PAUSE, SCENARIOS, STOCK, Scenario, Size, WORKERS, all_scenarios,
    run_one,
};
use crate::lab::{DB, Lab, Preset, Target};
use crate::report::{Outcome, experiments};
use crate::targets::Endpoint;
use crate::topology::option::{self, Count, TOPOLOGY};
use crate::topology::sharded::Sharded;
use crate::topology::slices::{LEAST, Slices};
use crate::ycsb::Phase;
use muniment_load::access::Peer;
use muniment_load::conn::{Conn, number_at};
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::procs::{self, Sample};
use muniment_load::stop;
use muniment_load::usage::ServerUsage;
use muniment_options::{Opt, Takes};
use muniment_value::doc;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name of the option that makes small machines of the servers.
pub(super) const MACHINES: &str = "machines";

/// W5's options.
pub(super) const OPTIONS: &[Opt] = &[
    TOPOLOGY,
    Opt::new(
        MACHINES,
        "SHARE",
        Takes::Checked(|v| share(v).map(drop).map_err(|e| e.0)),
        "with --topology shards=…: each server with data gets this share of a core and no more, as if \
         it had a small machine of its own (0.05 to 1)",
    ),
];

/// The name of the router's own cost among the scenarios, for `--only`.
pub(super) const ROUTER: &str = "router";
/// The name of moves among the scenarios.
pub(super) const MOVE: &str = "move";

/// The post's documents, acknowledged as there. Without this the default would decide, which is
/// another one for a set than for a server alone.
const ACKNOWLEDGED: &str = "fieldcount=8\nfieldlength=250\nrequestdistribution=uniform\nmongodb.writeConcern=acknowledged\n";
/// The same for YCSB's own documents.
const STOCK_ACKNOWLEDGED: &str = "mongodb.writeConcern=acknowledged\n";

/// Parses a share of a core.
fn share(text: &str) -> Result<f64> {
    let n = text.parse().ok().filter(|n| (LEAST..=1.0).contains(n));
    n.ok_or_else(|| Failure(format!("it must be a share of a core, {LEAST} to 1")))
}

/// The results of the experiment.
#[derive(Default)]
pub(crate) struct Found {
    /// What was measured for each number of shards, in order.
    pub runs: Vec<Run>,
    /// The share of a core that each server with data had, and how it was kept to it.
    pub machines: Option<(f64, &'static str)>,
    /// The cores of this machine.
    pub cores: usize,
}

/// One number of shards.
pub(crate) struct Run {
    pub count: Count,
    /// The scenarios that ran, in order.
    pub rows: Vec<Row>,
    /// What each server held at the end.
    pub held: Vec<Held>,
    /// The router's own cost, where it was measured.
    pub router: Option<RouterCost>,
    /// What a move costs, where it was measured.
    pub moves: Option<MoveCost>,
}

/// One scenario.
pub(crate) struct Row {
    pub scenario: &'static Scenario,
    pub phase: Phase,
    pub cpu: Cpu,
}

impl Row {
    /// The operations a second.
    pub(crate) fn rate(&self) -> f64 {
        self.phase.load.samples.operations as f64 / self.phase.load.samples.seconds
    }

    /// The operations that ended with an error of the server.
    pub(crate) fn failed(&self) -> u64 {
        let kinds = self.phase.load.kinds.values();
        let statuses = kinds.flat_map(|m| &m.statuses);
        let bad = statuses.filter(|(status, _)| !["OK", "NOT_FOUND"].contains(*status));
        bad.map(|(_, n)| *n).sum()
    }

    /// Whether its rate is one of operations that were done. An error is answered faster than what
    /// was asked for.
    pub(crate) fn is_measured(&self) -> bool {
        self.failed() * 100 <= self.phase.load.samples.operations
    }
}

/// The CPU seconds of a scenario.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cpu {
    /// The router; `None` without one.
    pub router: Option<f64>,
    /// The server with the configuration; `None` without one.
    pub config: Option<f64>,
    /// Each server with data.
    pub shards: Vec<f64>,
    /// The client's workers.
    pub client: f64,
}

impl Cpu {
    /// All of it.
    pub(crate) fn all(&self) -> f64 {
        let servers = self.router.unwrap_or(0.0) + self.config.unwrap_or(0.0);
        servers + self.shards.iter().sum::<f64>() + self.client
    }
}

/// What a server with data held.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Held {
    /// The documents of the post's collection.
    pub documents: u64,
    /// The bytes of all its files on the disk.
    pub bytes: f64,
}

/// The figures of all processes at one moment.
struct Look {
    router: Option<Sample>,
    config: Option<Sample>,
    shards: Vec<Sample>,
}

impl Look {
    /// The CPU seconds that were used from this moment to a later one.
    fn cpu_until(&self, after: &Look, client: f64) -> Cpu {
        let used = |a: &Sample, b: &Sample| b.cpu_seconds - a.cpu_seconds;
        let some = |a: Option<Sample>, b: Option<Sample>| a.zip(b).map(|(a, b)| used(&a, &b));
        let shards = self.shards.iter().zip(&after.shards);
        Cpu {
            router: some(self.router, after.router),
            config: some(self.config, after.config),
            shards: shards.map(|(a, b)| used(a, b)).collect(),
            client,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Sample> {
        self.router.iter().chain(&self.config).chain(&self.shards)
    }

    /// What all processes together used from this moment to a later one.
    fn usage_until(&self, after: &Look) -> ServerUsage {
        let each = self.all().zip(after.all());
        each.map(|(a, b)| ServerUsage::between(a, b))
            .fold(ServerUsage::default(), |sum, one| ServerUsage {
                cpu: sum.cpu + one.cpu,
                cpu_step: sum.cpu_step.max(one.cpu_step),
                read: sum.read + one.read,
                written: sum.written + one.written,
                rss: sum.rss + one.rss,
            })
    }
}

/// What is measured for every number of shards.
struct Plan {
    program: PathBuf,
    size: Size,
    scenarios: Vec<&'static Scenario>,
    router: bool,
    moves: bool,
    machines: Option<f64>,
    /// The cache of all servers with data together, GiB.
    cache_gb: f64,
}

impl Plan {
    fn of(lab: &Lab) -> Result<Plan> {
        let own: Vec<&str> = all_scenarios()
            .map(|s| s.name)
            .chain([ROUTER, MOVE])
            .collect();
        let machines = lab.options.text(MACHINES).map(share).transpose()?;
        let wanted = match lab.only.values("scenario") {
            Some(_) => lab.only.keep("scenario", own, ToString::to_string)?,
            None => {
                let stock = |name: &&str| !STOCK.iter().any(|s| s.name == *name);
                own.into_iter().filter(stock).collect()
            }
        };
        if lab.only.values("workers").is_some() {
            return Err(Failure::new(
                "--only workers are the sweep's, which runs on one server alone, without --topology",
            ));
        }
        let (router, moves) = (wanted.contains(&ROUTER), wanted.contains(&MOVE));
        if machines.is_some() && (router || moves) && lab.only.values("scenario").is_some() {
            return Err(Failure::new(
                "what a router and a move cost is not measured with --machines: stopped shards would hide it",
            ));
        }
        Ok(Plan {
            program: option::program(&lab.endpoint)?,
            size: Size::of(lab.preset),
            scenarios: all_scenarios()
                .filter(|s| wanted.contains(&s.name))
                .collect(),
            router: router && machines.is_none(),
            moves: moves && machines.is_none(),
            machines,
            // The post's machine held all of its data in memory, so the caches do too.
            cache_gb: lab.cache(None).unwrap_or(lab.preset.pick(1.0, 1.0, 24.0)),
        })
    }

    /// Whether one of these scenarios is to run.
    fn has(&self, some: &[Scenario]) -> bool {
        self.scenarios
            .iter()
            .any(|s| some.iter().any(|other| other.name == s.name))
    }
}

/// The servers of one number of shards.
struct Servers {
    // The limits are lifted before the processes are asked to end.
    slices: Option<Slices>,
    target: Target,
    cluster: Option<Sharded>,
}

impl Servers {
    /// Starts them. From then on they are what the lab measures.
    fn start(lab: &mut Lab, plan: &Plan, count: Count) -> Result<Servers> {
        lab.progress.step(format!("Starting {}", count.name()));
        let mut cluster = match count {
            Count::Server => None,
            Count::Shards(n) => {
                let cache = plan.cache_gb / n as f64;
                let cluster = Sharded::start(n, &plan.program, &lab.data_parent, cache)?;
                lab.endpoint = Endpoint::Server(cluster.uri());
                Some(cluster)
            }
        };
        let target = lab.target(Some(plan.cache_gb));
        if let (Err(_), Some(c)) = (&target, &mut cluster) {
            // A server that has ended says more than the error of the connection to it.
            c.check_alive()?;
        }
        let target = target?;
        let mut servers = Servers {
            slices: None,
            target,
            cluster,
        };
        servers.limit(plan.machines)?;
        Ok(servers)
    }

    /// Gives each server with data its share of a core, if they have one.
    fn limit(&mut self, share: Option<f64>) -> Result<()> {
        let holders = self.holders();
        self.slices = share.map(|s| Slices::start(&holders, s)).transpose()?;
        Ok(())
    }

    /// Waits until the servers have finished what a load leaves to them. Under its limit a server
    /// that is busy would look quiet, so the limits are lifted meanwhile.
    fn settle(&mut self, lab: &mut Lab, share: Option<f64>) -> Result<()> {
        drop(self.slices.take());
        let mut all = self.holders();
        all.extend(self.cluster.as_ref().map(Sharded::config_pid));
        lab.settle_all(&all, LONGEST_PAUSE);
        self.limit(share)
    }

    /// The process ids of the servers with data.
    fn holders(&self) -> Vec<u32> {
        match &self.cluster {
            Some(c) => c.shard_pids(),
            None => self.target.pid.into_iter().collect(),
        }
    }

    /// Ends the servers.
    ///
    /// # Errors
    /// One of them had ended before.
    fn end(mut self, lab: &mut Lab) -> Result<()> {
        match &mut self.cluster {
            Some(c) => c.check_alive(),
            None => {
                let alive = self.target.check_alive();
                // The limits are lifted first: a server that is stopped answers nothing.
                drop(self.slices.take());
                lab.done(self.target);
                alive
            }
        }
    }

    /// The figures of all processes now.
    ///
    /// # Errors
    /// One of them has ended.
    fn look(&self) -> Result<Look> {
        let of = |pid| {
            let sample = procs::sample(pid);
            sample.ok_or_else(|| Failure::new("the process of a server cannot be read"))
        };
        let cluster = self.cluster.as_ref();
        Ok(Look {
            router: cluster.map(|c| of(c.router_pid())).transpose()?,
            config: cluster.map(|c| of(c.config_pid())).transpose()?,
            shards: self.holders().into_iter().map(of).collect::<Result<_>>()?,
        })
    }

    /// Divides a collection over the shards, if there are any.
    fn divide(&self, table: &str) -> Result<()> {
        let cluster = self.cluster.as_ref();
        cluster.map_or(Ok(()), |c| c.divide(DB, table))
    }

    /// What each server with data holds now.
    fn held(&self, table: &str) -> Result<Vec<Held>> {
        let count = doc! { "count": table };
        let ask = |peer: &Peer, dir: &Path| {
            let reply = Conn::connect(peer)?.command(DB, &count)?;
            Ok(Held {
                documents: number_at(reply.as_doc(), "n").unwrap_or(f64::NAN) as u64,
                bytes: on_disk(dir)?,
            })
        };
        match (&self.cluster, &self.target.data) {
            (Some(c), _) => {
                let dirs = c.shard_data().into_iter().enumerate();
                dirs.map(|(i, dir)| ask(&Peer::open(c.shard(i).unwrap_or_default()), dir))
                    .collect()
            }
            (None, Some(dir)) => Ok(vec![ask(&self.target.peer, dir)?]),
            (None, None) => Ok(Vec::new()),
        }
    }
}

/// The bytes that all files below `dir` take on the disk.
fn on_disk(dir: &Path) -> Result<f64> {
    let mut sum = 0.0;
    for entry in std::fs::read_dir(dir).context("what a shard has on the disk")? {
        let Ok(entry) = entry else { continue };
        // A file that goes away meanwhile takes nothing.
        let Ok(meta) = entry.metadata() else { continue };
        sum += match meta.is_dir() {
            true => on_disk(&entry.path())?,
            false => meta.blocks() as f64 * 512.0,
        };
    }
    Ok(sum)
}

/// Measures all numbers of shards, one after the other.
pub(super) fn run(lab: &mut Lab, counts: &[Count], out: &mut Outcome) -> Result<()> {
    let plan = Plan::of(lab)?;
    out.deviations.extend(plan.size.deviation(lab.preset));
    out.deviations.extend([
        "Every shard and the configuration is a replica set of one member, as a cluster demands; the one server is no set, so one shard differs from it by more than the router.".into(),
        "All servers with data of a cluster have the cache of the one server together.".into(),
        "The client, the router and all servers share this machine's cores, as in the post.".into(),
    ]);
    if lab.preset != Preset::Paper {
        out.deviations.push(
            "Each number of shards was measured once and for a short time; two runs of one program differ by up to 17 %."
                .into(),
        );
    }
    let before = lab.endpoint.clone();
    let mut found = Found {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        ..Found::default()
    };
    let mut result = Ok(());
    for &count in counts {
        if stop::asked() || result.is_err() {
            break;
        }
        result = one(lab, &plan, count, &mut found);
        result = result.map_err(|e| e.while_doing(&count.name()));
        lab.endpoint = before.clone();
    }
    for run in &found.runs {
        for row in &run.rows {
            let name = experiments::sharded::called(row.scenario, run.count);
            if row.is_measured() {
                lab.doubt(&name, &row.phase.load, WORKERS as usize);
            }
            if let Some(e) = &row.phase.error {
                out.warnings
                    .push(format!("{name}: the server's first error: {e}"));
            }
        }
    }
    experiments::sharded::tell(&found, out);
    result
}

/// Measures one number of shards on a cluster of its own.
fn one(lab: &mut Lab, plan: &Plan, count: Count, found: &mut Found) -> Result<()> {
    let mut servers = Servers::start(lab, plan, count)?;
    let how = servers.slices.as_ref().map(|s| s.how);
    found.machines = plan.machines.zip(how);
    let mut run = Run {
        count,
        rows: Vec::new(),
        held: Vec::new(),
        router: None,
        moves: None,
    };
    let result = measure(lab, plan, &mut servers, &mut run);
    found.runs.push(run);
    // A server that has ended says more than the error of the connection to it.
    servers.end(lab).and(result)
}

fn measure(lab: &mut Lab, plan: &Plan, servers: &mut Servers, run: &mut Run) -> Result<()> {
    let size = &plan.size;
    if plan.has(&[LOAD]) || plan.has(&SCENARIOS) {
        let mut post = Data {
            table: "usertable",
            common: ACKNOWLEDGED,
            records: size.records,
        };
        let limits = (size.operations, size.longest);
        scenarios(lab, plan, servers, &SCENARIOS, &mut post, limits, run)?;
        run.held = servers.held(post.table)?;
    }
    if plan.has(&STOCK) && !stop::asked() {
        let mut stock = Data {
            table: "usertable_stock",
            common: STOCK_ACKNOWLEDGED,
            records: size.stock_records,
        };
        let limits = (size.stock_operations, size.longest);
        scenarios(lab, plan, servers, &STOCK, &mut stock, limits, run)?;
    }
    if let (Some(cluster), Count::Shards(1)) = (&servers.cluster, run.count)
        && plan.router
        && !stop::asked()
    {
        run.router = Some(router_cost::measure(lab, &servers.target, cluster)?);
    }
    if let (Some(cluster), Count::Shards(2)) = (&servers.cluster, run.count)
        && plan.moves
        && !stop::asked()
    {
        run.moves = Some(move_cost::measure(lab, &servers.target, cluster)?);
    }
    Ok(())
}

/// Loads a collection and runs the wanted ones of `some` on it, each with so many operations for at
/// most so many seconds.
fn scenarios(
    lab: &mut Lab,
    plan: &Plan,
    servers: &mut Servers,
    some: &'static [Scenario],
    data: &mut Data,
    (operations, longest): (u64, u64),
    run: &mut Run,
) -> Result<()> {
    servers.divide(data.table)?;
    let records = data.records;
    let load = scenario(lab, servers, &LOAD, data, (records, 0), true)?;
    // The load of YCSB's own documents is not the post's.
    if data.table == "usertable" && plan.scenarios.iter().any(|s| s.name == LOAD.name) {
        run.rows.push(load);
    }
    servers.settle(lab, plan.machines)?;
    for s in some {
        if stop::asked() {
            return Ok(());
        }
        if plan.scenarios.iter().any(|wanted| wanted.name == s.name) {
            let row = scenario(lab, servers, s, data, (operations, longest), false)?;
            run.rows.push(row);
        }
    }
    Ok(())
}

/// Runs one scenario, and takes the CPU time of every process around it.
fn scenario(
    lab: &mut Lab,
    servers: &Servers,
    scenario: &'static Scenario,
    data: &mut Data,
    (operations, longest): (u64, u64),
    loads: bool,
) -> Result<Row> {
    let before = servers.look()?;
    let target = &servers.target;
    let extent = Extent {
        operations,
        seconds: longest,
        workers: WORKERS,
        loads,
    };
    let mut phase = run_one(lab, target, scenario, data, &extent)?;
    let after = servers.look()?;
    let cpu = before.cpu_until(&after, phase.load.client_cpu);
    if servers.cluster.is_some() {
        // The driver of the load knows the router's process alone, which is not what a reader takes
        // for the server.
        let all = before.usage_until(&after);
        phase.load.server = Some(all);
        if let Some(usage) = &mut phase.load.samples.usage {
            usage.server = Some(all);
        }
        for interval in &mut phase.load.samples.intervals {
            interval.server = None;
        }
    }
    Ok(Row {
        scenario,
        phase,
        cpu,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::scenarios::POST;
    use super::*;
    use crate::workloads::only::Only;

    fn lab(only: &[&str], machines: Option<&str>) -> Lab {
        let mut lab = Lab::new(Endpoint::Embedded, Preset::Smoke, std::env::temp_dir());
        lab.only = Only::default();
        only.iter().for_each(|o| lab.only.add(o).unwrap());
        if let Some(share) = machines {
            lab.options.add(&OPTIONS[1], share.into()).unwrap();
        }
        lab
    }

    fn wanted(only: &[&str], machines: Option<&str>) -> Result<(Vec<&'static str>, bool, bool)> {
        let plan = Plan::of(&lab(only, machines))?;
        let names = plan.scenarios.iter().map(|s| s.name).collect();
        Ok((names, plan.router, plan.moves))
    }

    #[test]
    fn the_posts_scenarios_run_unless_others_are_asked_for() {
        let post = vec!["S1", "S2", "S3", "S4", "S5"];
        assert_eq!(wanted(&[], None).unwrap(), (post.clone(), true, true));
        // Shards that stand still would be taken for a router's cost.
        assert_eq!(wanted(&[], Some("0.2")).unwrap(), (post, false, false));
        let some = wanted(&["scenario=E,router"], None).unwrap();
        assert_eq!(some, (vec!["E"], true, false));
        let some = wanted(&["scenario=move"], None).unwrap();
        assert_eq!(some, (vec![], false, true));
        for (only, machines, why) in [
            (
                "scenario=router",
                Some("0.2"),
                "not measured with --machines",
            ),
            ("scenario=move", Some("0.2"), "not measured with --machines"),
            (
                "scenario=sweep",
                None,
                "scenario=sweep: here scenario is S1, S2",
            ),
            ("workers=1", None, "runs on one server alone"),
        ] {
            let e = wanted(&[only], machines).unwrap_err().0;
            assert!(e.contains(why), "{only}: {e}");
        }
        let mut lab = lab(&[], None);
        lab.endpoint = Endpoint::Server(crate::uri::parse("mongodb://h").unwrap());
        let e = Plan::of(&lab).err().unwrap().0;
        assert!(e.contains("measured by --uri alone"), "{e}");
    }

    #[test]
    fn shares_are_of_one_core() {
        assert_eq!(share("0.2").unwrap(), 0.2);
        for bad in ["0", "0.01", "1.5", "x", "nan"] {
            let e = OPTIONS[1].check(bad).unwrap_err();
            assert!(e.contains("0.05 to 1"), "{bad}: {e}");
        }
    }

    #[test]
    fn what_was_used_is_the_difference_of_each_process() {
        let sample = |cpu: f64| Sample {
            cpu_seconds: cpu,
            cpu_step: 1e-9,
            rss: 10.0,
            written: 100.0 * cpu,
            ..Sample::default()
        };
        let look = |router: f64, config: f64, shards: &[f64]| Look {
            router: Some(sample(router)),
            config: Some(sample(config)),
            shards: shards.iter().map(|s| sample(*s)).collect(),
        };
        let (before, after) = (look(1.0, 2.0, &[3.0, 4.0]), look(1.5, 2.25, &[4.0, 6.0]));
        let cpu = before.cpu_until(&after, 8.0);
        assert_eq!((cpu.router, cpu.config), (Some(0.5), Some(0.25)));
        assert_eq!((cpu.shards.as_slice(), cpu.client), (&[1.0, 2.0][..], 8.0));
        assert_eq!(cpu.all(), 11.75);
        let usage = before.usage_until(&after);
        assert_eq!((usage.cpu, usage.written, usage.rss), (3.75, 375.0, 40.0));
    }

    #[test]
    fn the_documents_are_the_posts() {
        assert!(ACKNOWLEDGED.starts_with(POST));
        assert!(ACKNOWLEDGED.ends_with(STOCK_ACKNOWLEDGED));
    }
}
