//! Reading the log as what it tells: who follows it gets every entry once, in order, with the names
//! of its time.

use crate::commit::ops::{AT_ONCE, HEAD, Kind, Op, Reader, entry_count};
use crate::history::Named;
use crate::sessions::{SessionKey, SessionRecord, SessionState};
use crate::store::{CommitId, Inner, Store, damaged};
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_log::Log;
use muniment_value::{Code, Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// What an entry tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A document that is new.
    Insert {
        /// The document.
        doc: Bytes,
    },
    /// A document that was changed.
    Update {
        /// The type and the bytes of its `_id`; empty if it has none.
        id: Bytes,
        /// The difference: see [`muniment_query::diff`].
        diff: Bytes,
    },
    /// A document in another's place.
    Replace {
        /// The new one.
        doc: Bytes,
    },
    /// A document that went.
    Delete {
        /// As of [`What::Update`].
        id: Bytes,
    },
    /// A change of the catalog, or nothing, as MongoDB's oplog has it: `{op, ns, ui?, o, o2?}`.
    Note {
        /// The document.
        doc: Bytes,
    },
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What was done.
    pub what: What,
    /// To which collection; `None` for notes.
    pub of: Option<Arc<Named>>,
    /// The document before it, where the collection keeps it
    /// (`changeStreamPreAndPostImages`).
    pub before: Option<Bytes>,
    /// The id of the statement of a retryable write.
    pub statement: Option<i32>,
    /// Which document the statement has returned, for who sends it again.
    pub returned: Option<Image>,
}

/// Which document of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// As it was before the change.
    Before,
    /// As it was after it.
    After,
}

/// What was committed at once: one operation; of a transaction or a batch all, or as many as fit into
/// one document of MongoDB's oplog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its timestamp, which no other entry has.
    pub at: Timestamp,
    /// The term of the primary that committed it; 0 where there was no set.
    pub term: u64,
    /// The wall clock's time, in milliseconds since 1970.
    pub wall_ms: i64,
    /// The operations. None: a record that only moves the clock on.
    pub ops: Vec<Operation>,
    /// How its operations belong together.
    pub whole: Whole,
    /// The session of a transaction or of a retryable write, and its number.
    pub session: Option<(SessionKey, i64)>,
    /// The entry before it of the same transaction or the same number of a session.
    pub previous: Option<Timestamp>,
}

/// How the operations of an entry belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// There is one, or none.
    Single,
    /// They were committed at once, and belong to no transaction: inserts into one collection, or
    /// deletions from one. What follows in another entry stands for itself.
    Batch,
    /// They are of a transaction.
    Transaction(Part),
}

impl LogEntry {
    /// How many operations of the same transaction are in entries before it.
    pub fn before(&self) -> usize {
        match self.whole {
            Whole::Transaction(part) => part.before,
            Whole::Single | Whole::Batch => 0,
        }
    }
}

/// Which part of a transaction an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Another one follows.
    pub more: bool,
    /// Operations in the parts before it.
    pub before: usize,
    /// Operations in all of them.
    pub all: usize,
}

/// Who wait for the newest visible commit to be another one.
#[derive(Default)]
pub(crate) struct Watch {
    watchers: AtomicUsize,
    lock: Mutex<()>,
    moved: Condvar,
}

impl Watch {
    /// It is another one now, or the commit point is. Either was moved on by a sequentially consistent
    /// operation or under a lock, so whoever is not counted here yet sees it.
    pub fn advanced(&self) {
        if self.watchers.load(SeqCst) > 0 {
            self.wake();
        }
    }

    /// Who waits looks again.
    pub fn wake(&self) {
        drop(self.lock.lock());
        self.moved.notify_all();
    }
}

/// See [`LogEntries::early`].
struct Early {
    commit: CommitId,
    term: u64,
    payload: Bytes,
}

/// Reads entries in order. At the end it can be asked again.
pub struct LogEntries {
    inner: Arc<Inner>,
    reader: muniment_log::Reader,
    /// Whose records it reads: the log is opened anew after a fault.
    log: Weak<Log>,
    /// What the last record told and was not passed on.
    ready: std::collections::VecDeque<LogEntry>,
    /// Entries up to here are left out: they are of the record that the reader began with.
    after: Timestamp,
    /// All up to here was read.
    position: Timestamp,
    /// The commit that was read last.
    commit: CommitId,
    /// A record that was read before it was visible.
    early: Option<Early>,
    names: HashMap<u32, Option<Arc<Named>>>,
}

impl Store {
    /// The entries later than `after`.
    ///
    /// # Errors
    /// 14031 while there is no log.
    pub fn log_entries(&self, after: Timestamp) -> Result<LogEntries> {
        let log = self.inner.log()?;
        Ok(LogEntries {
            reader: log.read(after),
            log: Arc::downgrade(&log),
            inner: self.inner.clone(),
            ready: std::collections::VecDeque::new(),
            after,
            position: after,
            commit: CommitId {
                index: 0,
                at: Timestamp::ZERO,
            },
            early: None,
            names: HashMap::new(),
        })
    }

    /// The timestamps that a record takes, from its first entry's to its own: of the first record that
    /// is not over before `at`. `None` if there is none yet.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost if the log does not go back so far; 301; the disk's.
    pub fn record_from(&self, at: Timestamp) -> Result<Option<RangeInclusive<Timestamp>>> {
        let mut reader = self.inner.log()?.read(at.minus(1));
        let Some(record) = reader.next()? else {
            return Ok(None);
        };
        let ops = Reader::new(record.payload).ok_or(0);
        let stamps = ops.and_then(Reader::stamps).map_err(|offset| {
            let what = format!(
                "the record of {} cannot be read at byte {offset} of its payload",
                record.at
            );
            damaged(&self.inner.path, &what)
        })?;
        Ok(Some(record.at.minus(stamps - 1)..=record.at))
    }

    /// The entries after this timestamp are there to be read; older ones may be gone.
    ///
    /// # Errors
    /// 14031 while there is no log.
    pub fn log_begins_after(&self) -> Result<Timestamp> {
        Ok(self.inner.log()?.begins_after())
    }

    /// Places in the log between which about as many bytes lie, ascending: for who reads it from its
    /// end.
    ///
    /// # Errors
    /// 14031 while there is no log.
    pub fn log_places(&self) -> Result<Vec<Timestamp>> {
        Ok(self.inner.log()?.places())
    }

    /// Bytes of the log's files, and the bytes that it is to keep for its readers.
    ///
    /// # Errors
    /// 14031 while there is no log.
    pub fn log_size(&self) -> Result<(u64, u64)> {
        Ok((self.inner.log()?.bytes(), self.inner.window.lock().bytes))
    }

    /// What [`Store::keep_log`] has said last.
    pub fn log_window(&self) -> (u64, Duration) {
        let window = *self.inner.window.lock();
        (window.bytes, window.time)
    }

    /// How much of the log is kept for its readers: so many bytes, and whatever is not older than so
    /// long. Where the disk is nearly full it gives way.
    pub fn keep_log(&self, bytes: u64, time: Duration) {
        let mut window = self.inner.window.lock();
        (window.bytes, window.time) = (bytes, time);
    }

    /// How far back the log is kept for other members that are to get it late, whatever
    /// [`Store::keep_log`] says. Where the disk is nearly full it gives way, too.
    pub fn keep_log_for_others(&self, time: Duration) {
        self.inner.window.lock().for_others = time;
    }

    /// Waits until something later than `after` is visible; false if nothing was for so long.
    pub fn wait_past(&self, after: Timestamp, timeout: Duration) -> bool {
        self.wait_until(timeout, || self.visible() > after)
    }

    /// Waits until this is so, which is asked whenever something became visible or was committed by
    /// the majority; false if it was not for so long, or the store was closed.
    pub fn wait_until(&self, timeout: Duration, is_so: impl Fn() -> bool) -> bool {
        let watch = &self.inner.watch;
        let until = Instant::now() + timeout;
        watch.watchers.fetch_add(1, SeqCst);
        let mut guard = watch.lock.lock();
        while !is_so() && !self.is_closed() {
            if watch.moved.wait_until(&mut guard, until).timed_out() {
                break;
            }
        }
        drop(guard);
        watch.watchers.fetch_sub(1, SeqCst);
        is_so()
    }

    /// Somebody waits in [`Store::wait_until`].
    pub fn is_watched(&self) -> bool {
        self.inner.watch.watchers.load(SeqCst) > 0
    }

    /// Puts a note into the log: a change that is none of a collection's (`dropDatabase`), or what
    /// `appendOplogNote` says. `doc` is `{op, ns, o, o2?}`.
    ///
    /// # Errors
    /// As a commit's.
    pub fn note(
        &self,
        doc: muniment_value::Doc<'_>,
        interrupt: &dyn muniment_query::Interrupt,
    ) -> Result<crate::CommitId> {
        let opening = self.inner.door.opening()?;
        let mut stage = crate::commit::stage::Stage::new(opening);
        stage.log.note(doc);
        self.inner.commit(stage, interrupt, |_| {})
    }
}

impl Store {
    /// Puts a configuration of the replica set into the log, as the consensus wrote it, with a note as
    /// of [`Store::note`]. Applying it changes nothing; what comes of it is the consensus' own.
    ///
    /// # Errors
    /// As a commit's.
    pub fn commit_config(
        &self,
        record: &[u8],
        note: muniment_value::Doc<'_>,
        interrupt: &dyn muniment_query::Interrupt,
    ) -> Result<crate::CommitId> {
        let opening = self.inner.door.opening()?;
        let mut stage = crate::commit::stage::Stage::new(opening);
        stage.log.config(record);
        stage.log.note(note);
        self.inner.commit(stage, interrupt, |_| {})
    }
}

/// See [`Store::keep_log`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub bytes: u64,
    pub time: Duration,
    /// See [`Store::keep_log_for_others`].
    pub for_others: Duration,
}

impl Window {
    /// The window of a server that was told nothing: for who develops with change streams, and small
    /// beside the disk (or, where all is in memory, beside that).
    pub fn of(durable: bool, dir: &std::path::Path) -> Window {
        let most = if durable { 256 } else { 32 } << 20;
        let free = muniment_io::space(dir).map_or(u64::MAX, |(free, _)| free);
        Window {
            bytes: most.min(free / 20),
            time: Duration::ZERO,
            for_others: Duration::ZERO,
        }
    }

    /// What is not older than so long is kept.
    pub fn longest(&self) -> Duration {
        self.time.max(self.for_others)
    }
}

impl LogEntries {
    /// All entries up to here were given.
    pub fn position(&self) -> Timestamp {
        self.position
    }

    /// The commit that the last entries are of.
    pub fn commit(&self) -> CommitId {
        self.commit
    }

    /// The next entry that is visible; `None` if there is none yet.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost if it is not kept any more; 301; the disk's.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<LogEntry>> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                if entry.at > self.after {
                    self.position = entry.at;
                    return Ok(Some(entry));
                }
                continue;
            }
            let visible = self.inner.trees.views().visible();
            let record = match self.early.take() {
                Some(early) => early,
                None => {
                    let Some(record) = self.reader.next()? else {
                        let log = self.inner.log()?;
                        if self.log.as_ptr() == Arc::as_ptr(&log) {
                            return Ok(None);
                        }
                        // It goes on in the log that took the place of the one before.
                        self.reader = log.read(self.position);
                        self.log = Arc::downgrade(&log);
                        self.after = self.position;
                        continue;
                    };
                    let commit = CommitId {
                        index: record.index,
                        at: record.at,
                    };
                    Early {
                        commit,
                        term: record.term,
                        payload: Bytes::copy_from_slice(record.payload),
                    }
                }
            };
            let at = record.commit.at;
            if at > visible {
                self.early = Some(record);
                return Ok(None);
            }
            self.commit = record.commit;
            self.read(at, record.term, &record.payload)?;
            // Records that tell nothing bring readers on as well.
            if self.ready.is_empty() {
                self.position = self.position.max(at);
            }
        }
    }

    fn name(&mut self, tree: u32, at: Timestamp) -> Option<Arc<Named>> {
        let inner = &self.inner;
        let name = self.names.entry(tree);
        name.or_insert_with(|| inner.name_at(tree, at)).clone()
    }

    /// Reads a record.
    fn read(&mut self, at: Timestamp, term: u64, payload: &Bytes) -> Result<()> {
        let inner = self.inner.clone();
        let bad = |offset: usize| {
            damaged(
                &inner.path,
                &format!("the record of {at} cannot be read at byte {offset} of its payload"),
            )
        };
        // Names are forgotten with the log that they are needed for.
        let kept = || match at > inner.log()?.begins_after() {
            true => Ok(()),
            false => Err(Error::new(
                Code::ChangeStreamHistoryLost,
                "the log no longer reaches back so far: its oldest records were trimmed",
            )),
        };
        let mut reader = Reader::new(payload).ok_or_else(|| bad(0))?;
        let (kind, wall_ms) = (reader.kind(), reader.wall_clock());
        let part = |range: Range<usize>| payload.slice(range);
        let mut ops: Vec<(Operation, usize)> = Vec::new();
        let (mut before, mut session) = (None, None);
        let mut last: Option<(u32, Arc<Named>)> = None;
        loop {
            let op = match reader.next() {
                Ok(Some(op)) => op,
                Ok(None) => break,
                Err(offset) => return Err(bad(offset)),
            };
            let (tree, what, end) = match op {
                Op::Insert { tree, doc, .. } => (
                    tree,
                    What::Insert {
                        doc: part(doc.clone()),
                    },
                    doc.end,
                ),
                Op::Replace { tree, doc, .. } => (
                    tree,
                    What::Replace {
                        doc: part(doc.clone()),
                    },
                    doc.end,
                ),
                Op::Diff { tree, id, diff, .. } => {
                    let (id, end) = (part(id), diff.end);
                    (
                        tree,
                        What::Update {
                            id,
                            diff: part(diff),
                        },
                        end,
                    )
                }
                Op::Delete { tree, id, .. } => (
                    tree,
                    What::Delete {
                        id: part(id.clone()),
                    },
                    id.end,
                ),
                Op::Note { doc } => (
                    0,
                    What::Note {
                        doc: part(doc.clone()),
                    },
                    doc.end,
                ),
                Op::Image { doc } => {
                    before = Some(part(doc));
                    continue;
                }
                Op::Session { key, added } => {
                    let key = SessionKey::from_bytes(&part(key));
                    session = key.zip(SessionRecord::decode(&part(added)));
                    continue;
                }
                Op::Collection { id, .. } | Op::Drop { id } => {
                    // It has another name from now on, or none.
                    self.names.remove(&id);
                    last = None;
                    continue;
                }
                Op::Entries { .. } | Op::Config { .. } => continue,
            };
            // Most operations of a record are of one collection.
            if tree != 0 && last.as_ref().is_none_or(|(of, _)| *of != tree) {
                match self.name(tree, at) {
                    Some(name) => last = Some((tree, name)),
                    None => {
                        kept()?;
                        return Err(bad(end));
                    }
                }
            }
            let of = last.as_ref().filter(|_| tree != 0);
            let of = of.map(|(_, name)| name.clone());
            let operation = Operation {
                what,
                of,
                before: before.take(),
                statement: None,
                returned: None,
            };
            ops.push((operation, end));
        }
        kept()?;
        let mut behind = None;
        if let Some((_, record)) = &session
            && record.state == SessionState::Retryable
        {
            behind = record.behind;
            let done = statements(record);
            if done.len() == ops.len() {
                for ((op, _), (id, returned)) in ops.iter_mut().zip(done) {
                    op.statement = Some(id);
                    op.returned = returned;
                }
            }
        }
        let session = session.map(|(key, record)| (key, record.number));
        let stamps = entry_count(kind, ops.len(), payload.len() - HEAD);
        let first = at.minus(stamps - 1);
        let mut told = |at, ops, whole| {
            self.ready.push_back(LogEntry {
                at,
                term,
                wall_ms,
                ops,
                whole,
                session,
                previous: behind,
            });
            let chained = session.is_some() || matches!(whole, Whole::Transaction(_));
            behind = chained.then_some(at);
        };
        match kind {
            // A record without any operation moves the clock on; one with nothing but what readers
            // are not told of (entries of an index that is built) tells nothing.
            Kind::Plain if ops.is_empty() => {
                if payload.len() == HEAD {
                    told(at, Vec::new(), Whole::Single);
                }
            }
            Kind::Plain => {
                for (n, (op, _)) in (0..).zip(ops) {
                    told(first.plus(n), vec![op], Whole::Single);
                }
            }
            Kind::Batch | Kind::Transaction => {
                let all = ops.len();
                let parts = in_parts(ops);
                let last = u32::try_from(parts.len().saturating_sub(1)).unwrap_or(0);
                let mut before = 0;
                // The last part has the record's timestamp, whatever room was left for more.
                for (n, ops) in (0..).zip(parts) {
                    let more = n < last;
                    let whole = match kind {
                        Kind::Transaction => Whole::Transaction(Part { more, before, all }),
                        _ => Whole::Batch,
                    };
                    before += ops.len();
                    told(at.minus(last - n), ops, whole);
                }
            }
        }
        Ok(())
    }
}

/// The ids of the statements that have written something, with what they have returned.
fn statements(record: &SessionRecord) -> Vec<(i32, Option<Image>)> {
    let mut done = Vec::new();
    for run in record.runs().iter().filter(|r| r.has_written()) {
        let returned = run.returned().map(|r| match r.after {
            true => Image::After,
            false => Image::Before,
        });
        let ids = (0..run.count).map(|n| run.first.saturating_add_unsigned(n));
        done.extend(ids.map(|id| (id, returned)));
    }
    done
}

/// As many operations at once as [`AT_ONCE`] says; each is told with where it ends in the record.
fn in_parts(ops: Vec<(Operation, usize)>) -> Vec<Vec<Operation>> {
    let mut parts: Vec<Vec<Operation>> = Vec::new();
    let (mut began, mut before) = (HEAD, HEAD);
    for (op, end) in ops {
        let last = parts.last_mut();
        match last.filter(|p| end.saturating_sub(began) <= AT_ONCE.0 && p.len() < AT_ONCE.1) {
            Some(part) => part.push(op),
            None => {
                began = before;
                parts.push(vec![op]);
            }
        }
        before = end;
    }
    parts
}
