//! Caches the results of one operation's look-ups, because many documents join the same one.
//!
//! The cache holds copies, so that no document keeps a block of the storage in memory. It is
//! emptied when another operation (the next getMore) uses the cursor, and it switches itself off if
//! hardly any look-up is repeated.

use crate::operation::OpContext;
use bytes::Bytes;
use muniment_query::{Account, Ledger, Share};
use std::collections::HashMap;
use std::sync::Arc;

/// After how many look-ups the cache decides whether it is worth its memory: half as many as there
/// are documents, within these bounds. Of that many evenly distributed look-ups, 21 in 100 repeat
/// an earlier one.
const TRIAL: std::ops::RangeInclusive<u64> = 4096..=131_072;
/// At least one look-up in so many must have been a hit.
const WORTH: u64 = 16;
/// The size of an entry beside its bytes.
const OVERHEAD: usize = 96;

/// The documents found, by encoded key.
pub(crate) struct JoinCache {
    op: Option<Arc<OpContext>>,
    found: HashMap<Box<[u8]>, Box<[Bytes]>>,
    bytes: usize,
    share: Share,
    limit: usize,
    trial: u64,
    asked: u64,
    hits: u64,
}

impl JoinCache {
    /// A cache of at most `limit` bytes for look-ups among `documents`.
    pub(super) fn new(limit: usize, documents: u64, ledger: &Arc<Ledger>) -> JoinCache {
        JoinCache {
            op: None,
            found: HashMap::new(),
            bytes: 0,
            share: Share::new(ledger, Account::Stages),
            limit,
            trial: (documents / 2).clamp(*TRIAL.start(), *TRIAL.end()),
            asked: 0,
            hits: 0,
        }
    }

    /// Begins a look-up for `op`. Returns false if the cache has switched itself off.
    pub(super) fn begin(&mut self, op: &Arc<OpContext>) -> bool {
        if self.op.as_ref().is_none_or(|o| !Arc::ptr_eq(o, op)) {
            self.op = Some(op.clone());
            self.clear();
        }
        if self.asked == self.trial && self.hits < self.trial / WORTH {
            self.clear();
            return false;
        }
        self.asked += 1;
        true
    }

    fn clear(&mut self) {
        self.found = HashMap::new();
        self.bytes = 0;
        self.share.holds(0);
    }

    /// The result of an earlier look-up of `key`.
    pub(super) fn get(&mut self, key: &[u8]) -> Option<&[Bytes]> {
        let found = self.found.get(key)?;
        self.hits += 1;
        Some(found)
    }

    /// Remembers a result. If the memory is used up, the cache is emptied first.
    pub(super) fn put(&mut self, key: &[u8], docs: Vec<Bytes>) {
        let size = key.len() + OVERHEAD + docs.iter().map(|d| d.len() + 32).sum::<usize>();
        if size > self.limit / 16 {
            return;
        }
        if self.bytes + size > self.limit || self.share.holds(self.bytes + size) {
            self.clear();
        }
        self.bytes += size;
        self.found.insert(key.into(), docs.into());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn it_belongs_to_one_operation_and_gives_up() {
        let (a, b) = (OpContext::internal("a"), OpContext::internal("b"));
        let mut c = JoinCache::new(1 << 20, 0, &Arc::default());
        assert!(c.begin(&a));
        c.put(b"k", vec![Bytes::from_static(b"doc")]);
        assert_eq!(c.get(b"k").unwrap().len(), 1);
        assert!(c.begin(&b));
        assert!(c.get(b"k").is_none());
        // No look-up is repeated.
        let mut tried = 0_u32;
        while c.begin(&b) {
            assert!(c.get(&tried.to_be_bytes()).is_none());
            c.put(&tried.to_be_bytes(), vec![Bytes::from(vec![0; 1000])]);
            assert!(c.bytes <= 1 << 20);
            tried += 1;
        }
        assert!(c.found.is_empty() && u64::from(tried) < *TRIAL.start());
        // Among many documents it takes longer until evenly distributed look-ups repeat.
        let mut c = JoinCache::new(1 << 22, 20_000, &Arc::default());
        let mut random = 1_u64;
        for _ in 0..40_000 {
            assert!(c.begin(&a));
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let key = ((random >> 33) % 20_000).to_be_bytes();
            if c.get(&key).is_none() {
                c.put(&key, vec![Bytes::from_static(b"doc")]);
            }
        }
        assert!(c.hits > 10_000, "{}", c.hits);
        // Large results are not kept.
        let mut c = JoinCache::new(1000, 0, &Arc::default());
        assert!(c.begin(&a));
        c.put(b"k", vec![Bytes::from(vec![0; 500])]);
        assert!(c.get(b"k").is_none());
    }
}
