//! Whether the door or the caller of a commit announces the record to other members.
//!
//! On a member of a replica set the door's listener wakes the thread that sends records to other
//! members. A request that is going to wait for those members can send its record itself, which is
//! faster than to wake another thread; it then commits with [`Announce::Caller`]. Its [`Announcer`]
//! knows whether it has such a record and has not announced it yet.
//!
//! Invariant: at most one record of a request is kept back at a time, and the owner of the announcer
//! learns of it ([`Announcer::take`], [`Announcer::end`]), also where the request failed or panicked.

use muniment_value::Result;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What announces the record that a commit makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announce {
    /// The door: its listener wakes the thread that sends records.
    Door,
    /// The caller of the commit: after a successful commit the record is not announced yet.
    Caller,
}

/// Tells which record a request has to announce itself, one at a time. Only the request's own thread
/// uses it.
#[derive(Debug, Default)]
pub struct Announcer(AtomicU8);

/// The door announces every record.
const NOTHING: u8 = 0;
/// The next record is the request's own to announce.
const NEXT: u8 = 1;
/// A record was made that the request has to announce. The door announces further ones.
const MADE: u8 = 2;

impl Announcer {
    /// The request announces the next record that it commits through [`Announcer::commit`].
    pub fn keep_next(&self) {
        self.0.store(NEXT, Relaxed);
    }

    /// Runs a commit and tells it what announces its record. `None`: it has made no record.
    ///
    /// # Errors
    /// The commit's own: it has made no record then.
    #[inline]
    pub fn commit<T>(
        &self,
        commit: impl FnOnce(Announce) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if self.0.load(Relaxed) != NEXT {
            return commit(Announce::Door);
        }
        // If the commit panics, a record that it may have made is announced.
        self.0.store(MADE, Relaxed);
        let committed = commit(Announce::Caller);
        if !matches!(committed, Ok(Some(_))) {
            self.0.store(NEXT, Relaxed);
        }
        committed
    }

    /// Whether there is a record that the caller has to announce now. The next one may be kept back
    /// again after that.
    pub fn take(&self) -> bool {
        let made = self.0.load(Relaxed) == MADE;
        if made {
            self.0.store(NEXT, Relaxed);
        }
        made
    }

    /// As [`Announcer::take`]; the door announces every record after that.
    pub fn end(&self) -> bool {
        self.0.swap(NOTHING, Relaxed) == MADE
    }
}
