//! Which records a scan has given already: for scans that may meet a document twice.
//!
//! A record is remembered by 128 bits of a keyed hash: two records that collide would lose one,
//! which nobody can bring about who does not know the key, and which happens by chance once in
//! 10^20 scans of a milliard records. Above the memory limit the hashes go to the disk as sorted
//! runs; one page is read to look one up there.

use super::Cx;
use super::sort::SortLimits;
use muniment_query::Share;
use muniment_value::{Code, Error, Result};
use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;

/// What one hash costs in memory: its bytes, and what a table of them leaves free.
const COST: usize = 32;
/// Bytes of one hash.
const WIDTH: usize = 16;
/// Hashes in a page of a run.
const PAGE: usize = 256;

/// The records seen so far.
pub struct Seen {
    keys: (RandomState, RandomState),
    memory: HashSet<u128>,
    runs: Vec<Run>,
    limits: SortLimits,
    share: Share,
    /// Above the limit without a disk, begin anew instead of failing.
    forgets: bool,
    /// Looked up.
    pub tested: u64,
    /// Found: seen before.
    pub dropped: u64,
}

/// Sorted hashes on the disk, with the first of every page.
struct Run {
    file: File,
    firsts: Vec<u128>,
    len: usize,
}

impl Seen {
    /// Nothing seen yet.
    pub fn new(limits: SortLimits) -> Seen {
        Seen {
            keys: (RandomState::new(), RandomState::new()),
            memory: HashSet::new(),
            runs: Vec::new(),
            share: Share::new(&limits.budget),
            limits,
            forgets: false,
            tested: 0,
            dropped: 0,
        }
    }

    /// For scans that meet a document twice only when it changes while they idle: they must not
    /// fail for want of a disk.
    pub fn that_may_forget(limits: SortLimits) -> Seen {
        Seen {
            forgets: true,
            ..Seen::new(limits)
        }
    }

    /// Notes a record; false when it was there before.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit without a spill directory; the disk's; what the operation says.
    pub fn insert(&mut self, record_key: &[u8], cx: &Cx) -> Result<bool> {
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
        if self.share.holds(bytes) || bytes > self.limits.memory {
            self.spill(cx)?;
            self.share.holds(0);
        }
        Ok(true)
    }

    fn spill(&mut self, cx: &Cx) -> Result<()> {
        let Some(dir) = &self.limits.spill_dir else {
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
        std::fs::create_dir_all(dir)?;
        let mut hashes: Vec<u128> = std::mem::take(&mut self.memory).into_iter().collect();
        let mut out = BufWriter::with_capacity(1 << 18, tempfile::tempfile_in(dir)?);
        cx.interrupt().check()?;
        hashes.sort_unstable();
        for h in &hashes {
            out.write_all(&h.to_le_bytes())?;
        }
        self.runs.push(Run {
            file: out.into_inner().map_err(|e| Error::from(e.into_error()))?,
            firsts: hashes.iter().step_by(PAGE).copied().collect(),
            len: hashes.len(),
        });
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
    use crate::tests::{Bench, NS};
    use std::sync::Arc;

    #[test]
    fn nothing_is_given_twice_whatever_the_memory() {
        let b = Bench::new();
        let collection = b.engine.collection_or_create(&b.op, NS).unwrap();
        let cx = Cx::new(b.engine.store.clone(), collection, None);
        let dir = tempfile::tempdir().unwrap();
        for memory in [usize::MAX, 1000 * COST] {
            let mut seen = Seen::new(SortLimits {
                memory,
                budget: Arc::default(),
                spill_dir: Some(dir.path().join("spill")),
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
        let mut seen = Seen::new(SortLimits {
            memory: 1000 * COST,
            budget: Arc::default(),
            spill_dir: None,
        });
        let refused = (0..2000_u32).find_map(|i| seen.insert(&i.to_be_bytes(), &cx).err());
        assert_eq!(refused.unwrap().code(), Code::ExceededMemoryLimit);
    }
}
