//! Transactions: many write units, one view, one record of the log.
//!
//! A transaction reads at the timestamp at which it began, and what it has written itself lies over
//! that (`Overlay`). Its write units leave their changes here instead of committing them, and their
//! latches stay held, so that nobody else writes what it has written. The commit is one record.
//!
//! Isolation is that of a snapshot: a transaction that would write what another one has committed since
//! its view, or is writing just now, gets 112 WriteConflict (the first one wins). Write skew is
//! possible.
//!
//! Invariants: nothing of a transaction is in the trees before its commit; a statement does not see
//! what it writes itself (versions of the overlay are numbered by statements); a transaction that
//! ended holds nothing. Collections that it touched cannot be changed by DDL until it ends.

mod overlay;

pub(crate) use overlay::{Merged, Overlay};

use crate::Index;
use crate::catalog::CollectionOptions;
use crate::catalog::ddl::Created;
use crate::catalog::notes::made_notes;
use crate::collection::Collection;
use crate::commit::Made;
use crate::commit::announce::Announce;
use crate::commit::door::Opening;
use crate::commit::ops;
use crate::commit::stage::{Sealed, Stage};
use crate::gate::Shared;
use crate::inner::Inner;
use crate::latch::Tried;
use crate::multikey::Arrays;
use crate::sessions::SessionChange;
use crate::store::{CommitId, Store, dropped};
use crate::unit::WriteUnit;
use crate::view::Snapshot;
use crate::watch::UntilClosed;
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::{Account, Interrupt, Refused, Share, Sleepers};
use muniment_tree::{Batch, TreeId, Writing};
use muniment_value::{Code, Error, Result};
use parking_lot::{Mutex, MutexGuard};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the end of a transaction waits for a collection that it made.
const PATIENCE: Duration = Duration::from_millis(5);

/// Bytes that a transaction may take in the log.
const MOST_BYTES: usize = 240 << 20;

/// 112.
pub fn write_conflict() -> Error {
    Error::new(
        Code::WriteConflict,
        "Caused by :: Write conflict during plan execution and yielding is disabled. :: Please \
         retry your operation or multi-document transaction.",
    )
}

/// What a statement of a transaction has changed in one collection.
pub(crate) struct Change {
    pub collection: Arc<Collection>,
    pub stage: Stage,
    pub inserted: u64,
    pub widened: Vec<(Arc<Index>, Arrays)>,
}

struct Total {
    collection: Arc<Collection>,
    docs: i64,
    bytes: i64,
    inserted: u64,
}

/// What ends with the transaction.
struct State {
    view: Option<Snapshot>,
    /// Has the trees keep what tells of changes since the view.
    writing: Option<Writing>,
    statement: u32,
    held: Vec<u64>,
    /// Operations as they stand in the record.
    parts: Vec<Bytes>,
    bytes: usize,
    entries: usize,
    /// Bytes in memory, with what they take of the budget of all operations.
    memory: usize,
    share: Share,
    totals: BTreeMap<u32, Total>,
    ddl: HashMap<u32, Shared>,
    /// Collections that it made.
    made: Vec<Arc<Collection>>,
}

/// A transaction that is under way. Statements of one come one after another.
pub struct Transaction {
    inner: Arc<Inner>,
    at: Timestamp,
    /// What the door was in when it began; none where it was closed, and then it only reads.
    opening: Opening,
    /// How long it waits for what another write holds, or DDL.
    patience: Duration,
    pub(crate) owner: u64,
    pub(crate) overlay: Arc<Overlay>,
    state: Mutex<State>,
}

impl Store {
    /// Begins a transaction that sees what is visible now, or what this view does. It waits for `patience` for what another
    /// write or DDL holds: longer than a write that is about to commit takes, and no longer than
    /// makes a difference when it is a transaction's.
    pub fn begin_transaction(
        &self,
        patience: Duration,
        view: Option<Snapshot>,
    ) -> Arc<Transaction> {
        // Before the view is opened: as long as this opening of the door lasts, no other member's
        // writes come after what the view sees. Where the view is older, the trees know when each key
        // was written after it, by this member or another.
        let opening = self.inner.door.opening().unwrap_or(Opening::NONE);
        let at = view.as_ref().map(Snapshot::timestamp);
        let writing = self.inner.trees.views().writing(at);
        let view = view.unwrap_or_else(|| self.snapshot());
        Arc::new(Transaction {
            inner: self.inner.clone(),
            at: view.timestamp(),
            opening,
            patience,
            owner: self.inner.units.next_owner(),
            overlay: Arc::default(),
            state: Mutex::new(State {
                view: Some(view),
                writing: Some(writing),
                statement: 0,
                held: Vec::new(),
                parts: Vec::new(),
                bytes: 0,
                entries: 0,
                memory: 0,
                share: Share::new(&self.inner.home.ledger, Account::Transactions),
                totals: BTreeMap::new(),
                ddl: HashMap::new(),
                made: Vec::new(),
            }),
        })
    }

    /// As [`Store::write_unit`], of a transaction: its commit leaves what it staged with the
    /// transaction.
    ///
    /// # Errors
    /// 26 NamespaceNotFound if it was dropped; 10107 NotWritablePrimary; as [`Transaction::join`].
    pub fn write_unit_in<'s>(
        &'s self,
        transaction: &Arc<Transaction>,
        collection: &Arc<Collection>,
        interrupt: &'s dyn Interrupt,
    ) -> Result<WriteUnit<'s>> {
        self.inner.watch.check_open()?;
        self.inner.door.check(transaction.opening)?;
        transaction.join(collection, interrupt)?;
        if collection.is_dropped() {
            return Err(dropped(collection));
        }
        collection.check_usable()?;
        let kind = match (collection.is_capped(), collection.is_time_series()) {
            (true, _) => "capped collection",
            (_, true) => "time-series collection",
            _ => "",
        };
        if !kind.is_empty() {
            return Err(Error::new(
                Code::OperationNotSupportedInTransaction,
                format!(
                    "Collection '{}' is a {kind}. Writes in transactions are not allowed on it.",
                    collection.namespace()
                ),
            ));
        }
        Ok(WriteUnit::of(
            &self.inner,
            transaction,
            collection,
            interrupt,
        ))
    }
}

impl Store {
    /// Makes a collection for a transaction. It is there for others at once, but is not listed; if
    /// the transaction is aborted it goes again, unless somebody relies on it by then.
    ///
    /// # Errors
    /// As [`Store::create_collection_as`]; 246 SnapshotUnavailable if a collection has lost the name
    /// since the view; 112 WriteConflict while another transaction makes one.
    pub fn create_collection_in(
        &self,
        transaction: &Transaction,
        namespace: &str,
        options: CollectionOptions,
        uuid: Option<[u8; 16]>,
        interrupt: &dyn Interrupt,
    ) -> Result<Arc<Collection>> {
        let created = self.begin_collection_in(transaction, namespace, options, uuid, interrupt)?;
        self.settle(created)
    }

    /// The same as [`Store::begin_collection`] is.
    ///
    /// # Errors
    /// As [`Store::create_collection_in`].
    pub fn begin_collection_in(
        &self,
        transaction: &Transaction,
        namespace: &str,
        options: CollectionOptions,
        uuid: Option<[u8; 16]>,
        interrupt: &dyn Interrupt,
    ) -> Result<Created> {
        let created = self.create_as(namespace, options, uuid, Some(transaction), interrupt)?;
        transaction.adopt(created.collection());
        Ok(created)
    }

    /// Notes that what is no collection by itself, a view, has lost its name by now.
    pub fn note_lost(&self, namespace: &str) {
        let views = self.inner.trees.views();
        let (now, oldest) = (views.visible(), views.oldest());
        self.inner.catalog.note_lost(namespace, now, oldest);
    }

    /// The collection of this name, for a reader at a view of `at`.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable if there is none now, but the view may know one by the name.
    pub fn collection_at(&self, namespace: &str, at: Timestamp) -> Result<Option<Arc<Collection>>> {
        let found = self.collection(namespace);
        if found.is_none() && self.inner.catalog.read().lost_since(namespace, at) {
            return Err(snapshot_unavailable());
        }
        Ok(found)
    }
}

impl Transaction {
    /// What the door was in when it began.
    pub(crate) fn opening(&self) -> Opening {
        self.opening
    }

    /// What it sees of others: everything up to here.
    pub fn timestamp(&self) -> Timestamp {
        self.at
    }

    /// Its view with what its statements so far have written.
    ///
    /// # Errors
    /// 251 NoSuchTransaction when it has ended.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let state = self.state.lock();
        let view = state.view.clone().ok_or_else(ended)?;
        Ok(view.with(self.overlay.clone(), state.statement))
    }

    /// Keeps a collection from being changed by DDL until the transaction ends.
    ///
    /// # Errors
    /// 24 LockTimeout while DDL has it; 246 SnapshotUnavailable if it is younger than the view, or
    /// was dropped since; what `interrupt` says.
    pub fn join(&self, collection: &Collection, interrupt: &dyn Interrupt) -> Result<()> {
        let mut state = self.state.lock();
        if state.view.is_none() {
            return Err(ended());
        }
        if let Entry::Vacant(free) = state.ddl.entry(collection.id) {
            let limited = Limited {
                until: Instant::now() + self.patience,
                interrupt,
            };
            let shared = collection.ddl.share(&limited)?;
            free.insert(shared);
        }
        // It got this name after the view, so the view does not know it.
        if collection.named_since() > self.at || collection.is_dropped() {
            return Err(snapshot_unavailable());
        }
        Ok(())
    }

    /// Whether it may make a collection of this name, which `there` has. The caller has the names
    /// locked.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable if the view may know another by the name; 112 WriteConflict while
    /// another transaction makes one.
    pub(crate) fn may_make(&self, namespace: &str, there: Option<&Collection>) -> Result<()> {
        if self.inner.catalog.read().lost_since(namespace, self.at) {
            return Err(snapshot_unavailable());
        }
        let own = |c: &Collection| self.state.lock().made.iter().any(|m| m.id == c.id);
        match there {
            Some(c) if c.is_pending() && !own(c) => Err(write_conflict()),
            _ => Ok(()),
        }
    }

    /// Takes a collection as its own, which it has just made.
    fn adopt(&self, collection: &Arc<Collection>) {
        // Nothing had the name before, either: see `may_make`.
        collection.set_named_since(collection.named_since().min(self.at));
        self.knows_indexes(collection);
        self.state.lock().made.push(collection.clone());
    }

    /// The indexes of a collection that it made, and which has nothing in it, are complete.
    pub fn knows_indexes(&self, collection: &Collection) {
        for index in collection.all_indexes().iter().filter(|i| i.is_ready()) {
            index.set_ready(self.at);
        }
    }

    /// Lets go of a collection that gets an index now.
    ///
    /// # Errors
    /// 263 unless the transaction made the collection itself and has written nothing to it.
    pub(crate) fn leave_to_index(&self, collection: &Collection) -> Result<()> {
        let mut state = self.state.lock();
        let own = state.made.iter().any(|c| c.id == collection.id);
        // What another client has put into it came after the view, and the index would not hold it.
        let untouched = collection.append().last == 0;
        if !own || !untouched || state.totals.contains_key(&collection.id) {
            return Err(Error::new(
                Code::OperationNotSupportedInTransaction,
                format!(
                    "Cannot create new indexes on existing collection {} in a multi-document \
                     transaction.",
                    collection.namespace()
                ),
            ));
        }
        state.ddl.remove(&collection.id);
        Ok(())
    }

    /// What it has written, all of it.
    pub(crate) fn now(&self) -> (Arc<Overlay>, u32) {
        (self.overlay.clone(), u32::MAX)
    }

    /// True once it was committed or aborted.
    pub fn has_ended(&self) -> bool {
        self.state.lock().view.is_none()
    }

    /// True once something was written.
    pub fn has_written(&self) -> bool {
        !self.state.lock().parts.is_empty()
    }

    /// Bytes that what was written takes in the log.
    pub fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Takes a latch, which stays held until the end.
    ///
    /// # Errors
    /// 112 WriteConflict when another write has it; what `interrupt` says.
    pub(crate) fn take(&self, hash: u64, interrupt: &dyn Interrupt) -> Result<Tried> {
        let latches = &self.inner.units.latches;
        match latches.lock_for(hash, self.owner, self.patience, interrupt)? {
            Tried::Busy => Err(write_conflict()),
            tried => Ok(tried),
        }
    }

    /// What a statement finds under a key: for a decision about a write.
    ///
    /// # Errors
    /// 112 WriteConflict if somebody has committed another version since the view; 301.
    pub(crate) fn newest(&self, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(own) = self.overlay.get(tree, key, u32::MAX) {
            return Ok(own);
        }
        // Not by the values: one that was changed and changed back is another version, and one
        // that came and went since has left a deletion for as long as this transaction lives.
        let newest = self.inner.newest(tree, key)?;
        match self.inner.trees.changed(TreeId(tree), key)? {
            Some((at, _)) if at > self.at => Err(write_conflict()),
            _ => Ok(newest),
        }
    }

    /// What it sees under a key.
    ///
    /// # Errors
    /// 301.
    pub(crate) fn seen(&self, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        match self.overlay.get(tree, key, u32::MAX) {
            Some(own) => Ok(own),
            None => self.inner.trees.get(TreeId(tree), key, self.at),
        }
    }

    /// Latches that a unit has taken.
    pub(crate) fn keep_latches(&self, held: &mut Vec<u64>) {
        let mut state = self.state.lock();
        if state.view.is_some() {
            state.held.append(held);
            return;
        }
        drop(state);
        // It was ended under the unit's hands.
        for hash in held.drain(..) {
            self.inner.units.latches.unlock(hash);
        }
    }

    /// Takes over what a unit has staged.
    ///
    /// # Errors
    /// 257 TransactionTooLarge; 251 when it has ended; when all operations together hold more memory
    /// than there is, 388 TransactionTooLargeForCache for one that alone has much of it, and
    /// 112 WriteConflict for others.
    pub(crate) fn keep(&self, change: Change) -> Result<()> {
        let mut state = self.state.lock();
        if state.view.is_none() {
            return Err(ended());
        }
        let Change {
            collection,
            stage,
            inserted,
            widened,
        } = change;
        if state.bytes + stage.len() > MOST_BYTES {
            return Err(Error::new(
                Code::TransactionTooLarge,
                format!("Total size of all transaction operations must be less than {MOST_BYTES}"),
            ));
        }
        for (index, arrays) in widened {
            // The transaction's own plans have to know of these arrays. Those of other operations are
            // only more careful than they need be.
            if index.multikey().widen(&arrays) {
                collection.bump();
            }
        }
        state.bytes += stage.len();
        let total = state.totals.entry(collection.id).or_insert_with(|| Total {
            collection: collection.clone(),
            docs: 0,
            bytes: 0,
            inserted: 0,
        });
        total.docs += stage.docs;
        total.bytes += stage.bytes;
        total.inserted += inserted;
        state.entries += stage.log.told();
        let sealed = stage.seal(0, &self.inner.cuts.buffers);
        state.memory += sealed.memory();
        let memory = state.memory;
        state.share.try_hold(memory).map_err(out_of_memory)?;
        state.parts.push(operations(&sealed));
        state.statement += 1;
        self.overlay.put(sealed, state.statement);
        Ok(())
    }

    /// Commits everything as one record, which notes in the session's record that it was committed, and is
    /// announced by the door or by the caller.
    /// `None` when nothing was written.
    ///
    /// # Errors
    /// As a commit's, and the transaction has ended with nothing of it stored; 251 if it had ended.
    pub fn commit(
        &self,
        session: Option<&SessionChange>,
        announce: Announce,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<CommitId>> {
        let mut state = self.state.lock();
        if state.view.is_none() {
            return Err(ended());
        }
        self.tell_made(&mut state);
        let mut batch = Batch::new();
        if let Some(change) = session.filter(|_| !state.parts.is_empty()) {
            let mut stage = Stage::new(Opening::NONE);
            stage.session(change);
            let sealed = stage.seal(0, &self.inner.cuts.buffers);
            let part = operations(&sealed);
            state.bytes += part.len();
            state.parts.push(part);
            // The tree of sessions stands in front of all others.
            sealed.add_to(&mut batch);
        }
        // What has numbers was in use, and a start sees that.
        let in_use: Vec<u32> = state
            .totals
            .values()
            .filter(|t| t.inserted > 0 && t.collection.is_numbered())
            .map(|t| t.collection.id)
            .collect();
        let result = self.commit_parts(&mut state, batch, announce, interrupt);
        let mut made = Vec::new();
        if result.is_ok() {
            made = std::mem::take(&mut state.made);
            made.iter().for_each(|c| c.claim());
        }
        self.end(state);
        for collection in made.iter().filter(|c| !in_use.contains(&c.id)) {
            let limited = Limited {
                until: Instant::now() + PATIENCE,
                interrupt: &UntilClosed(&self.inner.watch),
            };
            // If another operation holds the collection, the mark stays: that operation uses the
            // collection, so that the next start finds something in it and keeps it.
            let _ = self.inner.unmark(collection, self.opening, &limited);
        }
        result
    }

    /// Puts the notes of the collections that no other operation could see yet before what was written
    /// to them.
    fn tell_made(&self, state: &mut State) {
        let written = state.totals.values().map(|t| &t.collection);
        let Some(stage) = made_notes(state.made.iter().chain(written)) else {
            return;
        };
        state.entries += stage.log.told();
        let part = operations(&stage.seal(0, &self.inner.cuts.buffers));
        state.bytes += part.len();
        state.parts.insert(0, part);
    }

    fn commit_parts(
        &self,
        state: &mut State,
        mut batch: Batch,
        announce: Announce,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<CommitId>> {
        if state.parts.is_empty() {
            return Ok(None);
        }
        let inner = &self.inner;
        self.overlay.move_to(&mut batch);
        let made = Made {
            frees: state.totals.values().all(|t| t.docs <= 0 && t.bytes <= 0),
            len: state.bytes,
            entries: state.entries,
            parts: std::mem::take(&mut state.parts),
            batch,
            opening: self.opening,
        };
        let totals = &state.totals;
        let id = inner.commit_made(made, announce, interrupt, || {
            for total in totals.values() {
                // One that another transaction made, too.
                total.collection.claim();
                total.collection.add_totals(total.docs, total.bytes);
            }
        })?;
        for total in totals.values().filter(|t| t.inserted > 0) {
            total.collection.notify_inserts(total.inserted);
        }
        Ok(Some(id))
    }

    /// Gives everything up. Idempotent.
    pub fn abort(&self) {
        self.end(self.state.lock());
    }

    fn end(&self, mut state: MutexGuard<'_, State>) {
        state.view = None;
        state.writing = None;
        state.parts = Vec::new();
        state.memory = 0;
        state.share.holds(0);
        state.totals.clear();
        state.ddl.clear();
        self.overlay.clear();
        for hash in state.held.drain(..) {
            self.inner.units.latches.unlock(hash);
        }
        let made = std::mem::take(&mut state.made);
        drop(state);
        for collection in made {
            let limited = Limited {
                until: Instant::now() + PATIENCE,
                interrupt: &UntilClosed(&self.inner.watch),
            };
            self.inner.end_made(&collection, self.opening, &limited);
        }
    }
}

impl Inner {
    /// Takes the mark away that a collection bears which a transaction made.
    ///
    /// # Errors
    /// As a commit's.
    fn unmark(
        &self,
        collection: &Arc<Collection>,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let alone = self.exclusive(collection, opening, interrupt)?;
        collection.claim();
        self.commit_indexes(
            alone.collection(),
            &collection.all_indexes(),
            opening,
            interrupt,
        )
    }

    /// Drops a collection that an aborted transaction made; one that is in use stays. If another
    /// operation has it or its name just now, or it cannot be dropped for another reason, that is tried
    /// again later.
    pub(crate) fn end_made(
        &self,
        collection: &Arc<Collection>,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) {
        let unused = collection.is_pending() && collection.count() == 0;
        let dropped = match unused {
            true => self.drop_if_empty(collection, opening, interrupt),
            false => Ok(()),
        };
        match dropped {
            Ok(()) => collection.claim(),
            // The next primary looks after those that have the mark.
            Err(e) if e.code() == Code::NotWritablePrimary || collection.is_dropped() => {}
            Err(_) => self
                .leftovers
                .aborted
                .lock()
                .push((collection.clone(), opening)),
        }
    }

    /// At a start, and when the door opens: drops the collections whose transactions did not come to
    /// their end, and keeps those that are in use since there was ever something in them.
    pub(crate) fn end_pending(&self, pending: Vec<(Arc<Collection>, bool)>, opening: Opening) {
        for (collection, used) in pending {
            // What cannot be written now, to a full disk, is tried again by the next start.
            let done = match used {
                true => self.unmark(&collection, opening, &UntilClosed(&self.watch)),
                false => self.drop_if_empty(&collection, opening, &UntilClosed(&self.watch)),
            };
            match done {
                // The next primary does it.
                Err(e) if e.code() == Code::NotWritablePrimary => {
                    self.leftovers
                        .marked
                        .lock()
                        .extend(used.then_some(collection.id));
                }
                _ => collection.claim(),
            }
        }
    }

    /// True if there was ever something in a collection.
    pub(crate) fn is_in_use(&self, collection: &Collection) -> bool {
        collection.count() > 0 || collection.append().last > 0
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.abort();
    }
}

/// What a transaction is told that was refused memory: whether it may find room when it is tried
/// again.
fn out_of_memory(refused: Refused) -> Error {
    let message = refused.message();
    if refused.asked > refused.limit / 2 {
        return Error::new(
            Code::TransactionTooLargeForCache,
            format!("transaction is too large: {message}"),
        );
    }
    Error::new(
        Code::WriteConflict,
        format!(
            "Caused by :: {message} :: Please retry your operation or multi-document transaction."
        ),
    )
}

/// What a statement adds to the transaction's record.
fn operations(sealed: &Sealed) -> Bytes {
    let payload = &sealed.payload;
    payload.slice(ops::HEAD.min(payload.len())..)
}

/// 251.
fn ended() -> Error {
    Error::new(Code::NoSuchTransaction, "the transaction has ended")
}

/// 246.
pub fn snapshot_unavailable() -> Error {
    Error::new(
        Code::SnapshotUnavailable,
        "Unable to read from a snapshot due to pending collection catalog changes; please retry \
         the operation.",
    )
}

/// An operation that waits for so long at most.
struct Limited<'i> {
    until: Instant,
    interrupt: &'i dyn Interrupt,
}

impl Interrupt for Limited<'_> {
    fn check(&self) -> Result<()> {
        self.interrupt.check()?;
        if Instant::now() < self.until {
            return Ok(());
        }
        Err(Error::new(
            Code::LockTimeout,
            "Unable to acquire the lock of a collection within maxTransactionLockRequestTimeoutMillis",
        ))
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        self.interrupt.sleepers(show);
    }

    fn wakes_at(&self) -> Option<Instant> {
        let sooner = self.interrupt.wakes_at();
        Some(sooner.map_or(self.until, |at| at.min(self.until)))
    }

    fn waits_for_lock(&self, waits: bool) {
        self.interrupt.waits_for_lock(waits);
    }
}
