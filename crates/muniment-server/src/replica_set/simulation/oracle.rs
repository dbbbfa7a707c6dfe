//! What every run has to fulfil. The oracle knows every record that any member's log ever had, what each
//! of them does to the rows, which of them are committed, and what clients were told.

use muniment_storage::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub type Found = Result<(), String>;

/// A row: its collection and its `_id`.
pub type Row = (&'static str, i64);
/// The rows, with the tokens that were written into each, in order.
pub type Rows = BTreeMap<Row, Vec<i64>>;

/// What a statement does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes the row.
    Insert(Row),
    /// Appends the token to the row, and makes the row if it is not there.
    Push(Row),
    /// Deletes the row.
    Delete(Row),
}

/// A record of a log: which it is, and a sum of what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub term: u64,
    pub at: Timestamp,
    pub sum: u64,
}

#[derive(Default)]
pub struct Oracle {
    /// Sums of all records that there ever were, by index and term.
    sums: HashMap<(u64, u64), u64>,
    /// What was committed; index 1 first.
    pub committed: Vec<Entry>,
    /// What records do to rows: token and change.
    changes: HashMap<(u64, u64), Vec<(i64, Change)>>,
    /// The records by which a token was written.
    written: HashMap<i64, BTreeSet<(u64, u64)>>,
    /// The records of which a client was told that the majority has them.
    majority: BTreeMap<(u64, u64), i64>,
    /// The tokens of these statements.
    acknowledged: BTreeSet<i64>,
}

impl Oracle {
    /// A member's log has a record.
    pub fn record(&mut self, index: u64, entry: Entry) -> Found {
        let sum = *self.sums.entry((index, entry.term)).or_insert(entry.sum);
        match sum == entry.sum {
            true => Ok(()),
            false => Err(format!(
                "there are two records {index} of term {}",
                entry.term
            )),
        }
    }

    /// A record does this.
    pub fn does(&mut self, index: u64, term: u64, token: i64, changes: &[Change]) {
        let record = (index, term);
        // The oracle may learn of it twice.
        if self.written.entry(token).or_default().insert(record) {
            let all = self.changes.entry(record).or_default();
            all.extend(changes.iter().map(|c| (token, *c)));
        }
    }

    /// A record of this log is known to have written the token.
    pub fn has_written(&self, token: i64, log: &[Entry]) -> bool {
        let records = self.written.get(&token).into_iter().flatten();
        let mut terms = records.map(|(index, term)| (log.get(*index as usize - 1), term));
        terms.any(|(entry, term)| entry.is_some_and(|e| e.term == *term))
    }

    /// A member says that a record of its log is committed.
    pub fn commits(&mut self, index: u64, entry: Entry) -> Found {
        let at = index as usize - 1;
        match self.committed.get(at) {
            None if at == self.committed.len() => {
                self.committed.push(entry);
                Ok(())
            }
            None => Err(format!(
                "record {index} is committed before those before it"
            )),
            Some(known) if *known == entry => Ok(()),
            Some(known) => Err(format!(
                "record {index} was committed as of term {}, and is now as of term {}",
                known.term, entry.term
            )),
        }
    }

    /// A client is told that the majority has the record.
    pub fn acknowledged(&mut self, index: u64, term: u64, token: i64) -> Found {
        self.majority.insert((index, term), token);
        self.acknowledged.insert(token);
        match self.committed.get(index as usize - 1) {
            Some(known) if known.term == term => Ok(()),
            found => Err(format!(
                "record {index} of term {term} is acknowledged by the majority, but {found:?} is committed"
            )),
        }
    }

    /// A member gives a record up; returns the tokens that the record wrote.
    pub fn gave_up(&self, index: u64, term: u64) -> Result<BTreeSet<i64>, String> {
        if let Some(token) = self.majority.get(&(index, term)) {
            return Err(format!(
                "record {index} of term {term} is given up, but the majority had it (token {token})"
            ));
        }
        if self.committed.get(index as usize - 1).map(|e| e.term) == Some(term) {
            return Err(format!(
                "record {index} of term {term} is given up, but it was committed"
            ));
        }
        let all = self.changes.get(&(index, term)).into_iter().flatten();
        let pushed = all.filter(|(_, c)| !matches!(c, Change::Delete(_)));
        Ok(pushed.map(|(token, _)| *token).collect())
    }

    /// The rows that a log makes.
    pub fn rows<'e>(&self, log: impl Iterator<Item = &'e Entry>) -> Result<Rows, String> {
        let (mut rows, mut seen) = (Rows::new(), BTreeSet::new());
        for (i, entry) in log.enumerate() {
            let index = i as u64 + 1;
            let changes = self.changes.get(&(index, entry.term));
            let mut here = BTreeSet::new();
            for (token, change) in changes.into_iter().flatten() {
                here.insert(*token);
                match change {
                    Change::Insert(row) => {
                        rows.insert(*row, vec![*token]);
                    }
                    Change::Push(row) => rows.entry(*row).or_default().push(*token),
                    Change::Delete(row) => {
                        rows.remove(row);
                    }
                }
            }
            // A statement may be several records, but each of its tokens stands in one.
            if let Some(token) = here.iter().find(|t| !seen.insert(**t)) {
                return Err(format!(
                    "token {token} was written a second time, by record {index} of term {}",
                    entry.term
                ));
            }
        }
        Ok(rows)
    }

    /// How many records clients were told of.
    pub fn acknowledgements(&self) -> u64 {
        self.majority.len() as u64
    }

    /// At the end: everything that was acknowledged is in the one log that all have.
    pub fn all_there(&self) -> Found {
        for ((index, term), token) in &self.majority {
            if self.committed.get(*index as usize - 1).map(|e| e.term) != Some(*term) {
                return Err(format!(
                    "token {token}, which the majority had as record {index} of term {term}, is lost"
                ));
            }
        }
        let log = self.committed.iter().enumerate();
        let written = log.filter_map(|(i, e)| self.changes.get(&(i as u64 + 1, e.term)));
        let written: BTreeSet<i64> = written.flatten().map(|(token, _)| *token).collect();
        match self.acknowledged.iter().find(|t| !written.contains(t)) {
            None => Ok(()),
            Some(token) => Err(format!("token {token} was acknowledged, and is nowhere")),
        }
    }
}

/// What differs between the rows that there are and those that there should be.
pub fn compare(what: &str, found: &Rows, wanted: &Rows) -> Found {
    let rows: BTreeSet<_> = found.keys().chain(wanted.keys()).collect();
    for row in rows {
        let (f, w) = (found.get(row), wanted.get(row));
        if f != w {
            return Err(format!("{what}: {row:?} is {f:?}, and by the log {w:?}"));
        }
    }
    Ok(())
}

/// A sum of bytes (FNV).
pub fn sum_of(at: u64, bytes: &[u8]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325 ^ at;
    for b in bytes {
        sum = (sum ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
    }
    sum
}
