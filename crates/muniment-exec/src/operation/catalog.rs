//! The changes of the catalog that an operation has made, for the audit log of the server around it.

use super::OpContext;
use muniment_value::{ArrayBuf, DocBuf};

/// One change of the catalog. It has been made, whether or not the operation succeeds in the end.
#[derive(Clone, Debug, PartialEq)]
pub enum CatalogChange {
    /// The first collection or view of a database was created.
    CreatedDatabase(String),
    /// A collection was created.
    CreatedCollection(String),
    /// A view was created.
    CreatedView {
        /// Its namespace.
        namespace: String,
        /// The collection or view that it shows.
        on: String,
        /// Its pipeline.
        pipeline: ArrayBuf,
    },
    /// An index was built.
    CreatedIndex {
        /// The namespace of its collection.
        namespace: String,
        /// Its name.
        name: String,
        /// Its specification.
        spec: DocBuf,
    },
    /// An index was dropped.
    DroppedIndex {
        /// The namespace of its collection.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A collection or a view was dropped.
    DroppedCollection(String),
    /// All that a database had was dropped.
    DroppedDatabase(String),
    /// A collection has got another name.
    Renamed {
        /// Its namespace until then.
        from: String,
        /// Its namespace from then on.
        to: String,
    },
}

impl OpContext {
    /// Whether the operation has to note the changes of the catalog that it makes.
    pub fn is_audited(&self) -> bool {
        self.catalog.is_some()
    }

    /// Notes a change of the catalog, if the operation is audited.
    pub fn note_change(&self, change: impl FnOnce() -> CatalogChange) {
        if let Some(catalog) = &self.catalog {
            catalog.lock().push(change());
        }
    }

    /// The noted changes, each of which is returned once.
    pub fn take_changes(&self) -> Vec<CatalogChange> {
        let taken = |catalog: &parking_lot::Mutex<Vec<_>>| std::mem::take(&mut *catalog.lock());
        self.catalog.as_ref().map(taken).unwrap_or_default()
    }
}
