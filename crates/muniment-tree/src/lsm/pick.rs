//! Chooses the next compaction.
//!
//! The order is: tables of dropped trees, fresh runs when there are enough of them, the level that is
//! fullest, and tables with a large share of versions that are dead and could be removed now.
//!
//! Two jobs at the same time never touch: each marks its tables as busy and claims the key ranges (spans) of
//! the level that it writes to. A span is contiguous: every table of that level within it belongs to the job,
//! and no output table reaches from one span into the next.

use super::dropped::Dropped;
use super::options::LsmOptions;
use super::state::{DEPTH, Levels, Run};
use super::table::{Table, internal_key, tree_end};
use crate::TreeId;
use crate::views::Needed;
use muniment_io::Timestamp;
use muniment_value::Code;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

// A table is compacted for its dead versions when these are at least a quarter of its entries
// (`DEAD_SHARE`; a twentieth where little room is left, `TIGHT_SHARE`) and number at least one per
// `DEAD_BYTES` of a table's target size, clamped to 16 to `DEAD`: fewer are not felt by a scan.
const DEAD_BYTES: u64 = 32 << 10;
const DEAD: u64 = 1000;
const DEAD_SHARE: u64 = 4;
const TIGHT_SHARE: u64 = 20;

// A table is compacted for dropped trees at once when they are at least an eighth of its bytes
// (`DROPPED_SHARE`), and after `DROPPED_WAIT` milliseconds when they are at least one in
// `DROPPED_LITTLE` of its bytes and one in `DROPPED_LEAST` of a table's target size.
const DROPPED_SHARE: u64 = 8;
const DROPPED_WAIT: i64 = 20_000;
const DROPPED_LITTLE: u64 = 256;
const DROPPED_LEAST: u64 = 512;

/// A job takes no more input once it has this many bytes.
const JOB: u64 = 1 << 30;

/// A range of keys that includes both its ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
}

/// What a job does with its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Merges them into new ones.
    Merge,
    /// Moves them as they are.
    Move,
    /// Removes them, because nothing in them is needed.
    Discard,
}

/// A compaction.
pub(crate) struct Job {
    pub(crate) action: Action,
    /// The tables that it reads, by run, newest first.
    pub(crate) inputs: Vec<Vec<Arc<Table>>>,
    /// The level it writes to.
    pub(crate) output: usize,
    /// The spans that it claims, ascending.
    pub(crate) spans: Vec<Span>,
}

impl Job {
    /// The most bytes that it may write, approximately.
    pub(crate) fn writes(&self) -> u64 {
        match self.action {
            Action::Merge => self.tables().map(|t| t.len()).sum(),
            Action::Move | Action::Discard => 0,
        }
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.inputs.iter().flatten()
    }
}

/// The input of a choice.
pub(crate) struct Picker<'a> {
    pub(crate) levels: &'a Levels,
    pub(crate) options: &'a LsmOptions,
    pub(crate) dropped: &'a Dropped,
    pub(crate) persisted: Timestamp,
    pub(crate) needed: &'a Needed,
    /// Only these trees are considered; `None`: all.
    pub(crate) trees: Option<&'a BTreeSet<TreeId>>,
    /// Tables that must not be used for a while.
    pub(crate) put_off: &'a BTreeSet<u64>,
    /// How many bytes a job can write.
    pub(crate) room: u64,
    /// The size of the pieces in which a job without enough room can be done; `None`: it cannot be.
    pub(crate) piece: Option<u64>,
    /// Little room is left, so that even small gains are worth a job.
    pub(crate) tight: bool,
    /// The time, in milliseconds.
    pub(crate) now: i64,
    /// Set if a table was skipped because another job uses it.
    pub(crate) busy: Cell<bool>,
    /// A job that was skipped because there is no room for it.
    pub(crate) roomless: RefCell<Option<Job>>,
}

/// True if a table has versions of these trees.
pub(crate) fn concerns(table: &Table, trees: Option<&BTreeSet<TreeId>>) -> bool {
    let of = &table.properties().trees;
    trees.is_none_or(|trees| of.iter().any(|(tree, _)| trees.contains(tree)))
}

/// Joins spans that touch. The result ascends.
fn join(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by(|a, b| a.first.cmp(&b.first));
    let mut out: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match out.last_mut() {
            Some(last) if span.first <= last.last => {
                if span.last > last.last {
                    last.last = span.last;
                }
            }
            _ => out.push(span),
        }
    }
    out
}

fn span(table: &Table) -> Span {
    Span {
        first: table.first().to_vec(),
        last: table.last().to_vec(),
    }
}

impl Picker<'_> {
    /// The next job. `None` if there is nothing to do, or only what other jobs already do.
    pub(crate) fn pick(&self) -> Option<Job> {
        if let Some(job) = self.discard() {
            return Some(job);
        }
        if self.levels.fresh.len() >= self.options.fresh_runs
            && let Some(job) = self.fresh(|_| true).filter(|job| self.fits(job))
        {
            return Some(job);
        }
        if let Some(job) = self.fullest() {
            return Some(job);
        }
        self.densest()
    }

    /// True for a table that cannot be used: another job uses it, or it is damaged or put off.
    fn is_taken(&self, table: &Table) -> bool {
        let busy = table.busy.load(SeqCst);
        if busy {
            self.busy.set(true);
        }
        busy || table.suspect.load(SeqCst) || self.put_off.contains(&table.id())
    }

    /// The bytes of room that a job needs before it can begin.
    fn needs(&self, job: &Job) -> u64 {
        let all = job.writes();
        self.piece.map_or(all, |piece| all.min(2 * piece))
    }

    /// True if there is room for what a job writes. A job without room is skipped, so that smaller jobs,
    /// which may free room, do not have to wait for it.
    fn fits(&self, job: &Job) -> bool {
        let fits = self.needs(job) <= self.room;
        if !fits {
            self.roomless.replace(Some(Job {
                inputs: job.inputs.clone(),
                spans: job.spans.clone(),
                ..*job
            }));
        }
        fits
    }

    /// How many dead versions a table needs to be compacted for them.
    fn enough(&self) -> u64 {
        (self.options.table_bytes / DEAD_BYTES).clamp(16, DEAD)
    }

    /// A job for dead versions needs one dead entry among this many.
    fn share(&self) -> u64 {
        match self.tight {
            true => TIGHT_SHARE,
            false => DEAD_SHARE,
        }
    }

    /// True if a table has versions of the requested trees.
    pub(crate) fn concerns(&self, table: &Table) -> bool {
        concerns(table, self.trees)
    }

    /// True for a table that could be used but need not be, so that a busy one is not noted as in
    /// [`Picker::is_taken`].
    fn is_free(&self, table: &Table) -> bool {
        let taken = table.busy.load(SeqCst) || table.suspect.load(SeqCst);
        !taken && !self.put_off.contains(&table.id())
    }

    /// A job that removes tables which have nothing but dropped trees.
    pub(crate) fn discard(&self) -> Option<Job> {
        if self.dropped.is_empty() {
            return None;
        }
        let gone = |table: &Arc<Table>| {
            let trees = &table.properties().trees;
            let all = trees
                .iter()
                .all(|t| self.dropped.is_gone(t.0, self.persisted));
            all && self.concerns(table) && !self.is_taken(table)
        };
        let tables: Vec<_> = self.levels.tables().filter(|t| gone(t)).cloned().collect();
        (!tables.is_empty()).then(|| Job {
            action: Action::Discard,
            inputs: vec![tables],
            output: 0,
            spans: Vec::new(),
        })
    }

    /// Merges those parts of the fresh runs into level 1 that have a table for which `wanted` is true.
    pub(crate) fn fresh(&self, wanted: impl Fn(&Table) -> bool) -> Option<Job> {
        let first = self.levels.level(1)?;
        // A part is a group of overlapping tables. All runs of a part must be merged at once, since a newer
        // table must not move below an older one.
        let all = self.levels.fresh.iter().flat_map(|run| run.0.iter());
        let mut parts: Vec<(usize, u64, Span)> = Vec::new();
        let mut moves = Vec::new();
        for part in join(all.map(|t| span(t)).collect()) {
            let mut tables = Vec::new();
            let mut depth = 0;
            for run in &self.levels.fresh {
                let within = run.within(&part.first, &part.last);
                depth += usize::from(!within.is_empty());
                tables.extend(within);
            }
            let beneath = first.within(&part.first, &part.last);
            if !tables.iter().any(|t| wanted(t))
                || tables
                    .iter()
                    .copied()
                    .chain(beneath)
                    .any(|t| self.is_taken(t))
            {
                continue;
            }
            if let ([table], []) = (&tables[..], beneath)
                && table.len() >= self.options.worth(1)
            {
                moves.push((*table).clone());
            }
            let bytes = tables.iter().map(|t| t.len()).sum::<u64>()
                + beneath.iter().map(|t| t.len()).sum::<u64>();
            parts.push((depth, bytes, part));
        }
        if !moves.is_empty() {
            return Some(self.moving(moves, 1));
        }
        parts.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let room = match self.piece {
            Some(_) => JOB,
            None => self.room,
        };
        let mut bytes = 0;
        let mut chosen: Vec<Span> = Vec::new();
        let largest = parts.first().map(|part| part.2.clone());
        for part in parts {
            let first = chosen.is_empty() && (self.piece.is_some() || part.1 <= room);
            if first || bytes + part.1 <= JOB.min(room) {
                bytes += part.1;
                chosen.push(part.2);
            }
        }
        if chosen.is_empty() {
            // No part has room. The largest one is chosen, so that the caller gets the error.
            chosen.extend(largest);
        }
        let chosen = join(chosen);
        let inputs = self.levels.fresh.iter().map(|run| {
            let parts = chosen.iter().flat_map(|s| run.within(&s.first, &s.last));
            parts.cloned().collect()
        });
        self.build(inputs.collect(), 1)
    }

    fn moving(&self, tables: Vec<Arc<Table>>, output: usize) -> Job {
        Job {
            action: Action::Move,
            spans: tables.iter().map(|t| span(t)).collect(),
            inputs: vec![tables],
            output,
        }
    }

    /// The job that merges these tables (by run, newest first), with all that they overlap in level `output`,
    /// into that level. `None` if one of them is busy. Tables of `output` itself may be among them.
    pub(crate) fn build(&self, mut inputs: Vec<Vec<Arc<Table>>>, output: usize) -> Option<Job> {
        inputs.retain(|run| !run.is_empty());
        let base = self.levels.level(output)?;
        let mut taken: BTreeSet<usize> = BTreeSet::new();
        let mut spans = join(inputs.iter().flatten().map(|t| span(t)).collect());
        let table = |i: usize| base.0.get(i);
        for s in &mut spans {
            let range = base.overlapping(&s.first, &s.last);
            for t in base.0.get(range.clone()).unwrap_or_default() {
                if t.first() < &s.first[..] {
                    s.first = t.first().to_vec();
                }
                if t.last() > &s.last[..] {
                    s.last = t.last().to_vec();
                }
            }
            taken.extend(range);
        }
        let mut spans = join(spans);
        // Small neighbours are merged as well, so that many small flushes do not leave many small tables.
        let small = |i: usize| {
            table(i).is_some_and(|t| t.len() < self.options.worth(output) && self.is_free(t))
        };
        for s in &mut spans {
            let range = base.overlapping(&s.first, &s.last);
            if let Some(left) = range.start.checked_sub(1).filter(|i| small(*i))
                && let Some(t) = table(left)
            {
                s.first = t.first().to_vec();
                taken.insert(left);
            }
            if small(range.end)
                && let Some(t) = table(range.end)
            {
                s.last = t.last().to_vec();
                taken.insert(range.end);
            }
        }
        // Two spans with no other table of the level between them are joined.
        let mut joined: Vec<Span> = Vec::new();
        for s in join(spans) {
            if let Some(last) = joined.last_mut()
                && base
                    .overlapping(&last.last, &s.first)
                    .all(|i| taken.contains(&i))
            {
                last.last = s.last;
            } else {
                joined.push(s);
            }
        }
        let upper: BTreeSet<u64> = inputs.iter().flatten().map(|t| t.id()).collect();
        let lower: Vec<_> = taken
            .iter()
            .filter_map(|i| table(*i))
            .filter(|t| !upper.contains(&t.id()))
            .cloned()
            .collect();
        if !lower.is_empty() {
            inputs.push(lower);
        }
        let job = Job {
            action: Action::Merge,
            inputs,
            output,
            spans: joined,
        };
        (!job.tables().any(|t| self.is_taken(t)) && job.tables().next().is_some()).then_some(job)
    }

    /// A job for the level that exceeds its size by most. It moves tables that overlap nothing of the next
    /// level, or else merges the table that overlaps least into it.
    fn fullest(&self) -> Option<Job> {
        let over = |level: &usize| {
            let bytes = self.levels.level(*level).map_or(0, Run::bytes);
            bytes as f64 / self.options.capacity(*level) as f64
        };
        let mut full: Vec<usize> = (1..DEPTH).filter(|level| over(level) > 1.0).collect();
        full.sort_by(|a, b| over(b).total_cmp(&over(a)));
        full.into_iter().find_map(|level| {
            let (run, next) = (self.levels.level(level)?, self.levels.level(level + 1)?);
            let mut excess = run.bytes().saturating_sub(self.options.capacity(level));
            let mut moves = Vec::new();
            let mut best: Option<(f64, &Arc<Table>)> = None;
            for t in run.0.iter().filter(|t| !self.is_taken(t)) {
                let beneath = next.within(t.first(), t.last());
                // A small table is rewritten with its small neighbours instead of being moved. Otherwise the
                // number of files would keep growing where rows are only added at the end.
                if beneath.is_empty() && excess > 0 && t.len() >= self.options.worth(level + 1) {
                    excess = excess.saturating_sub(t.len());
                    moves.push(t.clone());
                }
                if beneath.iter().any(|t| self.is_taken(t)) {
                    continue;
                }
                let bytes: u64 = beneath.iter().map(|t| t.len()).sum();
                if best.is_some() && bytes + t.len() > self.room {
                    continue;
                }
                let price = bytes as f64 / t.len().max(1) as f64;
                if best.is_none_or(|(p, _)| price < p) {
                    best = Some((price, t));
                }
            }
            if !moves.is_empty() {
                return Some(self.moving(moves, level + 1));
            }
            self.build(vec![vec![best?.1.clone()]], level + 1)
                .filter(|job| self.fits(job))
        })
    }

    /// How many versions of a tree in a table are dead and could be removed by rewriting the table in its
    /// level; and how many tombstones could be removed after a merge with the levels beneath.
    fn dead(&self, table: &Table, level: usize, i: usize) -> (u64, u64) {
        let p = table.properties();
        let Some((tree, counts)) = p.trees.get(i) else {
            return (0, 0);
        };
        if self.dropped.is_gone(*tree, self.persisted) {
            return (counts.entries, 0);
        }
        let mut here = 0;
        let mut sinking = 0;
        if self.needed.nobody_before(p.superseder) {
            here += counts.superseded;
        }
        if counts.tombstones > 0 && self.needed.nobody_before(p.deletion) {
            let part = part_of(table, *tree);
            let covered = (level + 1..=DEPTH)
                .filter_map(|l| self.levels.level(l))
                .any(|run| !run.within(&part.first, &part.last).is_empty());
            if covered {
                sinking = counts.tombstones;
            } else {
                here += counts.tombstones;
            }
        }
        (here, sinking)
    }

    /// True if rewriting a table of a deep level where it is would remove something.
    pub(crate) fn has_dead(&self, table: &Table, level: usize) -> bool {
        (0..table.properties().trees.len()).any(|i| self.dead(table, level, i).0 > 0)
    }

    /// True if dropped trees take so much of a table that it is worth a job: a good part of it; or, if the
    /// table was not rewritten for another reason for long enough, more than a little.
    fn has_dropped(&self, table: &Table) -> bool {
        if self.dropped.is_empty() {
            return false;
        }
        let (mut all, mut gone, mut old) = (0, 0, 0);
        for (tree, counts) in &table.properties().trees {
            all += counts.bytes;
            if self.dropped.is_gone(*tree, self.persisted) {
                gone += counts.bytes.max(1);
            }
            let wait = if self.tight { 0 } else { DROPPED_WAIT };
            let since = self.now.saturating_sub(wait);
            if self.dropped.is_gone_since(*tree, self.persisted, since) {
                old += counts.bytes.max(1);
            }
        }
        let least = (self.options.table_bytes / DROPPED_LEAST).max(1);
        gone > 0 && gone * DROPPED_SHARE >= all || old >= least && old * DROPPED_LITTLE >= all
    }

    /// A job for the table with the largest share of dead versions.
    fn densest(&self) -> Option<Job> {
        if let Some(job) = self.dense_fresh() {
            return Some(job);
        }
        for level in 1..=DEPTH {
            let Some(run) = self.levels.level(level) else {
                continue;
            };
            for table in run.0.iter().filter(|t| !self.is_taken(t)) {
                let p = table.properties();
                let (mut here, mut sink) = (u64::from(self.has_dropped(table)), false);
                for (i, (tree, counts)) in p.trees.iter().enumerate() {
                    if self.dropped.is_gone(*tree, self.persisted) {
                        continue;
                    }
                    let (stays, sinking) = self.dead(table, level, i);
                    // One tree whose versions are mostly dead is enough, because a scan of it meets little
                    // else.
                    if stays >= self.enough() && stays * self.share() >= counts.entries {
                        here += stays;
                    }
                    if sinking >= self.enough() && sinking * self.share() >= counts.entries {
                        let beneath = self.levels.level(level + 1);
                        let part = part_of(table, *tree);
                        let entries = beneath.map_or(Some(0), |r| under(r, &part));
                        sink |=
                            entries.is_some_and(|n| sinking * self.share() >= counts.entries + n);
                    }
                }
                let job = if sink {
                    self.sink(table, level)
                } else if here > 0 {
                    self.build(vec![vec![table.clone()]], level)
                } else {
                    None
                };
                let job = job.filter(|job| self.fits(job));
                if job.is_some() {
                    return job;
                }
            }
        }
        None
    }

    /// How many removable tombstones of a tree the fresh runs have in a span, approximately; `None` if that
    /// cannot be read.
    fn fresh_tombstones(&self, tree: TreeId, part: &Span) -> Option<u64> {
        let runs = self.levels.fresh.iter();
        let tables = runs.flat_map(|run| run.within(&part.first, &part.last));
        tables
            .filter(|table| self.needed.nobody_before(table.properties().deletion))
            .filter_map(|table| Some((table, table.properties().tree(tree)?)))
            .map(|(table, counts)| {
                let (some, _) = share_within(table, part)?;
                let (all, _) = share_within(table, &part_of(table, tree))?;
                let here = u128::from(counts.tombstones) * u128::from(some.min(all));
                Some((here / u128::from(all.max(1))) as u64)
            })
            .sum()
    }

    /// A job that moves a table one level down.
    pub(crate) fn sink(&self, table: &Arc<Table>, level: usize) -> Option<Job> {
        let next = self.levels.level(level + 1)?;
        if next.within(table.first(), table.last()).is_empty() {
            return Some(self.moving(vec![table.clone()], level + 1));
        }
        self.build(vec![vec![table.clone()]], level + 1)
    }

    fn dense_fresh(&self) -> Option<Job> {
        let first = self.levels.level(1)?;
        let merged = |table: &Arc<Table>| {
            let id = table.id();
            self.fresh(|t| t.id() == id).filter(|job| self.fits(job))
        };
        let fresh = || self.levels.fresh.iter().flat_map(|run| run.0.iter());
        for table in fresh().filter(|t| !self.is_taken(t)) {
            if self.has_dropped(table)
                && let Some(job) = merged(table)
            {
                return Some(job);
            }
            let p = table.properties();
            if !self.needed.nobody_before(p.deletion) {
                continue;
            }
            for (tree, counts) in &p.trees {
                let few = counts.tombstones < self.enough();
                if few || counts.tombstones * self.share() < counts.entries {
                    continue;
                }
                let part = part_of(table, *tree);
                // Overlapping tables are merged together, so their tombstones count together: each alone may
                // have too few.
                let Some(dead) = self.fresh_tombstones(*tree, &part) else {
                    continue;
                };
                let runs = self.levels.fresh.iter().chain([first]);
                let entries = runs.map(|run| under(run, &part)).sum::<Option<u64>>();
                if entries.is_some_and(|n| dead * self.share() >= n)
                    && let Some(job) = merged(table)
                {
                    return Some(job);
                }
            }
        }
        None
    }
}

/// The part of a table that belongs to one tree.
fn part_of(table: &Table, tree: TreeId) -> Span {
    let first = internal_key(tree, &[]);
    let last = tree_end(tree).unwrap_or_else(|| table.last().to_vec());
    Span {
        first: first.max(table.first().to_vec()),
        last: last.min(table.last().to_vec()),
    }
}

/// How many versions a run has in a span, approximately; `None` if that cannot be read.
fn under(run: &Run, span: &Span) -> Option<u64> {
    let tables = run.within(&span.first, &span.last).iter();
    let entries = tables.map(|table| {
        let (some, all) = share_within(table, span)?;
        let part = u128::from(table.properties().total.entries) * u128::from(some);
        Some((part / u128::from(all.max(1))) as u64)
    });
    entries.sum()
}

/// The part of a table's bytes that is within a span, and all of its bytes; `None` if that cannot be read. (A
/// table that is found damaged is no longer used from then on; a read of it reports the damage.)
fn share_within(table: &Table, span: &Span) -> Option<(u64, u64)> {
    let end = table.end();
    if table.first() >= &span.first[..] && table.last() <= &span.last[..] {
        return Some((end, end));
    }
    let offset = |key: &[u8]| {
        table
            .offset_of(key)
            .inspect_err(|e| {
                if e.code() == Code::DataCorruptionDetected {
                    table.suspect.store(true, SeqCst);
                }
            })
            .ok()
    };
    let low = offset(&span.first)?;
    let high = match table.last() <= &span.last[..] {
        true => end,
        false => offset(&span.last)?,
    };
    Some((high.saturating_sub(low), end))
}
