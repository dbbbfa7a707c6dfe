//! Online index builds.

use crate::catalog::IndexSpec;
use crate::collection::Collection;
use crate::index::Index;
use crate::store::Store;
use muniment_query::Interrupt;
use muniment_value::{Code, Error, Result};
use std::sync::Arc;

impl Store {
    /// Builds an index online: writers go on and are seen. An identical index is returned as it
    /// is. (The caller has dealt with equal names and patterns: 85, 86.)
    ///
    /// # Errors
    /// 11000 DuplicateKey, 171, 67 (more than 64 indexes), whatever `interrupt` says.
    pub fn create_index(
        &self,
        collection: &Arc<Collection>,
        spec: IndexSpec,
        interrupt: &dyn Interrupt,
    ) -> Result<Arc<Index>> {
        let _ = (collection, spec, interrupt);
        Err(Error::new(Code::NotImplemented, "createIndexes: coming"))
    }

    /// Full check of a collection: every document parses, every index entry points to a document
    /// that has that key, every key of every document is in the index, counts agree. Returns
    /// what `validate` replies: `{nrecords, nIndexes, keysPerIndex, valid, errors, warnings,
    /// indexDetails, …}`.
    ///
    /// # Errors
    /// Only what keeps the check from running.
    pub fn validate(
        &self,
        collection: &Arc<Collection>,
        full: bool,
        interrupt: &dyn Interrupt,
    ) -> Result<muniment_value::DocBuf> {
        let _ = (collection, full, interrupt);
        Err(Error::new(Code::NotImplemented, "validate: coming"))
    }
}
