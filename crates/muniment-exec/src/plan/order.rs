//! Sorts that an index serves.

use super::access::{IndexAccess, MergeInput};
use super::collated::reaches_text;
use super::index_plan::BoundIndex;
use super::key_filter::KeyFilter;
use muniment_query::SortSpec;
use muniment_value::path::array_index;
use std::sync::Arc;

/// Scans of a SORT_MERGE at most, as MongoDB's internalQueryMaxScansToExplode.
const MAX_SCANS: usize = 200;

/// One scan per combination of the leading fields' points, when each of them comes in the sort's
/// order: `{a: {$in: […]}}` sorted by `b` on an index of a and b.
pub fn explode(
    bound: &BoundIndex,
    sort: &SortSpec,
    key_filter: Option<&Arc<KeyFilter>>,
) -> Option<Vec<MergeInput>> {
    let info = &bound.info;
    if info.clustered || (0..bound.points).any(|i| info.field_multikey(i)) {
        return None;
    }
    let mut bounds = vec![bound.clone()];
    for at in 0..bound.points {
        let points = bound.fields.get(at)?;
        if bounds.len() * points.len() > MAX_SCANS {
            return None;
        }
        bounds = bounds
            .iter()
            .flat_map(|b| {
                points.iter().map(move |p| {
                    let mut one = b.clone();
                    if let Some(f) = one.fields.get_mut(at) {
                        *f = vec![p.clone()];
                    }
                    one
                })
            })
            .collect();
    }
    // A sort on the exploded fields themselves is not the merge's order.
    let on_points = sort.keys().iter().any(|k| {
        let fields = info.fields().iter().take(bound.points).enumerate();
        fields
            .into_iter()
            .any(|(i, (p, _))| p.as_str() == k.path.as_str() && !bound.single_point(i))
    });
    if on_points || bounds.len() < 2 {
        return None;
    }
    let backward = gives_sort(bounds.first()?, sort)?;
    let inputs = bounds.into_iter().map(|bound| MergeInput {
        leading: bound.points,
        disjoint: true,
        access: Arc::new(IndexAccess {
            bound,
            backward,
            range: None,
            key_filter: key_filter.cloned(),
        }),
        filter: None,
    });
    Some(inputs.collect())
}

/// How the keys of scans of different indexes compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOrder {
    /// True when the scan goes from high to low.
    pub backward: bool,
    /// The directions of the sort's fields in the index.
    pub descending: Vec<bool>,
}

/// Where the sort's fields stand in an index whose scan comes in the sort's order.
pub struct SortBegins {
    /// How many fields of one value each stand before them.
    pub leading: usize,
    /// The order of what begins there.
    pub order: KeyOrder,
}

/// The place of the sort in the keys of a scan: only where the index has exactly the sort's fields
/// side by side.
pub fn sort_begins(bound: &BoundIndex, sort: &SortSpec) -> Option<SortBegins> {
    if bound.info.clustered {
        return None;
    }
    let backward = gives_sort(bound, sort)?;
    let fields = bound.info.fields();
    let first = sort.keys().first()?.path.as_str();
    let leading = fields.iter().position(|(p, _)| p.as_str() == first)?;
    let there = fields.get(leading..leading + sort.keys().len())?;
    let same = there
        .iter()
        .zip(sort.keys())
        .all(|((p, _), k)| p.as_str() == k.path.as_str());
    let alone = (0..leading).all(|i| bound.single_point(i) && !bound.info.field_multikey(i));
    (same && alone).then(|| SortBegins {
        leading,
        order: KeyOrder {
            backward,
            descending: there.iter().map(|(_, d)| *d).collect(),
        },
    })
}

/// Whether an index scan comes in the sort's order: `Some(true)` when scanned backward.
pub fn gives_sort(bound: &BoundIndex, sort: &SortSpec) -> Option<bool> {
    let fields = bound.info.fields();
    // By another collation the texts, and what has texts inside, come in another order.
    let foreign = bound.info.index.collation() != sort.collation();
    let mut backward = None;
    let mut at = 0;
    let mut multikey_fields = 0;
    for key in sort.keys() {
        let path = key.path.as_str();
        if key.path.parts().iter().any(|p| array_index(p).is_some()) {
            return None;
        }
        let mut transformed = fields.iter().enumerate();
        if transformed.any(|(i, (p, _))| p.as_str() == path && bound.info.index.transforms(i)) {
            return None;
        }
        // A field with one value is no matter for the order, unless arrays give it others.
        let constant = fields.iter().enumerate().any(|(i, (p, _))| {
            p.as_str() == path && bound.single_point(i) && !bound.info.field_multikey(i)
        });
        if constant {
            continue;
        }
        let descending = loop {
            let (p, descending) = fields.get(at)?;
            if p.as_str() == path {
                break *descending;
            }
            if !bound.single_point(at) {
                return None;
            }
            at += 1;
        };
        if foreign
            && bound
                .fields
                .get(at)
                .is_none_or(|list| list.iter().any(reaches_text))
        {
            return None;
        }
        if bound.info.field_multikey(at) {
            // The least (greatest) element of the whole array decides, so all must be seen.
            multikey_fields += 1;
            let all = matches!(bound.fields.get(at).map(Vec::as_slice), Some([i]) if i.is_all());
            if !all || multikey_fields > 1 {
                return None;
            }
        }
        let this = key.descending != descending;
        if *backward.get_or_insert(this) != this {
            return None;
        }
        at += 1;
    }
    Some(backward.unwrap_or(false))
}
