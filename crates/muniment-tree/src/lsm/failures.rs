//! Failed compactions. Their tables are put off, for longer each time, so that a job which cannot succeed is
//! not tried again and again, and other jobs get their turn.

use super::state::Levels;
use super::table::Table;
use muniment_value::{Code, Error};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The first delay and the longest, in milliseconds.
const FIRST: i64 = 100;
const LONGEST: i64 = 60_000;
/// The longest delay after a full disk. It is short, since a check for room costs nothing.
const LONGEST_FULL: i64 = 2_000;
/// A failure that was not retried for this long after its delay is forgotten, in milliseconds.
const FORGET: i64 = 600_000;

/// A table that is put off.
struct Off {
    /// When the job failed, and for how long it is put off, in milliseconds.
    since: i64,
    delay: i64,
}

#[derive(Default)]
struct List {
    tables: BTreeMap<u64, Off>,
    last: Option<Error>,
}

/// The list of failures.
#[derive(Default)]
pub(crate) struct Failures {
    list: Mutex<List>,
    count: AtomicU64,
}

impl Failures {
    /// Notes that a job with these tables failed.
    pub(crate) fn add<'a>(
        &self,
        tables: impl Iterator<Item = &'a Arc<Table>>,
        error: &Error,
        now: i64,
    ) {
        self.count.fetch_add(1, Relaxed);
        let longest = match error.code() {
            Code::OutOfDiskSpace => LONGEST_FULL,
            _ => LONGEST,
        };
        let ids: Vec<u64> = tables.map(|t| t.id()).collect();
        let list = &mut *self.list.lock();
        let before = ids.iter().filter_map(|id| list.tables.get(id));
        let delay = match before.map(|off| off.delay).max() {
            Some(delay) => (delay * 2).min(longest),
            None => FIRST,
        };
        for id in ids {
            list.tables.insert(id, Off { since: now, delay });
        }
        list.last = Some(error.clone());
    }

    /// Notes that a job with these tables succeeded.
    pub(crate) fn forget<'a>(&self, tables: impl Iterator<Item = &'a Arc<Table>>) {
        let mut list = self.list.lock();
        for table in tables {
            list.tables.remove(&table.id());
        }
    }

    /// The tables that are put off now. Tables that `levels` no longer has are forgotten.
    pub(crate) fn put_off(&self, levels: &Levels, now: i64) -> BTreeSet<u64> {
        let list = &mut *self.list.lock();
        if list.tables.is_empty() {
            list.last = None;
            return BTreeSet::new();
        }
        let here: BTreeSet<u64> = levels.tables().map(|t| t.id()).collect();
        // A job that is no longer wanted must not remain a failure forever.
        let recent = |off: &Off| now < off.since.saturating_add(off.delay + FORGET);
        list.tables
            .retain(|id, off| here.contains(id) && recent(off));
        // After the clock was set back, no table is put off for longer.
        let waits = |off: &Off| now >= off.since && now < off.since + off.delay;
        let waiting = list.tables.iter().filter(|(_, off)| waits(off));
        waiting.map(|(id, _)| *id).collect()
    }

    /// The newest error, while a table is put off or was so lately.
    pub(crate) fn last(&self) -> Option<Error> {
        let list = self.list.lock();
        list.last.clone().filter(|_| !list.tables.is_empty())
    }

    /// How many jobs have failed since the start.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }
}
