//! The rows of prepared transactions, where they come from a tree or from the log: at a start, from another
//! member, and when the door opens.

use super::prepared::{Held, PREPARED, Row, TransactionId};
use crate::collection::Collection;
use crate::commit::ops::Op;
use crate::inner::Inner;
use crate::view::Snapshot;
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::{Interrupt, NeverInterrupted};
use muniment_tree::{Direction, Range, TreeId};
use muniment_value::{Doc, Error, Result};
use std::collections::HashMap;

impl Inner {
    /// At a start: enters the transactions whose rows are in the tree.
    ///
    /// # Errors
    /// 301 for a row that cannot be read.
    pub(crate) fn load_prepared(&self) -> Result<()> {
        let tree = TreeId(PREPARED);
        let newest = Timestamp::MAX;
        let mut all = self
            .trees
            .cursor(tree, Range::default(), newest, Direction::Forward);
        while let Some((key, row)) = all.next(&NeverInterrupted)? {
            let at = self.trees.written(tree, &key)?.unwrap_or_default();
            self.enter_prepared(at, &key, &row)
                .ok_or_else(|| self.bad_row(&key))?;
        }
        Ok(())
    }

    /// Enters a transaction by its row, which the log or the tree has; `None` if it is malformed. The numbers
    /// of the records that it inserts are not given again, although the documents are not there yet.
    pub(crate) fn enter_prepared(&self, at: Timestamp, key: &[u8], row: &[u8]) -> Option<()> {
        let (id, row) = (TransactionId::from_bytes(key)?, Row::decode(row)?);
        let part =
            |range: &std::ops::Range<usize>| row.operations.get(range.clone()).unwrap_or_default();
        row.each(|op| {
            if let Op::Insert { tree, key, doc } = op
                && let Some(collection) = self.catalog.read().by_id(*tree)
            {
                collection.saw_prepared(part(key), Doc::new(part(doc)));
            }
        })?;
        self.prepared.enter(id, at, row, None);
        Some(())
    }

    /// Takes what prepared transactions need, before the door opens: their latches, and their collections
    /// against DDL. Those that were prepared here and have been so since then have it already.
    ///
    /// # Errors
    /// 301 for a row that cannot be read; what `interrupt` says while it waits for DDL.
    pub(crate) fn hold_prepared(&self, interrupt: &dyn Interrupt) -> Result<()> {
        for (id, collections) in self.prepared.loose() {
            let stored = self.prepared_row(&id)?;
            let row = Row::decode(&stored).ok_or_else(|| self.bad_row(&id.to_bytes()))?;
            let mut ddl = Vec::new();
            for collection in collections {
                let collection = self.catalog.read().by_id(collection);
                if let Some(collection) = collection {
                    ddl.push(collection.ddl.share(interrupt)?);
                }
            }
            let owner = self.units.next_owner();
            let latches: Vec<u64> = row.latches().collect();
            for hash in &latches {
                self.units.latches.seize(*hash, owner);
            }
            self.prepared.holds(
                &id,
                Held {
                    owner,
                    latches,
                    ddl,
                },
            );
        }
        Ok(())
    }

    /// What does not fit a collection of the prepared transactions that a view sees: a line for each that
    /// changes a document which is not there.
    ///
    /// # Errors
    /// 301 for a row that cannot be read.
    pub(crate) fn misfits(&self, collection: &Collection, view: &Snapshot) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for prepared in self.prepared.all() {
            let key = prepared.id.to_bytes();
            // It may be younger than the view.
            let Some(stored) = view.raw_get(PREPARED, &key)? else {
                continue;
            };
            let row = Row::decode(&stored).ok_or_else(|| self.bad_row(&key))?;
            let mut there: HashMap<&[u8], bool> = HashMap::new();
            for (key, inserts, deletes) in row.changes(collection.id) {
                let before = match there.get(key) {
                    Some(before) => *before,
                    None => view.raw_get(collection.id, key)?.is_some(),
                };
                if before == inserts {
                    found.push(format!(
                        "the prepared transaction {} of a session does not fit its documents",
                        prepared.id.number
                    ));
                    break;
                }
                there.insert(key, !deletes);
            }
        }
        Ok(found)
    }

    /// The row of a prepared transaction.
    ///
    /// # Errors
    /// 301 if it is not there or cannot be read.
    pub(super) fn prepared_row(&self, id: &TransactionId) -> Result<Bytes> {
        let key = id.to_bytes();
        let row = self.trees.get(TreeId(PREPARED), &key, Timestamp::MAX)?;
        row.ok_or_else(|| self.bad_row(&key))
    }

    /// The error 301 for a row.
    pub(super) fn bad_row(&self, key: &[u8]) -> Error {
        let what = format!("the row of the prepared transaction {key:02x?}");
        crate::store::damaged(&self.home.path, &what)
    }
}
