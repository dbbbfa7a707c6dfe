//! Applying a record of the log: what recovery does with every record behind the persisted cut, and
//! a member of a replica set with every record that it is sent.
//!
//! A pure function of the state and the record. The way of a running server's own writes computes
//! the same puts from the same two documents (`entries`), so what is recovered is what was.

use super::ops::{self, Op, Reader};
use super::stage::Stage;
use crate::catalog::Entry;
use crate::collection::Collection;
use crate::entries::Entries;
use crate::keys;
use crate::multikey::Arrays;
use crate::sessions::{SESSIONS, SessionHead, SessionRecord};
use crate::store::Inner;
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_query::diff;
use muniment_tree::TreeId;
use muniment_value::{Code, Doc, Error, Result};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// A change of the catalog that becomes known once the record's puts are in the trees.
enum Change {
    Collection(u32, Box<Entry>),
    Drop(u32),
}

/// What a record came to.
#[derive(Default)]
pub(crate) struct Applied {
    /// How many documents came to which collections.
    pub collections: Vec<(Arc<Collection>, u64)>,
    /// Operations by kind: documents that came, were changed and went, and changes of the catalog.
    pub ops: [u64; 4],
}

impl Inner {
    /// Applies one record. The caller moves the visible timestamp on. Others may read meanwhile.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected when the record says what cannot be.
    pub fn apply(&self, at: Timestamp, payload: &[u8]) -> Result<Applied> {
        let damaged = |offset: usize, what: &str| {
            Error::new(
                Code::DataCorruptionDetected,
                format!(
                    "data corruption detected in {}: the record of {at} cannot be applied: \
                     {what} at byte {offset} of its payload",
                    self.path.display()
                ),
            )
        };
        let mut reader =
            Reader::new(payload).ok_or_else(|| damaged(0, "its format is not known"))?;
        let mut stage = Stage::of_payload(payload);
        let mut entries = Entries::default();
        let mut totals: Vec<(Arc<Collection>, i64, i64)> = Vec::new();
        let (mut changes, mut ops) = (Vec::new(), [0; 4]);
        // The same key may come twice in one record.
        stage.replaces();
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
            let part = |range: &Range<usize>| payload.get(range.clone()).unwrap_or_default();
            let known = |id: u32, offset: usize| {
                self.catalog
                    .read()
                    .by_id(id)
                    .ok_or_else(|| damaged(offset, &format!("no collection {id}")))
            };
            match op {
                Op::Insert { tree, key, doc } => {
                    let c = known(tree, key.start)?;
                    let new = Doc::new(part(&doc));
                    entries.stage(self, &mut stage, &c, part(&key), None, Some(new))?;
                    totals.push((c.clone(), 1, doc.len() as i64));
                    c.saw_insert(part(&key), new);
                    let (key, doc) = (Stage::logged(key), Stage::logged(doc));
                    stage.put(tree, key, Some(doc), true);
                }
                Op::Replace { tree, key, doc } => {
                    let c = known(tree, key.start)?;
                    let old = self.before(&mut stage, tree, part(&key))?;
                    let old = old.ok_or_else(|| damaged(key.start, "an update of nothing"))?;
                    let new = Doc::new(part(&doc));
                    entries.stage(
                        self,
                        &mut stage,
                        &c,
                        part(&key),
                        Some(Doc::new(&old)),
                        Some(new),
                    )?;
                    totals.push((c, 0, doc.len() as i64 - old.len() as i64));
                    stage.put(tree, Stage::logged(key), Some(Stage::logged(doc)), false);
                }
                Op::Diff {
                    tree, key, diff: d, ..
                } => {
                    let c = known(tree, key.start)?;
                    let old = self.before(&mut stage, tree, part(&key))?;
                    let old = old.ok_or_else(|| damaged(key.start, "an update of nothing"))?;
                    let mut new = Vec::with_capacity(old.len() + d.len());
                    diff::apply(Doc::new(&old), Doc::new(part(&d)), &mut new)
                        .map_err(|_| damaged(d.start, "a difference that does not fit"))?;
                    let docs = (Doc::new(&old), Doc::new(&new));
                    entries.stage(self, &mut stage, &c, part(&key), Some(docs.0), Some(docs.1))?;
                    totals.push((c, 0, new.len() as i64 - old.len() as i64));
                    let new = stage.keep_value(&Bytes::from(new));
                    stage.put(tree, Stage::logged(key), Some(new), false);
                }
                Op::Image { .. } | Op::Note { .. } | Op::Config { .. } => {}
                Op::Delete { tree, key, .. } => {
                    let c = known(tree, key.start)?;
                    let old = self.before(&mut stage, tree, part(&key))?;
                    let old = old.ok_or_else(|| damaged(key.start, "a deletion of nothing"))?;
                    entries.stage(self, &mut stage, &c, part(&key), Some(Doc::new(&old)), None)?;
                    totals.push((c, -1, -(old.len() as i64)));
                    stage.put(tree, Stage::logged(key), None, false);
                }
                Op::Collection { id, next_id, entry } => {
                    let doc = muniment_value::validate(part(&entry))?;
                    let parsed = Entry::from_doc(doc, &self.path)?;
                    let held = self.catalog.read().by_id(id);
                    self.stage_entry_puts(&mut stage, id, held.as_deref(), &parsed, entry);
                    self.next_id
                        .fetch_max(next_id, std::sync::atomic::Ordering::SeqCst);
                    changes.push(Change::Collection(id, Box::new(parsed)));
                }
                Op::Drop { id } => {
                    let c = known(id, 0)?;
                    self.stage_drop_puts(&mut stage, &c);
                    changes.push(Change::Drop(id));
                }
                Op::Entries {
                    collection,
                    index,
                    entries: found,
                    arrays,
                } => {
                    let c = known(collection, found.start)?;
                    let pairs = ops::pairs(payload, found.clone())
                        .ok_or_else(|| damaged(found.start, "malformed entries"))?;
                    for (key, value) in pairs {
                        let (key, value) = (Stage::logged(key), Stage::logged(value));
                        stage.put(index, key, Some(value), false);
                    }
                    let arrays = Arrays::from_bytes(part(&arrays))
                        .ok_or_else(|| damaged(arrays.start, "malformed arrays"))?;
                    if let Some(i) = c.all_indexes().iter().find(|i| i.id == index) {
                        i.multikey().widen(&arrays);
                    }
                    c.touch();
                }
                Op::Session { key, added } => {
                    let before = self.before(&mut stage, SESSIONS, part(&key))?;
                    let malformed = || damaged(added.start, "a malformed session");
                    let head = match before {
                        Some(b) => SessionHead::decode(&b).ok_or_else(malformed)?,
                        None => SessionHead::default(),
                    };
                    if added.is_empty() {
                        stage.forget_session_puts(part(&key), &head, key);
                        continue;
                    }
                    let record = SessionRecord::decode(part(&added)).ok_or_else(malformed)?;
                    let next = head.advance(part(&key), &record);
                    stage.session_puts(&next, key, added);
                }
            }
        }
        self.trees.apply(stage.into_batch(&self.buffers), at);
        let mut applied: HashMap<u32, (Arc<Collection>, u64)> = HashMap::new();
        for (c, docs, bytes) in totals {
            c.add_totals(docs, bytes);
            let id = c.id;
            applied.entry(id).or_insert((c, 0)).1 += u64::from(docs > 0);
        }
        let mut drops = Vec::new();
        for change in changes {
            match change {
                Change::Collection(id, entry) => {
                    let held = self.catalog.read().by_id(id);
                    let indexes = self.indexes_of(held.as_deref(), &entry)?;
                    self.publish_collection(id, *entry, indexes, at)?;
                }
                Change::Drop(id) => drops.push(id),
            }
        }
        // In this order, so that a name that passes from one to the other is never nobody's.
        for id in drops {
            let gone = self.catalog.read().by_id(id);
            if let Some(c) = gone {
                self.publish_drop(&c, at);
            }
        }
        Ok(Applied {
            collections: applied.into_values().collect(),
            ops,
        })
    }

    /// The newest value of a key, what is staged included.
    fn before(&self, stage: &mut Stage, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        match stage.staged(tree, key) {
            Some(staged) => Ok(staged.map(Bytes::copy_from_slice)),
            None => self.trees.get(TreeId(tree), key, Timestamp::MAX),
        }
    }

    /// The puts of a catalog entry: what [`Op::Collection`] comes to.
    pub fn stage_entry_puts(
        &self,
        stage: &mut Stage,
        id: u32,
        held: Option<&Collection>,
        entry: &Entry,
        logged: Range<usize>,
    ) {
        let key = stage.keep(&[&keys::catalog(id)]);
        stage.put(keys::META, key, Some(Stage::logged(logged)), false);
        for index in held.iter().flat_map(|c| c.all_indexes().to_vec()) {
            if !entry.indexes.iter().any(|i| i.id == index.id) {
                self.stage_index_drop_puts(stage, &index);
            }
        }
    }

    /// The puts of a drop: what [`Op::Drop`] comes to.
    pub fn stage_drop_puts(&self, stage: &mut Stage, collection: &Collection) {
        for key in [keys::catalog(collection.id), keys::totals(collection.id)] {
            let key = stage.keep(&[&key]);
            stage.put(keys::META, key, None, false);
        }
        let pending = stage.keep(&[&keys::drop_pending(collection.id)]);
        let nothing = stage.keep(&[]);
        stage.put(keys::META, pending, Some(nothing), false);
        for index in collection.all_indexes().iter() {
            self.stage_index_drop_puts(stage, index);
        }
    }

    fn stage_index_drop_puts(&self, stage: &mut Stage, index: &crate::Index) {
        for (key, _) in index.multikey().known().entries(index.id) {
            let key = stage.keep(&[&key]);
            stage.put(keys::META, key, None, false);
        }
        let pending = stage.keep(&[&keys::drop_pending(index.id)]);
        let nothing = stage.keep(&[]);
        stage.put(keys::META, pending, Some(nothing), false);
    }
}
