//! Cursors: what a find or aggregate leaves open between batches, and the manager that keeps them.

use crate::operation::{OpContext, ReplyRoom};
use crate::run::current::CurrentOp;
use crate::run::exec::{Exec, into_bytes};
use bytes::Bytes;
use muniment_op::Share;
use muniment_query::DocStream;
use muniment_query::meta::without;
use muniment_storage::{Collection, SessionKey, Snapshot};
use muniment_value::{Doc, DocBuf, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

mod manager;
pub(crate) mod reply;

pub use manager::{
    CursorInfo, CursorManager, CursorMetrics, GetMoreRequest, KillResult, opens_change_stream,
};

/// How large a batch may get.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// At most so many documents (`batchSize`); 0 gives an empty first batch and an open cursor.
    pub docs: usize,
    /// At most so many bytes, but always one document: 16 MiB.
    pub bytes: usize,
}

impl BatchLimits {
    /// The first batch's default: 101 documents.
    pub const FIRST: BatchLimits = BatchLimits {
        docs: 101,
        bytes: 16 << 20,
    };
    /// getMore's default: as much as fits into 16 MiB.
    pub const NEXT: BatchLimits = BatchLimits {
        docs: usize::MAX,
        bytes: 16 << 20,
    };

    /// Limits with this many documents.
    pub fn of(docs: usize) -> BatchLimits {
        BatchLimits {
            docs,
            bytes: 16 << 20,
        }
    }
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchEnd {
    /// Documents appended.
    pub docs: usize,
    /// True when there is nothing more: the cursor's id becomes 0. A tailable cursor never is.
    pub exhausted: bool,
    /// True when it ended since there is nothing more for now.
    pub drained: bool,
}

/// The owner of a cursor: getMore and killCursors by others are refused.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CursorOwner {
    /// The session.
    pub session: Option<SessionKey>,
    /// The authenticated user, `user@db`.
    pub user: Option<Arc<str>>,
    /// The transaction's number.
    pub txn_number: Option<i64>,
}

/// How a cursor behaves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CursorFlags {
    pub tailable: bool,
    pub await_data: bool,
    pub no_timeout: bool,
    pub single_batch: bool,
    /// It follows the log: what becomes of its collection does not concern it.
    pub follows: bool,
}

enum Source {
    /// Nothing (more).
    Empty,
    /// One document, found already.
    One(Bytes),
    /// Documents from memory, and what they take of the ledger.
    Documents {
        list: std::vec::IntoIter<Bytes>,
        /// Gives the memory back when the cursor ends.
        _booked: Share,
    },
    /// A plan.
    Plan(Box<Exec>),
    /// A pipeline, above plans that may have to let go of their snapshots.
    Stream {
        stream: Box<dyn DocStream>,
        op: Arc<CurrentOp>,
    },
}

/// What stands below a cursor that goes on when it has come to the end: a stream of the log. The cursor
/// is told when there is more, and tells what it has passed on.
pub(crate) trait Tail: Send + Sync {
    /// A batch begins: it ends with what is there now, however much comes meanwhile.
    fn begins(&self) {}

    /// The client has not asked for a batch for a while: what can be read again need not be kept.
    fn idles(&self) {}

    /// Returns when there may be more, and at the latest at `until`.
    ///
    /// # Errors
    /// What the operation says.
    fn wait(&self, op: &Arc<OpContext>, until: Instant) -> Result<()>;

    /// The cursor passes a document on.
    ///
    /// # Errors
    /// The cursor's: it is closed then.
    fn passes(&self, _doc: Doc<'_>) -> Result<()> {
        Ok(())
    }

    /// `postBatchResumeToken`, when a batch has ended; `drained`: since there was nothing more.
    fn token(&self, _drained: bool) -> Option<DocBuf> {
        None
    }

    /// Nothing comes any more.
    fn has_ended(&self) -> bool {
        false
    }

    /// True of a change stream.
    fn is_change_stream(&self) -> bool {
        false
    }
}

/// An open result: a running plan with its place.
pub struct Cursor {
    namespace: String,
    collection: Option<Arc<Collection>>,
    source: Source,
    /// A document that did not fit into the last batch, and cannot be read again.
    held: Option<Held>,
    pub(crate) flags: CursorFlags,
    /// What is left of the `maxTimeMS` of the command that opened it.
    time_left: Option<std::time::Duration>,
    opener: Opener,
    /// The view that it reads at, if the command chose one.
    pinned: Option<Snapshot>,
    tail: Option<Arc<dyn Tail>>,
    /// What its command was parsed to, if that is large.
    parsed: Option<Share>,
}

/// A document that waits for the next batch.
struct Held {
    doc: Bytes,
    /// What it takes, if it is large and the cursor a client's.
    _share: Option<Share>,
}

/// A document up to this size is of the size of what any cursor takes.
const SMALL_DOC: usize = 64 << 10;

impl Held {
    /// # Errors
    /// 146 ExceededMemoryLimit.
    fn new(doc: &[u8], room: Option<&ReplyRoom>) -> Result<Held> {
        let mut share = room
            .filter(|_| doc.len() > SMALL_DOC)
            .map(ReplyRoom::documents);
        if let Some(share) = &mut share {
            share.try_hold(doc.len())?;
        }
        Ok(Held {
            doc: Bytes::copy_from_slice(doc),
            _share: share,
        })
    }
}

/// The command that opens a cursor, for what stands before its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opener {
    Find,
    Aggregate,
    /// Any other, which runs no plan.
    Other,
}

impl Opener {
    /// What MongoDB puts before an error of the first batch.
    pub(crate) fn context(self, namespace: &str) -> String {
        match self {
            Opener::Find => {
                format!("Executor error during find command: {namespace} :: caused by :: ")
            }
            Opener::Aggregate => "PlanExecutor error during aggregation :: caused by :: ".into(),
            Opener::Other => String::new(),
        }
    }
}

impl Cursor {
    /// This cursor, opened by another command than a find.
    pub(crate) fn opened_by(mut self, opener: Opener) -> Cursor {
        self.opener = opener;
        self
    }

    pub(crate) fn empty(namespace: &str, flags: CursorFlags) -> Cursor {
        Cursor {
            namespace: namespace.to_string(),
            collection: None,
            source: Source::Empty,
            held: None,
            time_left: None,
            pinned: None,
            tail: None,
            parsed: None,
            opener: Opener::Find,
            flags,
        }
    }

    /// A cursor on at most one document.
    pub(crate) fn of_one(namespace: &str, doc: Option<Bytes>, flags: CursorFlags) -> Cursor {
        Cursor {
            source: doc.map_or(Source::Empty, Source::One),
            ..Cursor::empty(namespace, flags)
        }
    }

    pub(crate) fn of_exec(
        namespace: &str,
        collection: Arc<Collection>,
        exec: Exec,
        flags: CursorFlags,
    ) -> Cursor {
        Cursor {
            namespace: namespace.to_string(),
            collection: Some(collection),
            source: Source::Plan(Box::new(exec)),
            held: None,
            time_left: None,
            pinned: None,
            tail: None,
            parsed: None,
            opener: Opener::Find,
            flags,
        }
    }

    pub(crate) fn of_stream(
        namespace: &str,
        collection: Option<Arc<Collection>>,
        stream: Box<dyn DocStream>,
        op: Arc<CurrentOp>,
    ) -> Cursor {
        Cursor {
            namespace: namespace.to_string(),
            collection,
            source: Source::Stream { stream, op },
            held: None,
            time_left: None,
            pinned: None,
            tail: None,
            parsed: None,
            opener: Opener::Aggregate,
            flags: CursorFlags::default(),
        }
    }

    /// A cursor over documents that a command made itself: listCollections and its like.
    /// `share`: where they are booked.
    pub fn of_documents(namespace: &str, documents: Vec<Bytes>, share: Share) -> Cursor {
        Cursor {
            source: Source::Documents {
                list: documents.into_iter(),
                _booked: share,
            },
            opener: Opener::Other,
            ..Cursor::empty(namespace, CursorFlags::default())
        }
    }

    /// This cursor, which goes on when it has come to the end.
    pub(crate) fn with_tail(mut self, tail: Arc<dyn Tail>) -> Cursor {
        self.tail = Some(tail);
        self.flags.tailable = true;
        self.flags.follows = true;
        self.flags.await_data = true;
        self
    }

    /// What goes with a batch: see [`Tail::token`].
    fn token(&self, end: BatchEnd) -> Option<DocBuf> {
        self.tail
            .as_ref()?
            .token(end.drained && self.held.is_none())
    }

    /// The namespace that replies carry, `db.collection` (`db.$cmd.aggregate` without a
    /// collection).
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The same cursor under another name: a view's.
    pub(crate) fn named(mut self, namespace: &str) -> Cursor {
        self.namespace = namespace.to_string();
        self
    }

    /// Lets go of the snapshot; the next batch goes on after the last document.
    pub(crate) fn release(&mut self) {
        match &mut self.source {
            Source::Empty | Source::One(_) | Source::Documents { .. } => {}
            Source::Plan(e) => e.save(),
            Source::Stream { op, .. } => {
                op.release();
            }
        }
    }

    /// The client has not asked for a batch for a while: lets go of the snapshot, and of what was read
    /// ahead.
    pub(crate) fn idles(&mut self) {
        self.release();
        if let Some(tail) = &self.tail {
            tail.idles();
        }
    }

    /// Appends the next documents to `out` as *elements of a BSON array*: type byte, decimal
    /// name from "0", document. One copy of each document. When it fails, `out` is as it was.
    ///
    /// # Errors
    /// What the plan raises; what `op` says.
    pub fn fill_batch(
        &mut self,
        op: &Arc<OpContext>,
        out: &mut Vec<u8>,
        limits: BatchLimits,
    ) -> Result<BatchEnd> {
        let start = out.len();
        let result = self.fill(op, out, limits);
        match &mut self.source {
            Source::Plan(e) => e.flush(op),
            Source::Stream { op: current, .. } => current.each_plan(|e| e.flush(op)),
            _ => {}
        }
        match &result {
            Ok(end) => {
                op.counters.returned.fetch_add(end.docs as u64, Relaxed);
                if end.exhausted {
                    self.source = Source::Empty;
                }
            }
            Err(_) => out.truncate(start),
        }
        result
    }

    fn fill(
        &mut self,
        op: &Arc<OpContext>,
        out: &mut Vec<u8>,
        limits: BatchLimits,
    ) -> Result<BatchEnd> {
        let start = out.len();
        let mut docs = 0;
        let room = op.reply_room();
        let mut granted = room.map_or(usize::MAX, |room| room.granted());
        if let Source::Stream { op: current, .. } = &self.source {
            current.set(op);
        }
        if let Some(tail) = &self.tail {
            tail.begins();
        }
        while docs < limits.docs {
            let before = out.len();
            begin_element(docs, out);
            let body = out.len();
            let mut given = None;
            let more = match self.held.take() {
                Some(held) => {
                    out.extend_from_slice(&held.doc);
                    true
                }
                None => match &mut self.source {
                    Source::Empty => false,
                    Source::One(doc) => {
                        out.extend_from_slice(doc);
                        self.source = Source::Empty;
                        true
                    }
                    Source::Documents { list, .. } => match list.next() {
                        Some(doc) => {
                            out.extend_from_slice(&doc);
                            true
                        }
                        None => false,
                    },
                    Source::Plan(exec) => match exec.next_row(op)? {
                        Some(row) => {
                            exec.emit(&row, out)?;
                            given = Some(row);
                            true
                        }
                        None => false,
                    },
                    Source::Stream { stream, .. } => match stream.next()? {
                        Some(doc) => {
                            let doc = Doc::new(&doc);
                            muniment_query::check_result_size(doc.byte_len())?;
                            out.extend_from_slice(doc.as_bytes());
                            true
                        }
                        None => false,
                    },
                },
            };
            if !more {
                out.truncate(before);
                let dead = match &self.source {
                    Source::Plan(e) => {
                        // A tailable cursor stays open even when its limit is reached.
                        !self.flags.tailable || e.tail_is_dead()
                    }
                    _ => self.tail.as_ref().is_none_or(|t| t.has_ended()),
                };
                return Ok(BatchEnd {
                    docs,
                    exhausted: dead,
                    drained: true,
                });
            }
            if out.len() == body {
                // The document went away between its index key and its fetch.
                out.truncate(before);
                continue;
            }
            let mut full = docs > 0 && out.len() - start > limits.bytes;
            if let Some(room) = room.filter(|_| !full && out.len() > granted) {
                match room.grow(op, out.len(), docs == 0)? {
                    Some(more) => granted = more,
                    None => full = true,
                }
            }
            if full {
                let taken_back = match (&mut self.source, given) {
                    (Source::Plan(exec), Some(row)) => exec.take_back(row),
                    _ => false,
                };
                if !taken_back {
                    let doc = out.get(body..).unwrap_or_default();
                    self.held = Some(Held::new(doc, room)?);
                }
                out.truncate(before);
                return Ok(BatchEnd {
                    docs,
                    exhausted: false,
                    drained: false,
                });
            }
            if let Some(tail) = &self.tail {
                tail.passes(Doc::new(out.get(body..).unwrap_or_default()))?;
            }
            docs += 1;
        }
        let exhausted = match &self.source {
            Source::Empty => self.held.is_none(),
            Source::Documents { list, .. } => list.as_slice().is_empty() && self.held.is_none(),
            Source::Plan(e) => e.limit_reached() && self.held.is_none() && !self.flags.tailable,
            Source::One(_) | Source::Stream { .. } => false,
        };
        Ok(BatchEnd {
            docs,
            exhausted,
            drained: false,
        })
    }

    /// The next document itself, for internal readers.
    ///
    /// # Errors
    /// Those of [`Cursor::fill_batch`].
    pub fn next_doc(&mut self, op: &Arc<OpContext>) -> Result<Option<Bytes>> {
        if let Some(held) = self.held.take() {
            return Ok(Some(held.doc));
        }
        match &mut self.source {
            Source::Empty => Ok(None),
            Source::One(doc) => {
                let doc = std::mem::take(doc);
                self.source = Source::Empty;
                Ok(Some(doc))
            }
            Source::Documents { list, .. } => Ok(list.next()),
            Source::Plan(exec) => match exec.next_row(op)? {
                Some(row) => Ok(Some(without(into_bytes(exec, row)?))),
                None => Ok(None),
            },
            Source::Stream {
                stream,
                op: current,
                ..
            } => {
                current.set(op);
                Ok(stream.next()?.map(without))
            }
        }
    }
}

/// Appends the head of the n-th element of an array of documents.
fn begin_element(n: usize, out: &mut Vec<u8>) {
    out.push(muniment_value::Type::Document as u8);
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut n = n;
    loop {
        at -= 1;
        if let Some(d) = digits.get_mut(at) {
            *d = b'0' + (n % 10) as u8;
        }
        n /= 10;
        if n == 0 || at == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
    out.push(0);
}
