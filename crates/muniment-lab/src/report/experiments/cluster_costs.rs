//! The report of what a cluster's own work costs: a router's, and that of a move.

use crate::report::table::{Table, bytes, rate};
use crate::report::{Better, Outcome};
use crate::workloads::move_cost::{MoveCost, WRITERS};
use crate::workloads::router_cost::{BATCH, CONNECTIONS, RouterCost};
use muniment_load::stats::{Ratio, median};

/// The most CPU time that a router is to take, µs a find by `_id` and µs a document of insertMany.
const MOST_US: [f64; 2] = [12.0, 1.5];
/// The least rate through the router, in parts of that straight to the shard.
const LEAST_THROUGH: f64 = 0.7;
/// The most that an update, or a document of a scan, of a divided collection is to cost a shard, in parts of
/// what one of a whole collection costs.
const MOST_GATED: f64 = 1.01;
/// The least bytes a second of a move.
const LEAST_MOVED: f64 = 100e6;
/// The most that a move is to add to its writers' p99 at its end, ms.
const MOST_ADDED_MS: f64 = 50.0;

fn verdict(met: bool) -> String {
    if met { "met" } else { "MISSED" }.to_string()
}

fn table(title: &str) -> Table {
    let columns = ["<what", ">measured", ">target", "<", "<beside"];
    Table::new(title, &columns)
}

/// Adds what the router costs.
pub(super) fn router(cost: &RouterCost, out: &mut Outcome) {
    let mut t = table("What the router costs");
    times(cost, out, &mut t);
    through(cost, out, &mut t);
    let updates = [&cost.gated_us, &cost.free_us];
    let scans = [&cost.filtered_us, &cost.unfiltered_us];
    for (what, us) in [("update", updates), ("scanned document", scans)] {
        divided(what, us, out, &mut t);
    }
    t.note("With one shard, in turns; medians. The client has a share of the same cores, so a rate is as much a matter of all CPU time as of the router's. The null router only passes messages on: the clients of a worker share a connection to the shard, over its Unix socket as the router's are, and all that has come for a socket goes out in one write. What it costs is what this machine takes for a router that does nothing.");
    out.tables.push(t);
}

/// What something costs a shard in a divided collection, in parts of what it costs in a whole one.
fn divided(what: &str, us: [&Vec<f64>; 2], out: &mut Outcome, t: &mut Table) {
    let Some(ratio) = Ratio::of_pairs(us[0], us[1]) else {
        return;
    };
    let name = format!("shard's CPU, {what} of a divided / of a whole collection");
    out.figure(&name, ratio.median, "×", None)
        .between(ratio.low, ratio.high);
    let (divided, whole) = (median(us[0]), median(us[1]));
    t.row([
        name,
        ratio.text(),
        format!("≤ {MOST_GATED}"),
        match ratio.low <= MOST_GATED && ratio.high > MOST_GATED {
            true => "not shown".to_string(),
            false => verdict(ratio.median <= MOST_GATED),
        },
        format!("{divided:.2} and {whole:.2} µs each"),
    ]);
}

/// The router's CPU time.
fn times(cost: &RouterCost, out: &mut Outcome, t: &mut Table) {
    let own = median(&cost.straight_us);
    let null = median(&cost.pass_us);
    let all = rate(median(&cost.documents));
    let times = [
        (
            "find by _id",
            &cost.find_us,
            MOST_US[0],
            "µs/find",
            format!("the null router: {null:.1} µs; the shard asked straight: {own:.1} µs"),
        ),
        (
            "document of insertMany",
            &cost.document_us,
            MOST_US[1],
            "µs/document",
            format!("{all} documents/s in batches of {BATCH}, one connection"),
        ),
    ];
    for (what, us, most, unit, beside) in times {
        if us.is_empty() {
            continue;
        }
        let us = median(us);
        let name = format!("router's CPU, {what}");
        out.figure(&name, us, unit, None);
        t.row([
            format!("{name}, µs"),
            format!("{us:.2}"),
            format!("≤ {most}"),
            verdict(us <= most),
            beside,
        ]);
    }
    if !cost.pass_us.is_empty() {
        out.figure("null router's CPU, find by _id", null, "µs/find", None);
    }
}

/// The rates through the router and through the null router.
fn through(cost: &RouterCost, out: &mut Outcome, t: &mut Table) {
    let ways = [
        ("the router", &cost.through, Some(LEAST_THROUGH)),
        ("the null router", &cost.passed, None),
    ];
    for (who, rates, least) in ways {
        let Some(ratio) = Ratio::of_pairs(rates, &cost.straight) else {
            continue;
        };
        let figure = out.figure(
            format!("finds through {who} / straight"),
            ratio.median,
            "×",
            None,
        );
        figure.better(Better::Higher).between(ratio.low, ratio.high);
        t.row([
            format!(
                "rate of finds through {who} / straight to the shard, {CONNECTIONS} connections"
            ),
            ratio.text(),
            least.map_or_else(String::new, |least| format!("≥ {least}")),
            least.map_or_else(String::new, |least| verdict(ratio.median >= least)),
            format!(
                "{} and {} finds/s",
                rate(median(rates)),
                rate(median(&cost.straight))
            ),
        ]);
        out.findings.push(format!(
            "Through {who} finds by _id reach {} of the rate that they reach straight to the shard, on the same cores.",
            ratio.text()
        ));
    }
}

/// Adds what moves cost.
pub(super) fn moves(cost: &MoveCost, out: &mut Outcome) {
    let mut t = table("What a move costs");
    let speeds = [
        ("nobody writes", &cost.quiet, Some(LEAST_MOVED)),
        ("beside writers", &cost.beside, None),
    ];
    for (when, seconds, least) in speeds {
        if seconds.is_empty() {
            continue;
        }
        let speed = cost.bytes / median(seconds);
        let name = format!("a move, {when}");
        let figure = out.figure(&name, speed / 1e6, "MB/s", None);
        figure.better(Better::Higher);
        t.row([
            format!("{name}, MB/s"),
            format!("{:.0}", speed / 1e6),
            least.map_or_else(String::new, |least| format!("≥ {:.0}", least / 1e6)),
            least.map_or_else(String::new, |least| verdict(speed >= least)),
            format!("{} in {:.2} s", bytes(cost.bytes), median(seconds)),
        ]);
    }
    let added: Vec<f64> = (cost.end_ms.iter().zip(&cost.calm_ms))
        .map(|(end, calm)| end - calm)
        .collect();
    if !added.is_empty() {
        let worst = added.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let longest = cost.longest_ms.iter().copied().fold(0.0, f64::max);
        out.figure("writers' p99 at a move's end, added", worst, "ms", None);
        out.figure("longest write beside a move", longest, "ms", None);
        t.row([
            "added to the writers' p99 in a move's last second, ms".to_string(),
            format!("{worst:.1}"),
            format!("≤ {MOST_ADDED_MS}"),
            verdict(worst <= MOST_ADDED_MS),
            format!(
                "{:.1} before, {:.1} at the end; the longest write beside a move {longest:.0} ms",
                median(&cost.calm_ms),
                median(&cost.end_ms)
            ),
        ]);
    }
    t.note(format!("Documents of 2 KB, to the other shard and back. Speeds are medians; the time added is that of the worst move. {WRITERS} connections update documents of the range at random. All servers and writers share this machine's cores and its disk."));
    out.tables.push(t);
}
