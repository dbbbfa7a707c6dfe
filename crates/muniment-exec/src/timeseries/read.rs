//! Opening the buckets of a time-series collection for a pipeline.

use super::render::Buckets;
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

/// How many buckets there are, and their bytes: as many measurements as [`SAMPLE`] are put into
/// buckets, and the rest is taken to be like them.
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
const SAMPLE: u64 = 100_000;

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
        };
        let mut buckets = Buckets::new(Box::new(first), series, runtime, false);
        let (mut count, mut bytes) = (0_u64, 0_u64);
        while let Some(b) = buckets.next()? {
            count += 1;
            bytes += b.len() as u64;
        }
        let (read, all) = (read.load(Relaxed), collection.count());
        if read >= SAMPLE && all > read {
            let more = all as f64 / read as f64;
            count = (count as f64 * more).round() as u64;
            bytes = (bytes as f64 * more).round() as u64;
        }
        Ok(BucketFigures {
            namespace,
            count,
            bytes,
        })
    }
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
