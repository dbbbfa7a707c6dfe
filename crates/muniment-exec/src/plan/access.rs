//! How a plan finds its documents.

use super::index_plan::{BoundIndex, IndexInfo};
use super::interval::Interval;
use super::key_doc::KeyDoc;
use super::key_filter::KeyFilter;
use muniment_query::Filter;
use muniment_query::geo::NearQuery;
use muniment_query::running::Work;
use muniment_query::text::TextSearch;
use muniment_storage::kinds::{NearIndex, TextIndex};
use muniment_storage::{Index, KeyRange};
use muniment_value::number::to_f64;
use muniment_value::path::Path;
use muniment_value::{Doc, DocBuf, Result, Value, ValueBuf};
use std::sync::Arc;

/// The stage of a look-up in an index.
pub const IXSCAN: &str = "EXPRESS_IXSCAN";

/// The stage of a look-up in a collection that is keyed by `_id`.
pub const CLUSTERED: &str = "EXPRESS_CLUSTERED_IXSCAN";

/// What a look-up by `_id` is for, beside reading.
#[derive(Clone, Copy, Debug)]
pub enum Verb {
    /// An update.
    Update,
    /// A delete.
    Delete,
}

/// The signature of a scan of the whole collection that was asked for.
pub(crate) const NATURAL: &str = "NATURAL";
/// Scans that a plan's summary names.
const MAX_SUMMARY: usize = 100;

/// `planSummary` of one that looks for an `_id`.
pub(crate) const BY_ID: &str = "IDHACK";

/// Bytes of index bounds that explain shows.
const MAX_BOUNDS: usize = 1 << 20;

/// One index scan.
#[derive(Clone)]
pub struct IndexAccess {
    /// The bounds.
    pub bound: BoundIndex,
    /// True to go from high to low.
    pub backward: bool,
    /// min/max: instead of the bounds.
    pub range: Option<KeyRange>,
    /// What is tested on every key.
    pub key_filter: Option<Arc<KeyFilter>>,
}

/// One branch of an OR.
#[derive(Clone)]
pub struct Branch {
    /// Its scan: an index, or an OR of its own.
    pub access: Access,
    /// What must be matched after it.
    pub filter: Option<Filter>,
}

/// One input of a SORT_MERGE.
#[derive(Clone)]
pub struct MergeInput {
    /// Its scan.
    pub access: Arc<IndexAccess>,
    /// What must be matched after it.
    pub filter: Option<Filter>,
    /// How many fields of the index stand before the sort's; each has one value.
    pub leading: usize,
    /// True when no other input has one of its keys: a document comes twice through arrays only.
    pub disjoint: bool,
}

/// How documents are found.
#[derive(Clone)]
pub enum Access {
    /// There is nothing to find.
    Eof,
    /// All documents.
    CollScan {
        /// From the end.
        backward: bool,
    },
    /// One document by `_id`.
    IdHack(ValueBuf),
    /// An index.
    Index(Arc<IndexAccess>),
    /// A geospatial index, by distance.
    Near(Arc<NearAccess>),
    /// A text index, by words.
    Text(Arc<TextAccess>),
    /// Index scans that each come in the sort's order, merged: one per combination of points, or
    /// one per branch of an `$or`.
    SortMerge(Vec<MergeInput>),
    /// An index per branch of an `$or`.
    Or {
        /// The branches.
        branches: Arc<[Branch]>,
        /// True when the `$or` is the whole filter (explain's SUBPLAN).
        rooted: bool,
    },
}

impl Access {
    /// The indexes that it reads, each with the number of what is known of its arrays.
    pub(crate) fn indexes(&self) -> Vec<(Arc<Index>, u64)> {
        let mut all: Vec<(Arc<Index>, u64)> = Vec::new();
        let mut add = |info: &IndexInfo| {
            if !all.iter().any(|(i, _)| Arc::ptr_eq(i, &info.index)) {
                all.push((info.index.clone(), info.version));
            }
        };
        match self {
            Access::Near(a) => add(&a.bound.info),
            Access::Text(a) => add(&a.info),
            other => other.each_index(&mut |a| add(&a.bound.info)),
        }
        all
    }

    /// Calls `f` with every index scan in it.
    fn each_index<'a>(&'a self, f: &mut dyn FnMut(&'a IndexAccess)) {
        match self {
            Access::Eof
            | Access::CollScan { .. }
            | Access::IdHack(_)
            | Access::Near(_)
            | Access::Text(_) => {}
            Access::Index(a) => f(a),
            Access::SortMerge(list) => list.iter().for_each(|i| f(&i.access)),
            Access::Or { branches, .. } => branches.iter().for_each(|b| b.access.each_index(f)),
        }
    }
}

/// A plan that could answer the query.
#[derive(Clone)]
pub struct Candidate {
    /// How documents are found.
    pub access: Access,
    /// What must be matched on the document.
    pub filter: Option<Filter>,
    /// True when the sort must be done.
    pub needs_sort: bool,
    /// Set when index keys hold all that is needed: how documents are made of them.
    pub covered: Option<Arc<KeyDoc>>,
    /// Those documents are exactly what the caller wants.
    pub needed_exactly: bool,
    /// What tells it from the others across runs of one query shape.
    pub signature: String,
    /// The rule's rank: 0 and 1 need no trial.
    pub rank: usize,
    /// The stage's name, for what MongoDB runs without planning: see [`super::express`].
    pub express: Option<&'static str>,
}

impl Candidate {
    /// A plan that needs no comparison with another one: nothing is left to match, to sort or to cover.
    pub fn alone(access: Access, signature: &str) -> Candidate {
        Candidate {
            access,
            filter: None,
            needs_sort: false,
            covered: None,
            needed_exactly: false,
            signature: signature.into(),
            rank: 0,
            express: None,
        }
    }

    /// Counts a use of every index in it, for `$indexStats`.
    pub fn note_use(&self) {
        match &self.access {
            Access::Near(a) => a.bound.info.index.note_use(),
            Access::Text(a) => a.info.index.note_use(),
            _ => {}
        }
        let mut used: Vec<&Arc<Index>> = Vec::new();
        self.access.each_index(&mut |a| {
            // Several scans of one index are one use.
            let index = &a.bound.info.index;
            if !used.iter().any(|u| Arc::ptr_eq(u, index)) {
                used.push(index);
            }
        });
        used.iter().for_each(|i| i.note_use());
    }

    /// True for a scan of the index whose entries are the documents.
    pub fn clustered(&self) -> bool {
        matches!(&self.access, Access::Index(a) if a.bound.info.clustered)
    }

    /// currentOp's planSummary.
    pub fn summary(&self) -> String {
        fn stage(name: &str, info: &Arc<IndexInfo>) -> String {
            format!("{name} {}", key_summary(info.pattern().as_doc()))
        }
        let pattern = |info: &Arc<IndexInfo>| match info.clustered {
            true => "CLUSTERED_IXSCAN".into(),
            false => stage("IXSCAN", info),
        };
        if let Some(name) = self.express {
            return match &self.access {
                Access::Index(a) => stage(name, &a.bound.info),
                _ if name == IXSCAN => format!("{name} {{ _id: 1 }}"),
                _ => name.into(),
            };
        }
        match &self.access {
            Access::Eof => "EOF".into(),
            Access::CollScan { .. } => "COLLSCAN".into(),
            Access::IdHack(_) => BY_ID.into(),
            Access::Near(a) => stage(a.stage(), &a.bound.info),
            Access::Text(a) => pattern(&a.info),
            Access::Index(_) | Access::SortMerge(_) | Access::Or { .. } => {
                let mut list = Vec::new();
                let mut left_out = false;
                self.access.each_index(&mut |a| match list.len() {
                    MAX_SUMMARY => left_out = true,
                    _ => list.push(pattern(&a.bound.info)),
                });
                if left_out {
                    list.push("...".into());
                }
                list.join(", ")
            }
        }
    }
}

/// An index's pattern as `planSummary` has it: what tells of a direction is 1 or -1 there, whatever
/// number the index was made with.
fn key_summary(pattern: Doc<'_>) -> String {
    let fields = pattern.iter().map(|e| match e.value() {
        v @ Value::String(_) => format!("{}: {}", e.name(), v.to_display()),
        v if to_f64(v).is_some_and(|n| n < 0.0) => format!("{}: -1", e.name()),
        _ => format!("{}: 1", e.name()),
    });
    format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
}

impl IndexAccess {
    /// The scan's byte ranges.
    pub fn ranges(&self) -> super::ranges::ScanRanges {
        if let Some(r) = &self.range {
            return super::ranges::ScanRanges::one(r.clone());
        }
        super::ranges::compile(
            self.bound
                .info
                .fields()
                .iter()
                .zip(&self.bound.fields)
                .map(|((_, descending), list)| (*descending, list.as_slice())),
            self.backward,
            self.bound.info.index.is_id(),
        )
    }

    /// `indexBounds` as explain shows it; `None` when they are too long for that.
    pub fn bounds_doc(&self) -> Option<DocBuf> {
        let collated = !self.bound.info.index.collation().is_simple();
        let mut d = DocBuf::new();
        let values: usize = self.bound.fields.iter().flatten().map(Interval::size).sum();
        if values > MAX_BOUNDS {
            return None;
        }
        for ((path, descending), list) in self.bound.info.fields().iter().zip(&self.bound.fields) {
            let reversed = *descending != self.backward;
            // The paths of a wildcard index are names.
            let collated = collated && path.as_str() != "$_path";
            let mut shown: Vec<String> = list
                .iter()
                .map(|i: &Interval| match collated {
                    true => i.display_collated(reversed),
                    false => i.display(reversed),
                })
                .collect();
            if reversed {
                shown.reverse();
            }
            d.append(
                path.as_str(),
                shown
                    .iter()
                    .map(String::as_str)
                    .collect::<muniment_value::ArrayBuf>(),
            );
        }
        Some(d)
    }
}

/// A geospatial index that gives documents by their distance.
pub struct NearAccess {
    /// The bounds of the other fields; the geometry's own stand open.
    pub bound: BoundIndex,
    /// Which field has the geometries.
    pub field: usize,
    /// Their path.
    pub path: Path,
    /// The query.
    pub near: Arc<NearQuery>,
    /// What is tested on the keys.
    pub key_filter: Option<Arc<KeyFilter>>,
    /// What must be matched on the document.
    pub filter: Option<Filter>,
}

impl NearAccess {
    /// The index as it measures distances.
    pub fn index(&self) -> Option<&dyn NearIndex> {
        self.bound.info.index.kind().and_then(|k| k.near())
    }

    /// The bounds of the documents between two distances.
    ///
    /// # Errors
    /// What stops the operation.
    pub fn ring(&self, inner: f64, outer: f64, work: Work<'_>) -> Result<BoundIndex> {
        let mut bound = self.bound.clone();
        let keys = match self.index() {
            Some(index) => index.ring(&self.near, inner, outer, work)?,
            None => Vec::new(),
        };
        if let Some(f) = bound.fields.get_mut(self.field) {
            *f = keys
                .into_iter()
                .map(|(low, high)| Interval::new(low, true, high, true))
                .collect();
        }
        Ok(bound)
    }

    /// The name of the stage in `explain`.
    pub fn stage(&self) -> &'static str {
        self.index().map_or("GEO_NEAR", |i| i.stage())
    }
}

/// A text index that gives the documents of a `$text`.
pub struct TextAccess {
    /// The index.
    pub info: Arc<IndexInfo>,
    /// The values of the fields in front of the words.
    pub before: Vec<ValueBuf>,
    /// What is searched for.
    pub search: Arc<TextSearch>,
    /// What else must be matched on the document.
    pub filter: Option<Filter>,
}

impl TextAccess {
    /// The index as it looks up words.
    pub fn index(&self) -> Option<&dyn TextIndex> {
        self.info.index.kind().and_then(|k| k.text())
    }

    /// True when the index decides alone.
    pub fn is_exact(&self) -> bool {
        self.filter.is_none() && self.search.is_by_terms()
    }
}
