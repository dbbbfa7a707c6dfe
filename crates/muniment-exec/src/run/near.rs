//! GEO_NEAR: gives documents by their distance from a point, nearest first.
//!
//! The index is read in rings around the point, from the inside out. The documents of a ring are
//! held until the rings have passed their distance, and are then given in order. So at most one
//! ring is held, and what lies farther out in the same cells. A ring with few documents makes the
//! next one wider, one with many makes it narrower.

use super::combine::fetch;
use super::scan::{IxScan, matches};
use super::seen::Seen;
use super::sort::SortLimits;
use super::{Cx, Row, Stats, Step};
use crate::plan::access::IndexAccess;
use crate::plan::access::NearAccess;
use bytes::Bytes;
use muniment_query::MetaSet;
use muniment_query::meta::{Meta, attach, binary};
use muniment_query::running::Work;
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, Value, doc, keyenc};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// A ring with fewer new documents than this makes the next one wider.
const FEW: u64 = 100;
/// A ring with more new documents than this makes the next one narrower.
const MANY: u64 = 1000;
/// The greatest distance is this many times the width of the first ring.
const FIRST: f64 = 65_536.0;
/// The most rings that explain lists.
const LISTED: usize = 100;

/// A document that waits until the rings have passed its distance.
struct Found {
    distance: f64,
    row: Row,
}

impl Ord for Found {
    /// The nearest one is the greatest; among equals, the one with the first record key.
    fn cmp(&self, o: &Found) -> Ordering {
        o.distance
            .total_cmp(&self.distance)
            .then_with(|| o.row.record_key.cmp(&self.row.record_key))
    }
}
impl PartialOrd for Found {
    fn partial_cmp(&self, o: &Found) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}
impl PartialEq for Found {
    fn eq(&self, o: &Found) -> bool {
        self.cmp(o) == Ordering::Equal
    }
}
impl Eq for Found {}

struct RingStats {
    inner: f64,
    outer: f64,
    buffered: u64,
    returned: u64,
}

/// The stage that gives documents by distance.
pub(crate) struct GeoNear {
    access: Arc<NearAccess>,
    limits: SortLimits,
    want_info: bool,
    metadata: MetaSet,
    /// Everything nearer than this has been found.
    covered: f64,
    /// The outer distance of the ring that is being read.
    outer: f64,
    width: f64,
    farthest: f64,
    scan: Option<IxScan>,
    waiting: BinaryHeap<Found>,
    /// The bytes of the documents in `waiting`.
    held: usize,
    seen: Seen,
    rings: Vec<RingStats>,
    /// Documents that the scans have examined so far.
    examined: u64,
    pub(super) stats: Stats,
}

impl GeoNear {
    /// The stage over `access`.
    pub(crate) fn new(
        access: Arc<NearAccess>,
        limits: SortLimits,
        want_info: bool,
        metadata: MetaSet,
    ) -> GeoNear {
        let farthest = access.index().map_or(0.0, |i| i.farthest(&access.near));
        GeoNear {
            limits: limits.clone(),
            want_info,
            metadata,
            covered: access.near.min,
            outer: access.near.min,
            width: farthest / FIRST,
            farthest,
            access,
            scan: None,
            waiting: BinaryHeap::new(),
            held: 0,
            seen: Seen::new(limits),
            rings: Vec::new(),
            examined: 0,
            stats: Stats::default(),
        }
    }

    /// Attaches the distance and the place to the row's document, if they are asked for. The distance is also
    /// the key by which a router merges the rows.
    fn attach(&self, row: &mut Row, work: Work<'_>) -> Result<()> {
        let wanted = |m: &(Meta, Value<'_>)| self.metadata.has(m.0);
        let kinds = [Meta::GeoNearDistance, Meta::GeoNearPoint, Meta::MergeKey];
        if !kinds.iter().any(|m| self.metadata.has(*m)) {
            return Ok(());
        }
        let doc = Doc::new(&row.doc);
        if let Some((distance, place)) = self.access.near.nearest(doc, &self.access.path, work)? {
            let mut key = Vec::new();
            keyenc::encode(Value::Double(distance), false, &mut key);
            let mut kinds = vec![
                (Meta::MergeKey, binary(&key)),
                (Meta::GeoNearDistance, Value::Double(distance)),
                (Meta::GeoNearPoint, place),
            ];
            kinds.retain(wanted);
            row.doc = attach(doc, &kinds);
        }
        Ok(())
    }

    fn next_ring(&mut self, work: Work<'_>) -> Result<IxScan> {
        self.outer = (self.covered + self.width).min(self.farthest);
        self.rings.push(RingStats {
            inner: self.covered,
            outer: self.outer,
            buffered: 0,
            returned: 0,
        });
        Ok(IxScan::new(
            Arc::new(IndexAccess {
                bound: self.access.ring(self.covered, self.outer, work)?,
                backward: false,
                range: None,
                key_filter: self.access.key_filter.clone(),
            }),
            Some(self.limits.clone()),
        ))
    }

    fn end_ring(&mut self) {
        let new = self.rings.last().map_or(0, |r| r.buffered);
        self.covered = self.outer;
        if new == 0 {
            self.width *= 8.0;
        } else if new < FEW {
            self.width *= 2.0;
        } else if new > MANY {
            self.width /= 2.0;
        }
        // If the width became so small that adding it no longer changed the distance, the rings
        // would never end.
        self.width = self.width.max(self.farthest * 1e-9);
    }

    /// Takes in a row of the ring's scan.
    fn take(&mut self, mut row: Row, cx: &mut Cx) -> Result<()> {
        if !self.seen.insert(&row.record_key, cx)? || !fetch(&mut row, cx)? {
            return Ok(());
        }
        self.examined += 1;
        let near = &self.access.near;
        let nearest = near.nearest(Doc::new(&row.doc), &self.access.path, cx.work())?;
        let Some((distance, _)) = nearest else {
            return Ok(());
        };
        if !(near.min..=near.max).contains(&distance) {
            return Ok(());
        }
        if let Some(f) = &self.access.filter {
            match matches(f, &row.doc, self.want_info, cx.work())? {
                Some(info) => row.info = info,
                None => return Ok(()),
            }
        }
        if let Some(r) = self.rings.last_mut() {
            r.buffered += 1;
        }
        if self.held + row.doc.len() > self.limits.memory {
            // There is no more memory for documents: this one is read again when its turn comes.
            row.doc = Bytes::new();
        }
        self.held += row.doc.len();
        self.waiting.push(Found { distance, row });
        Ok(())
    }

    pub(super) fn next(&mut self, cx: &mut Cx) -> Result<Step> {
        loop {
            let done = self.covered >= self.farthest && self.scan.is_none();
            let ripe = |f: &Found| done || f.distance < self.covered;
            if self.waiting.peek().is_some_and(ripe)
                && let Some(Found { mut row, .. }) = self.waiting.pop()
            {
                self.held = self.held.saturating_sub(row.doc.len());
                if row.doc.is_empty() && !fetch(&mut row, cx)? {
                    continue;
                }
                if let Some(r) = self.rings.last_mut() {
                    r.returned += 1;
                }
                self.attach(&mut row, cx.work())?;
                self.stats.advanced += 1;
                return Ok(Step::Row(row));
            }
            // A ring without any width is still read once, because all documents may be at distance
            // zero.
            if done && !self.rings.is_empty() || self.covered > self.farthest {
                self.stats.eof = true;
                return Ok(Step::Eof);
            }
            let mut scan = match self.scan.take() {
                Some(s) => s,
                None => self.next_ring(cx.work())?,
            };
            self.stats.works += 1;
            match scan.next(cx)? {
                Step::Row(row) => {
                    self.scan = Some(scan);
                    self.take(row, cx)?;
                }
                Step::Pause => {
                    self.scan = Some(scan);
                    return Ok(Step::Pause);
                }
                Step::Eof => self.end_ring(),
            }
        }
    }

    pub(super) fn save(&mut self) {
        if let Some(s) = &mut self.scan {
            s.save();
        }
    }

    pub(super) fn explain(&self, exec: bool) -> DocBuf {
        let spec = self.access.bound.info.index.spec();
        let mut d = doc! { "stage": self.access.stage() };
        if let Some(f) = &self.access.filter {
            d.append("filter", f.to_doc());
        }
        if exec {
            self.stats.append(&mut d);
        }
        d.append("keyPattern", &spec.key);
        d.append("indexName", spec.name.as_str());
        d.append("indexVersion", 2);
        if exec {
            let mut rings = ArrayBuf::new();
            for r in self.rings.iter().take(LISTED) {
                rings.push(doc! {
                    "minDistance": r.inner,
                    "maxDistance": r.outer,
                    "maxInclusive": r.outer >= self.farthest,
                    "nBuffered": r.buffered as i64,
                    "nReturned": r.returned as i64,
                });
            }
            d.append("searchIntervals", rings);
            d.append("docsExamined", self.examined as i64);
        }
        d
    }
}
