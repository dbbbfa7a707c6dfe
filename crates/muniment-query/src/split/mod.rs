//! What each shard of a cluster does for a query over a sharded collection, and what the router does with the
//! documents that come back. How a stage spreads is in its [`crate::stage::Spec`].
//!
//! Invariants: the answer is that of one server which has all documents; pipelines are split as they are
//! written, before stages are fused; what is split has been parsed as a client's, so no client can write what
//! only members of the cluster write ([`QueryContext::member`]).

mod find;
mod merge;
#[cfg(test)]
mod tests;
pub mod wire;

pub use crate::stage::spread::Merge;
pub use find::{FindParts, FindSplit, split_find};

use crate::context::{QueryContext, Runtime};
use crate::meta::{Meta, MetaSet, Metadata};
use crate::stage::spread::{Halves, HalvesOf, Spread, Whole};
use crate::stage::{DocStream, Pipeline, Stage, Written, to_router, wanted, written};
use merge::together;
use muniment_value::{ArrayBuf, Doc, DocBuf, Error, Result, doc};
use wire::Tail;

/// The ways in which a pipeline can be run.
#[derive(Clone, Debug)]
pub enum Division {
    /// On the shards and on the router.
    Split(Box<Split>),
    /// Not by parts: it begins with this stage, whose documents are not those of a sharded collection. The router
    /// knows where to run the pipeline.
    Alone(&'static str),
    /// On the router: it begins with a stage that runs pipelines of its own over the collection.
    Router(Pipeline),
}

/// A pipeline in two parts.
#[derive(Clone, Debug)]
pub struct Split {
    /// The stages for each shard. They are parsed with [`QueryContext::of_member`].
    pub shards: ArrayBuf,
    /// How the router puts the streams of the shards together.
    pub merge: Merge,
    /// The stages for the router, for explain.
    pub router: ArrayBuf,
    /// The router's stages.
    pipeline: Pipeline,
    tail: Tail,
}

impl Split {
    /// Opens the router's part over the streams of the shards, in the order of the shards, which decides about
    /// ties. Nothing is read before the first document is asked for.
    ///
    /// # Errors
    /// Those of opening a stage.
    pub fn open(
        self,
        streams: Vec<Box<dyn DocStream>>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        self.pipeline.open(together(streams, self.tail, rt), rt)
    }

    /// True if the router's part ends with a stage that writes.
    pub fn writes(&self) -> bool {
        self.pipeline.writes()
    }
}

/// Splits a client's pipeline over a sharded collection, whose collation is in the context.
///
/// # Errors
/// Those of [`Pipeline::check`] and [`Pipeline::parse`].
pub fn split(pipeline: Doc<'_>, ctx: &QueryContext) -> Result<Division> {
    // The stage that this pipeline is within may read metadata of its documents.
    let around = ctx.metadata.asked();
    let ctx = QueryContext {
        member: false,
        metadata: Metadata::beginning_with(ctx.metadata.available),
        ..ctx.clone()
    };
    Pipeline::check(pipeline, &ctx)?;
    let whole = Pipeline::parse(pipeline, &ctx)?;
    let stages = written(pipeline, &ctx)?;
    match stages.first().map(|first| first.spec) {
        Some(spec) if matches!(spec.spread, Spread::Alone) => {
            return Ok(Division::Alone(spec.name));
        }
        Some(spec) if matches!(spec.spread, Spread::Around) => {
            return Ok(Division::Router(whole));
        }
        _ => {}
    }
    let mut cut = Cut {
        shards: Vec::new(),
        merge: Merge::Concatenate,
        router: Vec::new(),
        available: ctx.metadata.available,
        planned: true,
        same: true,
    };
    cut.make(&stages)?;
    cut.finish(&ctx, around)
        .map(|s| Division::Split(Box::new(s)))
}

/// The place where a pipeline is cut.
struct Cut {
    shards: Vec<DocBuf>,
    merge: Merge,
    router: Vec<DocBuf>,
    /// The metadata that documents can have where the shards' part ends.
    available: MetaSet,
    /// Whether the planner of one server would run all stages before the router's.
    planned: bool,
    /// Whether documents cross the cut as they are, and not as parts of results.
    same: bool,
}

impl Cut {
    /// Gives each stage to the shards, up to the first that they cannot run.
    fn make(&mut self, stages: &[Written]) -> Result<()> {
        for (i, stage) in stages.iter().enumerate() {
            let later = stages.get(i..).unwrap_or_default();
            match stage.spec.spread {
                Spread::Each => self.push(stage),
                Spread::Ordered => {
                    self.push(stage);
                    self.merge = Merge::Sorted;
                }
                Spread::Range => {
                    let wanted = wanted(later.iter().flat_map(|w| &w.stages));
                    if let Some(n) = wanted.and_then(|n| i64::try_from(n).ok()) {
                        self.shards.push(doc! { "$limit": n });
                    }
                    self.rest(later);
                    break;
                }
                Spread::Halves(of) => {
                    match self.halves(stage, of) {
                        Some(halves) => {
                            self.divide(stage, halves);
                            self.rest(later.get(1..).unwrap_or_default());
                        }
                        None => self.rest(later),
                    }
                    break;
                }
                Spread::Router => {
                    self.rest(later);
                    break;
                }
                Spread::Alone | Spread::Around => {
                    let name = stage.spec.name;
                    return Err(Error::internal(format!("{name} stands in the middle")));
                }
            }
        }
        Ok(())
    }

    /// The parts of a stage, if it can be divided here.
    fn halves(&self, stage: &Written, of: HalvesOf) -> Option<Halves> {
        let counts = match stage.stages.as_slice() {
            [one] => one.counts(),
            _ => None,
        };
        of(&Whole {
            source: stage.source.as_doc().first()?,
            counts: counts.as_ref(),
            sorted: self.merge == Merge::Sorted,
        })
    }

    /// Gives one part of a stage to the shards, and the other one to the router.
    fn divide(&mut self, stage: &Written, halves: Halves) {
        self.merge = halves.merge;
        // A stage that gives its documents in an order gives them as they are. One that does not gives results.
        self.same = halves.merge == Merge::Sorted;
        if self.same {
            self.planned = false;
            self.pass(stage);
        }
        // Otherwise, the router's part of the stage is parsed with the same metadata as the stage.
        self.shards.push(halves.shards);
        self.router = halves.router;
    }

    /// Gives a stage to the shards.
    fn push(&mut self, stage: &Written) {
        self.shards.push(stage.source.clone());
        self.pass(stage);
        self.planned &= stage.stages.iter().all(Stage::is_planned);
    }

    /// Documents go through the stage before they come to the cut.
    fn pass(&mut self, stage: &Written) {
        let stages = stage.stages.iter();
        self.available = stages.fold(self.available, |m, s| s.metadata(m));
    }

    /// Gives stages to the router.
    fn rest(&mut self, stages: &[Written]) {
        self.router.extend(stages.iter().map(|w| w.source.clone()));
    }

    fn finish(mut self, ctx: &QueryContext, around: MetaSet) -> Result<Split> {
        let metadata = Metadata::beginning_with(self.available);
        let inner = QueryContext {
            metadata,
            ..ctx.clone().of_member()
        };
        let router: ArrayBuf = self.router.iter().collect();
        let pipeline = Pipeline::parse_part(router.as_doc(), &inner, self.planned)?;
        let mut carried = MetaSet::NONE;
        if self.same {
            // A pipeline inside a stage may ask for metadata of other documents.
            let around = around
                .kinds()
                .filter(|kind| Meta::parse(kind.name()).is_some());
            let asked = around.fold(pipeline.metadata(), MetaSet::with);
            carried = asked.both(self.available.that_may_be_asked());
            self.shards.extend(only(pipeline.needs()));
        }
        let tail = Tail {
            sorted: self.merge == Merge::Sorted,
            metadata: !carried.is_empty(),
        };
        if tail.sorted || tail.metadata {
            self.shards.push(to_router::stage(tail.sorted, carried));
        }
        Ok(Split {
            shards: self.shards.iter().collect(),
            merge: self.merge,
            router,
            pipeline,
            tail,
        })
    }
}

/// A `$project` to the fields that are read; `None` if whole documents are. It has whole fields only, because the
/// rules for arrays on a path are not the same in a projection and in a sort.
fn only(needs: Option<Vec<String>>) -> Option<DocBuf> {
    let mut fields = DocBuf::new();
    let paths = needs?;
    if !paths.iter().any(|p| head(p) == "_id") {
        fields.append("_id", 0);
    }
    for p in &paths {
        let name = head(p);
        if name.is_empty() || name.starts_with('$') {
            return None;
        }
        if fields.as_doc().get(name).is_none() {
            fields.append(name, 1);
        }
    }
    if paths.is_empty() {
        // A projection cannot name nothing.
        fields = doc! { "_id": 1 };
    }
    Some(doc! { "$project": fields })
}

/// The top-level field of a path.
fn head(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}
