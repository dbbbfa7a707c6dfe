//! Inserts into time-series collections.

use super::{Busy, Staged, WriteUnit};
use muniment_value::{Doc, Value, keyenc};

impl WriteUnit<'_> {
    /// Stages a measurement. Its record key is its time and a number that no other measurement has, so
    /// there is nothing to look up and nothing to latch.
    pub(super) fn insert_timed(&mut self, doc: &[u8]) -> Staged<()> {
        let view = Doc::new(doc);
        let options = self.collection.options();
        let field = options.time_field.as_deref().unwrap_or_default();
        let mut record_key = Vec::with_capacity(24);
        let time = view.get(field).unwrap_or(Value::Null);
        keyenc::encode(time, false, &mut record_key);
        record_key.extend_from_slice(&muniment_value::new_object_id());
        if self.indexed && self.stage_entries(view, &record_key, None, None)?.is_err() {
            return Ok(Err(Busy));
        }
        self.stage_insert(&record_key, doc);
        Ok(Ok(()))
    }
}
