//! Running operations: their identity, their limits, their counters, and how to stop them.

use bytes::Bytes;
use muniment_query::Interrupt;
use muniment_value::{Code, DocBuf, Result};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// What an operation has done so far. Relaxed counters: for people, not for decisions.
#[derive(Debug, Default)]
pub struct Counters {
    /// Index keys examined.
    pub keys_examined: AtomicU64,
    /// Documents examined.
    pub docs_examined: AtomicU64,
    /// Documents returned.
    pub returned: AtomicU64,
    /// Documents written (inserted, modified or deleted).
    pub written: AtomicU64,
}

/// How an operation begins.
#[derive(Default)]
pub struct OpStart {
    /// The command's name.
    pub command: &'static str,
    /// `db.collection`, or `db.$cmd` for commands on a database.
    pub namespace: String,
    /// The command's body for currentOp, when it is cheap to keep.
    pub body: Option<Bytes>,
    /// `maxTimeMS`; `None` for no limit.
    pub max_time: Option<Duration>,
    /// The connection's number.
    pub connection_id: u64,
    /// The client's address, `host:port`.
    pub client: Option<Arc<str>>,
    /// The client's application name.
    pub app_name: Option<Arc<str>>,
    /// The session (`lsid`) as it came.
    pub lsid: Option<DocBuf>,
    /// True when the client's connection is gone. Asked at most every 10 ms, and only by
    /// operations that run longer than that.
    pub disconnected: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

/// One running operation. Stages ask it through [`Interrupt`].
pub struct OpContext {
    _private: (),
    /// What it has done so far.
    pub counters: Counters,
}

impl OpContext {
    /// An operation that is in no registry: monitor threads and tests.
    pub fn internal(command: &'static str) -> Arc<OpContext> {
        let _ = command;
        todo!()
    }

    /// The operation's number: `opid`.
    pub fn id(&self) -> u32 {
        todo!()
    }

    /// The command's name.
    pub fn command(&self) -> &'static str {
        todo!()
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        todo!()
    }

    /// When it began.
    pub fn started(&self) -> Instant {
        todo!()
    }

    /// When `maxTimeMS` runs out.
    pub fn deadline(&self) -> Option<Instant> {
        todo!()
    }

    /// Asks it to stop: the next [`Interrupt::check`] fails with `code` (11601 Interrupted for
    /// killOp, 237 CursorKilled for killCursors on a pinned cursor, …). The first reason stays.
    pub fn kill(&self, code: Code) {
        let _ = code;
        todo!()
    }

    /// As `currentOp` shows it.
    pub fn describe(&self) -> DocBuf {
        todo!()
    }
}

impl Interrupt for OpContext {
    fn check(&self) -> Result<()> {
        todo!()
    }
}

/// All running operations.
pub struct Operations {
    _private: (),
}

/// A registered operation; dropping it takes it from the registry.
pub struct OpGuard<'r> {
    _registry: &'r Operations,
    op: Arc<OpContext>,
}

impl std::ops::Deref for OpGuard<'_> {
    type Target = Arc<OpContext>;
    fn deref(&self) -> &Arc<OpContext> {
        &self.op
    }
}

impl Operations {
    /// An empty registry.
    pub fn new() -> Operations {
        Operations { _private: () }
    }

    /// Registers an operation.
    pub fn begin(&self, start: OpStart) -> OpGuard<'_> {
        let _ = start;
        todo!()
    }

    /// All running operations, oldest first.
    pub fn list(&self) -> Vec<Arc<OpContext>> {
        todo!()
    }

    /// Kills one; false if it is not there (killOp answers ok all the same).
    pub fn kill(&self, id: u32) -> bool {
        let _ = id;
        todo!()
    }

    /// Kills all that run, with 11600 InterruptedAtShutdown: before the store closes.
    pub fn kill_all(&self, code: Code) {
        let _ = code;
        todo!()
    }

    /// Kills those of a session (killSessions, endSessions).
    pub fn kill_session(&self, lsid_id: &[u8]) {
        let _ = lsid_id;
        todo!()
    }

    /// How many run.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// True if none runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Operations {
    fn default() -> Operations {
        Operations::new()
    }
}
