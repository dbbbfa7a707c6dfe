//! The speed of the query language: queries over the orders and customers of a shop, which are made
//! here. Each query has a file with its `QUERY` and a line in [`QUERIES`], sorted by name.
//!
//! A query's rate is the number of documents that it works on by second of the server's CPU, over
//! so many runs that the clock's 10 ms ticks do not matter. The result of every run is checked, so
//! that a wrong query cannot be fast.

mod count_filter;
mod data;
mod filter_project;
mod geo_near;
mod group_one;
mod group_two;
mod in_ids;
mod lookup_index;
mod regex_prefix;
mod sort_index;
mod sort_limit;
mod text;
mod unwind_group;

use super::Spec;
use super::only::{CORES, Dimension, texts};
use crate::lab::{DB, Lab, Preset, Target};
use crate::report::table::rate;
use crate::report::{Outcome, experiments};
pub(crate) use data::Size;
use muniment_load::conn::Conn;
use muniment_load::fail::{Failure, Result};
use muniment_load::hist::Latency;
use muniment_load::load::unix_now;
use muniment_load::placement::{self, Placement};
use muniment_load::procs;
use muniment_load::samples::SampleSet;
use muniment_load::stats::median;
use muniment_load::stop;
use muniment_load::usage::ServerUsage;
use muniment_value::{Doc, DocBuf, Value, array, doc};
use std::time::{Duration, Instant};

pub(crate) const SPEC: Spec = Spec {
    name: "query",
    title: "Queries over orders and customers",
    about: "Orders of about 400 bytes with three nested items each, and customers, a tenth as many (at full size 1 M and 100 k). Each query runs alone on one connection, once unmeasured and then several times; its rate is the documents it works on by second of the server's CPU, so that it does not depend on what else the machine does. By the clock it is measured with client and server on one core and on two. Memory is the growth of the server's peak resident size during the query.",
    disk_gb: [0.3, 0.6, 3.0],
    options: &[],
    dimensions: &[
        Dimension {
            name: "query",
            about: "its name",
            values: |_| texts(QUERIES.iter().map(|q| q.name)),
        },
        CORES,
    ],
    run,
};

pub(crate) struct Query {
    /// Its name in the table.
    pub name: &'static str,
    /// A line that tells what it does.
    pub title: &'static str,
    /// The index that it needs, as collection and specification.
    pub index: Option<fn() -> (&'static str, DocBuf)>,
    /// The command, a find, an aggregate or a count.
    pub command: fn(&Size) -> DocBuf,
    /// The number of documents that it works on.
    pub documents: fn(&Size) -> u64,
    /// The number of documents in its result; for a count, the number that it counts.
    pub results: fn(&Size) -> u64,
    /// The documents a second of CPU that are promised.
    pub target: Option<f64>,
}

/// All queries, sorted by name.
pub(crate) const QUERIES: &[&Query] = &[
    &count_filter::QUERY,
    &filter_project::QUERY,
    &geo_near::QUERY,
    &group_one::QUERY,
    &group_two::QUERY,
    &in_ids::QUERY,
    &lookup_index::QUERY,
    &regex_prefix::QUERY,
    &sort_index::QUERY,
    &sort_limit::QUERY,
    &text::QUERY,
    &unwind_group::QUERY,
];

/// The results of the experiment.
pub(crate) struct Found {
    /// The amount of data.
    pub size: Size,
    /// The average bytes of an order.
    pub average: f64,
    /// The measurements, in the order in which they were made.
    pub measured: Vec<Measured>,
    /// Queries that the server could not run, and why.
    pub skipped: Vec<(&'static Query, String)>,
}

/// A query in one placement.
pub(crate) struct Measured {
    pub query: &'static Query,
    /// The placement of client and server.
    pub placement: Placement,
    /// The number of documents that it works on.
    pub documents: u64,
    /// The time of each run by the clock, in seconds.
    pub walls: Vec<f64>,
    /// The time at which the first run began, s since 1970.
    pub began: f64,
    /// The CPU seconds of one run; `None` if the server's process is not on this host.
    pub cpu: Option<f64>,
    /// The CPU seconds of each run; empty if they are not counted finely enough.
    pub cpus: Vec<f64>,
    /// The growth of the server's peak resident size, bytes.
    pub memory: Option<f64>,
    /// The query's plan in one line.
    pub plan: String,
}

impl Measured {
    /// The documents a second of CPU, or by the clock if the CPU is not known.
    pub(crate) fn rate(&self) -> f64 {
        self.documents as f64 / self.cpu.unwrap_or_else(|| self.wall())
    }

    /// The median time of the runs by the clock, s.
    pub(crate) fn wall(&self) -> f64 {
        median(&self.walls)
    }

    /// The runs as samples.
    pub(crate) fn samples(&self) -> SampleSet {
        let mut latency = Latency::new();
        let mut timeline = vec![(0.0, 0.0)];
        let mut seconds = 0.0;
        for (i, w) in self.walls.iter().enumerate() {
            latency.record((w * 1e9) as u64);
            seconds += w;
            timeline.push((seconds, i as f64 + 1.0));
        }
        SampleSet {
            name: self.placement.called(self.query.name),
            latency,
            timeline,
            each_ms: self.walls.iter().map(|w| w * 1e3).collect(),
            operations: self.walls.len() as u64,
            seconds,
            began: self.began,
            workers: 1,
            placement: self.placement.name().to_string(),
            ..SampleSet::default()
        }
    }
}

fn run(lab: &mut Lab, out: &mut Outcome) -> Result<()> {
    let size = Size {
        orders: lab.preset.pick(50_000, 200_000, 1_000_000),
        customers: lab.preset.pick(5_000, 20_000, 100_000),
    };
    if lab.preset != Preset::Paper {
        out.deviations.push(format!(
            "{} orders and {} customers instead of 1 M and 100 k.",
            rate(size.orders as f64),
            rate(size.customers as f64)
        ));
    }
    // All data fit into the cache, so that the query is measured and not the disk.
    let mut target = lab.target(Some(1.0))?;
    if target.pid.is_none() {
        out.deviations
            .push("The target's CPU cannot be read from here: rates are by the clock.".into());
    }
    let mut conn = target.connect()?;
    let average = data::load(lab, &mut conn, &size)?;
    let mut found = Found {
        size,
        average,
        measured: Vec::new(),
        skipped: Vec::new(),
    };
    let queries = lab
        .only
        .keep("query", QUERIES.to_vec(), |q| q.name.to_string())?;
    let placements = lab.placements(&target.server())?;
    let many = queries.len();
    for (i, query) in queries.into_iter().enumerate() {
        lab.progress
            .step(format!("query {}, {} of {many}", query.name, i + 1));
        if stop::asked() {
            break;
        }
        match measure(lab, &target, &mut conn, query, &placements, &found.size) {
            Ok(m) => found.measured.extend(m),
            Err(e) => {
                target.check_alive()?;
                if stop::asked() {
                    break;
                }
                found.skipped.push((query, e.0));
            }
        }
    }
    experiments::query::tell(&found, out);
    lab.done(target);
    Ok(())
}

/// Runs one query until there are enough runs to judge it by.
fn measure(
    lab: &mut Lab,
    target: &Target,
    conn: &mut Conn,
    query: &'static Query,
    placements: &[Placement],
    size: &Size,
) -> Result<Vec<Measured>> {
    let index = query.index.map(|make| make());
    if let Some((collection, spec)) = &index {
        let create = doc! { "createIndexes": *collection, "indexes": array![spec] };
        conn.command(DB, &create)?;
    }
    let mut measured = Ok(Vec::new());
    for &placement in placements {
        let name = placement.called(query.name);
        // The queries are sent by this thread and not by a load's worker, so this thread is the one
        // to pin.
        let one = lab.placed(&target.server(), placement, &name, |lab| {
            placement::here(|| runs(lab, target, conn, (query, placement), size))
        });
        measured = measured.and_then(|mut all: Vec<Measured>| {
            all.push(one?);
            Ok(all)
        });
    }
    if let Some((collection, spec)) = &index {
        let name = spec.as_doc().get_str("name").unwrap_or_default();
        conn.command(DB, &doc! { "dropIndexes": *collection, "index": name })?;
    }
    measured
}

fn runs(
    lab: &Lab,
    target: &Target,
    conn: &mut Conn,
    (query, placement): (&'static Query, Placement),
    size: &Size,
) -> Result<Measured> {
    let command = (query.command)(size);
    let plan = plan(conn, &command)?;
    let want = (query.results)(size);
    let once = |conn: &mut Conn| -> Result<f64> {
        let begin = Instant::now();
        let got = results(conn, &command)?;
        let took = begin.elapsed().as_secs_f64();
        match got == want {
            true => Ok(took),
            false => Err(Failure(format!("gave {got} results instead of {want}"))),
        }
    };
    once(conn)?;
    let sample = || target.pid.and_then(procs::sample);
    settle(&sample);
    let peak_from = target.pid.and_then(procs::reset_peak);
    let before = sample();
    let (least_cpu, longest) = lab.preset.pick((0.3, 3), (0.6, 10), (1.0, 60));
    let longest = Duration::from_secs(longest);
    let begin = Instant::now();
    let began = unix_now();
    let (mut walls, mut cpus) = (Vec::new(), Vec::new());
    let mut last = before;
    let cpu_so_far = || {
        let spent = before
            .zip(sample())
            .map(|(b, a)| a.cpu_seconds - b.cpu_seconds);
        spent.unwrap_or_else(|| begin.elapsed().as_secs_f64())
    };
    while (walls.len() < 3 || cpu_so_far() < least_cpu)
        && (walls.is_empty() || begin.elapsed() <= longest)
        && !stop::asked()
    {
        walls.push(once(conn)?);
        let now = sample();
        if let Some((b, a)) = last.zip(now) {
            cpus.push(ServerUsage::between(&b, &a));
        }
        last = now;
    }
    let runs = walls.len().max(1);
    Ok(Measured {
        query,
        placement,
        documents: (query.documents)(size),
        walls,
        began,
        // If the CPU time of any run is only a few ticks of the clock, the spread of all would be
        // meaningless.
        cpus: match cpus.iter().all(|u| u.cpu_believed().is_some()) {
            true => cpus.iter().map(|u| u.cpu).collect(),
            false => Vec::new(),
        },
        cpu: target.pid.map(|_| cpu_so_far() / runs as f64),
        memory: peak_from
            .zip(sample())
            .map(|(from, s)| (s.peak_rss - from).max(0.0)),
        plan,
    })
}

/// Waits until the server does nothing on its own any more; the background work after making or
/// dropping an index must not be counted for the query.
fn settle(sample: &dyn Fn() -> Option<procs::Sample>) {
    const LOOK: Duration = Duration::from_millis(200);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(30) && !stop::asked() {
        let before = sample();
        std::thread::sleep(LOOK);
        let Some((before, after)) = before.zip(sample()) else {
            return;
        };
        // This is a tenth of a core, or two ticks if CPU time is counted in ticks.
        if after.cpu_seconds - before.cpu_seconds < 0.02 {
            return;
        }
    }
}

/// Runs a command to the end of its cursor; returns the number of documents, or the result of a
/// count.
fn results(conn: &mut Conn, command: &DocBuf) -> Result<u64> {
    let mut reply = conn.command(DB, command)?;
    let mut n = 0;
    loop {
        let d = reply.as_doc();
        let Some(cursor) = d.get_doc("cursor") else {
            return Ok(muniment_load::conn::number_at(d, "n").unwrap_or(0.0) as u64);
        };
        for batch in ["firstBatch", "nextBatch"] {
            n += cursor.get_array(batch).map_or(0, |b| b.count() as u64);
        }
        let id = cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap_or(0);
        if id == 0 {
            return Ok(n);
        }
        let name = command.as_doc().first().and_then(|e| e.value().as_str());
        let more = doc! { "getMore": id, "collection": name.unwrap_or_default() };
        reply = conn.command(DB, &more)?;
    }
}

/// The plan in one line, from the top down.
fn plan(conn: &mut Conn, command: &DocBuf) -> Result<String> {
    let explain = doc! { "explain": command, "verbosity": "queryPlanner" };
    let reply = conn.command(DB, &explain)?;
    let d = reply.as_doc();
    let mut names = Vec::new();
    if let Some(stages) = d.get_array("stages") {
        for stage in stages
            .values()
            .filter_map(|s| s.as_doc())
            .collect::<Vec<_>>()
        {
            match (stage.get_doc("$cursor"), stage.first()) {
                (Some(cursor), _) => winning(cursor, &mut names),
                (None, Some(e)) => names.insert(0, e.name().to_string()),
                (None, None) => {}
            }
        }
    } else {
        winning(d, &mut names);
    }
    Ok(names.join(" < "))
}

fn winning(d: Doc<'_>, names: &mut Vec<String>) {
    let mut at = d
        .get_doc("queryPlanner")
        .and_then(|p| p.get_doc("winningPlan"));
    while let Some(stage) = at {
        let mut name = stage.get_str("stage").unwrap_or("?").to_string();
        if let Some(index) = stage.get_str("indexName") {
            name.push(' ');
            name.push_str(index);
        }
        names.push(name);
        at = stage.get_doc("inputStage").or_else(|| {
            let inputs = stage.get_array("inputStages")?;
            inputs.values().next().and_then(|v: Value<'_>| v.as_doc())
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn queries_are_sorted_and_name_a_collection_there_is() {
        assert!(QUERIES.is_sorted_by_key(|q| q.name));
        let size = Size {
            orders: 1000,
            customers: 100,
        };
        for q in QUERIES {
            let c = (q.command)(&size);
            let collection = c.as_doc().first().unwrap().value().as_str();
            assert!(
                matches!(collection, Some("orders" | "customers")),
                "{}",
                q.name
            );
            assert!((q.documents)(&size) > 0);
        }
    }

    #[test]
    fn plans_read_from_the_top() {
        let d = doc! { "queryPlanner": doc! { "winningPlan": doc! {
            "stage": "FETCH", "inputStage": doc! { "stage": "IXSCAN", "indexName": "a_1" }
        } } };
        let mut names = Vec::new();
        winning(d.as_doc(), &mut names);
        assert_eq!(names, ["FETCH", "IXSCAN a_1"]);
    }
}
