//! Databases whose collections have gone to another shard, with all that will be made in them.
//!
//! A router that does not know of that yet must not make collections here, nor find that there are none. The shard keeps
//! the names of such databases in a collection, which goes to all members of its set.

use crate::operation::OpContext;
use muniment_storage::Store;
use muniment_value::{Code, Error, Result, Value, doc};

/// The collection: `{_id: <database>}`.
pub(crate) const MOVED: &str = "config.movedDatabases";

/// Refuses an operation of a router on a name whose database has gone to another shard.
///
/// # Errors
/// 13388 StaleConfig, which names the database under `db`.
pub fn check_database(store: &Store, op: &OpContext, namespace: &str) -> Result<()> {
    if !op.is_of_router() {
        return Ok(());
    }
    let (db, _) = namespace.split_once('.').unwrap_or((namespace, ""));
    let Some(collection) = store.collection(MOVED) else {
        return Ok(());
    };
    match store.glance()?.find_by_id(&collection, Value::String(db))? {
        None => Ok(()),
        Some(_) => Err(Error::new(
            Code::StaleConfig,
            format!("the database {db} is on another shard"),
        )
        .with_extra(doc! { "db": db })),
    }
}
