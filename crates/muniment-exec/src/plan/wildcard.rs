//! Wildcard indexes: for each path of the filter, a wildcard index acts like an index on that path.
//!
//! Its keys are pairs of path and value, see `storage::kinds::wildcard`. A predicate on path p
//! bounds the keys of p alone, unless its values can include documents. A document has no key of
//! its own, only its leaves have. In that case all keys of p and of the paths below it are read,
//! and the predicate is matched again.
//!
//! A document without the path has no key, so the index cannot serve a filter that such a document
//! can match. The fields before the wildcard in a compound index are the exception.

use super::index_plan::{BoundIndex, IndexInfo, Wild, bind};
use super::interval::Interval;
use super::leaf::Leaves;
use super::wild_keys::Documents;
use crate::plan::wild_keys::documents;
use muniment_storage::kinds::Wildcard;
use muniment_value::Value;
use muniment_value::path::Path;
use std::sync::Arc;

/// The ways in which an index can serve a filter: one, or for a wildcard index one for every path
/// of the filter that it covers. `hinted` as for [`bind`].
pub(crate) fn binds(info: &Arc<IndexInfo>, leaves: &Leaves<'_>, hinted: bool) -> Vec<BoundIndex> {
    match info.index.kind().and_then(|k| k.wildcard()) {
        Some(paths) => of_paths(info, paths, leaves, hinted),
        None => bind(info, leaves, hinted).into_iter().collect(),
    }
}

/// The bounds on a wildcard index, one for each path of the filter that it covers.
fn of_paths(
    info: &IndexInfo,
    wildcard: &Wildcard,
    leaves: &Leaves<'_>,
    hinted: bool,
) -> Vec<BoundIndex> {
    let mut paths: Vec<&str> = leaves.leaves.iter().map(|l| l.path.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut out: Vec<BoundIndex> = paths
        .into_iter()
        // A path that ends in a dot may lead to an array, whose elements do not have that path in
        // the index.
        .filter(|p| !p.ends_with('.'))
        .map(Path::new)
        .filter(|p| wildcard.covers(p))
        .filter_map(|p| of_path(info, wildcard, &p, leaves, hinted))
        .collect();
    if out.is_empty() && wildcard.position() > 0 {
        out.extend(of_front(info, wildcard, leaves, hinted));
    }
    out
}

fn of_path(
    info: &IndexInfo,
    wildcard: &Wildcard,
    path: &Path,
    leaves: &Leaves<'_>,
    hinted: bool,
) -> Option<BoundIndex> {
    let at = wildcard.position();
    let fields = wildcard.fields(path);
    let mut multikey = vec![0; fields.len()];
    *multikey.get_mut(at + 1)? = info.index.multikey_path(path.as_str());
    let mut own = IndexInfo {
        is_multikey: multikey.iter().any(|&m| m != 0),
        multikey,
        sparse: true,
        fields: fields.into(),
        wild: Some(Wild { at, opaque: false }),
        ..info.clone()
    };
    let mut bound = bind(&Arc::new(own.clone()), leaves, hinted)?;
    if bound.bounded == 0 {
        return None;
    }
    let values = bound.fields.get_mut(at + 1)?;
    let mut paths = vec![Interval::point(Value::String(path.as_str()))];
    let documents = documents(values);
    own.wild = Some(Wild {
        at,
        opaque: documents != Documents::None,
    });
    if documents == Documents::Any {
        *values = vec![Interval::all()];
        // The paths that begin with this path and a dot. A slash is the character after the dot.
        let (low, high) = (format!("{}.", path.as_str()), format!("{}/", path.as_str()));
        paths.push(Interval::new(low.as_str(), true, high.as_str(), false));
    }
    bound.info = Arc::new(own);
    *bound.fields.get_mut(at)? = paths;
    bound.count_points();
    Some(bound)
}

/// Uses only the fields before the wildcard of a compound index, in which every document has a key.
fn of_front(
    info: &IndexInfo,
    wildcard: &Wildcard,
    leaves: &Leaves<'_>,
    hinted: bool,
) -> Option<BoundIndex> {
    let at = wildcard.position();
    let own = IndexInfo {
        is_multikey: false,
        multikey: vec![0; at + 1],
        sparse: false,
        fields: info.fields().iter().take(at + 1).cloned().collect(),
        wild: Some(Wild { at, opaque: true }),
        ..info.clone()
    };
    let bound = bind(&Arc::new(own), leaves, hinted)?;
    // The path's field is always bounded, so it is not what counts here.
    let bounds_front = bound
        .fields
        .first()
        .is_some_and(|f| !matches!(f.as_slice(), [i] if i.is_all()));
    bounds_front.then_some(bound)
}
