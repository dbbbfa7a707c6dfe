//! Logical sessions: which are in use and by which user, so that endSessions and killSessions find what
//! belongs to them. Two users who choose the same session id have a session each. A session of
//! a connection on which nobody has logged in has no user.
//!
//! Invariants: there are at most `maxSessions` records, of 30 to 60 bytes each; a record that was not used
//! for 30 minutes is removed. A session that was used since the last refresh stays known until the next
//! refresh has written it. If a written session is ended, that is remembered for the next refresh (for up to
//! [`MOST_ENDED`] sessions; the others expire).

use muniment_op::{Account, Ledger, Share};
use muniment_storage::{NOBODY, SessionKey};
use muniment_value::{Code, Error, Result, Value};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// localLogicalSessionTimeoutMinutes.
pub const TIMEOUT_MINUTES: i32 = 30;
/// The most records if maxSessions is not set.
pub const MAX_SESSIONS: i64 = 1_000_000;
/// The most sessions whose end is remembered for the next refresh.
const MOST_ENDED: usize = 100_000;
const SHARDS: usize = 16;

/// The digest of a user, `user@db`.
pub fn digest_of_key(user: &str) -> [u8; 32] {
    Sha256::digest(user).into()
}

/// The digest of a user's name, by which sessions identify the user.
pub fn digest_of(user: &str, db: &str) -> [u8; 32] {
    match (user, db) {
        ("", "") => NOBODY,
        _ => digest_of_key(&format!("{user}@{db}")),
    }
}

/// When a session was last used, in milliseconds since the start, and in the lowest bit whether a refresh has
/// ever written it. Both are in one number, since there may be a million of them.
#[derive(Clone, Copy)]
struct Use(u64);

impl Use {
    fn new(at_ms: u64) -> Use {
        Use(at_ms << 1)
    }

    fn at_ms(self) -> u64 {
        self.0 >> 1
    }

    fn is_written(self) -> bool {
        self.0 & 1 == 1
    }

    fn again(self, at_ms: u64) -> Use {
        Use(at_ms << 1 | self.0 & 1)
    }

    fn written(self) -> Use {
        Use(self.0 | 1)
    }
}

/// A part of the records. Nearly all sessions have no user, and a record without one takes a third of the
/// memory, so these are kept apart.
#[derive(Default)]
struct Shard {
    nobody: HashMap<[u8; 16], Use>,
    users: HashMap<SessionKey, Use>,
}

impl Shard {
    fn get_mut(&mut self, id: &SessionKey) -> Option<&mut Use> {
        match id.user == NOBODY {
            true => self.nobody.get_mut(&id.id),
            false => self.users.get_mut(id),
        }
    }

    fn insert(&mut self, id: &SessionKey, used: Use) {
        match id.user == NOBODY {
            true => self.nobody.insert(id.id, used),
            false => self.users.insert(*id, used),
        };
    }

    fn remove(&mut self, id: &SessionKey) -> Option<Use> {
        let removed = match id.user == NOBODY {
            true => self.nobody.remove(&id.id),
            false => self.users.remove(id),
        };
        self.shrink();
        removed
    }

    fn shrink(&mut self) {
        shrink(&mut self.nobody);
        shrink(&mut self.users);
    }

    fn iter(&self) -> impl Iterator<Item = (SessionKey, Use)> {
        let nobody = self.nobody.iter();
        let nobody = nobody.map(|(id, used)| (SessionKey::of_nobody(*id), *used));
        nobody.chain(self.users.iter().map(|(key, used)| (*key, *used)))
    }

    /// The memory of the records in bytes, approximately: entries with one byte of their hash each; a map is
    /// full when an eighth is free.
    fn bytes(&self) -> usize {
        let one = |capacity: usize, entry: usize| capacity * (entry + 1) * 8 / 7;
        one(self.nobody.capacity(), size_of::<([u8; 16], Use)>())
            + one(self.users.capacity(), size_of::<(SessionKey, Use)>())
    }
}

/// The records.
pub struct Sessions {
    started: Instant,
    shards: [Mutex<Shard>; SHARDS],
    /// Records in all shards.
    count: AtomicUsize,
    /// The memory of the records.
    share: Mutex<Share>,
    /// Written sessions that were ended since the last refresh.
    ended: Mutex<HashSet<SessionKey>>,
    /// When the last refresh began; `None` if there was none.
    refreshed_ms: Mutex<Option<u64>>,
    /// The figures of the refreshes.
    pub job: Mutex<Job>,
}

/// The figures of the refreshes, for `serverStatus.logicalSessionRecordCache`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Job {
    /// How many refreshes there were.
    pub count: i32,
    /// When the last one began, in milliseconds since 1970.
    pub began_ms: i64,
    /// How long it took, in milliseconds.
    pub took_ms: i32,
    /// How many sessions the last one wrote.
    pub refreshed: i32,
    /// How many sessions the last one removed.
    pub ended: i32,
}

impl Sessions {
    /// No sessions yet; their memory is booked in the ledger.
    pub fn new(ledger: &Arc<Ledger>) -> Sessions {
        Sessions {
            started: Instant::now(),
            shards: Default::default(),
            count: AtomicUsize::new(0),
            share: Mutex::new(Share::new(ledger, Account::Sessions)),
            ended: Mutex::default(),
            refreshed_ms: Mutex::default(),
            job: Mutex::default(),
        }
    }

    fn shard(&self, id: &SessionKey) -> Option<&Mutex<Shard>> {
        self.shards.get(usize::from(id.id[0]) % SHARDS)
    }

    /// Milliseconds since the start.
    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn since(&self, at_ms: u64) -> Duration {
        Duration::from_millis(self.now_ms().saturating_sub(at_ms))
    }

    /// Notes a use of the session; `most` is the most records that there may be.
    ///
    /// # Errors
    /// 261 TooManyLogicalSessions.
    pub fn touch(&self, id: &SessionKey, most: usize) -> Result<()> {
        let Some(shard) = self.shard(id) else {
            return Ok(());
        };
        let now = self.now_ms();
        let mut shard = shard.lock();
        if let Some(used) = shard.get_mut(id) {
            *used = used.again(now);
            return Ok(());
        }
        if self.count.fetch_add(1, Relaxed) >= most {
            self.count.fetch_sub(1, Relaxed);
            return Err(too_many(id));
        }
        let before = shard.bytes();
        shard.insert(id, Use::new(now));
        let after = shard.bytes();
        drop(shard);
        self.book(before, after);
        Ok(())
    }

    /// Whether the session has a record, so that it was used lately.
    pub fn is_known(&self, id: &SessionKey) -> bool {
        self.shard(id)
            .is_some_and(|s| s.lock().get_mut(id).is_some())
    }

    /// Books the new memory when a shard's has changed. The caller must not hold the lock of a shard.
    fn book(&self, before: usize, after: usize) {
        if before != after {
            let all = self.shards.iter().map(|s| s.lock().bytes()).sum();
            self.share.lock().holds(all);
        }
    }

    /// Forgets a session. Returns true if it had a record.
    pub fn end(&self, id: &SessionKey) -> bool {
        let mut removed = None;
        if let Some(shard) = self.shard(id) {
            let mut shard = shard.lock();
            let before = shard.bytes();
            removed = shard.remove(id);
            let after = shard.bytes();
            drop(shard);
            self.book(before, after);
        }
        if removed.is_some() {
            self.count.fetch_sub(1, Relaxed);
        }
        // A refresh has written it, or an earlier run of the server may have, so the next refresh has to
        // remove it.
        if removed.is_none_or(Use::is_written) {
            let mut ended = self.ended.lock();
            if ended.len() < MOST_ENDED {
                ended.insert(*id);
            }
        }
        removed.is_some()
    }

    /// How many sessions have a record.
    pub fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// True if no session has a record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All sessions with the time since their last use, one part at a time. A session that comes or goes
    /// meanwhile may or may not be included.
    pub fn parts(&self) -> impl Iterator<Item = Vec<(SessionKey, Duration)>> {
        self.shards.iter().map(|shard| {
            let shard = shard.lock();
            let one = |(id, used): (SessionKey, Use)| (id, self.since(used.at_ms()));
            shard.iter().map(one).collect()
        })
    }

    /// The sessions that were used since the last refresh, with the time since their last use, one part at a
    /// time.
    pub fn used_since_refresh(&self) -> impl Iterator<Item = Vec<(SessionKey, Duration)>> {
        let refreshed = *self.refreshed_ms.lock();
        let since = refreshed.map_or(Duration::MAX, |at| self.since(at));
        self.parts().map(move |mut part| {
            part.retain(|(_, idle)| *idle <= since);
            part
        })
    }

    /// Marks sessions as written by a refresh.
    pub fn written<'k>(&self, ids: impl IntoIterator<Item = &'k SessionKey>) {
        for id in ids {
            if let Some(shard) = self.shard(id)
                && let Some(used) = shard.lock().get_mut(id)
            {
                *used = used.written();
            }
        }
    }

    /// The time to pass to [`Sessions::refreshed`] after the refresh that begins now.
    pub fn begin_refresh(&self) -> u64 {
        self.now_ms()
    }

    /// Notes that a refresh has written every session which was used before it began.
    pub fn refreshed(&self, began: u64) {
        *self.refreshed_ms.lock() = Some(began);
    }

    /// Takes the sessions that were ended since the last refresh.
    pub fn take_ended(&self) -> HashSet<SessionKey> {
        std::mem::take(&mut *self.ended.lock())
    }

    /// Returns ended sessions, which could not be removed, to the next refresh.
    pub fn give_back_ended(&self, ended: HashSet<SessionKey>) {
        self.ended.lock().extend(ended);
    }

    /// Removes and returns the sessions that have timed out, one part at a time.
    pub fn expire(&self) -> impl Iterator<Item = HashSet<SessionKey>> {
        let limit = Duration::from_secs(TIMEOUT_MINUTES as u64 * 60);
        self.shards.iter().map(move |shard| {
            let mut shard = shard.lock();
            let old =
                |(id, used): (SessionKey, Use)| (self.since(used.at_ms()) >= limit).then_some(id);
            let gone: HashSet<SessionKey> = shard.iter().filter_map(old).collect();
            let before = shard.bytes();
            for id in &gone {
                shard.remove(id);
            }
            let after = shard.bytes();
            drop(shard);
            self.count.fetch_sub(gone.len(), Relaxed);
            self.book(before, after);
            gone
        })
    }
}

/// Gives memory back if a map has lost most of its entries.
pub fn shrink<K: Eq + std::hash::Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > 1024 && map.len() < map.capacity() / 8 {
        map.shrink_to(map.len() * 2);
    }
}

/// 261 TooManyLogicalSessions.
fn too_many(id: &SessionKey) -> Error {
    let id = Value::Binary {
        subtype: 4,
        bytes: &id.id,
    };
    Error::new(
        Code::TooManyLogicalSessions,
        format!(
            "Unable to add session ID {} into the cache because the number of active sessions is \
             too high",
            id.to_display()
        ),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn key(n: u32) -> SessionKey {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&n.to_le_bytes());
        SessionKey::of_nobody(id)
    }

    #[test]
    fn nobody_is_the_digest_of_nothing() {
        let nothing: [u8; 32] = Sha256::digest("").into();
        assert_eq!(digest_of("", ""), nothing);
        let user: [u8; 32] = Sha256::digest("ann@admin").into();
        assert_eq!(digest_of("ann", "admin"), user);
    }

    #[test]
    fn the_limit_counts_all_shards_and_an_end_makes_room() {
        let sessions = Sessions::new(&Arc::default());
        // All keys fall into one shard, which may hold as many records as all shards together.
        for n in 0..10 {
            sessions.touch(&key(n * 16), 10).unwrap();
        }
        let e = sessions.touch(&key(1), 10).unwrap_err();
        assert_eq!(e.code(), Code::TooManyLogicalSessions);
        sessions.touch(&key(0), 10).unwrap();
        assert_eq!(sessions.len(), 10);
        assert!(sessions.end(&key(0)) && !sessions.end(&key(0)));
        sessions.touch(&key(1), 10).unwrap();
        assert_eq!(sessions.len(), 10);
    }

    #[test]
    fn of_what_was_never_written_nothing_is_to_be_taken_away() {
        let sessions = Sessions::new(&Arc::default());
        for n in 0..3 {
            sessions.touch(&key(n), 10).unwrap();
        }
        let began = sessions.begin_refresh();
        sessions.written([&key(1)]);
        sessions.refreshed(began);
        sessions.touch(&key(1), 10).unwrap();
        for n in [0, 1, 7] {
            sessions.end(&key(n));
        }
        // Session 7 has no record, so an earlier run of the server may have written it.
        assert_eq!(sessions.take_ended(), HashSet::from([key(1), key(7)]));
    }

    #[test]
    fn memory_of_many_sessions_is_given_back() {
        let sessions = Sessions::new(&Arc::default());
        let room = || -> usize { sessions.shards.iter().map(|s| s.lock().bytes()).sum() };
        let booked = || sessions.share.lock().booked();
        for n in 0..100_000 {
            sessions.touch(&key(n), 100_000).unwrap();
        }
        assert!(room() >= 2_500_000 && room() < 6_000_000, "{}", room());
        assert_eq!(booked(), room().next_multiple_of(64 << 10));
        for n in 0..100_000 {
            sessions.end(&key(n));
        }
        assert!(sessions.is_empty() && room() < 500_000, "{}", room());
        assert!(booked() < 500_000);
    }
}
