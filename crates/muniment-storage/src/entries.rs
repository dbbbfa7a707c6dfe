//! The changes of index entries that a change of a document causes. They are the same whether a client
//! writes or a record of the log is applied.

use crate::collection::Collection;
use crate::commit::stage::Stage;
use crate::index::{Index, KeySet};
use crate::inner::Inner;
use crate::keys;
use crate::multikey::Arrays;
use muniment_query::running::Work;
use muniment_value::{Code, Doc, Result};

/// Buffers for the keys of documents, used again and again.
#[derive(Default)]
pub(crate) struct Entries {
    old: KeySet,
    new: KeySet,
}

impl Entries {
    /// Stages the difference between the entries of `old` and of `new`, when a record of the log is
    /// applied, and shows new arrays to readers. The record cannot be refused any more, so an index that
    /// cannot take its entries is closed.
    ///
    /// # Errors
    /// I/O errors.
    pub fn stage(
        &mut self,
        store: &Inner,
        stage: &mut Stage,
        collection: &Collection,
        record_key: &[u8],
        old: Option<Doc<'_>>,
        new: Option<Doc<'_>>,
    ) -> Result<()> {
        let indexes = collection.all_indexes();
        for index in indexes.iter().filter(|i| collection.maintains(i)) {
            let filled = self.old.fill(index, old, Work::unasked());
            if let Err(e) = filled.and_then(|()| self.new.fill(index, new, Work::unasked())) {
                collection.close_index(index, e.message());
                continue;
            }
            let (old, new) = (&self.old, &self.new);
            match difference(store, stage, index, old, new, record_key, false) {
                Err(e) if e.code() == Code::DataCorruptionDetected => {
                    collection.close_index(index, e.message());
                    continue;
                }
                staged => staged?,
            }
            if let Some(keys) = self.new.keys()
                && index.multikey().widen(&Arrays::of(keys))
            {
                // Plans that were made before do not know of the arrays.
                collection.bump();
            }
        }
        Ok(())
    }
}

/// Stages the difference between the entries `old` and `new`, by a merge of the two. `free`: the keys
/// that are new in a unique index are known to belong to no document.
///
/// # Errors
/// 301 DataCorruptionDetected.
pub(crate) fn difference(
    store: &Inner,
    stage: &mut Stage,
    index: &Index,
    old: &KeySet,
    new: &KeySet,
    record_key: &[u8],
    free: bool,
) -> Result<()> {
    let mut old = old.iter().peekable();
    // In an index that is being built, an entry of `old` may be there or not: the builder may not have
    // come to it yet.
    let ready = index.is_ready();
    for (key, bits) in new.iter() {
        while let Some((gone, _)) = old.next_if(|(k, _)| *k < key) {
            remove(store, stage, index, gone, record_key)?;
        }
        let before = old.next_if(|(k, _)| *k == key);
        // If only the type bits differ (1 became 1.0), the entry is written anew.
        let same = before.is_some_and(|(_, old_bits)| old_bits == bits);
        if !same || !ready {
            let fresh = ready && before.is_none() && (!index.unique() || free);
            put(stage, index, key, bits, record_key, fresh);
        }
    }
    for (gone, _) in old {
        remove(store, stage, index, gone, record_key)?;
    }
    Ok(())
}

fn put(stage: &mut Stage, index: &Index, key: &[u8], bits: &[u8], record_key: &[u8], fresh: bool) {
    stage.keys.inserted += 1;
    let mut head = [0; 10];
    if index.unique() {
        let key = stage.keep(&[key]);
        let head = keys::varint(record_key.len(), &mut head);
        let value = stage.keep(&[head, record_key, bits]);
        stage.put(index.id, key, Some(value), fresh);
    } else {
        let head = keys::varint(key.len(), &mut head);
        let key = stage.keep(&[key, record_key]);
        let value = stage.keep(&[head, bits]);
        stage.put(index.id, key, Some(value), fresh);
    }
}

fn remove(
    store: &Inner,
    stage: &mut Stage,
    index: &Index,
    key: &[u8],
    record_key: &[u8],
) -> Result<()> {
    if index.is_contested() && !holds(store, stage, index, key, record_key)? {
        // The entry is that of another document with the same key, or is not there yet.
        return Ok(());
    }
    let key = match index.unique() {
        true => stage.keep(&[key]),
        false => stage.keep(&[key, record_key]),
    };
    stage.keys.deleted += 1;
    stage.put(index.id, key, None, false);
    Ok(())
}

/// True if the entry of a unique index's key is this record's.
fn holds(
    store: &Inner,
    stage: &mut Stage,
    index: &Index,
    key: &[u8],
    record_key: &[u8],
) -> Result<bool> {
    let is = |value: &[u8]| {
        keys::get_varint(value).and_then(|(len, at)| value.get(at..at + len)) == Some(record_key)
    };
    if let Some(staged) = stage.staged(index.id, key) {
        return Ok(staged.is_some_and(is));
    }
    Ok(stage.beneath(store, index.id, key)?.is_some_and(|v| is(&v)))
}

/// The stored key and value of an index entry.
pub(crate) fn entry_of(
    index: &Index,
    key: &[u8],
    bits: &[u8],
    record_key: &[u8],
) -> (Vec<u8>, Vec<u8>) {
    let mut head = [0; 10];
    if index.unique() {
        let head = keys::varint(record_key.len(), &mut head);
        (key.to_vec(), [head, record_key, bits].concat())
    } else {
        let head = keys::varint(key.len(), &mut head);
        ([key, record_key].concat(), [head, bits].concat())
    }
}
