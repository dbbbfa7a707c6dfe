//! Running operations: their identity, their limits, their counters, and how to stop them.

mod registry;

pub use registry::{OpGuard, Operations};

use crate::cursor::Origin;
use crate::oplog::session_doc;
use crate::plan::cache::shape_hash;
use crate::plan::candidate::{Access, Candidate};
use crate::tickets::{Ticket, TicketPool};
use crate::timeseries::BUCKETS;
use crate::write::{Retry, StatementFigures};
use muniment_query::Interrupt;
use muniment_query::stage::host::Reads;
use muniment_storage::{
    Collection, KeyCounts, SessionKey, Snapshot, Store, Transaction, snapshot_unavailable,
    thread_time,
};
use muniment_value::{Code, DocBuf, Error, Result, Value, ValueBuf, doc};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the client's socket is looked at.
const PROBE_EVERY: Duration = Duration::from_millis(10);

/// What an operation has done so far. Relaxed counters: for people, not for decisions.
#[derive(Debug, Default)]
pub struct Counters {
    /// Index keys examined.
    pub keys_examined: AtomicU64,
    /// Documents examined.
    pub docs_examined: AtomicU64,
    /// Documents returned.
    pub returned: AtomicU64,
    /// Documents that an update or a delete matched.
    pub matched: AtomicU64,
    /// Documents written (inserted, modified or deleted).
    pub written: AtomicU64,
    /// Those of them that were inserted since an update matched none.
    pub upserted: AtomicU64,
    /// Index keys put.
    keys_inserted: AtomicU64,
    /// Index keys taken away.
    keys_deleted: AtomicU64,
}

impl Counters {
    /// Counts what a commit did to indexes.
    pub(crate) fn add_keys(&self, keys: KeyCounts) {
        self.keys_inserted.fetch_add(keys.inserted, Relaxed);
        self.keys_deleted.fetch_add(keys.deleted, Relaxed);
    }

    /// Index keys put and taken away.
    pub fn keys(&self) -> KeyCounts {
        KeyCounts {
            inserted: self.keys_inserted.load(Relaxed),
            deleted: self.keys_deleted.load(Relaxed),
        }
    }
}

/// Whether a connection's client has gone.
pub type DisconnectProbe = Arc<dyn Fn() -> bool + Send + Sync>;

/// How an operation begins.
#[derive(Default)]
pub struct OpStart {
    /// When; `None`: now.
    pub began: Option<Instant>,
    /// The command's name.
    pub command: &'static str,
    /// `db.collection`, or `db.$cmd` for commands on a database.
    pub namespace: String,
    /// `maxTimeMS`; `None` for no limit.
    pub max_time: Option<Duration>,
    /// The connection's number.
    pub connection_id: u64,
    /// The client's address, `host:port`.
    pub client: Option<Arc<str>>,
    /// The client's application name.
    pub app_name: Option<Arc<str>>,
    /// `comment`; a cursor keeps it for its getMores.
    pub comment: Option<ValueBuf>,
    /// The session.
    pub session: Option<SessionKey>,
    /// True when the client's connection is gone. Asked at most every 10 ms, and only by
    /// operations that run longer than that.
    pub disconnected: Option<DisconnectProbe>,
}

/// How an operation finds its documents.
enum Plan {
    Chosen {
        plan: Candidate,
        /// What its index scan is called instead.
        named: Option<&'static str>,
        how: How,
    },
    /// Without a planner: by `_id`, or not at all.
    Point(&'static str),
}

/// How a plan was chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct How {
    /// A trial of several was won.
    pub tried: bool,
    /// The plan cache knew it.
    pub cached: bool,
    /// Why the one that the plan cache knew was given up.
    pub replanned: Option<String>,
    /// The query's shape as the plan cache names it, where somebody needed it.
    pub shape: Option<String>,
}

/// What the profiler and the slow-operation log tell of a plan.
#[derive(Clone, Debug, Default)]
pub struct PlanFigures {
    /// E.g. `IXSCAN { a: 1 }`, once there is a plan.
    pub summary: Option<String>,
    /// It sorts what it has read.
    pub sorts: bool,
    /// It won a trial of several.
    pub from_multi_planner: bool,
    /// The plan cache knew it.
    pub from_plan_cache: bool,
    /// Why the one that the plan cache knew was given up.
    pub replan_reason: Option<String>,
    /// The hash of the query's shape.
    pub shape_hash: Option<String>,
    /// Its stages with what they did; of an observed operation alone.
    pub exec_stats: Option<DocBuf>,
}

/// One running operation. Stages ask it through [`Interrupt`].
pub struct OpContext {
    id: u32,
    start: OpStart,
    started: Instant,
    /// The wall clock at `started`, in milliseconds since 1970.
    now_ms: i64,
    /// Microseconds after `started` when `maxTimeMS` runs out; `u64::MAX`: never.
    deadline: AtomicU64,
    killed: AtomicI32,
    /// It waits for a lock.
    waiting: AtomicBool,
    /// Microseconds after `started` of the last look at the socket.
    probed: AtomicU64,
    plan: Mutex<Option<Plan>>,
    /// What the stages of an observed operation's plan did.
    exec_stats: Mutex<Option<DocBuf>>,
    /// A stage above the plan sorts.
    sorts: AtomicBool,
    /// It is a change stream's.
    changes: AtomicBool,
    /// The cursor that it left open, 0 for one at its end; -1: it has none.
    cursor: AtomicI64,
    /// What its statements did, once somebody observes it.
    statements: OnceLock<Mutex<Vec<StatementFigures>>>,
    /// What its plans have read, once somebody asks.
    reads: OnceLock<Mutex<Reads>>,
    /// Its thread's time on a processor when somebody began to observe it.
    cpu: OnceLock<Duration>,
    /// What opened the cursor that it continues.
    origin: OnceLock<Arc<Origin>>,
    /// The transaction that it is a part of.
    transaction: OnceLock<Arc<Transaction>>,
    /// The view that it reads at.
    pinned: OnceLock<Snapshot>,
    /// How its statements are remembered.
    retry: OnceLock<Arc<Retry>>,
    /// Its namespace is the collection with this UUID alone, if `is_bound`.
    bound: Mutex<Option<[u8; 16]>>,
    is_bound: AtomicBool,
    /// A statement's error that ends the transaction.
    failure: OnceLock<Error>,
    /// Where the ticket is from that it holds.
    pool: OnceLock<Arc<TicketPool>>,
    /// What it has done so far.
    pub counters: Counters,
}

impl OpContext {
    fn new(id: u32, start: OpStart) -> OpContext {
        let started = start.began.unwrap_or_else(Instant::now);
        OpContext {
            id,
            started,
            now_ms: muniment_query::context::now_ms(),
            deadline: AtomicU64::new(start.max_time.map_or(u64::MAX, |t| t.as_micros() as u64)),
            start,
            killed: AtomicI32::new(0),
            waiting: AtomicBool::new(false),
            probed: AtomicU64::new(0),
            plan: Mutex::new(None),
            exec_stats: Mutex::new(None),
            sorts: AtomicBool::new(false),
            changes: AtomicBool::new(false),
            cursor: AtomicI64::new(-1),
            statements: OnceLock::new(),
            cpu: OnceLock::new(),
            reads: OnceLock::new(),
            origin: OnceLock::new(),
            transaction: OnceLock::new(),
            pinned: OnceLock::new(),
            retry: OnceLock::new(),
            bound: Mutex::new(None),
            is_bound: AtomicBool::new(false),
            failure: OnceLock::new(),
            pool: OnceLock::new(),
            counters: Counters::default(),
        }
    }

    /// `$$NOW`: when it began, in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// An operation that is in no registry: monitor threads and tests.
    pub fn internal(command: &'static str) -> Arc<OpContext> {
        Arc::new(OpContext::new(
            0,
            OpStart {
                command,
                ..OpStart::default()
            },
        ))
    }

    /// The operation's number: `opid`.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The command's name.
    pub fn command(&self) -> &'static str {
        self.start.command
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.start.namespace
    }

    /// The transaction that it is a part of.
    pub fn transaction(&self) -> Option<&Arc<Transaction>> {
        self.transaction.get()
    }

    /// Makes it a part of a transaction; once, before it reads or writes.
    pub fn enter(&self, transaction: Arc<Transaction>) {
        let _ = self.transaction.set(transaction);
    }

    /// How its statements are remembered, if the command may be sent again.
    pub fn retry(&self) -> Option<&Arc<Retry>> {
        self.retry.get()
    }

    /// Makes it a retryable command; once, before it writes.
    pub fn may_be_retried(&self, retry: Arc<Retry>) {
        let _ = self.retry.set(retry);
    }

    /// Whether a command's statements end with the first that fails: as ordered ones do, and those of
    /// a transaction.
    pub(crate) fn ordered(&self, asked: bool) -> bool {
        asked || self.transaction().is_some()
    }

    /// Notes a statement's error in a transaction, which ends by it.
    pub fn note_failure(&self, error: &Error) {
        if self.transaction().is_some() {
            let _ = self.failure.set(error.clone());
        }
    }

    /// What [`OpContext::note_failure`] noted first.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// From now on what it looks up by name is the collection with this UUID (`None`: whichever has the
    /// name). Who was told of a collection by its UUID has found a name that it may lose.
    pub fn bind(&self, uuid: Option<[u8; 16]>) {
        *self.bound.lock() = uuid;
        self.is_bound.store(uuid.is_some(), Relaxed);
    }

    /// The collection of this name, if there is one in what it sees.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable if it reads at an older view, which may know one by the name; 175
    /// QueryPlanKilled if it is not the one that it is bound to.
    pub(crate) fn collection(
        &self,
        store: &Store,
        namespace: &str,
    ) -> Result<Option<Arc<Collection>>> {
        let found = self.named(store, namespace)?;
        if self.is_bound.load(Relaxed) && *self.bound.lock() != found.as_ref().map(|c| c.uuid()) {
            return Err(Error::new(
                Code::QueryPlanKilled,
                format!("collection renamed or dropped: {namespace}"),
            ));
        }
        Ok(found)
    }

    /// The collection of this name, whichever it is.
    fn named(&self, store: &Store, namespace: &str) -> Result<Option<Arc<Collection>>> {
        let at = match (self.transaction(), self.pinned()) {
            (Some(transaction), _) => transaction.timestamp(),
            (None, Some(view)) => view.timestamp(),
            (None, None) => return Ok(store.collection(namespace)),
        };
        let found = store.collection_at(namespace, at)?;
        if found.is_none()
            && let Some((db, name)) = namespace.split_once('.')
        {
            // Of what else it may have been the name.
            store.collection_at(&format!("{db}.system.views"), at)?;
            if let Some(series) = name.strip_prefix(BUCKETS) {
                store.collection_at(&format!("{db}.{series}"), at)?;
            }
        }
        Ok(found)
    }

    /// What it reads of a collection: everything that is visible now, or what its transaction sees.
    ///
    /// # Errors
    /// As [`Transaction::join`] and [`Transaction::snapshot`].
    pub(crate) fn view(&self, store: &Store, collection: &Collection) -> Result<Snapshot> {
        match self.transaction() {
            Some(transaction) => {
                transaction.join(collection, self)?;
                transaction.snapshot()
            }
            None => self.pinned_view(store, collection),
        }
    }

    fn pinned_view(&self, store: &Store, collection: &Collection) -> Result<Snapshot> {
        let Some(pinned) = self.pinned.get() else {
            return Ok(store.snapshot());
        };
        // Who looked it up did so behind the view.
        if collection.named_since() > pinned.timestamp() || collection.is_dropped() {
            return Err(snapshot_unavailable());
        }
        Ok(pinned.clone())
    }

    /// Makes it read at this view; once, before it reads.
    pub fn pin(&self, view: Snapshot) {
        let _ = self.pinned.set(view);
    }

    /// The view that it reads at, which somebody chose.
    pub fn pinned(&self) -> Option<&Snapshot> {
        self.pinned.get()
    }

    /// True if it reads what is visible now.
    pub fn reads_newest(&self) -> bool {
        self.transaction().is_none() && self.pinned().is_none()
    }

    /// When it began.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// When `maxTimeMS` runs out.
    pub fn deadline(&self) -> Option<Instant> {
        match self.deadline.load(Relaxed) {
            u64::MAX => None,
            us => self.started.checked_add(Duration::from_micros(us)),
        }
    }

    /// What is left of `maxTimeMS`, if there is a limit: a cursor's getMores share it.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline()
            .map(|d| d.saturating_duration_since(Instant::now()))
    }

    /// Sets the limit anew: so much from now on.
    pub fn limit(&self, left: Duration) {
        let until = self.started.elapsed().saturating_add(left);
        self.deadline.store(until.as_micros() as u64, Relaxed);
    }

    /// Asks it to stop: the next [`Interrupt::check`] fails with `code` (11601 Interrupted for
    /// killOp, 237 CursorKilled for killCursors on a pinned cursor, …). The first reason stays.
    pub fn kill(&self, code: Code) {
        let _ = self.killed.compare_exchange(0, code.0, Relaxed, Relaxed);
    }

    /// Asks for what each statement does, and for the plans of look-ups that are over at once.
    pub fn observe(&self) {
        let _ = self.statements.set(Mutex::default());
        if let Some(now) = thread_time() {
            let _ = self.cpu.set(now);
        }
    }

    /// What was read since the last call; which indexes and scans from the first one on.
    pub(crate) fn take_reads(&self) -> Reads {
        let reads = self.reads.get_or_init(Mutex::default);
        let mut noted = reads.lock();
        let (keys, docs) = (
            self.counters.keys_examined.load(Relaxed),
            self.counters.docs_examined.load(Relaxed),
        );
        let read = Reads {
            keys: keys - noted.keys,
            docs: docs - noted.docs,
            ..std::mem::take(&mut *noted)
        };
        (noted.keys, noted.docs) = (keys, docs);
        read
    }

    /// Notes what a plan reads, if somebody asks.
    pub(crate) fn note_reads(&self, access: &Access) {
        if self.reads.get().is_some() {
            match access {
                Access::CollScan { .. } => self.note_scan(),
                Access::IdHack(_) => self.note_index(|| "_id_".into()),
                _ => {}
            }
            for (index, _) in access.indexes() {
                self.note_index(|| index.spec().name.clone());
            }
        }
    }

    /// Notes a scan of a whole collection, if somebody asks.
    pub(crate) fn note_scan(&self) {
        if let Some(reads) = self.reads.get() {
            reads.lock().scans += 1;
        }
    }

    /// Notes the use of an index, if somebody asks.
    pub(crate) fn note_index(&self, name: impl FnOnce() -> String) {
        if let Some(reads) = self.reads.get() {
            reads.lock().indexes.insert(name());
        }
    }

    /// How long the calling thread has been on a processor since [`OpContext::observe`], which it
    /// called as well.
    pub fn cpu_time(&self) -> Option<Duration> {
        let then = self.cpu.get()?;
        Some(thread_time()?.saturating_sub(*then))
    }

    /// True if somebody asked for it.
    pub(crate) fn observed(&self) -> bool {
        self.statements.get().is_some()
    }

    /// What a statement did.
    pub(crate) fn note_statement(&self, figures: StatementFigures) {
        if let Some(all) = self.statements.get() {
            all.lock().push(figures);
        }
    }

    /// What the statements of an observed update or delete did, in order.
    pub fn statements(&self) -> Vec<StatementFigures> {
        let all = self
            .statements
            .get()
            .map(|s| std::mem::take(&mut *s.lock()));
        all.unwrap_or_default()
    }

    /// Notes the plan for currentOp's `planSummary`.
    pub(crate) fn set_plan(&self, plan: &Candidate, named: Option<&'static str>, how: &How) {
        // Point look-ups are over before anyone asks.
        if self.observed() || !matches!(plan.access, Access::IdHack(_) | Access::Eof) {
            *self.plan.lock() = Some(Plan::Chosen {
                plan: plan.clone(),
                named,
                how: how.clone(),
            });
        }
    }

    /// Notes a plan that was never chosen, since there is no other, if somebody asks for it.
    pub(crate) fn set_point_plan(&self, summary: &'static str) {
        if self.observed() {
            *self.plan.lock() = Some(Plan::Point(summary));
        }
    }

    /// The same, whoever asks: a count of everything.
    pub(crate) fn set_fast_count(&self, summary: &'static str) {
        *self.plan.lock() = Some(Plan::Point(summary));
    }

    /// Notes what an observed operation's plan did.
    pub(crate) fn set_exec_stats(&self, stats: impl FnOnce() -> DocBuf) {
        if self.observed() {
            let stats = stats();
            *self.exec_stats.lock() = Some(stats);
        }
    }

    /// Notes that it opens a change stream or goes on with one.
    pub(crate) fn watches_changes(&self) {
        self.changes.store(true, Relaxed);
    }

    /// True if it opens a change stream or goes on with one: its errors tell the driver whether it may
    /// resume.
    pub fn is_of_change_stream(&self) -> bool {
        self.changes.load(Relaxed)
    }

    /// Notes that a stage above the plan sorts.
    pub(crate) fn set_sorts(&self) {
        self.sorts.store(true, Relaxed);
    }

    /// Notes the cursor that it leaves open, 0 for one at its end.
    pub(crate) fn set_cursor(&self, id: i64) {
        self.cursor.store(id, Relaxed);
    }

    /// The cursor that it left open, 0 for one at its end; `None` if it has none.
    pub fn cursor(&self) -> Option<i64> {
        Some(self.cursor.load(Relaxed)).filter(|id| *id >= 0)
    }

    /// A statement begins, which may have another plan.
    pub(crate) fn forget_plan(&self) {
        *self.plan.lock() = None;
        *self.exec_stats.lock() = None;
        self.sorts.store(false, Relaxed);
    }

    /// What is known of the plan now.
    pub fn plan_figures(&self) -> PlanFigures {
        let mut figures = PlanFigures {
            summary: self.plan_summary(),
            sorts: self.sorts.load(Relaxed),
            exec_stats: self.exec_stats.lock().clone(),
            ..PlanFigures::default()
        };
        if let Some(Plan::Chosen { plan, how, .. }) = &*self.plan.lock() {
            figures.sorts |= plan.needs_sort;
            figures.from_multi_planner = how.tried;
            figures.from_plan_cache = how.cached;
            figures.replan_reason = how.replanned.clone();
            figures.shape_hash = how.shape.as_deref().map(shape_hash);
        }
        figures
    }

    /// The plan's summary, e.g. `IXSCAN { a: 1 }`, once there is one.
    pub fn plan_summary(&self) -> Option<String> {
        let own = self.plan.lock().as_ref().map(|plan| match plan {
            Plan::Chosen { plan, named, .. } => match named {
                Some(name) => plan.summary().replacen("IXSCAN", name, 1),
                None => plan.summary(),
            },
            Plan::Point(summary) => (*summary).into(),
        });
        own.or_else(|| Some(self.origin()?.plan_summary()?.into()))
    }

    /// Its own `comment`, or that of the command whose cursor it continues.
    pub fn comment(&self) -> Option<Value<'_>> {
        let own = self.start.comment.as_ref().map(ValueBuf::as_value);
        own.or_else(|| self.origin()?.comment())
    }

    /// What opened the cursor that a getMore continues.
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.get().map(|o| &**o)
    }

    /// Notes what opened the cursor that it continues.
    pub(crate) fn continues(&self, origin: &Arc<Origin>) {
        let _ = self.origin.set(origin.clone());
    }

    /// Waits for a ticket of `pool`; whoever holds the result executes.
    ///
    /// # Errors
    /// What stops the operation while it waits.
    pub fn take_ticket<'p>(&self, pool: &'p Arc<TicketPool>) -> Result<Ticket<'p>> {
        let ticket = pool.acquire(self)?;
        let _ = self.pool.set(pool.clone());
        Ok(ticket)
    }

    /// Runs what only waits, without the operation's ticket.
    ///
    /// # Errors
    /// What stops the operation before it has a ticket again.
    pub fn without_ticket<T>(&self, wait: impl FnOnce() -> T) -> Result<T> {
        match self.pool.get() {
            Some(pool) => pool.lend(self, wait),
            None => Ok(wait()),
        }
    }

    /// The session, if the operation belongs to one.
    pub fn session(&self) -> Option<&SessionKey> {
        self.start.session.as_ref()
    }

    /// As `currentOp` shows it.
    pub fn describe(&self) -> DocBuf {
        let running = self.started.elapsed();
        let mut d = doc! {
            "type": "op",
            "active": true,
            "opid": self.id as i32,
            "op": match self.start.command {
                "find" => "query",
                "getMore" => "getmore",
                "insert" => "insert",
                "update" => "update",
                "delete" => "remove",
                _ => "command",
            },
            "ns": self.start.namespace.as_str(),
            "secs_running": running.as_secs() as i64,
            "microsecs_running": running.as_micros() as i64,
        };
        if let Some(now) = SystemTime::now()
            .checked_sub(running)
            .and_then(|t| t.duration_since(UNIX_EPOCH).ok())
        {
            let ms = Value::DateTime(now.as_millis() as i64);
            d.append("currentOpTime", ms);
        }
        if self.start.connection_id != 0 {
            d.append("connectionId", self.start.connection_id as i64);
            d.append("desc", format!("conn{}", self.start.connection_id));
        }
        d.append_some("client", self.start.client.as_deref());
        d.append_some("appName", self.start.app_name.as_deref());
        d.append_some("lsid", self.session().map(session_doc));
        d.append("command", doc! {});
        d.append_some("planSummary", self.plan_summary());
        d.append(
            "keysExamined",
            self.counters.keys_examined.load(Relaxed) as i64,
        );
        d.append(
            "docsExamined",
            self.counters.docs_examined.load(Relaxed) as i64,
        );
        d.append("nreturned", self.counters.returned.load(Relaxed) as i64);
        d.append("nwritten", self.counters.written.load(Relaxed) as i64);
        if let Some(t) = self.start.max_time {
            d.append("maxTimeMS", t.as_millis() as i64);
        }
        d.append("waitingForLock", self.waiting.load(Relaxed));
        d.append("killPending", self.killed.load(Relaxed) != 0);
        d
    }

    fn killed_error(code: i32) -> Error {
        let message = match Code(code) {
            Code::InterruptedAtShutdown => "interrupted at shutdown",
            Code::CursorKilled => "operation was interrupted because its cursor was killed",
            Code::QueryPlanKilled => "operation was interrupted because its collection was dropped",
            _ => "operation was interrupted",
        };
        Error::new(Code(code), message)
    }
}

impl Interrupt for OpContext {
    fn waits_for_lock(&self, waits: bool) {
        self.waiting.store(waits, Relaxed);
    }

    fn check(&self) -> Result<()> {
        let killed = self.killed.load(Relaxed);
        if killed != 0 {
            return Err(OpContext::killed_error(killed));
        }
        let deadline = self.deadline();
        if deadline.is_none() && self.start.disconnected.is_none() {
            return Ok(());
        }
        let now = Instant::now();
        if deadline.is_some_and(|d| now >= d) {
            return Err(Error::new(
                Code::MaxTimeMSExpired,
                "operation exceeded time limit",
            ));
        }
        if let Some(gone) = &self.start.disconnected {
            let at = now.duration_since(self.started).as_micros() as u64;
            let last = self.probed.load(Relaxed);
            if at.saturating_sub(last) >= PROBE_EVERY.as_micros() as u64
                && self
                    .probed
                    .compare_exchange(last, at, Relaxed, Relaxed)
                    .is_ok()
                && gone()
            {
                self.kill(Code::ClientDisconnect);
                return Err(Error::new(
                    Code::ClientDisconnect,
                    "operation was interrupted because the client disconnected",
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn limits_and_kills_stop_an_operation() {
        let ops = Operations::new();
        let op = ops.begin(OpStart {
            command: "find",
            max_time: Some(Duration::from_millis(5)),
            ..OpStart::default()
        });
        assert!(op.check().is_ok());
        std::thread::sleep(Duration::from_millis(6));
        assert_eq!(op.check().unwrap_err().code(), Code::MaxTimeMSExpired);
        let other = ops.begin(OpStart::default());
        assert_eq!(ops.len(), 2);
        assert!(ops.kill(other.id()));
        assert_eq!(other.check().unwrap_err().code(), Code::Interrupted);
        drop(other);
        drop(op);
        assert!(ops.is_empty());
    }

    #[test]
    fn what_is_left_of_a_limit_goes_on() {
        let op = OpContext::internal("getMore");
        assert_eq!(op.time_left(), None);
        op.limit(Duration::from_secs(60));
        assert!(op.check().is_ok());
        let left = op.time_left().unwrap();
        assert!(left > Duration::from_secs(50) && left <= Duration::from_secs(60));
        op.limit(Duration::ZERO);
        assert_eq!(op.check().unwrap_err().code(), Code::MaxTimeMSExpired);
    }

    #[test]
    fn a_client_that_went_away_is_noticed() {
        let ops = Operations::new();
        let op = ops.begin(OpStart {
            disconnected: Some(Arc::new(|| true)),
            ..OpStart::default()
        });
        assert!(op.check().is_ok(), "not asked before 10 ms");
        std::thread::sleep(Duration::from_millis(12));
        assert_eq!(op.check().unwrap_err().code(), Code::ClientDisconnect);
    }
}
