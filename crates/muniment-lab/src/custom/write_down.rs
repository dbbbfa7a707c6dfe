//! One target's run of a workload, and what is shown of it.

use super::plan::Plan;
use super::run::{measure, prepare};
use crate::fail::Result;
use crate::hist::Latency;
use crate::lab::{Lab, Target};
use crate::load::Load;
use crate::placement::Placement;
use crate::report::table::{Table, ms, rate};
use crate::report::{Outcome, SampleSet};

/// Runs the whole workload on the lab's target.
///
/// # Errors
/// No server; a workload that fails on it.
pub fn experiment(
    lab: &mut Lab,
    plan: &Plan,
    cache_gb: Option<f64>,
    out: &mut Outcome,
) -> Result<()> {
    out.about.clone_from(&plan.about);
    let mut target = lab.target(cache_gb)?;
    target.database.clone_from(&plan.database);
    let done = all(lab, &target, plan, out);
    if done.is_err() {
        target.check_alive()?;
    }
    lab.done(target);
    done
}

fn all(lab: &mut Lab, target: &Target, plan: &Plan, out: &mut Outcome) -> Result<()> {
    let mut ready = prepare(lab, target, plan)?;
    let mut loads = std::mem::take(&mut ready.loads);
    let measured = measure(lab, target, plan, "", &mut ready, &mut loads);
    write_down(plan, &loads, out);
    out.warnings.append(&mut ready.warnings);
    for (name, load) in &loads {
        let phase = plan.phases.iter().find(|p| is_of(&p.name, name));
        let threads = phase.map_or(1, |p| p.threads);
        lab.doubt(name, load, threads as usize);
    }
    measured
}

/// Whether a load of this name is phase `phase`, in whichever placement.
fn is_of(phase: &str, name: &str) -> bool {
    phase == name || phase == Placement::without(name)
}

/// Tables, plots, findings, figures and samples of what the phases did.
pub fn write_down(plan: &Plan, loads: &[(String, Load)], out: &mut Outcome) {
    let mut t = Table::new(
        "Operations, latencies in ms",
        &[
            "<phase",
            "<operation",
            ">n",
            ">a second",
            ">mean",
            ">p50",
            ">p95",
            ">p99",
            ">p99.9",
            ">max",
            "<ended",
        ],
    );
    let mut row = |phase: &str, name: String, l: &Latency, seconds: f64, ended: String| {
        t.row([
            phase.to_string(),
            name,
            rate(l.count() as f64),
            rate(l.count() as f64 / seconds),
            ms(l.mean_ms()),
            ms(l.quantile_ms(0.5)),
            ms(l.quantile_ms(0.95)),
            ms(l.quantile_ms(0.99)),
            ms(l.quantile_ms(0.999)),
            ms(l.max_ms()),
            ended,
        ]);
    };
    let mut paced = false;
    for (phase, load) in loads {
        // Where it was, if it was pinned, is part of the name.
        let name = &match load.samples.placement.as_str() {
            "" => phase.clone(),
            placement => format!("{}, {placement}", Placement::without(phase)),
        };
        let seconds = load.samples.seconds;
        if load.kinds.len() > 1 {
            row(
                name,
                "all".into(),
                &load.samples.latency,
                seconds,
                String::new(),
            );
        }
        for (kind, m) in &load.kinds {
            let ended = m
                .statuses
                .iter()
                .map(|(k, n)| format!("{k} {}", rate(*n as f64)));
            let ended = ended.collect::<Vec<_>>().join(", ");
            row(name, (*kind).to_string(), &m.service, seconds, ended);
            if m.intended.count() > 0 {
                paced = true;
                row(
                    name,
                    format!("{kind}, intended"),
                    &m.intended,
                    seconds,
                    String::new(),
                );
            }
            out.samples.push(SampleSet {
                name: format!("{name} {kind}"),
                operations: m.service.count(),
                latency: m.service.clone(),
                seconds,
                ..SampleSet::default()
            });
        }
        out.samples.push(SampleSet {
            name: name.clone(),
            ..load.samples.clone()
        });
        finding(plan, name, load, out);
    }
    if paced {
        t.note("Intended: from the moment an operation was due, so that waiting behind a slow one counts.");
    }
    out.tables.push(t);
}

/// A sentence, the figures and the doubts of one phase.
fn finding(plan: &Plan, name: &str, load: &Load, out: &mut Outcome) {
    let n = load.samples.operations;
    let throughput = n as f64 / load.samples.seconds;
    out.figure(name, throughput, "operations/s", None);
    let mut words = format!("{name}: {} operations/s", rate(throughput));
    let phase = plan.phases.iter().find(|p| is_of(&p.name, name));
    let inserts = phase.is_some_and(|p| p.work.iter().all(|o| o.document.is_some()));
    if inserts && load.documents != n {
        out.figure(
            format!("{name} documents"),
            load.rate(),
            "documents/s",
            None,
        );
        words += &format!(", {} documents/s", rate(load.rate()));
    }
    let each = |seconds: f64| seconds * 1e6 / n.max(1) as f64;
    if let Some(server) = &load.server {
        words += &format!(
            ", {:.1} µs of the server's CPU an operation",
            each(server.cpu)
        );
    }
    words += &format!(", {:.1} µs of the client's.", each(load.client_cpu));
    out.findings.push(words);
    for (kind, m) in &load.kinds {
        out.figure(
            format!("{name} {kind} p50"),
            m.service.quantile_ms(0.5),
            "ms",
            None,
        );
        out.figure(
            format!("{name} {kind} p99"),
            m.service.quantile_ms(0.99),
            "ms",
            None,
        );
    }
    let wanted = phase.and_then(|p| p.rate);
    if let Some(wanted) = wanted
        && throughput < 0.95 * wanted
    {
        out.warnings.push(format!(
            "{name}: {} operations/s were reached of the {} asked for",
            rate(throughput),
            rate(wanted)
        ));
    }
    let limited = phase.is_some_and(|p| p.operations.is_none() && p.records.is_none());
    if load.cut_short && !limited {
        out.warnings
            .push(format!("{name}: ended before all operations were done."));
    }
}
