//! Cursors: what a find or aggregate leaves open between batches, and the manager that keeps them.

use crate::engine::Engine;
use crate::operation::OpContext;
use crate::run::exec::{Exec, into_bytes};
use bytes::Bytes;
use muniment_query::{DocStream, Interrupt};
use muniment_storage::Collection;
use muniment_value::{Code, DocBuf, Error, Result, Type, doc};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long an awaitData cursor sleeps before it asks whether it was killed.
const WAIT_SLICE: Duration = Duration::from_millis(50);

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
}

/// Whose a cursor is: getMore and killCursors from elsewhere are refused.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CursorOwner {
    /// The session id (`lsid.id`'s 16 bytes).
    pub session: Option<Vec<u8>>,
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
}

/// The operation that uses a cursor now: what the stages of a pipeline ask, which outlive the
/// command that opened them.
pub(crate) struct CurrentOp(Mutex<Arc<OpContext>>);

impl CurrentOp {
    pub(crate) fn new(op: &Arc<OpContext>) -> Arc<CurrentOp> {
        Arc::new(CurrentOp(Mutex::new(op.clone())))
    }

    pub(crate) fn get(&self) -> Arc<OpContext> {
        self.0.lock().clone()
    }

    fn set(&self, op: &Arc<OpContext>) {
        *self.0.lock() = op.clone();
    }
}

impl Interrupt for CurrentOp {
    fn check(&self) -> Result<()> {
        self.0.lock().check()
    }
}

enum Source {
    /// Nothing (more).
    Empty,
    /// A plan.
    Plan(Box<Exec>),
    /// A pipeline, above a plan that may have to let go of its snapshot.
    Stream {
        stream: Box<dyn DocStream>,
        plan: Option<Arc<Mutex<Exec>>>,
        op: Arc<CurrentOp>,
    },
}

/// Documents from memory.
struct Documents(std::vec::IntoIter<Bytes>);

impl DocStream for Documents {
    fn next(&mut self) -> Result<Option<Bytes>> {
        Ok(self.0.next())
    }
}

/// An open result: a running plan with its place.
pub struct Cursor {
    namespace: String,
    collection: Option<Arc<Collection>>,
    source: Source,
    /// A document that did not fit into the last batch.
    held: Option<Bytes>,
    pub(crate) flags: CursorFlags,
}

impl Cursor {
    pub(crate) fn empty(namespace: &str, flags: CursorFlags) -> Cursor {
        Cursor {
            namespace: namespace.to_string(),
            collection: None,
            source: Source::Empty,
            held: None,
            flags,
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
            flags,
        }
    }

    pub(crate) fn of_stream(
        namespace: &str,
        collection: Option<Arc<Collection>>,
        stream: Box<dyn DocStream>,
        plan: Option<Arc<Mutex<Exec>>>,
        op: Arc<CurrentOp>,
    ) -> Cursor {
        Cursor {
            namespace: namespace.to_string(),
            collection,
            source: Source::Stream { stream, plan, op },
            held: None,
            flags: CursorFlags::default(),
        }
    }

    /// A cursor over documents that a command made itself: listCollections and its like.
    pub fn of_documents(op: &Arc<OpContext>, namespace: &str, documents: Vec<Bytes>) -> Cursor {
        let stream = Box::new(Documents(documents.into_iter()));
        Cursor::of_stream(namespace, None, stream, None, CurrentOp::new(op))
    }

    /// The namespace that replies carry, `db.collection` (`db.$cmd.aggregate` without a
    /// collection).
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Lets go of the snapshot; the next batch goes on behind the last document.
    fn release(&mut self) {
        match &mut self.source {
            Source::Empty => {}
            Source::Plan(e) => e.save(),
            Source::Stream { plan, .. } => {
                if let Some(p) = plan {
                    p.lock().save();
                }
            }
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
        if let Source::Stream { op: current, .. } = &self.source {
            current.set(op);
        }
        while docs < limits.docs {
            let before = out.len();
            begin_element(docs, out);
            let body = out.len();
            let more = match self.held.take() {
                Some(doc) => {
                    out.extend_from_slice(&doc);
                    true
                }
                None => match &mut self.source {
                    Source::Empty => false,
                    Source::Plan(exec) => match exec.next_row(op)? {
                        Some(mut row) => {
                            exec.emit(&mut row, out)?;
                            true
                        }
                        None => false,
                    },
                    Source::Stream { stream, .. } => match stream.next()? {
                        Some(doc) => {
                            out.extend_from_slice(&doc);
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
                        !self.flags.tailable || e.tail_is_dead() || e.limit_reached()
                    }
                    _ => true,
                };
                return Ok(BatchEnd {
                    docs,
                    exhausted: dead,
                });
            }
            if out.len() == body {
                // The document went away between its index key and its fetch.
                out.truncate(before);
                continue;
            }
            if docs > 0 && out.len() - start > limits.bytes {
                self.held = Some(Bytes::copy_from_slice(out.get(body..).unwrap_or_default()));
                out.truncate(before);
                return Ok(BatchEnd {
                    docs,
                    exhausted: false,
                });
            }
            docs += 1;
        }
        let exhausted = match &self.source {
            Source::Empty => self.held.is_none(),
            Source::Plan(e) => e.limit_reached() && self.held.is_none(),
            Source::Stream { .. } => false,
        };
        Ok(BatchEnd { docs, exhausted })
    }

    /// The next document itself, for internal readers.
    ///
    /// # Errors
    /// As [`Cursor::fill_batch`].
    pub fn next_doc(&mut self, op: &Arc<OpContext>) -> Result<Option<Bytes>> {
        if let Some(doc) = self.held.take() {
            return Ok(Some(doc));
        }
        match &mut self.source {
            Source::Empty => Ok(None),
            Source::Plan(exec) => match exec.next_row(op)? {
                Some(row) => Ok(Some(into_bytes(exec, row)?)),
                None => Ok(None),
            },
            Source::Stream {
                stream,
                op: current,
                ..
            } => {
                current.set(op);
                stream.next()
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

/// `getMore`.
#[derive(Clone, Debug)]
pub struct GetMoreRequest<'a> {
    /// The cursor's id.
    pub id: i64,
    /// The namespace the client gives: must be the cursor's.
    pub namespace: &'a str,
    /// `batchSize`; `None` for the default.
    pub batch_size: Option<usize>,
    /// Who asks.
    pub owner: CursorOwner,
    /// `maxTimeMS` of a tailable awaitData cursor: how long to wait for data (default 1 s). For
    /// other cursors the limit belongs to the operation.
    pub await_time: Option<Duration>,
}

/// What killCursors did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KillResult {
    /// Gone (those in use stop within 100 ms).
    pub killed: Vec<i64>,
    /// Never there.
    pub not_found: Vec<i64>,
    /// Not the caller's.
    pub alive: Vec<i64>,
}

/// Figures for serverStatus `metrics.cursor`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CursorMetrics {
    /// Cursors that timed out, ever.
    pub timed_out: u64,
    /// Cursors ever opened (those that outlived their first batch).
    pub total_opened: u64,
    /// Open now.
    pub open: u64,
    /// Of those without a timeout.
    pub open_no_timeout: u64,
    /// Of those in use by a getMore.
    pub pinned: u64,
    /// Of those tailable.
    pub tailable: u64,
}

/// One idle or pinned cursor, for currentOp's idleCursors.
#[derive(Clone, Debug)]
pub struct CursorInfo {
    /// The id.
    pub id: i64,
    /// The namespace.
    pub namespace: String,
    /// Whose.
    pub owner: CursorOwner,
    /// As `$currentOp` shows it below `cursor`.
    pub description: DocBuf,
}

/// One cursor in the manager.
struct Slot {
    /// `None` while a getMore uses it.
    cursor: Option<Box<Cursor>>,
    namespace: String,
    owner: CursorOwner,
    flags: CursorFlags,
    created: Instant,
    used: Instant,
    released: bool,
    pinned_by: Option<Arc<OpContext>>,
    batches: u64,
    docs: u64,
}

const SHARDS: usize = 16;

/// Idle cursors let go of their snapshot after this.
const RELEASE_AFTER: Duration = Duration::from_secs(2);

/// The open cursors of a server.
pub struct CursorManager {
    shards: [Mutex<HashMap<i64, Slot>>; SHARDS],
    timeout_ms: AtomicU64,
    timed_out: AtomicU64,
    opened: AtomicU64,
    seed: RandomState,
    next: AtomicU64,
}

impl CursorManager {
    /// An empty manager with MongoDB's timeout of 10 minutes.
    pub fn new() -> CursorManager {
        CursorManager {
            shards: Default::default(),
            timeout_ms: AtomicU64::new(600_000),
            timed_out: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            seed: RandomState::new(),
            next: AtomicU64::new(1),
        }
    }

    fn shard(&self, id: i64) -> &Mutex<HashMap<i64, Slot>> {
        &self.shards[(id as u64 % SHARDS as u64) as usize]
    }

    /// Keeps a cursor; its id is random, positive and not in use.
    fn keep(&self, cursor: Cursor, owner: CursorOwner, docs: usize) -> i64 {
        self.opened.fetch_add(1, Relaxed);
        let now = Instant::now();
        let slot = Slot {
            namespace: cursor.namespace.clone(),
            flags: cursor.flags,
            cursor: Some(Box::new(cursor)),
            owner,
            created: now,
            used: now,
            released: false,
            pinned_by: None,
            batches: 1,
            docs: docs as u64,
        };
        loop {
            let n = self.seed.hash_one(self.next.fetch_add(1, Relaxed));
            let id = (n & i64::MAX as u64) as i64;
            if id == 0 {
                continue;
            }
            let mut shard = self.shard(id).lock();
            if let std::collections::hash_map::Entry::Vacant(v) = shard.entry(id) {
                v.insert(slot);
                return id;
            }
        }
    }

    /// Takes a cursor out for a getMore.
    fn check_out(&self, op: &Arc<OpContext>, request: &GetMoreRequest<'_>) -> Result<Box<Cursor>> {
        let id = request.id;
        let mut shard = self.shard(id).lock();
        let slot = shard.get_mut(&id).ok_or_else(|| not_found(id))?;
        if slot.namespace != request.namespace {
            return Err(Error::new(
                Code::Unauthorized,
                format!(
                    "Requested getMore on namespace '{}', but cursor belongs to a different \
                     namespace {}",
                    request.namespace, slot.namespace
                ),
            ));
        }
        check_owner(id, &slot.owner, &request.owner)?;
        let Some(cursor) = slot.cursor.take() else {
            return Err(Error::new(
                Code::CursorInUse,
                format!("cursor id {id} is already in use"),
            ));
        };
        slot.pinned_by = Some(op.clone());
        Ok(cursor)
    }

    /// Gives a cursor back; it is dropped if it was killed meanwhile.
    fn check_in(&self, id: i64, cursor: Box<Cursor>, docs: usize) {
        if let Some(slot) = self.shard(id).lock().get_mut(&id) {
            slot.cursor = Some(cursor);
            slot.pinned_by = None;
            slot.used = Instant::now();
            slot.released = false;
            slot.batches += 1;
            slot.docs += docs as u64;
        }
    }

    fn remove(&self, id: i64) {
        let slot = self.shard(id).lock().remove(&id);
        if let Some(op) = slot.and_then(|s| s.pinned_by) {
            op.kill(Code::CursorKilled);
        }
    }

    fn remove_where(&self, condition: impl Fn(&Slot) -> bool) {
        for shard in &self.shards {
            let ids: Vec<i64> = shard
                .lock()
                .iter()
                .filter(|(_, s)| condition(s))
                .map(|(id, _)| *id)
                .collect();
            for id in ids {
                self.remove(id);
            }
        }
    }

    /// Kills cursors of one namespace's collection.
    pub fn kill(&self, namespace: &str, ids: &[i64], owner: &CursorOwner) -> KillResult {
        let mut result = KillResult::default();
        for &id in ids {
            let verdict = self
                .shard(id)
                .lock()
                .get(&id)
                .filter(|s| s.namespace == namespace)
                .map(|s| s.owner.user == owner.user);
            match verdict {
                None => result.not_found.push(id),
                Some(false) => result.alive.push(id),
                Some(true) => {
                    self.remove(id);
                    result.killed.push(id);
                }
            }
        }
        result
    }

    /// Kills the cursors of a session.
    pub fn kill_session(&self, session: &[u8]) {
        self.remove_where(|s| s.owner.session.as_deref() == Some(session));
    }

    /// Kills the cursors of a namespace, or of a whole database (`db.` prefix): dropped.
    pub fn kill_namespace(&self, namespace: &str) {
        self.remove_where(|s| {
            s.namespace == namespace
                || (namespace.ends_with('.') && s.namespace.starts_with(namespace))
        });
    }

    /// Kills all: shutdown.
    pub fn kill_all(&self) {
        self.remove_where(|_| true);
    }

    /// To be called about once a second by a monitor thread: times out what was idle for long
    /// and makes cursors that idle for a few seconds let go of their snapshot.
    pub fn tick(&self) {
        let timeout = Duration::from_millis(self.timeout_ms.load(Relaxed));
        for shard in &self.shards {
            let mut gone = Vec::new();
            let mut shard = shard.lock();
            for (id, slot) in shard.iter_mut() {
                let idle = slot.used.elapsed();
                let Some(cursor) = &mut slot.cursor else {
                    continue;
                };
                if idle >= timeout && !slot.flags.no_timeout {
                    gone.push(*id);
                } else if idle >= RELEASE_AFTER && !slot.released {
                    cursor.release();
                    slot.released = true;
                }
            }
            for id in gone {
                shard.remove(&id);
                self.timed_out.fetch_add(1, Relaxed);
            }
        }
    }

    /// Makes every idle cursor let go of its snapshot now.
    #[cfg(test)]
    pub(crate) fn release_all(&self) {
        for shard in &self.shards {
            for slot in shard.lock().values_mut() {
                if let Some(c) = &mut slot.cursor {
                    c.release();
                }
            }
        }
    }

    /// `cursorTimeoutMillis`.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout_ms.store(timeout.as_millis() as u64, Relaxed);
    }

    /// `cursorTimeoutMillis` as it is.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Relaxed))
    }

    /// Figures.
    pub fn metrics(&self) -> CursorMetrics {
        let mut m = CursorMetrics {
            timed_out: self.timed_out.load(Relaxed),
            total_opened: self.opened.load(Relaxed),
            ..CursorMetrics::default()
        };
        for shard in &self.shards {
            for slot in shard.lock().values() {
                m.open += 1;
                m.open_no_timeout += u64::from(slot.flags.no_timeout);
                m.pinned += u64::from(slot.cursor.is_none());
                m.tailable += u64::from(slot.flags.tailable);
            }
        }
        m
    }

    /// The open cursors.
    pub fn list(&self) -> Vec<CursorInfo> {
        let mut all = Vec::new();
        for shard in &self.shards {
            for (id, s) in shard.lock().iter() {
                all.push(CursorInfo {
                    id: *id,
                    namespace: s.namespace.clone(),
                    owner: s.owner.clone(),
                    description: doc! {
                        "cursorId": *id,
                        "createdSecsAgo": s.created.elapsed().as_secs() as i64,
                        "lastAccessSecsAgo": s.used.elapsed().as_secs() as i64,
                        "nDocsReturned": s.docs as i64,
                        "nBatchesReturned": s.batches as i64,
                        "noCursorTimeout": s.flags.no_timeout,
                        "tailable": s.flags.tailable,
                        "awaitData": s.flags.await_data,
                    },
                });
            }
        }
        all
    }
}

impl Default for CursorManager {
    fn default() -> CursorManager {
        CursorManager::new()
    }
}

fn not_found(id: i64) -> Error {
    Error::new(Code::CursorNotFound, format!("cursor id {id} not found"))
}

fn check_owner(id: i64, cursor: &CursorOwner, asks: &CursorOwner) -> Result<()> {
    if cursor.user != asks.user {
        return Err(Error::new(
            Code::Unauthorized,
            format!("cursor id {id} was not created by the authenticated user"),
        ));
    }
    let message = match (&cursor.session, &asks.session) {
        (None, Some(_)) => {
            return Err(Error::location(
                50736,
                format!(
                    "Cannot run getMore on cursor {id}, which was not created in a session, in a \
                     session"
                ),
            ));
        }
        (Some(_), None) => (50737, "which was created in a session, without an lsid"),
        (Some(a), Some(b)) if a != b => {
            (50738, "which was created in a session, in another session")
        }
        _ => return Ok(()),
    };
    Err(Error::location(
        message.0,
        format!("Cannot run getMore on cursor {id}, {}", message.1),
    ))
}

/// Appends `cursor: {NAME: […], id, ns}`; `fill` appends the array's elements and tells the id.
fn append_reply(
    out: &mut Vec<u8>,
    array: &str,
    namespace: &str,
    fill: impl FnOnce(&mut Vec<u8>) -> Result<i64>,
) -> Result<i64> {
    let start = out.len();
    out.push(Type::Document as u8);
    out.extend_from_slice(b"cursor\0");
    let doc_at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(Type::Array as u8);
    out.extend_from_slice(array.as_bytes());
    out.push(0);
    let array_at = out.len();
    out.extend_from_slice(&[0; 4]);
    let id = match fill(out) {
        Ok(id) => id,
        Err(e) => {
            out.truncate(start);
            return Err(e);
        }
    };
    out.push(0);
    set_length(out, array_at);
    out.push(Type::Int64 as u8);
    out.extend_from_slice(b"id\0");
    out.extend_from_slice(&id.to_le_bytes());
    out.push(Type::String as u8);
    out.extend_from_slice(b"ns\0");
    out.extend_from_slice(&(namespace.len() as u32 + 1).to_le_bytes());
    out.extend_from_slice(namespace.as_bytes());
    out.extend_from_slice(&[0, 0]);
    set_length(out, doc_at);
    Ok(id)
}

fn set_length(out: &mut [u8], at: usize) {
    let n = ((out.len() - at) as u32).to_le_bytes();
    if let Some(head) = out.get_mut(at..at + 4) {
        head.copy_from_slice(&n);
    }
}

impl Engine {
    /// Fills the first batch and appends the reply's element
    /// `cursor: {firstBatch: […], id, ns}` to the document being built in `out` (bytes only: the
    /// caller owns its length and end). The cursor is kept when it has more, unless
    /// `single_batch`. Returns the id (0: nothing kept).
    ///
    /// # Errors
    /// As [`Cursor::fill_batch`]; `out` is then as it was.
    pub fn first_batch(
        &self,
        op: &Arc<OpContext>,
        mut cursor: Cursor,
        owner: CursorOwner,
        limits: BatchLimits,
        out: &mut Vec<u8>,
    ) -> Result<i64> {
        let namespace = cursor.namespace.clone();
        append_reply(out, "firstBatch", &namespace, |out| {
            let end = cursor.fill_batch(op, out, limits)?;
            if end.exhausted || cursor.flags.single_batch {
                return Ok(0);
            }
            Ok(self.cursors.keep(cursor, owner, end.docs))
        })
    }

    /// `getMore`: appends `cursor: {nextBatch: […], id, ns}` to `out` and returns the id.
    ///
    /// # Errors
    /// 43 CursorNotFound "cursor id N not found"; 13 Unauthorized for another namespace or owner;
    /// 143 CursorInUse; 237 CursorKilled; what the plan raises (the cursor is gone then).
    pub fn get_more(
        &self,
        op: &Arc<OpContext>,
        request: &GetMoreRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<i64> {
        let mut cursor = self.cursors.check_out(op, request)?;
        let limits = request
            .batch_size
            .filter(|&n| n > 0)
            .map_or(BatchLimits::NEXT, BatchLimits::of);
        let result = append_reply(out, "nextBatch", request.namespace, |out| {
            let end = next_batch(op, &mut cursor, request, limits, out)?;
            if end.exhausted {
                return Ok(0);
            }
            self.cursors.check_in(request.id, cursor, end.docs);
            Ok(request.id)
        });
        if !matches!(result, Ok(id) if id != 0) {
            // Forgotten without killing the operation that is just ending.
            self.cursors.shard(request.id).lock().remove(&request.id);
        }
        result
    }
}

fn next_batch(
    op: &Arc<OpContext>,
    cursor: &mut Cursor,
    request: &GetMoreRequest<'_>,
    limits: BatchLimits,
    out: &mut Vec<u8>,
) -> Result<BatchEnd> {
    if let Some(c) = &cursor.collection
        && c.is_dropped()
    {
        return Err(Error::new(
            Code::QueryPlanKilled,
            "collection dropped between getMore calls",
        ));
    }
    if !(cursor.flags.tailable && cursor.flags.await_data) {
        return cursor.fill_batch(op, out, limits);
    }
    let until = Instant::now() + request.await_time.unwrap_or(Duration::from_secs(1));
    loop {
        // Read before looking, so that an insert in between is not slept through.
        let seen = cursor
            .collection
            .as_ref()
            .map_or(0, |c| c.wait_insert(0, Duration::ZERO));
        let end = cursor.fill_batch(op, out, limits)?;
        let now = Instant::now();
        if end.docs > 0 || end.exhausted || now >= until {
            return Ok(end);
        }
        op.check()?;
        if let Some(c) = &cursor.collection {
            if c.is_dropped() {
                return Err(Error::new(
                    Code::QueryPlanKilled,
                    "collection dropped while the cursor waited for data",
                ));
            }
            c.wait_insert(seen, (until - now).min(WAIT_SLICE));
        }
    }
}
