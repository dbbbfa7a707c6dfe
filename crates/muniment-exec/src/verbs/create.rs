//! Creating collections. Collections and views share one name space, so both are created under one
//! lock.

use crate::database::Database;
use crate::moved_databases::check_database;
use crate::operation::{CatalogChange, OpContext};
use crate::source::Source;
use muniment_op::{Lock, Locked};
use muniment_storage::{Collection, CollectionOptions};
use muniment_value::{Code, Error, Result};
use std::sync::Arc;

/// Implements [`Database::create_collection`].
pub(crate) fn create_collection(
    engine: &Database,
    namespace: &str,
    options: CollectionOptions,
    op: &OpContext,
) -> Result<Arc<Collection>> {
    create_collection_as(engine, namespace, options, None, op)
}

/// Implements [`Database::create_collection_as`].
pub(crate) fn create_collection_as(
    engine: &Database,
    namespace: &str,
    options: CollectionOptions,
    uuid: Option<[u8; 16]>,
    op: &OpContext,
) -> Result<Arc<Collection>> {
    let names = lock_names(engine, op)?;
    check_database(&engine.store, op, namespace)?;
    let exists = |what: String| Err(Error::new(Code::NamespaceExists, what));
    match Source::now(&engine.store, namespace)? {
        Source::Generated(_) => {
            return exists(format!("Collection {namespace} already exists."));
        }
        Source::View(_) => {
            return exists(format!("A view already exists. NS: {namespace}"));
        }
        // If there is a stored collection, `begin_collection` reports it.
        Source::Collection(_) | Source::Buckets(_) | Source::Absent => {}
    }
    let store = &engine.store;
    let mut first = is_first(engine, op, namespace);
    let created = match op.transaction() {
        Some(t) => store.begin_collection_in(t, namespace, options, uuid, op),
        None => store.begin_collection(namespace, options, uuid, op),
    }?;
    // The record is durable only after `settle`. The names are unlocked before that, so that other
    // operations do not wait for this one's disk write.
    drop(names);
    first.note(op);
    op.note_change(|| CatalogChange::CreatedCollection(namespace.to_string()));
    store.settle(created)
}

/// The database that a new collection or view is the first one of.
pub(crate) struct First(Option<String>);

/// Whether a new collection or view will be the first one of its database. Only an audited operation
/// looks.
pub(crate) fn is_first(engine: &Database, op: &OpContext, namespace: &str) -> First {
    let (db, _) = namespace.split_once('.').unwrap_or((namespace, ""));
    let first = op.is_audited() && engine.store.collections(db).is_empty();
    First(first.then(|| db.to_string()))
}

impl First {
    /// Whether there is one.
    pub(crate) fn is(&self) -> bool {
        self.0.is_some()
    }

    /// Notes that the database has come into being.
    pub(crate) fn note(&mut self, op: &OpContext) {
        if let Some(db) = self.0.take() {
            op.note_change(|| CatalogChange::CreatedDatabase(db));
        }
    }
}

/// Keeps other operations from creating a collection or a view while this is held.
///
/// # Errors
/// The error that ends the operation while it waits.
pub(crate) fn lock_names<'e>(
    engine: &'e Database,
    op: &OpContext,
) -> Result<Locked<&'e Lock<()>, ()>> {
    engine.names.lock_for(op)
}
