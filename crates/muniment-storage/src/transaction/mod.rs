//! Transactions: many write units, one view, one record of the log.
//!
//! A transaction reads at the timestamp at which it began, and its own writes lie over that (`Overlay`).
//! Its write units leave their changes here instead of committing them, and their latches stay held, so
//! that no other operation writes the same keys. The commit is one record.
//!
//! Isolation is that of a snapshot: a transaction that would write a key which another one has committed
//! since its view, or is writing just now, gets 112 WriteConflict (the first one wins). Write skew is
//! possible.
//!
//! Invariants: nothing of a transaction is in the trees before its commit; a statement does not see its
//! own writes (versions of the overlay are numbered by statements); a transaction that ended holds
//! nothing. Collections that it touched cannot be changed by DDL until it ends.

mod held;
mod overlay;
mod prepare;
mod prepared;
mod resolve;
mod settle;

pub(crate) use overlay::{Merged, Overlay, Writes};
pub(crate) use prepared::{Ended, PREPARED, Prepared, Row, tree_of};
pub use prepared::{Outcome, PreparedTransaction, TransactionId};

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
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the end of a transaction waits for a collection that it made.
const PATIENCE: Duration = Duration::from_millis(5);

/// The most bytes that a transaction may take in the log.
const MOST_BYTES: usize = 240 << 20;

/// The error 112.
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

/// The parts that end with the transaction.
struct State {
    view: Option<Snapshot>,
    /// Has the trees remember which keys change after the view.
    writing: Option<Writing>,
    statement: u32,
    held: Vec<u64>,
    /// Operations as they stand in the record.
    parts: Vec<Bytes>,
    bytes: usize,
    entries: usize,
    /// Bytes in memory, and the share of all operations' budget that they take.
    memory: usize,
    share: Share,
    totals: BTreeMap<u32, Total>,
    ddl: HashMap<u32, Shared>,
    /// Collections that it made.
    made: Vec<Arc<Collection>>,
}

/// A transaction that is under way. Its statements come one after another.
pub struct Transaction {
    inner: Arc<Inner>,
    at: Timestamp,
    /// The opening of the door in which it began. If the door was closed there is none, and the
    /// transaction only reads.
    opening: Opening,
    /// How long it waits for a latch of another write, or for DDL.
    patience: Duration,
    pub(crate) owner: u64,
    pub(crate) overlay: Arc<Overlay>,
    /// What its view sees of transactions over several logs: see `settle`.
    settled: Mutex<Option<Arc<Overlay>>>,
    /// The time that it reads at, if it reads at a time.
    read_at: Option<Timestamp>,
    state: Mutex<State>,
}

impl Store {
    /// Begins a transaction that sees what is visible now, or what this view sees. It waits for
    /// `patience` for latches of other writes and for DDL. That should be longer than a write takes that
    /// is about to commit; waiting much longer only helps where another transaction holds the latch, and
    /// that may take any time.
    pub fn begin_transaction(
        &self,
        patience: Duration,
        view: Option<Snapshot>,
    ) -> Arc<Transaction> {
        // The opening is taken before the view is opened: while it lasts, no writes of another member
        // come after what the view sees. If the view is older, the trees know whether a key was written
        // after it, by this member or another.
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
            settled: Mutex::default(),
            read_at: view.time(),
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

    /// As [`Store::write_unit`], in a transaction: the unit's commit leaves what it staged with the
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
        transaction.settle(collection, interrupt)?;
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
    /// Makes a collection for a transaction. Other operations can use it at once, but it is not listed.
    /// If the transaction is aborted the collection is dropped, unless another operation relies on it by
    /// then.
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

    /// As [`Store::begin_collection`], in a transaction.
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

    /// Notes that a view, which is not in the maps of collections, has lost its name by now.
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
    /// The opening of the door in which it began.
    pub(crate) fn opening(&self) -> Opening {
        self.opening
    }

    /// The timestamp of its view: it sees commits of others up to here.
    pub fn timestamp(&self) -> Timestamp {
        self.at
    }

    /// Its view for a read of a collection, together with the writes of its statements so far.
    ///
    /// # Errors
    /// Those of [`Transaction::join`] and [`Store::as_decided`]; 251 NoSuchTransaction when it has ended.
    pub fn view_of(&self, collection: &Collection, interrupt: &dyn Interrupt) -> Result<Snapshot> {
        self.join(collection, interrupt)?;
        self.settle(collection, interrupt)?;
        self.snapshot()
    }

    /// Its view together with the writes of its statements so far.
    ///
    /// # Errors
    /// 251 NoSuchTransaction when it has ended.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let state = self.state.lock();
        let view = state.view.clone().ok_or_else(ended)?;
        let view = view.with_settled(self.settled.lock().clone());
        Ok(view.with(self.overlay.clone(), state.statement))
    }

    /// Keeps a collection from being changed by DDL until the transaction ends.
    ///
    /// # Errors
    /// 24 LockTimeout while DDL has it; 246 SnapshotUnavailable if it is younger than the view, or
    /// was dropped since; what `interrupt` says.
    pub fn join(&self, collection: &Collection, interrupt: &dyn Interrupt) -> Result<()> {
        let open = || {
            let state = self.state.lock();
            match state.view.is_some() {
                true => Ok(state),
                false => Err(ended()),
            }
        };
        if !open()?.ddl.contains_key(&collection.id) {
            let limited = Limited {
                until: muniment_op::now() + self.patience,
                interrupt,
            };
            // The state is not locked meanwhile: a thread that ends the transaction must not wait for what this one waits
            // for, since it may be the thread that would end that.
            let shared = collection.ddl.share(&limited)?;
            open()?.ddl.insert(collection.id, shared);
        }
        // The collection got this name after the view, so the view does not know it.
        if collection.named_since() > self.at || collection.is_dropped() {
            return Err(snapshot_unavailable());
        }
        Ok(())
    }

    /// Whether it may make a collection of this name, which `there` has if it exists. The caller holds
    /// the lock of the names.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable if the view may know another by the name; 112 WriteConflict while another
    /// transaction makes one.
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

    /// Takes over a collection that it has just made.
    fn adopt(&self, collection: &Arc<Collection>) {
        // No other collection had the name since the view (`may_make`), so the view may know this one by
        // it.
        collection.set_named_since(collection.named_since().min(self.at));
        self.knows_indexes(collection);
        self.state.lock().made.push(collection.clone());
    }

    /// Marks the indexes of an empty collection that it made as complete for its view.
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
        // Another client may have put documents into it after the view, and the index would not have
        // them.
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

    /// All its writes so far.
    pub(crate) fn now(&self) -> (Arc<Overlay>, u32) {
        (self.overlay.clone(), u32::MAX)
    }

    /// True once it was committed or aborted.
    pub fn has_ended(&self) -> bool {
        self.state.lock().view.is_none()
    }

    /// True when a statement has written something, or made a collection.
    pub fn has_written(&self) -> bool {
        let state = self.state.lock();
        !state.parts.is_empty() || !state.made.is_empty()
    }

    /// The bytes that its writes take in the log.
    pub fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Takes a latch, which stays held until the transaction ends.
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

    /// The value that a statement finds under a key, when it decides about a write.
    ///
    /// # Errors
    /// 112 WriteConflict if another operation has committed a version since the view; 301.
    pub(crate) fn newest(&self, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(own) = self.overlay.get(tree, key, u32::MAX) {
            return Ok(own);
        }
        // Values are not compared: a value that was changed and changed back is another version. A key
        // that came and went since the view has left a deletion, which stays for as long as this
        // transaction lives.
        let newest = self.inner.newest(tree, key)?;
        match self.inner.trees.changed(TreeId(tree), key)? {
            Some((at, _)) if at > self.at => Err(write_conflict()),
            _ => Ok(newest),
        }
    }

    /// The value that it sees under a key.
    ///
    /// # Errors
    /// 301.
    pub(crate) fn seen(&self, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(own) = self.overlay.get(tree, key, u32::MAX) {
            return Ok(own);
        }
        let settled = self.settled.lock().clone();
        match settled.and_then(|settled| settled.get(tree, key, u32::MAX)) {
            Some(settled) => Ok(settled),
            None => self.inner.trees.get(TreeId(tree), key, self.at),
        }
    }

    /// Keeps the latches that a unit has taken.
    pub(crate) fn keep_latches(&self, held: &mut Vec<u64>) {
        let mut state = self.state.lock();
        if state.view.is_some() {
            state.held.append(held);
            return;
        }
        drop(state);
        // The transaction was ended while the unit was at work.
        for hash in held.drain(..) {
            self.inner.units.latches.unlock(hash, self.owner);
        }
    }

    /// Takes over what a unit has staged.
    ///
    /// # Errors
    /// 257 TransactionTooLarge; 251 when it has ended. When all operations together hold more memory
    /// than there is: 388 TransactionTooLargeForCache for a transaction that has much of it itself, and
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
            // The transaction's own plans have to know of these arrays. Plans of other operations become
            // more careful than they need be, which does no harm.
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

    /// Commits everything as one record, which also marks the transaction as committed in the session's
    /// record, and is announced by the door or by the caller. `None` when nothing was written.
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
            // The tree of sessions has a greater number than all others, so its puts come first.
            sealed.add_to(&mut batch);
        }
        // A collection whose records have numbers was in use, and a start can see that.
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
                until: muniment_op::now() + PATIENCE,
                interrupt: &UntilClosed(&self.inner.watch),
            };
            // If another operation holds the collection, the mark stays: that operation uses the
            // collection, so that the next start finds something in it and keeps it.
            let _ = self.inner.unmark(collection, self.opening, &limited);
        }
        result
    }

    /// Puts the notes on collections that no other operation could see yet before the writes to them,
    /// because readers of the log have to know of a collection first.
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
                // Another transaction may have made it: it is in use now, so it has to stay.
                total.collection.claim();
                total.collection.add_totals(total.docs, total.bytes);
            }
        })?;
        for total in totals.values().filter(|t| t.inserted > 0) {
            total.collection.notify_inserts(total.inserted);
        }
        Ok(Some(id))
    }

    /// Gives everything up. It may be called again.
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
            self.inner.units.latches.unlock(hash, self.owner);
        }
        let made = std::mem::take(&mut state.made);
        drop(state);
        for collection in made {
            let limited = Limited {
                until: muniment_op::now() + PATIENCE,
                interrupt: &UntilClosed(&self.inner.watch),
            };
            self.inner.end_made(&collection, self.opening, &limited);
        }
    }
}

impl Inner {
    /// Takes away the mark of a collection that a transaction made.
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

    /// Drops a collection that an aborted transaction made, unless it is in use. If another operation
    /// holds it or its name just now, or it cannot be dropped for another reason, that is tried again
    /// later.
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
            // The next primary deals with collections that have the mark.
            Err(e) if e.code() == Code::NotWritablePrimary || collection.is_dropped() => {}
            Err(_) => self
                .leftovers
                .aborted
                .lock()
                .push((collection.clone(), opening)),
        }
    }

    /// At a start, and when the door opens: drops the collections whose transactions did not come to
    /// their end. Collections that ever had something in them are in use, and are kept.
    pub(crate) fn end_pending(&self, pending: Vec<(Arc<Collection>, bool)>, opening: Opening) {
        for (collection, used) in pending {
            // If this cannot be written now (a full disk), the next start tries again.
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

    /// True if a collection ever had something in it.
    pub(crate) fn is_in_use(&self, collection: &Collection) -> bool {
        collection.count() > 0 || collection.append().last > 0
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.abort();
    }
}

/// The error of a transaction that was refused memory. Its code says whether trying again may help.
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

/// The part of a transaction's record that a statement adds.
fn operations(sealed: &Sealed) -> Bytes {
    let payload = &sealed.payload;
    payload.slice(ops::HEAD.min(payload.len())..)
}

/// The error 251.
fn ended() -> Error {
    Error::new(Code::NoSuchTransaction, "the transaction has ended")
}

/// The error 246.
pub fn snapshot_unavailable() -> Error {
    Error::new(
        Code::SnapshotUnavailable,
        "Unable to read from a snapshot due to pending collection catalog changes; please retry \
         the operation.",
    )
}

/// The interrupt of an operation that waits for a limited time.
struct Limited<'i> {
    until: Instant,
    interrupt: &'i dyn Interrupt,
}

impl Interrupt for Limited<'_> {
    fn check(&self) -> Result<()> {
        self.interrupt.check()?;
        if muniment_op::now() < self.until {
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
