//! Which set a database is in.

use super::{Router, SetPool};
use crate::context::CommandContext;
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
    let drops = cx.spec.drops_collection || cx.spec.name == "dropDatabase";
    if drops && cx.db() == "config" {
        return refused("the database config holds what the cluster knows of itself".to_string());
    }
    let stages = body.get_array("pipeline").unwrap_or(Doc::EMPTY);
    let first = stages.values().next().and_then(|v| v.as_doc()?.first());
    let first = first.map_or("", |e| e.name());
    let of_all = first == "$changeStream" && cx.db() == "admin";
    if of_all || matches!(first, "$currentOp" | "$listLocalSessions") {
        return refused(format!(
            "{first} over all shards is not there yet: open it on a database, or on a shard"
        ));
    }
    Ok(())
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
