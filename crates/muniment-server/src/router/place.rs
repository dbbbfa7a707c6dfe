//! Which set a database is in.

use super::{Router, SetPool};
use crate::context::CommandContext;
use crate::registry::Kind;
use muniment_value::{Code, Error, Result};
use std::sync::Arc;

/// The databases that are in the configuration's set.
pub const OF_CONFIG: [&str; 2] = ["admin", "config"];

/// The set that has a database. A command that writes has the database made if it is not there; one that reads then
/// goes to any shard, which has nothing of it.
///
/// # Errors
/// 70 ShardNotFound if there are no shards; 73 for the database `local`.
pub fn set_of(cx: &CommandContext<'_>, router: &Router, db: &str) -> Result<Arc<SetPool>> {
    if OF_CONFIG.contains(&db) {
        return Ok(Arc::clone(&router.config));
    }
    if db == "local" {
        return Err(Error::new(
            Code::InvalidNamespace,
            "the database local is that of each server, and not of a cluster: connect to the server itself",
        ));
    }
    let writes = matches!(cx.spec.kind, Kind::Write | Kind::Ddl)
        || cx.spec.makes_collections
        || (cx.spec.writes_output)(cx.request.body);
    let creates = writes.then_some(None);
    if let Some(set) = router.catalog.database(&**cx.op, router, db, creates)? {
        return Ok(set);
    }
    let any = router.catalog.shards(&**cx.op, router)?.into_iter().next();
    any.map(|(_, set)| set)
        .ok_or_else(|| Error::new(Code::ShardNotFound, "No shards found"))
}
