//! Makes buckets from measurements when they are read, in MongoDB's format (version 1).
//!
//! Time is divided into windows of the length that a bucket may span. Measurements come in the
//! order of time. Those of one window are sorted by series (on the disk, if they are many), and
//! each series is divided into buckets where one is full or the type of a field changes, which is
//! where MongoDB divides too. So the buckets stay the same as long as the measurements do: their
//! `_id`s are made from what is in them. Each measurement that is not changed while buckets are
//! read is in exactly one of them.

use super::TimeSeries;
use super::fields::{Bounds, Columns};
use bytes::Bytes;
use muniment_query::stage::sorter::Sorter;
use muniment_query::{DocStream, Runtime};
use muniment_storage::fingerprint;
use muniment_value::{Doc, DocBuf, Elem, Error, Result, Type, Value, doc};
use std::cmp::Ordering;

/// The most measurements in a bucket: MongoDB's `timeseriesBucketMaxCount`.
pub(super) const MOST_ROWS: u32 = 1000;

/// The approximate bytes of a bucket's data above which nothing is added: MongoDB's
/// `timeseriesBucketMaxSize`.
pub(super) const MOST_BYTES: usize = 125 * 1024;

/// A measurement with more bytes than this is left out of the bounds of its bucket's fields, except
/// for its time: they would make the bucket too large for BSON. It has its bucket for itself.
const BOUNDED: usize = 5 << 20;

/// Buckets that begin with the same measurement differ by a number below this.
const ALIKE: u64 = 1 << 20;

/// The part of a bucket's `_id` after its seconds. It is made from the bucket's first measurement:
/// its time, its series and its `_id`.
fn mark(series: &TimeSeries, first: Doc<'_>) -> u64 {
    let meta = series.meta(first);
    let id = first.get_elem("_id");
    let parts: [&[u8]; 4] = [
        &series.time(first).unwrap_or_default().to_le_bytes(),
        &meta.map_or([0], |m| [m.ty() as u8]),
        meta.map_or(&[], |m| m.raw_value()),
        id.map_or(&[], |e| e.as_bytes()),
    ];
    fingerprint(&parts) as u64
}

/// True if this is the `_id` of a bucket that was made here and began with this measurement.
pub(super) fn is_rendered(series: &TimeSeries, id: [u8; 12], first: Doc<'_>) -> bool {
    let number = id.last_chunk().map_or(0, |n| u64::from_be_bytes(*n));
    number ^ mark(series, first) < ALIKE
}

impl TimeSeries {
    /// The time of a measurement in ms.
    pub(super) fn time(&self, measurement: Doc<'_>) -> Option<i64> {
        match measurement.get(&self.time_field) {
            Some(Value::DateTime(ms)) => Some(ms),
            _ => None,
        }
    }

    /// The label of a measurement's series.
    pub(super) fn meta<'d>(&self, measurement: Doc<'d>) -> Option<Elem<'d>> {
        measurement.get_elem(self.meta_field.as_deref()?)
    }
}

/// A stream of buckets, made from a stream of measurements in the order of time.
pub(crate) struct Buckets {
    points: Box<dyn DocStream>,
    series: TimeSeries,
    runtime: Runtime,
    /// True if nothing but `_id` and `meta` is needed.
    heads: bool,
    /// The measurements of the window that is being read.
    window: Option<Sorter>,
    /// The first measurement of the next window.
    ahead: Option<Bytes>,
    open: Option<Bucket>,
}

impl Buckets {
    /// The buckets of `points`. With `heads` they have only `_id` and `meta`.
    pub(crate) fn new(
        points: Box<dyn DocStream>,
        series: TimeSeries,
        runtime: Runtime,
        heads: bool,
    ) -> Buckets {
        Buckets {
            points,
            series,
            runtime,
            heads,
            window: None,
            ahead: None,
            open: None,
        }
    }

    fn time(&self, point: &Bytes) -> Result<i64> {
        self.series
            .time(Doc::new(point))
            .ok_or_else(|| Error::internal("a measurement without a time"))
    }

    /// Reads the next window. Returns false if there is none.
    fn fill(&mut self) -> Result<bool> {
        let first = match self.ahead.take() {
            Some(point) => point,
            None => match self.points.next()? {
                Some(point) => point,
                None => return Ok(false),
            },
        };
        let span = self.series.span_ms.max(1);
        let window = self.time(&first)?.div_euclid(span);
        let mut sorter = Sorter::new(None, self.runtime.memory_limit, &self.runtime.ledger);
        let mut key = Vec::new();
        let mut next = Some(first);
        while let Some(point) = next {
            let time = self.time(&point)?;
            if time.div_euclid(span) != window {
                self.ahead = Some(point);
                break;
            }
            key.clear();
            if let Some(meta) = self.series.meta(Doc::new(&point)) {
                let raw = meta.raw_value();
                key.push(meta.ty() as u8);
                key.extend_from_slice(&(raw.len() as u32).to_be_bytes());
                key.extend_from_slice(raw);
            }
            key.extend_from_slice(&(time as u64 ^ (1 << 63)).to_be_bytes());
            if sorter.push(&key, &[&point])? {
                sorter.spill(&self.runtime)?;
            }
            next = self.points.next()?;
        }
        sorter.finish(&self.runtime)?;
        self.window = Some(sorter);
        Ok(true)
    }

    /// Adds a measurement. If it does not go into the open bucket, that one is finished and
    /// returned.
    fn add(&mut self, point: Bytes) -> Result<Option<Bytes>> {
        let measurement = Doc::new(&point);
        if let Some(open) = &mut self.open
            && open.takes(&self.series, measurement)
        {
            open.add(&self.series, measurement, self.heads);
            return Ok(None);
        }
        let mut new = Bucket::new(self.time(&point)?, point.clone());
        let closed = self.open.take();
        if let Some(closed) = &closed
            && closed.begins_like(&self.series, &new)
        {
            new.alike = closed.alike + 1;
        }
        new.add(&self.series, measurement, self.heads);
        self.open = Some(new);
        self.runtime.interrupt.check()?;
        Ok(closed.map(|b| b.finish(&self.series, self.heads)))
    }
}

impl DocStream for Buckets {
    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if self.window.is_none() && !self.fill()? {
                return Ok(None);
            }
            while let Some(window) = &mut self.window
                && let Some(point) = window.next()?
            {
                if let Some(bucket) = self.add(point)? {
                    return Ok(Some(bucket));
                }
            }
            self.window = None;
            if let Some(last) = self.open.take() {
                return Ok(Some(last.finish(&self.series, self.heads)));
            }
        }
    }
}

/// A bucket that is being filled.
struct Bucket {
    first: Bytes,
    /// The time of the first measurement in ms.
    begin: i64,
    columns: Columns,
    min: Bounds,
    max: Bounds,
    /// The number of earlier buckets that begin at the same time of the same series.
    alike: u64,
}

impl Bucket {
    fn new(begin: i64, first: Bytes) -> Bucket {
        Bucket {
            first,
            begin,
            columns: Columns::default(),
            min: Bounds::default(),
            max: Bounds::default(),
            alike: 0,
        }
    }

    fn same_series(&self, series: &TimeSeries, measurement: Doc<'_>) -> bool {
        let own = series.meta(Doc::new(&self.first));
        let other = series.meta(measurement);
        own.map(|e| e.as_bytes()) == other.map(|e| e.as_bytes())
    }

    fn begins_like(&self, series: &TimeSeries, other: &Bucket) -> bool {
        self.begin == other.begin && self.same_series(series, Doc::new(&other.first))
    }

    fn takes(&self, series: &TimeSeries, measurement: Doc<'_>) -> bool {
        self.columns.rows() < MOST_ROWS
            && self.columns.bytes() + measurement.byte_len() <= MOST_BYTES
            && self.same_series(series, measurement)
            && self.min.agree(fields(series, measurement))
    }

    fn add(&mut self, series: &TimeSeries, measurement: Doc<'_>, heads: bool) {
        let bounded = measurement.byte_len() <= BOUNDED;
        let seen = |e: &Elem<'_>| bounded || e.is_named(&series.time_field);
        self.columns.add(fields(series, measurement), !heads);
        let fields = fields(series, measurement).filter(seen);
        self.min
            .add(fields.clone(), Ordering::Less, &series.collation);
        if !heads {
            self.max.add(fields, Ordering::Greater, &series.collation);
        }
    }

    fn finish(self, series: &TimeSeries, heads: bool) -> Bytes {
        let first = Doc::new(&self.first);
        let rounding = series.rounding_ms.max(1);
        let begin = self.begin.div_euclid(rounding).saturating_mul(rounding);
        let mut id = [0; 12];
        let seconds = (begin.div_euclid(1000) as u32).to_be_bytes();
        let number = (mark(series, first) ^ self.alike).to_be_bytes();
        for (to, b) in id.iter_mut().zip(seconds.into_iter().chain(number)) {
            *to = b;
        }
        if heads {
            let mut out = doc! { "_id": Value::ObjectId(id) };
            out.append_some("meta", series.meta(first));
            return Bytes::from(out.into_bytes());
        }
        let rounded = Some((series.time_field.as_str(), Value::DateTime(begin)));
        let control = doc! {
            "version": 1,
            "min": self.min.to_doc(rounded),
            "max": self.max.to_doc(None),
        };
        let mut out = DocBuf::with_capacity(self.columns.bytes() + 1024);
        out.append("_id", Value::ObjectId(id));
        out.append("control", control);
        out.append_some("meta", series.meta(first));
        out.append("data", self.columns.to_doc());
        Bytes::from(out.into_bytes())
    }
}

/// The fields of a measurement that have columns.
fn fields<'d>(
    series: &'d TimeSeries,
    measurement: Doc<'d>,
) -> impl Iterator<Item = Elem<'d>> + Clone {
    let meta = series.meta_field.as_deref();
    measurement
        .iter()
        .filter(move |e| meta.is_none_or(|m| !e.is_named(m)))
}

/// True for a field that a bucket may have. The reader of a bucket refuses any other.
pub(super) fn is_known(e: &Elem<'_>) -> bool {
    matches!(
        (e.name(), e.ty()),
        ("_id" | "meta", _) | ("control" | "data", Type::Document)
    )
}
