//! Merges the versions of several sources in one order, and decides which are kept.

use super::dropped::Dropped;
use super::state::Run;
use super::table::{Scan, TREE, Table, tree_of};
use crate::TreeId;
use crate::memtable::{MemTable, Version};
use crate::views::Needed;
use muniment_io::Timestamp;
use muniment_value::Result;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

/// How many keys are copied from a memtable at once.
const BATCH: usize = 256;

/// A source of versions, sorted by key ascending, then newest first.
pub(crate) enum Source {
    Memory(FromMemory),
    Tables(FromTables),
}

/// The versions of a sealed memtable.
pub(crate) struct FromMemory {
    mem: Arc<MemTable>,
    trees: VecDeque<TreeId>,
    batch: Vec<Version>,
    place: usize,
    more: bool,
    begun: bool,
    key: Vec<u8>,
}

/// The versions of a run's tables.
pub(crate) struct FromTables {
    rest: VecDeque<Arc<Table>>,
    scan: Option<Scan>,
}

impl Source {
    pub(crate) fn memory(mem: Arc<MemTable>) -> Source {
        Source::Memory(FromMemory {
            trees: mem.trees().into(),
            mem,
            batch: Vec::new(),
            place: 0,
            more: false,
            begun: false,
            key: Vec::new(),
        })
    }

    pub(crate) fn tables(tables: Vec<Arc<Table>>) -> Source {
        Source::Tables(FromTables {
            rest: tables.into(),
            scan: None,
        })
    }

    fn step(&mut self) -> Result<bool> {
        match self {
            Source::Memory(m) => Ok(m.step()),
            Source::Tables(t) => t.step(),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Source::Memory(m) => &m.key,
            Source::Tables(t) => t.scan.as_ref().map_or(&[], Scan::key),
        }
    }

    fn at(&self) -> Timestamp {
        match self {
            Source::Memory(m) => m.batch.get(m.place).map_or(Timestamp::ZERO, |v| v.at),
            Source::Tables(t) => t.scan.as_ref().map_or(Timestamp::ZERO, Scan::at),
        }
    }

    fn value(&self) -> Option<&[u8]> {
        match self {
            Source::Memory(m) => m.batch.get(m.place)?.value.as_deref(),
            Source::Tables(t) => t.scan.as_ref()?.value(),
        }
    }
}

impl FromMemory {
    fn step(&mut self) -> bool {
        self.place += 1;
        loop {
            if let (Some(version), Some(tree)) = (self.batch.get(self.place), self.trees.front()) {
                if self.place == 0 || self.key.get(TREE..) != Some(&version.key[..]) {
                    self.key.clear();
                    self.key.extend_from_slice(&tree.0.to_be_bytes());
                    self.key.extend_from_slice(&version.key);
                }
                return true;
            }
            let after = self.batch.pop().filter(|_| self.more).map(|v| v.key);
            if after.is_none() && self.begun {
                self.trees.pop_front();
            }
            self.begun = true;
            self.batch.clear();
            self.place = 0;
            let Some(tree) = self.trees.front() else {
                return false;
            };
            self.more = self
                .mem
                .dump(*tree, after.as_deref(), BATCH, &mut self.batch);
        }
    }
}

impl FromTables {
    fn step(&mut self) -> Result<bool> {
        loop {
            if let Some(scan) = &mut self.scan
                && scan.step()?
            {
                return Ok(true);
            }
            match self.rest.pop_front() {
                Some(table) => self.scan = Some(Scan::new(&table)),
                None => {
                    self.scan = None;
                    return Ok(false);
                }
            }
        }
    }
}

/// A version: its internal key, timestamp and value.
type Seen<'a> = (&'a [u8], Timestamp, Option<&'a [u8]>);

/// Several sources merged into one.
pub(crate) struct Merge {
    /// The sources, newest first.
    sources: Vec<Source>,
    /// The sources that are not at their end, by key; of equal keys the newer source comes first.
    order: Vec<usize>,
    begun: bool,
}

impl Merge {
    /// A merge of these sources, newest first.
    pub(crate) fn new(sources: Vec<Source>) -> Merge {
        Merge {
            sources,
            order: Vec::new(),
            begun: false,
        }
    }

    /// Goes to the next version, by key ascending, then newest first. Returns false at the end.
    ///
    /// # Errors
    /// Those of a source.
    pub(crate) fn step(&mut self) -> Result<bool> {
        if !self.begun {
            self.begun = true;
            for i in 0..self.sources.len() {
                if self.sources[i].step()? {
                    self.order.push(i);
                }
            }
            let sources = &self.sources;
            self.order
                .sort_by(|a, b| sources[*a].key().cmp(sources[*b].key()).then(a.cmp(b)));
        } else if let Some(first) = self.order.first().copied() {
            if !self.sources[first].step()? {
                self.order.remove(0);
            }
            let mut i = 0;
            while let (Some(a), Some(b)) = (self.order.get(i), self.order.get(i + 1)) {
                let order = self.sources[*a].key().cmp(self.sources[*b].key());
                if order.then(a.cmp(b)) != Ordering::Greater {
                    break;
                }
                self.order.swap(i, i + 1);
                i += 1;
            }
        }
        Ok(!self.order.is_empty())
    }

    /// The current version.
    pub(crate) fn version(&self) -> Option<Seen<'_>> {
        let source = self.sources.get(*self.order.first()?)?;
        Some((source.key(), source.at(), source.value()))
    }
}

/// Decides which versions of a merge are kept.
pub(crate) struct Keep {
    needed: Needed,
    dropped: Dropped,
    /// Trees that were dropped at or below this cut are gone.
    cut: Timestamp,
    /// The runs that are older than everything which is merged, and how far each was passed.
    beneath: Vec<(Run, usize)>,
    key: Vec<u8>,
    /// The timestamp of the previous version, if that was of the same key.
    newer: Option<Timestamp>,
    tree: Option<(TreeId, bool)>,
}

impl Keep {
    /// Keeps the versions that `needed` asks for, and none of trees that were dropped at or below `cut`.
    /// `beneath` must have every table that is no source and may have older versions.
    pub(crate) fn new(needed: Needed, dropped: Dropped, cut: Timestamp, beneath: Vec<Run>) -> Keep {
        Keep {
            needed,
            dropped,
            cut,
            beneath: beneath.into_iter().map(|run| (run, 0)).collect(),
            key: Vec::new(),
            newer: None,
            tree: None,
        }
    }

    /// True if a version is kept. Versions must come in the order of a [`Merge`].
    pub(crate) fn keeps(&mut self, key: &[u8], at: Timestamp, deleted: bool) -> bool {
        if self.newer.is_none() || self.key != key {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.newer = None;
            let tree = tree_of(key);
            if self.tree.is_none_or(|(t, _)| t != tree) {
                self.tree = Some((tree, self.dropped.is_gone(tree, self.cut)));
            }
        }
        let newer = self.newer;
        self.newer = Some(newer.map_or(at, |n| n.min(at)));
        if self.tree.is_some_and(|(_, gone)| gone) {
            return false;
        }
        // The same version may occur twice, if it was applied again after a restart.
        if newer.is_some_and(|n| n <= at) || !self.needed.version(at, newer) {
            return false;
        }
        !(deleted && self.needed.nobody_before(at) && self.is_bottom(key))
    }

    /// True if no older run may have `key`. Keys must ascend from call to call.
    fn is_bottom(&mut self, key: &[u8]) -> bool {
        for (run, passed) in &mut self.beneath {
            while run.0.get(*passed).is_some_and(|t| t.last() < key) {
                *passed += 1;
            }
            if run.0.get(*passed).is_some_and(|t| t.first() <= key) {
                return false;
            }
        }
        true
    }
}
