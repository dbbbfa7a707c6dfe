//! The parts that the yardsticks against the null responder share.

use super::{Pairs, Slice};
use crate::lab::{DB, Lab, Target};
use crate::report::Outcome;
use muniment_load::access::Peer;
use muniment_load::conn::{Conn, Message, check};
use muniment_load::fail::Result;
use muniment_load::load::{self, Limit, Worker};
use muniment_load::stats::Side;
use muniment_load::stop;
use std::time::Duration;

/// The number of connections of these yardsticks.
pub(super) const CONNECTIONS: usize = 16;

/// The documents of the find and update yardsticks, 2 KB each, which fit into the cache.
pub(super) const POINTS: u64 = 20_000;

/// Fills `coll` with `n` documents made by `make`, in batches of 1000.
pub(super) fn fill(
    lab: &mut Lab,
    target: &Target,
    coll: &str,
    n: u64,
    make: fn(i64, &mut Vec<u8>),
) -> Result<()> {
    lab.progress.step(format!("Loading {n} documents"));
    let mut c = target.connect()?;
    let template = Message::insert(DB, coll, None);
    let mut m = Message(Vec::new());
    let mut i = 0;
    while i < n && !stop::asked() {
        let to = (i + 1000).min(n);
        template.begin(&mut m);
        for k in i..to {
            make(k as i64, &mut m.0);
        }
        template.seal(&mut m);
        check(c.call(&mut m)?)?;
        i = to;
        lab.progress.news(&format!("{i} of {n}"));
    }
    Ok(())
}

/// Measures the same workers against the target (A) and the null responder (B), in interleaved
/// slices. `make` makes worker `k` for a connection to one of the sides.
pub(super) fn measure<W: Worker>(
    lab: &mut Lab,
    out: &mut Outcome,
    target: &Target,
    what: &str,
    mut make: impl FnMut(Conn, u64, Side) -> W,
) -> Result<Pairs> {
    let null = Peer::open(lab.null_address()?);
    let null_pid = lab.null_pid();
    let time = Duration::from_millis(lab.preset.pick(600, 2000, 10_000));
    let mut seed = 0;
    Pairs::measure(lab, out, |lab, side| -> Result<Slice> {
        let (server, pid, who) = match side {
            Side::A => (&target.peer, target.pid, "server"),
            Side::B => (&null, null_pid, "null responder"),
        };
        let mut workers = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            seed += 1;
            workers.push(make(Conn::connect(server)?, seed, side));
        }
        lab.progress.step(format!("{what}: {who}"));
        let name = format!("{what}, {who}");
        let load = load::run(&name, workers, Limit::time(time), pid, &mut lab.progress)?;
        Ok((load.rate(), Some(load)))
    })
}
