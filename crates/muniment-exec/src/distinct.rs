//! `distinct`.

use crate::engine::Engine;
use crate::find::Hint;
use crate::operation::OpContext;
use muniment_value::{ArrayBuf, Doc, Result};
use std::sync::Arc;

/// A `distinct` command's content.
#[derive(Clone, Debug)]
pub struct DistinctRequest<'a> {
    /// `db.collection`.
    pub namespace: &'a str,
    /// The dotted path.
    pub key: &'a str,
    /// `query`.
    pub filter: Doc<'a>,
    /// The hint.
    pub hint: Option<Hint<'a>>,
}

impl Engine {
    /// The distinct values at a path: arrays count by their elements, numbers by value.
    ///
    /// # Errors
    /// As [`Engine::find`]; 17217 "distinct too big, 16mb cap".
    pub fn distinct(&self, op: &Arc<OpContext>, request: &DistinctRequest<'_>) -> Result<ArrayBuf> {
        let _ = (op, request);
        todo!()
    }
}
