//! Plans for `$near`: an index that gives documents by their distance.

use super::candidate::{Access, Candidate, Query};
use super::index_plan::{BoundIndex, IndexInfo, bind};
use super::interval::Interval;
use super::key_filter::residual;
use super::leaf::Leaves;
use crate::run::scan::KeyFilter;
use muniment_query::Filter;
use muniment_query::geo::NearQuery;
use muniment_storage::kinds::NearIndex;
use muniment_value::path::Path;
use muniment_value::{Code, Error, Result};
use std::sync::Arc;

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
    pub fn ring(&self, inner: f64, outer: f64) -> BoundIndex {
        let mut bound = self.bound.clone();
        let keys = self.index().map(|i| i.ring(&self.near, inner, outer));
        if let Some(f) = bound.fields.get_mut(self.field) {
            *f = keys
                .into_iter()
                .flatten()
                .map(|(low, high)| Interval::new(low, true, high, true))
                .collect();
        }
        bound
    }

    /// The name of the stage in `explain`.
    pub fn stage(&self) -> &'static str {
        self.index().map_or("GEO_NEAR", |i| i.stage())
    }
}

/// The plan of a query with a `$near`, over one of `infos`.
///
/// # Errors
/// 291 NoQueryExecutionPlans: none of the indexes can give documents by distance.
pub fn near_candidate(
    namespace: &str,
    query: &Query<'_>,
    infos: &[Arc<IndexInfo>],
    path: &Path,
    near: &Arc<NearQuery>,
) -> Result<Candidate> {
    let rest = query.filter.without_near();
    let leaves = Leaves::of(&rest);
    let best = infos
        .iter()
        .filter_map(|info| {
            let index = info.index.kind()?.near()?;
            let mut fields = info.fields().iter().enumerate();
            let (field, _) =
                fields.find(|(i, (p, _))| p.as_str() == path.as_str() && index.serves(*i, near))?;
            let mut bound = bind(info, &leaves, true)?;
            *bound.fields.get_mut(field)? = vec![Interval::all()];
            Some((field, bound))
        })
        .min_by_key(|(_, b)| b.residual.len());
    let Some((field, bound)) = best else {
        return Err(Error::new(
            Code::NoQueryExecutionPlans,
            format!(
                "error processing query: ns={namespace} planner returned error: unable to find \
                 index for $geoNear query"
            ),
        ));
    };
    if let Some(index) = bound.info.index.kind().and_then(|k| k.near()) {
        index.check(near)?;
    }
    let (key_filter, filter) = residual(&leaves, &bound);
    let signature = format!("NEAR {}", bound.info.name());
    Ok(Candidate {
        access: Access::Near(Arc::new(NearAccess {
            bound,
            field,
            path: path.clone(),
            near: near.clone(),
            key_filter,
            filter,
        })),
        filter: None,
        needs_sort: query.sort.is_some(),
        covered: None,
        needed_exactly: false,
        signature,
        rank: 0,
        express: None,
    })
}
