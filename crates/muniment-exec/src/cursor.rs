//! Cursors: what a find or aggregate leaves open between batches, and the manager that keeps them.

use crate::engine::Engine;
use crate::operation::OpContext;
use muniment_value::{DocBuf, Result};
use std::sync::Arc;
use std::time::Duration;

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

/// An open result: a running plan with its place.
pub struct Cursor {
    _private: (),
}

impl Cursor {
    /// The namespace that replies carry, `db.collection` (`db.$cmd.aggregate` without a
    /// collection).
    pub fn namespace(&self) -> &str {
        todo!()
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
        let _ = (op, out, limits);
        todo!()
    }

    /// The next document itself, for internal readers.
    ///
    /// # Errors
    /// As [`Cursor::fill_batch`].
    pub fn next_doc(&mut self, op: &Arc<OpContext>) -> Result<Option<bytes::Bytes>> {
        let _ = op;
        todo!()
    }
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

/// The open cursors of a server.
pub struct CursorManager {
    _private: (),
}

impl CursorManager {
    /// An empty manager with MongoDB's timeout of 10 minutes.
    pub fn new() -> CursorManager {
        CursorManager { _private: () }
    }

    /// Kills cursors of one namespace's collection.
    pub fn kill(&self, namespace: &str, ids: &[i64], owner: &CursorOwner) -> KillResult {
        let _ = (namespace, ids, owner);
        todo!()
    }

    /// Kills the cursors of a session.
    pub fn kill_session(&self, session: &[u8]) {
        let _ = session;
        todo!()
    }

    /// Kills the cursors of a namespace, or of a whole database (`db.` prefix): dropped.
    pub fn kill_namespace(&self, namespace: &str) {
        let _ = namespace;
        todo!()
    }

    /// Kills all: shutdown.
    pub fn kill_all(&self) {
        todo!()
    }

    /// To be called about once a second by a monitor thread: times out what was idle for long
    /// and makes cursors that idle for a few seconds let go of their snapshot.
    pub fn tick(&self) {
        todo!()
    }

    /// `cursorTimeoutMillis`.
    pub fn set_timeout(&self, timeout: Duration) {
        let _ = timeout;
        todo!()
    }

    /// Figures.
    pub fn metrics(&self) -> CursorMetrics {
        todo!()
    }

    /// The open cursors.
    pub fn list(&self) -> Vec<CursorInfo> {
        todo!()
    }
}

impl Default for CursorManager {
    fn default() -> CursorManager {
        CursorManager::new()
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
        cursor: Cursor,
        owner: CursorOwner,
        limits: BatchLimits,
        out: &mut Vec<u8>,
    ) -> Result<i64> {
        let _ = (op, cursor, owner, limits, out);
        todo!()
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
        let _ = (op, request, out);
        todo!()
    }
}
