//! Transactions of clients: each has a part on every shard that a statement of it went to.
//!
//! The shards have the parts. The router remembers which shards these are and which of them have written, and
//! tells the client the one that knows the outcome (`recoveryToken`): the first that was written to.

use super::SetPool;
use muniment_member::times_of;
use muniment_storage::SessionKey;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A session is forgotten so long after its last statement.
const KEPT: Duration = Duration::from_secs(35 * 60);
/// So many sessions are remembered before those are looked for that can be forgotten.
const MOST: usize = 10_000;

/// So often those are looked for that can be forgotten.
const SWEEP: Duration = Duration::from_secs(10);

/// The part of a transaction on one shard.
#[derive(Clone)]
pub struct Part {
    /// The shard.
    pub set: Arc<SetPool>,
    /// A statement has written there.
    pub wrote: bool,
}

struct Entry {
    number: i64,
    /// In the order in which the shards were written to, and then those that were only read.
    parts: Vec<Part>,
    /// What the first statement has asked for; with the level "snapshot", the time at which all shards read.
    read_concern: Option<DocBuf>,
    /// A statement has failed: the transaction must not be committed.
    failed: bool,
    /// The shards that only read have ended their parts.
    ended: bool,
    /// The client has asked for its end.
    ending: bool,
    used: Instant,
}

/// What is known of a transaction.
pub struct Known {
    /// Its parts, those that were written to first.
    pub parts: Vec<Part>,
    /// A statement has failed.
    pub failed: bool,
    /// The shards that only read have ended their parts.
    pub ended: bool,
}

impl Known {
    /// The shard that knows the outcome.
    pub fn coordinator(&self) -> Option<&Arc<SetPool>> {
        self.parts.first().map(|part| &part.set)
    }
}

impl Entry {
    fn known(&self) -> Known {
        Known {
            parts: self.parts.clone(),
            failed: self.failed,
            ended: self.ended,
        }
    }
}

/// The number of a transaction, and its session.
pub type Id = (SessionKey, i64);

/// See the module's head.
#[derive(Default)]
pub struct Transactions(Mutex<Sessions>);

#[derive(Default)]
struct Sessions {
    all: HashMap<SessionKey, Entry>,
    swept: Option<Instant>,
}

impl Sessions {
    fn of(&mut self, (session, number): &Id) -> Option<&mut Entry> {
        self.all.get_mut(session).filter(|e| e.number == *number)
    }
}

impl Transactions {
    /// Notes the first statement of a transaction.
    ///
    /// # Errors
    /// 251 if a later one of the session has begun meanwhile.
    pub fn begin(&self, (session, number): Id, read_concern: Option<Doc<'_>>) -> Result<()> {
        let used = muniment_op::now();
        let mut sessions = self.0.lock();
        let Sessions { all, swept } = &mut *sessions;
        if all.get(&session).is_some_and(|e| e.number > number) {
            return Err(no_such_transaction(number));
        }
        if all.len() >= MOST && swept.is_none_or(|at| muniment_op::since(at) > SWEEP) {
            *swept = Some(used);
            all.retain(|_, e| used.saturating_duration_since(e.used) < KEPT);
        }
        let entry = Entry {
            number,
            parts: Vec::new(),
            read_concern: read_concern.map(|d| d.to_buf()),
            failed: false,
            ended: false,
            ending: false,
            used,
        };
        all.insert(session, entry);
        Ok(())
    }

    /// Whether no statement of the transaction has failed, and no later one of the session has begun.
    pub fn goes_on(&self, id: &Id) -> bool {
        self.0.lock().of(id).is_some_and(|e| !e.failed)
    }

    /// The number of the session's newest transaction here.
    pub fn newest_of(&self, session: &SessionKey) -> Option<i64> {
        self.0.lock().all.get(session).map(|e| e.number)
    }

    /// Whether a statement of the transaction has come before.
    pub fn has_begun(&self, id: &Id) -> bool {
        self.0.lock().of(id).is_some()
    }

    /// Notes that a statement of a transaction goes to a shard. `Some` if it is the first there, so that the
    /// shard has to begin its part: with the read concern, if there is one.
    ///
    /// # Errors
    /// 251 after a statement of it has failed, and for a transaction that did not begin here.
    pub fn goes_to(&self, id: &Id, set: &Arc<SetPool>) -> Result<Option<Option<DocBuf>>> {
        let mut sessions = self.0.lock();
        let Some(entry) = sessions.of(id) else {
            return Err(no_such_transaction(id.1));
        };
        entry.used = muniment_op::now();
        if entry.failed {
            return Err(no_such_transaction(id.1));
        }
        if entry.parts.iter().any(|part| part.set.name == set.name) {
            return Ok(None);
        }
        entry.parts.push(Part {
            set: Arc::clone(set),
            wrote: false,
        });
        Ok(Some(entry.read_concern.clone()))
    }

    /// Notes what a shard says of its part: whether it has written, and at which time it reads.
    pub fn told(&self, id: &Id, set: &SetPool, reply: Doc<'_>) {
        let mut sessions = self.0.lock();
        let Some(entry) = sessions.of(id) else { return };
        if let (Some(concern), Some(at @ Value::Timestamp { .. })) =
            (&mut entry.read_concern, reply.get("atClusterTime"))
        {
            read_at(concern, at);
        }
        let wrote = reply.get("readOnly").is_some_and(|v| !v.truthy());
        let place = entry
            .parts
            .iter()
            .position(|part| part.set.name == set.name);
        let first_reader = entry.parts.iter().position(|part| !part.wrote);
        if let (true, Some(place), Some(reader)) = (wrote, place, first_reader)
            && place >= reader
        {
            let mut part = entry.parts.remove(place);
            part.wrote = true;
            entry.parts.insert(reader, part);
        }
    }

    /// Notes that a statement of a transaction has failed.
    pub fn fails(&self, id: &Id) {
        if let Some(entry) = self.0.lock().of(id) {
            entry.failed = true;
        }
    }

    /// What is known of a transaction whose end the client has asked for, if a statement of it went to a shard.
    pub fn ending(&self, id: &Id) -> Option<Known> {
        let mut sessions = self.0.lock();
        let entry = sessions.of(id)?;
        entry.ending = true;
        (!entry.parts.is_empty()).then(|| entry.known())
    }

    /// The number and the parts of the session's earlier transaction, if the client has left it open. It counts as
    /// failed then.
    pub fn left_open(&self, (session, number): &Id) -> Option<(i64, Known)> {
        let mut sessions = self.0.lock();
        let entry = sessions.all.get_mut(session)?;
        let open = !entry.failed && !entry.ending && !entry.parts.is_empty();
        if entry.number >= *number || !open {
            return None;
        }
        entry.failed = true;
        Some((entry.number, entry.known()))
    }

    /// Notes that the shards that only read have ended their parts.
    pub fn ends(&self, id: &Id) {
        if let Some(entry) = self.0.lock().of(id) {
            entry.ended = true;
        }
    }

    /// What is known of a transaction, if a statement of it went to a shard.
    pub fn of(&self, id: &Id) -> Option<Known> {
        let mut sessions = self.0.lock();
        let entry = sessions.of(id).filter(|e| !e.parts.is_empty())?;
        Some(entry.known())
    }
}

/// Has a read concern of the level "snapshot" name its time, if it names none.
fn read_at(concern: &mut DocBuf, at: Value<'_>) {
    let named = concern.as_doc();
    let is_snapshot = named.get_str("level") == Some("snapshot");
    if is_snapshot && named.get("atClusterTime").is_none() {
        let mut with = DocBuf::new();
        // A read at a time names no other one; this one is not earlier.
        for e in named.iter().filter(|e| e.name() != "afterClusterTime") {
            with.append_elem(e);
        }
        debug_assert!(
            named
                .get("afterClusterTime")
                .is_none_or(|t| times_of(t) <= times_of(at))
        );
        with.append("atClusterTime", at);
        *concern = with;
    }
}

/// 251 NoSuchTransaction.
pub fn no_such_transaction(number: i64) -> Error {
    Error::new(
        Code::NoSuchTransaction,
        format!("Transaction with {{ txnNumber: {number} }} has been aborted."),
    )
}
