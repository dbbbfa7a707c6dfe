//! One index for one filter: the bounds of every field, what remains to be matched, and whether a
//! sparse or partial index may be used at all.
//!
//! Multikey rule (manual, "Multikey Index Bounds"): two predicates may bound the same scan only if
//! they speak of the same array elements. They do if their paths share no component that holds an
//! array, or if one `$elemMatch` ties them together below it.

use super::bounds::{FieldBounds, of_pred, rank};
use super::collated::{Texts, compares_text};
use super::interval::{Interval, intersect};
use super::leaf::{Leaf, Leaves};
use super::wild_keys::{self, Documents};
use muniment_query::Filter;
use muniment_query::filter::{Node, Pred};
use muniment_storage::kinds::is_wildcard;
use muniment_storage::{Collection, Index};
use muniment_value::DocBuf;
use muniment_value::path::{Path, array_index};
use std::sync::Arc;

/// An index as the planner sees it.
#[derive(Clone)]
pub(crate) struct IndexInfo {
    /// The index.
    pub index: Arc<Index>,
    /// The version of the index's state that `multikey` and `is_multikey` describe: see
    /// `Index::multikey_version`.
    pub version: u64,
    /// For each field, a bit for every path component at which some document has an array.
    pub multikey: Vec<u64>,
    /// True if a document may have several keys.
    pub is_multikey: bool,
    /// True for a sparse index, which leaves out documents without its fields.
    pub sparse: bool,
    /// True for a unique index, including `_id_`.
    pub unique: bool,
    /// True for `_id_` of a collection created with `clusteredIndex`.
    pub clustered: bool,
    /// The fields of the keys. For a wildcard index these are the fields for one path.
    pub fields: Arc<[(Path, bool)]>,
    /// Set for one path of a wildcard index.
    pub wild: Option<Wild>,
}

/// The peculiarities of the keys of one path of a wildcard index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wild {
    /// The place of the field that holds the path. The next field holds the value.
    pub at: usize,
    /// True if the scan also reads keys of other paths, or of documents of which nothing is
    /// indexed. A key then does not tell the value at the path, and a document may have many keys.
    pub opaque: bool,
}

impl IndexInfo {
    /// Reads from the index what planning needs.
    pub(crate) fn of(index: &Arc<Index>, collection: &Collection) -> Arc<IndexInfo> {
        let spec = index.spec();
        // The version is read before the state. If the state changes in between, the version is too
        // old, and the plan is killed before it runs; a version read afterwards could be too new
        // and hide the change.
        let version = index.multikey_version();
        let mut multikey = index.multikey_paths();
        multikey.resize(index.fields().len(), 0);
        let is_multikey = index.is_multikey() || multikey.iter().any(|&m| m != 0);
        Arc::new(IndexInfo {
            version,
            is_multikey,
            multikey,
            sparse: spec.sparse,
            unique: spec.unique || index.is_id(),
            clustered: index.is_id() && collection.is_keyed_by_id(),
            fields: index.fields().clone(),
            wild: None,
            index: index.clone(),
        })
    }

    /// A name that is unique within a plan: the index's name, for a wildcard index with the path.
    pub(crate) fn name(&self) -> String {
        let name = self.index.spec().name.clone();
        match self.wild.and_then(|w| self.fields.get(w.at + 1)) {
            Some((path, _)) => format!("{name} {}", path.as_str()),
            None => name,
        }
    }

    /// The key pattern as `explain` shows it.
    pub(crate) fn pattern(&self) -> DocBuf {
        let spec = self.index.spec();
        let Some(wild) = self.wild else {
            return spec.key.clone();
        };
        let mut pattern = DocBuf::new();
        let mut own = self.fields.iter().skip(wild.at).take(2);
        for e in spec.key.as_doc() {
            if !is_wildcard(e.name()) {
                pattern.append_elem(e);
                continue;
            }
            if let Some((path, _)) = own.next() {
                pattern.append(path.as_str(), 1);
            }
            match own.next() {
                Some((path, _)) => pattern.append(path.as_str(), e.value()),
                // Only the fields before the wildcard are scanned.
                None => break,
            };
        }
        pattern
    }

    /// The paths of the key's fields, each with true for descending.
    pub(crate) fn fields(&self) -> &[(Path, bool)] {
        &self.fields
    }

    /// True if a scan may give a document more than once.
    pub(crate) fn repeats(&self) -> bool {
        self.is_multikey || self.wild.is_some_and(|w| w.opaque)
    }

    /// True if a key holds the value at the path of field `i`, or null if there is none. A number
    /// in the path may have selected an array element, which does not make an index multikey; and a
    /// collation key is not the string itself. Both give false.
    pub(crate) fn holds_value(&self, i: usize) -> bool {
        let path = self.fields.get(i).map(|(p, _)| p.parts());
        let numeric = path.is_none_or(|p| p.iter().any(|p| array_index(p).is_some()));
        !numeric
            && self.index.collation().is_simple()
            && !self.field_multikey(i)
            && !self.index.transforms(i)
            && !self.wild.is_some_and(|w| w.opaque && i > w.at)
    }

    /// True if some document has an array along the path of field `i`.
    pub(crate) fn field_multikey(&self, i: usize) -> bool {
        self.multikey.get(i).is_some_and(|&m| m != 0)
    }
}

/// The bounds that a filter puts on one index.
#[derive(Clone)]
pub(crate) struct BoundIndex {
    /// The index.
    pub info: Arc<IndexInfo>,
    /// The ascending intervals of each field of the index.
    pub fields: Vec<Vec<Interval>>,
    /// How many leading fields have bounds.
    pub bounded: usize,
    /// How many leading fields are bounded to points.
    pub points: usize,
    /// The children of the filter's `$and` that must be matched again.
    pub residual: Vec<usize>,
}

impl BoundIndex {
    /// True if no key can match.
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.iter().any(Vec::is_empty)
    }

    /// Sets `points` from the intervals.
    pub(crate) fn count_points(&mut self) {
        let fields = self.fields.iter();
        let points = fields.take_while(|f| !f.is_empty() && f.iter().all(Interval::is_point));
        self.points = points.count();
    }

    /// True when field `i` is bounded to one value.
    pub(crate) fn single_point(&self, i: usize) -> bool {
        matches!(self.fields.get(i).map(Vec::as_slice), Some([one]) if one.is_point())
    }

    /// The rank by rules alone, before any trial; lower is better.
    pub(crate) fn rank(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let all_points = self.points == self.fields.len();
        if self.info.unique && all_points {
            return 1;
        }
        // The bounds on the path of a wildcard index do not come from the filter's values.
        let first = usize::from(self.info.wild.is_some_and(|w| w.at == 0));
        self.fields.get(first).map_or(usize::MAX, |f| rank(f) + 2)
    }

    /// True if the filter bounds the index's first field. Such a scan is preferred to a collection
    /// scan even if it reads all keys, as in MongoDB.
    pub(crate) fn narrows(&self) -> bool {
        self.bounded > 0
    }

    /// True if the scan reads every key.
    pub(crate) fn is_whole(&self) -> bool {
        self.rank() >= EVERYTHING
    }
}

/// The least rank of a scan over all values.
const EVERYTHING: usize = 10_000;

/// A mask of the first `n` path components.
fn first_bits(n: usize) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

fn common_parts(a: &Path, b: &Path) -> usize {
    a.parts()
        .iter()
        .zip(b.parts())
        .take_while(|(x, y)| x == y)
        .count()
}

/// True if the two leaves speak of the same array elements. `shared` is the number of their common
/// components, and `mask` has those that hold arrays.
fn tied(a: &Leaf<'_>, b: &Leaf<'_>, shared: usize, mask: u64) -> bool {
    let arrays = mask & first_bits(shared);
    if arrays == 0 {
        return true;
    }
    let same = a
        .elem
        .iter()
        .zip(&b.elem)
        .take_while(|(x, y)| x == y)
        .last();
    same.is_some_and(|(ctx, _)| arrays & !first_bits(ctx.depth) == 0)
}

struct Chosen<'l, 'f> {
    field: usize,
    leaf: &'l Leaf<'f>,
}

/// The bounds of `pred` on field `i`, whose path it has.
fn field_bounds(
    info: &IndexInfo,
    i: usize,
    pred: &Pred,
    multikey: bool,
    texts: Texts<'_>,
) -> Option<FieldBounds> {
    match info.index.kind() {
        Some(_) if info.wild.is_some_and(|w| w.at + 1 == i) && !wild_keys::answers(pred) => None,
        Some(kind) if kind.transforms(i) => {
            let foreign = matches!(texts, Texts::Bytes | Texts::Foreign);
            if foreign && compares_text(pred) {
                return None;
            }
            let intervals = kind.bounds(i, pred)?;
            Some(FieldBounds {
                intervals: intervals
                    .into_iter()
                    .map(|(low, high)| Interval::new(low, true, high, true))
                    .collect(),
                exact: false,
                matches_missing: false,
            })
        }
        _ => of_pred(pred, multikey, texts),
    }
}

/// The bounds of `leaves` on `info`, or `None` if the index may not be used because it is sparse or
/// partial. With `hinted`, a sparse or partial index is used even though it leaves out documents.
/// An index without any bound is returned with `bounded == 0`, because a sort or a hint may want
/// it.
pub(crate) fn bind(info: &Arc<IndexInfo>, leaves: &Leaves<'_>, hinted: bool) -> Option<BoundIndex> {
    // A text index answers only a $text.
    if info.index.kind().is_some_and(|k| k.text().is_some()) {
        return None;
    }
    if let Some(partial) = info.index.partial_filter()
        && !hinted
        && !implies(leaves, partial)
    {
        return None;
    }
    let texts = Texts::of(info.index.collation(), &leaves.collation);
    let mut fields = Vec::with_capacity(info.fields().len());
    let mut chosen: Vec<Chosen<'_, '_>> = Vec::new();
    // For each child, how many of its predicates the bounds answer exactly.
    let mut answered = vec![0_usize; leaves.children.len()];
    let mut proves_present = false;
    let mut bounded = 0;
    // True if a predicate bounds a field whose keys are computed by an index kind.
    let mut kind_bound = false;
    for (i, (path, _)) in info.fields().iter().enumerate() {
        let mask = info.multikey.get(i).copied().unwrap_or(0);
        let mut options: Vec<(FieldBounds, &Leaf<'_>)> = leaves
            .leaves
            .iter()
            .filter(|l| l.path == path.as_str())
            .filter_map(|l| field_bounds(info, i, l.pred, mask != 0, texts).map(|b| (b, l)))
            // A number may mean an array element or a field; the index has keys for one only.
            .filter(|(b, l)| !(l.has_numeric_part() && (mask != 0 || b.matches_missing)))
            .collect();
        let present = options.iter().any(|(b, _)| !b.matches_missing);
        if info.wild.is_some_and(|w| w.at + 1 == i) && !present {
            return None;
        }
        proves_present |= present;
        options.sort_by_cached_key(|(b, _)| b.rank());
        let mut here: Option<Vec<Interval>> = None;
        let mut exact = Vec::new();
        for (b, leaf) in options {
            let fits = chosen.iter().all(|c| {
                let (other_path, other_mask) = match info.fields().get(c.field) {
                    Some((p, _)) => (p, info.multikey.get(c.field).copied().unwrap_or(0)),
                    None => return false,
                };
                let shared = if c.field == i {
                    path.parts().len()
                } else {
                    common_parts(path, other_path)
                };
                tied(c.leaf, leaf, shared, mask | other_mask)
            });
            if !fits {
                continue;
            }
            // A sparse index on this field alone holds exactly the documents that have the field.
            let there = matches!(leaf.pred, Pred::Exists(true))
                && info.sparse
                && info.index.kind().is_none()
                && info.fields().len() == 1
                && path.parts().len() == 1;
            let exactly = b.exact || there;
            here = Some(match here {
                None => b.intervals,
                Some(h) => intersect(&h, &b.intervals),
            });
            chosen.push(Chosen { field: i, leaf });
            if exactly && leaf.elem.is_empty() && !leaf.has_numeric_part() {
                exact.push(leaf.child);
            }
        }
        let wild = info.wild.filter(|w| w.at + 1 == i);
        let met = |h: &Vec<Interval>| wild_keys::documents(h) != Documents::None;
        if wild.is_some() && here.as_ref().is_some_and(met) {
            exact.clear();
        }
        for child in exact {
            if let Some(n) = answered.get_mut(child) {
                *n += 1;
            }
        }
        if info.wild.is_some_and(|w| w.at == i) {
            here = Some(wild_keys::all_paths());
        }
        if here.is_some() && bounded == i {
            bounded = i + 1;
        }
        kind_bound |= here.is_some() && info.index.transforms(i);
        fields.push(here.unwrap_or_else(|| vec![Interval::all()]));
    }
    if info.sparse && info.wild.is_none() && !proves_present && !hinted {
        return None;
    }
    if info.index.kind().is_some_and(|k| k.leaves_out())
        && info.wild.is_none()
        && !kind_bound
        && !hinted
    {
        return None;
    }
    let residual = (0..leaves.children.len())
        .filter(|&c| answered.get(c) != leaves.parts.get(c))
        .collect();
    let mut bound = BoundIndex {
        info: info.clone(),
        fields,
        bounded,
        points: 0,
        residual,
    };
    bound.count_points();
    Some(bound)
}

/// True if every document that the query can return satisfies the partial index's filter.
pub(super) fn implies(query: &Leaves<'_>, partial: &Filter) -> bool {
    let wanted = Leaves::of(partial);
    // Under two collations, only predicates without strings mean the same.
    let texts = Texts::of(&wanted.collation, &query.collation);
    wanted
        .children
        .iter()
        .all(|child| node_implied(query, child, texts))
}

fn node_implied(query: &Leaves<'_>, want: &Node, texts: Texts<'_>) -> bool {
    match want {
        Node::True => true,
        Node::And(list) => list.iter().all(|n| node_implied(query, n, texts)),
        Node::Or(list) => list.iter().any(|n| node_implied(query, n, texts)),
        Node::Field { path, pred } => pred_implied(query, path.as_str(), pred, texts),
        _ => false,
    }
}

fn pred_implied(query: &Leaves<'_>, path: &str, want: &Pred, texts: Texts<'_>) -> bool {
    if let Pred::And(list) = want {
        return list.iter().all(|p| pred_implied(query, path, p, texts));
    }
    if matches!(texts, Texts::Bytes | Texts::Foreign) && compares_text(want) {
        return false;
    }
    let text = format!("{want:?}");
    query.leaves.iter().filter(|l| l.path == path).any(|l| {
        let alike = std::mem::discriminant(l.pred) == std::mem::discriminant(want);
        if l.elem.is_empty() && alike && format!("{:?}", l.pred) == text {
            return true;
        }
        // This asks for bounds as on a multikey path, since only what a single predicate implies
        // may be relied on.
        let Some(have) = of_pred(l.pred, true, texts) else {
            return false;
        };
        if matches!(want, Pred::Exists(true)) {
            return !have.matches_missing;
        }
        if matches!(want, Pred::Not(_)) || have.intervals.is_empty() {
            return false;
        }
        // An equality with an array is bounded by its first element, which tells nothing of the
        // others.
        if matches!(l.pred, Pred::Eq(v) if v.as_value().as_array().is_some())
            || matches!(l.pred, Pred::Not(_))
        {
            return false;
        }
        match of_pred(want, true, texts) {
            Some(w) if w.exact => intersect(&have.intervals, &w.intervals) == have.intervals,
            _ => false,
        }
    })
}
