//! Which session has which transaction, from its first command to its last.
//!
//! A session has one number at a time, that of its newest transaction or retryable write; a smaller
//! one is too old. A command of a transaction checks the session out: commands of one session come
//! one after another. Any error of a command ends the transaction, as does its time limit.
//!
//! Invariants: what a session says of its number is told by [`Latest`] alone; a transaction that was
//! ended from elsewhere (killSessions, the time limit) is found ended by the next command.

use crate::context::Request;
use crate::generic::Generic;
use crate::registry::CommandSpec;
use crate::sessions::TIMEOUT_MINUTES;
use crate::state::ServerState;
use muniment_exec::{OpContext, Retry, StatementIds};
use muniment_query::Interrupt;
use muniment_storage::{CommitId, SessionChange, SessionRecord, SessionState, Transaction};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc, number};
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long who waits for a session sleeps before its operation is asked.
const LOOK: Duration = Duration::from_millis(10);

/// Bytes of results that a session keeps in memory.
const KEPT_RESULTS: usize = 4096;

/// A session's id.
pub type SessionId = [u8; 16];

/// What the newest number of a session has come to.
enum State {
    /// It is under way.
    InProgress(Running),
    Committed(Option<CommitId>),
    Aborted,
    /// Retryable writes.
    Retryable(Arc<Mutex<SessionRecord>>),
}

/// A transaction that is under way.
#[derive(Clone)]
struct Running {
    transaction: Arc<Transaction>,
    number: i64,
    began: Instant,
    began_ms: i64,
}

/// The newest number of a session.
pub struct Latest {
    number: i64,
    state: State,
}

/// One session's part.
#[derive(Default)]
struct Participant {
    /// Held by the command that has the session.
    latest: Arc<Mutex<Option<Latest>>>,
    /// The transaction that is under way, for who ends it from elsewhere.
    running: Mutex<Option<Running>>,
}

/// What became of transactions since the start.
#[derive(Default)]
pub struct Figures {
    started: AtomicU64,
    committed: AtomicU64,
    aborted: AtomicU64,
    /// Commands of transactions that run just now.
    active: AtomicI64,
    /// Commands and statements that were answered by what is remembered.
    retried_commands: AtomicU64,
    retried_statements: AtomicU64,
}

/// The transactions of all sessions.
#[derive(Default)]
pub struct Transactions {
    sessions: Mutex<HashMap<SessionId, Arc<Participant>>>,
    figures: Figures,
}

/// What a retryable command says of its statements.
#[derive(Clone, Debug)]
pub struct RetryOf {
    /// Their ids.
    pub ids: StatementIds,
    /// The command returns the document as it is before (false) or after (true) the change.
    pub returns: Option<bool>,
}

impl RetryOf {
    /// As the command's document says.
    ///
    /// # Errors
    /// 72 for a statement that cannot be retried, since it may change several documents.
    pub fn parse(request: &Request<'_>, spec: &CommandSpec) -> Result<RetryOf> {
        let body = request.body;
        let whole = |v: Value<'_>| number::to_i64_exact(v).and_then(|n| i32::try_from(n).ok());
        let ids = match body.get_array("stmtIds") {
            Some(all) => StatementIds::Each(all.values().map(|v| whole(v).unwrap_or(-1)).collect()),
            None => StatementIds::From(body.get("stmtId").and_then(whole).unwrap_or(0)),
        };
        if let StatementIds::Each(all) = &ids {
            let field = match spec.name {
                "insert" => "documents",
                "update" => "updates",
                "delete" => "deletes",
                _ => "ops",
            };
            let statements = match request.sequence(field) {
                Some(s) => s.len(),
                None => body.get_array(field).map_or(0, |d| d.count()),
            };
            if all.len() != statements {
                return Err(Error::new(
                    Code::InvalidLength,
                    format!(
                        "The size of the statement ids array ({}) does not match the number of \
                         operations ({statements})",
                        all.len()
                    ),
                ));
            }
            let distinct: HashSet<i32> = all.iter().copied().collect();
            if distinct.len() < all.len() || all.iter().any(|id| *id < 0) {
                return Err(Error::bad_value(
                    "The statement ids must be distinct numbers from 0 on",
                ));
            }
        }
        let many = |what: &str| {
            Err(Error::new(
                Code::InvalidOptions,
                format!("Cannot use retryable writes with {what}"),
            ))
        };
        let any = |field: &str, f: &dyn Fn(Doc<'_>) -> bool| match request.sequence(field) {
            Some(mut all) => all.any(f),
            None => {
                let all = body.get_array(field).unwrap_or(Doc::EMPTY);
                all.values().filter_map(|v| v.as_doc()).any(f)
            }
        };
        let is_multi = |d: Doc<'_>| d.get("multi").is_some_and(|v| v.truthy());
        match spec.name {
            _ if body.get("autocommit").is_some() => {}
            "update" if any("updates", &is_multi) => return many("multi=true"),
            "bulkWrite" if any("ops", &is_multi) => return many("multi=true"),
            "delete" if any("deletes", &|d| d.get("limit").and_then(whole) == Some(0)) => {
                return many("limit=0");
            }
            _ => {}
        }
        let returns =
            (spec.name == "findAndModify").then(|| body.get("new").is_some_and(|v| v.truthy()));
        Ok(RetryOf { ids, returns })
    }
}

/// A command's hold of its session.
pub struct CheckedOut {
    session: SessionId,
    number: i64,
    participant: Arc<Participant>,
    latest: ArcMutexGuard<RawMutex, Option<Latest>>,
}

/// Whether the driver may run the whole transaction again after this error.
pub fn is_transient(code: Code) -> bool {
    matches!(
        code,
        Code::WriteConflict
            | Code::LockTimeout
            | Code::SnapshotUnavailable
            | Code::SnapshotTooOld
            | Code::NoSuchTransaction
            | Code::PreparedTransactionInProgress
    )
}

/// Whether a driver may send a retryable write, a commit or an abort again after this error.
pub fn is_retryable(code: Code) -> bool {
    matches!(
        code,
        Code::InterruptedAtShutdown
            | Code::InterruptedDueToReplStateChange
            | Code::NotWritablePrimary
            | Code::NotPrimaryNoSecondaryOk
            | Code::NotPrimaryOrSecondary
            | Code::PrimarySteppedDown
            | Code::ShutdownInProgress
            | Code::HostNotFound
            | Code::HostUnreachable
            | Code::NetworkTimeout
            | Code::SocketException
            | Code::ExceededTimeLimit
    )
}

/// Commands that may be a part of a transaction.
const ALLOWED: &[&str] = &[
    "abortTransaction",
    "aggregate",
    "bulkWrite",
    "commitTransaction",
    "create",
    "createIndexes",
    "delete",
    "distinct",
    "find",
    "findAndModify",
    "getMore",
    "insert",
    "killCursors",
    "update",
];

/// True for the commands that end a transaction.
pub fn ends(spec: &CommandSpec) -> bool {
    matches!(spec.name, "abortTransaction" | "commitTransaction")
}

/// Whether a command may run in a transaction.
///
/// # Errors
/// 263 OperationNotSupportedInTransaction; 72 InvalidOptions for its concerns.
pub fn check(
    spec: &CommandSpec,
    generic: &Generic<'_>,
    namespace: &str,
    request: &Request<'_>,
) -> Result<()> {
    // Those that bulkWrite writes to.
    let named = |d: Doc<'_>| d.get_str("ns").map(str::to_owned);
    let also: Vec<String> = match request.sequence("nsInfo") {
        Some(all) => all.filter_map(named).collect(),
        None => {
            let all = request.body.get_array("nsInfo").unwrap_or(Doc::EMPTY);
            all.values().filter_map(|v| named(v.as_doc()?)).collect()
        }
    };
    let refused = |message: String| {
        Err(Error::new(
            Code::OperationNotSupportedInTransaction,
            message,
        ))
    };
    let name = spec.name;
    let starts = generic.start_transaction.is_some();
    if name == "count" {
        return refused(
            "Cannot run 'count' in a multi-document transaction. Please see \
             http://dochub.mongodb.org/core/transaction-count for a recommended alternative."
                .into(),
        );
    }
    if !ALLOWED.contains(&name) {
        return refused(format!(
            "Cannot run '{name}' in a multi-document transaction."
        ));
    }
    let (db, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
    if matches!(db, "admin" | "config" | "local") && !ends(spec) && name != "bulkWrite" {
        return refused(format!(
            "Cannot run command against the '{db}' database in a transaction."
        ));
    }
    if let Some(ns) = also.iter().find(|ns| {
        let db = ns.split_once('.').map_or("", |(db, _)| db);
        matches!(db, "admin" | "config" | "local")
    }) {
        let db = ns.split_once('.').map_or("", |(db, _)| db);
        return refused(format!(
            "Cannot run command against the '{db}' database in a transaction."
        ));
    }
    if matches!(collection, "system.profile" | "system.views") {
        return refused(format!(
            "Cannot run command against the '{namespace}' collection in a transaction."
        ));
    }
    if starts {
        match name {
            "killCursors" => {
                return refused(
                    "Cannot run killCursors as the first operation in a multi-document \
                     transaction."
                        .into(),
                );
            }
            "commitTransaction" => {
                return refused("Cannot start a transaction with a commit".into());
            }
            "abortTransaction" => {
                return refused("Cannot start a transaction with an abort".into());
            }
            _ => {}
        }
    }
    let invalid = |message: &str| Err(Error::new(Code::InvalidOptions, message));
    if generic.write_concern.is_some() && !ends(spec) {
        return invalid("writeConcern is not allowed within a multi-statement transaction");
    }
    if let Some(concern) = generic.read_concern {
        if !starts {
            return invalid("Only the first command in a transaction may specify a readConcern");
        }
        if !matches!(
            concern.get_str("level"),
            None | Some("local" | "majority" | "snapshot")
        ) {
            return invalid(
                "The readConcern level must be either 'local' (default), 'majority' or \
                 'snapshot' in order to run in a transaction",
            );
        }
    }
    Ok(())
}

impl Transactions {
    /// Checks the session out for a command of a transaction, and makes the operation a part of it.
    ///
    /// # Errors
    /// 225 TransactionTooOld, 251 NoSuchTransaction, 256 TransactionCommitted, 50911; what the
    /// operation says while it waits for the session.
    pub fn enter(
        &self,
        server: &ServerState,
        op: &OpContext,
        spec: &CommandSpec,
        generic: &Generic<'_>,
        ids: RetryOf,
    ) -> Result<Option<CheckedOut>> {
        let (Some(number), Some(session)) = (generic.txn_number, generic.session) else {
            return Ok(None);
        };
        let mut out = self.check_out(server, op, session, number)?;
        match (generic.in_transaction(), generic.start_transaction) {
            (false, _) => self.retry(server, op, ids, &mut out)?,
            (true, Some(_)) => self.begin(server, op, &mut out)?,
            (true, None) => self.go_on(op, spec, &mut out)?,
        }
        self.figures.active.fetch_add(1, Relaxed);
        Ok(Some(out))
    }

    /// Waits until no other command has the session. What an earlier run of the server stored of it
    /// is read first.
    fn check_out(
        &self,
        server: &ServerState,
        op: &OpContext,
        session: SessionId,
        number: i64,
    ) -> Result<CheckedOut> {
        let participant = self.sessions.lock().entry(session).or_default().clone();
        let mut latest = loop {
            if let Some(guard) = participant.latest.try_lock_arc_for(LOOK) {
                break guard;
            }
            op.check()?;
        };
        if latest.is_none()
            && let Some(record) = server.engine.store.session(&session)?
        {
            *latest = Some(Latest {
                number: record.number,
                state: match record.state {
                    SessionState::Committed => State::Committed(None),
                    SessionState::Retryable => State::Retryable(Arc::new(Mutex::new(record))),
                },
            });
        }
        Ok(CheckedOut {
            session,
            number,
            participant,
            latest,
        })
    }

    /// A retryable write: the statements that were done before are answered by what is remembered.
    fn retry(
        &self,
        server: &ServerState,
        op: &OpContext,
        of: RetryOf,
        out: &mut CheckedOut,
    ) -> Result<()> {
        let number = out.number;
        if let Some(latest) = out.latest.as_ref() {
            out.check_age(latest)?;
            if latest.number == number && !matches!(latest.state, State::Retryable(_)) {
                return Err(Error::new(
                    Code::IncompleteTransactionHistory,
                    format!(
                        "Cannot run a retryable write with txnNumber {number}: a transaction has \
                         this number on the session"
                    ),
                ));
            }
        }
        let known = out.latest.as_ref().and_then(|l| match &l.state {
            State::Retryable(record) if l.number == number => Some(record.clone()),
            _ => None,
        });
        let record = match known {
            Some(record) => record,
            None => {
                self.abort_running(server, out);
                let now = crate::log::now_ms();
                let record = SessionRecord::new(number, SessionState::Retryable, now);
                let record = Arc::new(Mutex::new(record));
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

    fn begin(&self, server: &ServerState, op: &OpContext, out: &mut CheckedOut) -> Result<()> {
        let number = out.number;
        if let Some(latest) = out.latest.as_ref() {
            out.check_age(latest)?;
            if latest.number == number {
                let state = match latest.state {
                    State::InProgress(_) => "TxnState::InProgress",
                    State::Committed(_) => "TxnState::Committed",
                    State::Aborted => "TxnState::AbortedWithoutPrepare",
                    State::Retryable(_) => "TxnState::ExecutedRetryableWrite",
                };
                return Err(Error::location(
                    50911,
                    format!(
                        "Cannot start a transaction at given transaction number {number} a \
                         transaction with the same number is in state {state}"
                    ),
                ));
            }
        }
        // The one before ends without a word.
        self.abort_running(server, out);
        let running = Running {
            transaction: server.engine.store.begin_transaction(Duration::from_millis(
                server
                    .parameters
                    .transaction_patience_ms
                    .load(Relaxed)
                    .max(0) as u64,
            )),
            number,
            began: Instant::now(),
            began_ms: crate::log::now_ms(),
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
            State::Retryable(_) => Err(Error::new(
                Code::NoSuchTransaction,
                format!(
                    "Given transaction number {number} does not match any in-progress \
                     transactions. The active transaction number is {number}"
                ),
            )),
            State::Committed(_) if spec.name == "commitTransaction" => Ok(()),
            State::Committed(_) => Err(Error::new(
                Code::TransactionCommitted,
                format!("Transaction with {{ txnNumber: {number} }} has been committed."),
            )),
            _ => Err(Error::new(
                Code::NoSuchTransaction,
                format!("Transaction with {{ txnNumber: {number} }} has been aborted."),
            )),
        }
    }

    /// Ends what the session has under way.
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
        if failed {
            self.abort_running(server, &mut out);
        }
        // Large results are read again from the store if they are asked for.
        let large = out.latest.as_ref().is_some_and(|l| match &l.state {
            State::Retryable(record) => record.lock().result_bytes() > KEPT_RESULTS,
            _ => false,
        });
        if large {
            *out.latest = None;
        }
    }

    /// Commits; again and again with the same answer.
    ///
    /// # Errors
    /// A commit's; then the transaction is aborted by [`Transactions::leave`].
    pub fn commit(
        &self,
        server: &ServerState,
        out: &mut CheckedOut,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<CommitId>> {
        let Some(latest) = out.latest.as_mut() else {
            return Err(Error::internal("a commit without a transaction"));
        };
        let running = match &latest.state {
            State::Committed(commit) => return Ok(*commit),
            State::InProgress(running) => running.clone(),
            State::Aborted | State::Retryable(_) => {
                return Err(Error::internal("a commit of what is not under way"));
            }
        };
        let now = crate::log::now_ms();
        let record = SessionRecord::new(out.number, SessionState::Committed, now);
        let change = SessionChange {
            key: out.session,
            added: record.clone(),
            whole: record,
        };
        let commit = running.transaction.commit(Some(&change), interrupt)?;
        latest.state = State::Committed(commit);
        *out.participant.running.lock() = None;
        self.figures.committed.fetch_add(1, Relaxed);
        let cursors = &server.engine.cursors;
        cursors.kill_transaction(&out.session, out.number);
        Ok(commit)
    }

    /// Aborts.
    pub fn abort(&self, server: &ServerState, out: &mut CheckedOut) {
        self.abort_running(server, out);
    }

    /// Ends the transaction of a session from elsewhere; true if there was one.
    pub fn kill(&self, server: &ServerState, session: &SessionId) -> bool {
        let participant = self.sessions.lock().get(session).cloned();
        let Some(participant) = participant else {
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

    /// Ends all transactions: before the store closes.
    pub fn kill_all(&self, server: &ServerState) {
        for (session, _, _) in self.running() {
            self.kill(server, &session);
        }
    }

    /// Counts a command some of whose statements were done before.
    pub fn count_retried(&self, statements: u64) {
        self.figures.retried_commands.fetch_add(1, Relaxed);
        let all = &self.figures.retried_statements;
        all.fetch_add(statements, Relaxed);
    }

    /// Forgets a session that was ended.
    pub fn forget(&self, server: &ServerState, session: &SessionId) {
        self.kill(server, session);
        let mut sessions = self.sessions.lock();
        // Whoever has it checked out goes on with it, and so does who comes meanwhile.
        if let Entry::Occupied(o) = sessions.entry(*session)
            && Arc::strong_count(o.get()) == 1
        {
            o.remove();
        }
    }

    /// Sessions whose transactions have gone on for longer than they may.
    pub fn expired(&self, limit: Duration) -> Vec<SessionId> {
        let sessions = self.sessions.lock();
        let old = |p: &Participant| {
            let running = p.running.lock();
            running.as_ref().is_some_and(|r| r.began.elapsed() >= limit)
        };
        let all = sessions.iter().filter(|(_, p)| old(p));
        all.map(|(id, _)| *id).collect()
    }

    /// Forgets what is stored of sessions that nobody has used for as long as a session lives.
    ///
    /// # Errors
    /// As a commit's.
    pub fn reap(&self, server: &ServerState, interrupt: &dyn Interrupt) -> Result<()> {
        const AT_ONCE: usize = 10_000;
        let lives = i64::from(TIMEOUT_MINUTES) * 60_000;
        let before = crate::log::now_ms() - lives;
        let mut old = Vec::new();
        let store = &server.engine.store;
        store.each_session(|id, record| {
            interrupt.check()?;
            if record.at_ms < before && !server.sessions.is_known(&id) && old.len() < AT_ONCE {
                old.push(id);
            }
            Ok(())
        })?;
        for some in old.chunks(1000) {
            // Nobody has one of them while it goes; one that came back stays.
            let mut held = Vec::new();
            for id in some {
                let participant = self.sessions.lock().entry(*id).or_default().clone();
                if let Some(guard) = participant.latest.try_lock_arc()
                    && store.session(id)?.is_some_and(|r| r.at_ms < before)
                {
                    held.push((*id, guard));
                }
            }
            let gone: Vec<SessionId> = held.iter().map(|(id, _)| *id).collect();
            store.forget_sessions(&gone, interrupt)?;
            for (_, guard) in &mut held {
                **guard = None;
            }
            drop(held);
            for id in some {
                self.forget(server, id);
            }
        }
        Ok(())
    }

    /// Sessions with a transaction under way, with the time since it began in microseconds and when
    /// that was in milliseconds since 1970.
    pub fn running(&self) -> Vec<(SessionId, u64, i64)> {
        let sessions = self.sessions.lock();
        let one = |(id, p): (&SessionId, &Arc<Participant>)| {
            let running = p.running.lock();
            let r = running.as_ref()?;
            Some((*id, r.began.elapsed().as_micros() as u64, r.began_ms))
        };
        sessions.iter().filter_map(one).collect()
    }

    /// `serverStatus.transactions`.
    pub fn to_doc(&self) -> DocBuf {
        let f = &self.figures;
        let count = |n: &AtomicU64| n.load(Relaxed) as i64;
        let open = self.running().len() as i64;
        let active = f.active.load(Relaxed).clamp(0, open);
        doc! {
            "retriedCommandsCount": count(&f.retried_commands),
            "retriedStatementsCount": count(&f.retried_statements),
            "currentActive": active,
            "currentInactive": open - active,
            "currentOpen": open,
            "totalAborted": count(&f.aborted),
            "totalCommitted": count(&f.committed),
            "totalStarted": count(&f.started),
        }
    }
}

impl CheckedOut {
    /// The transaction's number.
    pub fn number(&self) -> i64 {
        self.number
    }

    fn check_age(&self, latest: &Latest) -> Result<()> {
        if self.number < latest.number {
            return Err(too_old(self.session, self.number, latest.number));
        }
        Ok(())
    }
}

/// 225.
fn too_old(session: SessionId, number: i64, newest: i64) -> Error {
    let id = Value::Binary {
        subtype: 4,
        bytes: &session,
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
