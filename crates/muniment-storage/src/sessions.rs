//! The record of a session: what it has done under its newest transaction number. A driver may send a
//! write again after a lost reply or after a crash; with the record it is answered and not done twice.
//!
//! A tree of its own holds the session's head under the session's key: the number and the statements
//! that were done last. When these have grown to some size they go to a row of their own, under the key
//! and the row's number. So a commit writes little more than what it adds, however much there is. What a
//! commit adds is in that commit's record of the log; applying it is [`SessionHead::advance`].

use crate::commit::announce::Announce;
use crate::inner::Inner;
use crate::keys::{get_varint, put_varint};
use crate::session_key::SessionKey;
use crate::store::Store;
use muniment_io::Timestamp;
use muniment_op::{Interrupt, NeverInterrupted};
use muniment_tree::{Direction, Range, TreeId};
use muniment_value::{Code, Doc, Error, Result};

/// The tree of sessions' records. Its number is greater than all that collections and indexes can get.
pub(crate) const SESSIONS: u32 = u32::MAX - 1;

/// The version of a record's format, in the log, and in the tree if there are no rows.
const VERSION: u8 = 1;

/// The version of the same format with the timestamp of the previous write.
const VERSION_BEHIND: u8 = 3;

/// The version of a head with rows.
const HEAD_VERSION: u8 = 2;

/// Bytes of a record without statements.
const RECORD: usize = 18;

/// Bytes of a timestamp.
const STAMP: usize = 8;

/// When the statements in a head have this many bytes they go to a row of their own.
const ROW: usize = 4096;

/// The most bytes of a head or a row, if the statements have small results.
pub(crate) const LITTLE: usize = 2 * ROW;

/// The kind of operation under the newest number of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionState {
    /// A retryable write.
    #[default]
    Retryable,
    /// A transaction that was committed.
    Committed,
}

/// Consecutive statements with the same result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first statement's id.
    pub first: i32,
    /// How many there are.
    pub count: u32,
    /// The result of each: BSON as the executor has made it; empty for inserts.
    pub result: Vec<u8>,
}

/// A document that a statement has returned.
#[derive(Clone, Copy, Debug)]
pub struct Returned<'r> {
    /// The document.
    pub doc: Doc<'r>,
    /// True for the document after the change, false for the one before it.
    pub after: bool,
}

impl Run {
    /// True if each of the statements has changed a document. A statement that found its document
    /// unchanged has nothing in the log.
    pub(crate) fn has_written(&self) -> bool {
        let result = Doc::new(&self.result);
        self.result.is_empty() || result.get("m").is_some() || result.get("u").is_some()
    }

    /// The document that a findAndModify has changed and returned.
    pub fn returned(&self) -> Option<Returned<'_>> {
        let result = Doc::new(&self.result);
        result.get("m")?;
        Some(Returned {
            doc: result.get_doc("v")?,
            after: result.get("a").is_some(),
        })
    }
}

/// What a commit adds to a session's record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRecord {
    /// `txnNumber`.
    pub number: i64,
    /// The kind of operation.
    pub state: SessionState,
    /// When it was written, in milliseconds since 1970.
    pub at_ms: i64,
    /// The timestamp of the previous write under the same number.
    pub behind: Option<Timestamp>,
    runs: Vec<Run>,
}

impl SessionRecord {
    /// A record without statements.
    pub fn new(number: i64, state: SessionState, at_ms: i64) -> SessionRecord {
        SessionRecord {
            number,
            state,
            at_ms,
            behind: None,
            runs: Vec::new(),
        }
    }

    /// Adds statements that were done.
    pub fn push(&mut self, run: Run) {
        push(&mut self.runs, run);
    }

    /// The statements that were done.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The form in the log.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(RECORD + STAMP + bytes_of(&self.runs));
        let version = match self.behind {
            Some(_) => VERSION_BEHIND,
            None => VERSION,
        };
        out.extend_from_slice(&[version, self.state as u8]);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.at_ms.to_le_bytes());
        if let Some(behind) = self.behind {
            out.extend_from_slice(&behind.0.to_le_bytes());
        }
        encode_runs(&self.runs, &mut out);
        out
    }

    /// Reads what [`SessionRecord::encode`] wrote; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<SessionRecord> {
        let (mut record, runs) = SessionRecord::decode_head(bytes)?;
        record.runs = decode_runs(runs)?;
        Some(record)
    }

    /// True if [`SessionRecord::decode`] reads it.
    pub(crate) fn is_readable(bytes: &[u8]) -> bool {
        let head = SessionRecord::decode_head(bytes);
        head.is_some_and(|(_, runs)| each_run(runs, |_, _, _| {}).is_some())
    }

    /// The record without its runs, and the bytes of the runs.
    fn decode_head(bytes: &[u8]) -> Option<(SessionRecord, &[u8])> {
        let (head, mut rest) = bytes.split_at_checked(RECORD)?;
        let number = |range: std::ops::Range<usize>| {
            Some(i64::from_le_bytes(head.get(range)?.try_into().ok()?))
        };
        let state = match head.get(1)? {
            0 => SessionState::Retryable,
            1 => SessionState::Committed,
            _ => return None,
        };
        let mut record = SessionRecord::new(number(2..10)?, state, number(10..18)?);
        match *head.first()? {
            VERSION => {}
            VERSION_BEHIND => {
                let (behind, runs) = rest.split_first_chunk::<STAMP>()?;
                record.behind = Some(Timestamp(u64::from_le_bytes(*behind)));
                rest = runs;
            }
            _ => return None,
        }
        Some((record, rest))
    }
}

/// Adds a run. It is joined to the last one if it continues that with the same result.
fn push(runs: &mut Vec<Run>, run: Run) {
    if let Some(last) = runs.last_mut()
        && i64::from(last.first) + i64::from(last.count) == i64::from(run.first)
        && last.result == run.result
    {
        last.count += run.count;
        return;
    }
    runs.push(run);
}

/// About how many bytes the runs take.
fn bytes_of(runs: &[Run]) -> usize {
    runs.iter().map(|r| r.result.len() + 8).sum()
}

fn encode_runs(runs: &[Run], out: &mut Vec<u8>) {
    for run in runs {
        out.extend_from_slice(&run.first.to_le_bytes());
        put_varint(run.count as usize, out);
        put_varint(run.result.len(), out);
        out.extend_from_slice(&run.result);
    }
}

fn decode_runs(bytes: &[u8]) -> Option<Vec<Run>> {
    let mut runs = Vec::new();
    each_run(bytes, |first, count, result| {
        let result = result.to_vec();
        runs.push(Run {
            first,
            count,
            result,
        });
    })?;
    Some(runs)
}

/// Calls `tell` for each run with the first statement, the number of statements, and their result.
fn each_run(mut rest: &[u8], mut tell: impl FnMut(i32, u32, &[u8])) -> Option<()> {
    while !rest.is_empty() {
        let (first, behind) = rest.split_at_checked(4)?;
        let (count, took) = get_varint(behind)?;
        let behind = behind.get(took..)?;
        let (len, took) = get_varint(behind)?;
        let (result, behind) = behind.get(took..)?.split_at_checked(len)?;
        let first = i32::from_le_bytes(first.try_into().ok()?);
        tell(first, u32::try_from(count).ok()?, result);
        rest = behind;
    }
    Some(())
}

/// The value under a session's key: the last statements, and the number of rows with earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionHead {
    record: SessionRecord,
    rows: u32,
}

/// A key of the tree of sessions with its new value; `None` deletes it.
pub(crate) type Put = (Vec<u8>, Option<Vec<u8>>);

impl SessionHead {
    /// The newest number, its kind of operation, and when it was written.
    pub fn record(&self) -> &SessionRecord {
        &self.record
    }

    /// The stored form: the record as in the log, after the number of rows if there are any.
    pub(crate) fn encode(&self) -> Vec<u8> {
        if self.rows == 0 {
            return self.record.encode();
        }
        let rows = self.rows.to_le_bytes();
        [&[HEAD_VERSION][..], &rows, &self.record.encode()].concat()
    }

    /// Reads what is stored; `None` if it is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<SessionHead> {
        let Some((&HEAD_VERSION, rest)) = bytes.split_first() else {
            let record = SessionRecord::decode(bytes)?;
            return Some(SessionHead { record, rows: 0 });
        };
        let (rows, record) = rest.split_first_chunk()?;
        Some(SessionHead {
            record: SessionRecord::decode(record)?,
            rows: u32::from_le_bytes(*rows),
        })
    }

    fn row_key(key: &[u8], row: u32) -> Vec<u8> {
        [key, &row.to_be_bytes()].concat()
    }

    /// The deletions of its rows and its head.
    pub(crate) fn forget(&self, key: &[u8]) -> Vec<Put> {
        let rows = (0..self.rows).map(|row| (SessionHead::row_key(key, row), None));
        rows.collect()
    }

    /// The head after a commit has added something. If the number is another one, everything of the old
    /// number is replaced.
    pub(crate) fn advance(&self, key: &[u8], added: &SessionRecord) -> Advanced {
        let mut rows = Vec::new();
        let other = added.number != self.record.number;
        if other {
            rows = self.forget(key);
        }
        let begins = other || (self.rows == 0 && self.record.runs.is_empty());
        if begins && bytes_of(&added.runs) <= ROW {
            return Advanced { rows, head: None };
        }
        let mut head = match other {
            true => SessionHead::default(),
            false => self.clone(),
        };
        let record = &mut head.record;
        (record.number, record.state, record.at_ms) = (added.number, added.state, added.at_ms);
        for run in &added.runs {
            push(&mut record.runs, run.clone());
        }
        let bytes = bytes_of(&record.runs);
        if bytes > ROW {
            let mut row = Vec::with_capacity(bytes);
            encode_runs(&record.runs, &mut row);
            record.runs = Vec::new();
            // A row that is written again must not be deleted as well.
            let row_key = SessionHead::row_key(key, head.rows);
            rows.retain(|(k, _)| *k != row_key);
            rows.push((row_key, Some(row)));
            head.rows += 1;
        }
        let head = Some(head);
        Advanced { rows, head }
    }
}

/// What a commit makes of a session's head.
#[derive(Clone, Debug)]
pub(crate) struct Advanced {
    /// Rows that are written and deleted.
    pub rows: Vec<Put>,
    /// The head. `None` if it is exactly what was added, as it stands in the log.
    pub head: Option<SessionHead>,
}

/// The statements that a session has done under one number, with their results.
#[derive(Debug)]
pub struct Session {
    number: i64,
    /// The stored head, of this number or of an earlier one.
    head: SessionHead,
    /// The timestamp at which the head was written.
    written: Option<Timestamp>,
    /// Ascending.
    runs: Vec<Run>,
    result_bytes: usize,
    /// The results stored under this number are not in memory.
    shed: bool,
}

impl Session {
    /// A session that has done nothing under this number yet. `head`: what is stored of the number
    /// before.
    pub fn new(number: i64, head: SessionHead) -> Session {
        Session {
            number,
            head,
            written: None,
            runs: Vec::new(),
            result_bytes: 0,
            shed: false,
        }
    }

    /// Goes on to another number, under which nothing was done yet.
    pub fn renew(&mut self, number: i64) {
        self.number = number;
        self.runs.clear();
        self.result_bytes = 0;
        self.shed = false;
    }

    /// Frees the results if they take more than `bytes` of memory. Writes under another number can go on
    /// without them; for this number the session has to be read again.
    pub fn shed(&mut self, bytes: usize) {
        let stored = &mut self.head.record.runs;
        if self.result_bytes + bytes_of(stored) > bytes {
            self.shed |= !self.runs.is_empty();
            (self.runs, self.result_bytes) = (Vec::new(), 0);
            *stored = Vec::new();
        }
    }

    /// True if results of this number were freed.
    pub fn is_shed(&self) -> bool {
        self.shed
    }

    /// True if something is stored under this number.
    pub fn is_written(&self) -> bool {
        self.written.is_some() && self.head.record.number == self.number
    }

    fn push(&mut self, runs: Vec<Run>) {
        for run in runs {
            self.result_bytes += run.result.len();
            let at = self.runs.partition_point(|r| r.first < run.first);
            self.runs.insert(at, run);
        }
    }

    /// `txnNumber`.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// The stored head.
    pub fn head(&self) -> &SessionHead {
        &self.head
    }

    /// The statements that were done, with their results.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The result of a statement, if it was done.
    pub fn result(&self, statement: i32) -> Option<&[u8]> {
        let behind = self.runs.partition_point(|r| r.first <= statement);
        let run = self.runs.get(behind.checked_sub(1)?)?;
        let place = i64::from(statement) - i64::from(run.first);
        (place < i64::from(run.count)).then_some(&*run.result)
    }

    /// Bytes that the results take.
    pub fn result_bytes(&self) -> usize {
        self.result_bytes
    }

    /// What a commit has to store. After it has done so, call [`Session::stored`].
    pub fn change(&self, key: SessionKey, mut added: SessionRecord) -> SessionChange {
        let goes_on = added.number == self.head.record.number;
        added.behind = self.written.filter(|_| goes_on);
        SessionChange::new(key, added, &self.head)
    }

    /// Takes over what a commit at this timestamp has stored.
    pub fn stored(&mut self, change: SessionChange, at: Timestamp) {
        self.written = Some(at);
        match change.next.head {
            Some(head) => {
                self.head = head;
                self.push(change.added.runs);
            }
            None => {
                self.push(change.added.runs.clone());
                self.head = SessionHead {
                    record: change.added,
                    rows: 0,
                };
            }
        }
    }
}

impl Inner {
    /// The head under a session's key.
    ///
    /// # Errors
    /// 301.
    fn session_head(&self, key: &[u8]) -> Result<Option<SessionHead>> {
        let Some(stored) = self.trees.get(TreeId(SESSIONS), key, Timestamp::MAX)? else {
            return Ok(None);
        };
        let head = SessionHead::decode(&stored);
        head.map(Some).ok_or_else(|| malformed(key))
    }

    /// The same, with the timestamp at which it was written.
    ///
    /// # Errors
    /// 301.
    fn session_head_at(&self, key: &[u8]) -> Result<Option<(SessionHead, Timestamp)>> {
        let written = || self.trees.written(TreeId(SESSIONS), key);
        let mut at = written()?;
        loop {
            let head = self.session_head(key)?;
            let again = written()?;
            if again == at {
                return Ok(head.zip(at));
            }
            // The session was written in between, so both are read again.
            at = again;
        }
    }
}

/// The error 301.
fn malformed(key: &[u8]) -> Error {
    Error::new(
        Code::DataCorruptionDetected,
        format!("data corruption detected: the record of session {key:02x?} is malformed"),
    )
}

impl Store {
    /// What is stored of a session.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    pub fn session(&self, key: &SessionKey) -> Result<Option<Session>> {
        let inner = &self.inner;
        let key = key.to_bytes();
        let Some(head) = inner.session_head(&key)? else {
            return Ok(None);
        };
        let mut session = Session::new(head.record.number, SessionHead::default());
        for row in 0..head.rows {
            let row_key = SessionHead::row_key(&key, row);
            let stored = inner
                .trees
                .get(TreeId(SESSIONS), &row_key, Timestamp::MAX)?;
            let runs = stored.and_then(|row| decode_runs(&row));
            session.push(runs.ok_or_else(|| malformed(&row_key))?);
        }
        session.push(head.record.runs.clone());
        session.head = head;
        session.written = inner.trees.written(TreeId(SESSIONS), &key)?;
        Ok(Some(session))
    }

    /// The newest statement of a session, with its result. `head`: the value under its key.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    pub fn newest_statement(&self, key: &SessionKey, head: &SessionHead) -> Result<Option<Run>> {
        if let Some(run) = head.record.runs.last() {
            return Ok(Some(run.clone()));
        }
        let Some(row) = head.rows.checked_sub(1) else {
            return Ok(None);
        };
        let row_key = SessionHead::row_key(&key.to_bytes(), row);
        let tree = TreeId(SESSIONS);
        let Some(stored) = self.inner.trees.get(tree, &row_key, Timestamp::MAX)? else {
            // The session has gone on to another number meanwhile.
            return Ok(None);
        };
        let runs = decode_runs(&stored).ok_or_else(|| malformed(&row_key))?;
        Ok(runs.last().cloned())
    }

    /// The stored head of a session, without the statements in its rows.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    pub fn session_head(&self, key: &SessionKey) -> Result<Option<SessionHead>> {
        self.inner.session_head(&key.to_bytes())
    }

    /// The same, with the timestamp at which it was written.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    pub fn session_head_at(&self, key: &SessionKey) -> Result<Option<(SessionHead, Timestamp)>> {
        self.inner.session_head_at(&key.to_bytes())
    }

    /// The sessions that have a record, in order: the first `most` after `behind`.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected; if the operation has to end.
    pub fn session_keys(
        &self,
        behind: Option<&SessionKey>,
        most: usize,
        operation: &dyn Interrupt,
    ) -> Result<Vec<SessionKey>> {
        // The rows of a session follow its key, so the search begins after the last of them.
        let low = behind.map(|key| [&key.to_bytes()[..], &[0xff; 5]].concat());
        let range = Range {
            low: low.unwrap_or_default().into(),
            high: None,
        };
        let snapshot = self.snapshot();
        let all = snapshot.raw_range(SESSIONS, range, Direction::Forward);
        let mut all = all.ok_or_else(crate::watch::closed)?;
        let mut keys = Vec::new();
        while keys.len() < most
            && let Some((key, _)) = all.next(operation)?
        {
            operation.check()?;
            // Keys of rows are longer, and are left out.
            keys.extend(SessionKey::from_bytes(&key));
        }
        Ok(keys)
    }

    /// How many heads and rows there are, of all sessions.
    ///
    /// # Errors
    /// 301.
    pub fn session_rows(&self) -> Result<usize> {
        let snapshot = self.snapshot();
        let all = snapshot.raw_range(SESSIONS, Range::default(), Direction::Forward);
        let mut all = all.ok_or_else(crate::watch::closed)?;
        let mut n = 0;
        while all.next(&NeverInterrupted)?.is_some() {
            n += 1;
        }
        Ok(n)
    }

    /// Adds to records of sessions in one commit, without anything else.
    ///
    /// # Errors
    /// As a commit's.
    pub fn remember(
        &self,
        change: &SessionChange,
        interrupt: &dyn Interrupt,
    ) -> Result<crate::CommitId> {
        let mut stage = crate::commit::stage::Stage::new(self.inner.door.opening()?);
        stage.session(change);
        self.inner.commit(stage, Announce::Door, interrupt, |_| {})
    }

    /// Forgets sessions that have expired, in one commit. Does nothing if the door is closed, because
    /// the primary does it then.
    ///
    /// # Errors
    /// As a commit's.
    pub fn forget_sessions(&self, keys: &[SessionKey], interrupt: &dyn Interrupt) -> Result<()> {
        let Ok(opening) = self.inner.door.opening() else {
            return Ok(());
        };
        let mut stage = crate::commit::stage::Stage::new(opening);
        for key in keys {
            let key = key.to_bytes();
            match self.inner.session_head(&key) {
                Ok(Some(head)) => stage.forget_session(&key, &head),
                Ok(None) => {}
                // A record that is damaged is deleted as well.
                Err(e) if e.code() == Code::DataCorruptionDetected => {
                    stage.forget_session(&key, &SessionHead::default());
                }
                Err(e) => return Err(e),
            }
        }
        if stage.is_empty() {
            return Ok(());
        }
        self.inner
            .commit(stage, Announce::Door, interrupt, |_| {})
            .map(|_| ())
    }
}

/// What a commit adds to a session's record.
#[derive(Clone, Debug)]
pub struct SessionChange {
    /// The session.
    pub(crate) key: SessionKey,
    /// What is added to its record.
    pub(crate) added: SessionRecord,
    /// The changes in the tree.
    pub(crate) next: Advanced,
}

impl SessionChange {
    /// A change of a session's record. `head`: what is stored of the session now.
    pub fn new(key: SessionKey, added: SessionRecord, head: &SessionHead) -> SessionChange {
        let next = head.advance(&key.to_bytes(), &added);
        SessionChange { key, added, next }
    }

    /// The head after the change.
    #[cfg(test)]
    fn head(&self) -> SessionHead {
        self.next.head.clone().unwrap_or(SessionHead {
            record: self.added.clone(),
            rows: 0,
        })
    }

    /// All puts of the change.
    #[cfg(test)]
    fn puts(&self) -> Vec<Put> {
        let head = (self.key.to_bytes().to_vec(), Some(self.head().encode()));
        self.next.rows.iter().cloned().chain([head]).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::collections::BTreeMap;

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
        let mut session = Session::new(7, SessionHead::default());
        let change = session.change(SessionKey::of_nobody([0; 16]), r.clone());
        session.stored(change, Timestamp(70));
        assert_eq!(session.result(1004), Some(&b""[..]));
        assert_eq!(session.result(1006), Some(&b"x"[..]));
        assert_eq!(
            (
                session.result(1007),
                session.result(-1),
                session.result(1009)
            ),
            (None, None, None)
        );
        let bytes = r.encode();
        for cut in 0..bytes.len() {
            if let Some(less) = SessionRecord::decode(&bytes[..cut]) {
                assert!(less.runs().len() < 3);
            }
        }
        let head = session.head().clone();
        assert_eq!(SessionHead::decode(&head.encode()).unwrap(), head);
        assert_eq!(SessionHead::decode(&r.encode()).unwrap().record(), &r);
        // The next write under this number comes after it; under another number it is the first.
        let key = SessionKey::of_nobody([0; 16]);
        for (number, behind) in [(7, Some(Timestamp(70))), (8, None)] {
            let more = SessionRecord::new(number, SessionState::Retryable, 100);
            let added = session.change(key, more).added;
            assert_eq!(added.behind, behind);
            assert_eq!(SessionRecord::decode(&added.encode()), Some(added));
        }
    }

    #[test]
    fn what_is_added_is_what_was_done_at_once() {
        let key = SessionKey::of_nobody([3; 16]);
        let advance = |head: &mut SessionHead, added: &SessionRecord| {
            *head = SessionChange::new(key, added.clone(), head).head();
        };
        let mut head = SessionHead::default();
        let mut first = SessionRecord::new(1, SessionState::Retryable, 1);
        first.push(run(0, 3, b""));
        advance(&mut head, &first);
        let mut later = SessionRecord::new(1, SessionState::Retryable, 2);
        later.push(run(3, 2, b""));
        advance(&mut head, &later);
        let r = head.record();
        assert_eq!((r.runs(), r.at_ms), (&[run(0, 5, b"")][..], 2));
        let committed = SessionRecord::new(2, SessionState::Committed, 3);
        advance(&mut head, &committed);
        let r = head.record();
        assert_eq!((r.number, r.runs().len()), (2, 0));
        assert_eq!(r.state, SessionState::Committed);
    }

    #[test]
    fn a_commit_writes_what_it_adds_and_little_more() {
        let mut tree: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut session = Session::new(5, SessionHead::default());
        let mut apply = |puts: &[Put]| {
            for (key, value) in puts {
                match value {
                    Some(value) => drop(tree.insert(key.clone(), value.clone())),
                    None => assert!(tree.remove(key).is_some(), "{key:?}"),
                }
            }
            tree.len()
        };
        for n in 0..20_000_i32 {
            let mut added = SessionRecord::new(5, SessionState::Retryable, 1);
            // Each statement has a result of its own, so no run is joined.
            added.push(run(n * 2, 1, &n.to_le_bytes()));
            let change = session.change(SessionKey::of_nobody([1; 16]), added);
            let puts = change.puts();
            let bytes: usize = puts.iter().flat_map(|(_, v)| v).map(Vec::len).sum();
            assert!(bytes < ROW + 200, "{n}: {bytes}");
            apply(&puts);
            session.stored(change, Timestamp(n as u64 + 1));
        }
        for n in 0..20_000_i32 {
            assert_eq!(session.result(n * 2), Some(&n.to_le_bytes()[..]));
            assert_eq!(session.result(n * 2 + 1), None);
        }
        // A transaction replaces all of it, and so does a large result.
        let mut next = session;
        next.renew(6);
        assert_eq!(next.result(0), None);
        let mut large = SessionRecord::new(6, SessionState::Retryable, 2);
        large.push(run(0, 1, &[9; 10_000]));
        let change = next.change(SessionKey::of_nobody([1; 16]), large);
        assert_eq!(apply(&change.puts()), 2);
        next.stored(change, Timestamp(30_000));
        assert_eq!(next.result(0).map(<[u8]>::len), Some(10_000));
        let committed = SessionRecord::new(7, SessionState::Committed, 3);
        let change = SessionChange::new(SessionKey::of_nobody([1; 16]), committed, next.head());
        assert_eq!(apply(&change.puts()), 1);
    }
}
