//! Runs plans: stages give rows in small steps.
//!
//! A stage works until it has a row, has come to its end, or has used up its budget of steps; then
//! the operation is asked whether it may go on. Between batches, a stage can be told to release its
//! storage cursors; later it continues after the last row it saw, on a newer snapshot. This module
//! must not know cursors or commands.

pub(crate) mod announce;
pub(crate) mod choose;
pub(crate) mod combine;
pub(crate) mod current;
pub(crate) mod exec;
pub(crate) mod merge;
mod metadata;
pub(crate) mod near;
pub(crate) mod recipe;
pub(crate) mod scan;
pub(crate) mod seen;
pub(crate) mod sort;
pub(crate) mod text;

use crate::operation::OpContext;
use bytes::Bytes;
use current::CurrentOp;
use muniment_query::running::Work;
use muniment_query::{Interrupt, MatchInfo, NeverInterrupted};
use muniment_storage::{Collection, Index, Snapshot, Store, Timestamp};
use muniment_value::path::Path;
use muniment_value::{Code, DocBuf, Error, Result, doc, keyenc};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The unit that flows between stages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    /// The record's key.
    pub record_key: Bytes,
    /// The document; empty before it is fetched.
    pub doc: Bytes,
    /// The index key by which the row was found; empty without an index.
    pub key: Bytes,
    /// The key's type bits.
    pub bits: Bytes,
    /// What matching found out, such as the position in an array.
    pub info: MatchInfo,
}

/// The result of one step.
pub(crate) enum Step {
    /// The next row.
    Row(Row),
    /// The budget is used up: the caller asks the operation and calls again.
    Pause,
    /// There is nothing more; for a tailable scan, nothing more for now.
    Eof,
}

/// The context that stages share while they run.
pub(crate) struct Cx {
    /// The store.
    pub store: Arc<Store>,
    /// The collection.
    pub collection: Arc<Collection>,
    /// The snapshot, which is opened when it is needed.
    snapshot: Option<Snapshot>,
    /// The time of the first snapshot. Of a sharded collection, later ones show what the shard owned then, since the
    /// rest is read from other shards.
    began: Option<Timestamp>,
    /// The source of the snapshot, if the plan is one of several of a command.
    shared: Option<Arc<CurrentOp>>,
    /// The indexes that the plan reads, each with the version that the planner saw.
    indexes: Vec<(Arc<Index>, u64)>,
    /// The operation that runs the plan now.
    op: Option<Arc<OpContext>>,
    /// Steps that are left until the next pause.
    pub budget: i64,
    /// Index keys examined.
    pub keys: u64,
    /// Documents examined.
    pub docs: u64,
    /// Steps since the beginning.
    pub works: u64,
    /// True if the time of every stage is measured, for explain.
    pub timed: bool,
}

impl Cx {
    /// A context on the given snapshot.
    pub(crate) fn new(
        store: Arc<Store>,
        collection: Arc<Collection>,
        snapshot: Option<Snapshot>,
    ) -> Cx {
        Cx {
            store,
            collection,
            began: snapshot.as_ref().map(|s| s.read_time()),
            snapshot,
            shared: None,
            indexes: Vec::new(),
            op: None,
            budget: 0,
            keys: 0,
            docs: 0,
            works: 0,
            timed: false,
        }
    }

    /// Sets the indexes that the plan reads, and the command's state if it shares the view.
    pub(crate) fn reads(
        &mut self,
        indexes: Vec<(Arc<Index>, u64)>,
        shared: Option<Arc<CurrentOp>>,
    ) {
        self.indexes = indexes;
        self.shared = shared;
    }

    /// The snapshot: the one that is held, or a new one.
    ///
    /// # Errors
    /// 175 QueryPlanKilled if something that the plan reads no longer exists.
    pub(crate) fn snapshot(&mut self) -> Result<&Snapshot> {
        let snapshot = match self.snapshot.take() {
            Some(s) => s,
            None => {
                let opened = match &self.shared {
                    Some(shared) => shared.view(&self.store, &self.collection)?,
                    None => match &self.op {
                        Some(op) => op.view(&self.store, &self.collection)?,
                        None => self.store.snapshot(),
                    },
                };
                // An open view keeps everything that it sees. But what was dropped before the view
                // was opened may be reclaimed, so it is checked now that all of it is still there.
                still_as_planned(&opened, &self.collection, &self.indexes)?;
                match self.began {
                    Some(began) => of_owner_at(opened, &self.collection, began)?,
                    None => {
                        self.began = Some(opened.read_time());
                        opened
                    }
                }
            }
        };
        Ok(self.snapshot.insert(snapshot))
    }

    /// Sets the operation that runs the plan from now on.
    #[inline]
    pub(crate) fn run_by(&mut self, op: &Arc<OpContext>) {
        if self.op.as_ref().is_none_or(|o| !Arc::ptr_eq(o, op)) {
            self.op = Some(op.clone());
            // A pipeline that is one plan has no stream that would say so.
            if let Some(shared) = &self.shared {
                shared.set(op);
            }
        }
    }

    /// The interrupt that a stage asks if it works for long without giving a row or pausing.
    pub(crate) fn interrupt(&self) -> Arc<dyn Interrupt> {
        match &self.op {
            Some(op) => op.clone(),
            None => Arc::new(NeverInterrupted),
        }
    }

    /// The context for work on a document, by which it can be interrupted.
    #[inline]
    pub(crate) fn work(&self) -> Work<'_> {
        self.op.as_ref().map_or(Work::unasked(), |op| op.work())
    }

    /// Releases the snapshot.
    pub(crate) fn release(&mut self) {
        self.snapshot = None;
    }

    /// Uses up one step.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.budget -= 1;
        self.works += 1;
    }
}

/// The view for a reader that has begun with a view of an earlier time.
///
/// # Errors
/// 175 QueryPlanKilled if rows that the shard owned then are gone.
fn of_owner_at(view: Snapshot, collection: &Collection, began: Timestamp) -> Result<Snapshot> {
    // A read at a time has the same view again, which still shows rows that are deleted by now.
    if !collection.may_have_foreign_rows() || view.read_time() == began {
        return Ok(view);
    }
    let at = muniment_shard::Timestamp::new(began.seconds(), began.increment());
    match collection.placement().is_some_and(|p| p.cleaned() > at) {
        true => Err(Error::new(
            Code::QueryPlanKilled,
            format!(
                "query plan killed :: a range of {} has moved to another shard and was deleted here",
                collection.name()
            ),
        )),
        false => Ok(view.of_owner_at(began)),
    }
}

/// As [`still_there`], and also checks that no index has met arrays since the planner saw it. A
/// document could then have several keys, and the plan's bounds might not hold.
///
/// # Errors
/// 175 QueryPlanKilled.
pub(crate) fn still_as_planned(
    view: &Snapshot,
    collection: &Collection,
    indexes: &[(Arc<Index>, u64)],
) -> Result<()> {
    still_there(view.timestamp(), collection, indexes.iter().map(|(i, _)| i))?;
    match indexes.iter().find(|(i, v)| i.multikey_version() != *v) {
        None => Ok(()),
        Some((index, _)) => Err(Error::new(
            Code::QueryPlanKilled,
            format!(
                "query plan killed :: index '{}' became multikey",
                index.spec().name
            ),
        )),
    }
}

/// Checks that a plan that was made before its view was opened can read from that view: nothing
/// that it reads has been dropped, or created or renamed after the view.
///
/// # Errors
/// 175 QueryPlanKilled.
pub(crate) fn still_there<'i>(
    view: Timestamp,
    collection: &Collection,
    indexes: impl IntoIterator<Item = &'i Arc<Index>>,
) -> Result<()> {
    let killed = |what: String| Err(Error::new(Code::QueryPlanKilled, what));
    if collection.is_dropped() {
        let name = collection.namespace();
        return killed(format!("collection dropped: {name}"));
    }
    if collection.named_since() > view {
        let name = collection.namespace();
        return killed(format!("collection renamed or created: {name}"));
    }
    for index in indexes {
        let name = || index.spec().name.clone();
        if index.is_dropped() {
            return killed(format!("query plan killed :: index '{}' dropped", name()));
        }
        if index.complete_since().is_none_or(|t| t > view) {
            return killed(format!("query plan killed :: index '{}' is new", name()));
        }
    }
    Ok(())
}

/// The figures of a stage, for explain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    /// Steps taken.
    pub works: u64,
    /// Rows given.
    pub advanced: u64,
    /// True if the stage has come to its end.
    pub eof: bool,
    /// How often the stage released its cursors and continued.
    pub saves: u64,
    /// The time spent in the stage and below it, if that is measured.
    pub time: Duration,
}

impl Stats {
    /// Appends the fields that executionStats has for every stage.
    pub(crate) fn append(&self, d: &mut DocBuf) {
        let works = self.works + u64::from(self.eof);
        d.append("nReturned", self.advanced as i64);
        d.append("executionTimeMillisEstimate", self.time.as_millis() as i64);
        d.append("works", works as i64);
        d.append("advanced", self.advanced as i64);
        d.append(
            "needTime",
            works
                .saturating_sub(self.advanced)
                .saturating_sub(u64::from(self.eof)) as i64,
        );
        d.append("needYield", 0_i64);
        d.append("saveState", self.saves as i64);
        d.append("restoreState", self.saves as i64);
        d.append("isEOF", i32::from(self.eof));
    }
}

/// The document of a stage that has `input` below it.
pub(crate) fn wrap(
    stage: &str,
    exec: bool,
    stats: Stats,
    more: impl FnOnce(&mut DocBuf),
    input: DocBuf,
) -> DocBuf {
    let mut d = doc! { "stage": stage };
    if exec {
        stats.append(&mut d);
    }
    more(&mut d);
    d.append("inputStage", input);
    d
}

/// The values of a row's index key under the names of the index's fields.
pub(super) fn key_document(fields: &[(Path, bool)], row: &Row) -> Result<DocBuf> {
    let mut d = DocBuf::new();
    let mut rest: &[u8] = if row.key.is_empty() {
        &row.record_key
    } else {
        &row.key
    };
    let mut bits: &[u8] = &row.bits;
    for (path, descending) in fields {
        let (value, tail) = keyenc::decode(rest, *descending, &mut bits)?;
        rest = tail;
        d.append(path.as_str(), value);
    }
    Ok(d)
}

/// A stage of a plan.
pub(crate) enum Stage {
    /// Gives nothing.
    Eof(Stats),
    /// Reads all documents.
    CollScan(Box<scan::CollScan>),
    /// Looks up one document by `_id`.
    IdHack(Box<scan::IdHack>),
    /// Reads an index.
    IxScan(Box<scan::IxScan>),
    /// Reads the documents of index keys.
    Fetch(Box<combine::Fetch>),
    /// Skips rows before their documents are read.
    Skip(Box<combine::Skip>),
    /// Makes documents from index keys.
    Cover(Box<combine::Cover>),
    /// Runs several scans and gives each document once.
    Or(Box<combine::Or>),
    /// Merges several scans in the sort's order.
    SortMerge(Box<merge::SortMerge>),
    /// Gives documents by their distance.
    GeoNear(Box<near::GeoNear>),
    /// Gives documents by their words.
    Text(Box<text::TextMatch>),
    /// Reads the documents of sorted scores.
    Load(Box<text::Load>),
    /// A blocking sort.
    Sort(Box<sort::Sort>),
}

impl Stage {
    /// A stage without rows.
    fn nothing() -> Stage {
        Stage::Eof(Stats::default())
    }

    /// Runs the stage until its next row, pause or end.
    ///
    /// # Errors
    /// Damaged data, the errors of `$expr`, the sort's memory limit.
    #[inline]
    pub(crate) fn next(&mut self, cx: &mut Cx) -> Result<Step> {
        if !cx.timed {
            return self.step(cx);
        }
        let began = Instant::now();
        let result = self.step(cx);
        self.stats_mut().time += began.elapsed();
        result
    }

    fn step(&mut self, cx: &mut Cx) -> Result<Step> {
        match self {
            Stage::Eof(s) => {
                s.eof = true;
                Ok(Step::Eof)
            }
            Stage::CollScan(s) => s.next(cx),
            Stage::IdHack(s) => s.next(cx),
            Stage::IxScan(s) => s.next(cx),
            Stage::Fetch(s) => s.next(cx),
            Stage::Cover(s) => s.next(cx),
            Stage::Or(s) => s.next(cx),
            Stage::Skip(s) => s.next(cx),
            Stage::SortMerge(s) => s.next(cx),
            Stage::GeoNear(s) => s.next(cx),
            Stage::Text(s) => s.next(cx),
            Stage::Load(s) => s.next(cx),
            Stage::Sort(s) => s.next(cx),
        }
    }

    /// Releases the storage's cursors and keeps the position.
    pub(crate) fn save(&mut self) {
        match self {
            Stage::Eof(_) | Stage::IdHack(_) => {}
            Stage::CollScan(s) => s.save(),
            Stage::IxScan(s) => s.save(),
            Stage::Fetch(s) => s.input.save(),
            Stage::Cover(s) => s.input.save(),
            Stage::Or(s) => s.save(),
            Stage::SortMerge(s) => s.save(),
            Stage::Skip(s) => s.input.save(),
            Stage::GeoNear(s) => s.save(),
            Stage::Text(s) => s.save(),
            Stage::Load(s) => s.save(),
            Stage::Sort(s) => s.input.save(),
        }
    }

    /// Marks the position of an index scan, which may have a fetch above it.
    fn mark(&mut self) {
        match self {
            Stage::IxScan(s) => s.mark(),
            Stage::Fetch(s) => s.input.mark(),
            _ => {}
        }
    }

    /// Goes back to the position that was marked last.
    fn rewind(&mut self) {
        match self {
            Stage::IxScan(s) => s.rewind(),
            Stage::Fetch(s) => s.input.rewind(),
            _ => {}
        }
    }

    /// The stage as explain shows it; with `exec`, including its figures.
    pub(crate) fn explain(&self, exec: bool) -> DocBuf {
        match self {
            Stage::Eof(s) => {
                let mut d = doc! { "stage": "EOF" };
                if exec {
                    s.append(&mut d);
                }
                d.append("type", "predicateEvalsToFalse");
                d
            }
            Stage::CollScan(s) => s.explain(exec),
            Stage::IdHack(s) => s.explain(exec),
            Stage::IxScan(s) => s.explain(exec),
            Stage::Fetch(s) => s.explain(exec),
            Stage::Cover(s) => s.input.explain(exec),
            Stage::Or(s) => s.explain(exec),
            Stage::Skip(s) => s.explain(exec),
            Stage::SortMerge(s) => s.explain(exec),
            Stage::GeoNear(s) => s.explain(exec),
            Stage::Text(s) => s.explain(exec),
            Stage::Load(s) => s.explain(exec),
            Stage::Sort(s) => s.explain(exec),
        }
    }

    fn stats_mut(&mut self) -> &mut Stats {
        match self {
            Stage::Eof(s) => s,
            Stage::CollScan(s) => &mut s.stats,
            Stage::IdHack(s) => &mut s.stats,
            Stage::IxScan(s) => &mut s.stats,
            Stage::Fetch(s) => &mut s.stats,
            Stage::Cover(s) => s.input.stats_mut(),
            Stage::Or(s) => &mut s.stats,
            Stage::Skip(s) => &mut s.stats,
            Stage::SortMerge(s) => &mut s.stats,
            Stage::GeoNear(s) => &mut s.stats,
            Stage::Text(s) => &mut s.stats,
            Stage::Load(s) => &mut s.stats,
            Stage::Sort(s) => &mut s.stats,
        }
    }

    /// The figures of the stage.
    pub(crate) fn stats(&self) -> Stats {
        match self {
            Stage::Eof(s) => *s,
            Stage::CollScan(s) => s.stats,
            Stage::IdHack(s) => s.stats,
            Stage::IxScan(s) => s.stats,
            Stage::Fetch(s) => s.stats,
            Stage::Cover(s) => s.input.stats(),
            Stage::Or(s) => s.stats,
            Stage::Skip(s) => s.stats,
            Stage::SortMerge(s) => s.stats,
            Stage::GeoNear(s) => s.stats,
            Stage::Text(s) => s.stats,
            Stage::Load(s) => s.stats,
            Stage::Sort(s) => s.stats,
        }
    }
}
