//! All plans that could answer a query.

use super::express::{IXSCAN, LookUp, by_field, by_id};
use super::filters::IndexFilter;
use super::index_plan::{BoundIndex, IndexInfo, binds};
use super::interval::Interval;
use super::key_filter::{cover, residual};
use super::leaf::Leaves;
use super::min_max::{min_max, min_max_error};
use super::near::{NearAccess, near_candidate};
use super::or_plan::or_candidates;
use super::order::{explode, gives_sort};
use super::text::{TextAccess, text_candidate};
use crate::find::Hint;
use crate::run::key_doc::KeyDoc;
use crate::run::scan::KeyFilter;
use muniment_query::filter::Node;
use muniment_query::{Filter, SortSpec};
use muniment_storage::{Collection, Index, KeyRange};
use muniment_value::{Code, Doc, DocBuf, Error, Result, ValueBuf, cmp_values};
use std::cmp::Ordering;
use std::sync::Arc;

/// Scans that a plan's summary names.
const MAX_SUMMARY: usize = 100;

/// `planSummary` of one that looks for an `_id`.
pub(crate) const BY_ID: &str = "IDHACK";

/// Bytes of index bounds that explain shows.
const MAX_BOUNDS: usize = 1 << 20;

/// A query as the planner takes it.
pub struct Query<'q> {
    /// The parsed filter.
    pub filter: &'q Filter,
    /// The sort; `None` for none (or `$natural`).
    pub sort: Option<&'q SortSpec>,
    /// The paths that are needed of each document; `None` when whole documents are.
    pub needs: Option<&'q [String]>,
    /// True when the documents that the caller wants have these fields and nothing else.
    pub only_needs: bool,
    /// The hint; `{$natural: ±1}` as sort counts as one.
    pub hint: Option<Hint<'q>>,
    /// Inclusive lower bound on the hinted index.
    pub min: Doc<'q>,
    /// Exclusive upper bound on the hinted index.
    pub max: Doc<'q>,
    /// The indexes that `planCacheSetFilter` left for this shape.
    pub allowed: Option<Arc<IndexFilter>>,
    /// The short ways that are open to it.
    pub look_up: LookUp,
}

impl<'q> Query<'q> {
    /// A query of a filter alone.
    pub fn of(filter: &'q Filter) -> Query<'q> {
        Query {
            filter,
            sort: None,
            needs: None,
            only_needs: false,
            hint: None,
            min: Doc::EMPTY,
            max: Doc::EMPTY,
            allowed: None,
            look_up: LookUp::default(),
        }
    }
}

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

/// The error of a hint that names no usable index.
fn bad_hint(namespace: &str) -> Error {
    Error::bad_value(format!(
        "error processing query: ns={namespace} planner returned error: bad hint :: caused by :: \
         hint provided does not correspond to an existing index"
    ))
}

/// The error of a pattern that several indexes have, which differ in their collations or filters.
fn ambiguous_hint(namespace: &str, some: [&Arc<Index>; 2]) -> Error {
    let names = some.map(|i| i.spec().name.clone()).join(", ");
    Error::new(
        Code::IndexNotFound,
        format!(
            "error processing query: ns={namespace} planner returned error: Hint matched multiple \
             indexes, must hint by index name. Matched: {names}"
        ),
    )
}

/// `{$natural: ±1}`: true for backward.
pub fn natural(doc: Doc<'_>) -> Option<bool> {
    let first = doc.first()?;
    if first.name() != "$natural" {
        return None;
    }
    Some(muniment_value::number::is_negative(first.value()))
}

fn collscan(query: &Query<'_>, backward: bool) -> Candidate {
    let filter = match query.filter.root() {
        Node::True => None,
        _ => Some(query.filter.clone()),
    };
    Candidate {
        access: Access::CollScan { backward },
        filter,
        needs_sort: query.sort.is_some(),
        covered: None,
        needed_exactly: false,
        signature: "COLLSCAN".into(),
        rank: usize::MAX,
        express: None,
    }
}

/// All candidates; at least one.
///
/// # Errors
/// 2 BadValue for a hint that fits nothing; 51173 and its like for min/max.
pub fn candidates(collection: &Collection, query: &Query<'_>) -> Result<Vec<Candidate>> {
    // A filter on indexes overrules hints.
    let hint = query.hint.filter(|_| query.allowed.is_none());
    if hint.is_none()
        && query.look_up.by_id
        && query.allowed.is_none()
        && query.min.is_empty()
        && query.max.is_empty()
        && !collection.is_time_series()
        && let Some(id) = query.filter.id_equality_by(collection.collation())
    {
        return Ok(vec![Candidate {
            access: Access::IdHack(id.clone()),
            filter: None,
            needs_sort: false,
            covered: None,
            needed_exactly: false,
            signature: "IDHACK".into(),
            rank: 0,
            express: query.look_up.express.then(|| by_id(collection)),
        }]);
    }
    let namespace = collection.namespace();
    if matches!(query.filter.root(), Node::False) {
        return Ok(vec![Candidate {
            access: Access::Eof,
            filter: None,
            needs_sort: false,
            covered: None,
            needed_exactly: false,
            signature: "EOF".into(),
            rank: 0,
            express: None,
        }]);
    }
    if query.filter.has_text() {
        let usable = |i: &&Arc<Index>| {
            let spec = i.spec();
            !spec.hidden && query.allowed.as_ref().is_none_or(|a| a.allows(&spec))
        };
        let infos: Vec<Arc<IndexInfo>> = collection
            .indexes()
            .iter()
            .filter(usable)
            .map(|i| IndexInfo::of(i, collection))
            .collect();
        return Ok(vec![text_candidate(&namespace, query, &infos)?]);
    }
    let bounded_by_hand = !query.min.is_empty() || !query.max.is_empty();
    if let Some(Hint::Pattern(p)) = hint
        && let Some(backward) = natural(p)
    {
        if bounded_by_hand {
            return Err(min_max_error());
        }
        if query.filter.near().is_some() {
            return Err(Error::bad_value(format!(
                "error processing query: ns={namespace} planner returned error: hint $natural is \
                 not allowed with $near"
            )));
        }
        return Ok(vec![collscan(query, backward)]);
    }
    let mut indexes = collection.indexes();
    if let Some(allowed) = &query.allowed {
        let left = indexes.iter().filter(|i| allowed.allows(&i.spec()));
        indexes = Arc::new(left.cloned().collect());
    }
    let leaves = Leaves::of(query.filter);
    if let Some(hint) = hint {
        let mut named = indexes.iter().filter(|i| {
            let spec = i.spec();
            !spec.hidden
                && match hint {
                    Hint::Name(n) => spec.name == n,
                    Hint::Pattern(p) => same_pattern(spec.key.as_doc(), p),
                }
        });
        let index = named.next().ok_or_else(|| bad_hint(&namespace))?;
        if let Some(other) = named.next() {
            return Err(ambiguous_hint(&namespace, [index, other]));
        }
        let info = IndexInfo::of(index, collection);
        if let Some((path, near)) = query.filter.near() {
            let candidate = near_candidate(&namespace, query, &[info], path, near)?;
            return Ok(vec![candidate]);
        }
        if bounded_by_hand {
            return Ok(vec![min_max(query, &info, &leaves)?]);
        }
        // Asked for by name, a sparse index is used although it leaves documents out.
        let mut out: Vec<Candidate> = binds(&info, &leaves, true)
            .into_iter()
            .map(|bound| finish(query, &leaves, bound, None))
            .collect();
        if info.index.kind().is_some_and(|k| k.wildcard().is_some()) {
            out.extend(or_candidates(query, &leaves, &[info]));
        }
        if out.is_empty() {
            return Err(Error::new(
                Code::NoQueryExecutionPlans,
                format!("error processing query: ns={namespace} No query solutions"),
            ));
        }
        return Ok(out);
    }
    if bounded_by_hand {
        return Err(min_max_error());
    }
    let infos: Vec<Arc<IndexInfo>> = indexes
        .iter()
        .filter(|i| !i.spec().hidden)
        .map(|i| IndexInfo::of(i, collection))
        .collect();
    if let Some((path, near)) = query.filter.near() {
        let candidate = near_candidate(&namespace, query, &infos, path, near)?;
        return Ok(vec![candidate]);
    }
    let mut out: Vec<Candidate> = Vec::new();
    for info in &infos {
        for bound in binds(info, &leaves, false) {
            let narrows = bound.narrows();
            let c = finish(query, &leaves, bound, None);
            if narrows || (query.sort.is_some() && !c.needs_sort) {
                out.push(c);
            }
        }
    }
    if let Some(one) = by_field(query, collection, &out) {
        return Ok(vec![one]);
    }
    out.extend(or_candidates(query, &leaves, &infos));
    if out.is_empty() {
        out.push(collscan(query, false));
    }
    Ok(out)
}

/// Scans of the indexes that the filter puts no bounds on.
pub fn unbounded(collection: &Collection, query: &Query<'_>) -> Vec<Candidate> {
    let leaves = Leaves::of(query.filter);
    collection
        .indexes()
        .iter()
        .filter(|i| !i.spec().hidden && query.allowed.as_ref().is_none_or(|a| a.allows(&i.spec())))
        .flat_map(|i| binds(&IndexInfo::of(i, collection), &leaves, false))
        .filter(|b| b.bounded == 0)
        .map(|b| finish(query, &leaves, b, None))
        .collect()
}

/// Key patterns are equal when names and numeric directions are.
fn same_pattern(a: Doc<'_>, b: Doc<'_>) -> bool {
    let (mut x, mut y) = (a.iter(), b.iter());
    loop {
        match (x.next(), y.next()) {
            (None, None) => return true,
            (Some(e), Some(f)) => {
                if e.name_bytes() != f.name_bytes()
                    || cmp_values(e.value(), f.value()) != Ordering::Equal
                {
                    return false;
                }
            }
            _ => return false,
        }
    }
}

pub(super) fn finish(
    query: &Query<'_>,
    leaves: &Leaves<'_>,
    bound: BoundIndex,
    range: Option<KeyRange>,
) -> Candidate {
    let given = query.sort.map(|s| gives_sort(&bound, s));
    let backward = given.flatten().unwrap_or(false);
    let needs_sort = matches!(given, Some(None));
    let (key_filter, filter) = residual(leaves, &bound);
    let signature = format!(
        "IXSCAN {}{}",
        bound.info.name(),
        if backward { " backward" } else { "" }
    );
    let rank = bound.rank();
    if needs_sort
        && range.is_none()
        && let Some(sort) = query.sort
        && let Some(scans) = explode(&bound, sort, key_filter.as_ref())
    {
        let (covered, needed_exactly) = match &filter {
            None => cover(&bound, query, false),
            Some(_) => (None, false),
        };
        return Candidate {
            access: Access::SortMerge(scans),
            filter,
            needs_sort: false,
            covered,
            needed_exactly,
            signature: format!("SORT_MERGE {}", bound.info.name()),
            rank,
            express: None,
        };
    }
    let (covered, needed_exactly) = match &filter {
        None => cover(&bound, query, needs_sort),
        Some(_) => (None, false),
    };
    Candidate {
        access: Access::Index(Arc::new(IndexAccess {
            bound,
            backward,
            range,
            key_filter,
        })),
        filter,
        needs_sort,
        covered,
        needed_exactly,
        signature,
        rank,
        express: None,
    }
}

impl Candidate {
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
            let key = muniment_value::Value::Document(info.pattern().as_doc()).to_display();
            format!("{name} {key}")
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
