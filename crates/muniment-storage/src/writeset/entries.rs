//! Index entries of a write set: what a document's entries are, and what leads from the entries of
//! an old document to those of a new one.

use super::{Attempt, DuplicateKey, WriteSet};
use crate::collection::Collection;
use crate::engine::{Engine, EngineSnapshot, Space};
use crate::index::{Index, KeySet};
use crate::keys;
use crate::latch::{self, Tried};
use crate::multikey::Arrays;
use muniment_value::{Doc, Error, Result};
use std::sync::Arc;

impl WriteSet<'_> {
    /// Latches, checks and stages the index entries of `new`, and the removal of those of `old`
    /// that it has no more. Nothing is staged unless all of them are in order.
    pub(super) fn stage_entries(
        &mut self,
        new: Doc<'_>,
        record_key: &[u8],
        old: Option<Doc<'_>>,
        touched: Option<&dyn Fn(&str) -> bool>,
        wait: bool,
    ) -> Result<Attempt> {
        let indexes = self.indexes.clone();
        let mut new_sets = std::mem::take(&mut self.sets);
        let mut old_set = std::mem::take(&mut self.old_set);
        let result = self.check_and_stage(
            &indexes,
            new,
            record_key,
            old,
            touched,
            wait,
            &mut new_sets,
            &mut old_set,
        );
        self.sets = new_sets;
        self.old_set = old_set;
        result
    }

    #[allow(clippy::too_many_arguments)] // the buffers come from self, whose methods it calls
    fn check_and_stage(
        &mut self,
        indexes: &[Arc<Index>],
        new: Doc<'_>,
        record_key: &[u8],
        old: Option<Doc<'_>>,
        touched: Option<&dyn Fn(&str) -> bool>,
        wait: bool,
        new_sets: &mut Vec<KeySet>,
        old_set: &mut KeySet,
    ) -> Result<Attempt> {
        // A builder skips the records that were written meanwhile, so on an index that is being
        // built every write puts all its keys.
        let skipped = |index: &Index| {
            index.is_ready()
                && index.partial_filter().is_none()
                && touched.is_some_and(|t| !index.reads(t))
        };
        if new_sets.len() < indexes.len() {
            new_sets.resize_with(indexes.len(), KeySet::default);
        }
        let mut unique = Vec::new();
        for (index, set) in indexes.iter().zip(new_sets.iter_mut()) {
            set.clear();
            if !self.maintained(index) || skipped(index) {
                continue;
            }
            index.key_set(new, set)?;
            for (key, bits) in set.iter() {
                if 4 + key.len() + record_key.len() + bits.len() > crate::engine::MAX_KEY {
                    return Err(Error::location(
                        17280,
                        format!(
                            "an index key of index {} is too long: {} bytes encoded",
                            index.spec().name,
                            key.len()
                        ),
                    ));
                }
            }
            if index.guards() {
                for (key, _) in set.iter() {
                    unique.push(latch::unique_hash(&keys::join(index.id, key)));
                }
            }
        }
        if !unique.is_empty() {
            unique.sort_unstable();
            unique.dedup();
            for hash in unique {
                let tried = if wait {
                    self.store.latches.lock(hash, self.owner)
                } else {
                    self.store.latches.try_lock(hash, self.owner)
                };
                match tried {
                    Tried::Taken => self.held.push(hash),
                    Tried::Mine if wait || self.batch.is_none() => {}
                    Tried::Mine | Tried::Busy => return Ok(Attempt::Again),
                }
            }
            let mut conflicts = Vec::new();
            for (index, set) in indexes.iter().zip(new_sets.iter()) {
                if !index.guards() {
                    continue;
                }
                // A duplicate that was there before may stay.
                old_set.clear();
                if let Some(old) = old.filter(|_| !index.unique()) {
                    index.key_set(old, old_set)?;
                }
                for (key, bits) in set.iter() {
                    if old_set.iter().any(|(k, _)| k == key) {
                        continue;
                    }
                    if taken_by_other(&self.engine, index, key, record_key)? {
                        conflicts.push((index.clone(), key.to_vec(), bits.to_vec()));
                    }
                }
            }
            for (index, key, bits) in conflicts {
                if self.removed_unique {
                    return Ok(Attempt::Again);
                }
                let error = duplicate(&self.collection, &index, &key, &bits);
                if index.is_ready() {
                    return Err(error);
                }
                index.fail_build(error);
            }
        }
        for (index, set) in indexes.iter().zip(new_sets.iter()) {
            if !self.maintained(index) || skipped(index) {
                continue;
            }
            match old {
                Some(old) => index.key_set(old, old_set)?,
                None => old_set.clear(),
            }
            self.stage_difference(index, old_set, set, record_key);
            if let Some(keys) = set.keys()
                && index.multikey().widens(keys.multikey(), keys.arrays())
            {
                self.widened.push((index.clone(), Arrays::of(keys)));
            }
        }
        Ok(Attempt::Done)
    }

    /// Stages what leads from the entries of `old` to those of `new`: a merge of the two.
    fn stage_difference(&mut self, index: &Index, old: &KeySet, new: &KeySet, record_key: &[u8]) {
        let mut old = old.iter().peekable();
        for (key, bits) in new.iter() {
            while let Some((gone, _)) = old.next_if(|(k, _)| *k < key) {
                self.remove_entry(index, gone, record_key);
            }
            // Same key, other type bits: 1 became 1.0, the entry is written anew.
            let same = old
                .next_if(|(k, _)| *k == key)
                .is_some_and(|(_, old_bits)| old_bits == bits);
            if !same || !index.is_ready() {
                let (key, value) = entry_of(index, key, bits, record_key);
                self.staged_bytes += key.len() + value.len();
                self.batch().put(Space::Index, key, value);
            }
        }
        for (gone, _) in old {
            self.remove_entry(index, gone, record_key);
        }
    }

    pub(super) fn remove_entry(&mut self, index: &Index, key: &[u8], record_key: &[u8]) {
        let mut full = keys::join(index.id, key);
        self.removed_unique |= index.guards();
        if !index.unique() {
            full.extend_from_slice(record_key);
        }
        self.staged_bytes += full.len();
        self.batch().delete(Space::Index, full);
    }
}

/// True if the key of a unique index (or of one that is to become unique) belongs to another
/// record. The caller holds its latch.
pub(crate) fn taken_by_other(
    engine: &Arc<Engine>,
    index: &Index,
    key: &[u8],
    record_key: &[u8],
) -> Result<bool> {
    if !index.unique() {
        return another_entry(engine, index, key, record_key);
    }
    let Some(value) = engine.newest(Space::Index, &keys::join(index.id, key))? else {
        return Ok(false);
    };
    Ok(keys::get_varint(&value)
        .and_then(|(len, at)| value.get(at..at + len))
        .is_none_or(|holder| holder != record_key))
}

/// The same for entries that carry their record's key.
fn another_entry(
    engine: &Arc<Engine>,
    index: &Index,
    key: &[u8],
    record_key: &[u8],
) -> Result<bool> {
    let low = keys::join(index.id, key);
    let Some(high) = muniment_value::keyenc::prefix_end(&low) else {
        return Ok(false);
    };
    let snapshot = EngineSnapshot::new(engine.clone());
    let mut entries = snapshot.range(Space::Index, low, high);
    while let Some((full, value)) = entries.next()? {
        if let Some(e) = crate::snapshot::split_entry(&full, &value, false)
            && e.key == key
            && e.record_key != record_key
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// 11000 for an encoded key.
pub(crate) fn duplicate(collection: &Collection, index: &Index, key: &[u8], bits: &[u8]) -> Error {
    let spec = index.spec();
    DuplicateKey {
        namespace: collection.namespace(),
        index: spec.name.clone(),
        key_pattern: spec.key.clone(),
        key_value: index.key_value(key, bits),
        collation: index.collation().clone(),
    }
    .to_error()
}

/// The stored key and value of an index entry.
pub(crate) fn entry_of(
    index: &Index,
    key: &[u8],
    bits: &[u8],
    record_key: &[u8],
) -> (Vec<u8>, Vec<u8>) {
    if index.unique() {
        let full = keys::join(index.id, key);
        let mut value = Vec::with_capacity(2 + record_key.len() + bits.len());
        keys::put_varint(record_key.len(), &mut value);
        value.extend_from_slice(record_key);
        value.extend_from_slice(bits);
        (full, value)
    } else {
        let mut full = Vec::with_capacity(4 + key.len() + record_key.len());
        full.extend_from_slice(&keys::prefix(index.id));
        full.extend_from_slice(key);
        full.extend_from_slice(record_key);
        let mut value = Vec::with_capacity(2 + bits.len());
        keys::put_varint(key.len(), &mut value);
        value.extend_from_slice(bits);
        (full, value)
    }
}
