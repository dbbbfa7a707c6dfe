//! Cursors: the state that a find or aggregate keeps between batches, and the manager that holds
//! it.

use crate::operation::{OpContext, ReplyRoom};
use crate::run::Row;
use crate::run::current::CurrentOp;
use crate::run::exec::{Exec, into_bytes};
use bytes::Bytes;
use muniment_op::{Interrupt, Share};
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
    /// The most documents (`batchSize`). With 0, the first batch is empty and the cursor stays
    /// open.
    pub docs: usize,
    /// The most bytes, 16 MiB. A batch has at least one document, however large.
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

/// The way in which a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchEnd {
    /// Documents appended.
    pub docs: usize,
    /// True if nothing more can come, so that the reply has 0 for the cursor's id. A tailable
    /// cursor is never exhausted.
    pub exhausted: bool,
    /// True if the batch ended because there is nothing more for now.
    pub drained: bool,
}

/// The owner of a cursor. getMore and killCursors are refused to anyone else.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CursorOwner {
    /// The session.
    pub session: Option<SessionKey>,
    /// The authenticated user, `user@db`.
    pub user: Option<Arc<str>>,
    /// Since when the user has the present rights, as a number that rises with each change of users and roles.
    pub as_of: u64,
    /// The number of the transaction in which the cursor was opened.
    pub txn_number: Option<i64>,
}

/// How a cursor behaves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CursorFlags {
    pub tailable: bool,
    pub await_data: bool,
    pub no_timeout: bool,
    pub single_batch: bool,
    /// True if the cursor follows the log, so that the end of its collection does not end it.
    pub follows: bool,
}

enum Source {
    /// There is nothing, or nothing more.
    Empty,
    /// One document that has already been found.
    One(Bytes),
    /// Documents in memory, and their share of the memory ledger.
    Documents {
        list: std::vec::IntoIter<Bytes>,
        /// Gives the memory back when the cursor ends.
        _booked: Share,
    },
    /// A running plan.
    Plan(Box<Exec>),
    /// A pipeline above plans, which may have to release their snapshots.
    Stream {
        stream: Box<dyn DocStream>,
        op: Arc<CurrentOp>,
    },
}

/// What was appended to a batch.
enum Put {
    /// Nothing: there are no more documents for now.
    Nothing,
    Document,
    /// The document of a plan's row, or no bytes if it is gone.
    Row(Row),
}

/// The part below a cursor that continues after it has come to its end: a stream of the log, or of the
/// logs of several shards. It is told what the cursor does, and tells the cursor when there may be
/// more.
pub trait Tail: Send + Sync {
    /// A batch begins. It ends with what is there at this moment, however much arrives meanwhile;
    /// otherwise a busy log would never let it end.
    fn begins(&self) {}

    /// A batch has ended. Anything that can be read again need not be kept if many other cursors keep
    /// the same.
    fn rests(&self) {}

    /// The client has not asked for a batch for a while. Anything that can be read again need not
    /// be kept.
    fn idles(&self) {}

    /// Returns when there may be more, but not later than `until`.
    ///
    /// # Errors
    /// The error that ends the operation.
    fn wait(&self, op: &Arc<OpContext>, until: Instant) -> Result<()>;

    /// True if the batch ends now even without documents, because its token tells something that is
    /// waited for.
    fn has_news(&self) -> bool {
        false
    }

    /// The cursor is about to pass on a document.
    ///
    /// # Errors
    /// An error here closes the cursor.
    fn passes(&self, _doc: Doc<'_>) -> Result<()> {
        Ok(())
    }

    /// The `postBatchResumeToken` at the end of a batch. `drained` is true if the batch ended
    /// because there was nothing more.
    fn token(&self, _drained: bool) -> Option<DocBuf> {
        None
    }

    /// True if nothing more can come.
    fn has_ended(&self) -> bool {
        false
    }

    /// True for a change stream.
    fn is_change_stream(&self) -> bool {
        false
    }
}

/// An open result: a running plan and its position.
pub struct Cursor {
    namespace: String,
    collection: Option<Arc<Collection>>,
    source: Source,
    /// A document that did not fit into the last batch. It is kept because it cannot be read again.
    held: Option<Held>,
    pub(crate) flags: CursorFlags,
    /// The rest of the `maxTimeMS` of the command that opened the cursor.
    time_left: Option<std::time::Duration>,
    opener: Opener,
    /// The view that the cursor reads, if its command chose one.
    pinned: Option<Snapshot>,
    /// The sharded collections that the router knew which has opened it.
    sharded: Option<Arc<[String]>>,
    tail: Option<Arc<dyn Tail>>,
    /// The memory of the parsed command, if that is large.
    parsed: Option<Share>,
}

/// A document that is kept for the next batch.
struct Held {
    doc: Bytes,
    /// The document's memory, if it is large and the cursor belongs to a client.
    _share: Option<Share>,
}

/// A document up to this size is not booked: every cursor takes about as much anyway.
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

/// The command that opened a cursor, which decides the prefix of its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opener {
    Find,
    Aggregate,
    /// Any other command; these run no plan.
    Other,
}

/// MongoDB's prefix for an error of a find while documents are processed, in its first batch.
pub fn find_context(namespace: &str) -> String {
    format!("Executor error during find command: {namespace} :: caused by :: ")
}

impl Opener {
    /// MongoDB's prefix for an error in the first batch.
    pub(crate) fn context(self, namespace: &str) -> String {
        match self {
            Opener::Find => find_context(namespace),
            Opener::Aggregate => "PlanExecutor error during aggregation :: caused by :: ".into(),
            Opener::Other => String::new(),
        }
    }
}

impl Cursor {
    /// Sets the command that opened this cursor, if it is not a find.
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
            sharded: None,
            tail: None,
            parsed: None,
            opener: Opener::Find,
            flags,
        }
    }

    /// A cursor over at most one document.
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
            sharded: None,
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
            sharded: None,
            tail: None,
            parsed: None,
            opener: Opener::Aggregate,
            flags: CursorFlags::default(),
        }
    }

    /// A cursor over a stream that comes from elsewhere, such as the results of several shards. The stream asks what
    /// `open` is given whether it may go on: the operation that uses the cursor at the moment. With `single`, the
    /// cursor ends after its first batch.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn over(
        namespace: &str,
        op: &Arc<OpContext>,
        single: bool,
        open: impl FnOnce(Arc<dyn Interrupt>) -> Result<Box<dyn DocStream>>,
    ) -> Result<Cursor> {
        let current = CurrentOp::new(op);
        let stream = open(current.clone())?;
        let mut cursor = Cursor::of_stream(namespace, None, stream, current);
        cursor.flags.single_batch = single;
        Ok(cursor)
    }

    /// The same, and it does not end when nobody asks it for long, if `not` says so.
    #[must_use]
    pub fn without_timeout(mut self, not: bool) -> Cursor {
        self.flags.no_timeout = not;
        self
    }

    /// A cursor over documents that a command made itself, such as listCollections. `share` is the
    /// memory that they are booked with.
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

    /// Makes this cursor continue after its end with what `tail` brings.
    pub fn with_tail(mut self, tail: Arc<dyn Tail>) -> Cursor {
        self.tail = Some(tail);
        self.flags.tailable = true;
        self.flags.follows = true;
        self.flags.await_data = true;
        self
    }

    /// The resume token of a batch: see [`Tail::token`].
    fn token(&self, end: BatchEnd) -> Option<DocBuf> {
        self.tail
            .as_ref()?
            .token(end.drained && self.held.is_none())
    }

    /// The namespace that replies show: `db.collection`, or `db.$cmd.aggregate` without a
    /// collection.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Gives the cursor another namespace: the name of the view that it was opened on.
    pub(crate) fn named(mut self, namespace: &str) -> Cursor {
        self.namespace = namespace.to_string();
        self
    }

    /// Releases the snapshot. The next batch continues after the last document.
    pub(crate) fn release(&mut self) {
        match &mut self.source {
            Source::Empty | Source::One(_) | Source::Documents { .. } => {}
            Source::Plan(e) => e.save(),
            Source::Stream { op, .. } => {
                op.release();
            }
        }
    }

    /// To be called when a batch has ended. Releases the snapshot, and what was read ahead if there is
    /// much of it in all cursors.
    pub(crate) fn rests(&mut self) {
        self.release();
        if let Some(tail) = &self.tail {
            tail.rests();
        }
    }

    /// To be called when the client has not asked for a batch for a while. Releases the snapshot
    /// and what was read ahead.
    pub(crate) fn idles(&mut self) {
        self.release();
        if let Some(tail) = &self.tail {
            tail.idles();
        }
    }

    /// Appends the next documents to `out` as *elements of a BSON array*: type byte, decimal name
    /// from "0", document. Each document is copied once. After an error `out` is as it was.
    ///
    /// # Errors
    /// The errors of the plan; the interruption of `op`.
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
            let put = self.put_next(op, out)?;
            if matches!(put, Put::Nothing) {
                out.truncate(before);
                return Ok(BatchEnd {
                    docs,
                    exhausted: !self.may_continue(),
                    drained: true,
                });
            }
            if out.len() == body {
                // The document was deleted between the read of its index key and its fetch.
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
                self.keep(put, out.get(body..).unwrap_or_default(), room)?;
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
        Ok(BatchEnd {
            docs,
            exhausted: self.has_given_all(),
            drained: false,
        })
    }

    /// Appends the next document to `out`, if there is one.
    #[inline]
    fn put_next(&mut self, op: &Arc<OpContext>, out: &mut Vec<u8>) -> Result<Put> {
        if let Some(held) = self.held.take() {
            out.extend_from_slice(&held.doc);
            return Ok(Put::Document);
        }
        match &mut self.source {
            Source::Empty => Ok(Put::Nothing),
            Source::One(doc) => {
                out.extend_from_slice(doc);
                self.source = Source::Empty;
                Ok(Put::Document)
            }
            Source::Documents { list, .. } => match list.next() {
                Some(doc) => {
                    out.extend_from_slice(&doc);
                    Ok(Put::Document)
                }
                None => Ok(Put::Nothing),
            },
            Source::Plan(exec) => match exec.next_row(op)? {
                Some(row) => {
                    exec.emit(&row, out)?;
                    Ok(Put::Row(row))
                }
                None => Ok(Put::Nothing),
            },
            Source::Stream { stream, .. } => match stream.next()? {
                Some(doc) => {
                    let doc = Doc::new(&doc);
                    muniment_query::check_result_size(doc.byte_len())?;
                    out.extend_from_slice(doc.as_bytes());
                    Ok(Put::Document)
                }
                None => Ok(Put::Nothing),
            },
        }
    }

    /// Keeps for the next batch what was put last and has no room: the plan takes its row back if
    /// it can read the document again, else the document is held.
    fn keep(&mut self, put: Put, doc: &[u8], room: Option<&ReplyRoom>) -> Result<()> {
        if let (Source::Plan(exec), Put::Row(row)) = (&mut self.source, put)
            && exec.take_back(row)
        {
            return Ok(());
        }
        self.held = Some(Held::new(doc, room)?);
        Ok(())
    }

    /// True if a cursor that has nothing more for now may have more later. A tailable one stays
    /// open even after its limit has been reached.
    fn may_continue(&self) -> bool {
        match &self.source {
            Source::Plan(e) => self.flags.tailable && !e.tail_is_dead(),
            _ => self.tail.as_ref().is_some_and(|t| !t.has_ended()),
        }
    }

    /// True if it is certain, without a look at the next document, that there is none.
    fn has_given_all(&self) -> bool {
        match &self.source {
            Source::Empty => self.held.is_none(),
            Source::Documents { list, .. } => list.as_slice().is_empty() && self.held.is_none(),
            Source::Plan(e) => e.limit_reached() && self.held.is_none() && !self.flags.tailable,
            Source::One(_) | Source::Stream { .. } => false,
        }
    }

    /// The next document itself, for readers inside the server.
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

/// Appends the type and name of the n-th element of an array of documents.
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
