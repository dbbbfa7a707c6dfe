//! What a shard owns of a sharded collection: a unit stores no other documents.
//!
//! The unit shares the collection, so its placement cannot change before the unit's commit.

use super::WriteUnit;
use super::moves::Moves;
use crate::index::KeySet;
use crate::placement::{Owned, lies_in, stale};
use bytes::Bytes;
use muniment_value::{Code, Doc, Error, Result};
use std::sync::Arc;

impl WriteUnit<'_> {
    /// Makes the unit write for the move of a range: readers of the log are told so (`fromMigrate`).
    pub fn moves(&mut self, moves: Moves) {
        self.moves = Some(moves);
        self.stage.log.moves();
    }

    /// Whether a row is one that this shard does not own, or that is not asked for, so that it is not there for the
    /// unit.
    pub(super) fn is_foreign(&mut self, doc: &[u8]) -> bool {
        let Some(placement) = self.placement.as_ref().filter(|_| self.moves.is_none()) else {
            return false;
        };
        if placement.foreign().is_empty() && self.within.is_none() {
            return false;
        }
        let mut key = Vec::new();
        let written = placement.key.write_key(Doc::new(doc), &mut key);
        let asked = |ranges: &Arc<[Owned]>| lies_in(ranges, &key);
        written.is_ok() && !(placement.owns(&key) && self.within.as_ref().is_none_or(asked))
    }

    /// Makes the unit find only documents of these ranges of shard keys.
    pub fn within(&mut self, ranges: Arc<[Owned]>) {
        self.within = Some(ranges);
    }

    /// Tells readers of the log what names a document in a sharded collection, beside its `_id`: change streams show
    /// that, and it cannot be read from a deletion or a difference.
    pub(super) fn tell_key(&mut self, doc: &[u8]) {
        let Some(placement) = self.placement.as_ref().filter(|_| self.moves.is_none()) else {
            return;
        };
        let fields = placement.key.fields();
        if fields.iter().all(|field| field.path.as_str() == "_id") {
            return;
        }
        let doc = Doc::new(doc);
        // A document without a key was refused before.
        let Ok(mut key) = placement.key.values_of(doc) else {
            return;
        };
        if key.as_doc().get("_id").is_none() {
            key.append_some("_id", doc.get("_id"));
        }
        self.stage.log.key(key.as_bytes());
    }

    /// The keys of other records that have a unique key of a document.
    ///
    /// # Errors
    /// Those of making the keys, and of reading; 301 DataCorruptionDetected.
    pub fn in_the_way_of(&mut self, doc: Doc<'_>) -> Result<Vec<Bytes>> {
        let indexes = self.indexes.clone();
        let (mut set, mut found) = (KeySet::default(), Vec::new());
        for index in indexes.iter().filter(|i| i.unique()) {
            if !self.collection.has_entries(index) {
                continue;
            }
            index.key_set(doc, &mut set, self.work())?;
            for (key, _) in set.iter() {
                let holder = match self.stage.staged(index.id, key) {
                    Some(staged) => staged.map(Bytes::copy_from_slice),
                    None => self.stage.beneath(self.store, index.id, key)?,
                };
                if let Some(holder) = holder {
                    found.push(super::record_of(&holder)?);
                }
            }
        }
        Ok(found)
    }

    /// Refuses a document that this shard does not own.
    ///
    /// # Errors
    /// 13388 StaleConfig; 61 ShardKeyNotFound if there is an array on the path of a field of the shard key.
    pub(super) fn must_own(&mut self, doc: &[u8]) -> Result<()> {
        let Some(placement) = &self.placement else {
            return Ok(());
        };
        let owned = match self.moves {
            // What a move writes, nobody sees.
            Some(Moves::In) => {
                self.key.clear();
                placement.key.write_key(Doc::new(doc), &mut self.key)?;
                !placement.owns(&self.key)
            }
            Some(Moves::Out) => placement.is_waste(Doc::new(doc), &mut self.key)?,
            None | Some(Moves::Copy) => {
                let doc = Doc::new(doc);
                placement.fits_next_key(doc, &mut self.key)
                    && placement.takes(doc, &mut self.key)?
            }
        };
        match owned {
            true => Ok(()),
            false => Err(stale(
                &self.collection.namespace(),
                Some((self.collection.uuid(), placement)),
                "the document belongs to another shard",
            )),
        }
    }

    /// The same for a document that is stored here already, whose key is looked at only if there are others' rows.
    ///
    /// # Errors
    /// Those of [`WriteUnit::must_own`].
    pub(super) fn must_own_stored(&mut self, doc: &[u8]) -> Result<()> {
        let all = self.placement.as_ref().is_none_or(|p| p.takes_all_rows());
        match all && self.moves.is_none() {
            true => Ok(()),
            false => self.must_own(doc),
        }
    }

    /// Refuses an update after which the document would belong to another shard. `touched(path)` false promises that
    /// the values at the path are the same.
    ///
    /// # Errors
    /// Those of [`WriteUnit::must_own`]; 283 WouldChangeOwningShard.
    pub(super) fn must_keep(
        &mut self,
        old: &[u8],
        new: &[u8],
        touched: &dyn Fn(&str) -> bool,
    ) -> Result<()> {
        let Some(placement) = &self.placement else {
            return Ok(());
        };
        let key = placement.next_key().unwrap_or(&placement.key);
        let mut fields = key.fields().iter();
        let keeps_key = !fields.any(|f| touched(f.path.as_str()));
        if !keeps_key && !placement.fits_next_key(Doc::new(new), &mut self.key) {
            return Err(stale(
                &self.collection.namespace(),
                Some((self.collection.uuid(), placement)),
                "the document can have no key by the one that the collection is about to have",
            ));
        }
        self.must_own_stored(old)?;
        if keeps_key {
            return Ok(());
        }
        self.must_own(new).map_err(|e| match e.code() {
            Code::StaleConfig => Error::new(
                Code::WouldChangeOwningShard,
                "after the update the document would belong to another shard",
            ),
            _ => e,
        })
    }
}
