//! The TTL monitor's work: deleting what expired.

use crate::engine::Engine;
use crate::find::Hint;
use crate::operation::OpContext;
use crate::write::core::{Change, Write};
use muniment_query::{Interrupt, QueryContext};
use muniment_storage::{Collection, Index};
use muniment_value::{Code, Doc, DocBuf, Result, Value, array, doc};
use std::sync::Arc;

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TtlOutcome {
    /// Documents deleted.
    pub deleted: u64,
    /// TTL indexes looked at.
    pub indexes: u64,
}

impl Engine {
    /// One pass over every TTL index of every collection: deletes what expired by now.
    ///
    /// # Errors
    /// What `op` says, I/O errors.
    pub fn ttl_pass(&self, op: &Arc<OpContext>) -> Result<TtlOutcome> {
        let now = QueryContext::new().now_ms;
        let mut out = TtlOutcome::default();
        for db in self.store.databases() {
            for collection in self.store.collections(&db) {
                for index in collection.indexes().iter() {
                    let spec = index.spec();
                    let Some(seconds) = spec.expire_after_seconds else {
                        continue;
                    };
                    if collection.is_capped() || index.is_id() {
                        continue;
                    }
                    op.check()?;
                    out.indexes += 1;
                    out.deleted += self.expire(op, &collection, index, now, seconds)?;
                }
            }
        }
        Ok(out)
    }

    /// Deletes what one TTL index says is expired. Of an array the earliest date decides, which
    /// is what a range over its elements finds.
    fn expire(
        &self,
        op: &Arc<OpContext>,
        collection: &Collection,
        index: &Index,
        now: i64,
        seconds: i64,
    ) -> Result<u64> {
        let spec = index.spec();
        let Some((path, _)) = index.fields().first() else {
            return Ok(0);
        };
        let cutoff = now.saturating_sub(seconds.saturating_mul(1000));
        let mut filter = DocBuf::new();
        filter.append(path.as_str(), doc! { "$lte": Value::DateTime(cutoff) });
        if let Some(partial) = &spec.partial_filter {
            filter = doc! { "$and": array![partial, filter] };
        }
        let write = Write::new(
            &QueryContext::new(),
            filter.as_doc(),
            Doc::EMPTY,
            (!spec.hidden).then_some(Hint::Name(&spec.name)),
            true,
            Change::Delete,
        )?;
        let namespace = collection.namespace();
        match self.write(op, &namespace, &write) {
            Ok(done) => Ok(done.matched),
            // The index was dropped meanwhile.
            Err(e) if e.code() == Code::BadValue => Ok(0),
            Err(e) => Err(e),
        }
    }
}
