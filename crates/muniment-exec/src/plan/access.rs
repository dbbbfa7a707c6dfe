//! The ways in which a plan finds its documents.

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

/// The stage of an EXPRESS look-up in an index.
pub(crate) const IXSCAN: &str = "EXPRESS_IXSCAN";

/// The stage of an EXPRESS look-up in a collection that is keyed by `_id`.
pub(crate) const CLUSTERED: &str = "EXPRESS_CLUSTERED_IXSCAN";

/// The write that a look-up by `_id` is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    /// An update.
    Update,
    /// A delete.
    Delete,
}

/// The signature of a collection scan that a hint or sort by `$natural` asked for.
pub(crate) const NATURAL: &str = "NATURAL";
/// The most scans that a plan's summary names.
const MAX_SUMMARY: usize = 100;

/// The `planSummary` of a plan that looks up one `_id`.
pub(crate) const BY_ID: &str = "IDHACK";

/// The most bytes of index bounds that explain shows.
const MAX_BOUNDS: usize = 1 << 20;

/// One index scan.
#[derive(Clone)]
pub(crate) struct IndexAccess {
    /// The filter's bounds on the index.
    pub bound: BoundIndex,
    /// True if the scan goes from high to low.
    pub backward: bool,
    /// The range that min and max give; it is scanned instead of the bounds.
    pub range: Option<KeyRange>,
    /// The predicates that are tested on every key.
    pub key_filter: Option<Arc<KeyFilter>>,
}

/// One branch of an OR.
#[derive(Clone)]
pub(crate) struct Branch {
    /// The branch's scan: an index, or an OR of its own.
    pub access: Access,
    /// The part of the filter that must be matched on the scan's documents.
    pub filter: Option<Filter>,
}

/// One input of a SORT_MERGE.
#[derive(Clone)]
pub(crate) struct MergeInput {
    /// The input's scan.
    pub access: Arc<IndexAccess>,
    /// The part of the filter that must be matched on the scan's documents.
    pub filter: Option<Filter>,
    /// How many fields of the index come before the sort's fields. Each of them is bounded to one
    /// value.
    pub leading: usize,
    /// True if no other input reads one of this input's keys; then only arrays can make a document
    /// come twice.
    pub disjoint: bool,
}

/// The way in which documents are found.
#[derive(Clone)]
pub(crate) enum Access {
    /// Nothing can match.
    Eof,
    /// A scan of all documents.
    CollScan {
        /// True if the scan begins at the end.
        backward: bool,
    },
    /// A look-up of one document by `_id`.
    IdHack(ValueBuf),
    /// A scan of one index.
    Index(Arc<IndexAccess>),
    /// A geospatial index, which gives documents by their distance.
    Near(Arc<NearAccess>),
    /// A text index, which gives documents by their words.
    Text(Arc<TextAccess>),
    /// Index scans that each come in the sort's order and are merged: one per combination of
    /// points, or one per branch of an `$or`.
    SortMerge(Vec<MergeInput>),
    /// A scan for every branch of an `$or`.
    Or {
        /// The branches.
        branches: Arc<[Branch]>,
        /// True if the `$or` is the whole filter (explain's SUBPLAN).
        rooted: bool,
    },
}

impl Access {
    /// The indexes that the plan reads, each with the version of what the planner knew of its
    /// arrays.
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

    /// Calls `f` with every index scan of the plan.
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
pub(crate) struct Candidate {
    /// The way in which documents are found.
    pub access: Access,
    /// The part of the filter that must be matched on the documents.
    pub filter: Option<Filter>,
    /// True if the plan has to sort.
    pub needs_sort: bool,
    /// Set if the index keys hold all that is needed; it makes documents from them.
    pub covered: Option<Arc<KeyDoc>>,
    /// True if those documents are exactly what the caller wants, so that no projection is left to
    /// do.
    pub needed_exactly: bool,
    /// A text that identifies this plan among the plans of one query shape, also in later runs.
    pub signature: String,
    /// The rank by rules alone, lower is better; 0 and 1 are so good that no trial is needed.
    pub rank: usize,
    /// The stage's name if MongoDB runs this plan without planning: see [`super::express`].
    pub express: Option<&'static str>,
}

impl Candidate {
    /// A plan that needs no comparison with others, because it leaves nothing to match, sort or
    /// cover.
    pub(crate) fn alone(access: Access, signature: &str) -> Candidate {
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

    /// Counts a use of every index of the plan, for `$indexStats`.
    pub(crate) fn note_use(&self) {
        match &self.access {
            Access::Near(a) => a.bound.info.index.note_use(),
            Access::Text(a) => a.info.index.note_use(),
            _ => {}
        }
        let mut used: Vec<&Arc<Index>> = Vec::new();
        self.access.each_index(&mut |a| {
            // Several scans of one index count as one use.
            let index = &a.bound.info.index;
            if !used.iter().any(|u| Arc::ptr_eq(u, index)) {
                used.push(index);
            }
        });
        used.iter().for_each(|i| i.note_use());
    }

    /// True for a scan of a clustered index, whose entries are the documents themselves.
    pub(crate) fn clustered(&self) -> bool {
        matches!(&self.access, Access::Index(a) if a.bound.info.clustered)
    }

    /// The `planSummary` of currentOp.
    pub(crate) fn summary(&self) -> String {
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

/// An index's pattern as `planSummary` has it. A direction is always 1 or -1 there, whatever number
/// the index was created with.
fn key_summary(pattern: Doc<'_>) -> String {
    let fields = pattern.iter().map(|e| match e.value() {
        v @ Value::String(_) => format!("{}: {}", e.name(), v.to_display()),
        v if to_f64(v).is_some_and(|n| n < 0.0) => format!("{}: -1", e.name()),
        _ => format!("{}: 1", e.name()),
    });
    format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
}

impl IndexAccess {
    /// The byte ranges that the scan reads.
    pub(crate) fn ranges(&self) -> super::ranges::ScanRanges {
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

    /// `indexBounds` as explain shows it; `None` if the bounds are too long to show.
    pub(crate) fn bounds_doc(&self) -> Option<DocBuf> {
        let collated = !self.bound.info.index.collation().is_simple();
        let mut d = DocBuf::new();
        let values: usize = self.bound.fields.iter().flatten().map(Interval::size).sum();
        if values > MAX_BOUNDS {
            return None;
        }
        for ((path, descending), list) in self.bound.info.fields().iter().zip(&self.bound.fields) {
            let reversed = *descending != self.backward;
            // The path field of a wildcard index holds field names, which are not collated.
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

/// A scan of a geospatial index in the order of distance.
pub(crate) struct NearAccess {
    /// The bounds of the other fields. The field with the geometries is unbounded here.
    pub bound: BoundIndex,
    /// The place of the field with the geometries.
    pub field: usize,
    /// The path of the geometries.
    pub path: Path,
    /// The `$near` of the query.
    pub near: Arc<NearQuery>,
    /// The predicates that are tested on the keys.
    pub key_filter: Option<Arc<KeyFilter>>,
    /// The part of the filter that must be matched on the documents.
    pub filter: Option<Filter>,
}

impl NearAccess {
    /// The index kind's interface for distances.
    pub(crate) fn index(&self) -> Option<&dyn NearIndex> {
        self.bound.info.index.kind().and_then(|k| k.near())
    }

    /// The bounds of the documents whose distance is between `inner` and `outer`.
    ///
    /// # Errors
    /// The error that ends the operation.
    pub(crate) fn ring(&self, inner: f64, outer: f64, work: Work<'_>) -> Result<BoundIndex> {
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
    pub(crate) fn stage(&self) -> &'static str {
        self.index().map_or("GEO_NEAR", |i| i.stage())
    }
}

/// A scan of a text index for a `$text`.
pub(crate) struct TextAccess {
    /// The index.
    pub info: Arc<IndexInfo>,
    /// The values of the index's fields before the words.
    pub before: Vec<ValueBuf>,
    /// The words that are searched for.
    pub search: Arc<TextSearch>,
    /// The rest of the filter, which must be matched on the documents.
    pub filter: Option<Filter>,
}

impl TextAccess {
    /// The index kind's interface for words.
    pub(crate) fn index(&self) -> Option<&dyn TextIndex> {
        self.info.index.kind().and_then(|k| k.text())
    }

    /// True if the index alone decides what matches.
    pub(crate) fn is_exact(&self) -> bool {
        self.filter.is_none() && self.search.is_by_terms()
    }
}
