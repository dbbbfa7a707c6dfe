//! Running operations: their identity, their limits, their counters, and how to stop them.

mod beside;
mod catalog;
mod figures;
mod origin;
mod placement;
mod plan;
mod registry;
mod retry;
mod room;
mod session;
mod statement;

pub use catalog::CatalogChange;
pub use figures::{Counters, PlanFigures};
pub use origin::Origin;
pub use placement::{Expectations, Expected};
pub(crate) use plan::ChosenPlan;
pub use registry::{OpGuard, Operations};
pub(crate) use retry::Statements;
pub use retry::{Retry, StatementIds};
pub use room::{ReplyRoom, SMALL as SMALL_REPLY, Waiting};
pub use session::session_doc;
pub use statement::{StatementFigures, StatementOutcome};

use crate::tickets::{Ticket, TicketPool};
use beside::Beside;
use muniment_op::{Account, Client, Interrupt, Kept, Ledger, Operation, Share, Sleepers};
use muniment_query::running::{Steps, Work};
use muniment_query::stage::host::Reads;
use muniment_storage::{
    Announcer, Collection, SessionKey, Snapshot, Store, Timestamp, Transaction,
    snapshot_unavailable, thread_time,
};
use muniment_value::{Code, DocBuf, Error, Result, Value, ValueBuf, array, doc};
use parking_lot::Mutex;
use plan::Plan;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The properties with which an operation begins.
#[derive(Default)]
pub struct OpStart {
    /// The time of the beginning; `None` for now.
    pub began: Option<Instant>,
    /// The command's name.
    pub command: &'static str,
    /// `db.collection`, or `db.$cmd` for commands on a database.
    pub namespace: String,
    /// `maxTimeMS`; `None` for no limit.
    pub max_time: Option<Duration>,
    /// The connection's number.
    pub connection_id: u64,
    /// The command reads or writes documents of its namespace.
    pub on_documents: bool,
    /// The client's address, `host:port`.
    pub client: Option<Arc<str>>,
    /// The user who has logged in, `user@db`.
    pub user: Option<Arc<str>>,
    /// The client's application name.
    pub app_name: Option<Arc<str>>,
    /// `comment`; a cursor keeps it for its getMores.
    pub comment: Option<ValueBuf>,
    /// The session.
    pub session: Option<SessionKey>,
    /// The client at the other end of the connection, if the operation is useless once that client
    /// has gone: see [`muniment_op::GRACE`].
    pub of_client: Option<Arc<Client>>,
    /// The operation that this one is a part of, and with which it ends.
    pub part_of: Option<Arc<OpContext>>,
    /// The account with which the connection books the memory of its replies.
    pub reply_room: Option<Arc<ReplyRoom>>,
    /// The operation notes the changes of the catalog that it makes ([`CatalogChange`]).
    pub audited: bool,
    /// Says which collections the operation may open at all, if not all of them.
    pub opens: Option<Arc<dyn Opens>>,
}

/// The second line of defence, after the check of the command's needs: which collections somebody may open.
pub trait Opens: Send + Sync {
    /// Whether there is any right to `db.collection`. If there is none, an operation that opens it names what
    /// the check of its command has not seen, which is a bug.
    fn may_open(&self, namespace: &str) -> bool;
}

/// One running operation. Stages ask it through [`Interrupt`].
pub struct OpContext {
    id: u32,
    start: OpStart,
    /// The limits that end the operation: time, kill, the client's end.
    limits: Operation,
    /// The wall clock at the beginning, in milliseconds since 1970.
    now_ms: i64,
    /// True while the operation waits for a lock.
    waiting: AtomicBool,
    plan: Mutex<Option<Plan>>,
    /// The figures of the plan's stages, if the operation is observed.
    exec_stats: Mutex<Option<DocBuf>>,
    /// True if a stage above the plan sorts.
    sorts: AtomicBool,
    /// True if the operation opens or continues a change stream.
    changes: AtomicBool,
    /// The cursor that the operation left open. 0 is a cursor at its end, -1 means that there is
    /// none.
    cursor: AtomicI64,
    /// The figures of each statement, if the operation is observed.
    statements: OnceLock<Mutex<Vec<StatementFigures>>>,
    /// The reads of its plans, since they were first asked for.
    reads: OnceLock<Mutex<Reads>>,
    /// The thread's CPU time when the operation began to be observed.
    cpu: OnceLock<Duration>,
    /// The command that opened the cursor that this operation continues.
    origin: OnceLock<Arc<Origin>>,
    /// The transaction that the operation is part of.
    transaction: OnceLock<Arc<Transaction>>,
    /// The view that the operation reads, if it is not the newest.
    pinned: OnceLock<Snapshot>,
    /// How its statements are remembered, if the command is retryable.
    retry: OnceLock<Arc<Retry>>,
    /// If `is_bound`, its namespace means only the collection with this UUID.
    bound: Mutex<Option<[u8; 16]>>,
    is_bound: AtomicBool,
    /// The time at which the shards read for an operation of a router.
    reading_at: OnceLock<Timestamp>,
    /// What a router expects of its collections, if it comes from one.
    expectations: OnceLock<Expectations>,
    /// The sharded collections that a router knew when it opened the cursor that this operation continues.
    continued: OnceLock<Arc<[String]>>,
    /// The newest time of the cluster at the beginning, if the server is part of one.
    cluster_time: OnceLock<Timestamp>,
    /// The error of a statement that ends the transaction.
    failure: OnceLock<Error>,
    /// The pool of the ticket that the operation holds.
    pool: OnceLock<Arc<TicketPool>>,
    /// The memory of the parsed command, if the command is large.
    parsed: Mutex<Option<Share>>,
    /// It reads a view, which may read what its user may not.
    through_view: AtomicBool,
    /// The changes of the catalog that it has made, if it is audited.
    catalog: Option<Mutex<Vec<CatalogChange>>>,
    /// A reference to itself, for a thread that works for it.
    me: Weak<OpContext>,
    /// Things that last as long as the operation, such as its JavaScript engine.
    kept: Kept,
    /// The steps that its loops have taken since the last check.
    steps: Steps,
    /// Says which of its commit records the operation announces to the other members itself.
    pub announcer: Announcer,
    /// The work done so far.
    pub counters: Counters,
}

/// A command larger than this books the memory of its parsed form.
const LARGE_COMMAND: usize = 64 << 10;
/// The memory of a parsed command is at most this many times its bytes. The worst case is an `$in`,
/// whose values each become bounds of an index.
const PARSED: usize = 16;
/// How long a large command waits for that memory.
const PATIENCE: Duration = Duration::from_secs(15);

impl OpContext {
    /// Books the memory of the parsed form of a command of so many bytes; what takes most is a
    /// filter with many values. If the command leaves a cursor open, that takes the booking over. A
    /// large command is never refused if it is the only one.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit after a while; the error that ends the operation meanwhile.
    pub fn make_room_for_command(&self, ledger: &Arc<Ledger>, bytes: usize) -> Result<()> {
        if bytes <= LARGE_COMMAND {
            return Ok(());
        }
        // The booking of the statement before is given back first.
        self.parsed.lock().take();
        let mut share = Share::new(ledger, Account::Commands);
        let until = muniment_op::now() + PATIENCE;
        ledger.wait_for_room(self, until, || share.try_hold_alone(bytes * PARSED))?;
        *self.parsed.lock() = Some(share);
        Ok(())
    }

    /// Takes the booking of [`OpContext::make_room_for_command`], for a cursor.
    pub(crate) fn take_room_of_command(&self) -> Option<Share> {
        self.parsed.lock().take()
    }

    fn new(id: u32, mut start: OpStart) -> Arc<OpContext> {
        let started = start.began.unwrap_or_else(Instant::now);
        let whole = start.part_of.take();
        let catalog = start.audited.then(Mutex::default);
        Arc::new_cyclic(|me| OpContext {
            id,
            limits: Operation::new(started, start.max_time)
                .of_client(start.of_client.take())
                .part_of(whole.map(|whole| whole as Arc<dyn Interrupt>)),
            through_view: AtomicBool::new(false),
            now_ms: muniment_query::context::now_ms(),
            start,
            waiting: AtomicBool::new(false),
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
            reading_at: OnceLock::new(),
            expectations: OnceLock::new(),
            continued: OnceLock::new(),
            cluster_time: OnceLock::new(),
            failure: OnceLock::new(),
            pool: OnceLock::new(),
            parsed: Mutex::new(None),
            catalog,
            announcer: Announcer::default(),
            counters: Counters::default(),
            me: me.clone(),
            kept: Kept::default(),
            steps: Steps::default(),
        })
    }

    /// `$$NOW`: the beginning of the operation in milliseconds since 1970, at the router if one has sent it.
    pub fn now_ms(&self) -> i64 {
        let of_router = self.expectations.get().and_then(|e| e.now_ms);
        of_router.unwrap_or(self.now_ms)
    }

    /// Notes the newest time of the cluster at the beginning. Only the first call counts.
    pub fn knows_cluster_time(&self, at: Timestamp) {
        let _ = self.cluster_time.set(at);
    }

    /// `$$CLUSTER_TIME`: the newest time of the cluster at the beginning of the operation, at the router if it puts the
    /// results of shards together, as seconds and increment; `None` on a server that is part of no set.
    pub fn cluster_time(&self) -> Option<(u32, u32)> {
        let of_router = self.expectations.get().and_then(|e| e.cluster_time);
        let at = of_router.or(self.cluster_time.get().copied())?;
        Some((at.seconds(), at.increment()))
    }

    /// An operation outside any registry, for monitor threads and tests.
    pub fn internal(command: &'static str) -> Arc<OpContext> {
        OpContext::new(
            0,
            OpStart {
                command,
                ..OpStart::default()
            },
        )
    }

    /// This operation in the form in which long computations take it, to ask whether they may go
    /// on.
    #[inline]
    pub fn work(&self) -> Work<'_> {
        Work::of(self, &self.steps)
    }

    /// Ends what the operation keeps, such as its JavaScript engine, once its command has run. What
    /// follows, such as waiting for other members, may take long, and a cursor may hold the
    /// operation even longer.
    pub fn end_kept(&self) {
        self.kept.take();
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

    /// The transaction that the operation is part of.
    pub fn transaction(&self) -> Option<&Arc<Transaction>> {
        self.transaction.get()
    }

    /// Makes the operation part of a transaction. To be called once, before it reads or writes.
    pub fn enter(&self, transaction: Arc<Transaction>) {
        let _ = self.transaction.set(transaction);
    }

    /// How its statements are remembered, if the command may be sent again.
    pub fn retry(&self) -> Option<&Arc<Retry>> {
        self.retry.get()
    }

    /// Makes the operation a retryable command. To be called once, before it writes.
    pub fn may_be_retried(&self, retry: Arc<Retry>) {
        let _ = self.retry.set(retry);
    }

    /// True if a command's statements end with the first that fails. That is so if they are
    /// ordered, and always in a transaction.
    pub(crate) fn ordered(&self, asked: bool) -> bool {
        asked || self.transaction().is_some()
    }

    /// Notes a statement's error. In a transaction, the error ends the transaction.
    pub fn note_failure(&self, error: &Error) {
        if self.transaction().is_some() {
            let _ = self.failure.set(error.clone());
        }
    }

    /// The first error that [`OpContext::note_failure`] noted.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// Binds the operation: from now on a name that it looks up means only the collection with this
    /// UUID. With `None`, it again means whichever collection has the name. A command that names a
    /// collection by its UUID looks up the name first, and another collection may take the name
    /// before the command uses it.
    pub fn bind(&self, uuid: Option<[u8; 16]>) {
        *self.bound.lock() = uuid;
        self.is_bound.store(uuid.is_some(), Relaxed);
    }

    /// False if the operation is bound to another collection than the one found under a name.
    pub(crate) fn may_mean(&self, found: Option<[u8; 16]>) -> bool {
        !self.is_bound.load(Relaxed) || *self.bound.lock() == found
    }

    /// The view in which the operation reads a collection: the newest one, its transaction's, or
    /// the one it is pinned to.
    ///
    /// # Errors
    /// Those of [`Transaction::view_of`] and [`Store::as_decided`].
    pub(crate) fn view(&self, store: &Store, collection: &Collection) -> Result<Snapshot> {
        let view = match self.transaction() {
            Some(transaction) if transaction.is_undecided(collection) => {
                self.without_ticket(|| transaction.view_of(collection, self))?
            }
            Some(transaction) => transaction.view_of(collection, self),
            None => self.pinned_view(store, collection),
        }?;
        self.check_seen(collection, view.read_time())?;
        Ok(match self.ranges_of(collection) {
            Some(ranges) => view.within(ranges),
            None => view,
        })
    }

    fn pinned_view(&self, store: &Store, collection: &Collection) -> Result<Snapshot> {
        let Some(pinned) = self.pinned.get() else {
            return Ok(store.snapshot());
        };
        // The collection was looked up after the view was opened. In the view it may not exist, or
        // not under this name.
        if collection.named_since() > pinned.timestamp() || collection.is_dropped() {
            return Err(snapshot_unavailable());
        }
        let view = pinned.clone();
        // Another shard decides, which may take long.
        match store.is_undecided(&view, collection) {
            true => self.without_ticket(|| store.as_decided(view, collection, self))?,
            false => store.as_decided(view, collection, self),
        }
    }

    /// Makes the operation read this view. To be called once, before it reads.
    pub fn pin(&self, view: Snapshot) {
        let _ = self.pinned.set(view);
    }

    /// The view that the operation reads, if one was [set](OpContext::pin).
    pub fn pinned(&self) -> Option<&Snapshot> {
        self.pinned.get()
    }

    /// True if the operation reads what is visible now.
    pub fn reads_newest(&self) -> bool {
        self.transaction().is_none() && self.pinned().is_none()
    }

    /// The beginning of the operation.
    pub fn started(&self) -> Instant {
        self.limits.started()
    }

    /// The time at which `maxTimeMS` runs out.
    pub fn deadline(&self) -> Option<Instant> {
        self.limits.deadline()
    }

    /// The rest of `maxTimeMS`, if there is a limit. A cursor's getMores share one limit.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline()
            .map(|d| d.saturating_duration_since(Instant::now()))
    }

    /// Sets a new limit of `left` from now on.
    pub fn limit(&self, left: Duration) {
        self.limits.limit(left);
    }

    /// True if one of its threads waits for something at this moment.
    #[cfg(test)]
    pub(crate) fn sleeps(&self) -> bool {
        self.limits.is_waiting()
    }

    /// Asks the operation to stop: see [`Operation::kill`].
    pub fn kill(&self, code: Code) -> bool {
        self.limits.kill(code)
    }

    /// Withdraws an [`OpContext::kill`] with this code.
    pub fn spare(&self, code: Code) {
        self.limits.spare(code);
    }

    /// Begins to observe the operation: it notes the figures of each statement, and also the plans
    /// of look-ups that are over at once.
    pub fn observe(&self) {
        let _ = self.statements.set(Mutex::default());
        if let Some(now) = thread_time() {
            let _ = self.cpu.set(now);
        }
    }

    /// The reads since the last call. Indexes and scans are noted only after the first call.
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

    /// True if the operation has to report what its plans read.
    pub(crate) fn tells_reads(&self) -> bool {
        self.reads.get().is_some()
    }

    /// Notes a scan of a whole collection, if reads are to be reported.
    pub(crate) fn note_scan(&self) {
        if let Some(reads) = self.reads.get() {
            reads.lock().scans += 1;
        }
    }

    /// Notes the use of an index, if reads are to be reported.
    pub(crate) fn note_index(&self, name: impl FnOnce() -> String) {
        if let Some(reads) = self.reads.get() {
            reads.lock().indexes.insert(name());
        }
    }

    /// The CPU time of the calling thread since [`OpContext::observe`]. The same thread has to have
    /// called that.
    pub fn cpu_time(&self) -> Option<Duration> {
        let then = self.cpu.get()?;
        Some(thread_time()?.saturating_sub(*then))
    }

    /// True if [`OpContext::observe`] was called.
    pub(crate) fn observed(&self) -> bool {
        self.statements.get().is_some()
    }

    /// Notes the figures of a statement.
    pub(crate) fn note_statement(&self, figures: StatementFigures) {
        if let Some(all) = self.statements.get() {
            all.lock().push(figures);
        }
    }

    /// Takes the figures of the statements of an observed update or delete, in order.
    pub fn statements(&self) -> Vec<StatementFigures> {
        let all = self
            .statements
            .get()
            .map(|s| std::mem::take(&mut *s.lock()));
        all.unwrap_or_default()
    }

    /// Notes the plan for currentOp's `planSummary`.
    pub(crate) fn set_plan(&self, plan: Box<dyn ChosenPlan>) {
        *self.plan.lock() = Some(Plan::Chosen(plan));
    }

    /// Notes a plan that was not chosen because there is no alternative. Only done if the operation
    /// is observed.
    pub(crate) fn set_point_plan(&self, summary: &'static str) {
        if self.observed() {
            *self.plan.lock() = Some(Plan::Point(summary));
        }
    }

    /// Notes the plan of a count of everything, even if the operation is not observed.
    pub(crate) fn set_fast_count(&self, summary: &'static str) {
        *self.plan.lock() = Some(Plan::Point(summary));
    }

    /// Notes the figures of an observed operation's plan.
    pub(crate) fn set_exec_stats(&self, stats: impl FnOnce() -> DocBuf) {
        if self.observed() {
            let stats = stats();
            *self.exec_stats.lock() = Some(stats);
        }
    }

    /// Notes that the operation opens a change stream or continues one.
    pub fn watches_changes(&self) {
        self.changes.store(true, Relaxed);
    }

    /// True if the operation opens a change stream or continues one. Its errors then tell the
    /// driver whether it may resume.
    pub fn is_of_change_stream(&self) -> bool {
        self.changes.load(Relaxed)
    }

    /// Notes that a stage above the plan sorts.
    pub(crate) fn set_sorts(&self) {
        self.sorts.store(true, Relaxed);
    }

    /// Notes the cursor that the operation leaves open; 0 is a cursor at its end.
    pub(crate) fn set_cursor(&self, id: i64) {
        self.cursor.store(id, Relaxed);
    }

    /// The cursor that the operation left open; 0 is a cursor at its end. `None` if there is no
    /// cursor.
    pub fn cursor(&self) -> Option<i64> {
        Some(self.cursor.load(Relaxed)).filter(|id| *id >= 0)
    }

    /// Forgets the plan, because a statement begins that may have another one.
    pub(crate) fn forget_plan(&self) {
        *self.plan.lock() = None;
        *self.exec_stats.lock() = None;
        self.sorts.store(false, Relaxed);
    }

    /// The facts about the plan so far.
    pub fn plan_figures(&self) -> PlanFigures {
        let mut figures = PlanFigures::default();
        if let Some(Plan::Chosen(plan)) = &*self.plan.lock() {
            figures = plan.figures();
        }
        figures.summary = self.plan_summary();
        figures.sorts |= self.sorts.load(Relaxed);
        figures.exec_stats.clone_from(&self.exec_stats.lock());
        figures
    }

    /// The plan's summary, such as `IXSCAN { a: 1 }`, once there is a plan.
    pub fn plan_summary(&self) -> Option<String> {
        let own = self.plan.lock().as_ref().map(|plan| match plan {
            Plan::Chosen(plan) => plan.summary(),
            Plan::Point(summary) => (*summary).into(),
        });
        own.or_else(|| Some(self.origin()?.plan_summary()?.into()))
    }

    /// The operation's own `comment`, or that of the command whose cursor it continues.
    pub fn comment(&self) -> Option<Value<'_>> {
        let own = self.start.comment.as_ref().map(ValueBuf::as_value);
        own.or_else(|| self.origin()?.comment())
    }

    /// The command that opened the cursor that a getMore continues.
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.get().map(|o| &**o)
    }

    /// Notes the command that opened the cursor.
    pub(crate) fn continues(&self, origin: &Arc<Origin>) {
        let _ = self.origin.set(origin.clone());
    }

    /// Waits for a ticket of `pool`. The operation may execute while the result is held.
    ///
    /// # Errors
    /// The error that ends the operation while it waits.
    pub fn take_ticket<'p>(&self, pool: &'p Arc<TicketPool>) -> Result<Ticket<'p>> {
        let ticket = pool.acquire(self)?;
        let _ = self.pool.set(pool.clone());
        Ok(ticket)
    }

    /// Runs something that only waits, without the operation's ticket.
    ///
    /// # Errors
    /// The error that ends the operation before it has a ticket again.
    pub fn without_ticket<T>(&self, wait: impl FnOnce() -> T) -> Result<T> {
        match self.pool.get() {
            Some(pool) => pool.lend(self, wait),
            None => Ok(wait()),
        }
    }

    /// The account with which a batch books its growth.
    pub(crate) fn reply_room(&self) -> Option<&ReplyRoom> {
        self.start.reply_room.as_deref()
    }

    /// The session, if the operation belongs to one.
    pub fn session(&self) -> Option<&SessionKey> {
        self.start.session.as_ref()
    }

    /// Checks that the operation may open a collection at all.
    ///
    /// # Errors
    /// 13 Unauthorized.
    #[inline]
    pub(crate) fn check_opens(&self, namespace: &str) -> Result<()> {
        match &self.start.opens {
            Some(opens) if !self.through_view.load(Relaxed) => match opens.may_open(namespace) {
                true => Ok(()),
                false => Err(Error::new(
                    Code::Unauthorized,
                    format!("not authorized on {namespace}"),
                )),
            },
            _ => Ok(()),
        }
    }

    /// The operation reads a view from here on. On a view its own name counts, and not those of what it is
    /// made of.
    pub(crate) fn reads_view(&self) {
        if self.start.opens.is_some() {
            self.through_view.store(true, Relaxed);
        }
    }

    /// The user whose operation it is, `user@db`.
    pub fn user(&self) -> Option<&str> {
        self.start.user.as_deref()
    }

    /// The operation in the form that `currentOp` shows.
    pub fn describe(&self) -> DocBuf {
        let running = self.started().elapsed();
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
        if let Some((user, db)) = self.user().and_then(|u| u.rsplit_once('@')) {
            d.append("effectiveUsers", array![doc! { "user": user, "db": db }]);
        }
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
        d.append("killPending", self.limits.is_killed());
        d
    }
}

impl Interrupt for OpContext {
    fn shared(&self) -> Option<Arc<dyn Interrupt>> {
        Some(Arc::new(Beside(self.me.clone())))
    }

    fn keeps(&self, show: &mut dyn FnMut(&Kept)) {
        show(&self.kept);
    }

    fn ledger(&self) -> Option<Arc<Ledger>> {
        self.pool.get().map(|pool| pool.ledger.clone())
    }

    fn waits_for_lock(&self, waits: bool) {
        self.waiting.store(waits, Relaxed);
    }

    #[inline]
    fn check(&self) -> Result<()> {
        self.limits.check()
    }

    fn check_but_for(&self, code: Code) -> Result<()> {
        self.limits.check_but_for(code)
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        self.limits.sleepers(show);
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.limits.wakes_at()
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
}
