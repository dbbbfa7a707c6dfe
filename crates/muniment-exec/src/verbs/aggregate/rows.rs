//! The sources of a pipeline's documents: a list of documents, or a plan.

use crate::run::current::CurrentOp;
use crate::run::exec::{Exec, into_bytes};
use bytes::Bytes;
use muniment_query::DocStream;
use muniment_storage::Collection;
use muniment_value::Result;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Documents that are in memory already.
pub(crate) struct Given(pub VecDeque<Bytes>);

impl DocStream for Given {
    fn next(&mut self) -> Result<Option<Bytes>> {
        Ok(self.0.pop_front())
    }
}

/// A plan as the source of a pipeline.
pub(crate) struct Rows {
    exec: Arc<Mutex<Exec>>,
    op: Arc<CurrentOp>,
}

impl Rows {
    /// The rows of `exec`, which releases its snapshot when the cursor of `op` idles.
    pub(crate) fn new(exec: Exec, op: &Arc<CurrentOp>) -> Rows {
        Rows::of(Arc::new(Mutex::new(exec)), op)
    }

    /// The same for a plan that the caller keeps for itself too, as explain does.
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
            // An empty document was deleted between the read of its index key and its fetch.
            if !doc.is_empty() {
                return Ok(Some(doc));
            }
        }
    }
}

/// An opened pipeline.
pub(crate) enum Opened {
    /// The plan does everything; there are no stages above it.
    Plan(Box<Exec>, Arc<Collection>),
    /// Stages on top of a source.
    Stream(Box<dyn DocStream>, Option<Arc<Collection>>),
}

impl Opened {
    /// The whole pipeline as a stream of documents.
    pub(crate) fn into_stream(self, op: &Arc<CurrentOp>) -> Box<dyn DocStream> {
        match self {
            Opened::Plan(exec, _) => Box::new(Rows::new(*exec, op)),
            Opened::Stream(stream, _) => stream,
        }
    }
}
