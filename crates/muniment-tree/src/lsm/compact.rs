//! Runs compactions.

use super::flush::{FIRST_PAUSE, Open};
use super::idle::For;
use super::merge::{Keep, Merge, Source};
use super::output::Output;
use super::pick::{Action, Job, Picker, Span, concerns};
use super::shared::{Claim, Edit, Shared, Work, suspicion};
use super::state::{DEPTH, Levels, Run};
use super::still::Pulse;
use super::table::Table;
use crate::TreeId;
use muniment_op::{Interrupt, NeverInterrupted};
use muniment_value::Result;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// How often an idle thread checks whether versions have become dead because views have ended.
const LOOK: Duration = Duration::from_secs(1);

/// Little room is left if less than this part of the disk is free and also less than `TIGHT_BYTES`.
const TIGHT: u64 = 5;
const TIGHT_BYTES: u64 = 1 << 30;

/// A piece ends when it is full. It also ends when this many times its bytes were read, of which few were
/// kept.
const READ: u64 = 8;

/// A job with the tables and spans that it has claimed. Dropping it gives them back.
pub(crate) struct Claimed<'a> {
    shared: &'a Shared,
    pub(crate) job: Job,
    pub(crate) number: u64,
    /// The bytes after which the output takes the place of the input that it was made of; `None`: only at the
    /// end.
    pub(crate) piece: Option<u64>,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        let mut claims = self.shared.claims.lock();
        claims.retain(|c| c.number != self.number);
        for table in self.job.tables() {
            table.busy.store(false, SeqCst);
        }
        drop(claims);
        self.shared.notify();
    }
}

fn meet(a: &Span, b: &Span) -> bool {
    a.first <= b.last && b.first <= a.last
}

/// The outcome of asking for a job.
enum Taken<'a> {
    Job(Claimed<'a>),
    /// There is a job, but a running one has claimed something that it needs.
    Busy,
    Nothing,
}

impl Shared {
    /// Picks a job and claims its tables and spans. Tables in `put_off` are not used.
    fn claim(
        &self,
        trees: Option<&BTreeSet<TreeId>>,
        put_off: &BTreeSet<u64>,
        pick: impl FnOnce(&Picker<'_>) -> Option<Job>,
    ) -> Result<Taken<'_>> {
        // Frees room first: files that are no longer needed. The caller may change files, since it asks for a
        // job.
        self.trash.empty();
        let mut claims = self.claims.lock();
        let (state, dropped, needed) = (self.state(), self.dropped.now(), self.views.needed());
        let space = self.space_beside(claims.iter())?;
        let piece = self.options.piece(space);
        let piece = self.trash.frees_fronts().then_some(piece);
        let picker = Picker {
            levels: &state.levels,
            options: &self.options,
            dropped: &dropped,
            persisted: self.persisted(),
            needed: &needed,
            trees,
            put_off,
            room: space.free,
            piece,
            tight: space.total != u64::MAX && space.free < TIGHT_BYTES.min(space.total / TIGHT),
            now: self.now(),
            busy: Cell::new(false),
            roomless: RefCell::default(),
        };
        let job = match pick(&picker) {
            Some(job) => job,
            // A job without room is reported and put off only if there is nothing else to do.
            None => match picker.roomless.take() {
                Some(job) => job,
                None if picker.busy.get() => return Ok(Taken::Busy),
                None => return Ok(Taken::Nothing),
            },
        };
        let mut others = claims.iter().filter(|c| c.output == job.output);
        if others.any(|c| c.spans.iter().any(|a| job.spans.iter().any(|b| meet(a, b)))) {
            return Ok(Taken::Busy);
        }
        // Whichever way the job was picked, tables that another job reads are that job's until it ends.
        if job.tables().any(|t| t.busy.load(SeqCst)) {
            return Ok(Taken::Busy);
        }
        let all = job.writes();
        let piece = piece.filter(|_| all > space.free / 4 || picker.tight);
        let bytes = piece.map_or(all, |piece| all.min(2 * piece));
        self.check_space(bytes, space.free)
            .inspect_err(|e| self.failures.add(job.tables(), e, self.now()))?;
        for table in job.tables() {
            table.busy.store(true, SeqCst);
        }
        let number = claims.iter().map(|c| c.number).max().unwrap_or(0) + 1;
        claims.push(Claim {
            number,
            output: job.output,
            spans: job.spans.clone(),
            bytes,
        });
        Ok(Taken::Job(Claimed {
            shared: self,
            job,
            number,
            piece,
        }))
    }

    /// Runs a job. Returns false if it gave way because the files are to stand still. In that case, and if it
    /// fails, nothing has changed except for the pieces that were complete.
    fn run(&self, claimed: &mut Claimed<'_>, interrupt: &dyn Interrupt) -> Result<bool> {
        if claimed.job.action == Action::Merge {
            return self.merge(claimed, interrupt);
        }
        let job = &claimed.job;
        let mut edit = Edit {
            remove: job.tables().cloned().collect(),
            level: job.output,
            ..Edit::default()
        };
        if job.action == Action::Move {
            edit.add.clone_from(&edit.remove);
        }
        self.commit(edit)?;
        self.failures.forget(job.tables());
        self.dropped.forget(&self.state(), self.persisted());
        Ok(true)
    }

    fn merge(&self, claimed: &mut Claimed<'_>, interrupt: &dyn Interrupt) -> Result<bool> {
        let job = &claimed.job;
        // The state is not kept, because it also holds the inputs, whose room the pieces are to free.
        let (deeper, next) = {
            let levels = &self.state().levels;
            let deeper = (job.output + 1..=DEPTH).filter_map(|l| levels.level(l).cloned());
            let next: Run = levels.level(job.output + 1).cloned().unwrap_or_default();
            (deeper.collect(), next)
        };
        let dropped = self.dropped.now();
        let (needed, cut) = (self.views.needed(), self.persisted());
        let mut keep = Keep::new(needed, dropped, cut, deeper);
        let inputs = job.inputs.iter().cloned();
        let mut merge = Merge::new(inputs.map(Source::tables).collect());
        let ends = job.spans.iter().map(|s| s.last.clone()).collect();
        let mut output = Output::new(self, job.output, next, ends, &self.compacted);
        let mut names = self.names();
        let mut pulse = Pulse::default();
        let mut read = 0;
        while merge.step()? {
            let Some((key, at, value)) = merge.version() else {
                continue;
            };
            let bytes = value.map_or(0, <[u8]>::len);
            if pulse.beat(bytes) {
                interrupt.check()?;
                if self.still.is_wanted() {
                    return Ok(false);
                }
            }
            if let Some(piece) = claimed.piece
                && (read >= READ * piece || output.bytes() >= piece)
                && output.may_end_before(key)
            {
                let key = key.to_vec();
                self.put_in_place(&mut claimed.job, output.take()?, names, Some(&key))?;
                claimed.piece = Some(self.next_piece(claimed, interrupt)?);
                names = self.names();
                read = 0;
            }
            read += (key.len() + bytes) as u64;
            if keep.keeps(key, at, value.is_none()) {
                output.add(key, at, value)?;
            }
        }
        let add = output.finish()?;
        self.put_in_place(&mut claimed.job, add, names, None)?;
        Ok(true)
    }

    /// Does one step of background work. Returns false if there is none.
    ///
    /// # Errors
    /// The error of the step; nothing has changed then, except for pieces that were complete.
    pub(crate) fn compact_once(&self, interrupt: &dyn Interrupt) -> Result<bool> {
        let Some(_working) = self.still.try_work() else {
            return Ok(false);
        };
        let put_off = self.failures.put_off(&self.state().levels, self.now());
        let Taken::Job(mut claimed) = self.claim(None, &put_off, |p| p.pick())? else {
            return Ok(false);
        };
        let result = self.run(&mut claimed, interrupt);
        // A step that was interrupted has not failed.
        if let Err(e) = &result
            && interrupt.check().is_ok()
        {
            self.failures.add(claimed.job.tables(), e, self.now());
        }
        result
    }

    /// The loop of a thread that compacts.
    pub(crate) fn compactor(&self) {
        let interrupt = Open {
            shared: self,
            interrupt: &NeverInterrupted,
        };
        while interrupt.check().is_ok() {
            let before = self.moves.load(SeqCst);
            let result = self.compact_once(&interrupt);
            // Ends a report of a panic. Errors of jobs are among the failures.
            self.report(Work::Compaction, &Ok(()));
            match result {
                Ok(true) => {}
                Ok(false) => self.wait(For::Job, LOOK, || self.moves.load(SeqCst) != before),
                // The tables of the failed job are put off; other jobs continue.
                Err(_) => self.wait_out(FIRST_PAUSE),
            }
        }
    }

    /// Rewrites everything that has dead versions: see [`Trees::compact`](crate::Trees::compact).
    ///
    /// # Errors
    /// The error of a job; the interrupt.
    pub(crate) fn compact_all(
        &self,
        trees: Option<&[TreeId]>,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let trees: Option<BTreeSet<TreeId>> = trees.map(|t| t.iter().copied().collect());
        let trees = trees.as_ref();
        self.flush_unless(interrupt)?;
        // Each stage takes only the tables that exist when it begins, so that it comes to an end.
        self.stage(interrupt, trees, |_| true, |p| p.discard())?;
        let fresh = ids(self.state().levels.fresh.iter());
        self.stage(
            interrupt,
            trees,
            |levels| has_any(levels.fresh.iter(), &fresh, trees),
            |p| p.fresh(|t| p.concerns(t) && fresh.contains(&t.id())),
        )?;
        for level in 1..DEPTH {
            let first = ids(self.state().levels.level(level));
            // Moves the table down if a deeper table may have something that it hides, or is hidden by.
            self.each(interrupt, trees, level, &first, |p, t| {
                let mut deeper = (level + 1..=DEPTH).filter_map(|l| p.levels.level(l));
                let covered = deeper.any(|run| !run.within(t.first(), t.last()).is_empty());
                covered.then(|| p.sink(t, level)).flatten()
            })?;
        }
        for level in 1..=DEPTH {
            let first = ids(self.state().levels.level(level));
            self.each(interrupt, trees, level, &first, |p, t| {
                let dead = p.has_dead(t, level);
                dead.then(|| p.build(vec![vec![t.clone()]], level))
                    .flatten()
            })?;
        }
        // A damaged table was left alone, which must not be reported as success.
        let state = self.state();
        let mut tables = state.levels.tables().filter(|t| concerns(t, trees));
        match tables.find_map(suspicion) {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// Runs jobs until `left` is false or there is no job. It waits for the jobs of other threads only if
    /// they have claimed what it needs.
    fn stage(
        &self,
        interrupt: &dyn Interrupt,
        trees: Option<&BTreeSet<TreeId>>,
        left: impl Fn(&Levels) -> bool,
        pick: impl Fn(&Picker<'_>) -> Option<Job>,
    ) -> Result<()> {
        loop {
            interrupt.check()?;
            // The state is not kept: a job in pieces needs the files of old states to be freed.
            if !left(&self.state().levels) {
                return Ok(());
            }
            let before = self.moves.load(SeqCst);
            let working = self.still.work(interrupt)?;
            match self.claim(trees, &BTreeSet::new(), &pick)? {
                Taken::Job(mut claimed) => {
                    self.run(&mut claimed, interrupt)?;
                }
                Taken::Nothing => return Ok(()),
                Taken::Busy => {
                    drop(working);
                    let moved = || self.moves.load(SeqCst) != before;
                    self.moved.wait(interrupt, moved)?;
                }
            }
        }
    }

    /// Runs a stage for each of these tables of a level alone, as [`Shared::stage`] does.
    fn each(
        &self,
        interrupt: &dyn Interrupt,
        trees: Option<&BTreeSet<TreeId>>,
        level: usize,
        tables: &BTreeSet<u64>,
        pick: impl Fn(&Picker<'_>, &Arc<Table>) -> Option<Job>,
    ) -> Result<()> {
        for id in tables {
            let only = BTreeSet::from([*id]);
            self.stage(
                interrupt,
                trees,
                |levels| has_any(levels.level(level), &only, trees),
                |p| {
                    let run = p.levels.level(level)?;
                    let table = run.0.iter().find(|t| t.id() == *id && p.concerns(t))?;
                    pick(p, table)
                },
            )?;
        }
        Ok(())
    }
}

fn ids<'a>(runs: impl IntoIterator<Item = &'a Run>) -> BTreeSet<u64> {
    let tables = runs.into_iter().flat_map(|run| run.0.iter());
    tables.map(|t| t.id()).collect()
}

fn has_any<'a>(
    runs: impl IntoIterator<Item = &'a Run>,
    ids: &BTreeSet<u64>,
    trees: Option<&BTreeSet<TreeId>>,
) -> bool {
    let mut tables = runs.into_iter().flat_map(|run| run.0.iter());
    tables.any(|t| ids.contains(&t.id()) && concerns(t, trees))
}
