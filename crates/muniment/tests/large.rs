//! Large documents, large commands and long lists of errors take a bounded amount of memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{ArrayBuf, Code, DocBuf, array, doc};
use muniment_wire::Connection;
use std::time::Duration;
use testkit::{Server, ServerOptions};

/// The most memory that a server with a small cache may take.
const MOST: u64 = 230 << 20;

fn server() -> (Server, Connection) {
    let s = Server::start(ServerOptions::new().arg("--cacheSizeGB").arg("0.03"));
    let mut c = s.connect();
    c.set_timeout(Some(Duration::from_secs(120))).unwrap();
    (s, c)
}

fn insert_large(c: &mut Connection, n: i32, bytes: usize) {
    let text = "x".repeat(bytes);
    for id in 0..n {
        let docs = array![doc! { "_id": id, "n": 0, "text": text.as_str() }];
        c.command("t", &doc! { "insert": "c", "documents": docs })
            .unwrap();
    }
}

fn n(reply: &DocBuf) -> i64 {
    let n = reply.as_doc().get("n").and_then(|v| v.as_i64_exact());
    n.unwrap_or_else(|| panic!("{reply:?}"))
}

fn below(s: &Server, most: u64, what: &str) {
    let peak = s.peak_bytes();
    assert!(peak < most, "{what}: {} MB at the peak", peak >> 20);
}

#[test]
fn a_statement_does_not_gather_large_documents() {
    let (s, mut c) = server();
    insert_large(&mut c, 240, 2 << 20);
    let set = doc! { "$inc": doc! { "n": 1 } };
    let update = array![doc! { "q": doc! {}, "u": set, "multi": true }];
    let done = c.command("t", &doc! { "update": "c", "updates": update });
    assert_eq!(n(&done.unwrap()), 240);
    let delete = array![doc! { "q": doc! { "n": 1 }, "limit": 0 }];
    let done = c.command("t", &doc! { "delete": "c", "deletes": delete });
    assert_eq!(n(&done.unwrap()), 240);
    below(&s, MOST, "updateMany and deleteMany of 480 MB");
}

#[test]
fn updates_of_large_documents_wait_for_each_other() {
    let (s, mut c) = server();
    insert_large(&mut c, 24, 8 << 20);
    std::thread::scope(|scope| {
        for id in 0..24 {
            let mut c = s.connect();
            c.set_timeout(Some(Duration::from_secs(120))).unwrap();
            scope.spawn(move || {
                for _ in 0..2 {
                    let set = doc! { "$inc": doc! { "n": 1 } };
                    let update = array![doc! { "q": doc! { "_id": id }, "u": set }];
                    let done = c.command("t", &doc! { "update": "c", "updates": update });
                    let done = done.unwrap();
                    assert_eq!(n(&done), 1, "{done:?}");
                }
            });
        }
    });
    let all = doc! { "count": "c", "query": doc! { "n": 2 } };
    assert_eq!(n(&c.command("t", &all).unwrap()), 24);
    // Each write has its document in memory three times. The resident memory says little here, since
    // compactions of such large documents also take much.
    let status = c.command("admin", &doc! { "serverStatus": 1 }).unwrap();
    let path = ["muniment", "memory", "accounts", "writes"];
    let writes = path
        .iter()
        .try_fold(status.as_doc(), |d, name| d.get_doc(name));
    let peak = writes.unwrap().get("peakBytes").unwrap();
    let peak = peak.as_i64_exact().unwrap() >> 20;
    assert!(
        (24..60).contains(&peak),
        "{peak} MB were booked at the peak"
    );
}

/// A find with this many values, with an index on their field.
fn find_in(values: usize) -> DocBuf {
    let values: ArrayBuf = (0..values).map(|i| (i * 2) as i32).collect();
    doc! { "find": "c", "filter": doc! { "a": doc! { "$in": values } }, "batchSize": 1 }
}

#[test]
fn cursors_on_long_lists_of_values_are_limited() {
    let (s, mut c) = server();
    let indexes = array![doc! { "key": doc! { "a": 1 }, "name": "a_1" }];
    c.command("t", &doc! { "createIndexes": "c", "indexes": indexes })
        .unwrap();
    let docs: ArrayBuf = (0..1000).map(|i| doc! { "a": i }).collect();
    c.command("t", &doc! { "insert": "c", "documents": docs })
        .unwrap();
    // Each command has 1.2 MB, which becomes some 20 MB that a cursor keeps.
    let find = find_in(100_000);
    let mut open = 0;
    let refused = loop {
        match c.command("t", &find) {
            Ok(_) => open += 1,
            Err(e) => break e,
        }
        assert!(open < 100, "nothing limits them");
    };
    assert_eq!(refused.code(), Code::ExceededMemoryLimit, "{refused}");
    assert!(open > 0);
    below(&s, MOST, "cursors on long lists");
    // Small commands still succeed.
    c.command("t", &find_in(100)).unwrap();
    // A command that is larger than any document is refused.
    let e = c.command("t", &find_in(1_600_000)).unwrap_err();
    assert_eq!(e.code(), Code::BSONObjectTooLarge);
    assert!(e.message().contains("First element: find"), "{e}");
    c.command("t", &find_in(100)).unwrap();
}

#[test]
fn many_errors_tell_less_each() {
    let (s, mut c) = server();
    let id = |i: i32| format!("{i:0>400}");
    let many = 40_000;
    let insert = doc! { "insert": "c", "ordered": false };
    let all: Vec<DocBuf> = (0..many).map(|i| doc! { "_id": id(i) }).collect();
    for round in 0..2 {
        let reply = c
            .command_with("t", &insert, &[("documents", &all)])
            .unwrap();
        assert_eq!(n(&reply), if round == 0 { i64::from(many) } else { 0 });
        let Some(errors) = reply.as_doc().get_array("writeErrors") else {
            assert_eq!(round, 0);
            continue;
        };
        let errors: Vec<_> = errors.values().filter_map(|v| v.as_doc()).collect();
        assert_eq!(errors.len(), many as usize);
        let told = |i: usize| errors[i].get_str("errmsg").unwrap();
        assert!(told(0).contains("E11000"), "{}", told(0));
        assert_eq!(told(errors.len() - 1), "");
        for (i, e) in errors.iter().enumerate() {
            assert_eq!(
                e.get("index").and_then(|v| v.as_i64_exact()),
                Some(i as i64)
            );
            let code = e.get("code").and_then(|v| v.as_i64_exact());
            assert_eq!(code, Some(11000));
        }
    }
    below(&s, MOST, "errors");
}
