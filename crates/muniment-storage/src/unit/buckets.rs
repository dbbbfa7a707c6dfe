//! Inserts of whole buckets of measurements, as a restore sends them: all of a bucket or nothing.
//!
//! There are no buckets in the store, only measurements; but a bucket that is there must not be
//! stored twice. So what it brings gets record keys that are made of the bucket's `_id` and the
//! place in it: the same bucket again finds its own keys taken. A bucket that was made here, for
//! a reader, of measurements that came one by one, is recognized by these.

use super::{Busy, DuplicateKey, Staged, WriteUnit};
use muniment_io::Timestamp;
use muniment_tree::{Direction, Range, TreeId};
use muniment_value::keyenc::{self, prefix_end};
use muniment_value::{Collation, Doc, Result, Value, doc};
use xxhash_rust::xxh3::Xxh3;

/// A measurement's number begins with this if it came in a bucket. All others are ObjectIds,
/// which begin with their time: this one would be after the year 2105.
const OF_BUCKET: u8 = 0xFF;

/// Bytes of what stands behind the time in a measurement's record key.
const NUMBER: usize = 12;

/// A bucket as it is to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewBucket<'b> {
    /// Its `_id`.
    pub id: [u8; 12],
    /// Its namespace, for errors.
    pub namespace: &'b str,
    /// Its measurements, complete documents.
    pub measurements: &'b [Vec<u8>],
    /// It was made of measurements, which may still lie here one by one.
    pub rendered: bool,
}

/// 128 bits that tell contents apart; they are the same everywhere and always (XXH3).
pub fn fingerprint(parts: &[&[u8]]) -> u128 {
    let mut hash = Xxh3::new();
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.digest128()
}

/// The same fields with the same values, in any order.
fn same_fields(a: Doc<'_>, b: Doc<'_>) -> bool {
    a.byte_len() == b.byte_len()
        && a.iter().all(|e| {
            b.get_elem(e.name())
                .is_some_and(|o| o.as_bytes() == e.as_bytes())
        })
}

impl WriteUnit<'_> {
    /// Stages all measurements of a bucket; nothing else may be staged in this unit.
    ///
    /// # Errors
    /// 11000 DuplicateKey if one of its measurements is there already; as
    /// [`WriteUnit::insert`].
    pub fn insert_bucket(&mut self, bucket: &NewBucket<'_>) -> Staged<()> {
        self.whole(|unit| unit.stage_bucket(bucket))
    }

    fn stage_bucket(&mut self, bucket: &NewBucket<'_>) -> Staged<()> {
        let hash = crate::latch::record_hash(self.collection.id, &bucket.id);
        if self.latch(hash)?.is_err() {
            return Ok(Err(Busy));
        }
        let options = self.collection.options();
        let field = options.time_field.as_deref().unwrap_or_default();
        let mut keys = Vec::with_capacity(bucket.measurements.len());
        for (row, measurement) in bucket.measurements.iter().enumerate() {
            let view = Doc::new(measurement);
            let mut key = Vec::with_capacity(24);
            let time = view.get(field).unwrap_or(Value::Null);
            keyenc::encode(time, false, &mut key);
            let alone = bucket.rendered && self.lies_alone(&key, view)?;
            let print = fingerprint(&[&bucket.id, &(row as u64).to_le_bytes()]);
            key.push(OF_BUCKET);
            key.extend_from_slice(print.to_be_bytes().get(..NUMBER - 1).unwrap_or_default());
            if alone || self.store.newest(self.collection.id, &key)?.is_some() {
                let id = doc! { "_id": Value::ObjectId(bucket.id) };
                return Err(DuplicateKey {
                    namespace: bucket.namespace.to_string(),
                    index: "_id_".to_string(),
                    key_pattern: doc! { "_id": 1 },
                    key_value: id,
                    collation: Collation::default(),
                }
                .to_error());
            }
            keys.push(key);
        }
        for (key, measurement) in keys.iter().zip(bucket.measurements) {
            let view = Doc::new(measurement);
            if self.indexed && self.stage_entries(view, key, None, None)?.is_err() {
                return Ok(Err(Busy));
            }
            self.stage_insert(key, measurement);
        }
        Ok(Ok(()))
    }

    /// True if a measurement of this time that came by itself is this one.
    fn lies_alone(&self, time: &[u8], measurement: Doc<'_>) -> Result<bool> {
        let range = Range {
            low: bytes::Bytes::copy_from_slice(time),
            high: prefix_end(time).map(bytes::Bytes::from),
        };
        let tree = TreeId(self.collection.id);
        let mut all = self
            .store
            .trees
            .cursor(tree, range, Timestamp::MAX, Direction::Forward);
        all.ask(muniment_query::running::check);
        while let Some((key, other)) = all.next()? {
            if key.get(time.len()) == Some(&OF_BUCKET) {
                // They are behind all the others of their time.
                break;
            }
            if same_fields(measurement, Doc::new(&other)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
