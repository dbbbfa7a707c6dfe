//! The common code of the stages that begin a pipeline with documents about the server, the database or a
//! collection. Their operand is checked when it is parsed; the documents come from
//! [`super::host::Host::figures`].

use super::{DocStream, Stage, StageOp};
use crate::context::{QueryContext, Runtime};
use bytes::Bytes;
use muniment_value::{Doc, DocBuf, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// A stage whose documents the host makes.
#[derive(Debug)]
struct Report {
    stage: &'static str,
    operand: DocBuf,
    ctx: QueryContext,
}

/// The stage `name` with a checked operand.
pub(crate) fn stage(name: &'static str, operand: Doc<'_>, ctx: &QueryContext) -> Stage {
    Stage::Other(Arc::new(Report {
        stage: name,
        operand: operand.to_buf(),
        ctx: ctx.clone(),
    }))
}

impl StageOp for Report {
    fn open(self: Arc<Self>, _: Box<dyn DocStream>, rt: &Runtime) -> Result<Box<dyn DocStream>> {
        let docs = rt
            .host
            .figures(self.stage, self.operand.as_doc(), &self.ctx)?;
        Ok(Box::new(Documents(docs.into())))
    }

    fn is_source(&self) -> bool {
        true
    }
}

/// A stream of documents in memory.
pub(crate) struct Documents(pub VecDeque<Bytes>);

impl DocStream for Documents {
    fn next(&mut self) -> Result<Option<Bytes>> {
        Ok(self.0.pop_front())
    }
}
