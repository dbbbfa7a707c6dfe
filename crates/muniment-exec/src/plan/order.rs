//! Sorts that an index scan can provide.

use super::access::{IndexAccess, MergeInput};
use super::collated::reaches_text;
use super::index_plan::BoundIndex;
use super::key_filter::KeyFilter;
use muniment_query::SortSpec;
use muniment_value::path::array_index;
use std::sync::Arc;

/// The most scans of a SORT_MERGE, as MongoDB's internalQueryMaxScansToExplode.
const MAX_SCANS: usize = 200;

/// One scan per combination of the leading fields' points, if each of them comes in the sort's
/// order. An example is `{a: {$in: […]}}` sorted by `b` on an index of a and b.
pub(crate) fn explode(
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
    // The merge cannot sort by the exploded fields themselves.
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

/// How the keys of scans compare, so that scans of different indexes can be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyOrder {
    /// True if the scan goes from high to low.
    pub backward: bool,
    /// The directions of the sort's fields in the index.
    pub descending: Vec<bool>,
}

/// The position of the sort's fields in an index whose scan comes in the sort's order.
pub(crate) struct SortBegins {
    /// How many fields come before them; each of these is bounded to one value.
    pub leading: usize,
    /// The order of the sort's fields in the key.
    pub order: KeyOrder,
}

/// The position of the sort's fields in the keys of a scan. `None` unless the index has exactly
/// these fields side by side.
pub(crate) fn sort_begins(bound: &BoundIndex, sort: &SortSpec) -> Option<SortBegins> {
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

/// Whether an index scan comes in the sort's order: `Some(true)` if it is scanned backward, `None`
/// if not.
pub(crate) fn gives_sort(bound: &BoundIndex, sort: &SortSpec) -> Option<bool> {
    let fields = bound.info.fields();
    // With another collation, strings and everything that contains strings come in another order.
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
        // A field with only one value does not affect the order, unless arrays give it more values.
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
            // The least (or greatest) element of the whole array decides, so the scan must read all
            // of them.
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
