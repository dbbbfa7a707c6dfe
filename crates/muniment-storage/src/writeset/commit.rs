//! The commit of a write set: the collection's totals and multikey paths go into the same batch as
//! its documents and entries; then the latches are given back.

use super::WriteSet;
use crate::engine::{Batch, Space};
use crate::store::CommitId;
use bytes::Bytes;
use muniment_value::Result;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::Ordering::SeqCst;

impl WriteSet<'_> {
    /// Commits what is staged and releases every latch but `keep`.
    pub(super) fn commit_staged(&mut self, keep: Option<u64>) -> Result<()> {
        let result = match self.batch.take() {
            None => Ok(()),
            Some(batch) => self.write(batch),
        };
        self.release(keep);
        let inserted = std::mem::take(&mut self.inserted);
        if result.is_ok() && inserted > 0 {
            self.collection.notify_inserts(inserted);
        }
        result
    }

    fn write(&mut self, mut batch: Batch) -> Result<()> {
        self.store.admit(&self.engine, self.staged_bytes)?;
        let _gate = self.store.gate.read();
        let collection = &self.collection;
        let mut state = lock_soon(&collection.commit);
        // Nobody else changes the totals while we hold the mutex.
        let docs = collection
            .docs
            .load(SeqCst)
            .saturating_add_signed(self.docs);
        let bytes = collection
            .bytes
            .load(SeqCst)
            .saturating_add_signed(self.bytes);
        if self.docs != 0 || self.bytes != 0 {
            let mut totals = [0u8; 16];
            totals[..8].copy_from_slice(&docs.to_le_bytes());
            totals[8..].copy_from_slice(&bytes.to_le_bytes());
            batch.put(
                Space::Meta,
                Bytes::copy_from_slice(&self.totals_key),
                Bytes::copy_from_slice(&totals),
            );
        }
        for (index, arrays) in &mut self.widened {
            // Readers see it before the data: a plan made in between is only more careful.
            index.multikey().widen(arrays);
            collection.bump();
            for (key, value) in arrays.entries(index.id) {
                batch.put(Space::Meta, key, value);
            }
        }
        batch.commit().inspect_err(|_| self.store.write_failed())?;
        collection.docs.store(docs, SeqCst);
        collection.bytes.store(bytes, SeqCst);
        for (index, arrays) in &self.widened {
            index.multikey().saved(arrays);
        }
        for written in state.dirty.values_mut() {
            written.extend(self.dirty.iter().cloned());
        }
        self.last = Some(CommitId(self.store.journal.committed()));
        Ok(())
    }

    /// Forgets what was staged and gives back every latch but `keep`.
    pub(super) fn release(&mut self, keep: Option<u64>) {
        self.batch = None;
        self.staged_bytes = 0;
        self.docs = 0;
        self.bytes = 0;
        self.removed_unique = false;
        self.dirty.clear();
        self.widened.clear();
        self.eviction = None;
        self.capped_order = None;
        if self.appending {
            self.appending = false;
            let mut append = self.collection.append.lock();
            append.runs.retain(|r| r.owner != self.owner);
            drop(append);
            self.collection.append_done.notify_all();
        }
        let mut kept = None;
        for hash in self.held.drain(..) {
            if Some(hash) == keep {
                kept = keep;
            } else {
                self.store.latches.unlock(hash);
            }
        }
        self.held.extend(kept);
    }
}

impl Drop for WriteSet<'_> {
    fn drop(&mut self) {
        self.release(None);
    }
}

/// Locks a mutex that is held for microseconds: tries for about as long as a commit takes before
/// it sleeps, because going to sleep and being woken costs more than the commit.
fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    const ROUNDS: u32 = 40;
    for _ in 0..ROUNDS {
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        for _ in 0..8 {
            std::hint::spin_loop();
        }
    }
    mutex.lock()
}
