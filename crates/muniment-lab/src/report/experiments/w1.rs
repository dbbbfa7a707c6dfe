//! The report of W1: the latency of one insert by write concern, compared with the post's, with the
//! disk's own sync, and with the least that the distances between members allow.

use crate::report::plot::{Axis, Mark, Plot, Series};
use crate::report::table::{Table, ms, rate};
use crate::report::{Outcome, Statistic};
use crate::topology::floors::{Floor, Layout};
use crate::workloads::apart::Together;
use crate::workloads::w1::{Found, One};
use muniment_load::placement::{self, Placement};
use muniment_load::stats::{Ratio, Verdict, median};

/// Adds the results to the report.
pub(crate) fn tell(found: &Found, out: &mut Outcome) {
    out.findings.extend(medians(found));
    for one in &found.all {
        figures(one, out);
        let name = &one.load.samples.name;
        let disk = one.disk.as_deref();
        out.findings.extend(disk.map(|pairs| durable(name, pairs)));
    }
    out.findings.extend(by_cores("w:1", found));
    out.tables.push(latencies(found));
    out.plots.push(plot(found));
    if let Some(layout) = &found.layout {
        out.tables.push(floors(found, layout));
    }
    if let Some(together) = &found.together {
        all_at_once(together, out);
    }
    if let Some(tails) = &found.tails {
        out.tables.push(percentiles(tails));
        out.samples
            .extend(tails.iter().map(|t| t.load.samples.clone()));
    }
}

fn figures(one: &One, out: &mut Outcome) {
    let name = &one.load.samples.name;
    let l = &one.load.samples.latency;
    let published = one.concern.published.map(|p| p[0]);
    out.figure(format!("{name} avg"), l.mean_ms(), "ms", published)
        .of(name, Statistic::Mean);
    out.figure(format!("{name} p50"), l.quantile_ms(0.5), "ms", None)
        .of(name, Statistic::P50);
    out.figure(format!("{name} p99"), l.quantile_ms(0.99), "ms", None)
        .of(name, Statistic::P99);
    out.samples.push(one.load.samples.clone());
}

fn latencies(found: &Found) -> Table {
    let mut t = Table::new(
        "Latency of one insert, ms",
        &[
            "<write concern",
            ">n",
            ">avg",
            ">min",
            ">p50",
            ">p99",
            ">max",
            "*avg",
            "*min",
            "*max",
        ],
    );
    for one in &found.all {
        let l = &one.load.samples.latency;
        let mut row = vec![one.load.samples.name.clone(), rate(l.count() as f64)];
        row.extend([l.mean_ms(), l.min_ms()].map(ms));
        row.extend([l.quantile_ms(0.5), l.quantile_ms(0.99), l.max_ms()].map(ms));
        row.extend(one.concern.published.iter().flatten().map(|p| ms(*p)));
        t.row(row);
    }
    for (name, post) in &found.post_only {
        let mut row = vec![name.clone()];
        row.extend(std::iter::repeat_n(String::new(), 6));
        row.extend(post.map(ms));
        t.row(row);
    }
    t.note(format!(
        "w:0 is the time to hand the message to the kernel: nothing is waited for. {}",
        placement::NOTE
    ));
    t
}

fn plot(found: &Found) -> Plot {
    let mut series = Vec::new();
    for one in &found.all {
        let name = &one.concern.name;
        let concern = found.concerns.iter().position(|c| c.name == *name);
        let place = found.placements.iter().position(|p| *p == one.placement);
        let place = place.unwrap_or(0);
        let color = (concern.unwrap_or(0) * found.placements.len() + place) % 8;
        let each = one.load.samples.each_ms.iter().enumerate();
        let points = each.map(|(n, y)| (n as f64 + 1.0, *y)).collect();
        let ours = one.load.samples.name.clone();
        series.push(Series::new(ours, Mark::Line, color, points));
        // The post has one figure, which is shown once and not for each placement.
        if let Some(post) = one.concern.published.filter(|_| place == 0) {
            let name = format!("{name} (post, average)");
            let level = vec![(1.0, post[0])];
            series.push(Series::new(name, Mark::Level, color, level).published());
        }
    }
    Plot::new(
        "Latency against query number",
        "Solid: the second run of 200 inserts. Dashed: the post's average (j:true on its SSD). Logarithmic.",
        Axis::linear("query number"),
        Axis::log("ms"),
    )
    .series(series)
}

/// The median of a concern in a placement, ms.
fn median_of(found: &Found, concern: &str, placement: Placement) -> Option<f64> {
    let mut all = found.all.iter();
    let one = all.find(|o| o.concern.name == concern && o.placement == placement)?;
    Some(one.load.samples.latency.quantile_ms(0.5))
}

/// A sentence with the medians of all concerns.
fn medians(found: &Found) -> Option<String> {
    let placement = placement::representative(&found.placements);
    let said: Vec<String> = found
        .concerns
        .iter()
        .filter_map(|c| {
            let median = median_of(found, &c.name, placement)?;
            Some(format!("{} {}", c.name, ms(median)))
        })
        .collect();
    let on = match placement.name() {
        "" => String::new(),
        name => format!(", on {name}"),
    };
    (!said.is_empty()).then(|| format!("Median latency, ms{on}: {}.", said.join(", ")))
}

/// A sentence that compares a concern's medians in the two placements.
fn by_cores(concern: &str, found: &Found) -> Option<String> {
    let median = |p| median_of(found, concern, p);
    let (one, two) = median(Placement::OneCore).zip(median(Placement::TwoCores))?;
    Some(format!(
        "{concern}: a median of {} ms with client and server on one core, {} ms on two: {:.2} ×.",
        ms(one),
        ms(two),
        two / one
    ))
}

/// The table that compares the latency of each write concern with its floor.
pub(crate) fn floors(found: &Found, layout: &Layout) -> Table {
    let placement = placement::representative(&found.placements);
    let median = |concern: &str| median_of(found, concern, placement);
    let (w1, sync) = (median("w:1"), found.sync);
    let mut t = Table::new(
        "What the distances allow, ms",
        &[
            "<write concern",
            ">round trip",
            ">sync",
            ">floor",
            ">ours, p50",
            ">above the floor",
            ">target",
            "<",
        ],
    );
    let waiting = found.concerns.iter();
    for c in waiting.filter(|c| c.replicated || c.journaled) {
        let floor = Floor::of(layout, c.doc.as_doc(), sync);
        let Some((floor, ours)) = floor.zip(median(&c.name)) else {
            continue;
        };
        // A journaled concern without replication is judged in turns with the disk instead.
        let target = c
            .replicated
            .then(|| floor.target(w1.unwrap_or(f64::NAN), sync))
            .filter(|t| t.is_finite());
        t.row([
            c.name.clone(),
            ms(floor.round_trip),
            ms(floor.sync),
            ms(floor.total()),
            ms(ours),
            ms(ours - floor.total()),
            target.map_or_else(String::new, ms),
            match target {
                Some(t) if ours <= t => "met".into(),
                Some(_) => "MISSED".into(),
                None => String::new(),
            },
        ]);
    }
    t.note("Round trip: from the primary to the farthest of the nearest members that suffice. Sync: the disk's own write + fdatasync, at the last of them. Target: the floor and 2 ms where another centre is needed, else 1.5 × w:1 and a sync.");
    t
}

/// Adds the result of many clients at once.
fn all_at_once(t: &Together, out: &mut Outcome) {
    let name = &t.load.samples.name;
    let l = &t.load.samples.latency;
    out.findings.push(format!(
        "{name}: {} inserts/s, p50 {} ms, p99 {} ms; waiting for nothing but the network they reach at least {}: {}.",
        rate(t.load.rate()),
        ms(l.quantile_ms(0.5)),
        ms(l.quantile_ms(0.99)),
        rate(t.least),
        if t.met() { "met" } else { "MISSED" }
    ));
    out.figure(format!("{name} rate"), t.load.rate(), "inserts/s", None);
    out.samples.push(t.load.samples.clone());
}

/// The sentence with the verdict on a journaled concern.
fn durable(name: &str, pairs: &[[f64; 2]]) -> String {
    let inserts: Vec<f64> = pairs.iter().map(|p| p[0]).collect();
    let disk: Vec<f64> = pairs.iter().map(|p| p[1]).collect();
    let Some(ratio) = Ratio::of_pairs(&inserts, &disk) else {
        return format!("{name}: not measured on the target's disk, so durability is not judged.");
    };
    let verdict = match ratio.verdict() {
        Verdict::Lower => "NOT DURABLE: acknowledged faster than the disk syncs",
        Verdict::Higher => "above the disk's own price, as a synced write must be",
        Verdict::NoDifference => {
            "no difference from the disk's own price shown, as a synced write may be"
        }
        Verdict::TooFew => "too few turns to judge",
    };
    format!(
        "{name}: p50 {} ms against {} ms for a 4 KiB write + fdatasync on the same disk, taken in turns; ratio {}: {verdict}.",
        ms(median(&inserts)),
        ms(median(&disk)),
        ratio.text()
    )
}

fn percentiles(tails: &[One]) -> Table {
    let mut t = Table::new(
        "Latency over 10,000 inserts, ms",
        &[
            "<write concern",
            ">n",
            ">avg",
            ">p50",
            ">p90",
            ">p99",
            ">p99.9",
            ">p99.99",
            ">max",
        ],
    );
    for tail in tails {
        let l = &tail.load.samples.latency;
        let name = tail.placement.called(&tail.concern.name);
        let mut row = vec![name, rate(l.count() as f64), ms(l.mean_ms())];
        row.extend([0.5, 0.9, 0.99, 0.999, 0.9999, 1.0].map(|q| ms(l.quantile_ms(q))));
        t.row(row);
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiments::fixtures::{check, load};
    use crate::topology::floors::Layout;
    use crate::workloads::concerns::Set;
    use muniment_value::{array, doc};

    /// The results of a set over two centres, in which one concern was given up.
    fn found() -> Found {
        let hosts = array!["h:1", "h:2", "h:3", "h:4"];
        let hello = doc! { "setName": "s", "hosts": hosts };
        let set = Set::of(hello.as_doc(), None);
        let member = |n: i32| doc! { "_id": n, "host": format!("h:{n}").as_str() };
        let config = doc! { "members": array![member(1), member(2), member(3), member(4)] };
        let far = [("h:1", 0.0), ("h:2", 0.5), ("h:3", 90.0), ("h:4", 90.0)];
        let layout = Layout::of(config.as_doc(), |host| {
            far.iter().find(|f| f.0 == host).map(|f| f.1)
        });
        let placements = vec![Placement::OneCore, Placement::TwoCores];
        let mut all = Vec::new();
        for (i, concern) in set.concerns().into_iter().enumerate() {
            for placement in &placements {
                let ms = 0.1 * (i as f64 + 1.0) * if i > 2 { 300.0 } else { 1.0 };
                let disk = (concern.journaled && *placement == Placement::TwoCores)
                    .then(|| vec![[0.3, 0.2]; 7]);
                if concern.name != "w:3" {
                    all.push(One {
                        load: load(&placement.called(&concern.name), 200, 0.5, ms),
                        concern: concern.clone(),
                        placement: *placement,
                        disk,
                    });
                }
            }
        }
        Found {
            concerns: set.concerns(),
            post_only: Set::default().post_only(),
            placements,
            all,
            layout: Some(layout),
            sync: 0.2,
            together: Some(Together {
                load: load("majority, 64 clients", 5000, 10.0, 95.0),
                least: 600.0,
            }),
            tails: None,
        }
    }

    #[test]
    fn a_set_and_a_part_of_it() {
        let mut found = found();
        let mut out = Outcome::default();
        tell(&found, &mut out);
        check("w1", &out);
        found.all.truncate(3);
        found.tails = Some(found.all.split_off(2));
        (found.layout, found.together) = (None, None);
        let mut out = Outcome::default();
        tell(&found, &mut out);
        check("w1-part", &out);
    }

    #[test]
    fn faster_than_the_disk_is_not_durable() {
        let all = |a: f64, b: f64| vec![[a, b]; 7];
        assert!(durable("j:true", &all(0.1, 0.5)).contains("NOT DURABLE"));
        assert!(!durable("j:true", &all(0.55, 0.5)).contains("NOT DURABLE"));
        assert!(durable("j:true", &[]).contains("not measured on the target's disk"));
        // A disk whose speed changes meanwhile does not change the verdict, since both are measured
        // in turns.
        let slower = [
            [0.2, 0.19],
            [0.2, 0.21],
            [4.0, 4.1],
            [4.1, 4.0],
            [4.0, 3.9],
            [4.0, 4.2],
        ];
        assert!(!durable("j:true", &slower).contains("NOT DURABLE"));
    }
}
