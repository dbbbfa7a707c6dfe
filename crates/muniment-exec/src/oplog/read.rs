//! Reads the log as a collection, from a place on or backwards from its end.

use crate::cursor::Tail;
use crate::operation::OpContext;
use crate::run::current::CurrentOp;
use bytes::Bytes;
use muniment_query::{DocStream, Interrupt};
use muniment_storage::{LogEntries, LogEntry, Store, Timestamp};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Makes the documents that an entry is shown as.
pub(crate) type Render = fn(&LogEntry) -> Vec<DocBuf>;

/// The part of the log that is shown, and its form.
#[derive(Clone, Copy)]
pub(crate) struct Show {
    pub render: Render,
    /// Entries older than this have expired and are not shown; in milliseconds since 1970.
    pub since_ms: i64,
}

impl Show {
    /// The documents of an entry.
    pub(crate) fn documents(&self, entry: &LogEntry) -> Vec<DocBuf> {
        match entry.wall_ms < self.since_ms {
            true => Vec::new(),
            false => (self.render)(entry),
        }
    }
}

/// The part of the log that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Only entries later than this are read.
    pub after: Timestamp,
    /// No entry later than this is read.
    pub until: Timestamp,
}

impl Span {
    pub(crate) const ALL: Span = Span {
        after: Timestamp::ZERO,
        until: Timestamp::MAX,
    };

    /// Narrows the span to what a filter on the timestamp at `path` leaves of it.
    pub(crate) fn within(mut self, filter: Doc<'_>, path: &str) -> Span {
        for e in filter {
            match (e.name(), e.value()) {
                ("$and", Value::Array(all)) => {
                    for d in all.values().filter_map(|v| v.as_doc()) {
                        self = self.within(d, path);
                    }
                }
                (name, Value::Document(d)) if name == path => {
                    for c in d {
                        self = self.compared(c.name(), c.value());
                    }
                }
                (name, v) if name == path => self = self.compared("$eq", v),
                _ => {}
            }
        }
        self
    }

    fn compared(mut self, operator: &str, v: Value<'_>) -> Span {
        let Value::Timestamp { t, i } = v else {
            return self;
        };
        let at = Timestamp::new(t, i);
        let (from, to) = match operator {
            "$eq" => (at.minus(1), at),
            "$gt" => (at, Timestamp::MAX),
            "$gte" => (at.minus(1), Timestamp::MAX),
            "$lt" => (Timestamp::ZERO, at.minus(1)),
            "$lte" => (Timestamp::ZERO, at),
            _ => return self,
        };
        self.after = self.after.max(from);
        self.until = self.until.min(to);
        self
    }
}

/// Replaces 286 by 136 CappedPositionLost, for a log that no longer reaches back to a place.
fn position_lost(e: Error) -> Error {
    if e.code() != Code::ChangeStreamHistoryLost {
        return e;
    }
    Error::new(
        Code::CappedPositionLost,
        "CollectionScan died due to position in capped collection being deleted: the oplog does not \
         go back so far any more",
    )
}

/// Entries between two checks whether the operation may go on.
const TICK: u32 = 64;

/// The part that the readers in both directions share.
struct Reader {
    store: Arc<Store>,
    op: Arc<CurrentOp>,
    show: Show,
    read: u32,
}

impl Reader {
    /// The entries later than `after` that the log still has.
    fn entries(&self, after: Timestamp) -> Result<LogEntries> {
        self.store
            .log_entries(after.max(self.store.log_begins_after()?))
    }

    fn next(&mut self, entries: &mut LogEntries) -> Result<Option<LogEntry>> {
        self.read = self.read.wrapping_add(1);
        if self.read.is_multiple_of(TICK) {
            self.op.check()?;
        }
        let next = entries.next().map_err(position_lost)?;
        if next.is_some() {
            let op = self.op.get();
            op.counters.docs_examined.fetch_add(1, Relaxed);
        }
        Ok(next)
    }

    fn documents(&self, entry: &LogEntry) -> impl DoubleEndedIterator<Item = Bytes> + use<> {
        let all = self.show.documents(entry).into_iter();
        all.map(|d| Bytes::from(d.into_bytes()))
    }
}

/// Reads the log from a place on.
pub(crate) struct Forward {
    reader: Reader,
    entries: LogEntries,
    until: Timestamp,
    /// An entry that was read, but was written after the batch began. It belongs to the next batch.
    next: Option<LogEntry>,
    ready: VecDeque<Bytes>,
    follower: Arc<Follower>,
}

impl Forward {
    pub(crate) fn open(
        store: &Arc<Store>,
        op: &Arc<CurrentOp>,
        span: Span,
        show: Show,
    ) -> Result<Forward> {
        let reader = Reader {
            store: store.clone(),
            op: op.clone(),
            show,
            read: 0,
        };
        let entries = reader.entries(span.after)?;
        let follower = Follower {
            store: store.clone(),
            position: AtomicU64::new(entries.position().0),
            newest: AtomicU64::new(Timestamp::MAX.0),
        };
        Ok(Forward {
            entries,
            reader,
            until: span.until,
            next: None,
            ready: VecDeque::new(),
            follower: Arc::new(follower),
        })
    }

    /// The follower with which a cursor waits for more entries.
    pub(crate) fn follower(&self) -> Arc<Follower> {
        self.follower.clone()
    }
}

impl DocStream for Forward {
    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(doc) = self.ready.pop_front() {
                return Ok(Some(doc));
            }
            if self.next.is_none() && self.entries.position() >= self.until {
                return Ok(None);
            }
            // This is read before the reader looks: if the reader then finds no entry, there is
            // none up to this time.
            let visible = self.reader.store.visible();
            let newest = Timestamp(self.follower.newest.load(Relaxed));
            let found = match self.next.take() {
                Some(entry) => Some(entry),
                None => self.reader.next(&mut self.entries)?,
            };
            let Some(entry) = found else {
                let seen = self.entries.position().max(visible);
                self.follower.position.store(seen.0, Relaxed);
                return Ok(None);
            };
            if entry.at > self.until {
                return Ok(None);
            }
            if entry.at > newest {
                self.follower.position.store(newest.0, Relaxed);
                self.next = Some(entry);
                return Ok(None);
            }
            self.ready.extend(self.reader.documents(&entry));
        }
    }
}

/// Waits for entries after the end of the log.
pub(crate) struct Follower {
    store: Arc<Store>,
    /// All entries up to here were read.
    position: AtomicU64,
    /// Later entries belong to the next batch, so that each batch ends, however much is written.
    newest: AtomicU64,
}

impl Tail for Follower {
    fn begins(&self) {
        self.newest.store(self.store.visible().0, Relaxed);
    }

    fn wait(&self, op: &Arc<OpContext>, until: Instant) -> Result<()> {
        let position = Timestamp(self.position.load(Relaxed));
        self.store.wait_past(position, until, &**op)?;
        Ok(())
    }
}

/// Reads the log from its end backwards. It goes from one place of the sparse index to the one
/// before, and reads the entries between them forwards.
pub(crate) struct Backward {
    reader: Reader,
    /// The places before what was read, ascending.
    places: Vec<Timestamp>,
    /// All entries later than this were read.
    until: Timestamp,
    after: Timestamp,
    /// The entries of a place; the last one is given first.
    block: Vec<LogEntry>,
    /// The documents of an entry; the last one is given first.
    ready: Vec<Bytes>,
}

impl Backward {
    pub(crate) fn open(
        store: &Arc<Store>,
        op: &Arc<CurrentOp>,
        span: Span,
        show: Show,
    ) -> Result<Backward> {
        Ok(Backward {
            places: store.log_places()?,
            reader: Reader {
                store: store.clone(),
                op: op.clone(),
                show,
                read: 0,
            },
            until: span.until,
            after: span.after,
            block: Vec::new(),
            ready: Vec::new(),
        })
    }

    /// Reads the entries of the last place before those that were read. Returns false if there are
    /// none.
    fn read_block(&mut self) -> Result<bool> {
        if self.until <= self.after {
            return Ok(false);
        }
        let mut begin = None;
        while let Some(place) = self.places.pop() {
            if place < self.until {
                begin = Some(place);
                break;
            }
        }
        let Some(begin) = begin else {
            return Ok(false);
        };
        let begin = begin.max(self.after);
        if begin < self.reader.store.log_begins_after()? {
            // The log has dropped its older entries meanwhile.
            return Ok(false);
        }
        let mut entries = self.reader.entries(begin)?;
        while entries.position() < self.until {
            match self.reader.next(&mut entries)? {
                Some(entry) if entry.at <= self.until => self.block.push(entry),
                _ => break,
            }
        }
        self.until = begin;
        Ok(true)
    }
}

impl DocStream for Backward {
    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(doc) = self.ready.pop() {
                return Ok(Some(doc));
            }
            match self.block.pop() {
                Some(entry) => self.ready = self.reader.documents(&entry).collect(),
                None if self.read_block()? => {}
                None => return Ok(None),
            }
        }
    }
}
