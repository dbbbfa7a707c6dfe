//! `count`.

use crate::engine::Engine;
use crate::find::Hint;
use crate::operation::OpContext;
use muniment_value::{Doc, Result};
use std::sync::Arc;

/// A `count` command's content.
#[derive(Clone, Debug)]
pub struct CountRequest<'a> {
    /// `db.collection`.
    pub namespace: &'a str,
    /// `query`.
    pub filter: Doc<'a>,
    /// Documents to skip.
    pub skip: u64,
    /// Most documents to count; 0 for no limit (a negative limit's absolute value).
    pub limit: u64,
    /// The hint.
    pub hint: Option<Hint<'a>>,
}

impl Engine {
    /// Counts. Without a filter this is the collection's exact counter; with one that an index
    /// answers alone, no document is read.
    ///
    /// # Errors
    /// As [`Engine::find`].
    pub fn count(&self, op: &Arc<OpContext>, request: &CountRequest<'_>) -> Result<u64> {
        let _ = (op, request);
        todo!()
    }
}
