//! Which set a database is in.

use super::{Router, SetPool};
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::Kind;
use muniment_value::{Code, Doc, Error, Result, Value};
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
    let on = bound(cx, router)?;
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

/// The first shard of the command's transaction: a database that is not there yet is looked for, and made, there.
fn bound(cx: &CommandContext<'_>, router: &Router) -> Result<Option<(String, Arc<SetPool>)>> {
    let session = cx.generic.session.filter(|_| cx.generic.in_transaction());
    let known = session
        .zip(cx.generic.txn_number)
        .filter(|_| cx.generic.start_transaction.is_none())
        .and_then(|id| router.transactions.of(&id));
    let Some(set) = known.as_ref().and_then(|known| known.coordinator()) else {
        return Ok(None);
    };
    let shards = router.catalog.shards(&**cx.op, router)?;
    let mut shards = shards.into_iter();
    Ok(shards.find(|(_, of)| of.name == set.name))
}

/// Refuses what would not be right on the set that the command goes to.
///
/// # Errors
/// 20 for output on another shard, for streams of the whole cluster, and for what would take away what the cluster
/// knows of itself.
pub fn check(cx: &CommandContext<'_>, router: &Router, set: &SetPool) -> Result<()> {
    let refused = |why: String| Err(Error::new(Code::IllegalOperation, why));
    let body = cx.request.body;
    if (cx.spec.writes_output)(body)
        && let Some(target) = output_database(body)
        && target != cx.db()
        && set_of(cx, router, target)?.name != set.name
    {
        return refused(format!(
            "the output is to go to the database {target}, which is on another shard: that is not there yet"
        ));
    }
    // What writes goes to the primary anyway.
    let reads = cx.spec.kind == Kind::Read && !(cx.spec.writes_output)(body);
    if reads && asks_for_tags(body) {
        return refused(
            "a router goes by the mode of a read preference, and not by tags or maxStalenessSeconds yet"
                .to_string(),
        );
    }
    let drops = cx.spec.drops_collection || cx.spec.name == "dropDatabase";
    if drops && cx.db() == "config" {
        return refused("the database config holds what the cluster knows of itself".to_string());
    }
    if first_stage(body) == "$changeStream" && cx.db() == "admin" {
        return refused(
            "a change stream over all shards is not there yet: open it on a database".to_string(),
        );
    }
    Ok(())
}

/// Whether a pipeline is about the server that runs it: its operations or its sessions. So is `killOp`.
pub fn is_of_router(body: Doc<'_>) -> bool {
    matches!(first_stage(body), "$currentOp" | "$listLocalSessions")
}

fn first_stage(body: Doc<'_>) -> &str {
    let stages = body.get_array("pipeline").unwrap_or(Doc::EMPTY);
    let first = stages.values().next().and_then(|v| v.as_doc()?.first());
    first.map_or("", |e| e.name())
}

/// Whether the read preference wants more than a mode. A list with one empty document wants nothing.
fn asks_for_tags(body: Doc<'_>) -> bool {
    let Some(preference) = body.get_doc("$readPreference") else {
        return false;
    };
    let tags = preference.get_array("tags").unwrap_or(Doc::EMPTY);
    let is_tag = |v: Value<'_>| v.as_doc().is_some_and(|d| !d.is_empty());
    let stale = preference.get("maxStalenessSeconds");
    let stale = stale.and_then(|v| v.as_i64_exact()).unwrap_or(0);
    tags.values().any(is_tag) || stale > 0
}

/// The database that a pipeline or mapReduce writes to, if it names one.
fn output_database<'d>(body: Doc<'d>) -> Option<&'d str> {
    if let Some(out) = body.get_doc("out") {
        return out.get_str("db");
    }
    let last = body
        .get_array("pipeline")?
        .values()
        .last()?
        .as_doc()?
        .first()?;
    let operand = last.value().as_doc()?;
    match last.name() {
        "$out" => operand.get_str("db"),
        "$merge" => operand.get_doc("into")?.get_str("db"),
        _ => None,
    }
}
