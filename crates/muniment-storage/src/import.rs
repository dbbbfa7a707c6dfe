//! Fills a new directory with the state of another store (`export`): tables are written straight from
//! the rows, and the log begins after their position.
//!
//! The catalog comes last and with it the cut. A directory that was not filled to its end has neither,
//! and the member that began to fill it throws it away.

use crate::catalog::Entry;
use crate::catalog::names::{totals_bytes, totals_of};
use crate::export::{Chunk, id_of};
use crate::keys;
use crate::lockfile::DirLock;
use crate::options::{Budget, EngineKind, StoreOptions};
use crate::store::{Store, damaged};
use bytes::Bytes;
use muniment_log::{Log, LogOptions, Position};
use muniment_op::NeverInterrupted;
use muniment_tree::lsm::{LsmOptions, LsmTrees};
use muniment_tree::{Op, TreeId, Trees};
use muniment_value::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The counts of a tree.
#[derive(Clone, Copy, Default)]
struct Counted {
    rows: u64,
    bytes: u64,
    /// The last key as a number, if it has a number's length.
    last: u64,
}

/// Passes on the rows of the chunks, and keeps those of the catalog.
struct Rows<I> {
    chunks: I,
    tree: u32,
    rows: std::vec::IntoIter<(Bytes, Bytes)>,
    counted: HashMap<u32, Counted>,
    meta: Vec<(Bytes, Bytes)>,
    /// The last chunk has come.
    ended: bool,
}

impl<I: Iterator<Item = Result<Chunk>>> Rows<I> {
    fn next(&mut self) -> Result<Option<(TreeId, Bytes, Bytes)>> {
        loop {
            if let Some((key, value)) = self.rows.next() {
                let counted = self.counted.entry(self.tree).or_default();
                counted.rows += 1;
                counted.bytes += value.len() as u64;
                if let Some(n) = crate::collection::number_of(&key) {
                    counted.last = n;
                }
                return Ok(Some((TreeId(self.tree), key, value)));
            }
            match self.chunks.next().transpose()? {
                None => return Ok(None),
                Some(chunk) if chunk.is_of_catalog() && !self.ended => {
                    self.ended = chunk.last;
                    self.meta.extend(chunk.rows);
                }
                Some(chunk) if self.ended || chunk.last || !self.meta.is_empty() => {
                    return Err(Error::internal("the catalog is not the last of the chunks"));
                }
                Some(chunk) => {
                    self.tree = chunk.tree;
                    self.rows = chunk.rows.into_iter();
                }
            }
        }
    }

    /// The rows of the catalog, with the totals as they were counted. Every collection gets totals,
    /// whether or not a cut had written any.
    fn meta(&mut self, path: &Path) -> Result<Vec<(Bytes, Bytes)>> {
        if !self.ended {
            let what = "the chunks ended before all of the catalog came";
            return Err(Error::internal(what));
        }
        let rows = std::mem::take(&mut self.meta);
        let mut meta: BTreeMap<Bytes, Bytes> = rows.into_iter().collect();
        let mut counted = Vec::new();
        for (key, entry) in meta.iter().filter(|(key, _)| key.first() == Some(&b'c')) {
            let id = id_of(key).ok_or_else(|| damaged(path, "the key of a catalog entry"))?;
            let entry = Entry::read(entry, id, &NeverInterrupted);
            let found = self.counted.get(&id).copied().unwrap_or_default();
            let seen = match entry.options.numbers_records() {
                true => found.last,
                false => 0,
            };
            let totals = Bytes::from(keys::totals(id));
            let [_, _, last] = totals_of(meta.get(&totals).map(|v| &**v));
            let value = totals_bytes([found.rows, found.bytes, last.max(seen)]);
            counted.push((totals, Bytes::from(value)));
        }
        meta.extend(counted);
        Ok(meta.into_iter().collect())
    }
}

impl Store {
    /// Fills a new directory with the chunks of [`Store::export`], which are the state at `position`.
    /// Everything is durable when this returns; the directory can be opened then, and its log goes on
    /// after the position.
    ///
    /// # Errors
    /// If the directory is not empty, the engine keeps nothing on disk, or the chunks are not all of a
    /// state; an error from `chunks`; 98 DBPathInUse; 14031 OutOfDiskSpace, I/O errors. The directory is
    /// of no use then.
    pub fn import(
        options: &StoreOptions,
        position: Position,
        chunks: impl Iterator<Item = Result<Chunk>>,
    ) -> Result<()> {
        let _lock = DirLock::acquire(&options.path, options.engine, &[])?;
        Store::import_locked(options, position, chunks)
    }

    /// The same for a caller that holds the directory's lock already, or whose disk is shared with no
    /// other process and has no locks.
    ///
    /// # Errors
    /// As [`Store::import`].
    pub fn import_locked(
        options: &StoreOptions,
        position: Position,
        chunks: impl Iterator<Item = Result<Chunk>>,
    ) -> Result<()> {
        if options.engine != EngineKind::Lsm {
            return Err(Error::internal("only an engine with files can be filled"));
        }
        let log = LogOptions {
            begins_after: Some(position),
            disk: options.machine.disk.clone(),
            background: options.machine.threads,
            ..LogOptions::new(&options.path.join("log"))
        };
        let log = Log::open(log, position.at, &mut |_| Ok(()))?;
        if log.last() != position {
            return Err(Error::internal(
                "there is a log already in the directory to be filled",
            ));
        }
        drop(log);
        let budget = Budget::of(options.cache_bytes);
        let trees = LsmTrees::open(LsmOptions {
            cache_bytes: budget.block_cache,
            memtable_bytes: budget.memtable,
            disk: options.machine.disk.clone(),
            clock: options.machine.clock.clone(),
            background: options.machine.threads,
            ..LsmOptions::new(options.path.join("trees"))
        })?;
        let mut rows = Rows {
            chunks,
            tree: 0,
            rows: Vec::new().into_iter(),
            counted: HashMap::new(),
            meta: Vec::new(),
            ended: false,
        };
        trees.load(position.at, &mut || rows.next())?;
        let meta = rows.meta(&options.path)?;
        let batch = meta.into_iter().map(|(key, value)| Op {
            tree: TreeId(keys::META),
            key,
            value: Some(value),
            fresh: false,
        });
        trees.apply(batch.collect(), position.at);
        trees.views().advance(position.at);
        trees.seal(position.at)?;
        trees.flush()?;
        trees.close();
        Ok(())
    }
}
