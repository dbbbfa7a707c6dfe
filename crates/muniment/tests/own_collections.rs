//! The server's own collections: they exist from the first start on, with a document for each start. If they
//! cannot be written, the server starts all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{Doc, DocBuf, doc};
use muniment_wire::Connection;
use testkit::{Server, ServerOptions};

fn found(c: &mut Connection, db: &str, collection: &str) -> Vec<DocBuf> {
    let reply = c.command(db, &doc! { "find": collection }).unwrap();
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let batch = cursor.get_array("firstBatch").unwrap();
    batch
        .values()
        .map(|v| v.as_doc().unwrap().to_buf())
        .collect()
}

fn databases(c: &mut Connection) -> Vec<String> {
    let list = c.command("admin", &doc! { "listDatabases": 1 }).unwrap();
    let name = |d: Doc<'_>| {
        // A database counts as empty if it has no collection, not if it has no document.
        assert_eq!(d.get("empty").map(|v| v.truthy()), Some(false));
        d.get_str("name").unwrap().to_string()
    };
    let list = list.as_doc().get_array("databases").unwrap();
    list.values().map(|v| name(v.as_doc().unwrap())).collect()
}

#[test]
fn there_from_the_first_start_on() {
    let mut s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    assert_eq!(databases(&mut c), ["admin", "config", "local"]);
    let version = doc! { "_id": "featureCompatibilityVersion", "version": "8.0" };
    assert_eq!(
        found(&mut c, "admin", "system.version"),
        std::slice::from_ref(&version)
    );
    let set = doc! { "setClusterParameter": doc! { "defaultMaxTimeMS": doc! { "readOperations": 12_345 } } };
    c.command("admin", &set).unwrap();
    drop(c);
    s.restart();
    let mut c = s.connect();
    assert_eq!(found(&mut c, "admin", "system.version"), [version]);
    let starts = found(&mut c, "local", "startup_log");
    assert_eq!(starts.len(), 2);
    let pid = starts[1].as_doc().get("pid").and_then(|v| v.as_i64_exact());
    assert_eq!(pid, s.pid().map(i64::from));
    for d in &starts {
        let names: Vec<_> = d.as_doc().iter().map(|e| e.name().to_string()).collect();
        let wanted = [
            "_id",
            "hostname",
            "startTime",
            "startTimeLocal",
            "cmdLine",
            "pid",
            "buildinfo",
        ];
        assert_eq!(names, wanted);
        assert!(
            d.as_doc()
                .get_doc("cmdLine")
                .unwrap()
                .get_doc("storage")
                .is_some()
        );
    }
    let list = c
        .command("config", &doc! { "listIndexes": "system.sessions" })
        .unwrap();
    let indexes = list
        .as_doc()
        .get_doc("cursor")
        .unwrap()
        .get_array("firstBatch")
        .unwrap();
    let ttl = indexes.values().nth(1).unwrap().as_doc().unwrap();
    assert_eq!(ttl.get_str("name"), Some("lsidTTLIndex"));
    assert_eq!(
        ttl.get("expireAfterSeconds").and_then(|v| v.as_i64_exact()),
        Some(1800)
    );
    // A cluster parameter survives the server, too.
    let get = c
        .command("admin", &doc! { "getClusterParameter": "defaultMaxTimeMS" })
        .unwrap();
    let all = get.as_doc().get_array("clusterParameters").unwrap();
    let kept = all.values().next().and_then(|v| v.as_doc()).unwrap();
    assert_eq!(
        kept.get("readOperations").and_then(|v| v.as_i64_exact()),
        Some(12_345)
    );
}

#[test]
fn a_full_disk_is_a_warning() {
    let mut s = Server::start(ServerOptions::new().budget(u64::MAX));
    s.terminate();
    s.set_budget(0);
    s.start_again();
    let mut c = s.connect();
    assert_eq!(found(&mut c, "local", "startup_log").len(), 1);
    let log = c
        .command("admin", &doc! { "getLog": "startupWarnings" })
        .unwrap();
    let lines = log.as_doc().get_array("log").unwrap();
    let told = lines.values().filter_map(|v| v.as_str());
    assert!(
        told.into_iter().any(|l| l.contains("local.startup_log")),
        "{}",
        s.log()
    );
}
