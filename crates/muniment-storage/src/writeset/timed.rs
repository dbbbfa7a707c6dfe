//! Inserts into time-series collections.

use super::{Attempt, WriteSet};
use crate::keys;
use bytes::Bytes;
use muniment_value::{Doc, Result, Value, keyenc};

impl WriteSet<'_> {
    /// Stages a measurement: its record key is its time and a number that nothing else has, so
    /// there is nothing to look up and nothing to latch.
    pub(super) fn try_insert_timed(&mut self, doc: &Bytes, wait: bool) -> Result<Attempt> {
        let view = Doc::new(doc);
        let options = self.collection.options();
        let field = options.time_field.as_deref().unwrap_or_default();
        let mut record_key = Vec::with_capacity(24);
        let time = view.get(field).unwrap_or(Value::Null);
        keyenc::encode(time, false, &mut record_key);
        record_key.extend_from_slice(&muniment_value::new_object_id());
        if self.indexed
            && self.stage_entries(view, &record_key, None, None, wait)? == Attempt::Again
        {
            return Ok(Attempt::Again);
        }
        let full = Bytes::from(keys::join(self.collection.id, &record_key));
        self.stage_doc(full, doc.clone(), 1, doc.len() as i64);
        self.inserted += 1;
        Ok(Attempt::Done)
    }
}
