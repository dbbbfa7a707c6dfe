//! Reads the log as an oplog: a reader that follows it gets every entry once, in order, with the names
//! of its time.

use crate::commit::announce::Announce;
use crate::commit::ops::{AT_ONCE, HEAD, Kind, Op, Reader, entry_count};
use crate::history::Named;
use crate::inner::Inner;
use crate::retention::Window;
use crate::session_key::SessionKey;
use crate::sessions::{SessionRecord, SessionState};
use crate::store::{CommitId, Store, damaged};
use crate::watch::Awaited;
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_log::{Log, Weight};
use muniment_op::{Account, Event, Interrupt, Ledger, Share};
use muniment_value::{Code, Error, Result};
use std::collections::{HashMap, VecDeque};
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The change that an entry reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A new document.
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
    /// A document that replaced another one.
    Replace {
        /// The new one.
        doc: Bytes,
    },
    /// A document that was deleted.
    Delete {
        /// As [`What::Update`] has it.
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
    /// The change.
    pub what: What,
    /// The collection that was changed; `None` for notes.
    pub of: Option<Arc<Named>>,
    /// The record's key; empty for notes.
    pub record_key: Bytes,
    /// The document before the change, if the collection keeps it (`changeStreamPreAndPostImages`).
    pub before: Option<Bytes>,
    /// What names the document in a sharded collection: the fields of the shard key, and `_id`.
    pub key: Option<Bytes>,
    /// The id of the statement of a retryable write.
    pub statement: Option<i32>,
    /// The document that the statement returned, which a client needs that sends it again.
    pub returned: Option<Image>,
}

/// Which document of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// The document before the change.
    Before,
    /// The document after the change.
    After,
}

/// Operations that were committed together: a single one, or all of a transaction or a batch, or as many
/// of these as fit into one document of MongoDB's oplog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its timestamp, which no other entry has.
    pub at: Timestamp,
    /// The term of the primary that committed it; 0 if there was no set.
    pub term: u64,
    /// The wall clock at the commit, in milliseconds since 1970.
    pub wall_ms: i64,
    /// The operations. Empty for a record that only moves the clock on.
    pub ops: Vec<Operation>,
    /// How its operations belong together.
    pub whole: Whole,
    /// The session of a transaction or of a retryable write, and its number.
    pub session: Option<(SessionKey, i64)>,
    /// The previous entry of the same transaction, or of the same number of the session.
    pub previous: Option<Timestamp>,
    /// Bytes of the record that the entry keeps in memory; 0 unless they are many.
    pub weight: usize,
}

/// How the operations of an entry belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// There is one operation, or none.
    Single,
    /// They were committed together without a transaction: inserts into one collection, or deletions
    /// from one. If there are too many for one entry, each entry stands for itself.
    Batch,
    /// They belong to a transaction.
    Transaction(Part),
    /// There is one operation, by which a move between shards has written or deleted a row.
    Moved,
}

impl LogEntry {
    /// How many operations of the same transaction are in entries before it.
    pub fn before(&self) -> usize {
        match self.whole {
            Whole::Transaction(part) => part.before,
            Whole::Single | Whole::Batch | Whole::Moved => 0,
        }
    }
}

/// Which part of a transaction an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Another part follows.
    pub more: bool,
    /// Operations in the parts before it.
    pub before: usize,
    /// Operations in all of them.
    pub all: usize,
}

/// A record longer than this is kept in memory only while a reader is at it.
const HEAVY: usize = 1 << 20;

/// See [`LogEntries::early`].
struct Early {
    commit: CommitId,
    term: u64,
    payload: Bytes,
}

/// Reads entries in order. At the end it can be asked again later.
pub struct LogEntries {
    inner: Arc<Inner>,
    reader: muniment_log::Reader,
    /// The log that it reads. The log is opened anew after a fault.
    log: Weak<Log>,
    /// The entries of the last record that were not passed on yet.
    pending: Option<Pending>,
    /// Entries up to here are left out. They belong to the record in whose middle the reader began.
    after: Timestamp,
    /// Everything up to here was read.
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
        let log = self.inner.journal.log()?;
        Ok(LogEntries {
            reader: log.read(after),
            log: Arc::downgrade(&log),
            inner: self.inner.clone(),
            pending: None,
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

    /// The timestamps that a record takes, from its first entry's to its own. The record is the first
    /// that ends at or after `at`. `None` if there is none yet.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost if the log does not go back so far; 301; I/O errors.
    pub fn record_from(&self, at: Timestamp) -> Result<Option<RangeInclusive<Timestamp>>> {
        let mut reader = self.inner.journal.log()?.read(at.minus(1));
        let Some(record) = reader.next()? else {
            return Ok(None);
        };
        let ops = Reader::new(record.payload).ok_or(0);
        let stamps = ops.and_then(Reader::stamps).map_err(|offset| {
            let what = format!(
                "the record of {} cannot be read at byte {offset} of its payload",
                record.at
            );
            damaged(&self.inner.home.path, &what)
        })?;
        Ok(Some(record.at.minus(stamps - 1)..=record.at))
    }

    /// The timestamp after which all entries can be read; older ones may be gone.
    ///
    /// # Errors
    /// 14031 while there is no log.
    pub fn log_begins_after(&self) -> Result<Timestamp> {
        Ok(self.inner.journal.log()?.begins_after())
    }

    /// Places in the log with about equal numbers of bytes between them, ascending, for a reader that
    /// goes through it from its end.
    ///
    /// # Errors
    /// 14031 while there is no log.
    pub fn log_places(&self) -> Result<Vec<Timestamp>> {
        Ok(self.inner.journal.log()?.places())
    }

    /// Bytes of the log's files, and the bytes that it is to keep for its readers.
    ///
    /// # Errors
    /// 14031 while there is no log.
    pub fn log_size(&self) -> Result<(u64, u64)> {
        Ok((
            self.inner.journal.log()?.bytes(),
            self.inner.retention.window().bytes,
        ))
    }

    /// The last values given to [`Store::keep_log`].
    pub fn log_window(&self) -> (u64, Duration) {
        let window = self.inner.retention.window();
        (window.bytes, window.time)
    }

    /// Keeps this many bytes of the log for its readers, and everything that is not older than `time`.
    /// When the disk is nearly full, less is kept.
    pub fn keep_log(&self, bytes: u64, time: Duration) {
        let set = |window: &mut Window| (window.bytes, window.time) = (bytes, time);
        self.inner.retention.change_window(set);
    }

    /// Keeps the log this far back for other members that get it late, whatever was given to
    /// [`Store::keep_log`]. When the disk is nearly full, less is kept.
    pub fn keep_log_for_others(&self, time: Duration) {
        let set = |window: &mut Window| window.for_others = time;
        self.inner.retention.change_window(set);
    }

    /// Waits until a commit later than `after` is visible; false if there was none by `until`, or the
    /// store was closed.
    ///
    /// # Errors
    /// What `interrupt` says.
    pub fn wait_past(
        &self,
        after: Timestamp,
        until: Instant,
        interrupt: &dyn Interrupt,
    ) -> Result<bool> {
        let is_later = || self.visible() > after;
        let ready = || (is_later() || self.is_closed()).then_some(());
        let moved = &self.inner.watch.moved;
        let awaited = Awaited::Visible(Awaited::past(after));
        moved.wait_for_until(awaited, interrupt, until, ready)?;
        Ok(is_later())
    }

    /// Waits until everything up to `at` is visible.
    ///
    /// # Errors
    /// 91 when the store is closed; what `interrupt` says.
    pub fn wait_for_visible(&self, at: Timestamp, interrupt: &dyn Interrupt) -> Result<()> {
        let visible = || self.visible() >= at;
        self.wait_for(Awaited::Visible(at), interrupt, visible)
    }

    /// Waits until this is so, which is what `awaited` says.
    ///
    /// # Errors
    /// 91 when the store is closed; what `interrupt` says.
    pub(crate) fn wait_for(
        &self,
        awaited: Awaited,
        interrupt: &dyn Interrupt,
        is_so: impl Fn() -> bool,
    ) -> Result<()> {
        let ready = || (is_so() || self.is_closed()).then_some(());
        let moved = &self.inner.watch.moved;
        moved.wait_for(awaited, interrupt, ready)?;
        match is_so() {
            true => Ok(()),
            false => interrupt
                .check()
                .and_then(|()| self.inner.watch.check_open()),
        }
    }

    /// What is notified when something became visible or was committed by the majority, and when the store
    /// closes.
    pub fn moved(&self) -> Arc<Event<Awaited>> {
        self.inner.watch.moved.clone()
    }

    /// True if a thread waits for commits to become visible.
    pub fn is_watched(&self) -> bool {
        self.inner.watch.moved.waiting() > 0
    }

    /// Puts a note into the log: a change that belongs to no collection (`dropDatabase`), or the message
    /// of `appendOplogNote`. `doc` is `{op, ns, o, o2?}`.
    ///
    /// # Errors
    /// As a commit's.
    pub fn note(
        &self,
        doc: muniment_value::Doc<'_>,
        interrupt: &dyn muniment_op::Interrupt,
    ) -> Result<crate::CommitId> {
        let opening = self.inner.door.opening()?;
        let mut stage = crate::commit::stage::Stage::new(opening);
        stage.log.note(doc);
        self.inner.commit(stage, Announce::Door, interrupt, |_| {})
    }
}

impl Store {
    /// Puts a configuration of the replica set into the log, as the consensus wrote it, with a note as
    /// for [`Store::note`]. Applying it changes nothing in the storage; only the consensus acts on it.
    ///
    /// # Errors
    /// As a commit's.
    pub fn commit_config(
        &self,
        record: &[u8],
        note: muniment_value::Doc<'_>,
        interrupt: &dyn muniment_op::Interrupt,
    ) -> Result<crate::CommitId> {
        let opening = self.inner.door.opening()?;
        let mut stage = crate::commit::stage::Stage::new(opening);
        stage.log.config(record);
        stage.log.note(note);
        self.inner.commit(stage, Announce::Door, interrupt, |_| {})
    }
}

/// Books the memory of a large record, which all readers at it share. One is always allowed, or a reader could
/// never get past it; so are those of up to [`HEAVY`] bytes, which readers are few enough for.
fn weigh(ledger: &Arc<Ledger>, bytes: usize) -> Result<Weight> {
    let mut share = Share::new(ledger, Account::Streams);
    if let Err(refused) = share.try_hold(bytes) {
        if bytes > HEAVY && ledger.figures(Account::Streams).used > HEAVY {
            return Err(refused.into());
        }
        share.holds(bytes);
    }
    Ok(Box::new(share))
}

impl LogEntries {
    /// All entries up to here were given.
    pub fn position(&self) -> Timestamp {
        self.position
    }

    /// The commit that the last entries belong to.
    pub fn commit(&self) -> CommitId {
        self.commit
    }

    /// The next visible entry; `None` if there is none yet.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost if it is not kept any more; 301; I/O errors.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<LogEntry>> {
        loop {
            if let Some(mut pending) = self.pending.take() {
                let Some(entry) = self.tell(&mut pending)? else {
                    continue;
                };
                self.pending = (!pending.parts.is_empty()).then_some(pending);
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
                    let ledger = &self.inner.home.ledger;
                    let weigh = |bytes| weigh(ledger, bytes);
                    let Some(record) = self.reader.next_shared(&weigh)? else {
                        let log = self.inner.journal.log()?;
                        if self.log.as_ptr() == Arc::as_ptr(&log) {
                            return Ok(None);
                        }
                        // The log was opened anew, so the reader goes on in the new one.
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
                        payload: record.payload,
                    }
                }
            };
            let at = record.commit.at;
            if at > visible {
                self.early = Some(record);
                return Ok(None);
            }
            self.commit = record.commit;
            self.pending = self.begin(at, record.term, record.payload)?;
            // Records without entries move the position on as well.
            if self.pending.is_none() {
                self.position = self.position.max(at);
            }
        }
    }

    fn name(&mut self, tree: u32, at: Timestamp) -> Option<Arc<Named>> {
        let inner = &self.inner;
        let name = self.names.entry(tree);
        name.or_insert_with(|| inner.catalog.name_at(tree, at))
            .clone()
    }

    /// Looks through a record for its entries. Its operations are read when their entry is given,
    /// because there may be millions.
    fn begin(&mut self, at: Timestamp, term: u64, payload: Bytes) -> Result<Option<Pending>> {
        let mut reader = Reader::new(&payload).ok_or_else(|| self.bad(at, 0))?;
        let (kind, wall_ms) = (reader.kind(), reader.wall_clock());
        let mut session = None;
        let mut parts = Parts::new(kind);
        while let Some(op) = reader.next().map_err(|offset| self.bad(at, offset))? {
            if let Op::Session { key, added } = &op {
                let part = |range: &Range<usize>| payload.get(range.clone()).unwrap_or_default();
                session = SessionKey::from_bytes(part(key)).zip(SessionRecord::decode(part(added)));
            }
            if let Some(end) = end_of(&op) {
                parts.add(end);
            }
        }
        self.is_kept(at)?;
        let all = parts.all;
        let (mut previous, mut done) = (None, Vec::new());
        if let Some((_, record)) = &session
            && record.state == SessionState::Retryable
        {
            previous = record.behind;
            done = statements(record);
            if done.len() != all {
                done.clear();
            }
        }
        // A record without any operation moves the clock on, which is an entry. A record whose
        // operations are not reported (entries of an index that is being built) has no entry.
        if all == 0 && kind == Kind::Plain && payload.len() == HEAD {
            parts.sizes.push_back(0);
        }
        let stamps = entry_count(kind, all, payload.len() - HEAD);
        let last = u32::try_from(parts.sizes.len().saturating_sub(1)).unwrap_or(0);
        let first = match kind {
            Kind::Plain | Kind::Moved => at.minus(stamps - 1),
            // The last part has the record's timestamp, even if the record took more timestamps than it
            // has parts.
            Kind::Batch | Kind::Transaction => at.minus(last),
        };
        Ok((!parts.sizes.is_empty()).then(|| Pending {
            at,
            term,
            wall_ms,
            kind,
            session: session.map(|(key, record)| (key, record.number)),
            previous,
            done: done.into(),
            offset: HEAD,
            parts: parts.sizes,
            next: first,
            told: 0,
            all,
            payload,
        }))
    }

    /// The next entry of a record; `None` when all were given.
    fn tell(&mut self, pending: &mut Pending) -> Result<Option<LogEntry>> {
        let Some(count) = pending.parts.pop_front() else {
            return Ok(None);
        };
        let ops = self.operations(pending, count)?;
        let (at, before) = (pending.next, pending.told);
        pending.next = at.plus(1);
        pending.told += count;
        let whole = match pending.kind {
            Kind::Plain => Whole::Single,
            Kind::Batch => Whole::Batch,
            Kind::Moved => Whole::Moved,
            Kind::Transaction => Whole::Transaction(Part {
                more: !pending.parts.is_empty(),
                before,
                all: pending.all,
            }),
        };
        let chained = pending.session.is_some() || pending.kind == Kind::Transaction;
        Ok(Some(LogEntry {
            at,
            term: pending.term,
            wall_ms: pending.wall_ms,
            ops,
            whole,
            session: pending.session,
            previous: std::mem::replace(&mut pending.previous, chained.then_some(at)),
            weight: match pending.payload.len() > HEAVY {
                true => pending.payload.len(),
                false => 0,
            },
        }))
    }

    /// Reads this many operations of a record.
    fn operations(&mut self, pending: &mut Pending, count: usize) -> Result<Vec<Operation>> {
        let at = pending.at;
        let payload = pending.payload.clone();
        let mut reader = Reader::at(&payload, pending.offset);
        let mut ops = Vec::with_capacity(count);
        let (mut before, mut key) = (None, None);
        let mut last: Option<(u32, Arc<Named>)> = None;
        while ops.len() < count {
            let op = reader.next().map_err(|offset| self.bad(at, offset))?;
            let Some(op) = op else {
                return Err(self.bad(at, payload.len()));
            };
            let end = end_of(&op).unwrap_or(0);
            let Some((tree, what)) = what_of(&op, &payload) else {
                match &op {
                    Op::Image { doc } => before = Some(payload.slice(doc.clone())),
                    Op::Key { doc } => key = Some(payload.slice(doc.clone())),
                    Op::Collection { id, .. } | Op::Drop { id } => {
                        // The collection has another name from now on, or none.
                        self.names.remove(id);
                        last = None;
                    }
                    _ => {}
                }
                continue;
            };
            // Most operations of a record belong to one collection, which is looked up once.
            if tree != 0 && last.as_ref().is_none_or(|(of, _)| *of != tree) {
                match self.name(tree, at) {
                    Some(name) => last = Some((tree, name)),
                    None => {
                        self.is_kept(at)?;
                        return Err(self.bad(at, end));
                    }
                }
            }
            let of = last.as_ref().filter(|_| tree != 0);
            let (statement, returned) = match pending.done.pop_front() {
                Some((id, returned)) => (Some(id), returned),
                None => (None, None),
            };
            ops.push(Operation {
                what,
                of: of.map(|(_, name)| name.clone()),
                record_key: record_key_of(&op, &payload),
                before: before.take(),
                key: key.take(),
                statement,
                returned,
            });
        }
        pending.offset = reader.place();
        if pending.parts.is_empty() {
            // The remaining operations are not reported, but they may change names.
            while let Some(op) = reader.next().map_err(|offset| self.bad(at, offset))? {
                if let Op::Collection { id, .. } | Op::Drop { id } = op {
                    self.names.remove(&id);
                }
            }
        }
        self.is_kept(at)?;
        Ok(ops)
    }

    fn bad(&self, at: Timestamp, offset: usize) -> Error {
        damaged(
            &self.inner.home.path,
            &format!("the record of {at} cannot be read at byte {offset} of its payload"),
        )
    }

    /// Names are forgotten with the part of the log that needs them, so an entry from before that is
    /// refused.
    fn is_kept(&self, at: Timestamp) -> Result<()> {
        match at > self.inner.journal.log()?.begins_after() {
            true => Ok(()),
            false => Err(Error::new(
                Code::ChangeStreamHistoryLost,
                "the log no longer reaches back so far: its oldest records were trimmed",
            )),
        }
    }
}

/// The change that an operation reports to readers, and its collection's tree; `None` if it reports none.
fn what_of(op: &Op, payload: &Bytes) -> Option<(u32, What)> {
    let part = |range: &Range<usize>| payload.slice(range.clone());
    Some(match op {
        Op::Insert { tree, doc, .. } => (*tree, What::Insert { doc: part(doc) }),
        Op::Replace { tree, doc, .. } => (*tree, What::Replace { doc: part(doc) }),
        Op::Diff { tree, id, diff, .. } => {
            let (id, diff) = (part(id), part(diff));
            (*tree, What::Update { id, diff })
        }
        Op::Delete { tree, id, .. } => (*tree, What::Delete { id: part(id) }),
        Op::Note { doc } => (0, What::Note { doc: part(doc) }),
        _ => return None,
    })
}

/// The key of the record that an operation changes; empty if it changes none.
fn record_key_of(op: &Op, payload: &Bytes) -> Bytes {
    match op {
        Op::Insert { key, .. }
        | Op::Replace { key, .. }
        | Op::Diff { key, .. }
        | Op::Delete { key, .. } => payload.slice(key.clone()),
        _ => Bytes::new(),
    }
}

/// The offset in its record at which an operation ends that is reported to readers.
fn end_of(op: &Op) -> Option<usize> {
    match op {
        Op::Insert { doc, .. } | Op::Replace { doc, .. } | Op::Note { doc } => Some(doc.end),
        Op::Diff { diff, .. } => Some(diff.end),
        Op::Delete { id, .. } => Some(id.end),
        _ => None,
    }
}

/// A record with entries that were not given yet.
struct Pending {
    at: Timestamp,
    term: u64,
    wall_ms: i64,
    kind: Kind,
    session: Option<(SessionKey, i64)>,
    previous: Option<Timestamp>,
    /// The statements of the remaining operations.
    done: VecDeque<(i32, Option<Image>)>,
    payload: Bytes,
    /// The offset of the next operation.
    offset: usize,
    /// The number of operations in each of the remaining entries.
    parts: VecDeque<usize>,
    /// The timestamp of the next entry.
    next: Timestamp,
    told: usize,
    all: usize,
}

/// Divides the operations of a record into entries: one each, or as many together as [`AT_ONCE`] allows.
struct Parts {
    kind: Kind,
    sizes: VecDeque<usize>,
    all: usize,
    /// The offset at which the current part begins, and the one at which the last operation ended.
    began: usize,
    before: usize,
}

impl Parts {
    fn new(kind: Kind) -> Parts {
        Parts {
            kind,
            sizes: VecDeque::new(),
            all: 0,
            began: HEAD,
            before: HEAD,
        }
    }

    /// Adds an operation, which ends here.
    fn add(&mut self, end: usize) {
        self.all += 1;
        let alone = matches!(self.kind, Kind::Plain | Kind::Moved);
        let last = self.sizes.back_mut().filter(|_| !alone);
        match last.filter(|p| end.saturating_sub(self.began) <= AT_ONCE.0 && **p < AT_ONCE.1) {
            Some(part) => *part += 1,
            None => {
                self.began = self.before;
                self.sizes.push_back(1);
            }
        }
        self.before = end;
    }
}

/// The ids of the statements that have written something, with the documents that they returned.
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
