//! Opening the buckets of a time-series collection for a pipeline.

use super::render::{Buckets, MOST_BYTES, MOST_ROWS};
use super::{BUCKETS, TimeSeries};
use crate::aggregate::{Opened, Rows};
use crate::database::Database;
use crate::find::{Hint, natural_hint};
use crate::host::Link;
use bytes::Bytes;
use muniment_query::stage::host::NoHost;
use muniment_query::{DocStream, NeverInterrupted, Pipeline, QueryContext, Runtime};
use muniment_storage::{Collection, Direction, DocCursor, KeyRange};
use muniment_value::{ArrayBuf, Doc, Error, Result, array, doc};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

impl Link {
    /// The buckets of a collection. What the first `$match` of the pipeline says of the metaField
    /// is asked of the measurements already.
    pub(crate) fn open_buckets(
        &self,
        collection: &Arc<Collection>,
        pipeline: &Pipeline,
        stages: Doc<'_>,
        ctx: &QueryContext,
        hint: Option<Hint<'_>>,
    ) -> Result<Buckets> {
        let series = TimeSeries::of(collection)
            .ok_or_else(|| Error::internal("buckets of what is no time series"))?;
        check_hint(collection, &series, hint)?;
        let first = stages.values().next().and_then(|v| v.as_doc());
        let filter = first.and_then(|d| d.get_doc("$match"));
        let filter = series.filter_of_points(filter.unwrap_or(Doc::EMPTY));
        // Buckets need the order of time, which is the natural one.
        let natural = natural_hint(false);
        let (below, order) = match filter.is_empty() {
            true => (ArrayBuf::new(), Some(Hint::Pattern(natural.as_doc()))),
            false => {
                let mut by_time = muniment_value::DocBuf::new();
                by_time.append(&series.time_field, 1);
                (
                    array![doc! { "$match": filter }, doc! { "$sort": by_time }],
                    None,
                )
            }
        };
        let namespace = collection.namespace();
        let (_, name) = namespace.split_once('.').unwrap_or_default();
        let points = QueryContext {
            collection: name.to_string(),
            ..ctx.clone()
        };
        let points: Box<dyn DocStream> = match self.open(below.as_doc(), &points, order)? {
            Opened::Plan(exec, _) => Box::new(Rows::new(*exec, &self.op)),
            Opened::Stream(stream, _) => stream,
        };
        let heads = pipeline.needs().is_some_and(|all| {
            let is_head =
                |path: &String| path == "_id" || path == "meta" || path.starts_with("meta.");
            all.iter().all(is_head)
        });
        Ok(Buckets::new(points, series, self.runtime()?, heads))
    }
}

/// How many buckets there are, and their bytes: exact up to [`SAMPLE`] measurements, above that
/// an estimate from so many of them.
#[derive(Clone, Debug)]
pub struct BucketFigures {
    /// The buckets' namespace.
    pub namespace: String,
    /// How many there are.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Measurements that are looked at to tell how many buckets there are.
const SAMPLE: u64 = 20_000;

/// The first measurements of a collection.
struct First {
    docs: DocCursor,
    read: Arc<AtomicU64>,
}

impl DocStream for First {
    fn next(&mut self) -> Result<Option<Bytes>> {
        if self.read.load(Relaxed) >= SAMPLE {
            return Ok(None);
        }
        let next = self.docs.next()?;
        self.read.fetch_add(u64::from(next.is_some()), Relaxed);
        Ok(next.map(|(_, doc)| doc))
    }
}

impl Database {
    /// See [`BucketFigures`].
    ///
    /// # Errors
    /// I/O errors.
    pub fn bucket_figures(&self, collection: &Arc<Collection>) -> Result<BucketFigures> {
        let namespace = collection.namespace();
        let (db, name) = namespace.split_once('.').unwrap_or_default();
        let namespace = format!("{db}.{BUCKETS}{name}");
        let series = TimeSeries::of(collection)
            .ok_or_else(|| Error::internal("buckets of what is no time series"))?;
        let snapshot = self.store.snapshot();
        let read = Arc::new(AtomicU64::new(0));
        let first = First {
            docs: snapshot.docs(collection, &KeyRange::all(), Direction::Forward),
            read: read.clone(),
        };
        let limits = self.sort_limits(None);
        if let Some(dir) = &limits.spill_dir {
            std::fs::create_dir_all(dir)?;
        }
        let runtime = Runtime {
            interrupt: Arc::new(NeverInterrupted),
            memory_limit: limits.memory,
            budget: limits.budget,
            spill_dir: limits.spill_dir,
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
                let end = docs.next()?.and_then(|(_, d)| series.time(Doc::new(&d)));
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
}

/// How many buckets `all` measurements of `point` bytes have that lie evenly in so many places, one
/// for each series in each window of time.
fn estimate(all: f64, places: f64, point: f64) -> f64 {
    let rows = (MOST_BYTES as f64 / point.max(1.0))
        .min(f64::from(MOST_ROWS))
        .max(1.0);
    (places * (all / places / rows).ceil()).min(all).round()
}

/// A hint must name an index that the buckets are shown with.
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
        // A hundred series in three windows, 3333 measurements each: four buckets each.
        assert_eq!(estimate(1e6, 300.0, 60.0).round() as i64, 1200);
        // As many buckets as there are measurements, where they lie far apart.
        assert_eq!(estimate(5000.0, 1e9, 60.0).round() as i64, 5000);
        // Large ones: two in a bucket.
        assert_eq!(estimate(1000.0, 1.0, 64_000.0).round() as i64, 500);
    }
}
