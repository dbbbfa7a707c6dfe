//! Stages the index entries of one document: takes their latches and asks the unique indexes.

use super::{Busy, DuplicateKey, Staged, WriteUnit};
use crate::collection::Collection;
use crate::commit::stage::Stage;
use crate::entries::difference;
use crate::index::{AT_ONCE, Index, KeySet};
use crate::inner::Inner;
use crate::keys;
use crate::latch::{self, Tried};
use crate::multikey::Arrays;
use crate::transaction::{Merged, write_conflict};
use crate::view::split_entry;
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::Interrupt;
use muniment_query::running::{Steps, Work};
use muniment_tree::{Direction, Range, TreeId};
use muniment_value::keyenc::prefix_end;
use muniment_value::{Doc, Error, Result};
use std::sync::Arc;

impl WriteUnit<'_> {
    /// Latches, checks and stages the index entries of `new`, and the removal of the entries of `old`
    /// that `new` does not have. Nothing is staged unless all of them are in order.
    pub(super) fn stage_entries(
        &mut self,
        new: Doc<'_>,
        record_key: &[u8],
        old: Option<Doc<'_>>,
        touched: Option<&dyn Fn(&str) -> bool>,
    ) -> Staged<()> {
        let indexes = self.indexes.clone();
        let mut new_sets = std::mem::take(&mut self.sets);
        let mut old_set = std::mem::take(&mut self.old_set);
        let sets = (&mut new_sets, &mut old_set);
        let result = self.check_and_stage(&indexes, new, record_key, old, touched, sets);
        self.sets = new_sets;
        self.old_set = old_set;
        result
    }

    fn check_and_stage(
        &mut self,
        indexes: &[Arc<Index>],
        new: Doc<'_>,
        record_key: &[u8],
        old: Option<Doc<'_>>,
        touched: Option<&dyn Fn(&str) -> bool>,
        (new_sets, old_set): (&mut Vec<KeySet>, &mut KeySet),
    ) -> Staged<()> {
        // On an index that is being built every write puts all its keys, because the builder may not
        // have come to the document.
        let skipped = |index: &Index| {
            index.is_ready()
                && index.partial_filter().is_none()
                && touched.is_some_and(|t| !index.reads(t))
        };
        // The entry of `_id_` is staged where the `_id` is claimed: see `ids`.
        let collection = self.collection.clone();
        let concerned = |index: &Index| collection.has_entries(index) && !skipped(index);
        if new_sets.len() < indexes.len() {
            new_sets.resize_with(indexes.len(), KeySet::default);
        }
        let (steps, mut unique) = (Steps::default(), Vec::new());
        let work = Work::of(self.interrupt, &steps);
        let most = self.store.units.key_limits();
        let staged = self.stage.len();
        // The memory that the sets take so far.
        let mut made = 0;
        for (index, set) in indexes.iter().zip(new_sets.iter_mut()) {
            set.clear();
            if !concerned(index) {
                continue;
            }
            let mut hold = |more| self.hold(staged + 2 * (made + more));
            index.key_set_within(new, set, most, &mut hold, work)?;
            made += set.memory();
            if index.guards() {
                for (key, _) in set.iter() {
                    unique.push(latch::unique_hash(index.id, key));
                }
            }
            if index.is_contested() {
                // An entry that is to be removed may belong to another document. While its latch is
                // held, no other operation changes it between the look and the removal.
                old_set.fill(index, old, work)?;
                for (key, _) in old_set.iter() {
                    unique.push(latch::unique_hash(index.id, key));
                }
            }
        }
        let large = made > AT_ONCE;
        if large {
            // The keys take memory twice: in the sets and when they are staged.
            self.hold(staged + 2 * made)?;
        }
        if !unique.is_empty() {
            unique.sort_unstable();
            unique.dedup();
            if self.latch_unique(&unique)?.is_err() {
                return Ok(Err(Busy));
            }
            self.check_unique(indexes, new_sets, record_key, old, old_set)?;
        }
        for (index, set) in indexes.iter().zip(new_sets.iter_mut()) {
            if !concerned(index) {
                continue;
            }
            old_set.fill(index, old, work)?;
            self.weigh(old_set);
            if large {
                self.stage.expect(set, record_key);
            }
            // The unique keys were looked up just now, and no other record has them.
            difference(
                self.store,
                &mut self.stage,
                index,
                old_set,
                set,
                record_key,
                true,
            )?;
            if let Some(keys) = set.keys()
                && !index.multikey().covers(keys)
            {
                self.widened.push((index.clone(), Arrays::of(keys)));
            }
            if large {
                set.release();
            }
        }
        Ok(Ok(()))
    }

    /// Takes the latches of unique keys, in the order of their hashes. It waits only when nothing is
    /// staged. All that is held then is the record's own latch (and the order of a capped collection),
    /// and no unit that holds a unique key's latch waits for these.
    pub(super) fn latch_unique(&mut self, hashes: &[u64]) -> Staged<()> {
        let wait = self.stage.is_empty() && self.held.len() <= 1;
        for hash in hashes {
            match self.take(*hash, wait)? {
                Tried::Taken => self.held.push(*hash),
                // This unit has staged the key for another document: the look-up sees that, and the
                // entry may be put twice.
                Tried::Mine => self.stage.replaces(),
                Tried::Busy => return Ok(Err(Busy)),
            }
        }
        Ok(Ok(()))
    }

    fn check_unique(
        &mut self,
        indexes: &[Arc<Index>],
        new_sets: &[KeySet],
        record_key: &[u8],
        old: Option<Doc<'_>>,
        old_set: &mut KeySet,
    ) -> Result<()> {
        for (index, set) in indexes.iter().zip(new_sets) {
            if !index.guards() {
                continue;
            }
            // A duplicate that was there before may stay.
            old_set.fill(index, old.filter(|_| !index.unique()), self.work())?;
            for (key, bits) in set.iter() {
                if old_set.iter().any(|(k, _)| k == key)
                    || !taken_by_other(
                        self.store,
                        &mut self.stage,
                        index,
                        key,
                        record_key,
                        self.interrupt,
                    )?
                {
                    continue;
                }
                let error = duplicate(&self.collection, index, key, bits);
                if index.is_ready() {
                    return Err(error);
                }
                // It is not known whether the transaction will be committed, so it gives way to the
                // build. When it is tried again the build has ended.
                if self.stage.of.is_some() {
                    return Err(write_conflict());
                }
                index.fail_build(error);
                self.collection.building.wake_all();
            }
        }
        Ok(())
    }
}

/// True if the key of a unique index (or of one that is to become unique) belongs to another record,
/// stored or staged. The caller holds its latch.
pub(crate) fn taken_by_other(
    store: &Inner,
    stage: &mut Stage,
    index: &Index,
    key: &[u8],
    record_key: &[u8],
    operation: &dyn Interrupt,
) -> Result<bool> {
    if !index.unique() {
        return another_entry(store, stage, index, key, record_key, operation);
    }
    let is_other = |value: &[u8]| {
        keys::get_varint(value)
            .and_then(|(len, at)| value.get(at..at + len))
            .is_none_or(|holder| holder != record_key)
    };
    if let Some(staged) = stage.staged(index.id, key) {
        return Ok(staged.is_some_and(is_other));
    }
    let value = stage.beneath(store, index.id, key)?;
    Ok(value.is_some_and(|v| is_other(&v)))
}

/// The same for an index whose entries carry their record's key.
fn another_entry(
    store: &Inner,
    stage: &mut Stage,
    index: &Index,
    key: &[u8],
    record_key: &[u8],
    operation: &dyn Interrupt,
) -> Result<bool> {
    let is_other = |full: &Bytes, value: &Bytes| {
        split_entry(full, value, false).is_some_and(|e| e.key == key && e.record_key != record_key)
    };
    for (full, value) in stage.staged_with(index.id, key) {
        if let Some(value) = value
            && is_other(
                &Bytes::copy_from_slice(full),
                &Bytes::copy_from_slice(value),
            )
        {
            return Ok(true);
        }
    }
    let range = Range {
        low: Bytes::copy_from_slice(key),
        high: prefix_end(key).map(Bytes::from),
    };
    let tree = TreeId(index.id);
    let entries = store
        .trees
        .cursor(tree, range.clone(), Timestamp::MAX, Direction::Forward);
    let mut entries = match &stage.of {
        Some(t) => Merged::over(entries, &t.now(), index.id, range, Direction::Forward),
        None => entries,
    };
    while let Some((full, value)) = entries.next(operation)? {
        if is_other(&full, &value) && stage.staged(index.id, &full) != Some(None) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The error 11000 for an encoded key.
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
