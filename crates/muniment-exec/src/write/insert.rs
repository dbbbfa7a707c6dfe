//! Inserts.

use super::bulk::BulkOutcome;
use crate::engine::Engine;
use crate::operation::OpContext;
use muniment_value::{Doc, Result};
use std::sync::Arc;

/// Options of an insert command.
#[derive(Clone, Copy, Debug)]
pub struct InsertOptions {
    /// Stop at the first error.
    pub ordered: bool,
    /// Skip the collection's validator.
    pub bypass_document_validation: bool,
    /// Keep `Timestamp(0, 0)` as it is (mongorestore).
    pub bypass_empty_ts_replacement: bool,
}

impl Default for InsertOptions {
    fn default() -> InsertOptions {
        InsertOptions {
            ordered: true,
            bypass_document_validation: false,
            bypass_empty_ts_replacement: false,
        }
    }
}

impl Engine {
    /// Inserts documents (validated BSON), creating the collection if it is not there. A missing
    /// `_id` is made, and `_id` is moved to the front. Documents become visible in slices of
    /// bounded size.
    ///
    /// # Errors
    /// Only what concerns the whole command (73 InvalidNamespace, interrupts, a full disk before
    /// anything was written); a document's own error is in the outcome.
    pub fn insert_many<'d>(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        docs: &mut dyn Iterator<Item = Doc<'d>>,
        options: InsertOptions,
    ) -> Result<BulkOutcome> {
        let _ = (op, namespace, docs, options);
        todo!()
    }
}
