//! Which rows of a sharded collection a reader sees: those that this shard owns at the reader's time.
//!
//! Rows that it does not own are there while a range moves (see [`crate::placement`]). Without such rows no reader
//! comes here.

use crate::placement::{Owned, Placement, lies_in};
use muniment_io::Timestamp;
use muniment_op::{Interrupt, Mistake, makes};
use muniment_value::{Doc, Result};
use std::sync::Arc;

/// Which rows of sharded collections a view shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Those that the shard owns at the view's time.
    Owned,
    /// Those that it owned at an earlier time: that of the view with which the reader has begun.
    OwnedAt(Timestamp),
    /// All of them.
    All,
}

/// So many rows in succession are passed over before the operation is asked.
const AT_ONCE: u32 = 256;

/// The rows of one collection that are shown.
pub(crate) struct OwnedRows {
    placement: Arc<Placement>,
    /// There are rows that the shard does not own at this time.
    at: Option<muniment_shard::Timestamp>,
    /// Only rows of these ranges are asked for.
    within: Option<Arc<[Owned]>>,
    key: Vec<u8>,
    passed: u32,
}

impl OwnedRows {
    /// What a view of this time shows; `None`: all rows that there are.
    pub(crate) fn of(
        placement: Arc<Placement>,
        rows: Rows,
        time: Timestamp,
        within: Option<&Arc<[Owned]>>,
    ) -> Option<OwnedRows> {
        let at = match rows {
            Rows::Owned => Some(time),
            Rows::OwnedAt(at) => Some(at),
            Rows::All => None,
        };
        let at = at.map(|at| muniment_shard::Timestamp::new(at.seconds(), at.increment()));
        let at = at.filter(|at| placement.filters(*at));
        let at = match at {
            Some(_) if makes(Mistake::NewestFilter) => {
                Some(muniment_shard::Timestamp::new(u32::MAX, 0))
            }
            at => at,
        };
        if at.is_none() && within.is_none() {
            return None;
        }
        Some(OwnedRows {
            placement,
            at,
            within: within.map(Arc::clone),
            key: Vec::new(),
            passed: 0,
        })
    }

    /// Whether a document is shown. One without a key, which cannot be stored, is.
    pub(crate) fn shows(&mut self, doc: &[u8]) -> bool {
        self.key.clear();
        match self.placement.key.write_key(Doc::new(doc), &mut self.key) {
            Ok(()) => {
                let owned = |at| self.placement.owned_at(&self.key, at);
                let asked = |ranges: &Arc<[Owned]>| lies_in(ranges, &self.key);
                self.at.is_none_or(owned) && self.within.as_ref().is_none_or(asked)
            }
            Err(_) => true,
        }
    }

    /// A row was passed over.
    ///
    /// # Errors
    /// What stops the operation.
    pub(crate) fn passes(&mut self, operation: &dyn Interrupt) -> Result<()> {
        self.passed += 1;
        match self.passed.is_multiple_of(AT_ONCE) {
            true => operation.check(),
            false => Ok(()),
        }
    }
}
