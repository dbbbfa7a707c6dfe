//! Applies a record of the log. Recovery does that with every record after the persisted cut, and a
//! member of a replica set with every record that it is sent.
//!
//! It is a pure function of the state and the record. A running server's own writes compute the same
//! puts from the same two documents (`entries`), so recovery gives the state that there was.

use super::ops::{self, Op, Reader};
use super::stage::{Sealed, Stage};
use crate::catalog::names::indexes_of;
use crate::catalog::{Catalog, Entry};
use crate::collection::Collection;
use crate::entries::Entries;
use crate::inner::Inner;
use crate::keys;
use crate::multikey::Arrays;
use crate::sessions::{SESSIONS, SessionHead, SessionRecord};
use crate::store::damaged;
use crate::transaction::{Ended, Outcome, PREPARED, Row, TransactionId, Writes, tree_of};
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::NeverInterrupted;
use muniment_query::diff;
use muniment_tree::TreeId;
use muniment_value::{Code, Doc, Error, Result};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A change of the catalog, which is published after the record's puts are in the trees.
enum Change {
    Collection(u32, Box<Entry>),
    Drop(u32),
}

/// The collections that a record changes, and by how much. Most records change one collection, so the
/// last one that was asked for is looked at before the others.
#[derive(Default)]
struct Touched {
    all: Vec<Sum>,
    /// The place of each collection in `all`.
    places: HashMap<u32, usize>,
    last: usize,
}

/// What a record adds to a collection.
struct Sum {
    collection: Arc<Collection>,
    /// How many documents it has more than before.
    docs: i64,
    /// How many bytes of documents it has more than before.
    bytes: i64,
    /// How many documents were inserted.
    came: u64,
}

impl Touched {
    /// The collection with this number. `find` is called if the record has not named it before.
    fn of(
        &mut self,
        id: u32,
        find: impl FnOnce() -> Result<Arc<Collection>>,
    ) -> Result<&Arc<Collection>> {
        if self
            .all
            .get(self.last)
            .is_none_or(|s| s.collection.id != id)
        {
            self.last = match self.places.get(&id) {
                Some(at) => *at,
                None => {
                    let collection = find()?;
                    self.places.insert(id, self.all.len());
                    self.all.push(Sum {
                        collection,
                        docs: 0,
                        bytes: 0,
                        came: 0,
                    });
                    self.all.len() - 1
                }
            };
        }
        let found = self.all.get(self.last).map(|s| &s.collection);
        found.ok_or_else(|| Error::internal("a collection of a record was lost"))
    }

    /// Adds to the sum of the collection that was asked for last.
    fn add(&mut self, docs: i64, bytes: i64) {
        if let Some(sum) = self.all.get_mut(self.last) {
            sum.docs += docs;
            sum.bytes += bytes;
            sum.came += u64::from(docs > 0);
        }
    }
}

/// What a record has changed.
#[derive(Default)]
pub(crate) struct Applied {
    /// How many documents were inserted into which collections.
    pub collections: Vec<(Arc<Collection>, u64)>,
    /// Operations by kind: documents that were inserted, changed and deleted, and changes of the
    /// catalog.
    pub ops: [u64; 4],
    /// The prepared transactions that it has ended. The caller gives back what they held
    /// ([`Inner::release`]) once the record is visible.
    pub ended: Vec<Ended>,
}

impl Inner {
    /// Applies one record. The caller moves the visible timestamp on. Others may read meanwhile.
    ///
    /// If an operation cannot be applied to a collection or an index, although it could where the record
    /// was made, that one is closed (`damage`); the rest of the record is applied.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected when the record cannot be read, or names a collection that never
    /// existed; I/O errors.
    pub fn apply(&self, at: Timestamp, payload: &[u8]) -> Result<Applied> {
        let damaged = |offset: usize, what: &str| unreadable(&self.home.path, at, offset, what);
        let mut reader =
            Reader::new(payload).ok_or_else(|| damaged(0, "its format is not known"))?;
        let mut stage = Stage::of_payload(payload);
        let mut entries = Entries::default();
        let mut touched = Touched::default();
        let (mut changes, mut ops) = (Vec::new(), [0; 4]);
        let mut sessions = 0_u32;
        let (mut prepared, mut resolved) = (None, None);
        loop {
            let op = match reader.next() {
                Ok(Some(op)) => op,
                Ok(None) => break,
                Err(offset) => return Err(damaged(offset, "a malformed operation")),
            };
            let kind = match &op {
                Op::Insert { .. } => Some(0),
                Op::Replace { .. } | Op::Diff { .. } => Some(1),
                Op::Delete { .. } => Some(2),
                Op::Collection { .. } | Op::Drop { .. } => Some(3),
                _ => None,
            };
            if let Some(n) = kind.and_then(|kind: usize| ops.get_mut(kind)) {
                *n += 1;
            }
            // A key may come twice in one record, but not by inserts alone (a deletion lies in
            // between) nor by one session. For these the search for an earlier put is left out.
            let once = match &op {
                Op::Insert { .. } => true,
                Op::Session { .. } => {
                    sessions += 1;
                    sessions == 1
                }
                Op::Replace { .. } | Op::Diff { .. } | Op::Delete { .. } | Op::Entries { .. } => {
                    false
                }
                Op::Collection { .. } | Op::Drop { .. } => false,
                _ => true,
            };
            if !once {
                stage.replaces();
            }
            let part = |range: &Range<usize>| payload.get(range.clone()).unwrap_or_default();
            let known = |id: u32, offset: usize| {
                self.catalog
                    .read()
                    .by_id(id)
                    .ok_or_else(|| damaged(offset, &format!("no collection {id}")))
            };
            match op {
                Op::Insert { tree, key, doc } => {
                    let c = touched.of(tree, || {
                        let c = known(tree, key.start)?;
                        // Two documents may have one key there, and the entry is the later one's.
                        let indexes = c.all_indexes();
                        if indexes.iter().any(|i| i.is_contested()) {
                            stage.replaces();
                        }
                        // The rest of the record most likely consists of operations like this one.
                        let alike = (payload.len() - key.start) / (doc.end - key.start).max(1);
                        let each = 1 + indexes.iter().filter(|i| c.maintains(i)).count();
                        stage.expect_puts(alike.saturating_mul(each));
                        Ok(c)
                    })?;
                    let new = Doc::new(part(&doc));
                    entries.stage(self, &mut stage, c, part(&key), None, Some(new))?;
                    c.saw_insert(part(&key), new);
                    touched.add(1, doc.len() as i64);
                    let (key, doc) = (Stage::logged(key), Stage::logged(doc));
                    stage.put(tree, key, Some(doc), true);
                }
                Op::Replace { tree, key, doc } => {
                    let c = touched.of(tree, || known(tree, key.start))?;
                    let old = self.old(&mut stage, c, part(&key), at)?;
                    let (was, new) = (old.as_deref().map(Doc::new), Doc::new(part(&doc)));
                    entries.stage(self, &mut stage, c, part(&key), was, Some(new))?;
                    let was = old.as_ref().map_or(0, |old| old.len() as i64);
                    touched.add(i64::from(old.is_none()), doc.len() as i64 - was);
                    stage.put(tree, Stage::logged(key), Some(Stage::logged(doc)), false);
                }
                Op::Diff {
                    tree, key, diff: d, ..
                } => {
                    let c = touched.of(tree, || known(tree, key.start))?;
                    let Some(old) = self.old(&mut stage, c, part(&key), at)? else {
                        continue;
                    };
                    let mut new = Vec::with_capacity(old.len() + d.len());
                    if let Err(e) = diff::apply(Doc::new(&old), Doc::new(part(&d)), &mut new) {
                        let why = "a difference of fields does not fit its document";
                        c.close(&format!("{}: {e}", cannot(at, why)));
                        continue;
                    }
                    let docs = (Doc::new(&old), Doc::new(&new));
                    entries.stage(self, &mut stage, c, part(&key), Some(docs.0), Some(docs.1))?;
                    touched.add(0, new.len() as i64 - old.len() as i64);
                    let new = stage.keep_value(&Bytes::from(new));
                    stage.put(tree, Stage::logged(key), Some(new), false);
                }
                Op::Image { .. } | Op::Key { .. } | Op::Note { .. } | Op::Config { .. } => {}
                Op::Prepare { key, row } => {
                    let (logged, value) = (Stage::logged(key.clone()), Stage::logged(row.clone()));
                    stage.put(PREPARED, logged, Some(value), false);
                    prepared = Some((key, row));
                }
                Op::Resolve { key, outcome } => {
                    stage.put(PREPARED, Stage::logged(key.clone()), None, false);
                    let id = TransactionId::from_bytes(part(&key));
                    let ends = id.zip(Outcome::from_bytes(part(&outcome)));
                    let what = "the end of a prepared transaction";
                    resolved = Some(ends.ok_or_else(|| damaged(key.start, what))?);
                }
                Op::Delete { tree, key, .. } => {
                    let c = touched.of(tree, || known(tree, key.start))?;
                    let Some(old) = self.old(&mut stage, c, part(&key), at)? else {
                        continue;
                    };
                    entries.stage(self, &mut stage, c, part(&key), Some(Doc::new(&old)), None)?;
                    touched.add(-1, -(old.len() as i64));
                    stage.put(tree, Stage::logged(key), None, false);
                }
                Op::Collection { id, next_id, entry } => {
                    let read = Entry::read(part(&entry), id, &NeverInterrupted);
                    let held = self.catalog.read().by_id(id);
                    stage.entry_puts(id, held.as_deref(), &read, entry);
                    self.catalog.gave_ids_below(next_id);
                    changes.push(Change::Collection(id, Box::new(read)));
                }
                Op::Drop { id } => {
                    let c = known(id, 0)?;
                    stage.drop_puts(&c);
                    changes.push(Change::Drop(id));
                }
                Op::Entries {
                    collection,
                    index,
                    entries: found,
                    arrays,
                } => {
                    let c = known(collection, found.start)?;
                    let all = c.all_indexes();
                    let of = all.iter().find(|i| i.id == index);
                    let pairs = ops::pairs(payload, found);
                    let arrays = Arrays::from_bytes(part(&arrays));
                    let (Some(pairs), Some(arrays)) = (pairs, arrays) else {
                        if let Some(index) = of {
                            c.close_index(index, &cannot(at, "malformed entries"));
                        }
                        continue;
                    };
                    for (key, value) in pairs {
                        let (key, value) = (Stage::logged(key), Stage::logged(value));
                        stage.put(index, key, Some(value), false);
                    }
                    if let Some(i) = of {
                        i.multikey().widen(&arrays);
                    }
                    c.touch();
                }
                Op::Session { key, added } => {
                    self.apply_session(&mut stage, payload, key, added, sessions == 1)?;
                }
            }
        }
        let sealed = stage.split(&self.cuts.buffers);
        let writes = resolved.is_some().then(|| sealed.clone());
        self.trees.apply(sealed.into_batch(), at);
        let ended = resolved.zip(writes);
        let ended = self.note_prepared(at, payload, prepared, ended)?;
        for sum in &touched.all {
            sum.collection.add_totals(sum.docs, sum.bytes);
        }
        let mut drops = Vec::new();
        for change in changes {
            match change {
                Change::Collection(id, entry) => {
                    let held = self.catalog.read().by_id(id);
                    let indexes = indexes_of(held.as_deref(), &entry, &NeverInterrupted)?;
                    self.publish_collection(id, *entry, indexes, at, false);
                }
                Change::Drop(id) => drops.push(id),
            }
        }
        // Drops come last: a name that passes from one to the other always has a collection.
        for id in drops {
            let gone = self.catalog.read().by_id(id);
            if let Some(c) = gone {
                self.publish_drop(&c, at);
            }
        }
        Ok(Applied {
            collections: touched
                .all
                .into_iter()
                .map(|s| (s.collection, s.came))
                .collect(),
            ops,
            ended,
        })
    }

    /// Notes the transaction that a record has prepared (the ranges of its key and row), or the one that it has
    /// ended.
    fn note_prepared(
        &self,
        at: Timestamp,
        payload: &[u8],
        prepared: Option<(Range<usize>, Range<usize>)>,
        ended: Option<((TransactionId, Outcome), Sealed)>,
    ) -> Result<Vec<Ended>> {
        if let Some((key, row)) = prepared {
            let part = |range: &Range<usize>| payload.get(range.clone()).unwrap_or_default();
            let what = "a prepared transaction";
            self.enter_prepared(at, part(&key), part(&row))
                .ok_or_else(|| unreadable(&self.home.path, at, key.start, what))?;
        }
        let ended = ended.map(|((id, outcome), writes)| {
            let oldest = self.trees.views().oldest();
            self.prepared
                .leave(&id, outcome, at, Writes::new(writes), oldest)
        });
        Ok(ended.into_iter().collect())
    }

    /// Applies what a record adds to a session's. `first`: it is the first of a session in the record.
    fn apply_session(
        &self,
        stage: &mut Stage,
        payload: &[u8],
        key: Range<usize>,
        added: Range<usize>,
        first: bool,
    ) -> Result<()> {
        let part = |range: &Range<usize>| payload.get(range.clone()).unwrap_or_default();
        let stored = match first {
            true => self.trees.get(TreeId(SESSIONS), part(&key), Timestamp::MAX),
            false => self.before(stage, SESSIONS, part(&key)),
        };
        let head = match stored {
            Ok(Some(stored)) => SessionHead::decode(&stored),
            Ok(None) => Some(SessionHead::default()),
            // A value that cannot be read is as damaged as one that is malformed.
            Err(e) if e.code() == Code::DataCorruptionDetected => None,
            Err(e) => return Err(e),
        };
        if added.is_empty() {
            stage.forget_session_puts(part(&key), &head.unwrap_or_default(), key);
            return Ok(());
        }
        match (head, SessionRecord::decode(part(&added))) {
            (Some(head), Some(record)) => {
                let next = head.advance(part(&key), &record);
                stage.session_puts(&next, key, added);
            }
            // A look-up of the session reports the damage, until its entry is forgotten.
            (Some(_), None) => {
                let (key, added) = (Stage::logged(key), Stage::logged(added));
                stage.put(SESSIONS, key, Some(added), false);
            }
            (None, _) => {}
        }
        Ok(())
    }

    /// The document that a record changes or deletes. If it is missing or cannot be read, its collection
    /// is closed.
    fn old(
        &self,
        stage: &mut Stage,
        collection: &Collection,
        key: &[u8],
        at: Timestamp,
    ) -> Result<Option<Bytes>> {
        match self.before(stage, collection.id, key) {
            Ok(Some(old)) => Ok(Some(old)),
            Ok(None) => {
                collection.close(&cannot(at, "the document that it changes is not there"));
                Ok(None)
            }
            Err(e) if e.code() == Code::DataCorruptionDetected => {
                collection.close(&cannot(at, e.message()));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// The newest value of a key, including staged ones.
    fn before(&self, stage: &mut Stage, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        match stage.staged(tree, key) {
            Some(staged) => Ok(staged.map(Bytes::copy_from_slice)),
            None => self.trees.get(TreeId(tree), key, Timestamp::MAX),
        }
    }
}

impl Stage {
    /// The puts of a catalog entry, for [`Op::Collection`].
    pub fn entry_puts(
        &mut self,
        id: u32,
        held: Option<&Collection>,
        entry: &Entry,
        logged: Range<usize>,
    ) {
        let key = self.keep(&[&keys::catalog(id)]);
        self.put(keys::META, key, Some(Stage::logged(logged)), false);
        for index in held.iter().flat_map(|c| c.all_indexes().to_vec()) {
            if !entry.indexes.iter().any(|i| i.id == index.id) {
                self.index_drop_puts(&index);
            }
        }
    }

    /// The puts of a drop, for [`Op::Drop`].
    pub fn drop_puts(&mut self, collection: &Collection) {
        let id = collection.id;
        for key in [keys::catalog(id), keys::totals(id), keys::damaged(id)] {
            let key = self.keep(&[&key]);
            self.put(keys::META, key, None, false);
        }
        let pending = self.keep(&[&keys::drop_pending(collection.id)]);
        let nothing = self.keep(&[]);
        self.put(keys::META, pending, Some(nothing), false);
        for index in collection.all_indexes().iter() {
            self.index_drop_puts(index);
        }
    }

    fn index_drop_puts(&mut self, index: &crate::Index) {
        for (key, _) in index.multikey().known().entries(index.id) {
            let key = self.keep(&[&key]);
            self.put(keys::META, key, None, false);
        }
        let mark = self.keep(&[&keys::damaged(index.id)]);
        self.put(keys::META, mark, None, false);
        let pending = self.keep(&[&keys::drop_pending(index.id)]);
        let nothing = self.keep(&[]);
        self.put(keys::META, pending, Some(nothing), false);
    }
}

/// Whether a record that another member has sent can be read, and names only collections that exist.
/// Anything else that may be wrong with it concerns one collection, which is closed then.
///
/// # Errors
/// 301.
pub(crate) fn check_readable(
    catalog: &Catalog,
    path: &Path,
    at: Timestamp,
    payload: &[u8],
) -> Result<()> {
    let bad = |offset: usize, what: &str| unreadable(path, at, offset, what);
    let mut ops = Reader::new(payload).ok_or_else(|| bad(0, "its format is not known"))?;
    let mut known = None;
    loop {
        let of = match ops.next() {
            Ok(Some(Op::Drop { id })) => id,
            Ok(Some(Op::Entries { collection, .. })) => collection,
            Ok(Some(Op::Prepare { key, row })) => {
                let stored = payload.get(row).and_then(Row::decode);
                let row = stored.ok_or_else(|| bad(key.start, "a prepared transaction"))?;
                let gone = |id: &u32| catalog.read().by_id(*id).is_none();
                match row.collections().into_iter().find(gone) {
                    Some(gone) => return Err(bad(0, &format!("no collection {gone}"))),
                    None => continue,
                }
            }
            Ok(Some(op)) => match tree_of(&op) {
                Some(tree) => tree,
                None => continue,
            },
            Ok(None) => return Ok(()),
            Err(offset) => return Err(bad(offset, "a malformed operation")),
        };
        // Most operations of a record name the same collection, so the look-up is not repeated.
        if known != Some(of) && catalog.read().by_id(of).is_none() {
            return Err(bad(0, &format!("no collection {of}")));
        }
        known = Some(of);
    }
}

/// The reason for closing a collection to which a part of a record could not be applied.
fn cannot(at: Timestamp, what: &str) -> String {
    format!("the record of {at} cannot be applied to it: {what}")
}

/// The error 301 for a record that cannot be read.
fn unreadable(path: &Path, at: Timestamp, offset: usize, what: &str) -> Error {
    damaged(
        path,
        &format!("the record of {at} cannot be applied: {what} at byte {offset} of its payload"),
    )
}
