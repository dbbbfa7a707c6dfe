//! What clients have been told, and so what every reader has to find.

use super::ledger::Ledger;
use muniment_member::times_of;
use muniment_value::{Doc, DocBuf};
use std::collections::BTreeMap;

/// Counts what clients have begun and been told, so that one can say what was before what.
pub type Tick = u64;

/// A document.
#[derive(Default)]
pub struct Row {
    pub k: i64,
    /// The insert was acknowledged.
    pub there: Option<Tick>,
    pub delete_begun: Option<Tick>,
    pub gone: Option<Tick>,
    /// Increments of `n` that were begun, and those that were acknowledged.
    pub begun: Vec<Tick>,
    pub done: Vec<Tick>,
}

/// An update of all documents of a range of keys, which increments `m`.
pub struct Many {
    pub low: i64,
    pub high: i64,
    pub begun: Tick,
    /// It was acknowledged. Otherwise it may take effect at any time.
    pub done: Option<Tick>,
}

impl Many {
    fn covers(&self, k: i64) -> bool {
        self.low <= k && k < self.high
    }
}

/// A document as a reader has found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub id: i64,
    pub k: i64,
    pub n: i64,
    pub m: i64,
}

/// See the module's head.
#[derive(Default)]
pub struct Oracle {
    tick: Tick,
    pub rows: BTreeMap<i64, Row>,
    pub many: Vec<Many>,
    /// What clients were told of their transactions.
    pub ledger: Ledger,
    /// What is in the collection that one client alone uses.
    pub table: BTreeMap<i64, i64>,
    /// The newest time of the cluster that a client has heard of: drivers send it along.
    pub time: Option<DocBuf>,
    /// Clients and movers that have not ended.
    pub busy: usize,
    /// What each of them does, for reports.
    pub doing: BTreeMap<usize, String>,
}

/// What a reader asked for: the keys from `low` to `high`, which is outside.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub low: i64,
    pub high: i64,
    pub begun: Tick,
}

impl Oracle {
    /// The next moment.
    pub fn tick(&mut self) -> Tick {
        self.tick += 1;
        self.tick
    }

    /// A client has got a reply.
    pub fn heard(&mut self, reply: Doc<'_>) {
        let at = |d: Doc<'_>| d.get("clusterTime").map(times_of);
        if let Some(told) = reply.get_doc("$clusterTime")
            && at(told) > self.time.as_ref().and_then(|d| at(d.as_doc()))
        {
            self.time = Some(told.to_buf());
        }
    }

    /// What has to be there for a reader that ends now.
    fn has_to_be(&self, row: &Row, asked: &Asked) -> bool {
        row.there.is_some_and(|at| at < asked.begun) && row.delete_begun.is_none()
    }

    fn may_be(&self, row: &Row, asked: &Asked) -> bool {
        row.gone.is_none_or(|at| at > asked.begun)
    }

    /// Checks one document.
    pub fn check_row(&self, seen: &Seen, asked: &Asked) -> Result<(), String> {
        let row = self.rows.get(&seen.id);
        let row = row.ok_or_else(|| format!("{seen:?} was never inserted"))?;
        if row.k != seen.k || !(asked.low..asked.high).contains(&seen.k) {
            return Err(format!("{seen:?} has another key"));
        }
        if !self.may_be(row, asked) {
            return Err(format!("{seen:?} was deleted before"));
        }
        let least = row.done.iter().filter(|at| **at < asked.begun).count() as i64;
        let most = row.begun.len() as i64;
        if !(least..=most).contains(&seen.n) {
            return Err(format!("{seen:?}: n is not from {least} to {most}"));
        }
        let of_row = || self.many.iter().filter(|many| many.covers(row.k));
        let there = row.there.unwrap_or(u64::MAX);
        let least = of_row()
            .filter(|many| many.begun > there && many.done.is_some_and(|at| at < asked.begun))
            .count() as i64;
        let most = of_row()
            .filter(|many| many.done.is_none_or(|at| at > row.there.unwrap_or(0)))
            .count() as i64;
        // One that ended before the insert was acknowledged may have met the document.
        let before = of_row()
            .filter(|many| many.done.is_some_and(|at| at <= there))
            .count() as i64;
        if !(least..=most + before).contains(&seen.m) {
            return Err(format!(
                "{seen:?}: m is not from {least} to {most} + {before}"
            ));
        }
        Ok(())
    }

    /// Checks what a scan has found.
    pub fn check_scan(&self, found: &[Seen], asked: &Asked) -> Result<(), String> {
        let mut ids = BTreeMap::new();
        for seen in found {
            if let Some(other) = ids.insert(seen.id, seen) {
                return Err(format!("{seen:?} is found twice, also as {other:?}"));
            }
            self.check_row(seen, asked)?;
        }
        for (id, row) in &self.rows {
            let asked_for = (asked.low..asked.high).contains(&row.k);
            if asked_for && self.has_to_be(row, asked) && !ids.contains_key(id) {
                return Err(format!("document {id} with key {} is missing", row.k));
            }
        }
        Ok(())
    }

    /// Checks a number of documents.
    pub fn check_count(&self, n: i64, asked: &Asked) -> Result<(), String> {
        let rows = || {
            let rows = self.rows.values();
            rows.filter(|row| (asked.low..asked.high).contains(&row.k))
        };
        let least = rows().filter(|row| self.has_to_be(row, asked)).count() as i64;
        let most = rows().filter(|row| self.may_be(row, asked)).count() as i64;
        match (least..=most).contains(&n) {
            true => Ok(()),
            false => Err(format!(
                "{n} documents are counted, and there are {least} to {most}"
            )),
        }
    }

    pub fn picture(&self) -> String {
        format!(
            "{} rows, {} are busy: {:?}",
            self.rows.len(),
            self.busy,
            self.doing
        )
    }
}
