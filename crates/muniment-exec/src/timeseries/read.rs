//! Opens the buckets of a time-series collection for a pipeline.

use super::render::{Buckets, MOST_BYTES, MOST_ROWS};
use super::{BUCKETS, TimeSeries};
use crate::database::Database;
use crate::plan::hint::{Hint, natural_hint};
use bytes::Bytes;
use muniment_op::Interrupt;
use muniment_query::stage::host::NoHost;
use muniment_query::{DocStream, NeverInterrupted, Runtime};
use muniment_storage::{Collection, Direction, DocCursor, KeyRange};
use muniment_value::{ArrayBuf, Doc, DocBuf, Error, Result, array, doc};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How to read the measurements from which buckets are made.
pub(crate) struct Points {
    /// Their time series.
    pub series: TimeSeries,
    /// The stages that give them in the order of time.
    pub stages: ArrayBuf,
    natural: DocBuf,
}

impl Points {
    /// The measurements of a collection. Conditions on the metaField in the first `$match` of the
    /// pipeline over the buckets are applied to the measurements already.
    ///
    /// # Errors
    /// 2 BadValue for a hint of an index that the buckets are not shown with.
    pub(crate) fn of(
        collection: &Collection,
        stages: Doc<'_>,
        hint: Option<Hint<'_>>,
    ) -> Result<Points> {
        let series = TimeSeries::of(collection)
            .ok_or_else(|| Error::internal("buckets of what is no time series"))?;
        check_hint(collection, &series, hint)?;
        let first = stages.values().next().and_then(|v| v.as_doc());
        let filter = first.and_then(|d| d.get_doc("$match"));
        let filter = series.filter_of_points(filter.unwrap_or(Doc::EMPTY));
        let stages = match filter.is_empty() {
            true => ArrayBuf::new(),
            false => {
                let mut by_time = DocBuf::new();
                by_time.append(&series.time_field, 1);
                array![doc! { "$match": filter }, doc! { "$sort": by_time }]
            }
        };
        Ok(Points {
            series,
            stages,
            natural: natural_hint(false),
        })
    }

    /// The hint for reading the measurements: buckets need them in the order of time, which is the
    /// natural order.
    pub(crate) fn hint(&self) -> Option<Hint<'_>> {
        let all = self.stages.as_doc().is_empty();
        all.then(|| Hint::Pattern(self.natural.as_doc()))
    }
}

/// The number of buckets and their bytes. Up to 20,000 measurements they are exact, above that an
/// estimate from so many measurements.
#[derive(Clone, Debug)]
pub struct BucketFigures {
    /// The buckets' namespace.
    pub namespace: String,
    /// The number of buckets.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The number of measurements from which the number of buckets is estimated.
const SAMPLE: u64 = 20_000;

/// Gives the first measurements of a collection.
struct First {
    operation: Arc<dyn Interrupt>,
    docs: DocCursor,
    read: Arc<AtomicU64>,
}

impl DocStream for First {
    fn next(&mut self) -> Result<Option<Bytes>> {
        if self.read.load(Relaxed) >= SAMPLE {
            return Ok(None);
        }
        let next = self.docs.next(&*self.operation)?;
        self.read.fetch_add(u64::from(next.is_some()), Relaxed);
        Ok(next.map(|(_, doc)| doc))
    }
}

/// Implements [`Database::bucket_figures`].
pub(crate) fn bucket_figures(
    engine: &Database,
    collection: &Arc<Collection>,
    operation: &dyn Interrupt,
) -> Result<BucketFigures> {
    let operation = operation.shared();
    let operation = operation.unwrap_or_else(|| Arc::new(NeverInterrupted));
    let namespace = collection.namespace();
    let (db, name) = namespace.split_once('.').unwrap_or_default();
    let namespace = format!("{db}.{BUCKETS}{name}");
    let series = TimeSeries::of(collection)
        .ok_or_else(|| Error::internal("buckets of what is no time series"))?;
    let snapshot = engine.store.snapshot();
    let read = Arc::new(AtomicU64::new(0));
    let first = First {
        operation: operation.clone(),
        docs: snapshot.docs(collection, &KeyRange::all(), Direction::Forward),
        read: read.clone(),
    };
    let limits = engine.sort_limits(None);
    let runtime = Runtime {
        interrupt: operation.clone(),
        memory_limit: limits.memory,
        ledger: limits.ledger,
        scratch: limits.scratch,
        host: Arc::new(NoHost),
        watched: false,
    };
    let mut buckets = Buckets::new(Box::new(first), series.clone(), runtime, false);
    let (mut count, mut bytes, mut data) = (0_u64, 0_u64, 0_u64);
    let mut labels = HashSet::new();
    while let Some(b) = buckets.next()? {
        count += 1;
        bytes += b.len() as u64;
        let d = Doc::new(&b);
        data += d.get_doc("data").map_or(0, |d| d.byte_len() as u64);
        labels.insert(d.get_elem("meta").map(|e| e.as_bytes().to_vec()));
    }
    let (read, all) = (read.load(Relaxed), collection.count());
    if read >= SAMPLE && all > read {
        let times = [Direction::Forward, Direction::Backward].map(|direction| {
            let mut docs = snapshot.docs(collection, &KeyRange::all(), direction);
            let end = docs
                .next(&*operation)?
                .and_then(|(_, d)| series.time(Doc::new(&d)));
            Ok(end.unwrap_or_default().div_euclid(series.span_ms.max(1)))
        });
        let [first, last]: [Result<i64>; 2] = times;
        let windows = last?.saturating_sub(first?).saturating_add(1).max(1) as f64;
        let point = data as f64 / read as f64;
        let head = bytes.saturating_sub(data) as f64 / count.max(1) as f64;
        let estimated = estimate(all as f64, windows * labels.len() as f64, point);
        count = estimated as u64;
        bytes = (all as f64 * point + estimated * head) as u64;
    }
    Ok(BucketFigures {
        namespace,
        count,
        bytes,
    })
}

/// Estimates the number of buckets. There are `all` measurements of `point` bytes, spread evenly
/// over so many places; a place is one series in one window of time.
fn estimate(all: f64, places: f64, point: f64) -> f64 {
    let rows = (MOST_BYTES as f64 / point.max(1.0))
        .min(f64::from(MOST_ROWS))
        .max(1.0);
    (places * (all / places / rows).ceil()).min(all).round()
}

/// Checks that a hint names an index that the buckets are shown with.
fn check_hint(collection: &Collection, series: &TimeSeries, hint: Option<Hint<'_>>) -> Result<()> {
    let there = match hint {
        None => true,
        Some(Hint::Name(name)) => {
            name == "_id_" || collection.indexes().iter().any(|i| i.spec().name == name)
        }
        Some(Hint::Pattern(p)) => {
            p.get("$natural").is_some()
                || p.to_buf() == doc! { "_id": 1 }
                || collection.indexes().iter().any(|i| {
                    let shown = series.index_of_buckets(i.spec().document.as_doc());
                    let key = shown.as_doc().get_doc("key").unwrap_or(Doc::EMPTY);
                    key.as_bytes() == p.as_bytes()
                })
        }
    };
    match there {
        true => Ok(()),
        false => Err(Error::bad_value(
            "error processing query: planner returned error :: caused by :: hint provided does \
             not correspond to an existing index",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::estimate;

    #[test]
    fn estimates_of_buckets() {
        // A hundred series in three windows, with 3333 measurements each, make four buckets each.
        assert_eq!(estimate(1e6, 300.0, 60.0).round() as i64, 1200);
        // Measurements that lie far apart each have a bucket.
        assert_eq!(estimate(5000.0, 1e9, 60.0).round() as i64, 5000);
        // Of large measurements, two fit into a bucket.
        assert_eq!(estimate(1000.0, 1.0, 64_000.0).round() as i64, 500);
    }
}
