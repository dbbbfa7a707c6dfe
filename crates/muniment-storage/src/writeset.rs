//! Write sets: the one path of all writes.
//!
//! A write set holds the collection's shared DDL lock and the latches of the records (and unique
//! keys) it touches, from the moment a record is locked until the commit is visible. It never
//! waits for a latch while it holds others: where it would have to, [`WriteSet::lock`] first
//! commits what is staged, so a batch is split there (MongoDB's batches are not atomic either;
//! each document is).

use crate::store::CommitId;
use bytes::Bytes;
use muniment_value::{DocBuf, Error, Result};

/// Staged changes of one collection.
pub struct WriteSet<'s> {
    _store: std::marker::PhantomData<&'s ()>,
}

/// A unique index said no.
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
}

impl DuplicateKey {
    /// The error: 11000 "E11000 duplicate key error collection: db.c index: x_1 dup key: { x: 1 }"
    /// with keyPattern and keyValue.
    pub fn to_error(&self) -> Error {
        todo!()
    }
}

impl WriteSet<'_> {
    /// Latches one record and returns its newest document (`None`: there is none). All reads
    /// that decide about a write of this record come after this call.
    ///
    /// # Errors
    /// As a commit's, when staged changes had to be committed first.
    pub fn lock(&mut self, record_key: &[u8]) -> Result<Option<Bytes>> {
        let _ = record_key;
        todo!()
    }

    /// Stages the insert of a complete document (with `_id`, validated). Latches what it needs.
    /// When a key exists already nothing is staged for this document.
    ///
    /// # Errors
    /// 11000 DuplicateKey (made by [`DuplicateKey::to_error`]), 171, 10003-like for capped.
    pub fn insert(&mut self, doc: Bytes) -> Result<()> {
        let _ = doc;
        todo!()
    }

    /// Stages the replacement of `old`, which [`WriteSet::lock`] returned for this key, by `new`
    /// with the same `_id`. `touched(path)` false promises that the values at the path are the
    /// same, so that its indexes are left alone.
    ///
    /// # Errors
    /// As [`WriteSet::insert`].
    pub fn update(
        &mut self,
        record_key: &[u8],
        old: &Bytes,
        new: Bytes,
        touched: &dyn Fn(&str) -> bool,
    ) -> Result<()> {
        let _ = (record_key, old, new, touched);
        todo!()
    }

    /// Stages the deletion of `old`, which [`WriteSet::lock`] returned for this key.
    ///
    /// # Errors
    /// 171 cannot happen for a stored document; I/O errors.
    pub fn delete(&mut self, record_key: &[u8], old: &Bytes) -> Result<()> {
        let _ = (record_key, old);
        todo!()
    }

    /// Bytes staged: callers commit before this grows past a few MiB.
    pub fn staged_bytes(&self) -> usize {
        todo!()
    }

    /// Commits atomically: on return the changes are visible and written to the journal file
    /// (not synced). The latches are released. `None` when nothing was ever staged.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace or I/O errors: nothing of what was staged is visible.
    pub fn commit(self) -> Result<Option<CommitId>> {
        todo!()
    }
}
