//! The database around the stages that a router runs: other collections, wherever they are.

use super::output::{Merging, Replacing, variables};
use super::place::View;
use super::read_by::read_by;
use super::remote::{Remote, Terms, all_or_none};
use super::{PAUSE, is_gone, is_stale};
use crate::context::CommandContext;
use crate::namespace;
use crate::placement::{at, merging};
use crate::router::forward::{Own, ask_own_of_all};
use crate::router::tables::Known;
use crate::router::{Reach, SetPool};
use bytes::Bytes;
use muniment_op::{Interrupt, sleep_until};
use muniment_query::split::{Division, split};
use muniment_query::stage::host::{Host, Join, Writer};
use muniment_query::stage::merge::MergeSpec;
use muniment_query::stage::out::OutSpec;
use muniment_query::{DocStream, Pipeline, QueryContext, Runtime};
use muniment_value::path::Path;
use muniment_value::{Code, Collation, Doc, DocBuf, Error, Result, Value, doc};
use std::sync::Arc;
use std::time::Duration;

/// So long a pipeline is repeated because shards and router differ, before the whole command is. The command may also
/// have a cursor open, and cannot be repeated then.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module's head.
#[derive(Clone)]
pub struct Around {
    terms: Terms,
    allow_disk_use: Option<bool>,
}

impl Around {
    /// What runs the router's stages of a command.
    pub fn runtime(terms: &Terms, allow_disk_use: Option<bool>) -> Runtime {
        let around = Around {
            terms: terms.clone(),
            allow_disk_use,
        };
        let engine = &terms.server().engine;
        engine.runtime(Arc::clone(&terms.on), Arc::new(around), allow_disk_use)
    }

    fn inner(&self) -> Runtime {
        Around::runtime(&self.terms, self.allow_disk_use)
    }

    /// The documents of stages on these sets.
    fn streams(
        &self,
        ctx: &QueryContext,
        stages: Doc<'_>,
        sets: Vec<(Arc<SetPool>, DocBuf)>,
    ) -> Result<Vec<Box<dyn DocStream>>> {
        let mut command = doc! {
            "aggregate": ctx.collection.as_str(), "pipeline": Value::Array(stages), "cursor": doc! {},
            "let": variables(ctx),
        };
        command.append_some("collation", ctx.collation.spec());
        command.append_all(self.terms.session.as_doc());
        command.append_all(self.terms.reads.as_doc());
        let versions = sets
            .iter()
            .map(|(_, told)| at(told.as_doc(), (ctx.now_ms, ctx.cluster_time)));
        let versions: Vec<DocBuf> = versions.collect();
        let asked: Vec<Own<'_>> = sets
            .iter()
            .zip(&versions)
            .map(|((set, _), versions)| Own {
                set,
                db: &ctx.db,
                command: &command,
                versions: Some(versions.as_doc()),
                reach: Reach::Primary,
            })
            .collect();
        let replies = ask_own_of_all(&*self.terms.on, self.terms.router()?, &asked);
        all_or_none(replies.into_iter().zip(&sets).map(|(reply, (set, _))| {
            let reply = reply?;
            muniment_wire::client::check_ok(reply.body.as_doc())?;
            Ok(Box::new(Remote::new(&self.terms, set, &reply)?) as Box<dyn DocStream>)
        }))
    }
}

/// What stages make of a collection of the command's database, wherever it is.
///
/// # Errors
/// Those of the stages, and of the shards.
pub fn documents(
    cx: &CommandContext<'_>,
    collection: &str,
    stages: Doc<'_>,
) -> Result<Box<dyn DocStream>> {
    let on: Arc<dyn Interrupt> = Arc::clone(cx.op) as Arc<dyn Interrupt>;
    let host = Around::runtime(&Terms::new(cx, &on), None).host;
    let mut ctx = (cx.engine()).context(cx.op, Doc::EMPTY, Collation::default())?;
    ctx.db = cx.db().to_string();
    ctx.collection = collection.to_string();
    host.pipeline(stages, &ctx)
}

/// All shards with chunks, with what each is to expect.
pub fn all_parts(known: &Known) -> Result<Vec<(Arc<SetPool>, DocBuf)>> {
    let shards = known.all().into_iter();
    shards
        .map(|shard| {
            Ok((
                Arc::clone(known.set(shard)?),
                merging(known.versions(shard)),
            ))
        })
        .collect()
}

/// Nothing.
pub struct Empty;

impl DocStream for Empty {
    fn next(&mut self) -> Result<Option<Bytes>> {
        Ok(None)
    }
}

impl Host for Around {
    fn pipeline(&self, pipeline: Doc<'_>, ctx: &QueryContext) -> Result<Box<dyn DocStream>> {
        let (router, on) = (self.terms.router()?, &*self.terms.on);
        let own = format!("{}.{}", ctx.db, ctx.collection);
        let until = muniment_op::now() + PATIENCE;
        loop {
            let e = match self.attempt(pipeline, ctx) {
                Err(e) if is_stale(&e) && !is_gone(&e) => e,
                // Where the database is, the command as a whole finds out.
                other => return other,
            };
            let extra = e.extra().as_doc();
            let ns = extra.get_str("ns").unwrap_or(&own);
            if ns != own {
                router.views.forget();
            }
            if self.terms.in_transaction() || muniment_op::now() >= until {
                return Err(e);
            }
            // Nothing was read yet.
            router.tables.refresh(on, router, ns)?;
            sleep_until(muniment_op::now() + PAUSE, on)?;
        }
    }

    fn join(&self, _: &str, _: &Path, _: &QueryContext) -> Result<Option<Box<dyn Join>>> {
        // Each look-up is a pipeline.
        Ok(None)
    }

    fn figures(&self, stage: &str, _: Doc<'_>, _: &QueryContext) -> Result<Vec<Bytes>> {
        Err(Error::new(
            Code::IllegalOperation,
            format!("{stage} does not run on a router"),
        ))
    }

    fn merge(&self, spec: &MergeSpec, ctx: &QueryContext) -> Result<Box<dyn Writer>> {
        Ok(Box::new(Merging::open(&self.terms, spec, ctx)?))
    }

    fn out(&self, spec: &OutSpec, _: &QueryContext) -> Result<Box<dyn Writer>> {
        Ok(Box::new(Replacing::open(&self.terms, spec)?))
    }
}

impl Around {
    /// As [`Host::pipeline`] on a collection that is not sharded, or on a view: this set has its database.
    fn at_home(
        &self,
        pipeline: Doc<'_>,
        ctx: &QueryContext,
        set: Arc<SetPool>,
    ) -> Result<Box<dyn DocStream>> {
        let (router, on) = (self.terms.router()?, &*self.terms.on);
        let name = (ctx.db.as_str(), ctx.collection.as_str());
        if let Some(found) = router.views.over_sharded(on, router, name)? {
            return self.through(found.view, pipeline, ctx);
        }
        let mut names = Vec::new();
        read_by(pipeline, &mut names);
        if router.views.below(on, router, name.0, &names)?.sharded {
            return self.divided(pipeline, ctx, vec![(set, merging(DocBuf::new()))]);
        }
        let streams = self.streams(ctx, pipeline, vec![(set, DocBuf::new())])?;
        let one = streams.into_iter().next();
        one.ok_or_else(|| Error::internal("a reply is lost"))
    }

    /// What stages make of what these sets have: each runs a part of them.
    fn divided(
        &self,
        pipeline: Doc<'_>,
        ctx: &QueryContext,
        sets: Vec<(Arc<SetPool>, DocBuf)>,
    ) -> Result<Box<dyn DocStream>> {
        match split(pipeline, ctx)? {
            Division::Split(split) => {
                let streams = self.streams(ctx, split.shards.as_doc(), sets)?;
                split.open(streams, &self.inner())
            }
            Division::Router(pipeline) => pipeline.open(Box::new(Empty), &self.inner()),
            Division::Alone(stage) => Err(Error::new(
                Code::IllegalOperation,
                format!(
                    "{stage} does not run on {}.{}, which is sharded or reads what is",
                    ctx.db, ctx.collection
                ),
            )),
        }
    }

    /// What stages make of a view.
    fn through(
        &self,
        view: View,
        pipeline: Doc<'_>,
        ctx: &QueryContext,
    ) -> Result<Box<dyn DocStream>> {
        let mut all = view.pipeline;
        pipeline.values().for_each(|stage| {
            all.push(stage);
        });
        let ctx = QueryContext {
            collection: view.on,
            ..ctx.nested()?
        };
        self.pipeline(all.as_doc(), &ctx)
    }

    fn attempt(&self, pipeline: Doc<'_>, ctx: &QueryContext) -> Result<Box<dyn DocStream>> {
        let router = self.terms.router()?;
        let on = &*self.terms.on;
        // A name that no collection can have is that of one that is not there.
        let is_name = namespace::check_collection(&ctx.db, &ctx.collection).is_ok();
        if !is_name {
            return Pipeline::parse(pipeline, ctx)?.open(Box::new(Empty), &self.inner());
        }
        let ns = format!("{}.{}", ctx.db, ctx.collection);
        let known = match (router.tables.of(on, router, &ns)?, self.terms.time()) {
            (Some(known), Some(time)) => Some(known.at(on, router, time)?),
            (known, _) => known,
        };
        let Some(known) = known else {
            let Some(set) = router.catalog.database(on, router, &ctx.db, None)? else {
                return Pipeline::parse(pipeline, ctx)?.open(Box::new(Empty), &self.inner());
            };
            return self.at_home(pipeline, ctx, set);
        };
        self.divided(pipeline, ctx, all_parts(&known)?)
    }
}
