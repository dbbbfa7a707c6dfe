//! The sorted list of stages, and the names of those that MongoDB has and Muniment has not yet.

use super::{
    Stage, add_fields, count, group, limit, match_, project, replace_root, skip, sort,
    sort_by_count, unset, unwind,
};
use crate::context::QueryContext;
use muniment_value::{Code, Elem, Error, Result};

/// One stage: its name, a line for the generated page, and its parser.
#[derive(Clone, Copy)]
pub struct Spec {
    /// The name with its dollar.
    pub name: &'static str,
    /// One line that says what it does.
    pub doc: &'static str,
    /// Whether a pipeline update may have it.
    pub in_updates: bool,
    /// Parses the stage's element and appends what it consists of.
    pub(crate) parse: fn(Elem<'_>, &QueryContext, &mut Vec<Stage>) -> Result<()>,
}

/// Every stage, sorted by name.
pub fn registry() -> &'static [Spec] {
    &[
        add_fields::SPEC,
        count::SPEC,
        group::SPEC,
        limit::SPEC,
        match_::SPEC,
        project::SPEC,
        replace_root::SPEC,
        replace_root::WITH,
        add_fields::SET,
        skip::SPEC,
        sort::SPEC,
        sort_by_count::SPEC,
        unset::SPEC,
        unwind::SPEC,
    ]
}

/// MongoDB's other stages, sorted.
const NOT_YET: &[&str] = &[
    "$bucket",
    "$bucketAuto",
    "$changeStream",
    "$changeStreamSplitLargeEvent",
    "$collStats",
    "$currentOp",
    "$densify",
    "$documents",
    "$facet",
    "$fill",
    "$geoNear",
    "$graphLookup",
    "$indexStats",
    "$listLocalSessions",
    "$listSampledQueries",
    "$listSearchIndexes",
    "$listSessions",
    "$lookup",
    "$merge",
    "$out",
    "$planCacheStats",
    "$redact",
    "$sample",
    "$search",
    "$searchMeta",
    "$setWindowFields",
    "$shardedDataDistribution",
    "$unionWith",
    "$vectorSearch",
];

/// The stage with this name.
///
/// # Errors
/// 115 CommandNotSupported for a stage that is not there yet; 40324 for one that never was.
pub(crate) fn find(name: &str) -> Result<&'static Spec> {
    let all = registry();
    if let Some(spec) = all
        .binary_search_by(|s| s.name.cmp(name))
        .ok()
        .and_then(|i| all.get(i))
    {
        return Ok(spec);
    }
    if NOT_YET.binary_search(&name).is_ok() {
        return Err(Error::new(
            Code::CommandNotSupported,
            format!("The aggregation stage {name} is not supported yet"),
        ));
    }
    Err(Error::location(
        40324,
        format!("Unrecognized pipeline stage name: '{name}'"),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_registry_is_sorted_and_documented() {
        assert!(registry().is_sorted_by(|a, b| a.name < b.name));
        assert!(registry().iter().all(|s| !s.doc.is_empty()));
        assert!(NOT_YET.is_sorted_by(|a, b| a < b));
        assert!(registry().iter().all(|s| !NOT_YET.contains(&s.name)));
    }

    #[test]
    fn unknown_stages_are_named() {
        let e = find("$foo").err().unwrap();
        assert_eq!(e.code().0, 40324);
        assert_eq!(e.message(), "Unrecognized pipeline stage name: '$foo'");
        let e = find("$lookup").err().unwrap();
        assert_eq!(e.code(), Code::CommandNotSupported);
        assert!(e.message().contains("$lookup"));
    }
}
