//! The memtables and tables of one moment.
//!
//! A [`State`] is never changed; a new one replaces it by swapping an `Arc` under a short lock. Generations
//! are strictly ordered in time: every version of a key in the active memtable is newer than those in sealed
//! memtables, these are newer than those in tables, and a fresh run's are newer than those of the runs after
//! it, a level's newer than those of deeper levels. Only what is written at a cut can have the timestamp of an
//! older version; the one in the newer generation counts.

use super::idle::For;
use super::table::Table;
use crate::memtable::MemTable;
use crate::trees::FileSizes;
use muniment_io::Timestamp;
use muniment_op::Event;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};
use std::sync::{Arc, OnceLock};

/// The number of levels below the fresh runs.
pub(crate) const DEPTH: usize = 6;

/// Tables in the order of their keys. No two of them overlap.
#[derive(Clone, Default)]
pub(crate) struct Run(pub(crate) Arc<Vec<Arc<Table>>>);

/// All tables.
#[derive(Clone, Default)]
pub(crate) struct Levels {
    /// Level 0: the runs that flushes have written, newest first.
    pub(crate) fresh: Vec<Run>,
    /// Levels 1 to [`DEPTH`].
    pub(crate) deep: Vec<Run>,
    /// See [`Levels::sizes`].
    sizes: OnceLock<Arc<FileSizes>>,
}

/// A memtable that is to be flushed.
#[derive(Clone)]
pub(crate) struct Sealed {
    /// `None` if there were no writes and only the cut has advanced.
    pub(crate) mem: Option<Arc<MemTable>>,
    pub(crate) cut: Timestamp,
    /// Each sealed memtable has a higher number than the one before.
    pub(crate) number: u64,
}

/// All memtables and tables.
pub(crate) struct State {
    /// Each state has a higher number than the one before.
    pub(crate) number: u64,
    pub(crate) active: Arc<MemTable>,
    /// The sealed memtables, oldest first.
    pub(crate) sealed: Vec<Sealed>,
    pub(crate) levels: Arc<Levels>,
    /// This is dropped last.
    pub(crate) _freed: Freed,
}

/// Tells the engine's threads when a state is freed, usually by the last reader of a replaced one: a memtable
/// that it held can be freed now.
pub(crate) struct Freed(pub(crate) Arc<Event<For>>);

impl Drop for Freed {
    fn drop(&mut self) {
        // The counts of memtables are not read with `SeqCst`: see [`Event`].
        fence(SeqCst);
        self.0.notify_those(|what| *what == For::Flush);
    }
}

impl State {
    /// For a state that follows this one.
    pub(crate) fn freed(&self) -> Freed {
        Freed(self._freed.0.clone())
    }

    /// The memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        let sealed = self.sealed.iter().rev().filter_map(|s| s.mem.as_ref());
        std::iter::once(&self.active).chain(sealed)
    }

    /// The memtable at place `i`, newest first.
    pub(crate) fn memtable(&self, i: usize) -> Option<&Arc<MemTable>> {
        self.memtables().nth(i)
    }
}

impl Levels {
    /// No tables.
    pub(crate) fn empty() -> Levels {
        Levels {
            fresh: Vec::new(),
            deep: vec![Run::default(); DEPTH],
            sizes: OnceLock::new(),
        }
    }

    /// How many bytes the trees have in the tables. It is computed when it is first asked for.
    pub(crate) fn sizes(&self) -> &Arc<FileSizes> {
        static VERSIONS: AtomicU64 = AtomicU64::new(1);
        self.sizes.get_or_init(|| {
            let mut bytes = HashMap::new();
            for table in self.tables() {
                for (tree, counts) in &table.properties().trees {
                    *bytes.entry(*tree).or_insert(0) += counts.bytes;
                }
            }
            let version = VERSIONS.fetch_add(1, Relaxed);
            Arc::new(FileSizes { version, bytes })
        })
    }

    /// All runs, newest first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.fresh.iter().chain(&self.deep)
    }

    /// The run at place `i`, newest first.
    pub(crate) fn run(&self, i: usize) -> Option<&Run> {
        match i.checked_sub(self.fresh.len()) {
            Some(i) => self.deep.get(i),
            None => self.fresh.get(i),
        }
    }

    /// The run of level 1 or of a deeper one.
    pub(crate) fn level(&self, level: usize) -> Option<&Run> {
        self.deep.get(level.checked_sub(1)?)
    }

    /// All tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.runs().flat_map(|run| run.0.iter())
    }

    /// The levels with these parts of tables in place of the whole tables.
    pub(crate) fn narrowed(&self, parts: &[Arc<Table>]) -> Levels {
        if parts.is_empty() {
            return self.clone();
        }
        let part_of = |t: &Arc<Table>| parts.iter().find(|p| p.id() == t.id());
        let with = |run: &Run| match run.0.iter().any(|t| part_of(t).is_some()) {
            false => run.clone(),
            true => {
                let tables = run.0.iter().map(|t| part_of(t).unwrap_or(t).clone());
                Run(Arc::new(tables.collect()))
            }
        };
        Levels {
            fresh: self.fresh.iter().map(with).collect(),
            deep: self.deep.iter().map(with).collect(),
            sizes: OnceLock::new(),
        }
    }

    /// The levels without some tables, and with others added to a level (0: as a new fresh run).
    pub(crate) fn replace(
        &self,
        remove: &HashSet<u64>,
        level: usize,
        add: &[Arc<Table>],
    ) -> Levels {
        let without = |run: &Run| match run.0.iter().any(|t| remove.contains(&t.id())) {
            false => run.clone(),
            true => {
                let rest = run.0.iter().filter(|t| !remove.contains(&t.id()));
                Run(Arc::new(rest.cloned().collect()))
            }
        };
        let mut new = Levels {
            fresh: self.fresh.iter().map(without).collect(),
            deep: self.deep.iter().map(without).collect(),
            sizes: OnceLock::new(),
        };
        if !add.is_empty() {
            match level.checked_sub(1) {
                None => new.fresh.insert(0, Run::of(add.to_vec())),
                Some(i) => {
                    if let Some(run) = new.deep.get_mut(i) {
                        *run = Run::of(run.0.iter().chain(add).cloned().collect());
                    }
                }
            }
        }
        new.fresh.retain(|run| !run.0.is_empty());
        new
    }
}

impl Run {
    /// A run of these tables, which may come in any order.
    pub(crate) fn of(mut tables: Vec<Arc<Table>>) -> Run {
        tables.sort_by(|a, b| a.first().cmp(b.first()));
        Run(Arc::new(tables))
    }

    /// True if no two tables overlap.
    pub(crate) fn is_sound(&self) -> bool {
        self.0.windows(2).all(|w| match w {
            [a, b] => a.last() < b.first(),
            _ => true,
        })
    }

    /// The bytes of its files.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|t| t.len()).sum()
    }

    /// The place of the first table that ends at or after `key`.
    pub(crate) fn position(&self, key: &[u8]) -> usize {
        self.0.partition_point(|t| t.last() < key)
    }

    /// The table that may have `key`.
    pub(crate) fn find(&self, key: &[u8]) -> Option<&Arc<Table>> {
        self.0.get(self.position(key)).filter(|t| t.first() <= key)
    }

    /// The places of the tables that have keys from `first` to `last`.
    pub(crate) fn overlapping(&self, first: &[u8], last: &[u8]) -> std::ops::Range<usize> {
        let begin = self.position(first);
        let end = self.0.partition_point(|t| t.first() <= last);
        begin..end.max(begin)
    }

    /// The tables that have keys from `first` to `last`.
    pub(crate) fn within(&self, first: &[u8], last: &[u8]) -> &[Arc<Table>] {
        self.0
            .get(self.overlapping(first, last))
            .unwrap_or_default()
    }
}
