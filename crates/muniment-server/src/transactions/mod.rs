//! The transactions of sessions, from the first command of each to its last.
//!
//! A session has one number at a time, that of its newest transaction or retryable write; a command with a
//! smaller one is too old. A command of a transaction checks its session out, so that the commands of one
//! session run one after another. Any error of a command ends the transaction, as does its time limit.
//!
//! Invariants: the state of a session's number is in [`Latest`] alone; when another thread ends a transaction
//! (killSessions, the time limit), the transaction's next command finds it ended.

mod elsewhere;
mod known;
mod prepared;
mod rules;
mod statements;

pub use rules::{
    check_command, check_unknown, check_write, ends, is_resumable, is_retryable, is_transient,
    labels, labels_of_concern, not_in_transaction,
};

use crate::context::{CommandContext, Request};
use crate::generic::Generic;
use crate::options::ClusterRole;
use crate::registry::{CommandSpec, Ends, Statements};
use crate::router::Router;
use crate::sessions::TIMEOUT_MINUTES;
use crate::state::ServerState;
use known::Known;
use muniment_exec::{OpContext, Retry, session_doc};
use muniment_logger::iso8601;
use muniment_member::times_of;
use muniment_op::{Interrupt, Lock, Locked};
use muniment_storage::{
    CommitId, Session, SessionChange, SessionHead, SessionKey, SessionRecord, SessionState,
    StatementRun, Store, Timestamp, Transaction,
};
use muniment_value::args::Args;
use muniment_value::{Code, DocBuf, Error, Result, Value, doc};
use parking_lot::Mutex;
use statements::Numbered;
pub use statements::statements;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

/// How many bytes of results a session keeps in memory. Larger results are read again from the store in the
/// rare case that a client sends their command again.
const KEPT_RESULTS: usize = 256;

/// The state of a session's newest number.
enum State {
    /// A transaction that is under way.
    InProgress(Running),
    Committed(Option<CommitId>),
    Aborted,
    /// Another shard decides how it ends.
    Prepared,
    /// Retryable writes.
    Retryable(Arc<Mutex<Session>>),
    /// Retryable writes that have changed nothing: the store has the record of an earlier number.
    Unwritten,
}

/// A transaction that is under way.
#[derive(Clone)]
struct Running {
    transaction: Arc<Transaction>,
    number: i64,
    /// Whether it began in the database `config`.
    of_config: bool,
    /// The time at which it reads, if that was chosen.
    at: Option<Timestamp>,
    read_concern: Option<DocBuf>,
    began: Instant,
    began_ms: i64,
    active: Arc<Mutex<Active>>,
}

/// For how long commands of a transaction have run.
#[derive(Default)]
struct Active {
    /// The time of the commands that have ended.
    before: Duration,
    /// When the running command began, if one runs.
    since: Option<Instant>,
}

impl Active {
    fn time(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, muniment_op::since)
    }
}

impl Running {
    /// The transaction as currentOp shows it. `limit` is how long it may last.
    fn to_doc(&self, limit: Duration) -> DocBuf {
        let mut parameters = doc! { "txnNumber": self.number, "autocommit": false };
        parameters.append_some("readConcern", self.read_concern.as_ref());
        let at = self.transaction.timestamp();
        let micros = |time: Duration| time.as_micros() as i64;
        let open = micros(muniment_op::since(self.began));
        let active = micros(self.active.lock().time()).min(open);
        doc! {
            "parameters": parameters,
            "readTimestamp": Value::Timestamp { t: at.seconds(), i: at.increment() },
            "startWallClockTime": iso8601(self.began_ms).as_str(),
            "timeOpenMicros": open,
            "timeActiveMicros": active,
            "timeInactiveMicros": open - active,
            "expiryTime": iso8601(self.began_ms + limit.as_millis() as i64).as_str(),
        }
    }
}

/// The newest number of a session.
pub struct Latest {
    number: i64,
    state: State,
}

/// Checks a command of a transaction, or a retryable write, at a router, where its shards have the sessions. Those that
/// a statement does not come to cannot refuse it.
///
/// # Errors
/// Those of [`Transactions::enter`], as far as the router knows.
pub fn check_routed(
    router: &Router,
    spec: &CommandSpec,
    generic: &Generic<'_>,
    namespace: &str,
    args: &Args<'_>,
    request: &Request<'_>,
) -> Result<()> {
    let (Some(number), Some(session)) = (generic.txn_number, generic.session) else {
        return Ok(());
    };
    let newest = router.transactions.newest_of(&session);
    if generic.in_transaction() {
        rules::check(false, spec, generic, namespace, request)?;
    } else {
        Numbered::parse(args, request, spec)?;
    }
    match newest {
        Some(newest) if number < newest => Err(too_old(session, number, newest)),
        Some(newest) if number == newest && generic.start_transaction.is_some() => {
            Err(begun_before())
        }
        Some(newest) if number == newest && !generic.in_transaction() => {
            Err(of_a_transaction(number))
        }
        _ => Ok(()),
    }
}

/// A session's entry in memory.
#[derive(Default)]
struct Participant {
    /// Held by the command that has the session.
    latest: Arc<Lock<Option<Latest>>>,
    /// The transaction that is under way, for a thread that ends it from elsewhere.
    running: Mutex<Option<Running>>,
    /// The leadership of this member that `latest` belongs to. In between, another primary may have changed
    /// the session.
    epoch: AtomicU64,
    /// Whether a command has used the session since the last look.
    used: AtomicBool,
}

/// Counts of what has happened to transactions since the server's start.
#[derive(Default)]
pub struct Figures {
    started: AtomicU64,
    committed: AtomicU64,
    aborted: AtomicU64,
    /// Transactions that were prepared, and how they have ended since.
    prepared: AtomicU64,
    prepared_committed: AtomicU64,
    prepared_aborted: AtomicU64,
    /// Commands of transactions that run now.
    active: AtomicI64,
    /// How often a session's record was written.
    remembered: AtomicU64,
    /// Commands and statements that were answered from remembered results.
    retried_commands: AtomicU64,
    retried_statements: AtomicU64,
}

/// The transactions of all sessions.
#[derive(Default)]
pub struct Transactions {
    sessions: Known,
    figures: Figures,
    /// How often this member has become primary.
    epoch: AtomicU64,
}

/// A command's hold of its session.
pub struct CheckedOut {
    session: SessionKey,
    number: i64,
    participant: Arc<Participant>,
    latest: Locked<Arc<Lock<Option<Latest>>>, Option<Latest>>,
    /// There were already many participants when the session was checked out.
    crowded: bool,
}

impl Transactions {
    /// Checks the session out for a command with a `txnNumber`, and makes the operation a part of its
    /// transaction or a retryable write.
    ///
    /// # Errors
    /// 263 and 72 for a command that cannot run so; 225 TransactionTooOld, 251 NoSuchTransaction, 256
    /// TransactionCommitted, 117 ConflictingOperationInProgress; the interrupt of an operation that waits for
    /// the session.
    pub fn enter(
        &self,
        server: &ServerState,
        op: &OpContext,
        spec: &CommandSpec,
        generic: &Generic<'_>,
        args: &Args<'_>,
        request: &Request<'_>,
    ) -> Result<Option<CheckedOut>> {
        let (Some(number), Some(session)) = (generic.txn_number, generic.session) else {
            return Ok(None);
        };
        let mut out;
        if generic.in_transaction() {
            let of_config = server.options.role == ClusterRole::Config;
            rules::check(of_config, spec, generic, op.namespace(), request)?;
            out = self.check_out(server, op, session, number)?;
            match generic.start_transaction {
                Some(_) => self.begin(server, op, generic, &mut out)?,
                None => self.go_on(op, spec, &mut out)?,
            }
            if let Some(running) = &*out.participant.running.lock() {
                running.active.lock().since = Some(muniment_op::now());
            }
        } else {
            let statements = Numbered::parse(args, request, spec)?;
            out = self.check_out(server, op, session, number)?;
            self.retry(server, op, statements, &mut out)?;
        }
        self.figures.active.fetch_add(1, Relaxed);
        Ok(Some(out))
    }

    /// Ends a command that has its session checked out: gives the session back, ends the transaction if the
    /// command failed, and notes in the reply which statements had already been done.
    ///
    /// # Errors
    /// The command's; a statement's if the driver may run the transaction again; 251 NoSuchTransaction if
    /// another thread has ended the transaction meanwhile.
    pub fn end_command(cx: &mut CommandContext<'_>, result: Result<()>) -> Result<()> {
        let Some(out) = cx.transaction.take() else {
            return result;
        };
        let (server, op) = (cx.server, cx.op);
        let in_transaction = cx.generic.in_transaction();
        // If a driver may try again after a statement's error, the whole command fails with it. Errors of
        // other statements are only listed in the reply.
        let failure = op.failure();
        let again = failure.filter(|e| labels(cx.spec, &cx.generic, e.code()).is_some());
        // Another thread has ended the transaction, so the command may have seen and written only a part.
        let ended = op.transaction().is_some_and(|t| t.has_ended()) && !ends(cx.spec);
        let result = match (again, result) {
            (Some(e), _) => Err(e.clone()),
            (None, Ok(())) if ended => Err(aborted(out.number)),
            (None, result) => result,
        };
        let failed = in_transaction && (result.is_err() || failure.is_some());
        if let (false, Some(t), false) = (failed, op.transaction(), ends(cx.spec)) {
            out.tell_router(server, t, &mut cx.reply);
        }
        server.transactions.leave(server, out, failed);
        let figures = &server.transactions.figures;
        let remembered = op.retry().map_or(0, |r| r.remembered());
        figures.remembered.fetch_add(remembered, Relaxed);
        let retried = op.retry().map(|r| r.retried()).unwrap_or_default();
        let Some(first) = retried.first().filter(|_| result.is_ok()) else {
            return result;
        };
        server.transactions.count_retried(retried.len() as u64);
        if matches!(cx.spec.statements, Statements::One) {
            cx.reply.field("retriedStmtId", *first);
        } else {
            cx.reply.open_array("retriedStmtIds");
            for id in &retried {
                cx.reply.item(*id);
            }
            cx.reply.close();
        }
        result
    }

    /// Called before this member becomes primary. From then on the sessions' state in memory no longer
    /// counts, only that in the store, which another primary may have written.
    pub fn begin_leading(&self) {
        self.epoch.fetch_add(1, SeqCst);
    }

    /// Tells one stint of leadership of this member from another.
    pub fn stint(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    /// Waits until no other command has the session, and reads what the store has of it if memory has
    /// nothing.
    fn check_out(
        &self,
        server: &ServerState,
        op: &OpContext,
        session: SessionKey,
        number: i64,
    ) -> Result<CheckedOut> {
        let (participant, crowded) = self.sessions.enter(session);
        let mut latest = participant.latest.lock_arc_for(op)?;
        let now = self.epoch.load(SeqCst);
        if participant.epoch.swap(now, SeqCst) != now {
            *latest = None;
        }
        prepared::load_after_prepared(server, op, &session, number, &mut latest)?;
        Ok(CheckedOut {
            session,
            number,
            participant,
            latest,
            crowded,
        })
    }

    /// Begins a retryable write. Statements that were done before are answered from what is remembered of
    /// them.
    fn retry(
        &self,
        server: &ServerState,
        op: &OpContext,
        of: Numbered,
        out: &mut CheckedOut,
    ) -> Result<()> {
        let number = out.number;
        if let Some(latest) = out.latest.as_ref() {
            out.check_age(latest)?;
            if latest.number == number && !matches!(latest.state, State::Retryable(_)) {
                return Err(of_a_transaction(number));
            }
        }
        let known = out.latest.as_mut().and_then(|l| match &mut l.state {
            State::Retryable(record) if l.number == number => Some(record.clone()),
            // No command uses the record of the earlier number any more, so it is reused for this one.
            State::Retryable(record) => {
                Arc::get_mut(record)?.get_mut().renew(number);
                l.number = number;
                Some(record.clone())
            }
            _ => None,
        });
        let record = match known {
            Some(record) => record,
            None => {
                self.abort_running(server, out);
                let head = out.stored(server)?;
                let record = Arc::new(Mutex::new(Session::new(number, head)));
                *out.latest = Some(Latest {
                    number,
                    state: State::Retryable(record.clone()),
                });
                record
            }
        };
        let retry = Retry::new(out.session, number, of.ids, record, of.returns);
        op.may_be_retried(Arc::new(retry));
        Ok(())
    }

    /// Takes over what another shard remembers of a session's retryable writes, unless the session has gone on here.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected; as a commit's; the interrupt of an operation that waits for the session.
    pub fn take_over(
        &self,
        server: &ServerState,
        op: &OpContext,
        key: SessionKey,
        told: &SessionRecord,
    ) -> Result<()> {
        let mut out = self.check_out(server, op, key, told.number)?;
        let newest = out.latest.as_ref().map_or(i64::MIN, |l| l.number);
        let store = &server.engine.store;
        let held = store.session(&key)?;
        let stored = held.as_ref().map_or(i64::MIN, Session::number);
        if newest.max(stored) > told.number {
            return Ok(());
        }
        let mut added = SessionRecord::new(told.number, told.state, told.at_ms);
        let same = held.filter(|h| h.number() == told.number);
        for run in told.runs() {
            // Where a part of a run is known already, the rest is taken over by itself.
            for n in 0..run.count {
                let first = run.first.saturating_add_unsigned(n);
                if same.as_ref().is_none_or(|s| s.result(first).is_none()) {
                    added.push(StatementRun {
                        first,
                        count: 1,
                        result: run.result.clone(),
                    });
                }
            }
        }
        if added.runs().is_empty() {
            return Ok(());
        }
        self.abort_running(server, &mut out);
        let session = match same {
            Some(same) => same,
            None => Session::new(told.number, out.stored(server)?),
        };
        // What is in memory is read again by the session's next command.
        *out.latest = None;
        store.remember(&session.change(key, added), op).map(drop)
    }

    fn begin(
        &self,
        server: &ServerState,
        op: &OpContext,
        generic: &Generic<'_>,
        out: &mut CheckedOut,
    ) -> Result<()> {
        let number = out.number;
        if let Some(latest) = out.latest.as_ref() {
            out.check_age(latest)?;
            if latest.number == number {
                return Err(begun_before());
            }
        }
        // Aborts the session's former transaction, if one is under way. No client is told of that.
        self.abort_running(server, out);
        let patience = server.parameters.transaction_patience_ms.load(Relaxed);
        let patience = Duration::from_millis(patience.max(0) as u64);
        let store = &server.engine.store;
        let concern = generic.read_concern;
        let at = concern.and_then(|d| d.get("atClusterTime"));
        let level = concern.and_then(|d| d.get_str("level"));
        let at = match (at, level) {
            (Some(at), _) => Some(times_of(at)),
            // Other shards will read at the same time, which has to be after all that the router has heard of.
            (None, Some("snapshot")) if server.options.role.may_be_shard() => Some(store.clock()),
            _ => None,
        };
        let view = at.map(|at| server.snapshots.at(server, at, op));
        let view = view.transpose()?;
        let running = Running {
            transaction: store.begin_transaction(patience, view),
            number,
            of_config: op.namespace().starts_with("config."),
            at,
            read_concern: generic.read_concern.map(|d| d.to_buf()),
            began: muniment_op::now(),
            began_ms: muniment_logger::now_ms(),
            active: Arc::default(),
        };
        self.figures.started.fetch_add(1, Relaxed);
        op.enter(running.transaction.clone());
        *out.participant.running.lock() = Some(running.clone());
        *out.latest = Some(Latest {
            number,
            state: State::InProgress(running),
        });
        Ok(())
    }

    fn go_on(&self, op: &OpContext, spec: &CommandSpec, out: &mut CheckedOut) -> Result<()> {
        let number = out.number;
        let active = out.latest.as_ref().map_or(-1, |l| l.number);
        let Some(latest) = out.latest.as_mut().filter(|l| l.number >= number) else {
            return Err(Error::new(
                Code::NoSuchTransaction,
                format!(
                    "Given transaction number {number} does not match any in-progress \
                     transactions. The active transaction number is {active}"
                ),
            ));
        };
        if latest.number > number {
            return Err(too_old(out.session, number, latest.number));
        }
        if let State::InProgress(running) = &latest.state {
            if !running.transaction.has_ended() {
                op.enter(running.transaction.clone());
                return Ok(());
            }
            latest.state = State::Aborted;
        }
        match latest.state {
            State::Retryable(_) | State::Unwritten => Err(Error::new(
                Code::NoSuchTransaction,
                format!(
                    "Given transaction number {number} does not match any in-progress \
                     transactions. The active transaction number is {number}"
                ),
            )),
            State::Committed(_) if spec.ends_transaction == Some(Ends::Commit) => Ok(()),
            State::Prepared => Err(prepared::in_progress(number)),
            State::Committed(_) => Err(Error::new(
                Code::TransactionCommitted,
                format!("Transaction with {{ txnNumber: {number} }} has been committed."),
            )),
            _ => Err(aborted(number)),
        }
    }

    /// Aborts the transaction that the session has under way, if there is one.
    fn abort_running(&self, server: &ServerState, out: &mut CheckedOut) {
        *out.participant.running.lock() = None;
        let Some(latest) = out.latest.as_mut() else {
            return;
        };
        if let State::InProgress(running) = &latest.state {
            running.transaction.abort();
            latest.state = State::Aborted;
            self.figures.aborted.fetch_add(1, Relaxed);
            server
                .engine
                .cursors
                .kill_transaction(&out.session, latest.number);
        }
    }

    /// Gives the session back; a command that failed ends its transaction.
    pub fn leave(&self, server: &ServerState, mut out: CheckedOut, failed: bool) {
        self.figures.active.fetch_sub(1, Relaxed);
        if let Some(running) = &*out.participant.running.lock() {
            let mut active = running.active.lock();
            active.before = active.time();
            active.since = None;
        }
        if failed {
            self.abort_running(server, &mut out);
        }
        if let Some(State::Retryable(record)) = out.latest.as_ref().map(|l| &l.state) {
            record.lock().shed(KEPT_RESULTS);
        }
        let (session, crowded) = (out.session, out.crowded);
        drop(out);
        if crowded {
            self.sessions.let_go(&session, &server.sessions);
        }
    }

    /// Commits the transaction. A commit that is sent again gets the same answer.
    ///
    /// # Errors
    /// A commit's; [`Transactions::leave`] then aborts the transaction.
    pub fn commit(
        &self,
        server: &ServerState,
        out: &mut CheckedOut,
        op: &OpContext,
    ) -> Result<Option<CommitId>> {
        let Some(latest) = out.latest.as_mut() else {
            return Err(Error::internal("a commit without a transaction"));
        };
        let running = match &latest.state {
            State::Committed(commit) => return Ok(*commit),
            State::InProgress(running) => running.clone(),
            State::Aborted | State::Prepared | State::Retryable(_) | State::Unwritten => {
                return Err(Error::internal("a commit of what is not under way"));
            }
        };
        let now = muniment_logger::now_ms();
        let record = SessionRecord::new(out.number, SessionState::Committed, now);
        let head = server.engine.store.session_head(&out.session)?;
        let change = SessionChange::new(out.session, record, &head.unwrap_or_default());
        let commit = |announce| running.transaction.commit(Some(&change), announce, op);
        let commit = op.announcer.commit(commit)?;
        latest.state = State::Committed(commit);
        *out.participant.running.lock() = None;
        self.figures.committed.fetch_add(1, Relaxed);
        let remembered = u64::from(commit.is_some());
        self.figures.remembered.fetch_add(remembered, Relaxed);
        let cursors = &server.engine.cursors;
        cursors.kill_transaction(&out.session, out.number);
        Ok(commit)
    }

    /// Aborts the transaction that the session has under way.
    pub fn abort(&self, server: &ServerState, out: &mut CheckedOut) {
        self.abort_running(server, out);
    }

    /// Ends a session's transaction from another thread. Returns true if there was one.
    pub fn kill(&self, server: &ServerState, session: &SessionKey) -> bool {
        let Some(participant) = self.sessions.get(session) else {
            return false;
        };
        let Some(running) = participant.running.lock().take() else {
            return false;
        };
        running.transaction.abort();
        self.figures.aborted.fetch_add(1, Relaxed);
        let cursors = &server.engine.cursors;
        cursors.kill_transaction(session, running.number);
        true
    }

    /// Ends all transactions, before the store closes.
    pub fn kill_all(&self, server: &ServerState) {
        for (session, _, _) in self.running() {
            self.kill(server, &session);
        }
    }

    /// Counts a command of which some statements had been done before.
    fn count_retried(&self, statements: u64) {
        self.figures.retried_commands.fetch_add(1, Relaxed);
        let all = &self.figures.retried_statements;
        all.fetch_add(statements, Relaxed);
    }

    /// Forgets a session that was ended.
    pub fn forget(&self, server: &ServerState, session: &SessionKey) {
        self.kill(server, session);
        self.sessions.forget(session);
    }

    /// Drops the participants of sessions that were not used since the last call. The store has the state of
    /// their numbers.
    pub fn let_go_of_idle(&self, server: &ServerState) {
        self.sessions.let_go_of_idle(&server.sessions);
    }

    /// The sessions whose transactions have lasted longer than they may, and than those may that began in the database
    /// `config`.
    pub fn expired(&self, limit: Duration, of_config: Duration) -> Vec<SessionKey> {
        let is_old = |r: &Running| {
            let limit = if r.of_config { of_config } else { limit };
            muniment_op::since(r.began) >= limit
        };
        self.sessions.find(|id, p| {
            let running = p.running.lock();
            running.as_ref().is_some_and(is_old).then_some(*id)
        })
    }

    /// Removes the stored records of sessions that were not used for the lifetime of a session.
    ///
    /// # Errors
    /// As a commit's.
    pub fn reap(&self, server: &ServerState, interrupt: &dyn Interrupt) -> Result<()> {
        const AT_ONCE: usize = 1000;
        // Ages are not taken from the wall clock alone, because it may have been set since.
        let lives = Duration::from_secs(60 * u64::from(TIMEOUT_MINUTES.unsigned_abs()));
        let store = &server.engine.store;
        let mut behind = None;
        loop {
            let some = store.session_keys(behind.as_ref(), AT_ONCE, interrupt)?;
            let Some(last) = some.last().copied() else {
                return Ok(());
            };
            behind = Some(last);
            // Holds the sessions while they are removed, so that no command has one. A session in use stays.
            let mut held = Vec::new();
            for key in some {
                interrupt.check()?;
                if server.sessions.is_known(&key) || !is_old(store, &key, lives)? {
                    continue;
                }
                let (participant, _) = self.sessions.enter(key);
                if let Some(guard) = participant.latest.try_lock_arc()
                    && is_old(store, &key, lives)?
                {
                    held.push((key, guard));
                }
            }
            let gone: Vec<SessionKey> = held.iter().map(|(key, _)| *key).collect();
            store.forget_sessions(&gone, interrupt)?;
            for (_, guard) in &mut held {
                **guard = None;
            }
            drop(held);
            for key in &gone {
                self.forget(server, key);
            }
        }
    }

    /// The sessions with a transaction under way, each with the microseconds since the transaction began and
    /// the time of its begin in milliseconds since 1970.
    pub fn running(&self) -> Vec<(SessionKey, u64, i64)> {
        self.sessions.find(|id, p| {
            let running = p.running.lock();
            let r = running.as_ref()?;
            Some((
                *id,
                muniment_op::since(r.began).as_micros() as u64,
                r.began_ms,
            ))
        })
    }

    /// The sessions whose transaction is under way while none of its commands runs, as currentOp lists them.
    pub fn idle(&self, server: &ServerState) -> Vec<DocBuf> {
        let (host, limit) = (server.address.host.as_str(), lifetime(server));
        self.sessions.find(|id, p| {
            // Skips a session that a running command has.
            let _idle = p.latest.try_lock()?;
            let running = p.running.lock();
            let r = running.as_ref()?;
            Some(doc! {
                "type": "idleSession",
                "host": host,
                "desc": "inactive transaction",
                "lsid": session_doc(id),
                "transaction": r.to_doc(limit),
                "active": false,
                "waitingForLock": false,
                "locks": doc! {},
            })
        })
    }

    /// The transaction or the retryable write of a running operation, as currentOp shows it.
    pub fn of_operation(&self, server: &ServerState, op: &OpContext) -> Option<DocBuf> {
        if let Some(retry) = op.retry() {
            return Some(doc! { "parameters": doc! { "txnNumber": retry.number() } });
        }
        op.transaction()?;
        let participant = self.sessions.get(op.session()?)?;
        let running = participant.running.lock();
        running.as_ref().map(|r| r.to_doc(lifetime(server)))
    }

    /// `serverStatus.transactions`, with the number of those that are prepared now.
    pub fn to_doc(&self, prepared: usize) -> DocBuf {
        let f = &self.figures;
        let count = |n: &AtomicU64| n.load(Relaxed) as i64;
        let open = self.running().len() as i64;
        let active = f.active.load(Relaxed).clamp(0, open);
        doc! {
            "retriedCommandsCount": count(&f.retried_commands),
            "retriedStatementsCount": count(&f.retried_statements),
            "transactionsCollectionWriteCount": count(&f.remembered),
            "currentActive": active,
            "currentInactive": open - active,
            "currentOpen": open,
            "totalAborted": count(&f.aborted),
            "totalCommitted": count(&f.committed),
            "totalStarted": count(&f.started),
            // Only transactions over several shards are prepared.
            "totalPrepared": count(&f.prepared),
            "totalPreparedThenCommitted": count(&f.prepared_committed),
            "totalPreparedThenAborted": count(&f.prepared_aborted),
            "currentPrepared": prepared as i64,
        }
    }
}

impl CheckedOut {
    /// The session's record in the store.
    fn stored(&self, server: &ServerState) -> Result<SessionHead> {
        if let Some(State::Retryable(record)) = self.latest.as_ref().map(|l| &l.state) {
            return Ok(record.lock().head().clone());
        }
        let head = server.engine.store.session_head(&self.session)?;
        Ok(head.unwrap_or_default())
    }

    fn check_age(&self, latest: &Latest) -> Result<()> {
        if self.number < latest.number {
            return Err(too_old(self.session, self.number, latest.number));
        }
        Ok(())
    }
}

/// Whether the store's record says that a session was not used for as long as `lives`.
///
/// # Errors
/// 301 DataCorruptionDetected for a record that cannot be read.
fn is_old(store: &Store, key: &SessionKey, lives: Duration) -> Result<bool> {
    let head = store.session_head_at(key)?;
    Ok(head.is_some_and(|(head, at)| store.age_of(at, head.record().at_ms) >= lives))
}

/// How long transactions may last.
fn lifetime(server: &ServerState) -> Duration {
    let seconds = server.parameters.transaction_lifetime_secs.load(Relaxed);
    Duration::from_secs(seconds.max(0) as u64)
}

/// 251 NoSuchTransaction.
fn aborted(number: i64) -> Error {
    Error::new(
        Code::NoSuchTransaction,
        format!("Transaction with {{ txnNumber: {number} }} has been aborted."),
    )
}

/// 117 ConflictingOperationInProgress.
fn begun_before() -> Error {
    Error::new(
        Code::ConflictingOperationInProgress,
        "Only servers in a sharded cluster can start a new transaction at the active transaction number",
    )
}

/// 217 IncompleteTransactionHistory.
fn of_a_transaction(number: i64) -> Error {
    Error::new(
        Code::IncompleteTransactionHistory,
        format!(
            "Cannot run a retryable write with txnNumber {number}: a transaction has this number on the session"
        ),
    )
}

/// 225 TransactionTooOld.
fn too_old(session: SessionKey, number: i64, newest: i64) -> Error {
    let id = Value::Binary {
        subtype: 4,
        bytes: &session.id,
    };
    Error::new(
        Code::TransactionTooOld,
        format!(
            "Cannot start transaction {{ txnNumber: {number} }} on session {} because a newer \
             transaction with txnNumber {newest} has already started on this session.",
            id.to_display()
        ),
    )
}
