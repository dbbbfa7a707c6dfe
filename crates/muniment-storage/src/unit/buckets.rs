//! Inserts of whole buckets of measurements, as a restore sends them: all of a bucket or nothing.
//!
//! The store has no buckets, only measurements; but a bucket that is there must not be stored twice. So
//! its measurements get record keys that are made of the bucket's `_id` and the place in it: the same
//! bucket sent again finds its own keys taken. A bucket that was made here for a reader is recognised by
//! its measurements: by any of them that came one by one, or by all of them, in whatever buckets they
//! came.

use super::{Busy, DuplicateKey, Staged, WriteUnit};
use muniment_io::Timestamp;
use muniment_tree::{Cursor, Direction, Range, TreeId};
use muniment_value::keyenc::{self, prefix_end};
use muniment_value::{Collation, Doc, Result, Value, doc};
use std::collections::HashSet;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The first byte of a measurement's number if it came in a bucket. All other numbers are ObjectIds,
/// which begin with their time: this byte would be after the year 2105.
const OF_BUCKET: u8 = 0xFF;

/// The bytes after the time in a measurement's record key.
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
    /// It was made here for a reader, and its measurements may still be stored one by one.
    pub rendered: bool,
}

/// A 128-bit hash (XXH3) that tells contents apart. It is the same on every machine and in every
/// version.
pub fn fingerprint(parts: &[&[u8]]) -> u128 {
    let mut hash = Xxh3::new();
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.digest128()
}

/// The measurements of one time that did not come in buckets.
#[derive(Default)]
struct Alone {
    /// The encoded time.
    time: Vec<u8>,
    prints: HashSet<u64>,
}

/// The most measurements of one time that came in buckets which are compared.
const MOST_LOOKED_AT: usize = 10_000;

/// The most bytes that a bucket's measurements and their index entries may take in the log and in
/// memory.
const MOST_STAGED: usize = 256 << 20;

/// A hash that is equal for the same fields with the same values in any order.
fn print_of(measurement: Doc<'_>) -> u64 {
    let each = measurement.iter().map(|e| xxh3_64(e.as_bytes()));
    each.fold(0, u64::wrapping_add)
}

/// True for the same fields with the same values in any order.
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
    /// 11000 DuplicateKey if one of its measurements is there already; 13388 StaleConfig if this shard does not own all
    /// of them; as [`WriteUnit::insert`].
    pub fn insert_bucket(&mut self, bucket: &NewBucket<'_>) -> Staged<()> {
        for measurement in bucket.measurements {
            self.must_own(measurement)?;
        }
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
        let duplicate = || {
            DuplicateKey {
                namespace: bucket.namespace.to_string(),
                index: "_id_".to_string(),
                key_pattern: doc! { "_id": 1 },
                key_value: doc! { "_id": Value::ObjectId(bucket.id) },
                collation: Collation::default(),
            }
            .to_error()
        };
        let mut alone = Alone::default();
        let mut all = bucket.rendered && !bucket.measurements.is_empty();
        for (row, measurement) in bucket.measurements.iter().enumerate() {
            let view = Doc::new(measurement);
            let mut key = Vec::with_capacity(24);
            let time = view.get(field).unwrap_or(Value::Null);
            keyenc::encode(time, false, &mut key);
            if bucket.rendered {
                if alone.time != key {
                    alone = self.alone(&key)?;
                }
                let print = print_of(view);
                if alone.prints.contains(&print) && self.is_alone(&key, view)? {
                    return Err(duplicate());
                }
                all = all && self.is_in_bucket(&key, view)?;
            }
            let print = fingerprint(&[&bucket.id, &(row as u64).to_le_bytes()]);
            key.push(OF_BUCKET);
            key.extend_from_slice(print.to_be_bytes().get(..NUMBER - 1).unwrap_or_default());
            if self.store.newest(self.collection.id, &key)?.is_some() {
                return Err(duplicate());
            }
            keys.push(key);
        }
        if all {
            return Err(duplicate());
        }
        for (key, measurement) in keys.iter().zip(bucket.measurements) {
            let view = Doc::new(measurement);
            if self.stage.len() > MOST_STAGED {
                return Err(muniment_value::Error::new(
                    muniment_value::Code::BSONObjectTooLarge,
                    format!("a bucket and its index entries take more than {MOST_STAGED} bytes"),
                ));
            }
            self.interrupt.check()?;
            if self.indexed && self.stage_entries(view, key, None, None)?.is_err() {
                return Ok(Err(Busy));
            }
            self.stage_insert(key, measurement);
        }
        Ok(Ok(()))
    }

    /// The measurements at this encoded time that did not come in buckets. They are read once for all of
    /// the bucket's measurements of the time.
    fn alone(&self, time: &[u8]) -> Result<Alone> {
        let mut prints = HashSet::new();
        let mut all = self.measurements(time, false);
        while let Some((_, other)) = all.next(self.interrupt)? {
            prints.insert(print_of(Doc::new(&other)));
        }
        Ok(Alone {
            time: time.to_vec(),
            prints,
        })
    }

    fn is_alone(&self, time: &[u8], measurement: Doc<'_>) -> Result<bool> {
        let mut all = self.measurements(time, false);
        while let Some((_, other)) = all.next(self.interrupt)? {
            if same_fields(measurement, Doc::new(&other)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_in_bucket(&self, time: &[u8], measurement: Doc<'_>) -> Result<bool> {
        let mut all = self.measurements(time, true);
        for _ in 0..MOST_LOOKED_AT {
            let Some((_, other)) = all.next(self.interrupt)? else {
                break;
            };
            if same_fields(measurement, Doc::new(&other)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The measurements of one encoded time: either those that came in buckets, whose keys are after all
    /// the others, or the others.
    fn measurements(&self, time: &[u8], of_buckets: bool) -> Box<dyn Cursor> {
        let middle = bytes::Bytes::from([time, &[OF_BUCKET]].concat());
        let range = match of_buckets {
            true => Range {
                low: middle,
                high: prefix_end(time).map(bytes::Bytes::from),
            },
            false => Range {
                low: bytes::Bytes::copy_from_slice(time),
                high: Some(middle),
            },
        };
        let tree = TreeId(self.collection.id);
        let trees = &self.store.trees;
        trees.cursor(tree, range, Timestamp::MAX, Direction::Forward)
    }
}
