//! Write units: the one path of all writes.
//!
//! A unit holds the collection's shared DDL lock and the latches of the records (and unique keys)
//! it touches, from the moment a record is locked until the commit is visible. It is committed as
//! one record of the log, by its owner and never by itself; it reads what it has staged.
//!
//! A unit that has staged anything never waits for a latch, and one that only holds latches waits
//! for none whose holder could wait for it: so no two units can wait for each other. It returns
//! [`Busy`] instead, and its owner commits what is staged and begins another unit. (MongoDB's
//! batches are not atomic either; each document is.) A unit of a transaction does wait, but only
//! for a moment.
//!
//! Invariants: nothing is staged for a document unless all of it is in order; a unit whose commit
//! failed has left nothing anywhere.

mod buckets;
mod capped;
mod check;
mod ids;
mod moves;
mod owned;
mod shared;
mod timed;

pub use buckets::{NewBucket, fingerprint};
pub(crate) use check::{duplicate, taken_by_other};
pub(crate) use ids::record_of;
pub use moves::Moves;
pub(crate) use shared::Units;

use crate::collection::{Collection, number_of};
use crate::commit::announce::Announce;
use crate::commit::door::Opening;
use crate::commit::stage::{KeyCounts, Stage};
use crate::entries::difference;
use crate::gate::Shared;
use crate::index::{AT_ONCE, Index, KeySet};
use crate::index_list::IndexList;
use crate::inner::Inner;
use crate::latch::{self, Tried};
use crate::multikey::Arrays;
use crate::placement::{Owned, Placement};
use crate::sessions::SessionChange;
use crate::store::CommitId;
use crate::transaction::{Change, Transaction};
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::{Account, Interrupt, Lock, Locked, Share};
use muniment_query::diff;
use muniment_query::running::{Steps, Work};
use muniment_tree::{Cursor, TreeId};
use muniment_value::keyenc::TypeBits;
use muniment_value::{Code, Collation, Doc, DocBuf, Error, Result, Value, doc};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// The buffers that a unit leaves to the next one of its thread. They are empty, and have room for at
/// most [`KEPT`] bytes.
#[derive(Default)]
struct Scratch {
    held: Vec<u64>,
    key: Vec<u8>,
    diff: Vec<u8>,
}

/// How a document was changed, which decides what is written into the log for its readers.
#[derive(Clone, Copy)]
pub enum Changed<'p> {
    /// Another document replaced it.
    Whole,
    /// These fields were changed.
    Fields(diff::Below<'p>),
    /// A computation has made the new document. The log gets the difference or the whole document,
    /// whichever is shorter.
    Shorter,
}

/// How long a unit waits for memory for a large document.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that a thread keeps from one unit to the next.
const KEPT: usize = 1024;

thread_local!(static SCRATCH: Cell<Scratch> = Cell::default());

/// Staged changes of one collection.
pub struct WriteUnit<'s> {
    store: &'s Inner,
    interrupt: &'s dyn Interrupt,
    /// The steps of work on its documents, which are counted together.
    steps: Steps,
    /// It never waits for a latch.
    only_tries: bool,
    collection: Arc<Collection>,
    /// What this shard owns of it, if it is sharded.
    placement: Option<Arc<Placement>>,
    indexes: IndexList,
    /// It writes for the move of a range.
    moves: Option<Moves>,
    /// The ranges of shard keys within which it finds documents; all if `None`.
    within: Option<Arc<[Owned]>>,
    /// There are index entries to maintain in addition to those of `_id_`.
    indexed: bool,
    /// See `Collection::id_tree`.
    id_tree: u32,
    owner: u64,
    stage: Stage,
    /// A change failed after a part of it was staged, so nothing can be committed.
    failed: Option<Error>,
    /// The reason why no document can be inserted or changed.
    refused: Option<Error>,
    inserted: u64,
    /// Documents whose deletion is staged.
    deleted: u64,
    appending: bool,
    /// The number that was given out last, and the first one.
    number: u64,
    first: u64,
    held: Vec<u64>,
    widened: Vec<(Arc<Index>, Arrays)>,
    eviction: Option<Box<dyn Cursor>>,
    /// A client holds the oldest document, so that no document is deleted now.
    eviction_waits: bool,
    capped_order: Option<Locked<Arc<Lock<()>>, ()>>,
    key: Vec<u8>,
    bits: TypeBits,
    diff: Vec<u8>,
    sets: Vec<KeySet>,
    old_set: KeySet,
    /// The memory that it has booked, if it holds much.
    share: Option<Share>,
    _ddl: Option<Shared>,
}

/// Another unit holds what is needed, and this unit holds something already. Commit (or drop) this one,
/// and do the same again with a new one, which will wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// The result of what may be [`Busy`].
pub type Staged<T> = Result<Result<T, Busy>>;

/// A document was refused by a unique index.
#[derive(Clone, Debug)]
pub struct DuplicateKey {
    /// The namespace.
    pub namespace: String,
    /// The index's name.
    pub index: String,
    /// Its key pattern.
    pub key_pattern: DocBuf,
    /// The values, under the pattern's field names.
    pub key_value: DocBuf,
    /// The collation by which texts are equal.
    pub collation: Collation,
}

impl DuplicateKey {
    /// The error: 11000 "E11000 duplicate key error collection: db.c index: x_1 dup key: { x: 1 }"
    /// with keyPattern and keyValue.
    pub fn to_error(&self) -> Error {
        let mut extra = doc! { "keyPattern": &self.key_pattern, "keyValue": &self.key_value };
        let mut by = String::new();
        if let Some(c) = self.collation.spec() {
            by = format!(" collation: {}", c.as_doc().to_display());
            extra.append("collation", c);
        }
        Error::new(
            Code::DuplicateKey,
            format!(
                "E11000 duplicate key error collection: {} index: {}{by} dup key: {}",
                self.namespace,
                self.index,
                self.key_value.as_doc().to_display(),
            ),
        )
        .with_extra(extra)
    }
}

/// The error 11000 for an `_id`. MongoDB has codes of its own for numbers that its record ids cannot
/// hold.
fn duplicate_id(collection: &Collection, id: Value<'_>) -> Error {
    let n = muniment_value::number::to_f64(id).filter(|n| !n.is_finite());
    if let Some(n) = n.filter(|_| collection.is_keyed_by_id()) {
        let code = if n.is_nan() { 50_819 } else { 50_826 };
        return Error::location(
            code,
            format!("a document with _id {} exists already", id.to_display()),
        );
    }
    DuplicateKey {
        namespace: collection.namespace(),
        index: "_id_".to_string(),
        key_pattern: doc! { "_id": 1 },
        key_value: doc! { "_id": id },
        collation: collection.collation().clone(),
    }
    .to_error()
}

impl<'s> WriteUnit<'s> {
    pub(crate) fn new(
        store: &'s Inner,
        collection: &Arc<Collection>,
        opening: Opening,
        interrupt: &'s dyn Interrupt,
        ddl: Option<Shared>,
    ) -> WriteUnit<'s> {
        let indexes = collection.all_indexes();
        let scratch = SCRATCH.take();
        WriteUnit {
            store,
            interrupt,
            steps: Steps::default(),
            only_tries: false,
            indexed: indexes.iter().any(|i| collection.has_entries(i)),
            id_tree: collection.id_tree.unwrap_or(collection.id),
            indexes,
            placement: collection.placement(),
            moves: None,
            within: None,
            collection: collection.clone(),
            owner: store.units.next_owner(),
            stage: Stage::new(opening),
            failed: None,
            refused: collection.refuses(),
            inserted: 0,
            deleted: 0,
            appending: false,
            number: 0,
            first: u64::MAX,
            held: scratch.held,
            widened: Vec::new(),
            eviction: None,
            eviction_waits: false,
            capped_order: None,
            key: scratch.key,
            bits: TypeBits::new(),
            diff: scratch.diff,
            sets: Vec::new(),
            old_set: KeySet::default(),
            share: None,
            _ddl: ddl,
        }
    }

    /// The argument for work on its documents that may take long.
    pub fn work(&self) -> Work<'_> {
        Work::of(self.interrupt, &self.steps)
    }

    /// A unit of a transaction, which holds the collection's DDL lock.
    pub(crate) fn of(
        store: &'s Inner,
        transaction: &Arc<Transaction>,
        collection: &Arc<Collection>,
        interrupt: &'s dyn Interrupt,
    ) -> WriteUnit<'s> {
        let mut unit = WriteUnit::new(store, collection, Opening::NONE, interrupt, None);
        unit.owner = transaction.owner;
        unit.stage.of = Some(transaction.clone());
        unit
    }

    /// Takes a latch. A transaction waits a moment and then gives up.
    fn take(&mut self, hash: u64, wait: bool) -> Result<Tried> {
        if let Some(transaction) = &self.stage.of {
            return transaction.take(hash, self.interrupt);
        }
        match wait && !self.only_tries {
            true => self
                .store
                .units
                .latches
                .lock(hash, self.owner, self.interrupt),
            false => Ok(self.store.units.latches.try_lock(hash, self.owner)),
        }
    }

    /// Asks for memory; `bytes` is the total that it will hold.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit.
    fn hold(&mut self, bytes: usize) -> Result<()> {
        let ledger = &self.store.home.ledger;
        let share = self
            .share
            .get_or_insert_with(|| Share::new(ledger, Account::Writes));
        Ok(share.try_hold(bytes)?)
    }

    /// Asks for memory for a large document that is about to be written, which will take this many
    /// bytes. A unit that holds nothing waits a while for units that have memory. If no other unit asks,
    /// the request is never refused.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit; what the operation's interrupt says while it waits.
    pub fn make_room(&mut self, bytes: usize) -> Staged<()> {
        // The writes of a transaction are booked with the transaction.
        if bytes <= AT_ONCE || self.stage.of.is_some() {
            return Ok(Ok(()));
        }
        let all = self.stage.len() + bytes;
        let ledger = &self.store.home.ledger;
        let share = self
            .share
            .get_or_insert_with(|| Share::new(ledger, Account::Writes));
        let refused = match share.try_hold_alone(all) {
            Ok(()) => return Ok(Ok(())),
            Err(refused) => refused,
        };
        if !self.stage.is_empty() {
            return Ok(Err(Busy));
        }
        if self.only_tries {
            return Err(refused.into());
        }
        let until = muniment_op::now() + PATIENCE;
        ledger.wait_for_room(self.interrupt, until, || share.try_hold_alone(all))?;
        Ok(Ok(()))
    }

    /// Books the keys of a stored document without asking: it must always be possible to delete it.
    fn weigh(&mut self, old: &KeySet) {
        let bytes = old.memory();
        if bytes > AT_ONCE {
            let ledger = &self.store.home.ledger;
            let share = self
                .share
                .get_or_insert_with(|| Share::new(ledger, Account::Writes));
            share.holds(self.stage.len() + 2 * bytes);
        }
    }

    /// True if it should be committed now, because it holds much and all units together exceed the
    /// ledger's limit.
    pub fn is_pressed(&mut self) -> bool {
        let bytes = self.stage.len();
        if bytes <= AT_ONCE && self.share.is_none() {
            return false;
        }
        let ledger = &self.store.home.ledger;
        let share = self
            .share
            .get_or_insert_with(|| Share::new(ledger, Account::Writes));
        share.holds(bytes) || share.is_pressed()
    }

    /// True if it may wait: it holds nothing that another unit could wait for.
    fn holds_nothing(&self) -> bool {
        self.held.is_empty() && !self.appending && self.capped_order.is_none()
    }

    /// Takes a latch. Waits for it only if nothing is held.
    fn latch(&mut self, hash: u64) -> Staged<Tried> {
        let tried = self.take(hash, self.holds_nothing())?;
        match tried {
            Tried::Busy => return Ok(Err(Busy)),
            Tried::Taken => self.held.push(hash),
            Tried::Mine => {}
        }
        Ok(Ok(tried))
    }

    /// Makes the unit wait for no latch from here on: it is [`Busy`] even if it holds nothing.
    /// Background work uses it, and comes back later to records that others hold.
    pub(crate) fn only_try(&mut self) {
        self.only_tries = true;
    }

    /// The newest document of a record, staged or stored. The record's latch is held.
    fn newest(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        self.newest_in(self.collection.id, key)
    }

    /// The same for a key of any tree.
    fn newest_in(&mut self, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        match self.stage.staged(tree, key) {
            Some(staged) => {
                // The key may be staged once more after this look.
                let value = staged.map(Bytes::copy_from_slice);
                self.stage.replaces();
                Ok(value)
            }
            None => self.stage.beneath(self.store, tree, key),
        }
    }

    /// Latches one record and returns its newest document, including what this unit has staged (`None`:
    /// there is none). All reads that decide about a write of this record come after this call.
    ///
    /// # Errors
    /// What the operation's interrupt says while it waits; 301.
    pub fn lock(&mut self, record_key: &[u8]) -> Staged<Option<Bytes>> {
        let mine = match self.collection.is_numbered() {
            true => number_of(record_key).is_some_and(|n| n >= self.first),
            false => self.appending && self.collection.append().mine(record_key, self.owner),
        };
        let hash = latch::record_hash(self.collection.id, record_key);
        let tried = match self.latch(hash)? {
            Ok(t) => t,
            Err(Busy) => return Ok(Err(Busy)),
        };
        Ok(Ok(
            match mine || tried == Tried::Mine || self.stage.of.is_some() {
                true => self.newest(record_key)?,
                // A document that is being inserted without a latch is found when all of its entries are
                // there, and not before.
                false => self.store.newest(self.collection.id, record_key)?,
            },
        ))
    }

    /// Stages the insert of a complete document (with `_id`, validated). Latches what it needs. When a
    /// key exists already nothing is staged for this document.
    ///
    /// # Errors
    /// 11000 DuplicateKey (made by [`DuplicateKey::to_error`]), 171, 10003-like for capped; what the
    /// operation's interrupt says.
    pub fn insert(&mut self, doc: &[u8]) -> Staged<()> {
        self.may_write()?;
        self.must_own(doc)?;
        // The document is in memory twice: as it came, and in the record.
        if self.make_room(2 * doc.len())?.is_err() {
            return Ok(Err(Busy));
        }
        self.whole(|unit| {
            if unit.collection.is_capped() {
                unit.insert_capped(doc)
            } else if unit.collection.is_time_series() {
                unit.insert_timed(doc)
            } else {
                unit.insert_by_id(doc)
            }
        })
    }

    /// Runs one change. If it fails after a part of it was staged, the unit cannot be committed any
    /// more.
    fn whole<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.stage.len();
        let result = change(self);
        if let Err(e) = &result {
            if self.stage.len() != before {
                self.failed.get_or_insert_with(|| e.clone());
            } else if self.stage.is_empty() {
                // The latches that it took for a change that came to nothing are given back. The next
                // change may have to wait, and a waiting unit must not hold what another one waits for.
                self.release();
            }
        }
        result
    }

    /// Whether documents can be inserted and changed.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected while an index is closed that should keep keys unique.
    fn may_write(&self) -> Result<()> {
        match &self.refused {
            None => Ok(()),
            Some(e) => Err(e.clone()),
        }
    }

    fn stage_insert(&mut self, record_key: &[u8], doc: &[u8]) {
        let tree = self.collection.id;
        self.tell_key(doc);
        let (key, at) = self.stage.log.insert(tree, record_key, doc);
        let (key, at) = (Stage::logged(key), Stage::logged(at));
        self.stage.put(tree, key, Some(at), true);
        self.stage.docs += 1;
        self.stage.keys.inserted += u64::from(self.collection.is_numbered());
        self.stage.bytes += doc.len() as i64;
        self.inserted += 1;
    }

    /// Stages the replacement of `old`, which [`WriteUnit::lock`] returned for this key, by `new` with
    /// the same `_id`. `how` says how `new` was made. `touched(path)` false promises that the values at
    /// the path are the same, so that its indexes are left alone.
    ///
    /// # Errors
    /// As [`WriteUnit::insert`].
    pub fn update(
        &mut self,
        record_key: &[u8],
        old: &[u8],
        new: &Bytes,
        how: Changed<'_>,
        touched: &dyn Fn(&str) -> bool,
    ) -> Staged<()> {
        self.may_write()?;
        self.must_keep(old, new, touched)?;
        self.whole(|unit| unit.stage_update(record_key, old, new, how, touched))
    }

    fn stage_update(
        &mut self,
        record_key: &[u8],
        old: &[u8],
        new: &Bytes,
        how: Changed<'_>,
        touched: &dyn Fn(&str) -> bool,
    ) -> Staged<()> {
        if self.indexed
            && self
                .stage_entries(
                    Doc::new(new),
                    record_key,
                    Some(Doc::new(old)),
                    Some(touched),
                )?
                .is_err()
        {
            return Ok(Err(Busy));
        }
        self.stage_id_change(record_key, old, new)?;
        let tree = self.collection.id;
        if self.collection.keeps_images() {
            self.stage.log.image(old);
        }
        self.tell_key(old);
        self.diff.clear();
        let (was, is, out) = (Doc::new(old), Doc::new(new), &mut self.diff);
        let differs = match how {
            Changed::Whole => false,
            Changed::Fields(below) => diff::encode_by(was, is, below, out),
            Changed::Shorter => diff::encode(was, is, out) && out.len() < new.len(),
        };
        let (key, value) = if differs {
            debug_assert!(leads_to(was, &self.diff, is), "a difference does not fit");
            let key = self.stage.log.diff(tree, record_key, old, &self.diff);
            (key, self.stage.keep_value(new))
        } else {
            let (key, at) = self.stage.log.replace(tree, record_key, new);
            (key, Stage::logged(at))
        };
        self.stage.put(tree, Stage::logged(key), Some(value), false);
        self.stage.bytes += new.len() as i64 - old.len() as i64;
        Ok(Ok(()))
    }

    /// Stages the deletion of `old`, which [`WriteUnit::lock`] returned for this key.
    ///
    /// # Errors
    /// 171 cannot happen for a stored document; I/O errors.
    pub fn delete(&mut self, record_key: &[u8], old: &[u8]) -> Staged<()> {
        self.must_own_stored(old)?;
        self.whole(|unit| unit.stage_delete(record_key, old))
    }

    fn stage_delete(&mut self, record_key: &[u8], old: &[u8]) -> Staged<()> {
        if self.indexed {
            let indexes = self.indexes.clone();
            let mut old_set = std::mem::take(&mut self.old_set);
            let nothing = KeySet::none();
            let mut contested = Vec::new();
            for index in indexes.iter().filter(|i| i.is_contested()) {
                index.key_set(Doc::new(old), &mut old_set, self.work())?;
                let hashes = old_set.iter().map(|(k, _)| latch::unique_hash(index.id, k));
                contested.extend(hashes);
            }
            contested.sort_unstable();
            contested.dedup();
            if self.latch_unique(&contested)?.is_err() {
                return Ok(Err(Busy));
            }
            for index in indexes.iter() {
                if self.collection.has_entries(index) {
                    index.key_set(Doc::new(old), &mut old_set, self.work())?;
                    self.weigh(&old_set);
                    let (store, stage) = (self.store, &mut self.stage);
                    difference(store, stage, index, &old_set, &nothing, record_key, false)?;
                    if index.guards() {
                        // Another document may take the key within this unit.
                        stage.replaces();
                    }
                }
            }
            self.old_set = old_set;
        }
        self.stage_id_removal(old);
        self.deleted += 1;
        let tree = self.collection.id;
        if self.collection.keeps_images() {
            self.stage.log.image(old);
        }
        self.tell_key(old);
        let key = self.stage.log.delete(tree, record_key, old);
        self.stage.put(tree, Stage::logged(key), None, false);
        self.stage.docs -= 1;
        self.stage.bytes -= old.len() as i64;
        Ok(Ok(()))
    }

    /// True if nothing is staged.
    pub fn is_empty(&self) -> bool {
        self.stage.is_empty()
    }

    /// Makes room for this many inserts of documents of about `bytes` each, so that no buffer has to
    /// grow meanwhile.
    pub fn reserve(&mut self, docs: usize, bytes: usize) {
        // For each document: the bytes of its key, the number of puts, and the bytes that only the trees
        // need.
        let (key, puts, kept) = match self.collection.is_numbered() {
            true => (8, 2, 24),
            false => (24, 1, 0),
        };
        if self.stage.of.is_some() {
            // Each document has a latch.
            self.held.reserve(docs);
        }
        self.stage
            .reserve(docs, docs * (key + bytes), docs * puts, docs * kept);
    }

    /// Makes room for the session's entry.
    pub fn expect_session(&mut self) {
        self.stage.log.expect_session();
    }

    /// Notes that what is staged was done by a session's statements; the session's entry is committed
    /// with it.
    pub fn remember(&mut self, change: &SessionChange) {
        self.stage.session(change);
    }

    /// The index keys that the staged operations add and remove.
    pub fn keys(&self) -> KeyCounts {
        self.stage.keys
    }

    /// The number of staged bytes. Callers commit before this grows past a few MiB.
    pub fn staged_bytes(&self) -> usize {
        self.stage.len()
    }

    /// Commits atomically: on return the changes are visible and written to the log (not synced). The
    /// latches are released. `None` when nothing was staged.
    ///
    /// # Errors
    /// 10107 NotWritablePrimary, 14031 OutOfDiskSpace or I/O errors: nothing of what was staged is
    /// stored.
    pub fn commit(self) -> Result<Option<CommitId>> {
        self.commit_announced_by(Announce::Door)
    }

    /// As [`WriteUnit::commit`], for a caller that may announce the record.
    ///
    /// # Errors
    /// As [`WriteUnit::commit`].
    pub fn commit_announced_by(mut self, announce: Announce) -> Result<Option<CommitId>> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        let mut stage = std::mem::replace(&mut self.stage, Stage::new(Opening::NONE));
        if let Some(transaction) = stage.of.take() {
            self.stage.of = Some(transaction.clone());
            if !stage.is_empty() {
                transaction.keep(Change {
                    collection: self.collection.clone(),
                    inserted: self.inserted,
                    widened: std::mem::take(&mut self.widened),
                    stage,
                })?;
            }
            return Ok(None);
        }
        if stage.is_empty() {
            // The unit may have seen a commit that is applied and not yet visible. Its client's answer
            // depends on that commit, and the client's next read must find the same.
            self.store.wait_visible(self.interrupt)?;
            return Ok(None);
        }
        for (index, arrays) in self.widened.drain(..) {
            // Readers see the arrays before the data. A plan that is made in between is only more
            // careful.
            if index.multikey().widen(&arrays) {
                self.collection.bump();
            }
        }
        let (docs, bytes) = (stage.docs, stage.bytes);
        let collection = &self.collection;
        let id = self.store.commit(stage, announce, self.interrupt, |_| {
            collection.add_totals(docs, bytes);
        })?;
        if self.inserted > 0 {
            collection.notify_inserts(self.inserted);
            if collection.is_time_series() {
                collection.note_measured(self.inserted);
            }
        }
        Ok(Some(id))
    }
}

/// True if applying the difference to the first document gives the second.
fn leads_to(was: Doc<'_>, difference: &[u8], is: Doc<'_>) -> bool {
    let mut new = Vec::new();
    diff::apply(was, Doc::new(difference), &mut new).is_ok() && new == is.as_bytes()
}

impl Drop for WriteUnit<'_> {
    fn drop(&mut self) {
        self.release();
        let scratch = Scratch {
            held: std::mem::take(&mut self.held),
            key: std::mem::take(&mut self.key),
            diff: std::mem::take(&mut self.diff),
        };
        if scratch.held.capacity() * 8 + scratch.key.capacity() + scratch.diff.capacity() < KEPT {
            SCRATCH.set(scratch);
        }
    }
}

impl WriteUnit<'_> {
    /// Gives back every latch.
    fn release(&mut self) {
        if self.appending {
            let mut append = self.collection.append();
            append.runs.retain(|r| r.owner != self.owner);
            drop(append);
            self.appending = false;
            self.collection.flow.append_done.notify_all();
        }
        match &self.stage.of {
            Some(transaction) => transaction.keep_latches(&mut self.held),
            None => {
                for hash in self.held.drain(..) {
                    self.store.units.latches.unlock(hash, self.owner);
                }
            }
        }
        // The order of a capped collection is given back last: the next insert then finds nothing of
        // this unit in its way.
        self.capped_order = None;
    }
}

impl Inner {
    /// The newest value of one key. Only the holder of the key's latch may ask, or the value could
    /// change at once.
    pub fn newest(&self, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        self.trees.get(TreeId(tree), key, Timestamp::MAX)
    }
}
