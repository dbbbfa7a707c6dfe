//! The report of W5 on shards: rates by number of shards beside one server, the CPU time of every
//! process, what each shard holds, and what the router costs.

use super::cluster_costs;
use crate::report::plot::{Axis, Mark, Plot, Series};
use crate::report::table::{Table, bytes, rate};
use crate::report::{Outcome, Statistic};
use crate::topology::option::Count;
use crate::workloads::scenarios::Scenario;
use crate::workloads::sharded::{Found, Held, Row};

/// More than this times one server's rate is not to be had by shards on its machine.
const MOST_GAINED: f64 = 1.2;
/// The post's mixed workload, and how much faster it was with shards, with the number of them.
const POST_MIXED: (&str, f64, usize) = ("S3", 2.75, 6);
/// The post's workload that only reads, which gained nothing.
const POST_READS: &str = "S5";

/// The name of a scenario with a number of shards, in figures and samples.
pub(crate) fn called(scenario: &Scenario, count: Count) -> String {
    format!("{}, {}", scenario.name, count.name())
}

/// Adds the results to the report.
pub(crate) fn tell(found: &Found, out: &mut Outcome) {
    for run in &found.runs {
        for row in &run.rows {
            if row.is_measured() {
                figures(run.count, row, out);
                continue;
            }
            out.warnings.push(format!(
                "{}: {} operations failed, so nothing else is told of it.",
                called(row.scenario, run.count),
                rate(row.failed() as f64)
            ));
        }
        for (i, held) in run.held.iter().enumerate() {
            let who = match run.count {
                Count::Server => run.count.name(),
                Count::Shards(_) => format!("{}, shard {}", run.count.name(), i + 1),
            };
            let documents = held.documents as f64;
            out.figure(format!("{who}: documents"), documents, "documents", None);
            out.figure(format!("{who}: on disk"), held.bytes, "bytes", None);
        }
    }
    let names = scenarios(found);
    if !names.is_empty() {
        out.findings
            .extend(names.iter().filter_map(|s| gained(found, s)));
        out.findings.extend(exhausted(found));
        out.tables.push(rates(found, &names));
        out.tables.push(cpu(found, &names));
        out.tables.push(post());
        out.plots.push(plot(found, &names));
        out.plots.extend(ratios(found, &names));
    }
    if found.runs.iter().any(|r| !r.held.is_empty()) {
        out.tables.push(held(found));
    }
    if let Some(cost) = found.runs.iter().find_map(|r| r.router.as_ref()) {
        cluster_costs::router(cost, out);
    }
    if let Some(cost) = found.runs.iter().find_map(|r| r.moves.as_ref()) {
        cluster_costs::moves(cost, out);
    }
}

/// The scenarios that ran, in order.
fn scenarios(found: &Found) -> Vec<&'static Scenario> {
    let mut all: Vec<&'static Scenario> = Vec::new();
    for row in found.runs.iter().flat_map(|r| &r.rows) {
        if !all.iter().any(|s| s.name == row.scenario.name) {
            all.push(row.scenario);
        }
    }
    all
}

/// A scenario's row for a number of shards, if it was measured.
fn row_of<'f>(found: &'f Found, scenario: &Scenario, count: Count) -> Option<&'f Row> {
    let run = found.runs.iter().find(|r| r.count == count)?;
    let mut rows = run.rows.iter().filter(|r| r.is_measured());
    rows.find(|r| r.scenario.name == scenario.name)
}

/// A scenario's rate for a number of shards.
fn rate_of(found: &Found, scenario: &Scenario, count: Count) -> Option<f64> {
    row_of(found, scenario, count).map(Row::rate)
}

/// µs of CPU time an operation.
fn each(row: &Row, seconds: f64) -> f64 {
    seconds * 1e6 / row.phase.load.samples.operations.max(1) as f64
}

/// Of one scenario with one number of shards.
fn figures(count: Count, row: &Row, out: &mut Outcome) {
    let name = called(row.scenario, count);
    let published = row.scenario.published.filter(|_| count == Count::Server);
    let mut samples = row.phase.load.samples.clone();
    samples.name.clone_from(&name);
    let l = &samples.latency;
    let (p50, p99) = (l.quantile_ms(0.5), l.quantile_ms(0.99));
    out.figure(&name, row.rate(), "operations/s", published)
        .of(&name, Statistic::Rate);
    out.figure(format!("{name}: p50"), p50, "ms", None)
        .of(&name, Statistic::P50);
    out.figure(format!("{name}: p99"), p99, "ms", None)
        .of(&name, Statistic::P99);
    let cpu = &row.cpu;
    let shards: f64 = cpu.shards.iter().sum();
    let all = [
        ("router", cpu.router),
        ("servers with data", Some(shards)),
        ("configuration", cpu.config),
        ("client", Some(cpu.client)),
    ];
    for (who, seconds) in all {
        let Some(seconds) = seconds else { continue };
        let us = each(row, seconds);
        out.figure(format!("{name}: CPU of {who}"), us, "µs/operation", None);
    }
    out.samples.push(samples);
}

/// The largest rate of a scenario with shards, and their number.
fn best(found: &Found, scenario: &Scenario) -> Option<(f64, Count)> {
    let with = found.runs.iter().filter(|r| r.count != Count::Server);
    let all = with.filter_map(|r| Some((rate_of(found, scenario, r.count)?, r.count)));
    all.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// The sentence on what shards gain in one scenario.
fn gained(found: &Found, scenario: &Scenario) -> Option<String> {
    let (most, count) = best(found, scenario)?;
    let one = rate_of(found, scenario, Count::Server)?;
    let ratio = most / one;
    let name = scenario.name;
    let post = match name {
        _ if name == POST_MIXED.0 => format!(
            " (the post: {} × with {} shards)",
            POST_MIXED.1, POST_MIXED.2
        ),
        POST_READS => " (the post: nothing gained)".into(),
        _ => String::new(),
    };
    Some(match found.machines {
        None => format!(
            "{name}: at best {ratio:.2} × one server, with {}{post}. At most {MOST_GAINED} × is to be gained by shards on one machine: {}.",
            count.name(),
            if ratio < MOST_GAINED { "met" } else { "MISSED" }
        ),
        Some((share, _)) => format!(
            "{name}: at best {ratio:.2} × one server that has {share} of a core, with {} of as much each{post}.",
            count.name()
        ),
    })
}

/// The cores that a scenario kept busy.
fn busy(row: &Row) -> f64 {
    row.cpu.all() / row.phase.load.samples.seconds
}

/// The sentence on how much of the machine one server and its client used.
fn exhausted(found: &Found) -> Option<String> {
    let alone = found.runs.iter().find(|r| r.count == Count::Server)?;
    let all: Vec<String> = alone
        .rows
        .iter()
        .filter(|r| r.is_measured())
        .map(|r| format!("{} {:.2}", r.scenario.name, busy(r)))
        .collect();
    (!all.is_empty()).then(|| {
        format!(
            "One server and its client kept this many of {} cores busy: {}.",
            found.cores,
            all.join(", ")
        )
    })
}

fn rates(found: &Found, names: &[&'static Scenario]) -> Table {
    let mut t = Table::new(
        "Rates by number of shards",
        &[
            "<scenario",
            "<servers",
            ">done",
            ">operations/s",
            ">× one server",
            ">× one shard",
            ">p50 ms",
            ">p99 ms",
            ">cores busy",
            "*operations/s",
            "*× one server",
            "<failed",
        ],
    );
    let times = |x: f64, of: Option<f64>| of.map_or_else(String::new, |y| format!("{:.2}", x / y));
    for scenario in names {
        for run in &found.runs {
            let mut rows = run.rows.iter();
            let Some(row) = rows.find(|r| r.scenario.name == scenario.name) else {
                continue;
            };
            if !row.is_measured() {
                let mut cells = vec![scenario.name.to_string(), run.count.name()];
                cells.extend(std::iter::repeat_n(String::new(), 9));
                cells.push(super::w5::failed(&row.phase.load));
                t.row(cells);
                continue;
            }
            let samples = &row.phase.load.samples;
            let published = scenario.published.filter(|_| run.count == Count::Server);
            let mixed = scenario.name == POST_MIXED.0 && run.count == Count::Shards(POST_MIXED.2);
            t.row([
                scenario.name.to_string(),
                run.count.name(),
                rate(samples.operations as f64),
                rate(row.rate()),
                times(row.rate(), rate_of(found, scenario, Count::Server)),
                times(row.rate(), rate_of(found, scenario, Count::Shards(1))),
                format!("{:.3}", samples.latency.quantile_ms(0.5)),
                format!("{:.3}", samples.latency.quantile_ms(0.99)),
                format!("{:.2}", busy(row)),
                published.map_or_else(String::new, rate),
                if mixed {
                    POST_MIXED.1.to_string()
                } else {
                    String::new()
                },
                super::w5::failed(&row.phase.load),
            ]);
        }
    }
    let machine = match found.machines {
        None => String::new(),
        Some((share, how)) => {
            format!(" Each server with data is limited to {share} of a core, {how}.")
        }
    };
    t.note(format!(
        "Cores busy: of {}, by client, router and all servers together. The latency is that of all operations.{machine}",
        found.cores
    ));
    t
}

fn cpu(found: &Found, names: &[&'static Scenario]) -> Table {
    let mut t = Table::new(
        "CPU time, µs an operation",
        &[
            "<scenario",
            "<servers",
            ">router",
            ">all with data",
            ">each of them",
            ">configuration",
            ">client",
            ">together",
            ">of a core each",
        ],
    );
    let us = |row: &Row, s: Option<f64>| {
        s.map_or_else(|| "–".into(), |s| format!("{:.1}", each(row, s)))
    };
    for scenario in names {
        for run in &found.runs {
            let Some(row) = row_of(found, scenario, run.count) else {
                continue;
            };
            let cpu = &row.cpu;
            let seconds = row.phase.load.samples.seconds;
            let range = |all: Vec<f64>, digits: usize| {
                let least = all.iter().copied().fold(f64::INFINITY, f64::min);
                let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                match all.len() {
                    0 | 1 => format!("{most:.digits$}"),
                    _ => format!("{least:.digits$} … {most:.digits$}"),
                }
            };
            t.row([
                scenario.name.to_string(),
                run.count.name(),
                us(row, cpu.router),
                us(row, Some(cpu.shards.iter().sum())),
                range(cpu.shards.iter().map(|s| each(row, *s)).collect(), 1),
                us(row, cpu.config),
                us(row, Some(cpu.client)),
                us(row, Some(cpu.all())),
                range(cpu.shards.iter().map(|s| s / seconds).collect(), 2),
            ]);
        }
    }
    t.note("Of a core each: what each server with data got, least and most. The client's time is that of its workers.");
    t
}

/// What the post tells of its shards, which it does in words.
fn post() -> Table {
    let mut t = Table::new(
        "What the post says of shards",
        &["<workload", "*× one server", "<with"],
    );
    let (name, gain, shards) = POST_MIXED;
    t.row([
        format!("mixed ({name})"),
        gain.to_string(),
        format!("{shards} shards, from where it is saturated"),
    ]);
    t.row([
        format!("read only ({POST_READS})"),
        "1".into(),
        "2 to 8 shards: it gains nothing".into(),
    ]);
    t.note("An 8-core machine with 30 GB, 2015: one server of its time did not use its cores when it wrote.");
    t
}

fn held(found: &Found) -> Table {
    let mut t = Table::new(
        "What each server holds at the end",
        &[
            "<servers",
            ">documents",
            ">of an even share",
            ">on disk",
            ">on disk together",
        ],
    );
    for run in found.runs.iter().filter(|r| !r.held.is_empty()) {
        let all = |f: fn(&Held) -> f64| run.held.iter().map(f).collect::<Vec<f64>>();
        let documents = all(|h| h.documents as f64);
        let disk = all(|h| h.bytes);
        let even = documents.iter().sum::<f64>() / documents.len() as f64;
        let list = |values: &[f64], text: &dyn Fn(f64) -> String| {
            let texts: Vec<String> = values.iter().map(|v| text(*v)).collect();
            texts.join(" / ")
        };
        t.row([
            run.count.name(),
            list(&documents, &rate),
            list(&documents, &|d| format!("{:.3}", d / even)),
            list(&disk, &bytes),
            bytes(disk.iter().sum()),
        ]);
    }
    t.note("Documents of the post's collection, one figure for each server. On disk: all of a server's files, its log among them.");
    t
}

/// The rate of every scenario over the number of shards.
fn plot(found: &Found, names: &[&'static Scenario]) -> Plot {
    let series = names.iter().enumerate().map(|(i, s)| {
        let points = points(found, s, |r| Some(r.rate()));
        Series::new(s.name, Mark::Line, i % 8, points)
    });
    let each = match found.machines {
        None => String::new(),
        Some((share, _)) => format!(" Each server with data has {share} of a core."),
    };
    Plot::new(
        "Operations a second by number of shards",
        &format!("0 shards: one server without a router.{each}"),
        Axis::linear("shards"),
        Axis::linear("operations/s"),
    )
    .series(series)
}

/// The points of a scenario over the number of shards, in its order.
fn points(
    found: &Found,
    scenario: &Scenario,
    value: impl Fn(&Row) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let mut all: Vec<(f64, f64)> = found
        .runs
        .iter()
        .filter_map(|r| {
            let row = row_of(found, scenario, r.count)?;
            Some((r.count.shards() as f64, value(row)?))
        })
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

/// The same in parts of one server's rate, with the post's; `None` if one server was not measured.
fn ratios(found: &Found, names: &[&'static Scenario]) -> Option<Plot> {
    let mut series = Vec::new();
    for (i, s) in names.iter().enumerate() {
        let Some(one) = rate_of(found, s, Count::Server) else {
            continue;
        };
        let points = points(found, s, |r| Some(r.rate() / one));
        series.push(Series::new(s.name, Mark::Line, i % 8, points));
        if s.name == POST_MIXED.0 {
            let at = vec![(POST_MIXED.2 as f64, POST_MIXED.1)];
            let name = format!("{} (post)", s.name);
            series.push(Series::new(name, Mark::Dots, i % 8, at).published());
        }
    }
    (!series.is_empty()).then(|| {
        Plot::new(
            "Against one server",
            "0 shards: one server without a router. The post has one figure for its mixed workload.",
            Axis::linear("shards"),
            Axis::linear("× one server"),
        )
        .series(series)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiments::fixtures::{check, load, measured};
    use crate::workloads::move_cost::MoveCost;
    use crate::workloads::router_cost::RouterCost;
    use crate::workloads::scenarios::{LOAD, SCENARIOS, STOCK};
    use crate::workloads::sharded::{Cpu, Run};
    use crate::ycsb::Phase;

    fn row(scenario: &'static Scenario, count: Count, factor: f64) -> Row {
        let with = f64::from(count != Count::Server);
        Row {
            scenario,
            phase: Phase {
                name: "run",
                load: load("x", (10_000.0 * factor) as u64, 1.0, 0.4 / factor),
                error: None,
            },
            cpu: Cpu {
                router: (with > 0.0).then_some(0.1),
                config: (with > 0.0).then_some(0.001),
                shards: (0..count.shards().max(1))
                    .map(|i| 0.2 + 0.01 * i as f64)
                    .collect(),
                client: 0.3,
            },
        }
    }

    /// A row whose operations were refused, which is fast.
    fn refused(count: Count) -> Row {
        let mut row = row(&STOCK[4], count, 9.0);
        let kinds = &mut row.phase.load.kinds;
        kinds.insert("SCAN-FAILED", measured(0.1, "ERROR", 80_000));
        row
    }

    fn run(count: Count, factor: f64) -> Run {
        let all = [&LOAD].into_iter().chain(&SCENARIOS);
        Run {
            count,
            rows: all.map(|s| row(s, count, factor)).collect(),
            held: (0..count.shards().max(1))
                .map(|i| Held {
                    documents: 5000 + 10 * i as u64,
                    bytes: 1.5e7,
                })
                .collect(),
            router: None,
            moves: None,
        }
    }

    #[test]
    fn whole_and_part() {
        let mut found = Found {
            runs: vec![
                run(Count::Server, 1.0),
                run(Count::Shards(1), 0.8),
                run(Count::Shards(2), 1.1),
                run(Count::Shards(6), 1.3),
            ],
            machines: None,
            cores: 2,
        };
        found.runs[1].router = Some(RouterCost {
            through: vec![800.0; 5],
            straight: vec![1000.0; 5],
            find_us: vec![11.0; 5],
            straight_us: vec![9.0; 5],
            document_us: vec![1.75; 5],
            documents: vec![150_000.0; 5],
            passed: vec![900.0; 5],
            pass_us: vec![7.0; 5],
            gated_us: vec![20.1, 20.3, 20.2, 20.2, 20.1],
            free_us: vec![20.0; 5],
            filtered_us: vec![0.21, 0.2, 0.2, 0.2, 0.19],
            unfiltered_us: vec![0.2; 5],
        });
        found.runs[2].moves = Some(MoveCost {
            bytes: 4.1e7,
            quiet: vec![0.4, 0.39],
            beside: vec![0.8, 0.82],
            calm_ms: vec![1.5, 1.25],
            end_ms: vec![4.5, 90.0],
            longest_ms: vec![31.0, 92.5],
        });
        found.runs[0].rows.push(row(&STOCK[4], Count::Server, 0.1));
        found.runs[2].rows.push(refused(Count::Shards(2)));
        let mut out = Outcome::default();
        tell(&found, &mut out);
        check("w5-shards", &out);
        // Small machines, without the one server to compare with.
        let found = Found {
            runs: vec![run(Count::Shards(2), 1.1)],
            machines: Some((0.2, "by stopping and continuing them")),
            cores: 2,
        };
        let mut out = Outcome::default();
        tell(&found, &mut out);
        check("w5-shards-part", &out);
        let mut out = Outcome::default();
        tell(&Found::default(), &mut out);
        assert!(out.tables.is_empty() && out.plots.is_empty() && out.findings.is_empty());
    }
}
