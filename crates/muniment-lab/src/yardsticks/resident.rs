//! Yardstick 19: the resident memory of a server while everything that takes memory happens at
//! once.

use super::{Row, Spec};
use crate::lab::Lab;
use crate::mix::{self, Size};
use crate::report::Outcome;
use crate::report::table::bytes;
use muniment_load::fail::Result;
use muniment_load::procs;
use std::time::Duration;

pub(super) const SPEC: Spec = Spec {
    number: 19,
    title: "resident memory above five quarters of the cache, under all that takes memory at once",
    target_text: "100 MB",
    run,
};

/// The cache, GiB.
const CACHE_GB: f64 = 0.25;

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let mut target = lab.target(Some(CACHE_GB))?;
    let (Some(pid), Some(cache)) = (target.pid, target.cache) else {
        out.warnings
            .push("19: the server's process or its cache is not known".into());
        return Ok(());
    };
    let time = Duration::from_secs(lab.preset.pick(20, 60, 600));
    let size = Size {
        workers: 4,
        transactions: 50,
        slow: 100,
        partial: 50,
    };
    lab.progress.step("Yardstick 19: everything at once");
    let tally = mix::run(target.peer.address(), size, time)?;
    target.check_alive()?;
    if let Some(sample) = procs::sample(pid) {
        let above = (sample.peak_rss - cache * 1.25) / 1e6;
        let what = "peak resident memory above 1.25 × the cache, under everything at once";
        rows.push(
            Row::at_most("19", what, above.max(0.0), "MB", 100.0).because(format!(
                "{} resident at most, cache {}; {}",
                bytes(sample.peak_rss),
                bytes(cache),
                mix::describe(&tally)
            )),
        );
    }
    lab.done(target);
    Ok(())
}
