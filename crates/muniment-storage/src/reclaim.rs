//! Deletes what dropped collections and indexes left behind, in slices, in the background.
//!
//! A drop is one small batch: the catalog entry goes and a drop-pending record comes. The ids are
//! never given out again, so nothing here is in a hurry, and a crash loses nothing but the place.

use crate::engine::{EngineSnapshot, Space};
use crate::keys;
use crate::store::Inner;
use muniment_value::Result;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Keys deleted in one batch.
const SLICE: usize = 2_000;

impl Inner {
    /// Tells the background thread that there is something to reclaim.
    pub fn start_reclaim(&self) {
        self.reclaim.store(true, SeqCst);
        self.wake.notify_all();
    }

    pub(crate) fn reclaim_loop(&self) {
        loop {
            if self.reclaim.swap(false, SeqCst) && self.reclaim_all().is_err() {
                // A full disk, most likely: again later.
                self.reclaim.store(true, SeqCst);
            }
            if self.pause(Duration::from_millis(500)) {
                return;
            }
        }
    }

    /// Takes failed index builds away.
    fn remove_failed_builds(&self) -> Result<()> {
        while let Some((collection, index)) = self.failed_builds.lock().pop() {
            let _ddl = self.ddl.lock();
            let _alone = collection.ddl.write();
            let there = collection.all_indexes().iter().any(|i| i.id == index.id);
            if there
                && !collection.is_dropped()
                && let Err(e) = self.remove_index(&collection, &index)
            {
                self.failed_builds.lock().push((collection.clone(), index));
                return Err(e);
            }
        }
        Ok(())
    }

    fn reclaim_all(&self) -> Result<()> {
        self.remove_failed_builds()?;
        loop {
            let pending = {
                let snapshot = EngineSnapshot::new(self.engine()?);
                snapshot
                    .range(Space::Meta, vec![b'd'], vec![b'd' + 1])
                    .next()?
            };
            let Some((record, _)) = pending else {
                return Ok(());
            };
            let space = match record.get(1) {
                Some(b'D') => Space::Docs,
                _ => Space::Index,
            };
            let Some(id) = record
                .get(2..)
                .and_then(|b| <[u8; 4]>::try_from(b).ok())
                .map(u32::from_be_bytes)
            else {
                return Ok(());
            };
            let mut low = keys::prefix(id).to_vec();
            while let Some(last) = self.reclaim_slice(space, low, keys::end_of(id, &[]))? {
                low = last;
                if self.pause(Duration::from_millis(5)) {
                    return Ok(());
                }
            }
            let engine = self.engine()?;
            self.admit(&engine, 16)?;
            let _gate = self.gate.read();
            let mut batch = engine.batch(1);
            batch.delete(Space::Meta, record);
            batch.commit().inspect_err(|_| self.write_failed())?;
            self.journal.committed();
        }
    }

    /// Deletes up to [`SLICE`] keys; returns the last of them, `None` when the range is empty.
    fn reclaim_slice(&self, space: Space, low: Vec<u8>, high: Vec<u8>) -> Result<Option<Vec<u8>>> {
        let engine = self.engine()?;
        self.admit(&engine, SLICE * 32)?;
        let mut found = Vec::with_capacity(SLICE);
        {
            let mut keys = EngineSnapshot::new(engine.clone()).range(space, low, high);
            while found.len() < SLICE {
                match keys.next()? {
                    Some((key, _)) => found.push(bytes::Bytes::copy_from_slice(&key)),
                    None => break,
                }
            }
        }
        let Some(last) = found.last().map(|k| k.to_vec()) else {
            return Ok(None);
        };
        let _gate = self.gate.read();
        let mut batch = engine.batch(found.len());
        for key in found {
            batch.delete(space, key);
        }
        batch.commit().inspect_err(|_| self.write_failed())?;
        self.journal.committed();
        Ok(Some(last))
    }
}
