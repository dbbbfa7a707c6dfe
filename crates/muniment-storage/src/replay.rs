//! Compares the state with the log: everything that is stored must be what applying the log to an empty
//! directory gives.
//!
//! The replay goes into trees in memory, by the same `apply` that recovery runs. It is for tests and for
//! diagnosis: it needs the log from its first record on, which a server with more than a few segments
//! has trimmed.

use crate::catalog::Entry;
use crate::collection::Collection;
use crate::inner::Inner;
use crate::options::StoreOptions;
use crate::sessions::SESSIONS;
use crate::store::Store;
use crate::transaction::PREPARED;
use muniment_io::{SimDisk, Timestamp};
use muniment_op::{Interrupt, NeverInterrupted};
use muniment_tree::memory::MemoryTrees;
use muniment_tree::{Direction, Range, TreeId};
use muniment_value::{Code, Result};
use std::sync::Arc;

/// Differences that are listed at most.
const MOST: usize = 20;

impl Store {
    /// What differs between the state and the log applied to nothing: documents, index entries, catalog,
    /// totals and multikey paths, a line each. Writers wait meanwhile. `None` if the log no longer
    /// begins with its first record.
    ///
    /// # Errors
    /// 301 for a damaged log or table; what `interrupt` says.
    pub fn compare_with_log(&self, interrupt: &dyn Interrupt) -> Result<Option<Vec<String>>> {
        let inner = &self.inner;
        let _alone = inner.cuts.gate.own(interrupt)?;
        let options = StoreOptions {
            // The replayed store appends nothing to its log, so the log's segments need no room.
            cache_bytes: 0,
            ..StoreOptions::new(&inner.home.path)
        };
        let budget = inner.home.budget;
        let disk = Arc::new(SimDisk::memory());
        let replayed = Inner::recover(&options, disk, MemoryTrees::new(), budget, None)?;
        let log = inner.journal.log()?;
        let mut reader = log.read(Timestamp::ZERO);
        let last = log.last().index;
        let mut index = 0;
        while index < last {
            let record = match reader.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(e) if e.code() == Code::ChangeStreamHistoryLost => return Ok(None),
                Err(e) => return Err(e),
            };
            if index == 0 && record.index != 1 {
                return Ok(None);
            }
            index = record.index;
            replayed.apply(record.at, record.payload)?;
            replayed.trees.views().advance(record.at);
            interrupt.check()?;
        }
        let mut differences = Vec::new();
        compare(inner, &replayed, &mut differences)?;
        Ok(Some(differences))
    }
}

fn compare(state: &Inner, replayed: &Inner, out: &mut Vec<String>) -> Result<()> {
    let sorted = |inner: &Inner| {
        let mut all = inner.catalog.all();
        all.sort_by_key(|c| c.id);
        all
    };
    let (ours, theirs) = (sorted(state), sorted(replayed));
    let names = |all: &[Arc<Collection>]| -> Vec<(u32, String)> {
        all.iter().map(|c| (c.id, c.namespace())).collect()
    };
    if names(&ours) != names(&theirs) {
        out.push(format!(
            "the collections are {:?}, by the log {:?}",
            names(&ours),
            names(&theirs)
        ));
        return Ok(());
    }
    compare_tree(state, replayed, SESSIONS, "the sessions", out)?;
    compare_tree(state, replayed, PREPARED, "the prepared transactions", out)?;
    for (a, b) in ours.iter().zip(&theirs) {
        let what = a.namespace();
        let totals = |c: &Collection| (c.count(), c.data_bytes());
        if totals(a) != totals(b) {
            let (a, b) = (totals(a), totals(b));
            out.push(format!("{what}: the totals are {a:?}, by the log {b:?}"));
        }
        // Ignores `pending`: `Collection::claim` clears it in memory only, so the replayed entry may
        // still have it.
        let entry = |c: &Collection| {
            let entry = Entry::of(c, &c.all_indexes());
            Entry {
                pending: false,
                ..entry
            }
            .to_doc()
        };
        if entry(a) != entry(b) {
            let (a, b) = (entry(a), entry(b));
            out.push(format!("{what}: the entry is {a:?}, by the log {b:?}"));
            continue;
        }
        compare_tree(state, replayed, a.id, &what, out)?;
        for (i, j) in a.all_indexes().iter().zip(b.all_indexes().iter()) {
            let what = format!("{what}, index {}", i.spec().name);
            compare_tree(state, replayed, i.id, &what, out)?;
            // A write that failed may have widened the multikey paths. That only makes plans more
            // careful, so the state may know more than the replay, never less.
            let (known, needed) = (i.multikey().known(), j.multikey().known());
            if !known.covers(&needed) {
                out.push(format!("{what}: arrays {known:?}, by the log {needed:?}"));
            }
        }
    }
    Ok(())
}

fn compare_tree(
    state: &Inner,
    replayed: &Inner,
    tree: u32,
    what: &str,
    out: &mut Vec<String>,
) -> Result<()> {
    let open = |inner: &Inner| {
        let all = Range::default();
        inner
            .trees
            .cursor(TreeId(tree), all, Timestamp::MAX, Direction::Forward)
    };
    let (mut ours, mut theirs) = (open(state), open(replayed));
    loop {
        let (a, b) = (
            ours.next(&NeverInterrupted)?,
            theirs.next(&NeverInterrupted)?,
        );
        if a != b {
            if out.len() < MOST {
                out.push(format!("{what}: there is {a:02x?}, by the log {b:02x?}"));
            }
            return Ok(());
        }
        if a.is_none() {
            return Ok(());
        }
    }
}
