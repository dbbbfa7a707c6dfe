//! Splits a pipeline into the part that the planner does and the rest.

use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::hint::Hint;
use crate::plan::query::LookUp;
use crate::plan::query::Query;
use crate::plan::query::Told;
use crate::plan::shape::shape;
use crate::plan::shape::{COMMAND, NEEDS};
use crate::plan::text::bind_text;
use crate::run::choose::Choice;
use crate::run::current::CurrentOp;
use crate::run::recipe::{Output, ProjectionKind, Recipe};
use crate::verbs::count::CountRequest;
use crate::verbs::count::count_filter;
use crate::verbs::find::request::projection_kind;
use crate::verbs::planning::{plan, query, suffice};
use muniment_query::filter::Node;
use muniment_query::stage::CountOnly;
use muniment_query::{Filter, MetaSet, Needs, Pipeline, Projection, SortSpec};
use muniment_storage::Collection;
use muniment_value::{Doc, DocBuf, Result};
use std::sync::Arc;

/// A pipeline after the split: the planner's part, and the rest.
pub(crate) struct Split {
    /// All leading `$match`es as one filter.
    pub filter: Filter,
    /// The leading `$sort` with its source.
    pub sort: Option<(SortSpec, DocBuf)>,
    /// How many documents are skipped.
    pub skip: u64,
    /// The limit.
    pub limit: Option<u64>,
    /// The leading `$project`, with its source.
    pub project: Option<(Arc<Projection>, DocBuf)>,
    /// The stages that remain.
    pub rest: Pipeline,
    /// Set if the remaining stages only count documents.
    pub counts: Option<CountOnly>,
    /// The metadata of documents that any part asks for.
    pub metadata: MetaSet,
}

/// A stage of these after the planner's part makes the query a different shape, since MongoDB's
/// planner runs these stages itself.
const IN_SHAPE: &[&str] = &[
    "$bucket",
    "$densify",
    "$group",
    "$lookup",
    "$replaceRoot",
    "$replaceWith",
    "$setWindowFields",
    "$sortByCount",
];

impl Split {
    pub(crate) fn of(mut p: Pipeline) -> Split {
        let filter = p.take_leading_match();
        let sort = p.take_leading_sort();
        // The shape contains the collation of the sort even if there is no filter, so the empty
        // filter carries it.
        let filter = filter.unwrap_or_else(|| match &sort {
            Some((s, _)) => Filter::from_root(Node::True, s.collation()),
            None => Filter::always_true(),
        });
        let (mut skip, mut limit) = (0_u64, None::<u64>);
        loop {
            if let Some(n) = p.take_leading_skip() {
                skip = skip.saturating_add(n);
                limit = limit.map(|l| l.saturating_sub(n));
            } else if let Some(n) = p.take_leading_limit() {
                limit = Some(limit.map_or(n, |l| l.min(n)));
            } else {
                break;
            }
        }
        let counts = p.count_only();
        Split {
            metadata: p.metadata(),
            filter,
            sort,
            skip,
            limit,
            project: p.take_leading_project(),
            rest: p,
            counts,
        }
    }

    /// The sort as the client wrote it; empty for none.
    pub(crate) fn sort_source(&self) -> Doc<'_> {
        self.sort.as_ref().map_or(Doc::EMPTY, |(_, d)| d.as_doc())
    }

    fn project_source(&self) -> Doc<'_> {
        self.project
            .as_ref()
            .map_or(Doc::EMPTY, |(_, d)| d.as_doc())
    }

    /// The short cuts that MongoDB's planner takes for these stages. With `needs`, it projects to
    /// those paths.
    fn look_up(&self, needs: Option<&[String]>) -> LookUp {
        let simple = match &self.project {
            Some((_, source)) => projection_kind(source.as_doc()) == ProjectionKind::Simple,
            None => needs.is_none_or(|n| !n.iter().any(|path| path.contains('.'))),
        };
        let by_id = self.skip == 0;
        let express = by_id && self.metadata.is_empty();
        LookUp {
            by_id,
            express: express && simple,
            by_field: express && needs.is_none(),
            one: self.limit == Some(1),
        }
    }

    /// The key of the plan in the plan cache.
    pub(crate) fn shape(&self) -> String {
        let mut shape = shape(&self.filter, self.sort_source(), self.project_source());
        let next = self.rest.sources().next().and_then(|d| d.first());
        if let Some(name) = next.map(|e| e.name())
            && IN_SHAPE.contains(&name)
        {
            shape.push(COMMAND);
            shape.push_str(name);
        }
        shape
    }
}

/// How the leading stages of a pipeline are planned.
pub(crate) struct SplitPlan<'r> {
    /// The state that the command's plans share; this plan takes its view from there.
    pub shared: Option<&'r Arc<CurrentOp>>,
    /// The hint of the command.
    pub hint: Option<Hint<'r>>,
    /// The command's `allowDiskUse`.
    pub allow_disk_use: Option<bool>,
    /// True if all candidate plans are kept for explain.
    pub explain: bool,
}

pub(crate) fn count_split(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    hint: Option<Hint<'_>>,
    split: &Split,
) -> Result<u64> {
    if split.limit == Some(0) {
        return Ok(0);
    }
    count_filter(
        engine,
        op,
        collection,
        &CountRequest {
            namespace: &collection.namespace(),
            filter: Doc::EMPTY,
            skip: split.skip,
            limit: split.limit.unwrap_or(0),
            hint,
            let_: Doc::EMPTY,
            collation: None,
        },
        &split.filter,
    )
}

/// Plans the leading stages.
pub(crate) fn plan_split(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    split: &Split,
    how: SplitPlan<'_>,
) -> Result<Choice> {
    let SplitPlan {
        shared,
        hint,
        allow_disk_use,
        explain,
    } = how;
    let filter = bind_text(collection, &split.filter)?;
    // Fields that no stage above uses need not be read.
    let needs = match &split.project {
        Some((p, _)) => {
            let mut needs = Needs::default();
            let paths = p.needs(&mut needs).then(|| needs.into_paths()).flatten();
            let sort = split.sort.as_ref().map(|(s, _)| s);
            paths.filter(|paths| suffice(paths, sort, split.metadata))
        }
        None if split.rest.is_empty() || !split.metadata.is_empty() => None,
        None => split.rest.needs(),
    };
    let needs: Option<Arc<[String]>> = needs.map(Arc::from);
    let source = split.project.as_ref().map(|(_, source)| source.as_doc());
    // MongoDB's shape of a pipeline has no projection.
    let told = Told::sorted(split.sort_source());
    let query = Query {
        sort: split.sort.as_ref().map(|(s, _)| s),
        needs: needs.as_deref(),
        only_needs: split
            .project
            .as_ref()
            .is_some_and(|(p, _)| p.included_paths().is_some()),
        hint,
        look_up: split.look_up(needs.as_deref()),
        told: Told {
            projection: source,
            ..told
        },
        ..query(engine, collection, &filter, told)
    };
    let covers = needs.as_ref().map_or_else(String::new, |n| n.join(","));
    let output = match &split.project {
        None => Output::Whole,
        Some((projection, source)) => Output::Projected {
            projection: Projection::clone(projection),
            source: source.clone(),
            kind: projection_kind(source.as_doc()),
        },
    };
    let recipe = Recipe {
        sort: split.sort.clone(),
        skip: split.skip,
        limit: split.limit,
        needs: needs.clone().filter(|_| split.project.is_none()),
        output,
        sort_limits: engine.sort_limits(allow_disk_use),
        shared: shared.cloned(),
        metadata: split.metadata,
        ..engine.recipe(collection, &filter)
    };
    plan(
        engine,
        op,
        &query,
        &recipe,
        // The fields that are needed decide which plans are covered, so they belong to the key.
        || format!("{}{NEEDS}{covers}", split.shape()).into(),
        explain,
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_query::QueryContext;
    use muniment_value::{ArrayBuf, Value, array, doc};

    fn split(p: &ArrayBuf) -> Split {
        Split::of(Pipeline::parse(p.as_doc(), &QueryContext::new()).unwrap())
    }

    #[test]
    fn leading_stages_go_to_the_planner() {
        let p = array![
            doc! { "$match": doc! { "a": 1 } },
            doc! { "$sort": doc! { "b": -1 } },
            doc! { "$match": doc! { "c": 2 } },
            doc! { "$skip": 3 },
            doc! { "$limit": 10 },
            doc! { "$skip": 4 },
            doc! { "$project": doc! { "a": 1 } },
            doc! { "$unwind": "$a" },
        ];
        let s = split(&p);
        assert_eq!(s.sort_source().to_buf(), doc! { "b": -1 });
        assert_eq!((s.skip, s.limit), (7, Some(6)));
        let filter = s.filter.to_doc();
        assert_eq!(filter.as_doc().get_array("$and").unwrap().count(), 2);
        assert_eq!(s.project_source().to_buf(), doc! { "a": 1 });
        assert_eq!(s.rest.stages().count(), 1);
        // A match after a limit must stay after it.
        let p = array![doc! { "$limit": 1 }, doc! { "$match": doc! { "a": 1 } }];
        assert_eq!(split(&p).rest.stages().count(), 1);
    }

    #[test]
    fn counting_is_recognized() {
        let group = |id: Value<'_>, sum: i32| {
            let p = array![
                doc! { "$match": doc! {} },
                doc! { "$group": doc! { "_id": id, "n": doc! { "$sum": sum } } },
            ];
            split(&p).counts.map(|c| c.result(3).unwrap())
        };
        assert_eq!(group(Value::Int32(1), 1), Some(doc! { "_id": 1, "n": 3 }));
        assert!(group(Value::Null, 1).is_some());
        assert!(group(Value::Int32(1), 2).is_none());
        assert!(group(Value::String("$a"), 1).is_none());
    }
}
