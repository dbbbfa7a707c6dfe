//! Inserts into time-series collections.

use super::{Busy, Changed, Staged, WriteUnit};
use bytes::Bytes;
use muniment_value::{Doc, Error, Value, keyenc};

impl WriteUnit<'_> {
    /// Stages a measurement. Its record key is its time and a number that no other measurement has, so
    /// there is nothing to look up and nothing to latch.
    pub(super) fn insert_timed(&mut self, doc: &[u8]) -> Staged<()> {
        let mut record_key = self.time_key(doc);
        record_key.extend_from_slice(&muniment_value::new_object_id());
        self.insert_under(&record_key, doc)
    }

    /// The time of a measurement, with which its record key begins.
    fn time_key(&self, doc: &[u8]) -> Vec<u8> {
        let options = self.collection.options();
        let field = options.time_field.as_deref().unwrap_or_default();
        let mut record_key = Vec::with_capacity(24);
        let time = Doc::new(doc).get(field).unwrap_or(Value::Null);
        keyenc::encode(time, false, &mut record_key);
        record_key
    }

    fn insert_under(&mut self, record_key: &[u8], doc: &[u8]) -> Staged<()> {
        if self.indexed
            && self
                .stage_entries(Doc::new(doc), record_key, None, None)?
                .is_err()
        {
            return Ok(Err(Busy));
        }
        self.stage_insert(record_key, doc);
        Ok(Ok(()))
    }

    /// Stages a measurement that comes from another shard, under the record key that it has there. No two measurements
    /// of a series have the same record key, on whatever shards they are, so it tells them apart: a measurement that is
    /// here already is replaced.
    ///
    /// # Errors
    /// 13388 StaleConfig if this shard owns the measurement, or the one that is there; 1 if the record key does not
    /// begin with the measurement's time; as [`WriteUnit::insert`].
    pub fn put_measurement(&mut self, record_key: &[u8], doc: &[u8]) -> Staged<()> {
        if !self.collection.is_time_series() || !record_key.starts_with(&self.time_key(doc)) {
            return Err(Error::internal(
                "a measurement came with the record key of another one",
            ));
        }
        self.may_write()?;
        self.must_own(doc)?;
        if self.make_room(2 * doc.len())?.is_err() {
            return Ok(Err(Busy));
        }
        match self.lock(record_key)? {
            Err(Busy) => Ok(Err(Busy)),
            Ok(None) => self.whole(|unit| unit.insert_under(record_key, doc)),
            Ok(Some(there)) if *there == *doc => Ok(Ok(())),
            Ok(Some(there)) => {
                let new = Bytes::copy_from_slice(doc);
                self.update(record_key, &there, &new, Changed::Whole, &|_| true)
            }
        }
    }
}
