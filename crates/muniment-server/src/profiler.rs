//! The database profiler: operations recorded in `<db>.system.profile`.
//!
//! Invariant: while no database profiles, an operation pays one atomic read.

use crate::registry::CommandSpec;
use crate::state::{ConnShared, Profile, ServerState};
use muniment_exec::{InsertOptions, OpContext};
use muniment_storage::CollectionOptions;
use muniment_value::{Doc, Value, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Size of `system.profile`, as MongoDB makes it.
const CAPPED_BYTES: u64 = 1 << 20;

/// The level of a database.
pub fn level(server: &ServerState, db: &str) -> Profile {
    server.profile.read().get(db).copied().unwrap_or(Profile {
        level: 0,
        slow_ms: server.parameters.slow_ms.load(Ordering::Relaxed),
        sample_rate: 1.0,
    })
}

/// Sets the level of a database.
pub fn set_level(server: &ServerState, db: &str, profile: Profile) {
    let mut all = server.profile.write();
    all.insert(db.to_string(), profile);
    let any = all.values().any(|p| p.level > 0);
    server.profiling.store(any, Ordering::Relaxed);
}

/// Records an operation if its database wants it.
pub fn record(
    server: &ServerState,
    conn: &ConnShared,
    spec: &CommandSpec,
    op: &Arc<OpContext>,
    command: Doc<'_>,
    took: Duration,
) {
    let ns = op.namespace();
    let Some((db, collection)) = ns.split_once('.') else {
        return;
    };
    let p = level(server, db);
    let ms = took.as_millis() as i64;
    let wanted = p.level == 2 || (p.level == 1 && ms >= p.slow_ms);
    if !wanted || collection.starts_with("system.") || spec.name == "profile" {
        return;
    }
    let counters = &op.counters;
    let mut d = doc! {
        "op": match spec.op {
            crate::metrics::OpKind::Query => "query",
            crate::metrics::OpKind::GetMore => "getmore",
            crate::metrics::OpKind::Insert => "insert",
            crate::metrics::OpKind::Update => "update",
            crate::metrics::OpKind::Delete => "remove",
            crate::metrics::OpKind::Command => "command",
        },
        "ns": ns,
        "command": if command.byte_len() < 16_384 { command } else { Doc::EMPTY },
        "keysExamined": counters.keys_examined.load(Ordering::Relaxed) as i64,
        "docsExamined": counters.docs_examined.load(Ordering::Relaxed) as i64,
        "nreturned": counters.returned.load(Ordering::Relaxed) as i64,
        "millis": ms,
        "ts": Value::DateTime(crate::log::now_ms()),
        "client": &*conn.peer,
    };
    d.append_some("planSummary", op.plan_summary());
    let app_name = conn.client.lock().app_name.clone();
    d.append("appName", app_name.as_deref().unwrap_or_default());
    let ns = format!("{db}.system.profile");
    let store = &server.engine.store;
    if store.collection(&ns).is_none() {
        let options = CollectionOptions {
            capped_size: Some(CAPPED_BYTES),
            document: doc! { "capped": true, "size": CAPPED_BYTES as i64 },
            ..CollectionOptions::default()
        };
        // Another thread may have made it in between.
        let _ = store.create_collection(&ns, options);
    }
    let internal = OpContext::internal("profile");
    // Profiling must not fail what it looks at.
    let _ = server.engine.insert_many(
        &internal,
        &ns,
        &mut std::iter::once(d.as_doc()),
        InsertOptions::default(),
    );
}
