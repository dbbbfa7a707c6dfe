//! The part of a numbered session's state that is kept in memory.
//!
//! A session in use has a [`Participant`], which has all that the next command needs. A participant is
//! dropped when it was not used for a second, or as soon as its command ends if there are many already: the
//! store has the state of its session, and what the store does not have takes some bytes ([`Past`]).
//!
//! Invariants: a participant that a command holds, or that has a transaction under way, is kept; nothing is
//! kept of a session that was ended or has timed out.

use super::{Latest, Participant, State};
use crate::sessions::{Sessions, shrink};
use crate::state::ServerState;
use muniment_op::Lock;
use muniment_storage::{Session, SessionHead, SessionKey, SessionState};
use muniment_value::Result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// With this many participants, of less than 1 KB each, a further one is dropped as soon as its command ends.
const MANY: usize = 8192;

/// The state of a session's newest number, where the store does not have it.
struct Past {
    number: i64,
    epoch: u64,
    ended: Ended,
}

enum Ended {
    /// A transaction that has written nothing, and so has no record in the store.
    Committed,
    Aborted,
    /// Retryable writes that have changed nothing.
    Unwritten,
}

/// The sessions that have a number.
#[derive(Default)]
pub(super) struct Known {
    maps: Mutex<Maps>,
}

#[derive(Default)]
struct Maps {
    active: HashMap<SessionKey, Arc<Participant>>,
    past: HashMap<SessionKey, Past>,
}

impl Known {
    /// The session's participant, and whether there are already many.
    pub fn enter(&self, session: SessionKey) -> (Arc<Participant>, bool) {
        let Maps { active, past } = &mut *self.maps.lock();
        let crowded = active.len() >= MANY;
        let participant = active.entry(session).or_insert_with(|| {
            let past = past.remove(&session);
            Arc::new(past.map_or_else(Participant::default, Participant::from))
        });
        participant.used.store(true, Relaxed);
        (participant.clone(), crowded)
    }

    /// The session's participant, if it has one.
    pub fn get(&self, session: &SessionKey) -> Option<Arc<Participant>> {
        self.maps.lock().active.get(session).cloned()
    }

    /// All that `f` finds among the participants.
    pub fn find<T>(&self, f: impl Fn(&SessionKey, &Participant) -> Option<T>) -> Vec<T> {
        let maps = self.maps.lock();
        maps.active.iter().filter_map(|(k, p)| f(k, p)).collect()
    }

    /// Forgets a session. If a command has it checked out, that command continues with it, and so do commands
    /// that arrive before that one ends.
    pub fn forget(&self, session: &SessionKey) {
        let Maps { active, past } = &mut *self.maps.lock();
        past.remove(session);
        if let Entry::Occupied(o) = active.entry(*session)
            && Arc::strong_count(o.get()) == 1
        {
            o.remove();
        }
        shrink(active);
        shrink(past);
    }

    /// Drops a session's participant, if no command holds it.
    pub fn let_go(&self, session: &SessionKey, sessions: &Sessions) {
        self.maps.lock().let_go(session, sessions);
    }

    /// Drops the participants that were not used since the last call.
    pub fn let_go_of_idle(&self, sessions: &Sessions) {
        let mut maps = self.maps.lock();
        let all = maps.active.iter();
        let idle = all.filter(|(_, p)| !p.used.swap(false, Relaxed));
        let idle: Vec<SessionKey> = idle.map(|(key, _)| *key).collect();
        for session in idle {
            maps.let_go(&session, sessions);
        }
        shrink(&mut maps.active);
    }

    /// How many participants are in use, and how many other sessions have a [`Past`].
    #[cfg(test)]
    pub fn len(&self) -> (usize, usize) {
        let maps = self.maps.lock();
        (maps.active.len(), maps.past.len())
    }
}

impl Maps {
    fn let_go(&mut self, session: &SessionKey, sessions: &Sessions) {
        let Entry::Occupied(o) = self.active.entry(*session) else {
            return;
        };
        if Arc::strong_count(o.get()) > 1 {
            return;
        }
        let past = {
            let participant = o.get();
            let Some(latest) = participant.latest.try_lock() else {
                return;
            };
            match past(participant, latest.as_ref()) {
                Some(past) => past,
                None => return,
            }
        };
        o.remove();
        // A thread that ends a session first removes it from `sessions` and then calls `forget`. So nothing
        // of an ended session stays here: either this check fails, or `forget` comes later.
        if let Some(past) = past
            && sessions.is_known(session)
        {
            self.past.insert(*session, past);
        }
    }
}

/// The part of a session's state to keep when its participant is dropped. `None` if it cannot be dropped.
fn past(participant: &Participant, latest: Option<&Latest>) -> Option<Option<Past>> {
    if participant.running.lock().is_some() {
        return None;
    }
    let Some(latest) = latest else {
        return Some(None);
    };
    let ended = match &latest.state {
        State::InProgress(running) if !running.transaction.has_ended() => return None,
        State::InProgress(_) | State::Aborted => Ended::Aborted,
        State::Committed(None) => Ended::Committed,
        // The store has it.
        State::Committed(Some(_)) | State::Prepared => return Some(None),
        State::Unwritten => Ended::Unwritten,
        State::Retryable(record) => match record.lock().is_written() {
            true => return Some(None),
            false => Ended::Unwritten,
        },
    };
    Some(Some(Past {
        number: latest.number,
        epoch: participant.epoch.load(Relaxed),
        ended,
    }))
}

/// Reads from the store what a command with this number needs to know of its session, unless memory has it.
pub(super) fn load(
    server: &ServerState,
    session: &SessionKey,
    number: i64,
    latest: &mut Option<Latest>,
) -> Result<()> {
    let unwritten = match latest.as_ref().map(|l| (l.number, &l.state)) {
        None => None,
        Some((newest, State::Unwritten)) => Some(newest),
        // Its results were dropped from memory, and this command asks for them.
        Some((newest, State::Retryable(r))) if newest == number && r.lock().is_shed() => None,
        Some(_) => return Ok(()),
    };
    let stored = server.engine.store.session(session)?;
    let retryable = |record| State::Retryable(Arc::new(Mutex::new(record)));
    *latest = match (unwritten, stored) {
        (None, stored) => stored.map(|record| Latest {
            number: record.number(),
            state: match record.head().record().state {
                SessionState::Committed => State::Committed(None),
                SessionState::Retryable => retryable(record),
            },
        }),
        (Some(number), stored) => {
            let new = || Session::new(number, SessionHead::default());
            let mut record = stored.unwrap_or_else(new);
            record.renew(number);
            Some(Latest {
                number,
                state: retryable(record),
            })
        }
    };
    Ok(())
}

impl From<Past> for Participant {
    fn from(past: Past) -> Participant {
        let latest = Latest {
            number: past.number,
            state: match past.ended {
                Ended::Committed => State::Committed(None),
                Ended::Aborted => State::Aborted,
                Ended::Unwritten => State::Unwritten,
            },
        };
        Participant {
            latest: Arc::new(Lock::new(Some(latest))),
            epoch: past.epoch.into(),
            ..Participant::default()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_storage::CommitId;

    #[test]
    fn idle_participants_are_dropped_and_held_ones_stay() {
        let (known, sessions) = (Known::default(), Sessions::new(&Arc::default()));
        let key = |n: u8| SessionKey::of_nobody([n; 16]);
        let (held, crowded) = known.enter(key(0));
        assert!(!crowded);
        for n in 1..5 {
            sessions.touch(&key(n), 10).unwrap();
            let (participant, _) = known.enter(key(n));
            *participant.latest.lock() = Some(Latest {
                number: 7,
                state: match n {
                    4 => State::Committed(Some(CommitId {
                        index: 1,
                        at: muniment_io::Timestamp(1),
                    })),
                    _ => State::Aborted,
                },
            });
        }
        sessions.end(&key(3));
        // All participants were used since the last call, as this is the first one.
        known.let_go_of_idle(&sessions);
        assert_eq!(known.len(), (5, 0));
        // Nothing is kept of the session that was ended, nor of the one that the store has.
        known.let_go_of_idle(&sessions);
        assert_eq!(known.len(), (1, 2));
        let (back, _) = known.enter(key(1));
        let latest = back.latest.lock();
        let latest = latest.as_ref().unwrap();
        assert!(latest.number == 7 && matches!(latest.state, State::Aborted));
        assert_eq!(known.len(), (2, 1));
        known.forget(&key(2));
        known.forget(&key(0));
        assert_eq!(known.len(), (2, 0));
        drop(held);
        known.forget(&key(0));
        assert_eq!(known.len(), (1, 0));
    }
}
