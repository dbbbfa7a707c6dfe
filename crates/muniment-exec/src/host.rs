//! The database as a pipeline's stages see it: [`muniment_query::stage::host::Host`] over the
//! engine.
//!
//! Invariant: everything that a stage opens asks the operation that uses the cursor *now*, and
//! lets go of its snapshot when the cursor idles.

use crate::aggregate::{AggregateRequest, Given, Opened, Rows, Split, SplitPlan};
use crate::cursor::CurrentOp;
use crate::database::Database;
use crate::find::Hint;
use crate::geo_near::NearRows;
use crate::join;
use crate::oplog;
use crate::plan::text::refuse_text;
use crate::timeseries::TimeSeries;
use crate::write::merge::MergeWriter;
use crate::write::out::OutWriter;
use bytes::Bytes;
use muniment_query::stage::Stage;
use muniment_query::stage::geo_near::{at_front, behind_near};
use muniment_query::stage::host::{Host, Join, Reads, Writer};
use muniment_query::stage::merge::MergeSpec;
use muniment_query::stage::out::OutSpec;
use muniment_query::{DocStream, Pipeline, QueryContext, Runtime};
use muniment_storage::Collection;
use muniment_value::path::Path;
use muniment_value::{Doc, DocBuf, Error, Result, Value, doc};
use std::collections::VecDeque;
use std::sync::Arc;

/// What all stages of one command share.
#[derive(Clone)]
pub(crate) struct Link {
    pub engine: Arc<Database>,
    pub op: Arc<CurrentOp>,
    pub allow_disk_use: Option<bool>,
    pub bypass_validation: bool,
}

impl Link {
    pub fn new(
        engine: &Database,
        op: &Arc<CurrentOp>,
        request: &AggregateRequest<'_>,
    ) -> Result<Link> {
        let engine = engine
            .me
            .upgrade()
            .ok_or_else(|| Error::internal("the engine is going away"))?;
        Ok(Link {
            engine,
            op: op.clone(),
            allow_disk_use: request.allow_disk_use,
            bypass_validation: request.bypass_document_validation,
        })
    }

    /// What running stages need.
    pub fn runtime(&self) -> Result<Runtime> {
        let limits = self.engine.sort_limits(self.allow_disk_use);
        if let Some(dir) = &limits.spill_dir {
            std::fs::create_dir_all(dir)?;
        }
        Ok(Runtime {
            interrupt: self.op.clone(),
            memory_limit: limits.memory,
            budget: limits.budget,
            spill_dir: limits.spill_dir,
            host: Arc::new(self.clone()),
            watched: false,
        })
    }

    /// The collection of a pipeline.
    ///
    /// # Errors
    /// As [`OpContext::collection`].
    fn collection(&self, ctx: &QueryContext) -> Result<Option<Arc<Collection>>> {
        let namespace = format!("{}.{}", ctx.db, ctx.collection);
        self.op.get().collection(&self.engine.store, &namespace)
    }

    /// Opens a pipeline over the context's collection.
    pub fn open(
        &self,
        stages: Doc<'_>,
        ctx: &QueryContext,
        hint: Option<Hint<'_>>,
    ) -> Result<Opened> {
        if let Some(operand) = at_front(stages) {
            return self.open_near(stages, operand, ctx, hint);
        }
        let pipeline = Pipeline::parse(stages, ctx)?;
        if let Some(refusal) = pipeline.refuses_time_series() {
            let namespace = format!("{}.{}", ctx.db, ctx.collection);
            let read = self.collection(ctx)?.filter(|c| c.is_time_series());
            if read.is_some() || self.engine.buckets_of(&namespace).is_some() {
                return Err(refusal);
            }
        }
        let given = |docs: VecDeque<Bytes>| Box::new(Given(docs));
        if ctx.collection.is_empty() || pipeline.has_source() {
            let stream = pipeline.open(given(VecDeque::new()), &self.runtime()?)?;
            return Ok(Opened::Stream(stream, self.collection(ctx)?));
        }
        let Some(collection) = self.collection(ctx)? else {
            let namespace = format!("{}.{}", ctx.db, ctx.collection);
            if let Some(generated) = oplog::generated(&namespace) {
                let stream = self.open_generated(generated, pipeline, stages, ctx, hint)?;
                return Ok(Opened::Stream(stream, None));
            }
            if let Some(series) = self.engine.buckets_of(&namespace) {
                let buckets = self.open_buckets(&series, &pipeline, stages, ctx, hint)?;
                let stream = pipeline.open(Box::new(buckets), &self.runtime()?)?;
                return Ok(Opened::Stream(stream, Some(series)));
            }
            if let Some(view) = self.engine.resolve_view(&namespace)? {
                view.check_collation(&namespace, &ctx.collation)?;
                let below = QueryContext {
                    collection: view.parts().1.to_string(),
                    ..ctx.clone()
                };
                return self.open(view.with(stages).as_doc(), &below, hint);
            }
            if let Some(Stage::Match(f)) = pipeline.stages().next() {
                refuse_text(&namespace, f)?;
            }
            let stream = pipeline.open(given(VecDeque::new()), &self.runtime()?)?;
            return Ok(Opened::Stream(stream, None));
        };
        let split = Split::of(pipeline);
        let op = self.op.get();
        if let Some(counts) = &split.counts {
            let counted = self.engine.count_split(&op, &collection, hint, &split);
            let n = counted.map_err(Error::while_executing)?;
            let doc = counts.result(n).map(|d| Bytes::from(d.into_bytes()));
            let stream = given(doc.into_iter().collect());
            return Ok(Opened::Stream(stream, Some(collection)));
        }
        let mut exec = self
            .engine
            .plan_split(
                &op,
                &collection,
                &split,
                SplitPlan {
                    shared: Some(&self.op),
                    hint,
                    allow_disk_use: self.allow_disk_use,
                    explain: false,
                },
            )?
            .exec;
        exec.announce(&op);
        if split.rest.stages().any(|s| matches!(s, Stage::Sort(_))) {
            op.set_sorts();
        }
        if split.rest.is_empty() {
            return Ok(Opened::Plan(Box::new(exec), collection));
        }
        let rows = Box::new(Rows::new(exec, &self.op));
        let stream = split.rest.open(rows, &self.runtime()?)?;
        Ok(Opened::Stream(stream, Some(collection)))
    }
}

impl Link {
    /// Opens a pipeline that begins with `$geoNear`.
    fn open_near(
        &self,
        stages: Doc<'_>,
        (at, operand): (usize, Value<'_>),
        ctx: &QueryContext,
        hint: Option<Hint<'_>>,
    ) -> Result<Opened> {
        let collection = self.collection(ctx)?;
        let op = self.op.get();
        let rest = behind_near(stages, at, ctx)?;
        let (stage, key, mut choice) = self.engine.plan_geo_near(
            &op,
            collection.as_ref(),
            ctx,
            hint,
            self.allow_disk_use,
            operand,
            false,
        )?;
        choice.exec.announce(&op);
        let rows = Box::new(NearRows::new(choice.exec, stage, key, &self.op));
        let stream = rest.open(rows, &self.runtime()?)?;
        Ok(Opened::Stream(stream, collection))
    }
}

impl Host for Link {
    fn pipeline(&self, pipeline: Doc<'_>, ctx: &QueryContext) -> Result<Box<dyn DocStream>> {
        Ok(match self.open(pipeline, ctx, None)? {
            Opened::Plan(exec, _) => Box::new(Rows::new(*exec, &self.op)),
            Opened::Stream(stream, _) => stream,
        })
    }

    fn join(
        &self,
        collection: &str,
        field: &Path,
        ctx: &QueryContext,
    ) -> Result<Option<Box<dyn Join>>> {
        let namespace = format!("{}.{collection}", ctx.db);
        if self.engine.resolve_view(&namespace)?.is_some() {
            return Ok(None);
        }
        join::open(self, &namespace, field, &ctx.collation).map(Some)
    }

    fn figures(&self, stage: &str, operand: Doc<'_>, ctx: &QueryContext) -> Result<Vec<Bytes>> {
        let own = match self.engine.figures.get() {
            Some(f) => f.documents(&self.op.get(), stage, operand, &ctx.db, &ctx.collection),
            None => None,
        };
        let documents = match own {
            Some(documents) => documents?,
            None if stage == "$indexStats" => {
                let namespace = format!("{}.{}", ctx.db, ctx.collection);
                self.engine.index_stats(&namespace, None)?
            }
            None if stage == "$planCacheStats" => {
                let namespace = format!("{}.{}", ctx.db, ctx.collection);
                self.engine.plan_cache_stats(&namespace, None)?
            }
            None => Vec::new(),
        };
        Ok(documents
            .into_iter()
            .map(|d| Bytes::from(d.into_bytes()))
            .collect())
    }

    fn merge(&self, spec: &MergeSpec, ctx: &QueryContext) -> Result<Box<dyn Writer>> {
        Ok(Box::new(MergeWriter::new(self.clone(), spec, ctx)?))
    }

    fn reads(&self) -> Reads {
        self.op.get().take_reads()
    }

    fn out(&self, spec: &OutSpec, _: &QueryContext) -> Result<Box<dyn Writer>> {
        Ok(Box::new(OutWriter::new(self.clone(), spec)?))
    }
}

impl Database {
    /// `$indexStats`: the uses of every index of a collection, or of the one below a view; with
    /// the server's name, where it is known.
    ///
    /// # Errors
    /// As [`Database::resolve_view`].
    pub fn index_stats(&self, namespace: &str, host: Option<&str>) -> Result<Vec<DocBuf>> {
        let below = self.resolve_view(namespace)?;
        let namespace = below.as_ref().map_or(namespace, |v| v.namespace.as_str());
        let buckets = self.buckets_of(namespace);
        let series = buckets.as_deref().and_then(TimeSeries::of);
        let collection = buckets.or_else(|| self.store.collection(namespace));
        let indexes = collection.iter().flat_map(|c| c.indexes().to_vec());
        Ok(indexes
            .map(|index| {
                let spec = index.spec();
                let (ops, since) = index.usage();
                let shown = match &series {
                    Some(s) => s.index_of_buckets(spec.document.as_doc()),
                    None => spec.document.clone(),
                };
                let key = shown.as_doc().get_doc("key").unwrap_or(Doc::EMPTY);
                let mut d = doc! { "name": spec.name.as_str(), "key": key };
                d.append_some("host", host);
                d.append(
                    "accesses",
                    doc! { "ops": ops as i64, "since": Value::DateTime(since) },
                );
                d.append("spec", &shown);
                d
            })
            .collect())
    }
}
