//! The storage of a member of a replica set: the door that is open while the member is primary, the
//! records that other members send, the commit point, and how far everything has come.
//!
//! A record that another member has committed is appended with its index, term and timestamp. Recovery's
//! function applies it while others read: it becomes visible as a whole, and what it changes in the
//! catalog is published before that, like a change that is made here. No latches are taken, because no
//! writer is let in meanwhile: what was staged before the door was closed is refused (`commit::door`).
//!
//! Invariants: either the door is open or records are followed, never both; what is appended is applied,
//! or the process ends; what is not committed is in no file of the trees. Must not know the other
//! members.

use crate::collection::Collection;
use crate::commit::MustLand;
use crate::commit::announce::Announce;
use crate::commit::apply::{Applied, check_readable};
use crate::commit::ops::{self, Op};
use crate::index::Index;
use crate::inner::Inner;
use crate::sessions::LITTLE;
use crate::store::{Store, position};
use crate::view::Snapshot;
use crate::watch::{Awaited, UntilClosed};
use muniment_io::Timestamp;
use muniment_log::{Log, Position, Reader, Record};
use muniment_op::{Interrupt, NeverInterrupted};
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Counts the records of other members that were applied since the start.
#[derive(Default)]
pub(crate) struct Followed {
    /// Held while records are appended, and while the door is opened.
    turn: Mutex<()>,
    ops: [AtomicU64; 4],
    bytes: AtomicU64,
    batches: AtomicU64,
    micros: AtomicU64,
    config: AtomicU64,
}

impl Followed {
    /// Bytes of records.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    fn add(&self, ops: &[u64; 4], bytes: usize) {
        for (all, n) in self.ops.iter().zip(ops) {
            all.fetch_add(*n, Relaxed);
        }
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn end_batch(&self, time: Duration) {
        self.batches.fetch_add(1, Relaxed);
        self.micros.fetch_add(time.as_micros() as u64, Relaxed);
    }
}

/// What a member has applied of others' records since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowStats {
    /// Documents that were inserted, changed and deleted, and changes of the catalog.
    pub ops: [u64; 4],
    /// Bytes of the records.
    pub bytes: u64,
    /// The number of calls that brought records.
    pub batches: u64,
    /// How long they took to be applied, in microseconds.
    pub micros: u64,
}

/// How far a store has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// The newest record in the log.
    pub appended: Position,
    /// The newest one that readers see.
    pub applied: Position,
    /// The newest one that survives a power cut.
    pub durable: Position,
}

impl Store {
    /// Lets writers in: this member is primary in this term. Index builds that were under way go on, and
    /// what transactions of earlier terms have left is cleared away, both in the background.
    ///
    /// # Errors
    /// If there are records of a later term; 91 when the store is closed.
    pub fn open_door(&self, term: u64) -> Result<()> {
        let inner = &self.inner;
        inner.watch.check_open()?;
        let _following = inner.followed.turn.lock();
        let last = inner.journal.log()?.last();
        if term < last.term {
            return Err(Error::internal(format!(
                "the door cannot open in term {term}: record {} is of term {}",
                last.index, last.term
            )));
        }
        if !inner.door.is_closed() {
            return Err(Error::internal("the door is open already"));
        }
        inner.hold_prepared(&UntilClosed(&inner.watch))?;
        // Both lists are taken before the door opens. A build or transaction that begins afterwards is
        // ended by the operation that began it.
        let builds = inner.unfinished_builds();
        let pending = inner.take_pending();
        for (_, index) in &builds {
            index.begin_build();
        }
        inner.door.open(term);
        let opening = inner.door.opening()?;
        if builds.is_empty() && pending.is_empty() {
            return Ok(());
        }
        self.start("muniment-index", move |inner: &Inner| {
            inner.end_pending(pending, opening);
            inner.resume_builds(builds, opening);
        })
    }

    /// Keeps writers out: from here on, writes that are not committed are refused with 10107
    /// NotWritablePrimary. Returns when everything that was committed is visible.
    pub fn close_door(&self) {
        let inner = &self.inner;
        inner.door.close();
        // Threads that wait for another writer look again, and find the door closed.
        inner.watch.stops.wake_all();
        // The wait cannot be interrupted, and is short: threads that are applying a record wait for
        // nothing else.
        let _ = inner.wait_visible(&NeverInterrupted);
    }

    /// True if writers are let in.
    pub fn is_door_open(&self) -> bool {
        !self.inner.door.is_closed()
    }

    /// Tells `listener` of every record that is committed here from now on, in order, and before it is
    /// visible. The listener must leave a record with [`Announce::Caller`] to the thread that commits
    /// it, which announces it itself. Writers wait for the listener, so it must be quick, and must not
    /// use the store.
    ///
    /// # Errors
    /// If this is no member of a replica set.
    pub fn listen(&self, listener: impl FnMut(Position, Announce) + Send + 'static) -> Result<()> {
        match self.inner.door.listen(Some(Box::new(listener))) {
            true => Ok(()),
            false => Err(no_member()),
        }
    }

    /// Appends records that another member has committed, and applies them. They are visible when this
    /// returns, and durable after [`Store::wait_journaled`]. The first has to follow the last record
    /// here.
    ///
    /// # Errors
    /// If the door is open, a record does not follow the one before, or cannot be read; 14031
    /// OutOfDiskSpace, I/O errors of the log; what `interrupt` says while it waits. The records before
    /// the failed one stay. A collection or an index to which a record cannot be applied is closed
    /// (`damage`); a disk that fails while a record is applied ends the process.
    pub fn append_replicated(
        &self,
        records: &[Record<'_>],
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let inner = &self.inner;
        let _following = inner.followed.turn.lock();
        let began = Instant::now();
        for record in records {
            inner.follow(record, interrupt)?;
        }
        inner.followed.end_batch(began.elapsed());
        let behind = inner.door.places().is_some_and(|places| places.is_behind());
        if behind {
            self.set_committed(0)?;
        }
        Ok(())
    }

    /// What was applied of other members' records since the start.
    pub fn follow_stats(&self) -> FollowStats {
        let f = &self.inner.followed;
        FollowStats {
            ops: std::array::from_fn(|i| f.ops.get(i).map_or(0, |n| n.load(Relaxed))),
            bytes: f.bytes.load(Relaxed),
            batches: f.batches.load(Relaxed),
            micros: f.micros.load(Relaxed),
        }
    }

    /// How many of these records may have changed settings, which are in the database `config`.
    pub fn config_followed(&self) -> u64 {
        self.inner.followed.config.load(SeqCst)
    }

    /// Holds writers back while the majority lags by more than `target`; `None`: never.
    pub fn set_flow_control(&self, target: Option<Duration>) {
        let target = target.map_or(0, |t| t.as_secs().max(1));
        self.inner.admission.set_most_lag(target);
    }

    /// How often writers were held back because the majority lagged, for how long in
    /// microseconds, and whether they are now.
    pub fn flow_control(&self) -> (u64, u64, bool) {
        self.inner.majority_lags();
        self.inner.admission.lagged()
    }

    /// Notes that everything up to the record with this index is committed: it may go to files, and
    /// views of what was before it are not kept. The commit point never goes back, and may be ahead of
    /// the records that are here. Returns the newest record here that is committed.
    ///
    /// # Errors
    /// If this is no member of a replica set.
    pub fn set_committed(&self, index: u64) -> Result<Position> {
        let inner = &self.inner;
        let visible = inner.trees.views().visible();
        let durable = inner.journal.log().map_or(0, |log| log.durable());
        let committed = {
            let mut places = inner.door.places().ok_or_else(no_member)?;
            places.commit(index, visible, durable)
        };
        inner.note_time();
        inner.trees.set_committed(committed.at);
        let now = inner.home.clock.instant();
        let alone = || inner.door.majority().is_none();
        let from = inner.retention.history_from(committed.at, now, alone);
        inner.trees.views().keep_from(from);
        inner.advanced();
        Ok(committed)
    }

    /// Lets views be opened at timestamps up to this many seconds before the commit point, if there are
    /// other members, or `even_alone`: a read at a timestamp, which may come from another server, may reach
    /// this member when that timestamp is past. All versions since then are kept.
    pub fn keep_history(&self, secs: u32, even_alone: bool) {
        self.inner.retention.keep_history(secs, even_alone);
    }

    /// Says whether there are other members. Until it is called, there are.
    pub fn set_others(&self, are: bool) {
        self.inner.door.set_others(are);
        self.inner.advanced();
    }

    /// Notes that no more records will come and no word of what the other members have. The majority is
    /// known to have everything up to this record; what else it has will not become known.
    ///
    /// # Errors
    /// If this is no member of a replica set.
    pub fn keep(&self, committed: u64) -> Result<()> {
        self.set_committed(committed)?;
        self.inner.door.keep();
        Ok(())
    }

    /// Whether [`Store::keep`] was called.
    pub fn is_kept(&self) -> bool {
        self.inner.door.is_kept()
    }

    /// The newest record that the majority of the set is known to have, so that nothing takes it back.
    /// `None` if this server is alone, because every record on its disk is as safe then.
    pub fn majority(&self) -> Option<Position> {
        self.inner.door.majority()
    }

    /// Waits until the majority has everything up to a timestamp. A server that is alone does not wait.
    ///
    /// # Errors
    /// What `interrupt` says; 91 when the store is closed.
    pub fn wait_for_majority(&self, at: Timestamp, interrupt: &dyn Interrupt) -> Result<()> {
        let has = || self.majority().is_none_or(|p| p.at >= at);
        self.wait_for(Awaited::Majority(at), interrupt, has)
    }

    /// A view of what the majority has; `None` if this server is alone.
    ///
    /// # Errors
    /// 134 ReadConcernMajorityNotAvailableYet.
    pub fn majority_snapshot(&self) -> Result<Option<Snapshot>> {
        let mut before = None;
        while let Some(majority) = self.majority() {
            // The other members may have records that are not visible here yet.
            let at = majority.at.min(self.visible());
            if let Some(view) = self.snapshot_at(at) {
                return Ok(Some(view));
            }
            // The commit point moved on in between, and the versions before it were given up.
            if before.replace(at) == Some(at) {
                return Err(Error::new(
                    Code::ReadConcernMajorityNotAvailableYet,
                    "Read concern majority reads are currently not possible.",
                ));
            }
        }
        Ok(None)
    }

    /// On a member of a replica set, the newest record that is known to be committed; else the newest
    /// visible one.
    ///
    /// # Errors
    /// As [`Store::position`].
    pub fn committed(&self) -> Result<Position> {
        if let Some(places) = self.inner.door.places() {
            return Ok(places.committed());
        }
        Ok(self.position()?.applied)
    }

    /// The timestamp up to which the trees' files hold everything. A member's files hold nothing else.
    pub fn persisted(&self) -> Timestamp {
        self.inner.trees.persisted()
    }

    /// The newest record. A member knows it even while there is no log.
    ///
    /// # Errors
    /// As [`Store::position`], of a store that is no member.
    pub fn appended(&self) -> Result<Position> {
        if let Some(places) = self.inner.door.places() {
            return Ok(places.last());
        }
        Ok(self.inner.journal.log()?.last())
    }

    /// How far the store has come.
    ///
    /// # Errors
    /// 14031 while there is no log; I/O errors if the log has to be read for it (of a store that is no
    /// member).
    pub fn position(&self) -> Result<Positions> {
        let inner = &self.inner;
        let log = inner.journal.log()?;
        let durable = log.durable();
        let visible = inner.trees.views().visible();
        if let Some(places) = inner.door.places() {
            let appended = places.last();
            return Ok(Positions {
                appended,
                applied: places.up_to(visible).unwrap_or_default(),
                durable: places.at(durable.min(appended.index)).unwrap_or_default(),
            });
        }
        let appended = log.last();
        let applied = match visible >= appended.at {
            true => appended,
            false => first_of(log.read(Timestamp(visible.0.saturating_sub(1))))?,
        };
        let durable = match durable {
            n if n >= appended.index => appended,
            n if n == log.begins_behind().index => log.begins_behind(),
            n => first_of(log.reader_at(n.saturating_sub(1))?)?,
        };
        Ok(Positions {
            appended,
            applied,
            durable,
        })
    }

    /// A view of what was there at a timestamp. A member can open one from the commit point on, or from
    /// the history that is kept, up to what is visible. `None` for other timestamps.
    pub fn snapshot_at(&self, at: Timestamp) -> Option<Snapshot> {
        let inner = &self.inner;
        if inner.watch.check_open().is_err() {
            return Some(Snapshot::new(None));
        }
        let view = inner.trees.views().open_at(at)?;
        Some(Snapshot::new(Some((view, inner.trees.clone()))))
    }

    /// Reads the records after an index, as they are in the log.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost if the first of them is not kept any more; I/O errors; 14031 while
    /// there is no log.
    pub fn records_behind(&self, index: u64) -> Result<Records> {
        let log = self.inner.journal.log()?;
        Ok(Records {
            inner: self.inner.clone(),
            reader: log.reader_at(index)?,
            log: Arc::downgrade(&log),
            index,
        })
    }

    /// The position after which all records are in the log.
    ///
    /// # Errors
    /// 14031 while there is no log.
    pub fn log_begins_behind(&self) -> Result<Position> {
        Ok(self.inner.journal.log()?.begins_behind())
    }
}

/// Reads records of the log one after another. At the end it can be asked again later.
pub struct Records {
    inner: Arc<Inner>,
    reader: Reader,
    /// The log that it reads; after a fault another one takes its place.
    log: Weak<Log>,
    index: u64,
}

impl Records {
    /// The next record; `None` if there is none yet.
    ///
    /// # Errors
    /// As [`Store::records_behind`]; 301.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        let log = self.inner.journal.log()?;
        if self.log.as_ptr() != Arc::as_ptr(&log) {
            self.reader = log.reader_at(self.index)?;
            self.log = Arc::downgrade(&log);
        }
        drop(log);
        let record = self.reader.next()?;
        if let Some(record) = &record {
            self.index = record.index;
        }
        Ok(record)
    }
}

/// Whether a record adds to nothing but the catalog. Such a record is accepted even where there is no
/// room, because it frees space. A record that cannot be read does not count as one; the function that
/// appends it refuses it.
pub fn only_frees(payload: &[u8]) -> bool {
    let Some(mut ops) = ops::Reader::new(payload) else {
        return false;
    };
    loop {
        match ops.next() {
            Ok(None) => return true,
            Ok(Some(
                Op::Insert { .. }
                | Op::Replace { .. }
                | Op::Diff { .. }
                | Op::Entries { .. }
                | Op::Prepare { .. },
            ))
            | Err(_) => return false,
            // A findAndModify that removes a document writes it down whole, for a retry.
            Ok(Some(Op::Session { added, .. })) if added.len() > LITTLE => return false,
            Ok(Some(_)) => {}
        }
    }
}

/// Whether a record is whole and of a version that is known here, so that it can be appended later. A
/// collection that it names may be made by a record before it, so names are not checked.
pub fn can_be_read(payload: &[u8]) -> bool {
    let Some(mut ops) = ops::Reader::new(payload) else {
        return false;
    };
    loop {
        match ops.next() {
            Ok(None) => return true,
            Ok(Some(_)) => {}
            Err(_) => return false,
        }
    }
}

/// Whether a collection may hold settings of the server.
fn holds_settings(collection: &Collection) -> bool {
    collection.is_in("config")
}

fn no_member() -> Error {
    Error::internal("this store is no member of a replica set")
}

/// The position of the first record that a reader gives; zeros if there is none.
fn first_of(mut reader: Reader) -> Result<Position> {
    let first = reader.next()?;
    Ok(first.as_ref().map(position).unwrap_or_default())
}

impl Inner {
    /// Appends one record of another member and applies it.
    fn follow(&self, record: &Record<'_>, interrupt: &dyn Interrupt) -> Result<()> {
        // A record that frees space on the primary has to be accepted here too, for the same reason.
        let len = record.payload.len();
        match self.admit(len, false, interrupt) {
            Err(e) if e.code() == Code::OutOfDiskSpace && only_frees(record.payload) => {
                self.admit(len, true, interrupt)?;
            }
            admitted => admitted?,
        }
        // The gate keeps a seal from falling between the log and the trees.
        let _gate = self.cuts.gate.share(interrupt)?;
        // A record of a version that is not known here is refused: once in the log, it could never be
        // applied.
        check_readable(&self.catalog, &self.home.path, record.at, record.payload)?;
        let guard = {
            let log = self.journal.hold()?;
            let payload = [record.payload];
            let ready = log.prepare(&payload).map_err(|e| self.journal.refused(e))?;
            let mut turn = self.door.enter();
            if !self.door.is_closed() {
                return Err(Error::internal(
                    "records of another member came while the door was open",
                ));
            }
            let position = position(record);
            log.append_at(position, ready)
                .map_err(|e| self.journal.refused(e))?;
            self.door
                .followed(&mut turn, position, ops::wall_of(record));
            MustLand
        };
        self.door.count(record.payload.len());
        let accounts = self.catalog.accounts.now();
        let mut applied = match self.apply(record.at, record.payload) {
            Ok(applied) => applied,
            Err(e) => {
                eprintln!(
                    "muniment: record {} of the log cannot be applied: stopping: {e}",
                    record.index
                );
                std::process::abort();
            }
        };
        std::mem::forget(guard);
        self.followed.add(&applied.ops, record.payload.len());
        self.rely_on(&applied);
        self.trees.views().advance(record.at);
        self.release(&mut applied);
        let mut touched = applied.collections.iter().map(|(c, _)| c.id);
        if touched.any(|id| accounts.has(id)) || self.catalog.accounts.now() != accounts {
            self.catalog.accounts.changed();
        }
        for (collection, inserted) in applied.collections.iter().filter(|(_, n)| *n > 0) {
            collection.notify_inserts(*inserted);
        }
        let [.., of_catalog] = applied.ops;
        if of_catalog > 0 || applied.collections.iter().any(|(c, _)| holds_settings(c)) {
            self.followed.config.fetch_add(1, SeqCst);
        }
        self.advanced();
        Ok(())
    }

    /// A collection that was written to must not be dropped with the transaction that made it, so it is
    /// claimed, and noted as marked.
    fn rely_on(&self, applied: &Applied) {
        let pending = applied.collections.iter().filter(|(c, _)| c.is_pending());
        for (collection, _) in pending {
            self.leftovers.marked.lock().insert(collection.id);
            collection.claim();
        }
    }

    /// Notes the same, when a member starts, for collections that were written to before.
    pub(crate) fn note_marked(&self) {
        let all = self.catalog.all();
        for collection in all.iter().filter(|c| c.is_pending()) {
            if self.is_in_use(collection) {
                self.leftovers.marked.lock().insert(collection.id);
                collection.claim();
            }
        }
    }

    /// The indexes that are not ready and not damaged: their builds have to be run.
    pub(crate) fn unfinished_builds(&self) -> Vec<(Arc<Collection>, Arc<Index>)> {
        let all = self.catalog.all();
        let mut found = Vec::new();
        for collection in all {
            let indexes = collection.all_indexes();
            let unfinished = indexes.iter().filter(|i| !i.is_ready() && !i.is_damaged());
            let unfinished = unfinished.filter(|_| !collection.is_closed()).cloned();
            found.extend(unfinished.map(|index| (collection.clone(), index)));
        }
        found
    }

    /// The collections with the mark of a transaction that made them, and whether they are in use.
    pub(crate) fn take_pending(&self) -> Vec<(Arc<Collection>, bool)> {
        let all = self.catalog.all();
        let mut marked = self.leftovers.marked.lock();
        let mut found = Vec::new();
        for collection in all {
            let is_marked = marked.remove(&collection.id);
            if is_marked || collection.is_pending() {
                let used = is_marked || self.is_in_use(&collection);
                found.push((collection, used));
            }
        }
        found
    }
}
