//! What goes wrong.

use super::cluster::{SHARDS, is_router};
use super::world::{Inner, MS, Rough, What};

/// What befalls a server.
pub enum Hit {
    Crash(usize),
    /// The power fails at an operation of the disk.
    Fuse(usize, u64, u64),
    /// A primary is told to step down.
    StepDown(usize),
}

/// Draws how rough the seed's world is, and begins it.
pub fn draw(inner: &mut Inner) {
    let delay = inner.random.pick(&[1, 3, 10, 30]) * MS;
    inner.rough = Rough {
        delay,
        loss: inner.random.pick(&[0, 2, 10, 30]),
        aimed: inner.random.pick(&[0, 3, 7, 9]),
        unheard: inner.random.pick(&[10, 30, 100]),
    };
    inner.calm = false;
}

/// How often something goes wrong, about.
pub fn every(inner: &Inner) -> u64 {
    match inner.rough.loss {
        _ if inner.has_elections() => 700 * MS,
        0 => 3_000 * MS,
        _ => 1_000 * MS,
    }
}

/// Cuts a link for a while.
fn cut(inner: &mut Inner, a: usize, b: usize) {
    if a == b {
        return;
    }
    inner.course.cuts += 1;
    inner.trace(|| format!("{a} and {b} are parted"));
    inner.cut.insert((a.min(b), a.max(b)));
    let lines: Vec<u64> = (inner.lines.iter())
        .filter(|(_, l)| (l.from.0, l.to.0) == (a, b) || (l.from.0, l.to.0) == (b, a))
        .map(|(number, _)| *number)
        .collect();
    for line in lines {
        // Others are silent.
        if inner.random.one_in(2) {
            let soon = inner.delay();
            inner.at(soon, What::Break(line));
        }
    }
    let heals = (50 + inner.random.below(4000)) * MS;
    inner.at(heals, What::Heal);
}

/// Something goes wrong.
pub fn fault(inner: &mut Inner) -> Option<Hit> {
    let all = inner.processes.len() as u64;
    let p = inner.random.below(all) as usize;
    match inner.random.below(4) {
        0 => {
            let other = inner.random.below(all) as usize;
            cut(inner, p, other);
            None
        }
        1 if !is_router(p) && inner.processes[p].state.is_some() => {
            let (n, seed) = (inner.random.below(30), inner.random.next());
            Some(Hit::Fuse(p, n, seed))
        }
        2 | 3 if inner.has_elections() && inner.random.one_in(2) => {
            let sets: Vec<usize> = (0..inner.sets.len())
                .filter(|set| inner.sets[*set].len() > 1)
                .collect();
            let set = inner.random.pick(&sets);
            let (_, leader) = inner.leader(set)?;
            Some(match inner.random.below(3) {
                0 => Hit::Crash(leader),
                1 => {
                    let others = inner.sets[set].clone();
                    others.iter().for_each(|other| cut(inner, leader, *other));
                    return None;
                }
                _ => Hit::StepDown(leader),
            })
        }
        _ => inner.processes[p].state.is_some().then_some(Hit::Crash(p)),
    }
}

/// A move begins, which is perhaps to meet with a fault at one of its messages.
pub fn aim(inner: &mut Inner) {
    let hits = inner.random.below(10) < inner.rough.aimed;
    if hits && inner.aim.is_none() {
        inner.aim = Some(inner.random.below(50));
    }
}

/// A message comes from a fibre that `moves` something, or not: perhaps something goes wrong just then.
pub fn aimed(
    inner: &mut Inner,
    moves: bool,
    (from, to): ((usize, u64), (usize, u64)),
) -> Option<usize> {
    let left = inner.aim.filter(|_| !inner.calm && moves)?;
    inner.aim = left.checked_sub(1);
    if left > 0 {
        return None;
    }
    inner.course.aimed += 1;
    match inner.random.below(8) {
        // Before the command is executed.
        0 => Some(to.0),
        1 => Some(from.0),
        // Later.
        2 => {
            let soon = inner.random.below(20 * MS);
            inner.at(soon, What::Crash(to.0, to.1));
            None
        }
        3 => {
            let soon = inner.random.below(20 * MS);
            inner.at(soon, What::Crash(from.0, from.1));
            None
        }
        4 => {
            cut(inner, from.0, to.0);
            None
        }
        _ => {
            let set = 1 + inner.random.below(SHARDS as u64) as usize;
            let p = inner.leader(set).map_or(set, |(_, leader)| leader);
            let run = inner.processes[p].run;
            let soon = inner.random.below(10 * MS);
            inner.at(soon, What::Crash(p, run));
            None
        }
    }
}
