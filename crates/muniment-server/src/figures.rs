//! The documents of the aggregation stages that tell about the server: `$collStats`,
//! `$currentOp`, `$listLocalSessions`, `$listClusterCatalog` and their like.

use crate::catalog_figures;
use crate::commands::{coll_stats, current_op, list_collections};
use crate::oplog_window;
use crate::router::distribution;
use crate::sessions::{digest_of, digest_of_key};
use crate::state::ServerState;
use muniment_exec::{Figures, OpContext, session_doc};
use muniment_member::local_documents;
use muniment_op::Interrupt;
use muniment_storage::{Direction, KeyRange, NOBODY};
use muniment_value::{ArrayBuf, Doc, DocBuf, Error, Result, Value, doc};
use std::sync::Weak;

/// The server, as the engine asks it for its figures.
pub struct ServerFigures(pub Weak<ServerState>);

impl Figures for ServerFigures {
    fn documents(
        &self,
        op: &OpContext,
        stage: &str,
        operand: Doc<'_>,
        db: &str,
        collection: &str,
    ) -> Option<Result<Vec<DocBuf>>> {
        let server = self.0.upgrade()?;
        Some(match stage {
            "$collStats" => {
                let ns = format!("{db}.{collection}");
                coll_stats::stage(&server, op, &ns, operand).map(|d| vec![d])
            }
            "$indexStats" => {
                let ns = format!("{db}.{collection}");
                server.engine.index_stats(&ns, Some(&server.address.host))
            }
            "$planCacheStats" => {
                let ns = format!("{db}.{collection}");
                server
                    .engine
                    .plan_cache_stats(&ns, Some(&server.address.host))
            }
            "$currentOp" => current_op::stage(&server, op, operand),
            "$listLocalSessions" => Ok(sessions(&server, op, operand)),
            "$listSessions" => stored_sessions(&server, op, operand),
            "$shardedDataDistribution" => match &server.router {
                Some(router) => distribution::documents(op, router),
                None => Err(Error::location(
                    6_789_101,
                    "The $shardedDataDistribution stage can only be run on a sharded cluster",
                )),
            },
            "$listClusterCatalog" => catalog(&server, op, operand, db),
            "$listCatalog" if collection.is_empty() => catalog_figures::all(&server, op),
            "$listCatalog" => catalog_figures::one(&server, db, collection),
            // The server keeps nothing per query shape.
            "$querySettings" | "$queryStats" => Ok(Vec::new()),
            _ => return None,
        })
    }

    fn local(&self, namespace: &str) -> Vec<DocBuf> {
        let server = self.0.upgrade();
        server.map_or_else(Vec::new, |server| match namespace {
            oplog_window::NAMESPACE => oplog_window::document(&server).into_iter().collect(),
            _ => {
                let set = server.replica_set.as_ref();
                set.map_or_else(Vec::new, |set| local_documents(set, namespace))
            }
        })
    }
}

/// The users whose sessions `$listSessions` and `$listLocalSessions` ask for, as digests: the named ones, or
/// else the caller; `None` for all.
fn asked(op: &OpContext, operand: Doc<'_>) -> Option<Vec<[u8; 32]>> {
    if operand.get("allUsers").is_some_and(|v| v.truthy()) {
        return None;
    }
    let named = operand.get_array("users").unwrap_or(Doc::EMPTY);
    let users = named.values().filter_map(|v| v.as_doc()).map(|user| {
        let of = |name| user.get_str(name).unwrap_or_default();
        digest_of(of("user"), of("db"))
    });
    let users: Vec<_> = users.collect();
    Some(match users.is_empty() {
        true => vec![op.user().map_or(NOBODY, digest_of_key)],
        false => users,
    })
}

/// The sessions as they were written at the last refresh.
fn stored_sessions(server: &ServerState, op: &OpContext, operand: Doc<'_>) -> Result<Vec<DocBuf>> {
    let store = &server.engine.store;
    let Some(collection) = store.collection(crate::own_collections::SESSIONS) else {
        return Ok(Vec::new());
    };
    let users = asked(op, operand);
    let is_asked = |d: Doc<'_>| match (&users, d.get_doc("_id").and_then(|id| id.get("uid"))) {
        (None, _) => true,
        (Some(users), Some(Value::Binary { bytes, .. })) => users.iter().any(|u| u[..] == *bytes),
        (Some(_), _) => false,
    };
    let snapshot = store.snapshot();
    let mut cursor = snapshot.docs(&collection, &KeyRange::all(), Direction::Forward);
    let mut all = Vec::new();
    while let Some((_, bytes)) = cursor.next(op)? {
        op.check()?;
        let d = Doc::new(&bytes);
        if is_asked(d) {
            all.push(d.to_buf());
        }
    }
    Ok(all)
}

fn sessions(server: &ServerState, op: &OpContext, operand: Doc<'_>) -> Vec<DocBuf> {
    let users = asked(op, operand);
    let now = muniment_logger::now_ms();
    let known = server.sessions.parts().flatten();
    known
        .filter(|(key, _)| users.as_ref().is_none_or(|u| u.contains(&key.user)))
        .map(|(key, idle)| {
            doc! {
                "_id": session_doc(&key),
                "lastUse": Value::DateTime(now - idle.as_millis() as i64),
            }
        })
        .collect()
}

/// The collections of `db`; of all databases on admin.
///
/// # Errors
/// What stops `operation`.
fn catalog(
    server: &ServerState,
    operation: &dyn Interrupt,
    operand: Doc<'_>,
    db: &str,
) -> Result<Vec<DocBuf>> {
    let store = &server.engine.store;
    let shards = matches!(operand.get("shards"), Some(Value::Bool(true)));
    let databases = match db {
        "admin" => store.databases(),
        _ => vec![db.to_string()],
    };
    let mut all = Vec::new();
    for db in databases {
        for c in store.collections(&db) {
            let ns = c.namespace();
            let Some((_, name)) = ns.split_once('.') else {
                continue;
            };
            for entry in list_collections::entries(&c, name, false) {
                let entry = entry.as_doc();
                let ns = format!("{db}.{}", entry.get_str("name").unwrap_or(name));
                let mut d = doc! { "db": db.as_str(), "ns": ns.as_str() };
                for e in entry.iter().filter(|e| e.name() != "name") {
                    d.append_elem(e);
                }
                d.append("sharded", false);
                if shards {
                    d.append("shards", ArrayBuf::new());
                }
                all.push(d);
            }
        }
        let views = match server.engine.views(&db, operation) {
            Ok(views) => views,
            // Views that cannot be read now are left out.
            Err(_) => operation.check().map(|()| Vec::new())?,
        };
        for (ns, view) in views {
            let mut options = doc! { "viewOn": view.on.as_str(), "pipeline": &view.pipeline };
            options.append_some("collation", view.collation.spec());
            let mut d = doc! {
                "db": db.as_str(),
                "ns": ns.as_str(),
                "type": "view",
                "options": options,
                "info": doc! { "readOnly": true },
                "sharded": false,
            };
            if shards {
                d.append("shards", ArrayBuf::new());
            }
            all.push(d);
        }
    }
    Ok(all)
}
