//! Plans for `$near`, with an index that gives documents by their distance.

use super::access::{Access, Candidate, NearAccess};
use super::index_plan::{IndexInfo, bind};
use super::interval::Interval;
use super::key_filter::residual;
use super::leaf::Leaves;
use super::query::Query;
use muniment_query::geo::NearQuery;
use muniment_value::path::Path;
use muniment_value::{Code, Result};
use std::sync::Arc;

/// The plan for a query with a `$near`, over one of `infos`.
///
/// # Errors
/// 291 NoQueryExecutionPlans if none of the indexes can give documents by distance.
pub(crate) fn near_candidate(
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
        let reason = "unable to find index for $geoNear query";
        return Err(query.refused(namespace, Code::NoQueryExecutionPlans, reason));
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
