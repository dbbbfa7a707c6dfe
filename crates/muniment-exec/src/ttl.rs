//! The TTL monitor's work: deleting what expired.

use crate::database::Database;
use crate::find::Hint;
use crate::operation::OpContext;
use crate::timeseries::TimeSeries;
use crate::write::core::{Change, Done, Write};
use crate::write::slices::Slices;
use muniment_query::{Interrupt, QueryContext};
use muniment_storage::{Collection, Direction, Index, KeyRange};
use muniment_value::{Code, Doc, DocBuf, Result, Value, array, doc, number};
use std::sync::Arc;

/// `expireAfterSeconds` of a clustered or time-series collection.
fn collection_expiry(collection: &Collection) -> Option<i64> {
    let options = collection.options();
    let seconds = options.document.as_doc().get("expireAfterSeconds")?;
    number::to_i64_exact(seconds)
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TtlOutcome {
    /// Documents deleted.
    pub deleted: u64,
    /// TTL indexes looked at.
    pub indexes: u64,
}

impl Database {
    /// One pass over every TTL index of every collection: deletes what expired by now.
    ///
    /// # Errors
    /// What `op` says, I/O errors.
    pub fn ttl_pass(&self, op: &Arc<OpContext>) -> Result<TtlOutcome> {
        let now = QueryContext::new().now_ms;
        let mut out = TtlOutcome::default();
        for db in self.store.databases() {
            for collection in self.store.collections(&db) {
                if let Some(seconds) = collection_expiry(&collection) {
                    op.check()?;
                    let cutoff = now.saturating_sub(seconds.saturating_mul(1000));
                    out.indexes += 1;
                    out.deleted += match TimeSeries::of(&collection) {
                        Some(s) => self.expire_series(op, &collection, &s, cutoff)?,
                        None => self.expire_clustered(op, &collection, cutoff)?,
                    };
                }
                for index in collection.indexes().iter() {
                    let spec = index.spec();
                    let Some(seconds) = spec.expire_after_seconds else {
                        continue;
                    };
                    // Keys that an index kind makes are no dates.
                    if collection.is_capped() || index.is_id() || index.transforms(0) {
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

    /// Deletes the measurements up to `cutoff`: the first ones in the natural order.
    fn expire_series(
        &self,
        op: &Arc<OpContext>,
        collection: &Arc<Collection>,
        series: &TimeSeries,
        cutoff: i64,
    ) -> Result<u64> {
        let snapshot = self.store.snapshot();
        let mut cursor = snapshot.docs(collection, &KeyRange::all(), Direction::Forward);
        let mut slices = Slices::<Done>::new(&self.store, op, collection);
        while let Some((key, d)) = cursor.next()? {
            let old = matches!(
                Doc::new(&d).get(&series.time_field),
                Some(Value::DateTime(t)) if t <= cutoff
            );
            if !old {
                break;
            }
            op.check()?;
            let deleted = slices.change_record(&key, |unit, doc| {
                let mut done = Done::default();
                if let Some(doc) = doc {
                    if let Err(busy) = unit.delete(&key, &doc)? {
                        return Ok(Err(busy));
                    }
                    done.matched = 1;
                }
                Ok(Ok(done))
            });
            match deleted {
                // Dropped meanwhile.
                Err(e) if e.code() == Code::NamespaceNotFound => break,
                other => other?,
            }
        }
        slices.commit()?;
        Ok(slices.into_stored().0.matched)
    }

    /// Deletes the documents of a clustered collection whose `_id` is a date up to `cutoff`.
    fn expire_clustered(
        &self,
        op: &Arc<OpContext>,
        collection: &Collection,
        cutoff: i64,
    ) -> Result<u64> {
        let filter = doc! { "_id": doc! { "$lte": Value::DateTime(cutoff) } };
        let write = Write::new(
            &QueryContext::new(),
            filter.as_doc(),
            Doc::EMPTY,
            None,
            true,
            Change::Delete,
        )?;
        let mut done = Done::default();
        self.write(op, &collection.namespace(), &write, &mut done)?;
        Ok(done.matched)
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
            &QueryContext::new().with_collation(index.collation().clone()),
            filter.as_doc(),
            Doc::EMPTY,
            (!spec.hidden).then_some(Hint::Name(&spec.name)),
            true,
            Change::Delete,
        )?;
        let namespace = collection.namespace();
        let mut done = Done::default();
        match self.write(op, &namespace, &write, &mut done) {
            Ok(()) => Ok(done.matched),
            // The index was dropped meanwhile.
            Err(e) if e.code() == Code::BadValue => Ok(0),
            Err(e) => Err(e),
        }
    }
}
