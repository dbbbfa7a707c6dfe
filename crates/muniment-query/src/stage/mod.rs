//! Aggregation stages: each one file with its SPEC, one line in the sorted registry.

use crate::context::{QueryContext, Runtime};
use bytes::Bytes;
use muniment_value::{Doc, Result};
use std::fmt::Debug;
use std::sync::Arc;

/// A stream of documents: what storage scans give and stages transform. The bytes are one
/// complete document each; a scan hands out slices of its blocks without copying.
pub trait DocStream: Send {
    /// The next document; `None` at the end.
    ///
    /// # Errors
    /// Whatever stops the stream.
    fn next(&mut self) -> Result<Option<Bytes>>;
}

/// A parsed pipeline.
pub struct Pipeline {
    _private: (),
}

impl Pipeline {
    /// Parses the `pipeline` array.
    ///
    /// # Errors
    /// 40324 "Unrecognized pipeline stage name: '$x'" and the stages' own.
    pub fn parse(stages: Doc<'_>, ctx: &QueryContext) -> Result<Pipeline> {
        let _ = (stages, ctx);
        todo!()
    }

    /// Puts the stages on top of `source`.
    ///
    /// # Errors
    /// What opening a stage raises.
    pub fn open(self, source: Box<dyn DocStream>, rt: &Runtime) -> Result<Box<dyn DocStream>> {
        let _ = (source, rt);
        todo!()
    }
}

/// A stage that makes one document of one document: what a pipeline update may consist of.
pub trait Transform: Debug + Send + Sync {
    /// Appends what becomes of `doc` to `out`.
    ///
    /// # Errors
    /// What the stage's expressions raise.
    fn transform(&self, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<()>;

    /// Whether a value at or below `path` can change.
    fn may_touch(&self, path: &str) -> bool {
        let _ = path;
        true
    }
}

/// Parses the stages of a pipeline update.
///
/// # Errors
/// 72 InvalidOptions for a stage that an update may not have.
pub(crate) fn parse_update_pipeline(
    stages: Doc<'_>,
    ctx: &QueryContext,
) -> Result<Vec<Arc<dyn Transform>>> {
    let _ = (stages, ctx);
    todo!()
}
