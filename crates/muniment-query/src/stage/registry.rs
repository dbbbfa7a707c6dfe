//! The sorted list of stages, and the names of stages that MongoDB has and Muniment does not have yet.

use super::rights::Rights;
use super::spread::Spread;
use super::{
    Stage, add_fields, bucket, bucket_auto, change_stream, coll_stats, count, current_op, densify,
    documents, facet, fill, fusion, geo_near, graph_lookup, group, index_stats, limit,
    list_catalog, list_cluster_catalog, list_sessions, lookup, match_, merge, out,
    plan_cache_stats, project, query_settings, redact, replace_root, sample, search,
    sharded_data_distribution, skip, sort, sort_by_count, to_router, union_with, unset, unwind,
    window,
};
use crate::context::QueryContext;
use muniment_value::{Code, Elem, Error, Result};

/// The places where a stage may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its position in its pipeline.
    pub position: Position,
    /// The code of the error if the stage makes the documents and does not stand first.
    pub not_first: i32,
    /// The input that the stage needs.
    pub input: Input,
    /// Whether it is allowed in a pipeline update.
    pub in_updates: bool,
    /// Whether it is allowed in a pipeline of `$facet`.
    pub in_facet: bool,
    /// Whether it is allowed in a pipeline of `$lookup`.
    pub in_lookup: bool,
    /// Whether it is allowed in a pipeline of `$unionWith`.
    pub in_union: bool,
}

/// A stage's position in its pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Any position.
    Any,
    /// The first one, because the stage makes the documents.
    First,
    /// The last one.
    Last,
}

/// The kinds of input that a stage can need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Documents of a collection or of other stages.
    Documents,
    /// A collection whose documents the stage does not read, as for `$collStats`.
    Collection,
    /// Any target of a command: a collection, a database, or all databases.
    Any,
    /// No input; the stage stands in `{aggregate: 1}`.
    Nothing,
    /// As [`Input::Nothing`], but with a different error for a collection.
    Database,
    /// No input; the stage stands in `{aggregate: 1}` on the database admin.
    AdminDatabase,
    /// As [`Input::Collection`] or [`Input::AdminDatabase`].
    CollectionOrAdmin,
}

impl Place {
    /// The same place with a different input.
    pub const fn needs(self, input: Input) -> Place {
        Place { input, ..self }
    }

    /// In every pipeline except that of an update.
    pub const ANYWHERE: Place = Place {
        position: Position::Any,
        not_first: 40602,
        input: Input::Documents,
        in_updates: false,
        in_facet: true,
        in_lookup: true,
        in_union: true,
    };
    /// In every pipeline.
    pub const UPDATE: Place = Place {
        in_updates: true,
        ..Place::ANYWHERE
    };
    /// In every pipeline except those of updates and of `$facet`.
    pub const NO_FACET: Place = Place {
        in_facet: false,
        ..Place::ANYWHERE
    };
    /// A source of documents, which is also allowed in `$lookup` and `$unionWith`.
    pub const SOURCE: Place = Place {
        position: Position::First,
        ..Place::NO_FACET
    };
    /// A source of documents that describe a collection or the server.
    pub const REPORT: Place = Place {
        input: Input::Collection,
        ..Place::SOURCE
    };
    /// A source that never ends, which is not allowed in a nested pipeline.
    pub const CHANGES: Place = Place {
        in_lookup: false,
        in_union: false,
        ..Place::REPORT
    };
    /// The last stage of a pipeline, which is not allowed in a nested one.
    pub const END: Place = Place {
        position: Position::Last,
        input: Input::Documents,
        ..Place::CHANGES
    };
}

/// The owner of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// A command or a view.
    Command,
    /// `$facet`.
    Facet,
    /// `$lookup`.
    Lookup,
    /// `$unionWith`.
    UnionWith,
}

impl Within {
    /// Fails if a stage with this place is not allowed in such a pipeline.
    ///
    /// # Errors
    /// 40600 in `$facet`, 51047 in `$lookup`, 31441 in `$unionWith`.
    pub(crate) fn check(self, name: &str, place: Place) -> Result<()> {
        match self {
            Within::Facet if !place.in_facet => Err(Error::location(
                40600,
                format!("{name} is not allowed to be used within a $facet stage"),
            )),
            Within::Lookup if !place.in_lookup => Err(Error::location(
                51047,
                format!("{name} is not allowed within a $lookup's sub-pipeline"),
            )),
            Within::UnionWith if !place.in_union => Err(Error::location(
                31441,
                format!("{name} is not allowed within a $unionWith's sub-pipeline"),
            )),
            _ => Ok(()),
        }
    }
}

/// One stage: its name, a line for the generated page, and its parser.
#[derive(Clone, Copy)]
pub struct Spec {
    /// The name with its dollar.
    pub name: &'static str,
    /// One line of documentation.
    pub doc: &'static str,
    /// The places where it may stand.
    pub place: Place,
    /// How it spreads over the shards of a cluster.
    pub spread: Spread,
    /// What its user has to be allowed.
    pub rights: Rights,
    /// Parses the stage's element and appends the stages that it becomes.
    pub(crate) parse: fn(Elem<'_>, &QueryContext, &mut Vec<Stage>) -> Result<()>,
}

/// Every stage, sorted by name.
pub fn registry() -> &'static [Spec] {
    &[
        add_fields::SPEC,
        bucket::SPEC,
        bucket_auto::SPEC,
        change_stream::SPEC,
        coll_stats::SPEC,
        count::SPEC,
        current_op::SPEC,
        densify::SPEC,
        documents::SPEC,
        facet::SPEC,
        fill::SPEC,
        geo_near::SPEC,
        graph_lookup::SPEC,
        group::SPEC,
        index_stats::SPEC,
        limit::SPEC,
        list_catalog::SPEC,
        list_cluster_catalog::SPEC,
        list_sessions::LOCAL,
        search::LIST_INDEXES,
        list_sessions::ALL,
        lookup::SPEC,
        match_::SPEC,
        merge::SPEC,
        out::SPEC,
        plan_cache_stats::SPEC,
        project::SPEC,
        query_settings::SPEC,
        query_settings::STATS,
        fusion::RANK,
        redact::SPEC,
        replace_root::SPEC,
        replace_root::WITH,
        sample::SPEC,
        search::SEARCH,
        search::SEARCH_BETA,
        search::SEARCH_META,
        add_fields::SET,
        window::SPEC,
        sharded_data_distribution::SPEC,
        skip::SPEC,
        sort::SPEC,
        sort_by_count::SPEC,
        union_with::SPEC,
        unset::SPEC,
        unwind::SPEC,
        search::VECTOR_SEARCH,
    ]
}

/// The stages that only members of a cluster send to one another, sorted by name. For a client they do not exist.
const BETWEEN_MEMBERS: &[Spec] = &[to_router::SPEC];

/// MongoDB's other stages with their places, sorted.
const NOT_YET: &[(&str, Place)] = &[
    ("$changeStreamSplitLargeEvent", Place::END),
    (
        "$listSampledQueries",
        Place::REPORT.needs(Input::AdminDatabase),
    ),
    ("$scoreFusion", Place::SOURCE),
];

/// The stage with this name, if Muniment has it.
fn known(name: &str) -> Option<&'static Spec> {
    let all = registry();
    let i = all.binary_search_by(|s| s.name.cmp(name)).ok()?;
    all.get(i)
}

/// What the stage with this name needs its user to be allowed, if Muniment has it.
pub fn rights(name: &str) -> Option<Rights> {
    known(name).map(|spec| spec.rights)
}

/// The place of the stage with this name, if MongoDB has it.
pub(crate) fn place(name: &str) -> Option<Place> {
    if let Some(spec) = known(name) {
        return Some(spec.place);
    }
    let i = NOT_YET.binary_search_by(|(n, _)| (*n).cmp(name)).ok()?;
    NOT_YET.get(i).map(|(_, place)| *place)
}

/// The stage with this name in a pipeline that a member of the cluster sends.
///
/// # Errors
/// As [`find`].
pub(crate) fn find_for_member(name: &str) -> Result<&'static Spec> {
    let between = BETWEEN_MEMBERS.iter().find(|s| s.name == name);
    between.map_or_else(|| find(name), Ok)
}

/// The stage with this name.
///
/// # Errors
/// 115 CommandNotSupported for a stage that Muniment does not have yet; 40324 for one that does not exist.
pub(crate) fn find(name: &str) -> Result<&'static Spec> {
    if let Some(spec) = known(name) {
        return Ok(spec);
    }
    if place(name).is_some() {
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
        assert!(BETWEEN_MEMBERS.is_sorted_by(|a, b| a.name < b.name));
        assert!(BETWEEN_MEMBERS.iter().all(|s| find(s.name).is_err()));
        assert!(NOT_YET.is_sorted_by(|a, b| a.0 < b.0));
        assert!(
            registry()
                .iter()
                .all(|s| NOT_YET.iter().all(|(name, _)| *name != s.name))
        );
    }

    #[test]
    fn unknown_stages_are_named() {
        let e = find("$foo").err().unwrap();
        assert_eq!(e.code().0, 40324);
        assert_eq!(e.message(), "Unrecognized pipeline stage name: '$foo'");
        let e = find("$listSampledQueries").err().unwrap();
        assert_eq!(e.code(), Code::CommandNotSupported);
        assert!(e.message().contains("$listSampledQueries"));
    }
}
