//! The terms in which commits were made, by their timestamps.
//!
//! Both only rise along the log, so what lies between two places of the same term is of that term, and
//! the log is read for a commit only where the places that are known say no more than that it lies
//! between two terms. Of what is trimmed no more is known than that its term is not above the one that
//! the log begins after.

use crate::store::Store;
use muniment_io::Timestamp;
use muniment_log::Log;
use muniment_value::Result;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module's head.
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
    /// The term of the commit at a timestamp; 0 where there was no set.
    ///
    /// # Errors
    /// 301; the disk's.
    pub fn of(&mut self, at: Timestamp) -> Result<u64> {
        let after = self.known.range(at..).next().map(|(_, term)| *term);
        let before = self.known.range(..=at).next_back().map(|(_, term)| *term);
        match (before, after) {
            (Some(before), Some(after)) if before == after => return Ok(before),
            // It is trimmed.
            (None, Some(after)) => return Ok(after),
            _ => {}
        }
        let mut reader = self.log.read(Timestamp(at.0.saturating_sub(1)));
        let found = reader.next()?.map(|record| (record.at, record.term));
        // After the end there is nothing.
        let (at, term) = found.unwrap_or((at, before.unwrap_or(0)));
        self.known.insert(at, term);
        Ok(term)
    }
}
