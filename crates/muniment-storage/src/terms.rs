//! The terms in which commits were made, by their timestamps.
//!
//! Terms and timestamps both only rise along the log, so everything between two places of the same term
//! is of that term. The log is read for a commit only if the places that are known around it have
//! different terms. Of records that were trimmed only one thing is known: their term is not above the
//! one that the log begins after.

use crate::store::Store;
use muniment_io::Timestamp;
use muniment_log::Log;
use muniment_value::Result;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Finds the term of a commit, and remembers what it has found.
pub struct Terms {
    log: Arc<Log>,
    known: BTreeMap<Timestamp, u64>,
}

impl Store {
    /// The terms of what was committed so far.
    ///
    /// # Errors
    /// 14031 while there is no log.
    pub fn terms(&self) -> Result<Terms> {
        let log = self.inner.journal.log()?;
        let known = log.known().into_iter().map(|p| (p.at, p.term)).collect();
        Ok(Terms { log, known })
    }
}

impl Terms {
    /// The term of the commit at a timestamp; 0 if the server was in no set then.
    ///
    /// # Errors
    /// 301; I/O errors.
    pub fn of(&mut self, at: Timestamp) -> Result<u64> {
        let after = self.known.range(at..).next().map(|(_, term)| *term);
        let before = self.known.range(..=at).next_back().map(|(_, term)| *term);
        match (before, after) {
            (Some(before), Some(after)) if before == after => return Ok(before),
            // The record is trimmed.
            (None, Some(after)) => return Ok(after),
            _ => {}
        }
        let mut reader = self.log.read(Timestamp(at.0.saturating_sub(1)));
        let found = reader.next()?.map(|record| (record.at, record.term));
        // There is no record after the end of the log.
        let (at, term) = found.unwrap_or((at, before.unwrap_or(0)));
        self.known.insert(at, term);
        Ok(term)
    }
}
