//! Which set a database is in.

use super::{Router, SetPool};
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::Kind;
use muniment_value::{Code, Doc, Error, Result};
use std::sync::Arc;

/// The databases that are in the configuration's set.
pub const OF_CONFIG: [&str; 2] = ["admin", "config"];

/// The set that has a database. A command that writes has the database made if it is not there; one that reads then
/// goes to any shard, which has nothing of it.
///
/// # Errors
/// 70 ShardNotFound if there are no shards; 73 for the database `local`.
pub fn set_of(cx: &CommandContext<'_>, router: &Router, db: &str) -> Result<Arc<SetPool>> {
    located(cx, router, db, || bound(cx, router))
}

/// As [`set_of`], but a database that is not there yet is made on the shard that is this set.
///
/// # Errors
/// As [`set_of`].
pub fn set_beside(
    cx: &CommandContext<'_>,
    router: &Router,
    db: &str,
    set: &SetPool,
) -> Result<Arc<SetPool>> {
    located(cx, router, db, || shard_of(cx, router, set))
}

/// A shard with its name.
pub type Shard = (String, Arc<SetPool>);

/// As [`set_of`]; a database that is not there yet is made on the shard that `on` names.
fn located(
    cx: &CommandContext<'_>,
    router: &Router,
    db: &str,
    on: impl FnOnce() -> Result<Option<Shard>>,
) -> Result<Arc<SetPool>> {
    if OF_CONFIG.contains(&db) {
        if cx.generic.in_transaction() && !cx.spec.admin_only {
            return Err(namespace::not_in_transaction(db));
        }
        return Ok(Arc::clone(&router.config));
    }
    if db == "local" {
        return Err(Error::new(
            Code::InvalidNamespace,
            "the database local is that of each server, and not of a cluster: connect to the server itself",
        ));
    }
    if let Some(set) = router.catalog.known(db) {
        return Ok(set);
    }
    let writes = matches!(cx.spec.kind, Kind::Write | Kind::Ddl)
        || cx.spec.makes_collections
        || (cx.spec.writes_output)(cx.request.body);
    // What removes things makes no database.
    let removes = cx.spec.drops_collection || cx.spec.name == "dropDatabase";
    let on = on()?;
    let wanted = on.as_ref().map(|(name, _)| name.as_str());
    let creates = (writes && !removes).then_some(wanted);
    if let Some(set) = router.catalog.database(&**cx.op, router, db, creates)? {
        return Ok(set);
    }
    if let Some((_, set)) = on {
        return Ok(set);
    }
    let any = router.catalog.shards(&**cx.op, router)?.into_iter().next();
    any.map(|(_, set)| set)
        .ok_or_else(|| Error::new(Code::ShardNotFound, "No shards found"))
}

/// As [`set_of`], as the configuration has it now: another router may have moved the database. What changes or drops
/// something by where the database is has to begin with this, for the router's own commands name no versions, so a
/// shard that the database has left does not refuse them.
///
/// # Errors
/// As [`set_of`].
pub fn home_of(cx: &CommandContext<'_>, router: &Router, db: &str) -> Result<Arc<SetPool>> {
    router.catalog.forget_database(db);
    set_of(cx, router, db)
}

/// The first shard of the command's transaction: a database that is not there yet is looked for, and made, there.
fn bound(cx: &CommandContext<'_>, router: &Router) -> Result<Option<Shard>> {
    let session = cx.generic.session.filter(|_| cx.generic.in_transaction());
    let known = session
        .zip(cx.generic.txn_number)
        .filter(|_| cx.generic.start_transaction.is_none())
        .and_then(|id| router.transactions.of(&id));
    match known.as_ref().and_then(|known| known.coordinator()) {
        Some(set) => shard_of(cx, router, set),
        None => Ok(None),
    }
}

/// The shard that is this set, if it is one.
///
/// # Errors
/// Those of reading the configuration.
pub fn shard_of(cx: &CommandContext<'_>, router: &Router, set: &SetPool) -> Result<Option<Shard>> {
    let shards = router.catalog.shards(&**cx.op, router)?;
    let mut shards = shards.into_iter();
    Ok(shards.find(|(_, of)| of.name == set.name))
}

/// Refuses what would not be right on the set that the command goes to.
///
/// # Errors
/// 20 for what would take away what the cluster knows of itself.
pub fn check(cx: &CommandContext<'_>) -> Result<()> {
    let refused = |why: String| Err(Error::new(Code::IllegalOperation, why));
    let drops = cx.spec.drops_collection || cx.spec.name == "dropDatabase";
    if drops && cx.db() == "config" {
        return refused("the database config holds what the cluster knows of itself".to_string());
    }
    Ok(())
}

/// Whether a command runs a pipeline that is about the server which runs it: its operations or its sessions. (A view may
/// not have such a pipeline, and its shard says so.)
pub fn is_of_router(body: Doc<'_>) -> bool {
    let runs = body.first().is_some_and(|e| e.name() == "aggregate");
    runs && matches!(
        first_stage(body),
        "$currentOp" | "$listLocalSessions" | "$shardedDataDistribution"
    )
}

/// The name of the first stage of a command's pipeline; empty if it has none.
pub fn first_stage(body: Doc<'_>) -> &str {
    let stages = body.get_array("pipeline").unwrap_or(Doc::EMPTY);
    let first = stages.values().next().and_then(|v| v.as_doc()?.first());
    first.map_or("", |e| e.name())
}
