//! Retryable writes: each statement of a command has an id, and its result is stored together with
//! what it wrote. If the same command is sent again, it is answered from that.
//!
//! A statement that changed nothing is not remembered, as in MongoDB. It is simply run again.

use super::statement::StatementOutcome;
use bytes::Bytes;
use muniment_storage::{
    CommitId, Session, SessionChange, SessionKey, SessionRecord, SessionState, StatementRun,
    WriteUnit,
};
use muniment_value::{Doc, DocBuf, ValueBuf, doc, number};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The ids of a command's statements.
#[derive(Clone, Debug)]
pub enum StatementIds {
    /// The first statement's id; the others follow in order.
    From(i32),
    /// The id of each statement.
    Each(Vec<i32>),
}

/// A retryable command of a session.
pub struct Retry {
    session: SessionKey,
    number: i64,
    ids: StatementIds,
    /// The session's record. No other operation uses the session while the command runs.
    record: Arc<Mutex<Session>>,
    /// The place of the first statement that runs now; the places that callees know begin there.
    offset: AtomicUsize,
    /// The place of the statement that runs by itself.
    current: AtomicUsize,
    retried: Mutex<Vec<i32>>,
    /// The number of commits that remembered statements.
    remembered: AtomicU64,
    /// True if findAndModify returns the document after the change.
    returns_new: bool,
    returns: bool,
}

impl Retry {
    /// A command with this number. With `returns`, it returns the document as it is before (false)
    /// or after (true) the change.
    pub fn new(
        session: SessionKey,
        number: i64,
        ids: StatementIds,
        record: Arc<Mutex<Session>>,
        returns: Option<bool>,
    ) -> Retry {
        Retry {
            session,
            number,
            ids,
            record,
            offset: AtomicUsize::new(0),
            current: AtomicUsize::new(0),
            retried: Mutex::default(),
            remembered: AtomicU64::new(0),
            returns_new: returns == Some(true),
            returns: returns.is_some(),
        }
    }

    /// Sets the statement that runs now, in a command that runs them one by one.
    pub fn start_at(&self, place: usize) {
        self.offset.store(place, Relaxed);
    }

    /// The same for a loop over all statements.
    pub(crate) fn runs(&self, place: usize) {
        self.current.store(place, Relaxed);
    }

    fn id(&self, place: usize) -> i32 {
        let place = self.offset.load(Relaxed) + place;
        match &self.ids {
            StatementIds::From(first) => {
                first.saturating_add(i32::try_from(place).unwrap_or(i32::MAX))
            }
            StatementIds::Each(all) => all.get(place).copied().unwrap_or(-1),
        }
    }

    /// True if the command was sent before and its first statement was done then.
    pub fn is_again(&self) -> bool {
        let record = self.record.lock();
        record.number() == self.number && record.result(self.id(0)).is_some()
    }

    /// The stored result of a statement that was done before.
    fn found(&self, place: usize) -> Option<DocBuf> {
        let id = self.id(place);
        let record = self.record.lock();
        if record.number() != self.number || id < 0 {
            return None;
        }
        let result = record.result(id)?;
        self.retried.lock().push(id);
        Some(match result.is_empty() {
            true => doc! { "n": 1 },
            false => DocBuf::from_doc(Doc::new(result)),
        })
    }

    /// The outcome of a statement that was done before.
    pub fn executed(&self, place: usize) -> Option<StatementOutcome> {
        let found = self.found(place)?;
        let found = found.as_doc();
        let count = |field| found.get(field).and_then(number::to_i64_exact).unwrap_or(0);
        Some(StatementOutcome {
            matched: count("n") as u64,
            modified: count("m") as u64,
            upserted: found.get("u").map(ValueBuf::new),
            commit: None,
        })
    }

    /// The same for a findAndModify, with the document that it returned.
    pub(crate) fn returned(&self) -> Option<(StatementOutcome, Option<Vec<u8>>)> {
        let shown = {
            let record = self.record.lock();
            let result = record
                .result(self.id(0))
                .filter(|_| record.number() == self.number);
            let shown = result.and_then(|r| Doc::new(r).get_doc("v"));
            shown.map(|d| d.as_bytes().to_vec())
        };
        Some((self.executed(0)?, shown))
    }

    /// Its `txnNumber`.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// The number of commits that remembered statements.
    pub fn remembered(&self) -> u64 {
        self.remembered.load(Relaxed)
    }

    /// Takes the ids of the statements that were done before, in order.
    pub fn retried(&self) -> Vec<i32> {
        std::mem::take(&mut *self.retried.lock())
    }

    /// Stages the addition to the session's record, together with what `unit` has staged. The
    /// returned change holds once the unit is committed.
    pub(crate) fn stage(&self, unit: &mut WriteUnit<'_>, runs: Vec<Statements>) -> SessionChange {
        let now = muniment_query::context::now_ms();
        let mut added = SessionRecord::new(self.number, SessionState::Retryable, now);
        for run in runs {
            // Ids that are given one by one need not be consecutive.
            match &self.ids {
                StatementIds::From(_) => added.push(StatementRun {
                    first: self.id(run.places.start),
                    count: run.places.len() as u32,
                    result: run.result,
                }),
                StatementIds::Each(_) => {
                    for place in run.places {
                        added.push(StatementRun {
                            first: self.id(place),
                            count: 1,
                            result: run.result.clone(),
                        });
                    }
                }
            }
        }
        let change = self.record.lock().change(self.session, added);
        unit.remember(&change);
        change
    }

    /// To be called when this commit has stored what was staged.
    pub(crate) fn stored(&self, change: SessionChange, commit: CommitId) {
        self.remembered.fetch_add(1, Relaxed);
        self.record.lock().stored(change, commit.at);
    }

    /// The statement that runs by itself, in the form in which it is remembered. For a
    /// findAndModify that includes the document before or after the change.
    pub(crate) fn of_current(
        &self,
        outcome: &StatementOutcome,
        before: Option<&Bytes>,
        after: Option<&Bytes>,
    ) -> Statements {
        let place = self.current.load(Relaxed);
        let o = outcome;
        let mut result = result_of(o.matched, o.modified, o.upserted.as_ref());
        let shown = if self.returns_new { after } else { before };
        if let Some(shown) = shown.filter(|_| self.returns) {
            result.append("v", Doc::new(shown));
            result.append_some("a", self.returns_new.then_some(true));
        }
        Statements {
            places: place..place + 1,
            result: result.into_bytes(),
        }
    }
}

/// Statements that have the same result.
pub(crate) struct Statements {
    /// Their places in the command.
    pub places: Range<usize>,
    /// The result, as in [`StatementRun::result`].
    pub result: Vec<u8>,
}

impl Statements {
    /// Inserted documents, whose result is empty.
    pub(crate) fn inserted(places: Range<usize>) -> Statements {
        Statements {
            places,
            result: Vec::new(),
        }
    }

    /// An update or a delete.
    pub(crate) fn of(place: usize, outcome: &StatementOutcome) -> Statements {
        let o = outcome;
        Statements {
            places: place..place + 1,
            result: result_of(o.matched, o.modified, o.upserted.as_ref()).into_bytes(),
        }
    }
}

/// The stored form of a result: `n` matched (or deleted), `m` modified, `u` upserted. A
/// findAndModify adds `v`, the document that it returned, and `a` if that is the one after the
/// change.
fn result_of(matched: u64, modified: u64, upserted: Option<&ValueBuf>) -> DocBuf {
    let mut d = doc! { "n": matched as i32 };
    if modified > 0 {
        d.append("m", modified as i32);
    }
    if let Some(id) = upserted {
        d.append("u", id);
    }
    d
}
