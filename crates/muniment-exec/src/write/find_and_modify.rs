//! `findAndModify`.

use crate::engine::Engine;
use crate::find::Hint;
use crate::operation::OpContext;
use bytes::Bytes;
use muniment_storage::CommitId;
use muniment_value::{Doc, DocBuf, Result, Value, ValueBuf};
use std::sync::Arc;

/// A `findAndModify` command's content.
#[derive(Clone, Debug)]
pub struct FindAndModifyRequest<'a> {
    /// `db.collection`.
    pub namespace: &'a str,
    /// `query`.
    pub filter: Doc<'a>,
    /// `sort`; empty for none.
    pub sort: Doc<'a>,
    /// Remove instead of updating.
    pub remove: bool,
    /// The update.
    pub update: Option<Value<'a>>,
    /// Return the new document.
    pub new: bool,
    /// The projection of the returned document; empty for none.
    pub fields: Doc<'a>,
    /// Insert when nothing matches.
    pub upsert: bool,
    /// `arrayFilters`; empty for none.
    pub array_filters: Doc<'a>,
    /// The hint.
    pub hint: Option<Hint<'a>>,
    /// The command's `let`.
    pub let_: Doc<'a>,
    /// Skip the collection's validator.
    pub bypass_document_validation: bool,
}

/// What it did.
#[derive(Clone, Debug, Default)]
pub struct FindAndModifyOutcome {
    /// The reply's `value`: `None` is null.
    pub value: Option<Bytes>,
    /// `lastErrorObject.n`.
    pub n: u64,
    /// `lastErrorObject.updatedExisting` (absent for remove).
    pub updated_existing: Option<bool>,
    /// `lastErrorObject.upserted`.
    pub upserted: Option<ValueBuf>,
    /// For `j: true`.
    pub commit: Option<CommitId>,
}

impl FindAndModifyOutcome {
    /// The reply without `ok`: `{lastErrorObject: {n, updatedExisting, upserted}, value}`.
    pub fn to_doc(&self) -> DocBuf {
        todo!()
    }
}

impl Engine {
    /// Runs a findAndModify.
    ///
    /// # Errors
    /// 9 FailedToParse for contradicting options; the update's own; 11000 with keyPattern and
    /// keyValue.
    pub fn find_and_modify(
        &self,
        op: &Arc<OpContext>,
        request: &FindAndModifyRequest<'_>,
    ) -> Result<FindAndModifyOutcome> {
        let _ = (op, request);
        todo!()
    }
}
