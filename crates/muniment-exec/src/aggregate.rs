//! `aggregate`: pipelines taken apart between the planner and the stages above it.
//!
//! What a pipeline begins with (`$match`, `$sort`, `$skip`, `$limit`, `$project`) is planned like
//! a find; the rest runs on the plan's rows. Pipelines inside stages are opened the same way,
//! through [`crate::host`].

use crate::count::CountRequest;
use crate::cursor::{CurrentOp, Cursor, CursorFlags, Opener};
use crate::database::Database;
use crate::find::{Hint, projection_kind};
use crate::host::Link;
use crate::operation::OpContext;
use crate::plan::cache::{COMMAND, NEEDS};
use crate::plan::candidate::{Query, candidates};
use crate::plan::choose::{Choice, choose};
use crate::plan::express::LookUp;
use crate::plan::shape::shape;
use crate::plan::text::bind_text;
use crate::run::exec::{Exec, Output, ProjectionKind, Recipe, into_bytes};
use bytes::Bytes;
use muniment_query::filter::Node;
use muniment_query::stage::{CountOnly, change_stream, check_target};
use muniment_query::{
    DocStream, Filter, MetaSet, Needs, Pipeline, Projection, QueryContext, SortSpec,
};
use muniment_storage::Collection;
use muniment_value::{Collation, Doc, DocBuf, Result};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// An `aggregate` command's content.
#[derive(Clone, Debug)]
pub struct AggregateRequest<'a> {
    /// The database.
    pub db: &'a str,
    /// The collection; `None` for `aggregate: 1`.
    pub collection: Option<&'a str>,
    /// The array of stages.
    pub pipeline: Doc<'a>,
    /// The hint.
    pub hint: Option<Hint<'a>>,
    /// `allowDiskUse`: `Some(false)` makes a stage above the memory limit an error.
    pub allow_disk_use: Option<bool>,
    /// The command's `let`.
    pub let_: Doc<'a>,
    /// How texts compare; `None`: as the collection has it.
    pub collation: Option<Collation>,
    /// `$merge` and `$out` skip the target's validator.
    pub bypass_document_validation: bool,
}

/// A pipeline taken apart: what the planner does, and the rest.
pub(crate) struct Split {
    /// All leading `$match`es as one filter.
    pub filter: Filter,
    /// The leading `$sort` with its source.
    pub sort: Option<(SortSpec, DocBuf)>,
    /// Skipped documents.
    pub skip: u64,
    /// The limit.
    pub limit: Option<u64>,
    /// The `$project` that follows, with its source.
    pub project: Option<(Arc<Projection>, DocBuf)>,
    /// Stages that remain.
    pub rest: Pipeline,
    /// Set when the rest only counts.
    pub counts: Option<CountOnly>,
    /// What any part asks for of documents' metadata.
    pub metadata: MetaSet,
}

/// Stages whose presence behind what the planner does makes another shape of a query, as
/// MongoDB's planner, which runs them itself, counts.
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
        // Of no filter the shape still tells by which collation is sorted.
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

    /// The sort as it was written; empty for none.
    pub(crate) fn sort_source(&self) -> Doc<'_> {
        self.sort.as_ref().map_or(Doc::EMPTY, |(_, d)| d.as_doc())
    }

    fn project_source(&self) -> Doc<'_> {
        self.project
            .as_ref()
            .map_or(Doc::EMPTY, |(_, d)| d.as_doc())
    }

    /// The short ways that MongoDB takes with the stages that it gives its planner: with `needs`,
    /// it projects to these paths.
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

    /// What the plan cache knows the plan by.
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
    /// Whose view the plan has.
    pub shared: Option<&'r Arc<CurrentOp>>,
    /// The index that the command asks for.
    pub hint: Option<Hint<'r>>,
    /// See the command.
    pub allow_disk_use: Option<bool>,
    /// All candidates are kept and told of.
    pub explain: bool,
}

/// Documents at hand.
pub(crate) struct Given(pub VecDeque<Bytes>);

impl DocStream for Given {
    fn next(&mut self) -> Result<Option<Bytes>> {
        Ok(self.0.pop_front())
    }
}

/// A plan as a pipeline's source.
pub(crate) struct Rows {
    exec: Arc<Mutex<Exec>>,
    op: Arc<CurrentOp>,
}

impl Rows {
    /// The rows of `exec`, which lets go of its snapshot with the cursor of `op`.
    pub(crate) fn new(exec: Exec, op: &Arc<CurrentOp>) -> Rows {
        Rows::of(Arc::new(Mutex::new(exec)), op)
    }

    /// The same of a plan that somebody else looks at, too.
    pub(crate) fn of(exec: Arc<Mutex<Exec>>, op: &Arc<CurrentOp>) -> Rows {
        op.register(&exec);
        Rows {
            exec,
            op: op.clone(),
        }
    }
}

impl DocStream for Rows {
    fn next(&mut self) -> Result<Option<Bytes>> {
        let mut exec = self.exec.lock();
        let op = self.op.get();
        loop {
            let Some(row) = exec.next_row(&op)? else {
                return Ok(None);
            };
            let doc = into_bytes(&exec, row)?;
            // Empty: it went away between its index key and its fetch.
            if !doc.is_empty() {
                return Ok(Some(doc));
            }
        }
    }
}

/// An opened pipeline.
pub(crate) enum Opened {
    /// A plan does it all.
    Plan(Box<Exec>, Arc<Collection>),
    /// Stages on top of something.
    Stream(Box<dyn DocStream>, Option<Arc<Collection>>),
}

impl Database {
    /// Opens an aggregation.
    ///
    /// # Errors
    /// As [`Database::find`]; the stages' own; 73 InvalidNamespace when the first stage does not fit
    /// the target.
    pub fn aggregate(&self, op: &Arc<OpContext>, request: &AggregateRequest<'_>) -> Result<Cursor> {
        if let Some(stage) = change_stream::at_front(request.pipeline) {
            return self.open_changes(op, request, stage);
        }
        let ctx = self.aggregate_context(op, request)?;
        let current = CurrentOp::new(op);
        let link = Link::new(self, &current, request)?;
        let namespace = request.namespace();
        let opened = link
            .open(request.pipeline, &ctx, request.hint)
            .map_err(|e| e.executing_context(&Opener::Aggregate.context(&namespace)))?;
        Ok(match opened {
            Opened::Plan(exec, collection) => {
                Cursor::of_exec(&namespace, collection, *exec, CursorFlags::default())
                    .opened_by(Opener::Aggregate)
            }
            Opened::Stream(stream, collection) => {
                Cursor::of_stream(&namespace, collection, stream, current)
            }
        })
    }

    /// The context of a command's pipeline, after the checks that come before any parsing.
    pub(crate) fn aggregate_context(
        &self,
        op: &OpContext,
        request: &AggregateRequest<'_>,
    ) -> Result<QueryContext> {
        let given = request.collation.as_ref();
        let collation = match request.collection {
            Some(c) => self.collation_for(&format!("{}.{c}", request.db), given)?,
            None => given.cloned().unwrap_or_default(),
        };
        let mut ctx = self.query_context(op, request.let_, collation)?;
        ctx.db = request.db.to_string();
        ctx.collection = request.collection.unwrap_or_default().to_string();
        let target = check_target(request.pipeline, request.db, request.collection.is_some());
        if let Err(e) = target {
            // What the pipelines of a $facet may not have is reported before that.
            let first = request.pipeline.values().next().and_then(|v| v.as_doc());
            if first.is_some_and(|d| d.get("$facet").is_some()) {
                Pipeline::parse(request.pipeline, &ctx)?;
            }
            return Err(e);
        }
        Pipeline::check(request.pipeline, &ctx)?;
        Ok(ctx)
    }

    pub(crate) fn count_split(
        &self,
        op: &Arc<OpContext>,
        collection: &Arc<Collection>,
        hint: Option<Hint<'_>>,
        split: &Split,
    ) -> Result<u64> {
        if split.limit == Some(0) {
            return Ok(0);
        }
        self.count_filter(
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
        &self,
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
        // What nobody above looks at need not be read.
        let needs = match &split.project {
            // Metadata may tell of fields that nobody names.
            _ if !split.metadata.is_empty() => None,
            Some((p, _)) => {
                let mut needs = Needs::default();
                p.needs(&mut needs).then(|| needs.into_paths()).flatten()
            }
            None if split.rest.is_empty() => None,
            None => split.rest.needs(),
        };
        let needs: Option<Arc<[String]>> = needs.map(Arc::from);
        let query = Query {
            sort: split.sort.as_ref().map(|(s, _)| s),
            needs: needs.as_deref(),
            only_needs: split
                .project
                .as_ref()
                .is_some_and(|(p, _)| p.included_paths().is_some()),
            hint,
            allowed: self
                .index_filters
                .of(collection, &filter, split.sort_source(), Doc::EMPTY),
            look_up: split.look_up(needs.as_deref()),
            ..Query::of(&filter)
        };
        let candidates = candidates(collection, &query)?;
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
            needs: needs.filter(|_| split.project.is_none()),
            output,
            sort_limits: self.sort_limits(allow_disk_use),
            shared: shared.cloned(),
            metadata: split.metadata,
            ..self.recipe(collection, &filter)
        };
        choose(
            &self.plans,
            op,
            &recipe,
            candidates,
            // What is needed decides which plans are covered.
            || format!("{}{NEEDS}{covers}", split.shape()).into(),
            explain,
        )
    }
}

impl<'a> AggregateRequest<'a> {
    /// A pipeline on a database, without options.
    pub fn new(db: &'a str, pipeline: Doc<'a>, let_: Doc<'a>) -> AggregateRequest<'a> {
        AggregateRequest {
            db,
            collection: None,
            pipeline,
            hint: None,
            allow_disk_use: None,
            let_,
            collation: None,
            bypass_document_validation: false,
        }
    }

    /// The namespace that replies carry.
    pub(crate) fn namespace(&self) -> String {
        let name = self.collection.unwrap_or("$cmd.aggregate");
        format!("{}.{name}", self.db)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
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
        // A match after a limit stays where it is.
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
