//! The open cursors: their ids, owners and timeouts, and how they are killed.

use super::{Cursor, CursorFlags, CursorOwner};
use crate::operation::{OpContext, Origin};
use muniment_storage::SessionKey;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The fields of a `getMore` command.
#[derive(Clone)]
pub struct GetMoreRequest<'a> {
    /// The cursor's id.
    pub id: i64,
    /// The namespace that the client names; it must be the cursor's.
    pub namespace: &'a str,
    /// `batchSize`; `None` for the default.
    pub batch_size: Option<usize>,
    /// The client that sends the request; it has to be the cursor's owner.
    pub owner: CursorOwner,
    /// `maxTimeMS` for a tailable awaitData cursor: how long to wait for data (1 s by default). For
    /// other cursors it limits the operation.
    pub await_time: Option<Duration>,
    /// True if the client gave `maxTimeMS`, even as 0. That is an error unless the cursor waits for
    /// data.
    pub await_time_given: bool,
    /// Asked once if the cursor's operation has a time limit. True means that the time is over,
    /// whatever the clock says; a test can demand that by a fail point.
    pub is_late: &'a dyn Fn() -> bool,
    /// Asked once when the cursor has been found. An error that it returns becomes the reply; a
    /// test can demand that by a fail point.
    pub fails: &'a dyn Fn() -> Option<Error>,
}

/// The result of killCursors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KillResult {
    /// Cursors that were killed. Those in use stop within 100 ms.
    pub killed: Vec<i64>,
    /// Cursors that do not exist.
    pub not_found: Vec<i64>,
    /// Cursors that belong to another user and stay alive.
    pub alive: Vec<i64>,
}

/// Figures for serverStatus `metrics.cursor`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CursorMetrics {
    /// Cursors that have timed out since the start.
    pub timed_out: u64,
    /// Cursors opened since the start, without those that ended with their first batch.
    pub total_opened: u64,
    /// Cursors that are open now.
    pub open: u64,
    /// Open cursors without a timeout.
    pub open_no_timeout: u64,
    /// Open cursors that a getMore is using.
    pub pinned: u64,
    /// Open cursors that are tailable.
    pub tailable: u64,
}

/// One idle or pinned cursor, for currentOp's idleCursors.
#[derive(Clone, Debug)]
pub struct CursorInfo {
    /// The id.
    pub id: i64,
    /// The operation that uses it now.
    pub used_by: Option<u32>,
    /// The namespace.
    pub namespace: String,
    /// The cursor's owner.
    pub owner: CursorOwner,
    /// The cursor in the form that `$currentOp` shows below `cursor`.
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
    /// When the operation began that has opened it, unless it reads one view to its end.
    reads_since: Option<Instant>,
    used: Instant,
    released: bool,
    /// Set when the cursor's collection has gone away; the next getMore fails with this reason.
    dead: Option<&'static str>,
    pinned_by: Option<Arc<OpContext>>,
    origin: Option<Arc<Origin>>,
    batches: u64,
    docs: u64,
}

const SHARDS: usize = 16;

/// A cursor that has been idle this long releases its snapshot.
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

    /// Whether an operation that began before a moment has opened a cursor that reads this namespace. Those that follow
    /// the log do not, and those that read one view see what is deleted later.
    pub fn any_older(&self, namespace: &str, than: Instant) -> bool {
        let older = |slot: &Slot| {
            let reads = slot.namespace == namespace && !slot.flags.follows;
            reads && slot.dead.is_none() && slot.reads_since.is_some_and(|since| since < than)
        };
        self.shards
            .iter()
            .any(|shard| shard.lock().values().any(older))
    }

    fn shard(&self, id: i64) -> &Mutex<HashMap<i64, Slot>> {
        &self.shards[(id as u64 % SHARDS as u64) as usize]
    }

    /// Keeps a cursor; its id is random, positive and not in use.
    pub(super) fn keep(
        &self,
        cursor: Cursor,
        op: &OpContext,
        owner: CursorOwner,
        docs: usize,
    ) -> i64 {
        self.opened.fetch_add(1, Relaxed);
        let now = Instant::now();
        let slot = Slot {
            namespace: cursor.namespace.clone(),
            flags: cursor.flags,
            cursor: Some(Box::new(cursor)),
            owner,
            created: now,
            reads_since: op.reads_newest().then(|| op.started()),
            used: now,
            released: false,
            dead: None,
            pinned_by: None,
            origin: None,
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

    /// Notes the command that opened a cursor. It has to be called before a client learns the id.
    pub fn opened_by(&self, id: i64, origin: Origin) {
        if let Some(slot) = self.shard(id).lock().get_mut(&id) {
            slot.origin = Some(Arc::new(origin));
        }
    }

    /// The command that opened a cursor, if its user had other rights then than at `as_of`.
    pub fn opened_before(&self, id: i64, as_of: u64) -> Option<Arc<Origin>> {
        let shard = self.shard(id).lock();
        let slot = shard.get(&id).filter(|slot| slot.owner.as_of != as_of)?;
        slot.origin.clone()
    }

    /// True for the cursor of a change stream.
    pub fn is_of_change_stream(&self, id: i64) -> bool {
        let shard = self.shard(id).lock();
        let origin = shard.get(&id).and_then(|slot| slot.origin.as_ref());
        origin.is_some_and(|origin| opens_change_stream(origin.command()))
    }

    /// Takes a cursor out of the manager for a getMore.
    pub(super) fn check_out(
        &self,
        op: &Arc<OpContext>,
        request: &GetMoreRequest<'_>,
    ) -> Result<Box<Cursor>> {
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
        if let Some(why) = slot.dead {
            shard.remove(&id);
            return Err(Error::new(Code::QueryPlanKilled, why));
        }
        let Some(cursor) = slot.cursor.take() else {
            return Err(Error::new(
                Code::CursorInUse,
                format!("cursor id {id} is already in use"),
            ));
        };
        slot.pinned_by = Some(op.clone());
        if let Some(origin) = &slot.origin {
            op.continues(origin);
        }
        Ok(cursor)
    }

    /// Gives a cursor back; it is dropped if it was killed meanwhile.
    pub(super) fn check_in(&self, id: i64, cursor: Box<Cursor>, docs: usize) {
        if let Some(slot) = self.shard(id).lock().get_mut(&id) {
            slot.cursor = Some(cursor);
            slot.pinned_by = None;
            slot.used = Instant::now();
            slot.released = false;
            slot.batches += 1;
            slot.docs += docs as u64;
        }
    }

    /// Those of these cursors that are open. With `keep`, they count as used now, and their sessions are returned.
    pub fn look(&self, ids: &[i64], keep: bool) -> (HashSet<i64>, HashSet<SessionKey>) {
        let (mut open, mut sessions) = (HashSet::new(), HashSet::new());
        for &id in ids {
            let mut shard = self.shard(id).lock();
            let Some(slot) = shard.get_mut(&id) else {
                continue;
            };
            open.insert(id);
            if keep {
                slot.used = Instant::now();
                sessions.extend(slot.owner.session);
            }
        }
        (open, sessions)
    }

    /// Removes a cursor whose getMore is just ending, without killing that operation.
    pub(super) fn forget(&self, id: i64) {
        self.shard(id).lock().remove(&id);
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

    /// Kills cursors, whatever collections they belong to: those of the owner's user, and those on namespaces for which
    /// `any` returns true.
    pub fn kill(&self, ids: &[i64], owner: &CursorOwner, any: impl Fn(&str) -> bool) -> KillResult {
        let mut result = KillResult::default();
        for &id in ids {
            let verdict = self
                .shard(id)
                .lock()
                .get(&id)
                .map(|s| s.owner.user == owner.user || any(&s.namespace));
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

    /// Kills the cursors of the sessions for which `ended` returns true.
    pub fn kill_sessions(&self, ended: impl Fn(&SessionKey) -> bool) {
        self.remove_where(|s| s.owner.session.as_ref().is_some_and(&ended));
    }

    /// Kills the cursors of a transaction.
    pub fn kill_transaction(&self, session: &SessionKey, number: i64) {
        self.remove_where(|s| {
            s.owner.txn_number == Some(number) && s.owner.session.as_ref() == Some(session)
        });
    }

    /// To be called when a collection has gone away, or all collections of a database (`namespace`
    /// is then the prefix `db.`). Their cursors release everything, and the next getMore of each
    /// fails with 175 QueryPlanKilled and the reason `why`.
    pub fn invalidate(&self, namespace: &str, why: &'static str) {
        for shard in &self.shards {
            let mut ended = Vec::new();
            let mut shard = shard.lock();
            for slot in shard.values_mut() {
                let hit = slot.namespace == namespace
                    || (namespace.ends_with('.') && slot.namespace.starts_with(namespace));
                if !hit || slot.flags.follows {
                    continue;
                }
                slot.dead = Some(why);
                if let Some(cursor) = &mut slot.cursor {
                    let empty = Cursor::empty(&slot.namespace, slot.flags);
                    ended.push(std::mem::replace(&mut **cursor, empty));
                }
                if let Some(op) = &slot.pinned_by {
                    op.kill(Code::QueryPlanKilled);
                }
            }
            drop(shard);
            // What the end of a cursor takes is not to hold up the others.
            drop(ended);
        }
    }

    /// Kills all cursors, at shutdown.
    pub fn kill_all(&self) {
        self.remove_where(|_| true);
    }

    /// To be called about once a second by a monitor thread. It removes cursors that were idle past
    /// their timeout, and makes those that were idle for a few seconds release what they hold.
    ///
    /// Returns true if it did either.
    pub fn tick(&self) -> bool {
        let mut any = false;
        let timeout = Duration::from_millis(self.timeout_ms.load(Relaxed));
        for shard in &self.shards {
            let is_over = |slot: &Slot| {
                let may_end = slot.cursor.is_some() && !slot.flags.no_timeout;
                may_end && slot.used.elapsed() >= timeout
            };
            let mut shard = shard.lock();
            let gone: Vec<(i64, Slot)> = shard.extract_if(|_, slot| is_over(slot)).collect();
            for slot in shard.values_mut() {
                let idle = slot.used.elapsed() >= RELEASE_AFTER;
                if let Some(cursor) = slot.cursor.as_mut().filter(|_| idle && !slot.released) {
                    cursor.idles();
                    slot.released = true;
                    any = true;
                }
            }
            drop(shard);
            any |= !gone.is_empty();
            self.timed_out.fetch_add(gone.len() as u64, Relaxed);
            // A router's cursor ends those on the shards when it is dropped. Nobody is to wait for that.
            drop(gone);
        }
        any
    }

    /// Makes every idle cursor release what it holds.
    #[cfg(test)]
    pub(crate) fn release_all(&self) {
        for shard in &self.shards {
            for slot in shard.lock().values_mut() {
                if let Some(c) = &mut slot.cursor {
                    c.idles();
                }
            }
        }
    }

    /// Sets `cursorTimeoutMillis`.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout_ms.store(timeout.as_millis() as u64, Relaxed);
    }

    /// The value of `cursorTimeoutMillis`.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Relaxed))
    }

    /// The figures for serverStatus.
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
                let mut description = doc! {
                    "cursorId": *id,
                    "createdDate": ago(s.created),
                    "lastAccessDate": ago(s.used),
                    "nDocsReturned": s.docs as i64,
                    "nBatchesReturned": s.batches as i64,
                    "noCursorTimeout": s.flags.no_timeout,
                    "tailable": s.flags.tailable,
                    "awaitData": s.flags.await_data,
                };
                if let Some(origin) = &s.origin {
                    description.append("originatingCommand", origin.command());
                }
                if let Some(op) = &s.pinned_by {
                    description.append("operationUsingCursorId", op.id() as i64);
                }
                all.push(CursorInfo {
                    id: *id,
                    used_by: s.pinned_by.as_ref().map(|op| op.id()),
                    namespace: s.namespace.clone(),
                    owner: s.owner.clone(),
                    description,
                });
            }
        }
        all
    }
}

/// True if the command is an aggregation that opens a change stream.
pub fn opens_change_stream(command: Doc<'_>) -> bool {
    let stages = command.get_array("pipeline").unwrap_or(Doc::EMPTY);
    let first = stages.values().next().and_then(|v| v.as_doc()?.first());
    first.is_some_and(|e| e.is_named("$changeStream"))
}

impl Default for CursorManager {
    fn default() -> CursorManager {
        CursorManager::new()
    }
}

/// The wall clock's time of a moment in the past.
fn ago(then: Instant) -> Value<'static> {
    let ago = i64::try_from(then.elapsed().as_millis()).unwrap_or(i64::MAX);
    Value::DateTime(muniment_query::context::now_ms().saturating_sub(ago))
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
        _ => {
            return match (cursor.txn_number, asks.txn_number) {
                (a, b) if a == b => Ok(()),
                (None, Some(b)) => Err(Error::location(
                    50739,
                    format!(
                        "Cannot run getMore on cursor {id}, which was not created in a \
                         transaction, in transaction {b}"
                    ),
                )),
                (Some(a), None) => Err(Error::location(
                    50740,
                    format!(
                        "Cannot run getMore on cursor {id}, which was created in transaction {a}, \
                         without a txnNumber"
                    ),
                )),
                (a, b) => Err(Error::location(
                    50741,
                    format!(
                        "Cannot run getMore on cursor {id}, which was created in transaction {}, \
                         in transaction {}",
                        a.unwrap_or_default(),
                        b.unwrap_or_default()
                    ),
                )),
            };
        }
    };
    Err(Error::location(
        message.0,
        format!("Cannot run getMore on cursor {id}, {}", message.1),
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use muniment_query::DocStream;
    use std::sync::mpsc::{Sender, channel};

    /// A stream at whose end the cursors are asked for, as by another thread while this one waits.
    struct Asks(Arc<CursorManager>, Sender<()>);

    impl DocStream for Asks {
        fn next(&mut self) -> Result<Option<Bytes>> {
            Ok(None)
        }
    }

    impl Drop for Asks {
        fn drop(&mut self) {
            self.0.list();
            let _ = self.1.send(());
        }
    }

    /// What ends a cursor.
    type End = fn(&CursorManager, i64);

    /// The end of a router's cursor takes a message to each shard.
    #[test]
    fn no_cursor_ends_while_others_are_held_up() {
        let ends: [(&str, End); 4] = [
            ("tick", |all, _| assert!(all.tick())),
            ("invalidate", |all, _| all.invalidate("d.c", "gone")),
            ("kill", |all, id| {
                let killed = all.kill(&[id], &CursorOwner::default(), |_| false);
                assert_eq!(killed.killed, [id]);
            }),
            ("kill_all", |all, _| all.kill_all()),
        ];
        for (name, end) in ends {
            let all = Arc::new(CursorManager::new());
            all.set_timeout(Duration::ZERO);
            let (told, ended) = channel();
            let op = OpContext::internal("test");
            let stream = Asks(Arc::clone(&all), told);
            let cursor = Cursor::over("d.c", &op, false, |_| Ok(Box::new(stream))).unwrap();
            let id = all.keep(cursor, &op, CursorOwner::default(), 0);
            std::thread::spawn(move || end(&all, id));
            let ended = ended.recv_timeout(Duration::from_secs(20));
            assert!(ended.is_ok(), "{name}");
        }
    }
}
