//! Aggregation stages: each one file with its SPEC, one line in the sorted registry.
//!
//! Invariants: a stage pulls from the one below it and holds no more than it must; what has to
//! see its whole input (`$sort`, `$group`) stays within [`Runtime::memory_limit`] or spills; every
//! loop over documents asks [`crate::Interrupt`] every [`CHECK_EVERY`] documents.

pub mod accumulators;
mod add_fields;
mod bucket;
mod bucket_auto;
pub mod change_stream;
mod coll_stats;
mod count;
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
mod pipeline;
mod plan_cache_stats;
mod project;
mod query_settings;
mod redact;
mod registry;
mod replace_root;
pub(crate) mod report;
mod sample;
mod search;
mod skip;
mod sort;
mod sort_by_count;
pub mod sorter;
mod spool;
#[cfg(test)]
pub(crate) mod testing;
mod top_k;
mod union_with;
mod unset;
mod unwind;
mod watch;
pub mod window;
mod write_stream;

pub use coll_stats::scale as coll_stats_scale;
pub use geo_near::GeoNear;
pub use pipeline::{CountOnly, Pipeline, check_target, check_update_stages};
pub use registry::{Input, Place, Position, Spec, Within, registry};
pub use search::indexes_refused as search_indexes_refused;
pub use watch::{Figures, Watched};

pub(crate) use pipeline::parse_update_pipeline;

use crate::context::Runtime;
use crate::filter::Filter;
use crate::meta::{self, MetaSet};
use crate::needs::Needs;
use crate::projection::Projection;
use crate::sort::SortSpec;
use bytes::Bytes;
use muniment_value::path::Path;
use muniment_value::{Doc, DocBuf, Error, Result};
use std::fmt::Debug;
use std::sync::Arc;

/// How many documents pass between two looks at the interrupt.
pub(crate) const CHECK_EVERY: u32 = 128;

/// A stream of documents: what storage scans give and stages transform. The bytes are one
/// complete document each; a scan hands out slices of its blocks without copying. After it may
/// stand its metadata: see [`crate::meta`].
pub trait DocStream: Send {
    /// The next document; `None` at the end.
    ///
    /// # Errors
    /// Whatever stops the stream.
    fn next(&mut self) -> Result<Option<Bytes>>;

    /// Appends what it has done beyond what every stage tells, of those that were opened with
    /// [`Runtime::watched`].
    fn tell(&self, _: &mut DocBuf) {}
}

/// A parsed stage. Those that the planner may push into its access plan stand in the open.
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
    /// A stage that makes one document of one.
    Map(Arc<dyn Transform>),
    /// Any other.
    Other(Arc<dyn StageOp>),
}

impl Stage {
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

/// A stage that is a file of its own.
pub trait StageOp: Debug + Send + Sync {
    /// Puts the stage on top of `source`. A pipeline inside another may be opened many times.
    ///
    /// # Errors
    /// What opening it raises.
    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>>;

    /// As [`StageOp::open`], where this stage and those after it read only the paths `needs` of
    /// the input (`None`: whole documents).
    ///
    /// # Errors
    /// What opening it raises.
    fn open_for(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
        needs: Option<Vec<String>>,
    ) -> Result<Box<dyn DocStream>> {
        let _ = needs;
        self.open(source, rt)
    }

    /// Adds the fields that the stage reads of its input. True: nothing else of the input reaches
    /// the stages after it. A stage that says nothing needs whole documents.
    fn needs(&self, needs: &mut Needs) -> bool {
        needs.whole();
        true
    }

    /// Called when nothing but what the planner does stands before the stage in a command's
    /// pipeline; `followed`: another stage takes what this one gives.
    fn comes_first(&mut self, followed: bool) {
        let _ = followed;
    }

    /// The constant `_id` and the names of the fields that only count, when the stage is a
    /// `$group` of that shape: it can be answered from a count.
    fn counts(&self) -> Option<CountOnly> {
        None
    }

    /// Whether the stage can change a value at or below `path`, or documents' being there because
    /// of it: a `$match` on other paths may run before it. A stage that says nothing can.
    fn changes(&self, path: &str) -> bool {
        let _ = path;
        true
    }

    /// This stage with the next one in it, when that saves work.
    fn absorb(&self, next: &Stage) -> Option<Arc<dyn StageOp>> {
        let _ = next;
        None
    }

    /// The path and the options of a `$unwind`.
    fn as_unwind(&self) -> Option<(&Path, lookup::Unwound)> {
        None
    }

    /// True for a stage that begins a pipeline and reads no collection: it is opened on an empty
    /// stream.
    fn is_source(&self) -> bool {
        false
    }

    /// The error when the stage is a source that cannot read a time-series collection.
    fn refuses_time_series(&self) -> Option<Error> {
        None
    }

    /// Checks what opening would, without the stage's effects: for explain.
    ///
    /// # Errors
    /// As [`StageOp::open`].
    fn check(&self, rt: &Runtime) -> Result<()> {
        let _ = rt;
        Ok(())
    }

    /// Which metadata documents can have after the stage when they can have `before` in front
    /// of it. A stage that makes new documents of several says none.
    fn metadata(&self, before: MetaSet) -> MetaSet {
        before
    }

    /// True for a stage that writes.
    fn writes(&self) -> bool {
        false
    }
}

/// A stage that makes one document of one document: what a pipeline update may consist of.
pub trait Transform: Debug + Send + Sync {
    /// Appends what becomes of `doc` to `out`.
    ///
    /// # Errors
    /// What the stage's expressions raise.
    fn transform(&self, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<()>;

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

/// Looks at the interrupt every [`CHECK_EVERY`] calls.
pub(crate) struct Ticker {
    interrupt: Arc<dyn crate::Interrupt>,
    n: u32,
}

impl Ticker {
    pub(crate) fn new(rt: &Runtime) -> Ticker {
        Ticker {
            interrupt: Arc::clone(&rt.interrupt),
            n: 0,
        }
    }

    #[inline]
    pub(crate) fn tick(&mut self) -> Result<()> {
        self.n += 1;
        if self.n >= CHECK_EVERY {
            self.n = 0;
            self.interrupt.check()?;
        }
        Ok(())
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
        self.map.transform(doc, &mut out)?;
        check_size(out.len())?;
        meta::carry(doc, &mut out);
        Ok(Some(out.into()))
    }
}

/// What a pipeline gives may be a little larger than what is stored.
const MAX_RESULT: usize = crate::bytes::MAX_DOCUMENT + 16 * 1024;

/// What a stage hands on may be larger still: a later stage may make it small again. Somewhat more than
/// an accumulator may gather.
const MAX_INTERNAL: usize = 128 << 20;

/// 10334 when a pipeline's result is larger than a document may be.
///
/// # Errors
/// See above.
pub fn check_result_size(bytes: usize) -> Result<()> {
    match bytes > MAX_RESULT {
        true => Err(too_large(bytes)),
        false => Ok(()),
    }
}

/// 10334 when a computed document is larger than any may be.
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
