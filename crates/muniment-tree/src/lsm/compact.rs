//! Runs compactions.

use super::flush::longer;
use super::merge::{Keep, Merge, Source};
use super::output::Output;
use super::pick::{Action, Job, Picker, Span};
use super::shared::{Edit, Shared, Work};
use super::state::{DEPTH, Levels, Run, State};
use super::table::Table;
use crate::TreeId;
use muniment_value::Result;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Versions between two questions whether to go on.
const ASK: u64 = 1024;

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
        claims.retain(|c| c.0 != self.number);
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

impl Shared {
    /// Picks a job and takes hold of it.
    fn claim(
        &self,
        trees: Option<&BTreeSet<TreeId>>,
        pick: impl FnOnce(&Picker<'_>) -> Result<Option<Job>>,
    ) -> Result<Option<Claimed<'_>>> {
        let mut claims = self.claims.lock();
        let (state, dropped, needed) = (self.state(), self.dropped.now(), self.views.needed());
        let picker = Picker {
            levels: &state.levels,
            options: &self.options,
            dropped: &dropped,
            persisted: self.persisted(),
            needed: &needed,
            trees,
        };
        let Some(job) = pick(&picker)? else {
            return Ok(None);
        };
        let mut others = claims.iter().filter(|c| c.1 == job.output);
        if others.any(|c| c.2.iter().any(|a| job.spans.iter().any(|b| meet(a, b)))) {
            return Ok(None);
        }
        // Whatever was picked: what another job reads is its own until it ends.
        if job.tables().any(|t| t.busy.load(SeqCst)) {
            return Ok(None);
        }
        for table in job.tables() {
            table.busy.store(true, SeqCst);
        }
        let number = claims.iter().map(|c| c.0).max().unwrap_or(0) + 1;
        claims.push((number, job.output, job.spans.clone()));
        Ok(Some(Claimed {
            shared: self,
            job,
            number,
        }))
    }

    /// Runs a job. Nothing has changed when it fails.
    fn run(&self, claimed: &Claimed<'_>, interrupt: &dyn Fn() -> Result<()>) -> Result<()> {
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
                edit.add = self.merge(job, interrupt)?;
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
        self.dropped.forget(&self.state(), self.persisted());
        Ok(())
    }

    fn merge(&self, job: &Job, interrupt: &dyn Fn() -> Result<()>) -> Result<Vec<Arc<Table>>> {
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
        let mut n = 0u64;
        while merge.step()? {
            n += 1;
            if n.is_multiple_of(ASK) {
                interrupt()?;
            }
            if let Some((key, at, value)) = merge.version()
                && keep.keeps(key, at, value.is_none())
            {
                output.add(key, at, value)?;
            }
        }
        output.finish()
    }

    /// One step of background work: false if there is none.
    ///
    /// # Errors
    /// What failed; everything is as before then.
    pub(crate) fn compact_once(&self, interrupt: &dyn Fn() -> Result<()>) -> Result<bool> {
        match self.claim(None, |picker| picker.pick())? {
            Some(claimed) => self.run(&claimed, interrupt).map(|()| true),
            None => Ok(false),
        }
    }

    /// A thread that compacts.
    pub(crate) fn compactor(&self) {
        let interrupt = || match self.closed.load(SeqCst) {
            true => Err(Shared::closing()),
            false => Ok(()),
        };
        let mut pause = Duration::ZERO;
        while interrupt().is_ok() {
            let result = self.compact_once(&interrupt);
            match &result {
                Ok(true) => pause = Duration::ZERO,
                Ok(false) => {
                    pause = Duration::ZERO;
                    self.wait(LOOK, || false);
                }
                Err(_) => pause = longer(pause),
            }
            if interrupt().is_ok() {
                self.report(Work::Compaction, &result.map(|_| ()));
                if !pause.is_zero() {
                    self.wait_out(pause);
                }
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
        self.flush()?;
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
        Ok(())
    }

    /// Runs jobs until `left` says that nothing is, or there is none to get and nobody else at
    /// work.
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
            match self.claim(trees, |p| Ok(pick(p, &state)))? {
                Some(claimed) => self.run(&claimed, interrupt)?,
                None if self.claims.lock().is_empty() => return Ok(()),
                None => self.wait(Duration::from_millis(20), || false),
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
    let concerns = |t: &Table| {
        let of = &t.properties().trees;
        trees.is_none_or(|trees| of.iter().any(|(tree, _)| trees.contains(tree)))
    };
    let mut tables = runs.into_iter().flat_map(|run| run.0.iter());
    tables.any(|t| ids.contains(&t.id()) && concerns(t))
}
