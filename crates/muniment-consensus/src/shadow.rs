//! The log as raft sees it: places and terms, without payloads, all in memory.
//!
//! Terms never fall within a log, so their boundaries give the term of every place. The records that change
//! the configuration, of which there are few, are kept as well. A query costs no I/O and no copy of a record,
//! however long the log is.
//!
//! Invariant: the boundaries cover every place from the one before the first to the last.

use crate::config::MemberId;
use crate::message::{Entry, Kind};
use raft::eraftpb::{self, ConfState, EntryType, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most entries of one message. Many small records are worth one message; the transport splits what is
/// too large.
const PER_MESSAGE: u64 = 512;
/// The most committed entries that raft looks at in one go.
const PER_LOOK: u64 = 4096;

pub(crate) struct Shadow {
    /// The place before the first; 0 if the log was never trimmed.
    base: u64,
    /// The last place; `base` of an empty log.
    last: u64,
    /// Pairs of first place and term, both rising. The first pair covers `base`, unless that is 0.
    terms: Vec<(u64, u64)>,
    /// Configuration records by place.
    configs: BTreeMap<u64, Arc<[u8]>>,
    hard: HardState,
    conf: ConfState,
    /// Members that need records from before the log's beginning.
    behind: RefCell<Vec<MemberId>>,
}

impl Shadow {
    /// Boundaries and records after `last` are left out, since the state knows them before the log has them.
    /// `None` if the boundaries do not cover the log.
    pub(crate) fn new(
        (base, last): (u64, u64),
        mut terms: Vec<(u64, u64)>,
        mut configs: BTreeMap<u64, Arc<[u8]>>,
        hard: HardState,
        conf: ConfState,
    ) -> Option<Shadow> {
        terms.retain(|(first, _)| *first <= last);
        configs.split_off(&(last + 1));
        let rising = terms
            .windows(2)
            .all(|w| matches!(w, [a, b] if a.0 < b.0 && a.1 < b.1));
        let mut shadow = Shadow {
            base,
            last,
            terms,
            configs,
            hard,
            conf,
            behind: RefCell::default(),
        };
        let covered = |place| place == 0 || shadow.term_of(place).is_some();
        if !rising || base > last || !covered(base.max(1).min(last)) || !covered(last) {
            return None;
        }
        shadow.trim(base + 1);
        Some(shadow)
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn terms(&self) -> &[(u64, u64)] {
        &self.terms
    }

    pub(crate) fn configs(&self) -> &BTreeMap<u64, Arc<[u8]>> {
        &self.configs
    }

    /// The term of the record at `index`, if the boundaries cover it.
    pub(crate) fn term_of(&self, index: u64) -> Option<u64> {
        let after = self.terms.partition_point(|(first, _)| *first <= index);
        let (_, term) = self.terms.get(after.checked_sub(1)?)?;
        (index <= self.last).then_some(*term)
    }

    /// Takes entries that follow the last one. True if the member's state has something new to remember: a
    /// new term, or a change of the configuration.
    pub(crate) fn append(&mut self, entries: &[eraftpb::Entry]) -> bool {
        let mut news = false;
        for entry in entries {
            if self.terms.last().is_none_or(|(_, term)| *term < entry.term) {
                self.terms.push((entry.index, entry.term));
                news = true;
            }
            if let Kind::Config(record) = kind(entry) {
                self.configs.insert(entry.index, record);
                news = true;
            }
            self.last = entry.index;
        }
        news
    }

    /// Drops what is lost when the log is cut after `index`.
    pub(crate) fn cut(&mut self, index: u64) {
        self.terms.retain(|(first, _)| *first <= index);
        self.configs.split_off(&(index + 1));
        self.last = self.last.min(index);
    }

    /// Notes that the log now begins at `first`.
    pub(crate) fn trim(&mut self, first: u64) {
        self.base = self.base.max(first.saturating_sub(1)).min(self.last);
        let before = self.terms.partition_point(|(at, _)| *at <= self.base);
        self.terms.drain(..before.saturating_sub(1));
        self.configs = self.configs.split_off(&(self.base + 1));
    }

    /// The members that need records which the log no longer has. Each is returned once.
    pub(crate) fn take_behind(&self) -> Vec<MemberId> {
        let mut behind = std::mem::take(&mut *self.behind.borrow_mut());
        behind.sort_unstable();
        behind.dedup();
        behind
    }

    fn entry(&self, index: u64, term: u64) -> Entry {
        let config = self.configs.get(&index).cloned();
        Entry {
            index,
            term,
            kind: config.map_or(Kind::Plain, Kind::Config),
        }
    }
}

impl Storage for Shadow {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.conf.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<eraftpb::Entry>> {
        if low <= self.base {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last + 1 {
            return Err(StorageError::Unavailable.into());
        }
        let most = match max_size.into() {
            // Raft fetches entries for a message with a context that allows to fetch them later.
            Some(_) if context.can_async() => PER_MESSAGE,
            Some(_) => PER_LOOK,
            None => u64::MAX,
        };
        let mut entries = Vec::new();
        for index in low..high.min(low.saturating_add(most)) {
            let term = self.term_of(index).ok_or(StorageError::Unavailable)?;
            entries.push(to_raft(self.entry(index, term)));
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index < self.base {
            return Err(StorageError::Compacted.into());
        }
        match (index, self.term_of(index)) {
            (0, _) => Ok(0),
            (_, Some(term)) => Ok(term),
            (_, None) => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last)
    }

    fn snapshot(&self, _at_least: u64, to: u64) -> raft::Result<Snapshot> {
        self.behind.borrow_mut().push(to);
        Err(StorageError::SnapshotTemporarilyUnavailable.into())
    }
}

/// An entry in raft's form. The record of a configuration is in its context, which raft does not read, and
/// its type says whether the record changes the voters.
pub(crate) fn to_raft(entry: Entry) -> eraftpb::Entry {
    let mut e = eraftpb::Entry {
        index: entry.index,
        term: entry.term,
        ..eraftpb::Entry::default()
    };
    if let Kind::Config(record) = entry.kind {
        if changes_voters(&record) {
            e.set_entry_type(EntryType::EntryConfChangeV2);
        }
        e.context = record.to_vec().into();
    }
    e
}

/// Whether a record changes the voters, which its first byte says.
fn changes_voters(record: &[u8]) -> bool {
    record.first().is_some_and(|kind| *kind != 0)
}

/// The kind of an entry in raft's form.
pub(crate) fn kind(entry: &eraftpb::Entry) -> Kind {
    match entry.context.is_empty() {
        true => Kind::Plain,
        false => Kind::Config(entry.context.to_vec().into()),
    }
}
