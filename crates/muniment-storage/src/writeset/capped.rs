//! Inserts into a capped collection: keyed by their order, the oldest go.

use super::{Attempt, WriteSet};
use crate::engine::Space;
use crate::keys;
use crate::latch::{self, Tried};
use crate::snapshot::{Direction, DocCursor, KeyRange};
use bytes::Bytes;
use muniment_value::{Doc, Result};
use std::sync::atomic::Ordering::SeqCst;

impl WriteSet<'_> {
    pub(super) fn try_insert_capped(&mut self, doc: &Bytes, wait: bool) -> Result<Attempt> {
        if self.capped_order.is_none() {
            let order = &self.collection.capped_order;
            self.capped_order = if wait {
                Some(order.lock_arc())
            } else {
                order.try_lock_arc()
            };
            if self.capped_order.is_none() {
                return Ok(Attempt::Again);
            }
        }
        let options = self.collection.options();
        let size = options.capped_size.unwrap_or(u64::MAX) as i64;
        let max = options.capped_max.unwrap_or(i64::MAX as u64) as i64;
        // What must go is looked for among what is committed, so a set that would push its own
        // inserts out is split.
        let docs = self.collection.docs.load(SeqCst) as i64 + self.docs + 1;
        let bytes = self.collection.bytes.load(SeqCst) as i64 + self.bytes + doc.len() as i64;
        if self.batch.is_some() && (docs > max || bytes > size) {
            return Ok(Attempt::Again);
        }
        let sequence = {
            let mut append = self.collection.append.lock();
            if append.max.is_none() {
                append.max = Some(
                    self.store
                        .greatest_record_key(&self.engine, &self.collection)?,
                );
            }
            let last = append
                .max
                .as_deref()
                .and_then(|m| <[u8; 8]>::try_from(m).ok())
                .map_or(0, u64::from_be_bytes);
            last + 1
        };
        let record_key = sequence.to_be_bytes();
        if self.stage_entries(Doc::new(doc), &record_key, None, None, wait)? == Attempt::Again {
            return Ok(Attempt::Again);
        }
        self.collection.append.lock().max = Some(record_key.to_vec());
        let full = Bytes::from(keys::join(self.collection.id, &record_key));
        self.stage_doc(full, doc.clone(), 1, doc.len() as i64);
        self.inserted += 1;
        self.evict(size, max)?;
        Ok(Attempt::Done)
    }

    /// Deletes the oldest documents until the collection is within its limits. A document that a
    /// client holds just now is left for the next insert.
    fn evict(&mut self, size: i64, max: i64) -> Result<()> {
        loop {
            let docs = self.collection.docs.load(SeqCst) as i64 + self.docs;
            let bytes = self.collection.bytes.load(SeqCst) as i64 + self.bytes;
            // The newest stays, also one that is larger than the limit.
            if docs <= 1 || (docs <= max && bytes <= size) {
                return Ok(());
            }
            if self.eviction.is_none() {
                let snapshot = crate::Snapshot::new(Some(crate::engine::EngineSnapshot::new(
                    self.engine.clone(),
                )));
                self.eviction =
                    Some(snapshot.docs(&self.collection, &KeyRange::all(), Direction::Forward));
            }
            let Some((record_key, _)) = self.eviction.as_mut().map_or(Ok(None), DocCursor::next)?
            else {
                if self.batch.is_none() {
                    return Ok(());
                }
                // The oldest are among what is staged here: they can go once they are visible.
                self.commit_staged(None)?;
                self.eviction = None;
                continue;
            };
            let full = keys::join(self.collection.id, &record_key);
            let hash = latch::record_hash(&full);
            if self.store.latches.try_lock(hash, self.owner) != Tried::Taken {
                continue;
            }
            self.held.push(hash);
            if let Some(newest) = self.engine.newest(Space::Docs, &full)? {
                self.delete(&record_key, &newest)?;
            }
        }
    }
}
