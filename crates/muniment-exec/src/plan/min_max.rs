//! `min` and `max`: bounds on a hinted index that the client gives.

use super::access::Candidate;
use super::index_plan::{IndexInfo, bind};
use super::leaf::Leaves;
use super::query::Query;
use super::scan::finish;
use muniment_storage::{Bound, KeyRange};
use muniment_value::{Doc, Error, Result};
use std::sync::Arc;

/// Error 51173, for min or max without a hint.
pub(crate) fn min_max_error() -> Error {
    Error::location(
        51173,
        "When using min()/max() a hint of which index to use must be provided",
    )
}

/// The scan between `min` and `max` of the hinted index.
///
/// # Errors
/// 51174 or 51176 if the bounds do not fit the index; 51175 if min is not below max.
pub(crate) fn min_max(
    query: &Query<'_>,
    info: &Arc<IndexInfo>,
    leaves: &Leaves<'_>,
) -> Result<Candidate> {
    if info.index.kind().is_some_and(|k| k.wildcard().is_some()) {
        return Err(Error::location(
            51174,
            "The index chosen is not compatible with min() and max(): it is a wildcard index",
        ));
    }
    let encode = |bounds: Doc<'_>, what: &str| -> Result<Option<Vec<u8>>> {
        if bounds.is_empty() {
            return Ok(None);
        }
        let mut key = Vec::new();
        let mut elems = bounds.iter();
        for (path, descending) in info.fields() {
            match elems.next() {
                Some(e) if e.name() == path.as_str() => {
                    let collation = info.index.collation();
                    collation.encode(e.value(), *descending, &mut key);
                }
                _ => {
                    return Err(Error::location(
                        51174,
                        format!(
                            "The index chosen is not compatible with {what}: {}",
                            muniment_value::Value::Document(bounds).to_display()
                        ),
                    ));
                }
            }
        }
        if elems.next().is_some() {
            return Err(Error::location(
                51176,
                format!(
                    "{what} has more fields than the hinted index: {}",
                    muniment_value::Value::Document(bounds).to_display()
                ),
            ));
        }
        Ok(Some(key))
    };
    let min = encode(query.min, "min()")?;
    let max = encode(query.max, "max()")?;
    if let (Some(min), Some(max)) = (&min, &max)
        && min >= max
    {
        return Err(Error::location(
            51175,
            "The value provided for min() does not come before the value provided for max() \
             in the hinted index",
        ));
    }
    let range = KeyRange {
        low: min.map_or(Bound::Unbounded, Bound::Included),
        high: max.map_or(Bound::Unbounded, Bound::Excluded),
    };
    let none = Leaves::default();
    let mut bound = bind(info, &none, true).ok_or_else(min_max_error)?;
    bound.residual = (0..leaves.children.len()).collect();
    Ok(finish(query, leaves, bound, Some(range)))
}
