//! The prepared transactions of a store: their rows in a tree of their own, and what is kept in memory of
//! each.
//!
//! A transaction over several logs is prepared on each of them, and decided by one of them, its coordinator.
//! Between these two moments its row holds all that is needed to apply it, and nothing may come in its way:
//! its latches stay held, and DDL waits for it. A row outlives the process that wrote it. Whatever opens the
//! door takes the latches of all rows again before that (`held`).
//!
//! Invariants: for each row of the tree there is an entry here, by the time at which the row is visible;
//! while the door is open each entry holds what it needs; an entry is given up by the record that removes
//! its row, and by nothing else.

use crate::commit::ops::{Op, Reader};
use crate::gate::Shared;
use crate::keys::{get_varint, put_varint};
use crate::session_key::SessionKey;
use muniment_io::Timestamp;
use muniment_op::{Account, Event, Ledger, Share};
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// The tree of prepared transactions. Its number is greater than all that collections and indexes can get.
pub(crate) const PREPARED: u32 = u32::MAX - 2;

/// The version of a row's format.
const VERSION: u8 = 1;

/// At most this many transactions are prepared at once.
const MOST: usize = 8192;

/// Bytes of memory that an entry takes, and each of its latches.
const PER_ENTRY: usize = 400;
const PER_LATCH: usize = 48;

/// Bytes of memory that a transaction takes that ended, beside its writes.
const PER_PAST: usize = 80;

/// At most this many bytes are kept of transactions that ended, for views before their end.
const MOST_ENDED: usize = 64 << 20;

/// Identifies a transaction on all of its logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransactionId {
    /// The client's session.
    pub session: SessionKey,
    /// Its `txnNumber`.
    pub number: i64,
}

impl TransactionId {
    /// The form in the log and in the tree: the session, then the number.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [&self.session.to_bytes()[..], &self.number.to_be_bytes()].concat()
    }

    /// Reads [`TransactionId::to_bytes`]; `None` for other keys.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<TransactionId> {
        let (session, number) = bytes.split_last_chunk()?;
        let session = SessionKey::from_bytes(session)?;
        let number = i64::from_be_bytes(*number);
        Some(TransactionId { session, number })
    }
}

/// How a transaction over several logs has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is committed, and views from this time on see it on all of its logs.
    Commit(Timestamp),
    /// It is aborted.
    Abort,
}

impl Outcome {
    /// The form in the log.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        match self {
            Outcome::Commit(at) => at.0.to_le_bytes().to_vec(),
            Outcome::Abort => Vec::new(),
        }
    }

    /// Reads [`Outcome::to_bytes`]; `None` if it is malformed.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Outcome> {
        if bytes.is_empty() {
            return Some(Outcome::Abort);
        }
        let at = u64::from_le_bytes(bytes.try_into().ok()?);
        Some(Outcome::Commit(Timestamp(at)))
    }
}

/// A row of the tree: its parts as slices of the stored bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'r> {
    /// The set that decides, as `name/host,host`.
    pub coordinator: &'r str,
    /// The hashes of the latches, in eight bytes each.
    latches: &'r [u8],
    /// The operations as they will stand in the record that applies them.
    pub operations: &'r [u8],
}

impl<'r> Row<'r> {
    /// The stored form.
    pub fn encode(coordinator: &str, latches: &[u64], parts: &[bytes::Bytes]) -> Vec<u8> {
        let operations: usize = parts.iter().map(|p| p.len()).sum();
        let mut out = Vec::with_capacity(32 + coordinator.len() + latches.len() * 8 + operations);
        out.push(VERSION);
        put_varint(coordinator.len(), &mut out);
        out.extend_from_slice(coordinator.as_bytes());
        put_varint(latches.len() * 8, &mut out);
        for latch in latches {
            out.extend_from_slice(&latch.to_le_bytes());
        }
        for part in parts {
            out.extend_from_slice(part);
        }
        out
    }

    /// Reads [`Row::encode`]; `None` if it is malformed, or its operations are not those of a transaction.
    pub fn decode(row: &'r [u8]) -> Option<Row<'r>> {
        let (&VERSION, rest) = row.split_first()? else {
            return None;
        };
        let (coordinator, rest) = text(rest)?;
        let (latches, operations) = text(rest)?;
        let row = Row {
            coordinator: std::str::from_utf8(coordinator).ok()?,
            latches,
            operations,
        };
        (latches.len().is_multiple_of(8) && row.each(|_| {}).is_some()).then_some(row)
    }

    /// The hashes of its latches.
    pub fn latches(&self) -> impl Iterator<Item = u64> + 'r {
        let (hashes, _) = self.latches.as_chunks::<8>();
        hashes.iter().map(|hash| u64::from_le_bytes(*hash))
    }

    /// Calls `see` for each operation; `None` if one is malformed or is none of a transaction's.
    pub fn each(&self, mut see: impl FnMut(&Op)) -> Option<()> {
        let mut ops = Reader::at(self.operations, 0);
        while let Some(op) = ops.next().ok()? {
            match op {
                Op::Insert { .. }
                | Op::Replace { .. }
                | Op::Diff { .. }
                | Op::Delete { .. }
                | Op::Image { .. }
                | Op::Key { .. }
                | Op::Note { .. } => see(&op),
                _ => return None,
            }
        }
        Some(())
    }

    /// Its changes of a collection's documents: the record's key, whether it is inserted, and whether it is
    /// deleted.
    pub fn changes(&self, collection: u32) -> Vec<(&'r [u8], bool, bool)> {
        let mut all = Vec::new();
        let _ = self.each(|op| {
            let (tree, key, inserts, deletes) = match op {
                Op::Insert { tree, key, .. } => (*tree, key, true, false),
                Op::Replace { tree, key, .. } | Op::Diff { tree, key, .. } => {
                    (*tree, key, false, false)
                }
                Op::Delete { tree, key, .. } => (*tree, key, false, true),
                _ => return,
            };
            if tree == collection {
                let key = self.operations.get(key.clone()).unwrap_or_default();
                all.push((key, inserts, deletes));
            }
        });
        all
    }

    /// The collections that it changes.
    pub fn collections(&self) -> Vec<u32> {
        let mut all = Vec::new();
        let _ = self.each(|op| {
            if let Some(tree) = tree_of(op)
                && all.last() != Some(&tree)
            {
                all.push(tree);
            }
        });
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The collection whose document an operation changes.
pub(crate) fn tree_of(op: &Op) -> Option<u32> {
    match op {
        Op::Insert { tree, .. }
        | Op::Replace { tree, .. }
        | Op::Diff { tree, .. }
        | Op::Delete { tree, .. } => Some(*tree),
        _ => None,
    }
}

/// A byte string with its length before it, and the rest.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, took) = get_varint(bytes)?;
    bytes.get(took..)?.split_at_checked(len)
}

/// What a prepared transaction holds while the door is open.
pub(crate) struct Held {
    /// The owner of the latches.
    pub owner: u64,
    /// Their hashes.
    pub latches: Vec<u64>,
    /// Keeps DDL from the collections.
    pub ddl: Vec<Shared>,
}

/// A prepared transaction that a record has ended.
pub(crate) struct Ended {
    pub(super) held: Option<Held>,
}

/// A prepared transaction, as it is kept in memory.
struct Entry {
    at: Timestamp,
    coordinator: String,
    collections: Vec<u32>,
    bytes: usize,
    held: Option<Held>,
    /// A thread ends it just now.
    ending: bool,
}

/// A committed transaction, for views between its commit time and its record.
pub(super) struct Past<W> {
    /// Its commit time.
    pub from: Timestamp,
    /// The timestamp of its record.
    pub until: Timestamp,
    /// Its writes; `None` if they took too much memory.
    pub writes: Option<W>,
    bytes: usize,
}

struct State<W> {
    rows: HashMap<TransactionId, Entry>,
    bytes: usize,
    /// In the order of their records.
    past: VecDeque<Past<W>>,
    past_bytes: usize,
    /// Of so many at the front of `past` the writes are not kept any more.
    emptied: usize,
    share: Share,
}

/// See the module's head. `W` is what is kept of the writes of a transaction that is committed.
pub(crate) struct Prepared<W> {
    state: Mutex<State<W>>,
    /// The number of rows and of transactions that ended. While there is none, no reader takes the lock.
    any: AtomicUsize,
    /// Notified when a row was removed and the end of its transaction is visible.
    pub(super) moved: Event,
}

/// What is known of a prepared transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedTransaction {
    /// Which it is.
    pub id: TransactionId,
    /// When it was prepared.
    pub at: Timestamp,
    /// The set that decides, as `name/host,host`.
    pub coordinator: String,
}

impl<W> Prepared<W> {
    /// No transactions. Their memory is booked in this ledger.
    pub fn new(ledger: &Arc<Ledger>) -> Prepared<W> {
        Prepared {
            state: Mutex::new(State {
                rows: HashMap::new(),
                bytes: 0,
                past: VecDeque::new(),
                past_bytes: 0,
                emptied: 0,
                share: Share::new(ledger, Account::Transactions),
            }),
            any: AtomicUsize::new(0),
            moved: Event::new(),
        }
    }

    /// Whether one more transaction with this many latches may be prepared.
    ///
    /// # Errors
    /// 112 WriteConflict if there are too many; 146 ExceededMemoryLimit.
    pub(super) fn admit(&self, latches: usize) -> Result<()> {
        let mut state = self.state.lock();
        if state.rows.len() >= MOST {
            let what = "Caused by :: too many transactions are prepared and not decided yet";
            return Err(Error::new(Code::WriteConflict, what));
        }
        let before = state.bytes + state.past_bytes;
        state
            .share
            .try_hold(before + PER_ENTRY + latches * PER_LATCH)?;
        Ok(())
    }

    /// Enters a transaction whose row was written at this time.
    pub(super) fn enter(&self, id: TransactionId, at: Timestamp, row: Row<'_>, held: Option<Held>) {
        let bytes = PER_ENTRY + row.latches().count() * PER_LATCH;
        let entry = Entry {
            at,
            coordinator: row.coordinator.to_string(),
            collections: row.collections(),
            bytes,
            held,
            ending: false,
        };
        let mut state = self.state.lock();
        state.bytes += bytes;
        if let Some(before) = state.rows.insert(id, entry) {
            state.bytes -= before.bytes;
        }
        self.count(&mut state);
    }

    /// Takes a transaction out whose row is removed by the record of `at`, which has these writes, with their
    /// bytes.
    pub(crate) fn leave(
        &self,
        id: &TransactionId,
        outcome: Outcome,
        at: Timestamp,
        (writes, bytes): (W, usize),
        oldest: Timestamp,
    ) -> Ended {
        let mut state = self.state.lock();
        let gone = state.rows.remove(id);
        state.bytes -= gone.as_ref().map_or(0, |entry| entry.bytes);
        if let Outcome::Commit(from) = outcome {
            state.keep(Past {
                from,
                until: at,
                writes: Some(writes),
                bytes,
            });
        }
        state.forget(oldest);
        self.count(&mut state);
        Ended {
            held: gone.and_then(|entry| entry.held),
        }
    }

    fn count(&self, state: &mut State<W>) {
        self.any.store(state.rows.len() + state.past.len(), SeqCst);
        let bytes = state.bytes + state.past_bytes;
        state.share.holds(bytes);
    }

    /// Forgets transactions that ended, of which no view reads any more that is older than their record.
    pub(crate) fn forget(&self, oldest: Timestamp) {
        if self.any.load(SeqCst) > 0 {
            let mut state = self.state.lock();
            state.forget(oldest);
            self.count(&mut state);
        }
    }

    /// Whether a view at this time need not look at transactions at all.
    pub(super) fn is_empty(&self) -> bool {
        self.any.load(SeqCst) == 0
    }

    /// Whether all transactions have ended that were prepared at this time or before it, and that change this
    /// collection if one is named.
    pub(super) fn is_decided(&self, at: Timestamp, collection: Option<u32>) -> bool {
        let state = self.state.lock();
        let of = |entry: &Entry| collection.is_none_or(|id| entry.collections.contains(&id));
        let mut all = state.rows.values();
        !all.any(|entry| entry.at <= at && of(entry))
    }

    /// What `find` makes of the transactions that are committed at this time, and whose records are later.
    pub(super) fn past<T>(&self, at: Timestamp, find: impl FnOnce(Vec<&Past<W>>) -> T) -> T {
        let state = self.state.lock();
        let later = state.past.partition_point(|p| p.until <= at);
        let past = state.past.range(later..);
        find(past.filter(|p| p.from <= at).collect())
    }

    /// The transactions that are prepared.
    pub(crate) fn all(&self) -> Vec<PreparedTransaction> {
        let state = self.state.lock();
        let all = state.rows.iter().map(|(id, entry)| PreparedTransaction {
            id: *id,
            at: entry.at,
            coordinator: entry.coordinator.clone(),
        });
        all.collect()
    }

    /// The number of the session's transaction that is prepared.
    pub(super) fn of_session(&self, session: &SessionKey) -> Option<PreparedTransaction> {
        if self.is_empty() {
            return None;
        }
        self.all().into_iter().find(|p| p.id.session == *session)
    }

    /// Whether one changes this collection.
    pub(crate) fn changes(&self, collection: u32) -> bool {
        let state = self.state.lock();
        let mut all = state.rows.values();
        all.any(|entry| entry.collections.contains(&collection))
    }

    /// The transactions that hold nothing yet, with the collections that they change.
    pub(super) fn loose(&self) -> Vec<(TransactionId, Vec<u32>)> {
        let state = self.state.lock();
        let loose = state.rows.iter().filter(|(_, entry)| entry.held.is_none());
        loose
            .map(|(id, entry)| (*id, entry.collections.clone()))
            .collect()
    }

    /// Notes what a transaction holds from now on.
    pub(super) fn holds(&self, id: &TransactionId, held: Held) {
        if let Some(entry) = self.state.lock().rows.get_mut(id) {
            entry.held = Some(held);
        }
    }

    /// Has the caller end a transaction, unless another thread does: `Some(true)`. `Some(false)`: there is no
    /// such transaction.
    pub(super) fn begin_end(&self, id: &TransactionId) -> Option<bool> {
        match self.state.lock().rows.get_mut(id) {
            None => Some(false),
            Some(entry) if entry.ending => None,
            Some(entry) => {
                entry.ending = true;
                Some(true)
            }
        }
    }

    /// The caller could not end a transaction.
    pub(super) fn fail_end(&self, id: &TransactionId) {
        if let Some(entry) = self.state.lock().rows.get_mut(id) {
            entry.ending = false;
        }
        self.moved.notify_all();
    }
}

impl<W> State<W> {
    /// Keeps a transaction that ended. They come in the order of their records, but for those of commits that
    /// are applied at once.
    fn keep(&mut self, past: Past<W>) {
        let place = self.past.partition_point(|p| p.until < past.until);
        self.emptied += usize::from(place < self.emptied);
        self.past_bytes += PER_PAST + past.bytes;
        self.past.insert(place, past);
    }

    fn forget(&mut self, oldest: Timestamp) {
        while self.past.front().is_some_and(|p| p.until <= oldest) {
            let gone = self.past.pop_front();
            self.past_bytes -= gone.map_or(0, |p| PER_PAST + p.bytes);
            self.emptied = self.emptied.saturating_sub(1);
        }
        while self.past_bytes > MOST_ENDED
            && let Some(past) = self.past.get_mut(self.emptied)
        {
            self.past_bytes -= std::mem::take(&mut past.bytes);
            past.writes = None;
            self.emptied += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::commit::ops::{Encoder, HEAD};

    #[test]
    fn what_is_kept_of_the_past_is_bounded() {
        let ledger = Arc::<Ledger>::default();
        let prepared = Prepared::<u64>::new(&ledger);
        let id = TransactionId {
            session: SessionKey::of_nobody([3; 16]),
            number: 1,
        };
        let end = |until: u64, oldest: u64| {
            let commit = Outcome::Commit(Timestamp(until - 3));
            let writes = (until, MOST_ENDED / 4);
            prepared.leave(&id, commit, Timestamp(until), writes, Timestamp(oldest));
        };
        let at = |at: u64| {
            prepared.past(Timestamp(at), |past| {
                past.iter().map(|p| p.writes).collect::<Vec<_>>()
            })
        };
        for until in [10, 30, 20, 40] {
            end(until, 0);
        }
        assert_eq!(
            (at(6), at(7), at(9), at(10)),
            (vec![], vec![None], vec![None], vec![])
        );
        assert_eq!((at(19), at(29)), (vec![Some(20)], vec![Some(30)]));
        end(42, 0);
        assert_eq!((at(19), at(39)), (vec![None], vec![Some(40), Some(42)]));
        prepared.forget(Timestamp(30));
        assert_eq!((at(29), at(39)), (vec![], vec![Some(40), Some(42)]));
        prepared.forget(Timestamp(42));
        assert!(prepared.is_empty());
        assert!(ledger.figures(Account::Transactions).used < 1 << 16);
    }

    #[test]
    fn rows_are_read_as_they_were_written_and_nothing_else_is() {
        let mut ops = Encoder::new();
        ops.insert(7, b"key", b"document");
        ops.delete(9, b"key", muniment_value::doc! { "_id": 1 }.as_bytes());
        let ops = bytes::Bytes::from(ops.into_payload()).slice(HEAD..);
        let stored = Row::encode("s1/a:1,b:2", &[1, u64::MAX], &[ops.clone(), ops.clone()]);
        let row = Row::decode(&stored).unwrap();
        assert_eq!(row.coordinator, "s1/a:1,b:2");
        assert_eq!(row.latches().collect::<Vec<_>>(), [1, u64::MAX]);
        assert_eq!(row.collections(), [7, 9]);
        assert_eq!(row.operations.len(), 2 * ops.len());
        let mut drops = Encoder::new();
        drops.drop(7);
        let drops = bytes::Bytes::from(drops.into_payload()).slice(HEAD..);
        assert!(Row::decode(&Row::encode("s", &[], &[drops])).is_none());
        for cut in 0..stored.len() {
            if let Some(row) = Row::decode(&stored[..cut]) {
                assert!(row.operations.len() < 2 * ops.len());
            }
        }
        let id = TransactionId {
            session: SessionKey::of_nobody([3; 16]),
            number: 77,
        };
        assert_eq!(TransactionId::from_bytes(&id.to_bytes()), Some(id));
        for outcome in [Outcome::Abort, Outcome::Commit(Timestamp(5))] {
            assert_eq!(Outcome::from_bytes(&outcome.to_bytes()), Some(outcome));
        }
        assert_eq!(Outcome::from_bytes(&[1]), None);
    }
}
