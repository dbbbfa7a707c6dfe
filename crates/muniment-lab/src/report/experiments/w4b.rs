//! The report of W4b: rows a second without and with an index, batch after batch.

use crate::report::plot::{Axis, Mark, Plot, Series};
use crate::report::table::{Table, bytes, ms, rate};
use crate::report::{Outcome, Statistic};
use crate::workloads::w4b::{BATCHES, Found, Run};
use muniment_load::placement;

/// The post's rate without the index, which is constant (inferred from its totals).
const POST_PLAIN: f64 = 8_500.0;
const POST_INDEXED: [f64; 2] = [3_492.0, 2_281.0];
/// The post's rates with the index as parts of the one without, in its two batches.
const POST_RATIOS: [f64; 2] = [0.40, 0.27];

/// Adds the results to the report.
pub(crate) fn tell(found: &Found, out: &mut Outcome) {
    for run in &found.runs {
        figures(run, out);
        out.findings.extend(slower(run));
    }
    out.tables.push(after_each_batch(found));
    let ratios = ratios(&found.runs, out);
    out.tables
        .extend((!ratios.rows.is_empty()).then_some(ratios));
    out.plots.push(plot(&found.runs));
}

/// The post's rate of batch `i`, counted from 0.
fn published(run: &Run, i: usize) -> Option<f64> {
    match run.indexed {
        true => POST_INDEXED.get(i).copied(),
        false => Some(POST_PLAIN),
    }
}

fn figures(run: &Run, out: &mut Outcome) {
    for (i, b) in run.batches.iter().enumerate() {
        let l = &b.load;
        let called = |what: &str| run.called(&format!(" batch {}{what}", i + 1));
        out.figure(called(""), l.rate(), "rows/s", published(run, i))
            .of(&l.samples.name, Statistic::Rate);
        let stall = l.samples.latency.max_ms();
        out.figure(called(" longest stall"), stall, "ms", None);
        out.samples.push(l.samples.clone());
    }
}

/// A sentence about the rate as the data grow.
fn slower(run: &Run) -> Option<String> {
    let (first, last) = (run.batches.first()?, run.batches.last()?);
    let stalls = run.batches.iter().map(|b| b.load.samples.latency.max_ms());
    Some(format!(
        "{}: the last batch runs at {:.2} × the rate of the first; longest stall of a single insert {} ms.",
        run.called(""),
        last.load.rate() / first.load.rate(),
        ms(stalls.fold(0.0, f64::max))
    ))
}

fn after_each_batch(found: &Found) -> Table {
    let mut t = Table::new(
        "After each batch",
        &[
            "<index",
            "<cores",
            ">batch",
            ">rows/s applied",
            ">sent/s",
            ">longest stall of one insert, ms",
            ">find 1, ms",
            ">find 2, ms",
            ">data",
            ">storage",
            ">indexes",
            ">data : cache",
            ">server CPU µs/row",
            "*rows/s",
        ],
    );
    for run in &found.runs {
        for (i, b) in run.batches.iter().enumerate() {
            let l = &b.load;
            let share = found.cache.map(|c| b.data / c);
            t.row([
                if run.indexed { "{name: 1}" } else { "none" }.to_string(),
                run.placement.name().to_string(),
                (i + 1).to_string(),
                rate(l.rate()),
                rate(l.sent_rate()),
                ms(l.samples.latency.max_ms()),
                ms(b.finds_ms[0]),
                ms(b.finds_ms[1]),
                bytes(b.data),
                bytes(b.storage),
                bytes(b.indexes),
                share.map_or_else(|| "–".into(), |s| format!("{s:.1}")),
                l.server_us_text(l.documents),
                published(run, i).map_or_else(String::new, rate),
            ]);
        }
    }
    t.note(format!(
        "A batch is {} rows of 2401 bytes. With w:0 a stall is a send that blocks because the server does not read. The post's unindexed rate is inferred. {}",
        rate(found.rows as f64),
        placement::NOTE
    ));
    t
}

/// Adds the ratios of the indexed rates to the unindexed ones as figures, and returns their table.
fn ratios(runs: &[Run], out: &mut Outcome) -> Table {
    let mut t = Table::new(
        "Indexed rate over unindexed rate",
        &["<batch", "<cores", ">ours", "*ratio"],
    );
    for run in runs.iter().filter(|r| r.indexed) {
        let plain = runs
            .iter()
            .find(|r| !r.indexed && r.placement == run.placement)
            .map_or(&[][..], |r| r.batches.as_slice());
        for (i, (a, b)) in run.batches.iter().zip(plain).enumerate() {
            let ratio = a.load.rate() / b.load.rate();
            let post = POST_RATIOS.get(i).copied();
            t.row([
                (i + 1).to_string(),
                run.placement.name().to_string(),
                format!("{ratio:.2}"),
                post.map_or_else(String::new, |p| format!("{p:.2}")),
            ]);
            let name = format!("indexed/unindexed batch {}", i + 1);
            out.figure(run.placement.called(&name), ratio, "ratio", post);
        }
    }
    t
}

fn plot(runs: &[Run]) -> Plot {
    let over_batches = |rates: &mut dyn Iterator<Item = f64>| -> Vec<(f64, f64)> {
        rates
            .enumerate()
            .map(|(i, y)| (i as f64 + 1.0, y))
            .collect()
    };
    let ours = runs.iter().enumerate().map(|(i, run)| {
        let mut rates = run.batches.iter().map(|b| b.load.rate());
        Series::new(run.called(""), Mark::Line, i, over_batches(&mut rates))
    });
    // Each of the post's series has the colour of the first of our series that it belongs to.
    let plain = runs.iter().position(|r| !r.indexed).map(|i| {
        let points = over_batches(&mut [POST_PLAIN; BATCHES].into_iter());
        Series::new("post, unindexed (inferred)", Mark::Line, i, points).published()
    });
    let indexed = runs.iter().position(|r| r.indexed).map(|i| {
        let points = over_batches(&mut POST_INDEXED.into_iter());
        Series::new("post, indexed", Mark::Line, i, points).published()
    });
    Plot::new(
        "Rows a second, batch after batch",
        "Dashed: the post, which abandoned its indexed run after two batches.",
        Axis::linear("batch"),
        Axis::linear("rows/s"),
    )
    .series(ours.chain(plain).chain(indexed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiments::fixtures::{check, load};
    use crate::workloads::w4b::Batch;
    use muniment_load::placement::Placement;

    #[test]
    fn whole_and_part() {
        let mut runs = Vec::new();
        for placement in [Placement::OneCore, Placement::TwoCores] {
            for indexed in [false, true] {
                let mut run = Run {
                    indexed,
                    placement,
                    batches: Vec::new(),
                };
                let n = if indexed { 3 } else { 6 };
                for b in 1..=n {
                    let name = placement.called(&format!("{indexed} batch {b}"));
                    run.batches.push(Batch {
                        load: load(
                            &name,
                            10_000,
                            f64::from(b) + f64::from(u8::from(indexed)),
                            0.2,
                        ),
                        finds_ms: [1.0, 0.5],
                        data: 2.4e7 * f64::from(b),
                        storage: 1e7 * f64::from(b),
                        indexes: 1e5,
                    });
                }
                runs.push(run);
            }
        }
        let mut found = Found {
            runs,
            rows: 10_000,
            cache: Some(4e6),
        };
        let mut out = Outcome::default();
        tell(&found, &mut out);
        check("w4b", &out);
        let mut out = Outcome::default();
        found.runs.truncate(1);
        found.cache = None;
        tell(&found, &mut out);
        check("w4b-part", &out);
    }
}
