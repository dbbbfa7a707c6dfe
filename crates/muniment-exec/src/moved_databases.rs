//! Databases whose collections have gone to another shard, with all that will be made in them.
//!
//! A router that does not know of that yet must not make collections here, nor find that there are none. The shard keeps
//! the names of such databases in a collection, which goes to all members of its set.

use crate::operation::OpContext;
use muniment_shard::Timestamp;
use muniment_storage::Store;
use muniment_value::{Code, Doc, Error, Result, Value, doc};

/// The collection: `{_id: <database>, left: <bool>, at: <timestamp>}`. It also has the databases that have come back, so
/// that a message which comes late is known as such.
pub(crate) const MOVED: &str = "config.movedDatabases";

/// The time of the right by which that was said.
pub(crate) fn said_at(stored: &[u8]) -> Timestamp {
    match Doc::new(stored).get("at") {
        Some(Value::Timestamp { t, i }) => Timestamp::new(t, i),
        _ => Timestamp::default(),
    }
}

/// Whether a database has gone to another shard.
pub(crate) fn has_left(store: &Store, db: &str) -> Result<bool> {
    let left = |doc: &[u8]| Doc::new(doc).get("left").is_some_and(|v| v.truthy());
    said_of(store, db, left)
}

/// Whether a router has said whether a database has gone, by a right later than this.
pub(crate) fn is_said_after(store: &Store, db: &str, at: Timestamp) -> Result<bool> {
    said_of(store, db, |doc| said_at(doc) > at)
}

fn said_of(store: &Store, db: &str, is_so: impl FnOnce(&[u8]) -> bool) -> Result<bool> {
    let Some(collection) = store.collection(MOVED) else {
        return Ok(false);
    };
    let found = store.glance()?.find_by_id(&collection, Value::String(db))?;
    Ok(found.is_some_and(|(_, doc)| is_so(&doc)))
}

/// Refuses an operation of a router on a name whose database has gone to another shard.
///
/// # Errors
/// 13388 StaleConfig, which names the database under `db`.
pub fn check_database(store: &Store, op: &OpContext, namespace: &str) -> Result<()> {
    if !op.is_of_router() {
        return Ok(());
    }
    let (db, _) = namespace.split_once('.').unwrap_or((namespace, ""));
    match has_left(store, db)? {
        false => Ok(()),
        true => Err(Error::new(
            Code::StaleConfig,
            format!("the database {db} is on another shard"),
        )
        .with_extra(doc! { "db": db })),
    }
}
