//! Commands that concern several databases.

use super::forward::{ask, reach};
use super::place::{OF_CONFIG, set_beside, set_of};
use super::relay::to;
use super::sharded::is_gone;
use super::sharded::{self, Repeats, is_stale};
use super::{Reach, Router};
use crate::auth::{self, User};
use crate::commands::renaming::{Renaming, renaming};
use crate::context::CommandContext;
use muniment_auth::action::Actions;
use muniment_auth::resource::Target as On;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, doc};
use muniment_wire::client;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `listDatabases`: those of all shards and of the configuration.
///
/// # Errors
/// The shards'.
pub fn list(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let seen = auth::seen(cx)?;
    let mut sets = vec![Arc::clone(&router.config)];
    let mut config_is_shard = false;
    for (_, set) in router.catalog.shards(&**cx.op, router)? {
        match set.name == router.config.name {
            true => config_is_shard = true,
            false => sets.push(set),
        }
    }
    let mut all: BTreeMap<String, DocBuf> = BTreeMap::new();
    let mut total = 0;
    for set in sets {
        let reply = ask(cx, router, &set, cx.request.body, Reach::Primary)?;
        let body = reply.body.as_doc();
        client::check_ok(body)?;
        let of_config = set.name == router.config.name;
        for d in body.get_array("databases").unwrap_or(Doc::EMPTY).values() {
            let Some(d) = d.as_doc() else { continue };
            let name = d.get_str("name").unwrap_or_default();
            // Each shard has these for itself.
            let is_shown = match OF_CONFIG.contains(&name) {
                true => of_config,
                false => name != "local" && (!of_config || config_is_shard),
            };
            if !is_shown {
                continue;
            }
            let hides = |user: &Arc<User>| !user.privileges.allows_within(name, &Actions::ALL);
            if seen.as_ref().is_some_and(hides) {
                continue;
            }
            if let Some(size) = d.get("sizeOnDisk").and_then(|v| v.as_i64_exact()) {
                total += size;
            }
            all.entry(name.to_string()).or_insert_with(|| d.to_buf());
        }
    }
    let databases: ArrayBuf = all.into_values().collect();
    cx.reply.field("databases", databases);
    if !cx.args.bool("nameOnly", false) {
        cx.reply.field("totalSize", total);
        cx.reply.field("totalSizeMb", total >> 20);
    }
    Ok(())
}

/// `listCollections`. A user that may not see all collections is shown those that it may do anything with.
///
/// # Errors
/// The set's; 1 if there are so many collections that the shard gives them in several batches.
pub fn list_collections(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let set = set_of(cx, router, cx.db())?;
    let user = auth::user_of(cx.server, cx.local);
    let user = user.filter(|_| cx.args.bool("authorizedCollections", false));
    let Some(user) = user else {
        return to(cx, router, &set);
    };
    let mut body = DocBuf::new();
    for e in cx.request.body {
        match e.name() {
            "cursor" => {}
            _ => {
                body.append_elem(e);
            }
        }
    }
    body.append("cursor", doc! { "batchSize": 1_000_000 });
    let reply = ask(cx, router, &set, body.as_doc(), reach(cx))?;
    client::check_ok(reply.body.as_doc())?;
    let cursor = reply.body.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
    if cursor.get("id").and_then(|v| v.as_i64_exact()) != Some(0) {
        return Err(Error::internal(
            "there are too many collections for one batch",
        ));
    }
    let mut batch = ArrayBuf::new();
    let all = cursor.get_array("firstBatch").unwrap_or(Doc::EMPTY);
    for d in all.values().filter_map(|v| v.as_doc()) {
        let name = d.get_str("name").unwrap_or_default();
        let on = On::Collection(cx.db(), name);
        if user.privileges.allows_any_of(&on, &Actions::ALL) {
            batch.push(d);
        }
    }
    let ns = cursor.get_str("ns").unwrap_or_default();
    cx.reply.field(
        "cursor",
        doc! { "id": 0_i64, "ns": ns, "firstBatch": batch },
    );
    Ok(())
}

/// `renameCollection`, which runs in admin and names both collections whole.
///
/// # Errors
/// Those of [`renaming`]; 20 if the two are on different shards; the shard's.
pub fn rename(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let request = renaming(cx)?;
    let dbs = [request.source_db(), request.db()];
    if dbs.iter().any(|db| OF_CONFIG.contains(db)) {
        return Err(Error::new(
            Code::IllegalOperation,
            "the databases admin and config hold what the cluster knows of itself",
        ));
    }
    let begun = cx.reply.buffer().len();
    let mut repeats = Repeats::new();
    loop {
        match renamed(cx, router, &request) {
            Err(e) if is_stale(&e) && !is_gone(&e) => {
                repeats.next(cx, router, cx.ns(), e)?;
                cx.reply.buffer().truncate(begun);
            }
            other => return other,
        }
    }
}

/// Renames a collection as the two are: known to the configuration or not. A database that is not there yet is made on
/// the shard of the collection.
fn renamed(cx: &mut CommandContext<'_>, router: &Router, request: &Renaming<'_>) -> Result<()> {
    for ns in [request.from, request.to] {
        if router.tables.of(&**cx.op, router, ns)?.is_some() {
            if sharded::rename::rename(cx, router, request)? {
                return Ok(());
            }
            break;
        }
    }
    let source = set_of(cx, router, request.source_db())?;
    if set_beside(cx, router, request.db(), &source)?.name != source.name {
        return Err(Error::new(
            Code::IllegalOperation,
            "Source and destination collections must be on same shard",
        ));
    }
    to(cx, router, &source)
}
