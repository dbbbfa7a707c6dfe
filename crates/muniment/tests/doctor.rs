//! A directory with catalog entries that cannot be read, as an earlier version could write them. The server
//! closes the collections that they describe and serves the rest, and `muniment doctor` repairs the
//! directory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_io::Timestamp;
use muniment_log::{Log, LogOptions};
use muniment_value::{Doc, DocBuf, Value, array, doc};
use muniment_wire::Connection;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Server, ServerOptions};

/// The operations of log records that are needed here.
const INSERT: u8 = 1;
const COLLECTION: u8 = 5;

fn varint(mut n: usize, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push((n as u8 & 0x7F) | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn field(bytes: &[u8], out: &mut Vec<u8>) {
    varint(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// The head of a record, which comes before its operations.
const HEAD: [u8; 10] = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The records of a collection with this entry, and of this many documents.
fn records(id: usize, entry: &DocBuf, documents: u64) -> [Vec<u8>; 2] {
    let (mut made, mut filled) = (HEAD.to_vec(), HEAD.to_vec());
    made.push(COLLECTION);
    varint(id, &mut made);
    varint(2000, &mut made);
    field(entry.as_bytes(), &mut made);
    for n in 1..=documents {
        filled.push(INSERT);
        varint(id, &mut filled);
        field(&n.to_be_bytes(), &mut filled);
        let document = doc! { "_id": n as i32, "a": n as i32 };
        field(document.as_bytes(), &mut filled);
    }
    [made, filled]
}

fn deep() -> DocBuf {
    (0..90).fold(doc! { "a": 1 }, |d, _| doc! { "$and": array![d] })
}

fn entry(ns: &str, id: i32, options: DocBuf, spec: DocBuf) -> DocBuf {
    let id_index = doc! { "v": 2, "key": doc! { "_id": 1 }, "name": "_id_" };
    doc! {
        "v": 3,
        "ns": ns,
        "uuid": Value::Binary { subtype: 4, bytes: &[id as u8; 16] },
        "options": options,
        "indexes": array![
            doc! { "id": i64::from(id + 1), "state": "ready", "spec": id_index },
            doc! { "id": i64::from(id + 2), "state": "ready", "spec": spec },
        ],
    }
}

/// Gives `t.index` an index whose filter nests too deeply, and `t.whole` an unknown collation.
fn plant(dir: &Path) {
    let mut filtered = plain();
    filtered.append("partialFilterExpression", deep());
    let index = records(1000, &entry("t.index", 1000, doc! {}, filtered), 20);
    let whole = records(1010, &entry("t.whole", 1010, unknown(), plain()), 30);
    append(dir, &[index, whole].concat());
}

fn plain() -> DocBuf {
    doc! { "v": 2, "key": doc! { "a": 1 }, "name": "a_1" }
}

fn unknown() -> DocBuf {
    doc! { "collation": doc! { "locale": "xx" } }
}

/// Appends records to the log of a directory.
fn append(dir: &Path, records: &[Vec<u8>]) {
    let mut last = Timestamp::ZERO;
    let log = Log::open(
        LogOptions::new(&dir.join("log")),
        Timestamp::ZERO,
        &mut |r| {
            last = r.at;
            Ok(())
        },
    )
    .unwrap();
    for (payload, at) in records
        .iter()
        .zip((1..).map(|n| Timestamp(last.0 + 100 * n)))
    {
        log.append(log.last().term, at, &[payload]).unwrap();
    }
    log.sync().unwrap();
}

fn doctor(args: &[&str]) -> (i32, String) {
    let out = Command::new(testkit::binary())
        .arg("doctor")
        .args(args)
        .output()
        .unwrap();
    let text = [out.stdout, out.stderr].concat();
    (out.status.code().unwrap(), String::from_utf8(text).unwrap())
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let all = testkit::files_below(dir).into_iter();
    let data = all.filter(|f| !f.ends_with("muniment.lock"));
    data.map(|f| (f.clone(), std::fs::read(&f).unwrap()))
        .collect()
}

fn names(c: &mut Connection, collection: &str) -> Vec<String> {
    let reply = c.command("t", &doc! { "listIndexes": collection }).unwrap();
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let batch = cursor.get_array("firstBatch").unwrap();
    let name = |v: Value<'_>| v.as_doc().unwrap().get_str("name").unwrap().to_string();
    batch.values().map(name).collect()
}

fn count(c: &mut Connection, collection: &str) -> i32 {
    let reply = c.command("t", &doc! { "count": collection }).unwrap();
    reply.as_doc().get("n").unwrap().as_i64_exact().unwrap() as i32
}

fn broken(mut s: Server) -> (Server, PathBuf) {
    s.connect()
        .command(
            "t",
            &doc! { "insert": "ok", "documents": array![doc! { "_id": 1 }] },
        )
        .unwrap();
    assert!(s.terminate().success());
    let dir = s.dir();
    plant(&dir);
    (s, dir)
}

#[test]
fn only_damaged_collections_are_closed_and_the_doctor_repairs_them() {
    let (mut s, dir) = broken(Server::start(ServerOptions::new()));
    let path = dir.to_str().unwrap().to_string();
    let before = files(&dir);
    let (code, text) = doctor(&[&path]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("index 'a_1' of t.index is damaged"), "{text}");
    assert!(text.contains("collection t.whole is damaged"), "{text}");
    assert!(
        files(&dir) == before,
        "the doctor changed what it looked at"
    );

    s.start_again();
    let mut c = s.connect();
    assert_eq!((count(&mut c, "ok"), count(&mut c, "index")), (1, 20));
    let more = doc! { "insert": "index", "documents": array![doc! { "_id": 99, "a": 1 }] };
    c.command("t", &more).unwrap();
    for command in [
        doc! { "find": "whole" },
        doc! { "count": "whole" },
        doc! { "insert": "whole", "documents": array![doc! { "_id": 99 }] },
        doc! { "createIndexes": "whole", "indexes": array![doc! { "key": doc! { "b": 1 }, "name": "b" }] },
        doc! { "find": "index", "hint": "a_1" },
    ] {
        let refused = c.command("t", &command).unwrap_err();
        assert!(
            refused.to_string().contains("is damaged"),
            "{command:?}: {refused}"
        );
    }
    assert_eq!(names(&mut c, "index"), ["_id_", "a_1"]);
    assert_eq!(names(&mut c, "whole"), ["_id_", "a_1"]);
    let listed = c.command("t", &doc! { "listCollections": 1 }).unwrap();
    assert!(listed.as_doc().to_display().contains("whole"));
    for (name, valid) in [("ok", true), ("index", false), ("whole", false)] {
        let report = c.command("t", &doc! { "validate": name }).unwrap();
        assert_eq!(
            report.as_doc().get("valid").unwrap().truthy(),
            valid,
            "{name}"
        );
    }
    let status = c.command("admin", &doc! { "serverStatus": 1 }).unwrap();
    let status = status.as_doc().get_doc("muniment").unwrap();
    let damaged = status.get_array("damaged").unwrap();
    let of: Vec<_> = damaged.values().map(|v| ns(v.as_doc().unwrap())).collect();
    assert_eq!(of, ["t.index", "t.whole"]);
    assert!(s.log().contains("Something is damaged"), "{}", s.log());
    drop(c);
    // The doctor refuses while a server uses the directory.
    assert_eq!(doctor(&[&path, "--repair-catalog"]).0, 100);
    assert!(s.terminate().success());

    let (code, text) = doctor(&[&path, "--repair-catalog"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("index 'a_1' of t.index is dropped"), "{text}");
    assert!(text.contains("t.whole keeps its 30 documents"), "{text}");
    assert!(
        text.contains("index 'a_1' of t.whole is built anew"),
        "{text}"
    );
    assert_eq!(doctor(&[&path]).0, 0);
    s.start_again();
    let mut c = s.connect();
    assert_eq!((count(&mut c, "index"), count(&mut c, "whole")), (21, 30));
    assert_eq!(names(&mut c, "index"), ["_id_"]);
    let found = doc! { "find": "whole", "filter": doc! { "a": 7 }, "hint": "a_1" };
    let found = c.command("t", &found).unwrap();
    assert!(found.as_doc().to_display().contains("_id: 7"));
    for name in ["ok", "index", "whole"] {
        let report = c
            .command("t", &doc! { "validate": name, "full": true })
            .unwrap();
        assert!(report.as_doc().get("valid").unwrap().truthy(), "{name}");
    }
}

fn ns(d: Doc<'_>) -> String {
    d.get_str("ns").unwrap().to_string()
}

#[test]
fn a_damaged_collection_can_be_dropped_while_the_server_runs() {
    let (mut s, _) = broken(Server::start(ServerOptions::new()));
    s.start_again();
    let mut c = s.connect();
    c.command("t", &doc! { "dropIndexes": "index", "index": "a_1" })
        .unwrap();
    c.command("t", &doc! { "drop": "whole" }).unwrap();
    s.kill9();
    s.start_again();
    let mut c = s.connect();
    assert_eq!((count(&mut c, "index"), count(&mut c, "whole")), (20, 0));
    assert_eq!(names(&mut c, "index"), ["_id_"]);
    let status = c.command("admin", &doc! { "serverStatus": 1 }).unwrap();
    let status = status.as_doc().get_doc("muniment").unwrap();
    assert_eq!(status.get_array("damaged").unwrap().values().count(), 0);
}

#[test]
fn irreparable_damage_is_reported_and_the_rest_repaired() {
    let (mut s, dir) = broken(Server::start(ServerOptions::new()));
    let path = dir.to_str().unwrap().to_string();
    let mut lost = unknown();
    lost.append(
        "clusteredIndex",
        doc! { "key": doc! { "_id": 1 }, "unique": true },
    );
    append(
        &dir,
        &records(1020, &entry("t.first", 1020, lost, plain()), 5),
    );
    for whole in ["t.whole keeps its 30 documents", "t.first could not be"] {
        let (code, text) = doctor(&[&path, "--repair-catalog"]);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("t.first could not be repaired"), "{text}");
        assert!(text.contains(whole), "{text}");
    }
    let (code, text) = doctor(&[&path]);
    assert!(
        code == 1 && text.contains("collection t.first is damaged"),
        "{text}"
    );
    assert!(!text.contains("t.whole"), "{text}");
    s.start_again();
    let mut c = s.connect();
    assert_eq!((count(&mut c, "index"), count(&mut c, "whole")), (20, 30));
    c.command("t", &doc! { "drop": "first" }).unwrap();
    assert!(s.terminate().success());
    assert_eq!(doctor(&[&path]).0, 0);
}

#[test]
fn a_closed_collection_of_views_leaves_its_database_in_use() {
    let (mut s, dir) = broken(Server::start(ServerOptions::new()));
    let views = entry("t.system.views", 1030, unknown(), plain());
    append(&dir, &records(1030, &views, 1));
    s.start_again();
    let mut c = s.connect();
    for command in [
        doc! { "listCollections": 1 },
        doc! { "dbStats": 1 },
        doc! { "find": "nothing" },
        doc! { "create": "series", "timeseries": doc! { "timeField": "t" } },
        doc! { "insert": "new", "documents": array![doc! { "_id": 1 }] },
    ] {
        let done = c.command("t", &command);
        assert!(done.is_ok(), "{command:?}: {done:?}");
    }
    let view = doc! { "create": "view", "viewOn": "new", "pipeline": array![] };
    let refused = c.command("t", &view).unwrap_err().to_string();
    assert!(refused.contains("is damaged"), "{refused}");
    c.command("t", &doc! { "drop": "system.views" }).unwrap();
    c.command("t", &view).unwrap();
    assert_eq!(count(&mut c, "view"), 1);
    let listed = c.command("t", &doc! { "find": "system.views" }).unwrap();
    let listed = listed.as_doc().to_display();
    assert!(
        listed.contains("t.series") && listed.contains("t.view"),
        "{listed}"
    );
}

#[test]
fn the_doctor_says_how_it_is_used() {
    let (code, text) = doctor(&["--help"]);
    assert!(code == 0 && text.contains("--repair-catalog"), "{text}");
    assert_eq!(doctor(&[]).0, 2);
    assert_eq!(doctor(&["a", "b"]).0, 2);
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().to_str().unwrap();
    let (code, text) = doctor(&[empty]);
    assert!(code == 2 && text.contains("no data directory"), "{text}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
