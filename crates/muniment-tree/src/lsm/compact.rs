//! Runs compactions.

use super::error::io;
use super::flush::FIRST_PAUSE;
use super::merge::{Keep, Merge, Source};
use super::output::Output;
use super::pick::{Action, Job, Picker, Span, concerns};
use super::shared::{Claim, Edit, Shared, Work, suspicion};
use super::state::{DEPTH, Levels, Run, State};
use super::still::Pulse;
use super::table::Table;
use crate::TreeId;
use muniment_value::{Code, Error, Result};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// How often a thread without work looks whether views that ended made something dead.
const LOOK: Duration = Duration::from_secs(1);

/// A job that has its tables and spans. Gives them back when dropped.
pub(crate) struct Claimed<'a> {
    shared: &'a Shared,
    job: Job,
    number: u64,
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

/// What came of asking for a job.
enum Taken<'a> {
    Job(Claimed<'a>),
    /// There is one, but a job that runs has what it needs.
    Busy,
    Nothing,
}

impl Shared {
    /// Picks a job and takes hold of it. Tables in `put_off` are left alone.
    fn claim(
        &self,
        trees: Option<&BTreeSet<TreeId>>,
        put_off: &BTreeSet<u64>,
        pick: impl FnOnce(&Picker<'_>) -> Option<Job>,
    ) -> Result<Taken<'_>> {
        let mut claims = self.claims.lock();
        let (state, dropped, needed) = (self.state(), self.dropped.now(), self.views.needed());
        let dir = &self.options.dir;
        let free = self.options.disk.free_space(dir);
        let free = free.map_err(|e| io("asking for the free space of", dir, &e))?;
        let free = free.saturating_sub(claims.iter().map(|c| c.bytes).sum());
        let picker = Picker {
            levels: &state.levels,
            options: &self.options,
            dropped: &dropped,
            persisted: self.persisted(),
            needed: &needed,
            trees,
            put_off,
            room: free,
            now: self.now(),
            busy: Cell::new(false),
            roomless: RefCell::default(),
        };
        let job = match pick(&picker) {
            Some(job) => job,
            // Told, and put off, only when there is nothing else to be done.
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
        // Whatever was picked: what another job reads is its own until it ends.
        if job.tables().any(|t| t.busy.load(SeqCst)) {
            return Ok(Taken::Busy);
        }
        let bytes = job.writes();
        self.check_space(bytes, free)
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
        }))
    }

    /// May a job write `bytes` where so many are free? One that would run into the end of the disk
    /// would have written for nothing, and taken the space of a flush.
    fn check_space(&self, bytes: u64, free: u64) -> Result<()> {
        if bytes <= free {
            return Ok(());
        }
        // In whole megabytes, so that the same cause has the same words for a while.
        Err(Error::new(
            Code::OutOfDiskSpace,
            format!(
                "out of disk space in {}: a compaction may need {} MB, and {} MB are free for it",
                self.options.dir.display(),
                bytes.div_ceil(1 << 20),
                free >> 20
            ),
        ))
    }

    /// Runs a job; false if it gave up for somebody who wants the files to stand still. Nothing
    /// has changed then, nor when it fails.
    fn run(&self, claimed: &Claimed<'_>, interrupt: &dyn Fn() -> Result<()>) -> Result<bool> {
        let job = &claimed.job;
        let names = self.names();
        let mut edit = Edit {
            remove: job.tables().cloned().collect(),
            level: job.output,
            ..Edit::default()
        };
        match job.action {
            Action::Discard => {}
            Action::Move => edit.add = edit.remove.clone(),
            Action::Merge => {
                let Some(add) = self.merge(job, interrupt)? else {
                    return Ok(false);
                };
                edit.add = add;
                edit.names = (!edit.add.is_empty()).then_some(names);
            }
        }
        let add = edit.add.clone();
        self.commit(edit).inspect_err(|_| {
            if job.action == Action::Merge {
                for table in &add {
                    table.condemn();
                }
            }
        })?;
        self.failures.forget(job.tables());
        self.dropped.forget(&self.state(), self.persisted());
        Ok(true)
    }

    fn merge(
        &self,
        job: &Job,
        interrupt: &dyn Fn() -> Result<()>,
    ) -> Result<Option<Vec<Arc<Table>>>> {
        let levels = self.state().levels.clone();
        let deeper = (job.output + 1..=DEPTH).filter_map(|l| levels.level(l).cloned());
        let next: Run = levels.level(job.output + 1).cloned().unwrap_or_default();
        let dropped = self.dropped.now();
        let (needed, cut) = (self.views.needed(), self.persisted());
        let mut keep = Keep::new(needed, dropped, cut, deeper.collect());
        let inputs = job.inputs.iter().cloned();
        let mut merge = Merge::new(inputs.map(Source::tables).collect());
        let ends = job.spans.iter().map(|s| s.last.clone()).collect();
        let mut output = Output::new(self, job.output, next, ends, &self.compacted);
        let mut pulse = Pulse::default();
        while merge.step()? {
            if let Some((key, at, value)) = merge.version() {
                if pulse.beat(value.map_or(0, <[u8]>::len)) {
                    interrupt()?;
                    if self.still.is_wanted() {
                        return Ok(None);
                    }
                }
                if keep.keeps(key, at, value.is_none()) {
                    output.add(key, at, value)?;
                }
            }
        }
        output.finish().map(Some)
    }

    /// One step of background work: false if there is none.
    ///
    /// # Errors
    /// What failed; everything is as before then.
    pub(crate) fn compact_once(&self, interrupt: &dyn Fn() -> Result<()>) -> Result<bool> {
        let Some(_working) = self.still.try_work() else {
            return Ok(false);
        };
        let put_off = self.failures.put_off(&self.state().levels, self.now());
        let Taken::Job(claimed) = self.claim(None, &put_off, |p| p.pick())? else {
            return Ok(false);
        };
        let result = self.run(&claimed, interrupt);
        // One that was told to end did not fail.
        if let Err(e) = &result
            && interrupt().is_ok()
        {
            self.failures.add(claimed.job.tables(), e, self.now());
        }
        result
    }

    /// A thread that compacts.
    pub(crate) fn compactor(&self) {
        let interrupt = || self.unless_closed();
        while interrupt().is_ok() {
            let result = self.compact_once(&interrupt);
            // What failed is among the failures; this is of a panic that is over.
            self.report(Work::Compaction, &Ok(()));
            match result {
                Ok(true) => {}
                Ok(false) => self.wait(LOOK, || false),
                // What it was about is put off; others are not.
                Err(_) => self.wait_out(FIRST_PAUSE),
            }
        }
    }

    /// Rewrites all that has something to give up: see [`Trees::compact`](crate::Trees::compact).
    ///
    /// # Errors
    /// What failed; whatever `interrupt` says.
    pub(crate) fn compact_all(
        &self,
        trees: Option<&[TreeId]>,
        interrupt: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let trees: Option<BTreeSet<TreeId>> = trees.map(|t| t.iter().copied().collect());
        let trees = trees.as_ref();
        self.flush_unless(interrupt)?;
        // Each stage takes the tables that are there when it begins, so that it ends.
        self.stage(interrupt, trees, |_| true, |p, _| p.discard())?;
        let state = self.state();
        let fresh = ids(state.levels.fresh.iter());
        self.stage(
            interrupt,
            trees,
            |levels| has_any(levels.fresh.iter(), &fresh, trees),
            |p, _| p.fresh(|t| p.concerns(t) && fresh.contains(&t.id())),
        )?;
        for level in 1..DEPTH {
            let first = ids(self.state().levels.level(level));
            // Down, if anything beneath may be hidden or hide something.
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
        // What was left alone is not to be taken for done.
        let state = self.state();
        let mut tables = state.levels.tables().filter(|t| concerns(t, trees));
        match tables.find_map(suspicion) {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// Runs jobs until `left` says that nothing is, or there is none. For jobs of others it waits
    /// only where they have what it needs.
    fn stage(
        &self,
        interrupt: &dyn Fn() -> Result<()>,
        trees: Option<&BTreeSet<TreeId>>,
        left: impl Fn(&Levels) -> bool,
        pick: impl Fn(&Picker<'_>, &State) -> Option<Job>,
    ) -> Result<()> {
        loop {
            interrupt()?;
            let state = self.state();
            if !left(&state.levels) {
                return Ok(());
            }
            let working = self.still.work(interrupt)?;
            match self.claim(trees, &BTreeSet::new(), |p| pick(p, &state))? {
                Taken::Job(claimed) => {
                    self.run(&claimed, interrupt)?;
                }
                Taken::Nothing => return Ok(()),
                Taken::Busy => {
                    drop(working);
                    self.wait(Duration::from_millis(20), || false);
                }
            }
        }
    }

    /// As [`Shared::stage`], for each of these tables of a level alone.
    fn each(
        &self,
        interrupt: &dyn Fn() -> Result<()>,
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
                |p, _| {
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
