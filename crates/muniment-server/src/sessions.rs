//! Logical sessions: who uses which, so that endSessions and killSessions find what is theirs. A session
//! belongs to a user: two users who choose the same id have a session each. Nobody can log in yet, so
//! it is nobody's unless its `lsid` names a user's digest.
//!
//! Invariants: at most [`MAX_SESSIONS`] records; a record that nobody used for 30 minutes goes; what
//! was used or ended since the last refresh is known until the next one has written it.

use muniment_storage::{NOBODY, SessionKey};
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// localLogicalSessionTimeoutMinutes.
pub const TIMEOUT_MINUTES: i32 = 30;
/// Most records, as MongoDB's maxSessions.
pub const MAX_SESSIONS: usize = 1_000_000;
const SHARDS: usize = 16;

/// A user as sessions know one: the digest of its name.
pub fn digest_of(user: &str, db: &str) -> [u8; 32] {
    match (user, db) {
        ("", "") => NOBODY,
        _ => Sha256::digest(format!("{user}@{db}")).into(),
    }
}

/// The records.
#[derive(Default)]
pub struct Sessions {
    shards: [Mutex<HashMap<SessionKey, Instant>>; SHARDS],
    /// Those that were ended since the last refresh.
    ended: Mutex<HashSet<SessionKey>>,
    /// When that was; `None`: never.
    refreshed: Mutex<Option<Instant>>,
    /// What the refreshes did.
    pub job: Mutex<Job>,
}

/// What the refreshes did, for `serverStatus.logicalSessionRecordCache`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Job {
    /// How many there were.
    pub count: i32,
    /// When the last one began, in milliseconds since 1970.
    pub began_ms: i64,
    /// How long it took, in milliseconds.
    pub took_ms: i32,
    /// Sessions that it wrote.
    pub refreshed: i32,
    /// Sessions that it took away.
    pub ended: i32,
}

impl Sessions {
    fn shard(&self, id: &SessionKey) -> Option<&Mutex<HashMap<SessionKey, Instant>>> {
        self.shards.get(usize::from(id.id[0]) % SHARDS)
    }

    /// Notes a use.
    ///
    /// # Errors
    /// 261 TooManyLogicalSessions.
    pub fn touch(&self, id: &SessionKey) -> Result<()> {
        let Some(shard) = self.shard(id) else {
            return Ok(());
        };
        let mut shard = shard.lock();
        if shard.len() >= MAX_SESSIONS / SHARDS && !shard.contains_key(id) {
            return Err(Error::new(
                Code::TooManyLogicalSessions,
                "cannot add session: the session cache is full",
            ));
        }
        shard.insert(*id, Instant::now());
        Ok(())
    }

    /// Whether it was used lately.
    pub fn is_known(&self, id: &SessionKey) -> bool {
        self.shard(id).is_some_and(|s| s.lock().contains_key(id))
    }

    /// Forgets a session; true if it was there.
    pub fn end(&self, id: &SessionKey) -> bool {
        let mut ended = self.ended.lock();
        // Beyond that, those that are left expire.
        if ended.len() < MAX_SESSIONS {
            ended.insert(*id);
        }
        drop(ended);
        self.shard(id)
            .is_some_and(|s| s.lock().remove(id).is_some())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().len()).sum()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them with the time since their last use.
    pub fn list(&self) -> Vec<(SessionKey, Duration)> {
        self.shards
            .iter()
            .flat_map(|s| {
                s.lock()
                    .iter()
                    .map(|(id, at)| (*id, at.elapsed()))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Those that were used since the last refresh, with the time since then.
    pub fn used_since_refresh(&self) -> Vec<(SessionKey, Duration)> {
        let refreshed = *self.refreshed.lock();
        let mut used = self.list();
        if let Some(at) = refreshed {
            let since = at.elapsed();
            used.retain(|(_, idle)| *idle <= since);
        }
        used
    }

    /// Notes a refresh that has written everything that was used before `at`.
    pub fn refreshed(&self, at: Instant) {
        *self.refreshed.lock() = Some(at);
    }

    /// Takes those that were ended since the last refresh.
    pub fn take_ended(&self) -> Vec<SessionKey> {
        self.ended.lock().drain().collect()
    }

    /// Gives them back to the next refresh.
    pub fn give_back_ended(&self, ended: Vec<SessionKey>) {
        self.ended.lock().extend(ended);
    }

    /// Takes out and returns what timed out.
    pub fn expire(&self) -> Vec<SessionKey> {
        let limit = Duration::from_secs(TIMEOUT_MINUTES as u64 * 60);
        let mut gone = Vec::new();
        for s in &self.shards {
            s.lock().retain(|id, at| {
                let keep = at.elapsed() < limit;
                if !keep {
                    gone.push(*id);
                }
                keep
            });
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_the_digest_of_nothing() {
        let nothing: [u8; 32] = Sha256::digest("").into();
        assert_eq!(digest_of("", ""), nothing);
        let user: [u8; 32] = Sha256::digest("ann@admin").into();
        assert_eq!(digest_of("ann", "admin"), user);
    }
}
