//! Commands that concern several databases.

use super::forward::{ask, reach};
use super::place::{OF_CONFIG, set_of};
use super::relay::to;
use super::{Reach, Router};
use crate::auth::{self, User};
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
    for (_, set) in router.catalog.shards(&**cx.op, router)? {
        if set.name != router.config.name {
            sets.push(set);
        }
    }
    let mut all: BTreeMap<String, DocBuf> = BTreeMap::new();
    let (mut total, mut has_sizes) = (0, false);
    for set in sets {
        let reply = ask(cx, router, &set, cx.request.body, Reach::Primary)?;
        let body = reply.body.as_doc();
        client::check_ok(body)?;
        let of_config = set.name == router.config.name;
        for d in body.get_array("databases").unwrap_or(Doc::EMPTY).values() {
            let Some(d) = d.as_doc() else { continue };
            let name = d.get_str("name").unwrap_or_default();
            // Each shard has these for itself.
            if name == "local" || OF_CONFIG.contains(&name) != of_config {
                continue;
            }
            let hides = |user: &Arc<User>| !user.privileges.allows_within(name, &Actions::ALL);
            if seen.as_ref().is_some_and(hides) {
                continue;
            }
            if let Some(size) = d.get("sizeOnDisk").and_then(|v| v.as_i64_exact()) {
                (total, has_sizes) = (total + size, true);
            }
            all.entry(name.to_string()).or_insert_with(|| d.to_buf());
        }
    }
    let databases: ArrayBuf = all.into_values().collect();
    cx.reply.field("databases", databases);
    if has_sizes {
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
/// 20 if the two are on different shards; the shard's.
pub fn rename(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let body = cx.request.body;
    let from = body.get_str(cx.request.name).unwrap_or_default();
    let target = body.get_str("to").unwrap_or_default();
    let db = |ns: &'_ str| ns.split_once('.').map_or(ns, |(db, _)| db).to_string();
    let (from, target) = (db(from), db(target));
    if [&from, &target]
        .iter()
        .any(|db| OF_CONFIG.contains(&db.as_str()))
    {
        return Err(Error::new(
            Code::IllegalOperation,
            "the databases admin and config hold what the cluster knows of itself",
        ));
    }
    for ns in [body.get_str(cx.request.name), body.get_str("to")]
        .into_iter()
        .flatten()
    {
        if router.tables.of(&**cx.op, router, ns)?.is_some() {
            return Err(Error::new(
                Code::IllegalOperation,
                format!("{ns} is divided over shards, and cannot be renamed or replaced yet"),
            ));
        }
    }
    let source = set_of(cx, router, &from)?;
    if from != target && set_of(cx, router, &target)?.name != source.name {
        return Err(Error::new(
            Code::IllegalOperation,
            "Source and destination collections must be on same shard",
        ));
    }
    to(cx, router, &source)
}
