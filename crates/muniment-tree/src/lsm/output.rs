//! Writes the merged versions into tables.

use super::manifest::table_path;
use super::shared::Shared;
use super::state::Run;
use super::table::{Table, TableWriter, tree_of};
use muniment_io::Timestamp;
use muniment_value::Result;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A table ends when it overlaps this many times its size in the level beneath, so that its later merge need
/// not read more than that.
const OVERLAP: u64 = 8;

/// Writes tables of one level. All versions of a key go into one table.
///
/// Unless [`Output::finish`] succeeds, dropping it removes the files.
pub(crate) struct Output<'a> {
    shared: &'a Shared,
    target: u64,
    parts: u64,
    /// The level beneath, and how far it was passed.
    beneath: Run,
    passed: usize,
    overlap: u64,
    /// Keys that no table may reach across: the ends of the job's spans.
    ends: Vec<Vec<u8>>,
    written: &'a AtomicU64,
    writer: Option<TableWriter>,
    /// The tables that are complete.
    tables: Vec<Arc<Table>>,
    paths: Vec<PathBuf>,
    done: bool,
}

impl<'a> Output<'a> {
    /// Output for a level (0: a fresh run). `ends` must ascend.
    pub(crate) fn new(
        shared: &'a Shared,
        level: usize,
        beneath: Run,
        mut ends: Vec<Vec<u8>>,
        written: &'a AtomicU64,
    ) -> Output<'a> {
        ends.reverse();
        Output {
            shared,
            target: shared.options.target(level),
            parts: shared.options.parts(level),
            beneath,
            passed: 0,
            overlap: 0,
            ends,
            written,
            writer: None,
            tables: Vec::new(),
            paths: Vec::new(),
            done: false,
        }
    }

    /// Adds a version. They must come by key ascending, then newest first.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace; I/O errors.
    pub(crate) fn add(&mut self, key: &[u8], at: Timestamp, value: Option<&[u8]>) -> Result<()> {
        if let Some(writer) = &self.writer
            && writer.last_key() != key
            && self.ends_before(key)
        {
            self.end_table()?;
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                self.overlap = 0;
                self.passed = self.beneath.position(key);
                while self.ends.last().is_some_and(|end| &end[..] < key) {
                    self.ends.pop();
                }
                let options = &self.shared.options;
                let id = self.shared.next_table.fetch_add(1, SeqCst);
                let path = table_path(&options.dir, id);
                self.paths.push(path.clone());
                self.writer.insert(TableWriter::create(
                    &*options.disk,
                    path,
                    id,
                    options.block_bytes,
                    options.sync_bytes,
                )?)
            }
        };
        writer.add(key, at, value)
    }

    /// The bytes written since the start, or since the last `take`, approximately.
    pub(crate) fn bytes(&self) -> u64 {
        let done: u64 = self.tables.iter().map(|t| t.size()).sum();
        done + self.writer.as_ref().map_or(0, TableWriter::size)
    }

    /// True if a table may end before `key`, which must not be smaller than the last key.
    pub(crate) fn may_end_before(&self, key: &[u8]) -> bool {
        self.writer.as_ref().is_none_or(|w| w.last_key() != key)
    }

    /// The tables so far, which are durable except for their names. The output continues with another table,
    /// and no longer removes these when it is dropped.
    ///
    /// # Errors
    /// As [`Output::add`].
    pub(crate) fn take(&mut self) -> Result<Vec<Arc<Table>>> {
        self.end_table()?;
        self.paths.clear();
        Ok(std::mem::take(&mut self.tables))
    }

    fn ends_before(&mut self, key: &[u8]) -> bool {
        let Some(writer) = &self.writer else {
            return false;
        };
        let size = writer.size();
        while let Some(table) = self.beneath.0.get(self.passed)
            && table.last() < key
        {
            self.overlap += table.len();
            self.passed += 1;
        }
        size >= self.target
            || self.ends.last().is_some_and(|end| &end[..] < key)
            || size >= self.parts && tree_of(writer.last_key()) != tree_of(key)
            || self.overlap > OVERLAP * self.target
    }

    fn end_table(&mut self) -> Result<()> {
        let Some(mut writer) = self.writer.take() else {
            return Ok(());
        };
        let written = writer.finish()?;
        self.written.fetch_add(written.size, SeqCst);
        let table = self.shared.open_table(
            writer.path().to_path_buf(),
            written.id,
            (written.size, written.crc),
        )?;
        self.tables.push(Arc::new(table));
        Ok(())
    }

    /// The tables, which are durable except for their names.
    ///
    /// # Errors
    /// As [`Output::add`].
    pub(crate) fn finish(mut self) -> Result<Vec<Arc<Table>>> {
        let tables = self.take()?;
        self.done = true;
        Ok(tables)
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        if !self.done {
            for path in self.paths.drain(..) {
                self.shared.trash.throw(path);
            }
            self.shared.trash.empty();
        }
    }
}
