//! The state that all stages of one command share.

use super::request::AggregateRequest;
use crate::database::Database;
use crate::run::current::CurrentOp;
use crate::source::{Source, stored};
use muniment_query::{QueryContext, Runtime};
use muniment_storage::Collection;
use muniment_value::{Error, Result};
use std::sync::Arc;

/// The state that all stages of one command share.
#[derive(Clone)]
pub(crate) struct Link {
    pub engine: Arc<Database>,
    pub op: Arc<CurrentOp>,
    pub allow_disk_use: Option<bool>,
    pub bypass_validation: bool,
}

impl Link {
    pub(crate) fn new(
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

    /// What the query crate needs to run the stages.
    pub(crate) fn runtime(&self) -> Result<Runtime> {
        let limits = self.engine.sort_limits(self.allow_disk_use);
        Ok(Runtime {
            interrupt: self.op.clone(),
            memory_limit: limits.memory,
            ledger: limits.ledger,
            scratch: limits.scratch,
            host: Arc::new(self.clone()),
            watched: false,
        })
    }

    /// The collection of a pipeline, if a stored one has its name.
    ///
    /// # Errors
    /// Those of [`Source::resolve`].
    pub(crate) fn collection(&self, ctx: &QueryContext) -> Result<Option<Arc<Collection>>> {
        let namespace = format!("{}.{}", ctx.db, ctx.collection);
        stored(&self.engine.store, &self.op.get(), &namespace)
    }

    /// Resolves the collection that a pipeline reads.
    ///
    /// # Errors
    /// Those of [`Source::resolve`].
    pub(crate) fn source(&self, ctx: &QueryContext) -> Result<Source> {
        let namespace = format!("{}.{}", ctx.db, ctx.collection);
        Source::resolve(&self.engine.store, &self.op.get(), &namespace)
    }
}
