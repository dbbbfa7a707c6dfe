//! `aggregate`.

use crate::count::CountRequest;
use crate::cursor::{CurrentOp, Cursor, CursorFlags};
use crate::engine::Engine;
use crate::find::Hint;
use crate::geo_near::NearRows;
use crate::operation::OpContext;
use crate::plan::candidate::{Query, candidates};
use crate::plan::choose::{Choice, choose};
use crate::plan::shape::shape;
use crate::run::exec::{Exec, Recipe, into_bytes};
use bytes::Bytes;
use muniment_query::{DocStream, Filter, Pipeline, QueryContext, Runtime, SortSpec};
use muniment_storage::Collection;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc};
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
        }
    }
}

/// A pipeline taken apart: what the planner does, and the rest.
pub(crate) struct Split {
    /// All leading `$match`es as one filter.
    pub filter: DocBuf,
    /// The leading `$sort`.
    pub sort: DocBuf,
    /// Skipped documents.
    pub skip: u64,
    /// The limit.
    pub limit: Option<u64>,
    /// Stages that remain.
    pub rest: ArrayBuf,
    /// Set when the rest only counts: the document's head (`_id` of a group) and the count's
    /// name.
    pub counts: Option<(DocBuf, String)>,
}

impl Split {
    pub(crate) fn of(pipeline: Doc<'_>) -> Split {
        let mut matches = ArrayBuf::new();
        let mut sort = DocBuf::new();
        let (mut skip, mut limit) = (0_u64, None::<u64>);
        let mut windowed = false;
        let mut stages = pipeline.iter().peekable();
        while let Some(stage) = stages.peek() {
            let Value::Document(stage) = stage.value() else {
                break;
            };
            let Some(op) = stage.first().filter(|_| stage.count() == 1) else {
                break;
            };
            match (op.name(), op.value()) {
                ("$match", Value::Document(f)) if !windowed => {
                    if !f.is_empty() {
                        matches.push(f);
                    }
                }
                ("$sort", Value::Document(s))
                    if !windowed && sort.as_doc().is_empty() && plain_sort(s) =>
                {
                    sort = s.to_buf();
                }
                ("$skip", v) => match v.as_i64_exact() {
                    Some(n) if n >= 0 => {
                        windowed = true;
                        skip = skip.saturating_add(n as u64);
                        limit = limit.map(|l| l.saturating_sub(n as u64));
                    }
                    _ => break,
                },
                ("$limit", v) => match v.as_i64_exact() {
                    Some(n) if n > 0 => {
                        windowed = true;
                        limit = Some(limit.map_or(n as u64, |l| l.min(n as u64)));
                    }
                    _ => break,
                },
                _ => break,
            }
            stages.next();
        }
        let mut rest = ArrayBuf::new();
        for s in stages {
            rest.push(s);
        }
        let filter = match matches.len() {
            0 => DocBuf::new(),
            1 => matches
                .as_doc()
                .get_doc("0")
                .map_or_else(DocBuf::new, |d| d.to_buf()),
            _ => doc! { "$and": matches },
        };
        let counts = counts(&rest);
        Split {
            filter,
            sort,
            skip,
            limit,
            rest,
            counts,
        }
    }
}

/// A sort by fields only ($meta and the like stay with the stage).
fn plain_sort(sort: Doc<'_>) -> bool {
    !sort.is_empty()
        && sort
            .iter()
            .all(|e| e.value().is_number() && !e.name().starts_with('$'))
}

/// Recognizes `[{$count: NAME}]` and `[{$group: {_id: CONSTANT, NAME: {$sum: 1}}}]`.
fn counts(rest: &ArrayBuf) -> Option<(DocBuf, String)> {
    if rest.len() != 1 {
        return None;
    }
    let stage = rest.as_doc().get_doc("0")?;
    let op = stage.first().filter(|_| stage.count() == 1)?;
    match (op.name(), op.value()) {
        ("$count", Value::String(name)) => {
            let fine = !name.is_empty()
                && name != "_id"
                && !name.starts_with('$')
                && !name.contains(['.', '\0']);
            fine.then(|| (DocBuf::new(), name.to_string()))
        }
        ("$group", Value::Document(g)) => {
            let mut fields = g.iter();
            let id = fields.next().filter(|e| e.name() == "_id")?;
            let constant = match id.value() {
                Value::Null | Value::Bool(_) => true,
                v => v.is_number(),
            };
            let n = fields.next()?;
            let sum = n.value().as_doc()?;
            let one = sum.first().filter(|e| {
                sum.count() == 1 && e.name() == "$sum" && matches!(e.value(), Value::Int32(1))
            });
            let bad_name = n.name().contains('.') || n.name().starts_with('$');
            if !constant || one.is_none() || fields.next().is_some() || bad_name {
                return None;
            }
            let mut head = DocBuf::new();
            head.append_elem(id);
            Some((head, n.name().to_string()))
        }
        _ => None,
    }
}

/// Documents at hand.
struct Given(VecDeque<Bytes>);

impl DocStream for Given {
    fn next(&mut self) -> Result<Option<Bytes>> {
        Ok(self.0.pop_front())
    }
}

/// A plan as a pipeline's source.
struct Rows {
    exec: Arc<Mutex<Exec>>,
    op: Arc<CurrentOp>,
}

impl DocStream for Rows {
    fn next(&mut self) -> Result<Option<Bytes>> {
        let mut exec = self.exec.lock();
        match exec.next_row(&self.op.get())? {
            Some(row) => Ok(Some(into_bytes(&exec, row)?)),
            None => Ok(None),
        }
    }
}

impl Engine {
    /// Opens an aggregation: leading `$match`, `$sort`, `$skip` and `$limit` are planned like a
    /// find; the rest runs on top. Counting everything (`$match {}` and
    /// `$group {_id: 1, n: {$sum: 1}}`, or `$count`) reads the counter.
    ///
    /// # Errors
    /// As [`Engine::find`]; the stages' own.
    pub fn aggregate(&self, op: &Arc<OpContext>, request: &AggregateRequest<'_>) -> Result<Cursor> {
        let ctx = self.query_context(request.let_)?;
        Pipeline::check(request.pipeline, &ctx)?;
        let current = CurrentOp::new(op);
        let first = first_stage(request.pipeline);
        let Some(name) = request.collection else {
            let namespace = format!("{}.$cmd.aggregate", request.db);
            // $documents is a stage like any other, which needs no input.
            let (given, own) = match first {
                Some(("$documents", _)) => (Given(VecDeque::new()), 0),
                _ => (self.collectionless(request, first)?, 1),
            };
            let rest: ArrayBuf = request.pipeline.iter().skip(own).collect();
            let stream = self.pipeline(request, &rest, &ctx, Box::new(given), &current)?;
            return Ok(Cursor::of_stream(&namespace, None, stream, None, current));
        };
        if let Some(("$documents", _)) = first {
            return Err(Error::new(
                Code::InvalidNamespace,
                "'$documents' can only be run with {aggregate: 1}",
            ));
        }
        let namespace = format!("{}.{name}", request.db);
        let collection = self.store.collection(&namespace);
        if collection.is_none()
            && let Some(view) = self.resolve_view(&namespace)?
        {
            return self.aggregate_view(op, &view, request, &namespace);
        }
        if let Some(("$indexStats", _)) = first {
            let given = index_stats(collection.as_ref());
            let rest: ArrayBuf = request.pipeline.iter().skip(1).collect();
            let stream = self.pipeline(request, &rest, &ctx, Box::new(given), &current)?;
            return Ok(Cursor::of_stream(
                &namespace, collection, stream, None, current,
            ));
        }
        if let Some(("$geoNear", operand)) = first {
            return self.aggregate_near(op, request, operand, &ctx, collection);
        }
        let split = Split::of(request.pipeline);
        let Some(collection) = collection else {
            // The stages are parsed all the same, for their errors.
            Filter::parse(split.filter.as_doc(), &ctx)?;
            let given = Box::new(Given(VecDeque::new()));
            let stream = self.pipeline(request, &split.rest, &ctx, given, &current)?;
            return Ok(Cursor::of_stream(&namespace, None, stream, None, current));
        };
        if let Some((head, name)) = &split.counts {
            let n = self.count_split(op, &namespace, request, &split)?;
            let mut given = VecDeque::new();
            if n > 0 {
                let mut d = head.clone();
                let n = i64::try_from(n).unwrap_or(i64::MAX);
                d.append(name, muniment_value::number::narrow(n));
                given.push_back(Bytes::from(d.into_bytes()));
            }
            let stream = Box::new(Given(given));
            return Ok(Cursor::of_stream(
                &namespace,
                Some(collection),
                stream,
                None,
                current,
            ));
        }
        let exec = self
            .plan_split(op, &collection, request, &split, &ctx, false)?
            .exec;
        op.set_plan_summary(exec.candidate());
        if split.rest.is_empty() {
            let flags = CursorFlags::default();
            return Ok(Cursor::of_exec(&namespace, collection, exec, flags));
        }
        let exec = Arc::new(Mutex::new(exec));
        let rows = Box::new(Rows {
            exec: exec.clone(),
            op: current.clone(),
        });
        let stream = self.pipeline(request, &split.rest, &ctx, rows, &current)?;
        Ok(Cursor::of_stream(
            &namespace,
            Some(collection),
            stream,
            Some(exec),
            current,
        ))
    }

    /// An aggregation that begins with `$geoNear`.
    fn aggregate_near(
        &self,
        op: &Arc<OpContext>,
        request: &AggregateRequest<'_>,
        operand: Value<'_>,
        ctx: &QueryContext,
        collection: Option<Arc<Collection>>,
    ) -> Result<Cursor> {
        let current = CurrentOp::new(op);
        let planned = self.plan_geo_near(op, collection.as_ref(), request, operand, false);
        let (stage, key, choice) = planned?;
        op.set_plan_summary(choice.exec.candidate());
        let exec = Arc::new(Mutex::new(choice.exec));
        let rows = Box::new(NearRows {
            exec: exec.clone(),
            op: current.clone(),
            stage,
            key,
        });
        let namespace = format!("{}.{}", request.db, request.collection.unwrap_or_default());
        let rest: ArrayBuf = request.pipeline.iter().skip(1).collect();
        let stream = self.pipeline(request, &rest, ctx, rows, &current)?;
        Ok(Cursor::of_stream(
            &namespace,
            collection,
            stream,
            Some(exec),
            current,
        ))
    }

    /// Opens an aggregation whose first stage the caller has answered with `documents`
    /// ($collStats, which knows the server's figures); the rest of the pipeline runs on them.
    ///
    /// # Errors
    /// The stages' own.
    pub fn aggregate_over(
        &self,
        op: &Arc<OpContext>,
        request: &AggregateRequest<'_>,
        documents: Vec<Bytes>,
    ) -> Result<Cursor> {
        let ctx = self.query_context(request.let_)?;
        let current = CurrentOp::new(op);
        let namespace = format!(
            "{}.{}",
            request.db,
            request.collection.unwrap_or("$cmd.aggregate")
        );
        let rest: ArrayBuf = request.pipeline.iter().skip(1).collect();
        let given = Box::new(Given(documents.into()));
        let stream = self.pipeline(request, &rest, &ctx, given, &current)?;
        Ok(Cursor::of_stream(&namespace, None, stream, None, current))
    }

    /// Puts stages on top of a source.
    fn pipeline(
        &self,
        request: &AggregateRequest<'_>,
        stages: &ArrayBuf,
        ctx: &QueryContext,
        source: Box<dyn DocStream>,
        op: &Arc<CurrentOp>,
    ) -> Result<Box<dyn DocStream>> {
        if stages.is_empty() {
            return Ok(source);
        }
        let limits = self.sort_limits(request.allow_disk_use);
        if let Some(dir) = &limits.spill_dir {
            std::fs::create_dir_all(dir)?;
        }
        let rt = Runtime {
            interrupt: op.clone(),
            memory_limit: limits.memory,
            spill_dir: limits.spill_dir,
        };
        Pipeline::parse(stages.as_doc(), ctx)?.open(source, &rt)
    }

    fn count_split(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        request: &AggregateRequest<'_>,
        split: &Split,
    ) -> Result<u64> {
        if split.limit == Some(0) {
            return Ok(0);
        }
        self.count(
            op,
            &CountRequest {
                namespace,
                filter: split.filter.as_doc(),
                skip: split.skip,
                limit: split.limit.unwrap_or(0),
                hint: request.hint,
                let_: request.let_,
            },
        )
    }

    /// Plans the leading stages.
    pub(crate) fn plan_split(
        &self,
        op: &Arc<OpContext>,
        collection: &Arc<Collection>,
        request: &AggregateRequest<'_>,
        split: &Split,
        ctx: &QueryContext,
        explain: bool,
    ) -> Result<Choice> {
        let filter = Arc::new(Filter::parse(split.filter.as_doc(), ctx)?);
        let sort = if split.sort.as_doc().is_empty() {
            None
        } else {
            Some((SortSpec::parse(split.sort.as_doc())?, split.sort.clone()))
        };
        // What the stages on top do not look at need not be read.
        let needs = match split.rest.is_empty() {
            true => None,
            false => Pipeline::parse(split.rest.as_doc(), ctx)?.needs(),
        };
        let needs: Option<Arc<[String]>> = needs.map(Arc::from);
        let query = Query {
            sort: sort.as_ref().map(|(s, _)| s),
            needs: needs.as_deref(),
            hint: request.hint,
            allowed: self
                .index_filters
                .of(collection, &filter, split.sort.as_doc(), Doc::EMPTY),
            ..Query::of(&filter)
        };
        let candidates = candidates(collection, &query)?;
        let covers = needs.as_ref().map_or_else(String::new, |n| n.join(","));
        let recipe = Recipe {
            sort,
            skip: split.skip,
            limit: split.limit,
            sort_limits: self.sort_limits(request.allow_disk_use),
            needs,
            ..self.recipe(collection, &filter)
        };
        choose(
            &self.plans,
            op,
            &recipe,
            candidates,
            // What is needed decides which plans are covered.
            || shape(filter.root(), split.sort.as_doc(), Doc::EMPTY) + &covers,
            explain,
        )
    }

    /// The sources that need no collection.
    fn collectionless(
        &self,
        request: &AggregateRequest<'_>,
        first: Option<(&str, Value<'_>)>,
    ) -> Result<Given> {
        match first {
            Some(("$currentOp", v)) if request.db == "admin" => {
                let idle = v
                    .as_doc()
                    .and_then(|d| d.get("idleCursors"))
                    .is_some_and(|v| v.truthy());
                let mut docs: VecDeque<Bytes> = self
                    .operations
                    .list()
                    .iter()
                    .map(|o| Bytes::from(o.describe().into_bytes()))
                    .collect();
                if idle {
                    docs.extend(self.cursors.list().into_iter().map(|c| {
                        let d = doc! {
                            "type": "idleCursor",
                            "ns": c.namespace.as_str(),
                            "cursor": c.description,
                        };
                        Bytes::from(d.into_bytes())
                    }));
                }
                Ok(Given(docs))
            }
            Some(("$currentOp", _)) => Err(Error::new(
                Code::InvalidNamespace,
                "$currentOp must be run against the 'admin' database with {aggregate: 1}",
            )),
            Some((name, _)) => Err(Error::new(
                Code::InvalidNamespace,
                format!("{{aggregate: 1}} is not valid for '{name}'; a collection is required."),
            )),
            None => Err(Error::new(
                Code::InvalidNamespace,
                "{aggregate: 1} is not valid for an empty pipeline.",
            )),
        }
    }
}

pub(crate) fn first_stage(pipeline: Doc<'_>) -> Option<(&str, Value<'_>)> {
    let stage = pipeline.first()?.value().as_doc()?;
    let op = stage.first()?;
    Some((op.name(), op.value()))
}

/// `$indexStats`: the uses of every index.
fn index_stats(collection: Option<&Arc<Collection>>) -> Given {
    let mut docs = VecDeque::new();
    for index in collection.iter().flat_map(|c| c.indexes().to_vec()) {
        let spec = index.spec();
        let (ops, since) = index.usage();
        let d = doc! {
            "name": spec.name.as_str(),
            "key": &spec.key,
            "accesses": doc! { "ops": ops as i64, "since": Value::DateTime(since) },
            "spec": &spec.document,
        };
        docs.push_back(Bytes::from(d.into_bytes()));
    }
    Given(docs)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::array;

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
        ];
        let s = Split::of(p.as_doc());
        assert_eq!(s.sort, doc! { "b": -1 });
        assert_eq!((s.skip, s.limit), (7, Some(6)));
        assert_eq!(s.filter.as_doc().get_array("$and").unwrap().count(), 2);
        assert_eq!(s.rest.len(), 1);
        // A match after a limit stays where it is.
        let p = array![doc! { "$limit": 1 }, doc! { "$match": doc! { "a": 1 } }];
        assert_eq!(Split::of(p.as_doc()).rest.len(), 1);
    }

    #[test]
    fn counting_is_recognized() {
        let group = |id: Value<'_>, sum: i32| {
            let p = array![
                doc! { "$match": doc! {} },
                doc! { "$group": doc! { "_id": id, "n": doc! { "$sum": sum } } },
            ];
            Split::of(p.as_doc()).counts
        };
        assert_eq!(
            group(Value::Int32(1), 1),
            Some((doc! { "_id": 1 }, "n".to_string()))
        );
        assert!(group(Value::Null, 1).is_some());
        assert!(group(Value::Int32(1), 2).is_none());
        assert!(group(Value::String("$a"), 1).is_none());
    }
}
