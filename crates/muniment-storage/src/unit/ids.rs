//! `_id`s: claiming one for an insert, and the entries of `_id_`.
//!
//! A document is unique by its `_id`, so an insert latches the key of the `_id`. The record's own key is
//! a number that no other operation knows before the document is there, so inserts do not latch it. (If
//! documents are clustered by `_id` the two are one key, and one latch.)
//!
//! An `_id` above every one that there ever was is free without a look and without a latch: see
//! [`Append`](crate::collection::Append).
//!
//! Inserts may do without the record's latch because the puts of a commit go into the trees with the
//! documents last. An operation that reads a document which is not visible yet (by its `_id`, to change
//! it) finds all its entries in place, and its own puts come after them. Before that the document is not
//! there, and its `_id` is taken all the same.

use super::moves::Moves;
use super::{Busy, Staged, WriteUnit, duplicate_id};
use crate::collection::number_of;
use crate::keys;
use crate::latch::{self, Tried};
use crate::transaction::{Transaction, write_conflict};
use bytes::Bytes;
use muniment_value::{Code, Doc, Error, Result, Value};
use parking_lot::MutexGuard;

/// How an `_id` was claimed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// The `_id` is above every one there ever was.
    Fresh,
    /// The latch is held; `staged`: this unit may have staged something for the `_id`.
    Latched { staged: bool },
}

impl WriteUnit<'_> {
    /// Stages the insert of a document into a collection that finds documents by `_id`.
    pub(super) fn insert_by_id(&mut self, doc: &[u8]) -> Staged<()> {
        let Some(id) = Doc::new(doc).get("_id") else {
            return Err(Error::internal(
                "a document without _id reached the storage",
            ));
        };
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        self.bits.clear();
        self.collection
            .collation()
            .encode_with_bits(id, false, &mut key, &mut self.bits);
        let result = match self.collection.is_numbered() {
            true => self.insert_at(&key, doc, id),
            false => check_size(id, &key).and_then(|()| self.insert_at(&key, doc, id)),
        };
        self.key = key;
        result
    }

    fn insert_at(&mut self, key: &[u8], doc: &[u8], id: Value<'_>) -> Staged<()> {
        match self.claim(key)? {
            Err(Busy) => return Ok(Err(Busy)),
            Ok(Claim::Fresh) => {}
            Ok(Claim::Latched { staged }) => {
                let tree = self.id_tree;
                let holder = match staged {
                    true => self.newest_in(tree, key)?,
                    false => self.stage.beneath(self.store, tree, key)?,
                };
                // The latch may be one that this unit has taken without staging anything.
                let own = staged && self.stage.staged(tree, key).is_some();
                if let Some(holder) = holder {
                    let free = match own {
                        true => Ok(false),
                        false => self.clean_foreign(key, &holder)?,
                    };
                    match free {
                        Ok(true) => {}
                        Ok(false) => return Err(duplicate_id(&self.collection, id)),
                        Err(Busy) => return Ok(Err(Busy)),
                    }
                }
            }
        }
        if !self.collection.is_numbered() {
            return self.insert_record(key, doc);
        }
        let record_key = self.number.to_be_bytes();
        if self.insert_record(&record_key, doc)?.is_err() {
            return Ok(Err(Busy));
        }
        self.first = self.first.min(self.number);
        // No document has the `_id`, so there is no older version below this one.
        self.stage_id(key, &record_key, true);
        Ok(Ok(()))
    }

    /// Deletes the row of an `_id` if this shard does not own it; whether the `_id` is free then. `holder` is what stands
    /// under the `_id`. A row whose range was given away was to be deleted in any case. One that is arriving has to be
    /// copied again: the other shard may have deleted it since, and if it has not, the move must fail. The deletion is a
    /// commit of its own, which readers of the log need not see.
    fn clean_foreign(&self, key: &[u8], holder: &Bytes) -> Staged<bool> {
        let collection = &self.collection;
        let Some(placement) = self.placement.as_ref().filter(|p| !p.foreign().is_empty()) else {
            return Ok(Ok(false));
        };
        let record_key = match collection.is_numbered() {
            true => record_of(holder)?,
            false => Bytes::copy_from_slice(key),
        };
        let (store, mut buf) = (self.store, Vec::new());
        let opening = store.door.opening()?;
        let mut unit = WriteUnit::new(store, collection, opening, self.interrupt, None);
        // The latches that this unit has are good for the deletion, too.
        unit.owner = self.owner;
        let row = match unit.lock(&record_key)? {
            Ok(Some(row)) => row,
            // It was cleaned meanwhile. The latch of the `_id` keeps others from taking it.
            Ok(None) => return Ok(Ok(true)),
            Err(Busy) => return Ok(Err(Busy)),
        };
        let doc = Doc::new(&row);
        if placement.is_waste(doc, &mut buf)? {
            unit.moves(Moves::Out);
        } else if self.moves.is_none() && placement.may_be_displaced(doc, &mut buf)? {
            collection.displace(doc);
            unit.moves(Moves::In);
        } else {
            return Ok(Ok(false));
        }
        if unit.delete(&record_key, &row)?.is_err() {
            return Ok(Err(Busy));
        }
        unit.commit()?;
        Ok(Ok(true))
    }

    /// Stages the insert of a document into a collection that has no `_id_`. No other unit inserts
    /// meanwhile, and none knows the document's number, so there is nothing to latch.
    pub(super) fn insert_without_id(&mut self, doc: &[u8]) -> Staged<()> {
        if self.collection.append().max.is_none() {
            self.read_greatest()?;
        }
        self.number = self.collection.append().number();
        let record_key = self.number.to_be_bytes();
        if self.insert_record(&record_key, doc)?.is_err() {
            return Ok(Err(Busy));
        }
        self.first = self.first.min(self.number);
        Ok(Ok(()))
    }

    fn insert_record(&mut self, record_key: &[u8], doc: &[u8]) -> Staged<()> {
        if self.indexed
            && self
                .stage_entries(Doc::new(doc), record_key, None, None)?
                .is_err()
        {
            return Ok(Err(Busy));
        }
        self.stage_insert(record_key, doc);
        Ok(Ok(()))
    }

    /// True if there is an `_id_` whose entries lead to numbers.
    fn keeps_id_entries(&self) -> bool {
        self.collection.is_numbered() && self.collection.finds_by_id()
    }

    /// Puts the entry of `_id_`, with the type bits of the `_id` that was encoded last.
    fn stage_id(&mut self, key: &[u8], record_key: &[u8], fresh: bool) {
        let mut head = [0; 10];
        let head = keys::varint(record_key.len(), &mut head);
        let key = self.stage.keep(&[key]);
        let value = self.stage.keep(&[head, record_key, self.bits.as_bytes()]);
        self.stage.put(self.id_tree, key, Some(value), fresh);
    }

    /// Stages the new entry of `_id_` if an update changes the type of the `_id`: 1 may become 1.0,
    /// which stands in the entry's bits. The value cannot change. The record's latch is enough, because
    /// the `_id` belongs to this record.
    pub(super) fn stage_id_change(
        &mut self,
        record_key: &[u8],
        old: &[u8],
        new: &[u8],
    ) -> Result<()> {
        let (old, new) = (Doc::new(old).get_elem("_id"), Doc::new(new).get_elem("_id"));
        let (Some(old), Some(new)) = (old, new) else {
            return Ok(());
        };
        if !self.keeps_id_entries() || old.as_bytes() == new.as_bytes() {
            return Ok(());
        }
        let mut key = Vec::with_capacity(24);
        self.bits.clear();
        let collation = self.collection.collation().clone();
        collation.encode_with_bits(new.value(), false, &mut key, &mut self.bits);
        if collation.encoded(old.value()) != key {
            return Err(Error::internal("an update changed the _id of a document"));
        }
        // This unit may have staged the entry before.
        self.stage.replaces();
        self.stage_id(&key, record_key, false);
        Ok(())
    }

    /// Stages the removal of a document's entry of `_id_`.
    pub(super) fn stage_id_removal(&mut self, old: &[u8]) {
        if !self.keeps_id_entries() {
            return;
        }
        let Some(id) = Doc::new(old).get("_id") else {
            return;
        };
        self.stage.keys.deleted += 1;
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        self.collection.collation().encode(id, false, &mut key);
        if self.inserted > 0 {
            // This unit may have staged the entry itself.
            self.stage.replaces();
        }
        let piece = self.stage.keep(&[&key]);
        self.stage.put(self.id_tree, piece, None, false);
        self.key = key;
    }

    /// Claims an `_id` for an insert, and takes a number for its record.
    fn claim(&mut self, key: &[u8]) -> Staged<Claim> {
        let mine = {
            let mut append = self.collection.append();
            if append.max.is_none() {
                MutexGuard::unlocked(&mut append, || self.read_greatest())?;
            }
            self.number = append.number();
            let above = append.max.as_deref().is_some_and(|max| key > max);
            if above && self.stage.of.is_some() {
                // A transaction stays under way for long, so it uses a latch, on which others can wait.
                // The latch is taken while the append state is locked, so that no other unit can claim
                // the `_id` in between.
                let hash = self.id_hash(key);
                append.raise(key);
                if self.store.units.latches.try_lock(hash, self.owner) == Tried::Taken {
                    self.held.push(hash);
                    return Ok(Ok(Claim::Fresh));
                }
            } else if above {
                append.append(key, self.owner);
                self.appending = true;
                return Ok(Ok(Claim::Fresh));
            }
            // True if the `_id` lies in this unit's run. That does not mean that this unit appended it:
            // a run is an interval that grows, and may overlap with other units' runs and latches.
            self.appending && append.mine(key, self.owner)
        };
        let tried = match self.latch(self.id_hash(key))? {
            Ok(tried) => tried,
            Err(Busy) => return Ok(Err(Busy)),
        };
        let in_flight = self.collection.append().in_flight(key, self.owner);
        if in_flight && self.stage.of.is_some() {
            return Err(write_conflict());
        }
        if in_flight {
            // The unit that appends holds nothing that this one could hold. It waits for this unit's
            // commit to become visible only after its own is in the log, so waiting with a single latch
            // held is safe.
            if self.held.len() > 1 || !self.stage.is_empty() || self.appending {
                return Ok(Err(Busy));
            }
            self.wait_for_appends(key)?;
        }
        // A deletion latches the record alone, so it does not show in the latch of the `_id`.
        let staged = mine || tried == Tried::Mine || self.deleted > 0;
        Ok(Ok(Claim::Latched { staged }))
    }

    /// The latch of an `_id`.
    fn id_hash(&self, key: &[u8]) -> u64 {
        match self.collection.is_numbered() {
            true => latch::unique_hash(self.id_tree, key),
            false => latch::record_hash(self.id_tree, key),
        }
    }

    /// Reads the greatest `_id` there ever was, and the last number, for the first insert. Reading may
    /// take a while, so the lock is not held: a seal takes it, and all commits wait for the seal.
    #[cold]
    fn read_greatest(&self) -> Result<()> {
        let max = self.store.greatest_key(self.id_tree, self.interrupt)?;
        // The stored last number says the same, unless it was damaged.
        let number = match self.collection.is_numbered() {
            true => number_of(
                &self
                    .store
                    .greatest_key(self.collection.id, self.interrupt)?,
            ),
            false => None,
        };
        let mut append = self.collection.append();
        if append.max.is_none() {
            append.max = Some(max.max(std::mem::take(&mut append.prepared)));
            append.last = append.last.max(number.unwrap_or(0));
        }
        Ok(())
    }

    /// Waits until no other unit is about to commit this `_id` without a latch.
    fn wait_for_appends(&self, key: &[u8]) -> Result<()> {
        let done = &self.collection.flow.append_done;
        let nobody = || !self.collection.append().in_flight(key, self.owner);
        done.wait(self.interrupt, nobody)
    }

    /// The same in a transaction. A document that it does not see counts as missing, and one that has
    /// changed since its view is a conflict.
    fn lock_seen(
        &mut self,
        transaction: &Transaction,
        key: &[u8],
    ) -> Staged<Option<(Bytes, Bytes)>> {
        let entry = match self.stage.staged(self.id_tree, key) {
            Some(staged) => staged.map(Bytes::copy_from_slice),
            None => transaction.seen(self.id_tree, key)?,
        };
        let Some(entry) = entry else {
            return Ok(Ok(None));
        };
        let record_key = match self.collection.is_numbered() {
            true => record_of(&entry)?,
            false => Bytes::copy_from_slice(key),
        };
        let locked = self.lock(&record_key)?;
        Ok(locked.map(|doc| self.unless_foreign(record_key, doc)))
    }

    /// The document that was found by its `_id`, unless it is a row that is not there for this unit.
    fn unless_foreign(&mut self, record_key: Bytes, doc: Option<Bytes>) -> Option<(Bytes, Bytes)> {
        let doc = doc.filter(|doc| !self.is_foreign(doc))?;
        Some((record_key, doc))
    }

    /// As [`WriteUnit::lock`], for the document with this `_id`; returns its record key as well.
    ///
    /// # Errors
    /// As [`WriteUnit::lock`].
    pub fn lock_by_id(&mut self, id: Value<'_>) -> Staged<Option<(Bytes, Bytes)>> {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        self.collection.collation().encode(id, false, &mut key);
        let result = self.lock_id_key(&key);
        self.key = key;
        result
    }

    fn lock_id_key(&mut self, key: &[u8]) -> Staged<Option<(Bytes, Bytes)>> {
        if let Some(transaction) = self.stage.of.clone() {
            return self.lock_seen(&transaction, key);
        }
        if !self.collection.is_numbered() {
            let locked = self.lock(key)?;
            return Ok(locked.map(|doc| self.unless_foreign(Bytes::copy_from_slice(key), doc)));
        }
        let collection = self.collection.clone();
        let hints = &collection.hints;
        // Hints do not know of documents that this unit has inserted itself.
        if let Some(number) = hints.get(self.id_tree, key).filter(|_| self.inserted == 0) {
            let record_key = Bytes::copy_from_slice(&number.to_be_bytes());
            match self.lock(&record_key)? {
                Err(Busy) => return Ok(Err(Busy)),
                Ok(Some(doc)) if collection.has_id_key(&doc, key) => {
                    let there = !self.is_foreign(&doc);
                    return Ok(Ok(there.then_some((record_key, doc))));
                }
                Ok(_) => hints.forget(self.id_tree, key),
            }
        }
        let mut looked = None;
        let mut waited = false;
        loop {
            let staged = match self.inserted > 0 {
                true => self.stage.staged(self.id_tree, key),
                false => None,
            };
            let entry = match staged {
                Some(entry) => entry.map(Bytes::copy_from_slice),
                None => self.stage.beneath(self.store, self.id_tree, key)?,
            };
            let Some(entry) = entry else {
                return Ok(Ok(None));
            };
            let record_key = record_of(&entry)?;
            if looked.as_ref() == Some(&record_key) {
                if waited {
                    return Ok(Ok(None));
                }
                // The document is being inserted: its commit is being applied, and has to be visible as
                // a whole before a client is told of a change of it.
                self.store.wait_visible(self.interrupt)?;
                waited = true;
                looked = None;
                continue;
            }
            match self.lock(&record_key)? {
                Err(Busy) => return Ok(Err(Busy)),
                // A number belongs to one document for ever, and a document keeps its `_id`, so the hint
                // is right.
                Ok(Some(doc)) => {
                    if self.is_foreign(&doc) {
                        return Ok(Ok(None));
                    }
                    if let Some(number) = number_of(&record_key) {
                        hints.note(self.id_tree, key, number);
                    }
                    return Ok(Ok(Some((record_key, doc))));
                }
                // The document was deleted before it was locked, and there may be another with the `_id`
                // by now.
                Ok(None) => looked = Some(record_key),
            }
        }
    }
}

/// The longest record key of a collection that is clustered by `_id`: MongoDB's limit.
const LONGEST_CLUSTERED: usize = 8 << 20;

/// Refuses an `_id` that is too long to be a record's key, with 5894900. Texts and binary data count
/// with the bytes that MongoDB's encoding adds, other values as they are encoded here.
fn check_size(id: Value<'_>, key: &[u8]) -> Result<()> {
    let len = match id {
        Value::String(s) => s.len() + 2,
        Value::Binary { bytes, .. } => bytes.len() + 7,
        _ => key.len(),
    };
    if len <= LONGEST_CLUSTERED {
        return Ok(());
    }
    Err(Error::location(
        5_894_900,
        format!(
            "the _id is too long for a clustered collection: {len} bytes encoded, at most \
             {LONGEST_CLUSTERED} are possible"
        ),
    ))
}

/// The record that an entry of `_id_` leads to.
///
/// # Errors
/// 301 DataCorruptionDetected.
pub(crate) fn record_of(entry: &Bytes) -> Result<Bytes> {
    let range = keys::get_varint(entry).map(|(len, at)| at..at + len);
    match range.filter(|r| r.end <= entry.len()) {
        Some(range) => Ok(entry.slice(range)),
        None => Err(Error::new(
            Code::DataCorruptionDetected,
            format!("data corruption detected: an entry of _id_ is malformed: {entry:02x?}"),
        )),
    }
}
