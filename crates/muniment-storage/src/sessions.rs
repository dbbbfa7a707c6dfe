//! What a session has done under its newest transaction number: so that a write that a driver sends
//! again after a lost reply, or after a crash, is answered and not done twice.
//!
//! A record stands in a tree of its own under the session's id. What a commit adds to it is in that
//! commit's record of the log; applying it is [`SessionRecord::add`].

use crate::keys::{get_varint, put_varint};
use crate::store::{Inner, Store};
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_query::Interrupt;
use muniment_tree::{Direction, Range, TreeId};
use muniment_value::{Code, Doc, Error, Result};

/// The tree of sessions' records: behind every number that collections and indexes can get.
pub(crate) const SESSIONS: u32 = u32::MAX - 1;

/// The version of a record's format.
const VERSION: u8 = 1;

/// A session's id: that of `lsid`.
pub type SessionKey = [u8; 16];

/// What the newest number of a session is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionState {
    /// A retryable write.
    #[default]
    Retryable,
    /// A transaction that was committed.
    Committed,
}

/// Statements one after another with the same result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first statement's id.
    pub first: i32,
    /// How many there are.
    pub count: u32,
    /// What each came to: BSON as the executor has it; empty for inserts.
    pub result: Vec<u8>,
}

impl Run {
    /// True if each of the statements has changed a document: nothing is in the log of those that
    /// found one as it was to be.
    pub(crate) fn has_written(&self) -> bool {
        let result = Doc::new(&self.result);
        self.result.is_empty() || result.get("m").is_some() || result.get("u").is_some()
    }
}

/// What a session has done under its newest number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// `txnNumber`.
    pub number: i64,
    /// What it is.
    pub state: SessionState,
    /// When it was written, in milliseconds since 1970.
    pub at_ms: i64,
    runs: Vec<Run>,
}

impl SessionRecord {
    /// Nothing done yet under this number.
    pub fn new(number: i64, state: SessionState, at_ms: i64) -> SessionRecord {
        SessionRecord {
            number,
            state,
            at_ms,
            runs: Vec::new(),
        }
    }

    /// Notes statements that were done.
    pub fn push(&mut self, run: Run) {
        if let Some(last) = self.runs.last_mut()
            && i64::from(last.first) + i64::from(last.count) == i64::from(run.first)
            && last.result == run.result
        {
            last.count += run.count;
            return;
        }
        self.runs.push(run);
    }

    /// Adds what came later. Another number takes this one's place.
    pub fn add(&mut self, later: SessionRecord) {
        if later.number != self.number {
            *self = later;
            return;
        }
        self.state = later.state;
        self.at_ms = later.at_ms;
        for run in later.runs {
            self.push(run);
        }
    }

    /// What a statement came to, if it was done.
    pub fn result(&self, statement: i32) -> Option<&[u8]> {
        let has = |r: &&Run| {
            let place = i64::from(statement) - i64::from(r.first);
            (0..i64::from(r.count)).contains(&place)
        };
        self.runs.iter().find(has).map(|r| &*r.result)
    }

    /// Bytes that the results take.
    pub fn result_bytes(&self) -> usize {
        self.runs.iter().map(|r| r.result.len()).sum()
    }

    /// The statements that were done.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// As it is stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.state as u8];
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.at_ms.to_le_bytes());
        for run in &self.runs {
            out.extend_from_slice(&run.first.to_le_bytes());
            put_varint(run.count as usize, &mut out);
            put_varint(run.result.len(), &mut out);
            out.extend_from_slice(&run.result);
        }
        out
    }

    /// Reads what [`SessionRecord::encode`] wrote; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<SessionRecord> {
        let (head, mut rest) = bytes.split_at_checked(18)?;
        let number = |range: std::ops::Range<usize>| {
            Some(i64::from_le_bytes(head.get(range)?.try_into().ok()?))
        };
        let state = match (head.first()?, head.get(1)?) {
            (&VERSION, 0) => SessionState::Retryable,
            (&VERSION, 1) => SessionState::Committed,
            _ => return None,
        };
        let mut record = SessionRecord::new(number(2..10)?, state, number(10..18)?);
        while !rest.is_empty() {
            let (first, behind) = rest.split_at_checked(4)?;
            let (count, took) = get_varint(behind)?;
            let behind = behind.get(took..)?;
            let (len, took) = get_varint(behind)?;
            let (result, behind) = behind.get(took..)?.split_at_checked(len)?;
            record.runs.push(Run {
                first: i32::from_le_bytes(first.try_into().ok()?),
                count: u32::try_from(count).ok()?,
                result: result.to_vec(),
            });
            rest = behind;
        }
        Some(record)
    }
}

impl Inner {
    /// The record of a session as the tree has it.
    ///
    /// # Errors
    /// 301.
    pub fn session(&self, key: &[u8]) -> Result<Option<SessionRecord>> {
        let Some(stored) = self.trees.get(TreeId(SESSIONS), key, Timestamp::MAX)? else {
            return Ok(None);
        };
        SessionRecord::decode(&stored).map(Some).ok_or_else(|| {
            Error::new(
                Code::DataCorruptionDetected,
                format!("data corruption detected: the record of session {key:02x?} is malformed"),
            )
        })
    }
}

impl Store {
    /// What is stored of a session.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    pub fn session(&self, key: &SessionKey) -> Result<Option<SessionRecord>> {
        self.inner.session(key)
    }

    /// All stored records.
    ///
    /// # Errors
    /// 301; what `each` says.
    pub fn each_session(
        &self,
        mut each: impl FnMut(SessionKey, SessionRecord) -> Result<()>,
    ) -> Result<()> {
        let snapshot = self.snapshot();
        let all = snapshot.raw_range(SESSIONS, Range::default(), Direction::Forward);
        let mut all = all.ok_or_else(crate::view::closed)?;
        while let Some((key, value)) = all.next()? {
            let key = SessionKey::try_from(&*key).ok();
            if let Some((key, record)) = key.zip(SessionRecord::decode(&value)) {
                each(key, record)?;
            }
        }
        Ok(())
    }

    /// Forgets sessions whose time is over, in one commit.
    ///
    /// # Errors
    /// As a commit's.
    pub fn forget_sessions(&self, keys: &[SessionKey], interrupt: &dyn Interrupt) -> Result<()> {
        let mut stage = crate::commit::stage::Stage::new();
        for key in keys {
            if self.inner.session(key)?.is_some() {
                stage.forget_session(key);
            }
        }
        if stage.is_empty() {
            return Ok(());
        }
        self.inner.commit(stage, interrupt, |_| {}).map(|_| ())
    }
}

/// What a commit adds to a session's record.
#[derive(Clone, Debug)]
pub struct SessionChange {
    /// Whose.
    pub key: SessionKey,
    /// What comes to it.
    pub added: SessionRecord,
    /// The record with that.
    pub whole: SessionRecord,
}

/// The value of a put.
pub(crate) fn stored(record: &SessionRecord) -> Bytes {
    Bytes::from(record.encode())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn run(first: i32, count: u32, result: &[u8]) -> Run {
        Run {
            first,
            count,
            result: result.to_vec(),
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut r = SessionRecord::new(7, SessionState::Retryable, 99);
        r.push(run(0, 1000, b""));
        r.push(run(1000, 5, b""));
        r.push(run(1005, 1, b"x"));
        r.push(run(1006, 1, b"x"));
        r.push(run(1008, 1, b"x"));
        assert_eq!(r.runs().len(), 3);
        assert_eq!(SessionRecord::decode(&r.encode()).unwrap(), r);
        assert_eq!(r.result(1004), Some(&b""[..]));
        assert_eq!(r.result(1006), Some(&b"x"[..]));
        assert_eq!(
            (r.result(1007), r.result(-1), r.result(1009)),
            (None, None, None)
        );
        let bytes = r.encode();
        for cut in 0..bytes.len() {
            if let Some(less) = SessionRecord::decode(&bytes[..cut]) {
                assert!(less.runs().len() < 3);
            }
        }
    }

    #[test]
    fn what_is_added_is_what_was_done_at_once() {
        let mut r = SessionRecord::new(1, SessionState::Retryable, 1);
        r.push(run(0, 3, b""));
        let mut later = SessionRecord::new(1, SessionState::Retryable, 2);
        later.push(run(3, 2, b""));
        r.add(later);
        assert_eq!((r.runs(), r.at_ms), (&[run(0, 5, b"")][..], 2));
        r.add(SessionRecord::new(2, SessionState::Committed, 3));
        assert_eq!((r.number, r.runs().len()), (2, 0));
        assert_eq!(r.state, SessionState::Committed);
    }
}
