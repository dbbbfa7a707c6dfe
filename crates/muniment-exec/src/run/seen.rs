//! Remembers which records a scan has already given, for scans that may meet a document twice.
//!
//! A record is remembered by 128 bits of a keyed hash. If two records collided, one would be
//! missing from the result. Nobody can cause that without knowing the key, and by chance it happens
//! once in 10^20 scans of a thousand million records. Above the memory limit, the hashes go to the
//! disk as sorted runs; looking one up there reads one page.

use super::Cx;
use super::sort::SortLimits;
use muniment_query::{Account, Share};
use muniment_value::{Code, Error, Result};
use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;

/// The memory that one hash takes: its bytes, and the free space of a hash table.
const COST: usize = 32;
/// The bytes of one hash.
const WIDTH: usize = 16;
/// The number of hashes in a page of a run.
const PAGE: usize = 256;

/// The records that were seen so far.
pub(crate) struct Seen {
    keys: (RandomState, RandomState),
    memory: HashSet<u128>,
    runs: Vec<Run>,
    limits: SortLimits,
    /// The hashes go to the disk when they take this many bytes in memory.
    spills_from: usize,
    share: Share,
    /// If true, the stage forgets everything and begins anew when it is above the limit and has no
    /// disk, instead of failing.
    forgets: bool,
    /// How many records were looked up.
    pub tested: u64,
    /// How many of these had been seen before.
    pub dropped: u64,
}

/// Sorted hashes on the disk. The first hash of every page is kept in memory.
struct Run {
    file: File,
    firsts: Vec<u128>,
    len: usize,
}

impl Seen {
    /// An empty set.
    pub(crate) fn new(limits: SortLimits) -> Seen {
        Seen {
            keys: (RandomState::new(), RandomState::new()),
            memory: HashSet::new(),
            runs: Vec::new(),
            share: Share::new(&limits.ledger, Account::Stages),
            spills_from: limits.memory,
            limits,
            forgets: false,
            tested: 0,
            dropped: 0,
        }
    }

    /// A set for scans that meet a document twice only if it changes while they idle. Such scans
    /// must not fail because there is no disk space, so the set may forget.
    pub(crate) fn that_may_forget(limits: SortLimits) -> Seen {
        Seen {
            forgets: true,
            ..Seen::new(limits)
        }
    }

    /// Notes a record. Returns false if it had been noted before.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit without a spill directory; the errors of the disk; the interruption
    /// of the operation.
    pub(crate) fn insert(&mut self, record_key: &[u8], cx: &Cx) -> Result<bool> {
        self.tested += 1;
        let half = |s: &RandomState| u128::from(s.hash_one(record_key));
        let hash = half(&self.keys.0) << 64 | half(&self.keys.1);
        for run in &self.runs {
            if run.contains(hash)? {
                self.dropped += 1;
                return Ok(false);
            }
        }
        if !self.memory.insert(hash) {
            self.dropped += 1;
            return Ok(false);
        }
        let bytes = self.memory.len() * COST;
        if self.share.holds(bytes) || bytes > self.spills_from {
            match self.spill(cx) {
                Err(e) if e.code() == Code::OutOfDiskSpace => self.goes_on(e)?,
                spilled => spilled?,
            }
            self.share.holds(self.memory.len() * COST);
        }
        Ok(true)
    }

    /// The disk is full, and this may be the very operation that makes room. So it continues in
    /// memory as long as there is some.
    fn goes_on(&mut self, e: Error) -> Result<()> {
        if self.forgets {
            self.memory.clear();
            return Ok(());
        }
        let more = 2 * self.memory.len() * COST;
        if self.share.try_hold(more).is_err() {
            return Err(e);
        }
        self.spills_from = self.spills_from.max(more);
        Ok(())
    }

    fn spill(&mut self, cx: &Cx) -> Result<()> {
        let Some(scratch) = &self.limits.scratch else {
            if self.forgets {
                self.memory.clear();
                return Ok(());
            }
            return Err(Error::new(
                Code::ExceededMemoryLimit,
                format!(
                    "remembering the documents that were returned exceeded the memory limit of {} \
                     bytes, but allowDiskUse is false",
                    self.limits.memory
                ),
            ));
        };
        let mut hashes: Vec<u128> = self.memory.iter().copied().collect();
        let mut out = BufWriter::with_capacity(1 << 18, scratch.file()?);
        cx.interrupt().check()?;
        hashes.sort_unstable();
        for h in &hashes {
            out.write_all(&h.to_le_bytes())?;
        }
        self.runs.push(Run {
            file: out.into_inner().map_err(|e| e.into_error())?.into_file(),
            firsts: hashes.iter().step_by(PAGE).copied().collect(),
            len: hashes.len(),
        });
        self.memory = HashSet::new();
        cx.interrupt().check()
    }
}

impl Run {
    fn contains(&self, hash: u128) -> Result<bool> {
        let after = self.firsts.partition_point(|first| *first <= hash);
        let Some(page) = after.checked_sub(1) else {
            return Ok(false);
        };
        let count = PAGE.min(self.len.saturating_sub(page * PAGE));
        let mut bytes = [0_u8; PAGE * WIDTH];
        let Some(bytes) = bytes.get_mut(..count * WIDTH) else {
            return Ok(false);
        };
        self.file
            .read_exact_at(bytes, (page * PAGE * WIDTH) as u64)?;
        let (hashes, _) = bytes.as_chunks::<WIDTH>();
        Ok(hashes
            .binary_search_by_key(&hash, |h| u128::from_le_bytes(*h))
            .is_ok())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::Bench;
    use muniment_query::{Ledger, Scratch};
    use std::sync::Arc;

    #[test]
    fn nothing_is_given_twice_whatever_the_memory() {
        let b = Bench::new();
        let collection = b.collection().unwrap();
        let cx = Cx::new(b.engine.store.clone(), collection, None);
        let dir = tempfile::tempdir().unwrap();
        for memory in [usize::MAX, 1000 * COST] {
            let mut seen = Seen::new(SortLimits {
                memory,
                ledger: Arc::default(),
                scratch: Some(Scratch::unlimited(&dir.path().join("spill"))),
            });
            for round in 0..2 {
                for i in 0..10_500_u32 {
                    let new = seen.insert(&i.to_be_bytes(), &cx).unwrap();
                    assert_eq!(new, round == 0, "{i}");
                }
            }
            assert_eq!((seen.tested, seen.dropped), (21_000, 10_500));
            assert_eq!(seen.runs.is_empty(), memory == usize::MAX);
        }
        // The disk is full: the set grows in memory as long as there is some, since the operation
        // may be the one that makes room.
        let full = |ledger: &Arc<Ledger>| SortLimits {
            memory: 1000 * COST,
            ledger: ledger.clone(),
            scratch: Some(Scratch::new(dir.path().join("full"), |_| {
                Err(Error::new(Code::OutOfDiskSpace, "full"))
            })),
        };
        let ledger = Arc::new(Ledger::default());
        ledger.set_limit(Account::Stages, 4 << 20);
        let mut seen = Seen::new(full(&ledger));
        for round in 0..2 {
            for i in 0..10_500_u32 {
                assert_eq!(seen.insert(&i.to_be_bytes(), &cx).unwrap(), round == 0);
            }
        }
        let refused = (0..200_000_u32).find_map(|i| seen.insert(&i.to_be_bytes(), &cx).err());
        assert_eq!(refused.unwrap().code(), Code::OutOfDiskSpace);
        drop(seen);
        let mut seen = Seen::that_may_forget(full(&ledger));
        for i in 0..200_000_u32 {
            seen.insert(&i.to_be_bytes(), &cx).unwrap();
        }
        assert!(ledger.figures(Account::Stages).used <= 1 << 20);
        let mut seen = Seen::new(SortLimits {
            memory: 1000 * COST,
            ledger: Arc::default(),
            scratch: None,
        });
        let refused = (0..2000_u32).find_map(|i| seen.insert(&i.to_be_bytes(), &cx).err());
        assert_eq!(refused.unwrap().code(), Code::ExceededMemoryLimit);
    }
}
