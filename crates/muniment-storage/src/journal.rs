//! The log of an open store: where it is, how often it is synced, and how it is opened anew.
//!
//! After a failed sync the log takes no more records, because nobody can know whether what it had
//! written is durable. It is opened anew in place: what is there is read, written again and synced.
//! Until that has worked there is no log, and operations that need one fail with 14031.
//!
//! Invariants: a thread that holds the log ([`Journal::hold`]) finds the same one until it lets go; a
//! log that was opened anew ends where the former one ended for its writers. Only the commit door
//! appends (`commit`), and a follower's part of it (`follow`).

use muniment_io::SpreadLock;
use muniment_log::{Log, LogOptions, Position};
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use parking_lot::lock_api::RwLockReadGuard;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// The log and what opens it anew.
pub(crate) struct Journal {
    /// Replaced when it is opened anew after a fault.
    log: SpreadLock<Option<Arc<Log>>>,
    options: LogOptions,
    /// The store's directory, for messages.
    path: PathBuf,
    /// The last record of a log that is being opened anew.
    acknowledged: Mutex<Position>,
    /// See `Store::set_journal_commit_interval`.
    interval_ms: AtomicU64,
    /// Why the log could not be trimmed, until it can be again.
    trim_failure: Mutex<Option<Error>>,
}

impl Journal {
    /// A journal without a log yet, with the options to open one.
    pub fn new(options: LogOptions, path: &Path) -> Journal {
        Journal {
            log: SpreadLock::default(),
            options,
            path: path.to_path_buf(),
            acknowledged: Mutex::default(),
            interval_ms: AtomicU64::new(100),
            trim_failure: Mutex::default(),
        }
    }

    /// Sets the log that was opened.
    pub fn set(&mut self, log: Log) {
        *self.log.get_mut() = Some(Arc::new(log));
    }

    /// The log, which may be opened anew meanwhile.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace while it cannot be opened anew after a failure.
    pub fn log(&self) -> Result<Arc<Log>> {
        self.log.read().clone().ok_or_else(|| self.missing())
    }

    /// The log, which is not replaced while the result lives.
    ///
    /// # Errors
    /// As [`Journal::log`].
    #[inline]
    pub fn hold(&self) -> Result<impl Deref<Target = Log>> {
        let held = RwLockReadGuard::try_map(self.log.read(), Option::as_deref);
        held.map_err(|_| self.missing())
    }

    /// The error while there is no log.
    #[cold]
    fn missing(&self) -> Error {
        Error::new(
            Code::OutOfDiskSpace,
            format!(
                "writes in {} are refused: the log could not be opened anew since a write to the \
                 disk failed",
                self.path.display()
            ),
        )
    }

    /// The error for a client whose record could not be appended.
    pub fn refused(&self, e: Error) -> Error {
        match e.code() {
            Code::OutOfDiskSpace => e.context(&format!(
                "out of disk space in {}: the write was refused: ",
                self.path.display()
            )),
            _ => e,
        }
    }

    /// How long a segment is.
    pub fn segment_bytes(&self) -> u64 {
        self.options.segment_bytes
    }

    /// How often the log is synced.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.load(SeqCst))
    }

    /// Sets how often the log is synced, within 1 to 500 ms.
    pub fn set_interval(&self, interval: Duration) {
        let ms = (interval.as_millis() as u64).clamp(1, 500);
        self.interval_ms.store(ms, SeqCst);
    }

    /// Notes whether the log could be trimmed.
    pub fn note_trimmed(&self, trimmed: &Result<()>) {
        *self.trim_failure.lock() = trimmed.as_ref().err().cloned();
    }

    /// What is wrong with the log at the moment.
    pub fn trouble(&self) -> Option<Error> {
        let log = match self.log() {
            Ok(log) => log.failure(),
            Err(e) => Some(e),
        };
        log.or_else(|| self.trim_failure.lock().clone())
    }

    /// Syncs the log if there is something to sync. An error is not lost: the log keeps it for the
    /// threads that wait for durability.
    pub fn sync_if_dirty(&self) {
        if let Ok(log) = self.log()
            && log.is_dirty()
        {
            let _ = log.sync();
        }
    }

    /// True if there is a log that takes records.
    pub fn works(&self) -> bool {
        self.log().is_ok_and(|log| log.failure().is_none())
    }

    /// Opens the log anew. No thread can commit meanwhile, nor while there is no log.
    ///
    /// # Errors
    /// I/O errors; 1 if the log has lost records that writers were told are in it.
    pub fn reopen(&self) -> Result<()> {
        let mut slot = self.log.write();
        if let Some(old) = slot.take() {
            let last = old.last();
            match Arc::try_unwrap(old) {
                // The file has what the disk has: nothing more may be written through the old log.
                Ok(old) => old.abandon(),
                // Other threads still use the old log, and will learn of the failure from it.
                Err(old) => {
                    *slot = Some(old);
                    return Ok(());
                }
            }
            *self.acknowledged.lock() = last;
        }
        let Position { index, at, .. } = *self.acknowledged.lock();
        // A record that was refused when the disk failed in the middle of it is left out, even if it
        // turns out to be there: since then, write units have read what they change without it.
        let options = LogOptions {
            until: Some(index),
            ..self.options.clone()
        };
        let log = Log::open(options, at, &mut |record| {
            Err(Error::internal(format!(
                "record {} of the log was never acknowledged",
                record.index
            )))
        })?;
        if log.last().index < index {
            return Err(Error::internal(format!(
                "the log ends at record {}, but {index} were written",
                log.last().index
            )));
        }
        *slot = Some(Arc::new(log));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::{all, insert, open};
    use crate::{CollectionOptions, Timestamp, WriteUnit};
    use muniment_op::NeverInterrupted;
    use muniment_value::{Value, doc};

    /// A disk may have written what it reported as failed.
    #[test]
    fn what_was_refused_is_not_there_when_the_log_is_opened_anew() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let inner = &store.inner;
        let options = CollectionOptions::default();
        let c = store.create_collection("db.c", options, &NeverInterrupted);
        let c = c.unwrap();
        insert(&store, &c, doc! { "_id": 1 }).unwrap();
        let log = inner.journal.log().unwrap();
        let payload = {
            let mut reader = log.read(Timestamp::ZERO);
            let mut last = Vec::new();
            while let Some(record) = reader.next().unwrap() {
                last = record.payload.to_vec();
            }
            last
        };
        drop(log);
        let remove = |unit: &mut WriteUnit<'_>| {
            let (key, old) = unit.lock_by_id(Value::Int32(1)).unwrap().unwrap().unwrap();
            unit.delete(&key, &old).unwrap().unwrap();
        };
        let mut unit = store.write_unit(&c, &NeverInterrupted).unwrap();
        remove(&mut unit);
        unit.commit().unwrap();
        // This unit has seen that there is no document, and is committed later.
        let mut staged = store.write_unit(&c, &NeverInterrupted).unwrap();
        let d = doc! { "_id": 1, "second": true }.into_bytes();
        staged.insert(&d).unwrap().unwrap();
        {
            let mut slot = inner.journal.log.write();
            let mut old = slot.take().unwrap();
            let last = old.last();
            *inner.journal.acknowledged.lock() = last;
            old.append(0, Timestamp(last.at.0 + 1), &[&payload])
                .unwrap();
            while let Err(held) = Arc::try_unwrap(old).map(Log::abandon) {
                std::thread::sleep(Duration::from_millis(1));
                old = held;
            }
        }
        // The thread that syncs may open it first.
        let opened = (0..500).any(|_| {
            let _ = inner.journal.reopen();
            std::thread::sleep(Duration::from_millis(2));
            inner.journal.log().is_ok()
        });
        assert!(opened);
        assert_eq!(c.count(), 0);
        staged.commit().unwrap();
        assert_eq!((all(&store, &c).len(), c.count()), (1, 1));
        store.close().unwrap();
        drop((c, store));
        let store = open(dir.path());
        let c = store.collection("db.c").unwrap();
        assert_eq!((all(&store, &c).len(), c.count()), (1, 1));
    }

    #[test]
    fn who_reads_goes_on_in_a_log_that_was_opened_anew() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let inner = &store.inner;
        let options = CollectionOptions::default();
        let c = store
            .create_collection("db.c", options, &NeverInterrupted)
            .unwrap();
        let mut entries = store.log_entries(store.visible()).unwrap();
        insert(&store, &c, doc! { "_id": 1 }).unwrap();
        assert!(entries.next().unwrap().is_some());
        store.sync().unwrap();
        let opened = (0..500).any(|_| {
            let _ = inner.journal.reopen();
            std::thread::sleep(Duration::from_millis(2));
            inner.journal.log().is_ok()
        });
        assert!(opened);
        for i in 2..5 {
            insert(&store, &c, doc! { "_id": i }).unwrap();
            assert!(entries.next().unwrap().is_some(), "{i}");
            assert!(entries.next().unwrap().is_none());
        }
    }
}
