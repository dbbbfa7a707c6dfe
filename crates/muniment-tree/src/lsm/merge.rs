//! All versions of several sources in one order, and which of them stay.

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

/// Keys taken from a memtable at once.
const BATCH: usize = 256;

/// A sorted source of versions: key ascending, newest first.
pub(crate) enum Source {
    Memory(FromMemory),
    Tables(FromTables),
}

/// A sealed memtable.
pub(crate) struct FromMemory {
    mem: Arc<MemTable>,
    trees: VecDeque<TreeId>,
    batch: Vec<Version>,
    place: usize,
    more: bool,
    begun: bool,
    key: Vec<u8>,
}

/// Tables of a run.
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

/// A version: internal key, timestamp, value.
type Seen<'a> = (&'a [u8], Timestamp, Option<&'a [u8]>);

/// Several sources as one.
pub(crate) struct Merge {
    /// Newest first.
    sources: Vec<Source>,
    /// Those that are not at their end, in the order of their keys; the newer first.
    order: Vec<usize>,
    begun: bool,
}

impl Merge {
    /// `sources`: newest first.
    pub(crate) fn new(sources: Vec<Source>) -> Merge {
        Merge {
            sources,
            order: Vec::new(),
            begun: false,
        }
    }

    /// To the next version: key ascending, newest first; false at the end.
    ///
    /// # Errors
    /// A source's.
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

    /// The version it stands on.
    pub(crate) fn version(&self) -> Option<Seen<'_>> {
        let source = self.sources.get(*self.order.first()?)?;
        Some((source.key(), source.at(), source.value()))
    }
}

/// Decides which versions stay.
pub(crate) struct Keep {
    needed: Needed,
    dropped: Dropped,
    /// Trees dropped at or below it are gone.
    cut: Timestamp,
    /// What is older than everything that is merged, with how far each was passed.
    beneath: Vec<(Run, usize)>,
    key: Vec<u8>,
    /// The version above, of the same key.
    newer: Option<Timestamp>,
    tree: Option<(TreeId, bool)>,
}

impl Keep {
    /// Keeps what `needed` asks for, but nothing of trees that were dropped at or below `cut`.
    /// `beneath` must have every table, not among the sources, that may have older versions.
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

    /// True if a version stays. They come in the order of a [`Merge`].
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
        // The same version twice: what was applied again after a restart.
        if newer.is_some_and(|n| n <= at) || !self.needed.version(at, newer) {
            return false;
        }
        !(deleted && self.needed.nobody_before(at) && self.is_bottom(key))
    }

    /// True if nothing older lies beneath `key`. Keys rise.
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
