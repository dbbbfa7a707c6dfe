//! The aggregation stages. Each has a file with its SPEC, and a line in the sorted registry.
//!
//! Invariants: a stage pulls documents from its source and holds no more than necessary; a stage that must
//! see its whole input (`$sort`, `$group`) stays within [`Runtime::memory_limit`] or spills; every loop over
//! documents counts them with its [`Ticker`], which checks [`crate::Interrupt`] every so often.

pub mod accumulators;
mod add_fields;
mod bucket;
mod bucket_auto;
pub mod change_stream;
mod coll_stats;
mod count;
mod count_only;
mod current_op;
mod densify;
mod documents;
pub(crate) mod external;
mod facet;
mod fill;
mod fusion;
pub mod geo_near;
mod granularity;
mod graph_lookup;
mod group;
pub mod host;
pub(crate) mod idl;
mod index_stats;
mod limit;
mod list_catalog;
mod list_cluster_catalog;
mod list_sessions;
mod lookup;
mod match_;
pub mod merge;
pub mod out;
mod parts;
mod pipeline;
mod plan_cache_stats;
mod project;
mod query_settings;
mod redact;
mod registry;
mod replace_root;
pub(crate) mod report;
pub mod rights;
mod sample;
mod search;
mod sharded_data_distribution;
mod skip;
mod sort;
mod sort_by_count;
pub mod sorter;
mod spool;
pub mod spread;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod to_router;
mod top_k;
mod union_with;
mod unset;
mod unwind;
mod watch;
pub mod window;
mod write_stream;

pub use coll_stats::scale as coll_stats_scale;
pub use count_only::CountOnly;
pub use geo_near::GeoNear;
pub use pipeline::{Pipeline, check_target, check_update_stages};
pub use registry::{Input, Place, Position, Spec, Within, registry, rights as rights_of};
pub use search::indexes_refused as search_indexes_refused;
pub use watch::{Figures, Watched};

pub(crate) use pipeline::{Written, parse_update_pipeline, wanted, written};

use crate::context::Runtime;
use crate::filter::Filter;
use crate::meta::{self, MetaSet};
use crate::needs::Needs;
use crate::projection::Projection;
use crate::running::{Task, Work};
use crate::sort::SortSpec;
use bytes::Bytes;
use muniment_value::path::Path;
use muniment_value::{Doc, DocBuf, Error, Result};
use std::fmt::Debug;
use std::sync::Arc;

/// A stream of documents, from a storage scan or from a stage. Each item has the bytes of one complete
/// document; a scan returns slices of its blocks without copying. The document's metadata may follow it: see
/// [`crate::meta`].
pub trait DocStream: Send {
    /// The next document; `None` at the end.
    ///
    /// # Errors
    /// Everything that stops the stream.
    fn next(&mut self) -> Result<Option<Bytes>>;

    /// Appends the figures that only this kind of stage has. Called for streams that were opened with
    /// [`Runtime::watched`].
    fn tell(&self, _: &mut DocBuf) {}
}

/// A parsed stage. Those that the planner can include in its access plan have their own variants.
#[derive(Clone, Debug)]
pub enum Stage {
    /// `$match`.
    Match(Filter),
    /// `$project`.
    Project(Arc<Projection>),
    /// `$sort`.
    Sort(SortSpec),
    /// `$limit`.
    Limit(u64),
    /// `$skip`.
    Skip(u64),
    /// `$count` with the name of its field.
    Count(String),
    /// A stage that makes one document from one document.
    Map(Arc<dyn Transform>),
    /// Any other stage.
    Other(Arc<dyn StageOp>),
}

impl Stage {
    /// True for a stage that the planner runs if it stands in front.
    pub(crate) fn is_planned(&self) -> bool {
        matches!(
            self,
            Stage::Match(_) | Stage::Sort(_) | Stage::Skip(_) | Stage::Limit(_)
        )
    }

    /// What the stage makes of a number, if it only counts its documents.
    pub(crate) fn counts(&self) -> Option<CountOnly> {
        match self {
            Stage::Count(name) => Some(CountOnly {
                id: None,
                fields: vec![name.clone()],
            }),
            Stage::Other(op) => op.counts(),
            _ => None,
        }
    }

    /// As [`StageOp::metadata`].
    pub(crate) fn metadata(&self, before: MetaSet) -> MetaSet {
        match self {
            Stage::Match(f) => before.and(f.metadata()),
            Stage::Count(_) => MetaSet::NONE,
            Stage::Other(op) => op.metadata(before),
            _ => before,
        }
    }
}

/// A stage with a file of its own.
pub trait StageOp: Debug + Send + Sync {
    /// Opens the stage on top of `source`. A pipeline inside another one may be opened many times.
    ///
    /// # Errors
    /// Those of opening.
    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>>;

    /// As [`StageOp::open`], if this stage and the later ones only read the paths `needs` of the input
    /// (`None`: whole documents).
    ///
    /// # Errors
    /// Those of opening.
    fn open_for(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
        needs: Option<Vec<String>>,
    ) -> Result<Box<dyn DocStream>> {
        let _ = needs;
        self.open(source, rt)
    }

    /// Adds the fields that the stage reads from its input. True means that nothing else of the input reaches
    /// the later stages. The default is that the stage needs whole documents.
    fn needs(&self, needs: &mut Needs) -> bool {
        needs.whole();
        true
    }

    /// Called if only stages that the planner runs stand before the stage in a command's pipeline. `followed`
    /// says whether another stage takes its documents.
    fn comes_first(&mut self, followed: bool) {
        let _ = followed;
    }

    /// If the stage is a `$group` with a constant `_id` that only counts: that `_id` and the names of its
    /// fields. Such a stage can be answered from a count.
    fn counts(&self) -> Option<CountOnly> {
        None
    }

    /// Whether the stage can change a value at or below `path`, or whether that value can determine which
    /// documents the stage returns. If not, a `$match` on the path may run before it. The default is that it
    /// can.
    fn changes(&self, path: &str) -> bool {
        let _ = path;
        true
    }

    /// This stage with the next one merged into it, if that saves work.
    fn absorb(&self, next: &Stage) -> Option<Arc<dyn StageOp>> {
        let _ = next;
        None
    }

    /// The path and the options, if this is a `$unwind`.
    fn as_unwind(&self) -> Option<(&Path, lookup::Unwound)> {
        None
    }

    /// True for a stage that begins a pipeline and does not read a collection. It is opened on an empty
    /// stream.
    fn is_source(&self) -> bool {
        false
    }

    /// The error of a source that cannot read a time-series collection.
    fn refuses_time_series(&self) -> Option<Error> {
        None
    }

    /// Makes the checks of opening, without the stage's effects. For explain.
    ///
    /// # Errors
    /// As [`StageOp::open`].
    fn check(&self, rt: &Runtime) -> Result<()> {
        let _ = rt;
        Ok(())
    }

    /// The metadata that documents can have after the stage if they can have `before` before it. A stage that
    /// makes new documents from several ones returns none.
    fn metadata(&self, before: MetaSet) -> MetaSet {
        before
    }

    /// True for a stage that writes.
    fn writes(&self) -> bool {
        false
    }
}

/// A stage that makes one document from one document. A pipeline update may consist of such stages.
pub trait Transform: Debug + Send + Sync {
    /// Appends the document for `doc` to `out`.
    ///
    /// # Errors
    /// Those of the stage's expressions.
    fn transform(&self, doc: Doc<'_>, out: &mut Vec<u8>, work: Work<'_>) -> Result<()>;

    /// As [`StageOp::needs`].
    fn needs(&self, needs: &mut Needs) -> bool {
        needs.whole();
        true
    }

    /// Whether a value at or below `path` can change.
    fn may_touch(&self, path: &str) -> bool {
        let _ = path;
        true
    }
}

/// What a stage works for; it counts the documents.
pub(crate) struct Ticker(Task);

impl Ticker {
    pub(crate) fn new(rt: &Runtime) -> Ticker {
        Ticker(Task::of(Arc::clone(&rt.interrupt)))
    }

    /// One more document.
    #[inline]
    pub(crate) fn tick(&self) -> Result<()> {
        self.0.work().tick()
    }

    /// What is done with one document.
    #[inline]
    pub(crate) fn work(&self) -> Work<'_> {
        self.0.work()
    }

    /// The same for an accumulator.
    pub(crate) fn task(&self) -> &Task {
        &self.0
    }
}

/// A transform as a stream.
pub(crate) struct MapStream {
    pub source: Box<dyn DocStream>,
    pub map: Arc<dyn Transform>,
    pub ticker: Ticker,
}

impl DocStream for MapStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        self.ticker.tick()?;
        let Some(doc) = self.source.next()? else {
            return Ok(None);
        };
        let mut out = Vec::with_capacity(doc.len() + 32);
        let doc = Doc::new(&doc);
        self.map.transform(doc, &mut out, self.ticker.work())?;
        check_size(out.len())?;
        meta::carry(doc, &mut out);
        Ok(Some(out.into()))
    }
}

/// The documents of a stream after the first `n`.
pub(crate) fn skipped(source: Box<dyn DocStream>, n: u64, rt: &Runtime) -> Box<dyn DocStream> {
    Box::new(skip::SkipStream::new(source, n, rt))
}

/// The first `n` documents of a stream.
pub(crate) fn limited(source: Box<dyn DocStream>, n: u64) -> Box<dyn DocStream> {
    Box::new(limit::LimitStream::new(source, n))
}

/// The greatest size of a pipeline's result, which may be a little larger than a stored document.
const MAX_RESULT: usize = crate::bytes::MAX_DOCUMENT + 16 * 1024;

/// The greatest size of a document between stages. It may be larger, because a later stage may make it small
/// again. The limit is a little more than an accumulator may gather.
const MAX_INTERNAL: usize = 128 << 20;

/// Fails with 10334 if a pipeline's result is larger than a document may be.
///
/// # Errors
/// See above.
pub fn check_result_size(bytes: usize) -> Result<()> {
    match bytes > MAX_RESULT {
        true => Err(too_large(bytes)),
        false => Ok(()),
    }
}

/// Fails with 10334 if a computed document is larger than any document may be.
pub(crate) fn check_size(bytes: usize) -> Result<()> {
    match bytes > MAX_INTERNAL {
        true => Err(too_large(bytes)),
        false => Ok(()),
    }
}

fn too_large(bytes: usize) -> muniment_value::Error {
    muniment_value::Error::new(
        muniment_value::Code::BSONObjectTooLarge,
        format!(
            "BSONObj size: {bytes} ({bytes:#X}) is invalid. Size must be between 0 and \
             {MAX_RESULT}(16MB)"
        ),
    )
}
