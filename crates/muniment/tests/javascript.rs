//! JavaScript functions from outside: they work, they end in time, and they can be switched off.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use muniment_value::{DocBuf, Value, array, doc};
use muniment_wire::Connection;
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions};

fn filled(s: &Server) -> Connection {
    let mut c = s.connect();
    let docs = array![doc! { "_id": 1, "a": 2 }, doc! { "_id": 2, "a": 5 }];
    c.command("t", &doc! { "insert": "c", "documents": docs })
        .unwrap();
    c
}

fn find(code: &str) -> DocBuf {
    doc! { "find": "c", "filter": doc! { "$where": code } }
}

/// One command of each kind, with working JavaScript.
fn commands() -> Vec<DocBuf> {
    let function =
        doc! { "body": "function(a) { return a * 2; }", "args": array!["$a"], "lang": "js" };
    let accumulator = doc! {
        "init": "function() { return 0; }",
        "accumulate": "function(s, a) { return s + a; }",
        "accumulateArgs": array!["$a"],
        "merge": "function(s, t) { return s + t; }",
        "lang": "js",
    };
    let aggregate =
        |stage: DocBuf| doc! { "aggregate": "c", "pipeline": array![stage], "cursor": doc! {} };
    vec![
        find("this.a > 3"),
        aggregate(doc! { "$project": doc! { "b": doc! { "$function": function } } }),
        aggregate(doc! { "$group": doc! {
            "_id": Value::Null,
            "s": doc! { "$accumulator": accumulator },
        } }),
        doc! {
            "mapReduce": "c",
            "map": "function() { emit(1, this.a); }",
            "reduce": "function(k, v) { return Array.sum(v); }",
            "out": doc! { "inline": 1 },
        },
    ]
}

#[test]
fn functions_run_unless_they_are_switched_off() {
    let on = Server::start(ServerOptions::new());
    let mut c = filled(&on);
    for cmd in commands() {
        c.command("t", &cmd).unwrap();
    }
    let found = c.command("t", &find("this.a > 3")).unwrap();
    let batch = found.as_doc().get_doc("cursor").unwrap();
    assert_eq!(batch.get_array("firstBatch").unwrap().count(), 1);

    let off = Server::start(ServerOptions::new().arg("--noscripting"));
    let mut c = filled(&off);
    for cmd in commands() {
        let e = c.command("t", &cmd).unwrap_err().to_string();
        assert!(e.to_lowercase().contains("script"), "{e}");
    }
    c.command("t", &doc! { "find": "c" }).unwrap();
}

#[test]
fn map_reduce_reduces_into_what_is_there() {
    let s = Server::start(ServerOptions::new());
    let mut c = filled(&s);
    let run = doc! {
        "mapReduce": "c",
        "map": "function() { emit(1, 1); }",
        "reduce": "function(k, v) { return Array.sum(v); }",
        "finalize": "function(k, v) { return v * 10; }",
        "out": doc! { "reduce": "r" },
    };
    let n = c.command("t", &doc! { "count": "c" }).unwrap();
    let n = n.as_doc().get("n").and_then(|n| n.as_i64_exact()).unwrap();
    // The first time there is no earlier result to reduce with.
    for want in [n * 10, (n * 10 + n * 10) * 10] {
        c.command("t", &run).unwrap();
        let found = c.command("t", &doc! { "find": "r" }).unwrap();
        let found = found.as_doc().get_doc("cursor").unwrap();
        let found = found.get_array("firstBatch").unwrap().first().unwrap();
        let value = found.value().as_doc().unwrap().get("value").unwrap();
        assert_eq!(value.as_i64_exact(), Some(want));
    }
}

#[test]
fn a_loop_ends_with_its_time_limit_and_with_kill_op() {
    let s = Server::start(ServerOptions::new());
    let mut c = filled(&s);
    let mut limited = find("while (true) {}; return true");
    limited.append("maxTimeMS", 200);
    let started = Instant::now();
    let e = c.command("t", &limited).unwrap_err().to_string();
    assert!(e.contains("time limit"), "{e}");
    assert!(started.elapsed() < Duration::from_secs(5));

    let runner = std::thread::spawn({
        let mut c = s.connect();
        move || c.command("t", &find("while (true) {}; return true"))
    });
    let started = Instant::now();
    let id = loop {
        assert!(started.elapsed() < Duration::from_secs(20), "never seen");
        let ops = c.command("admin", &doc! { "currentOp": 1 }).unwrap();
        let ops = ops.as_doc().get_array("inprog").unwrap();
        let ours = ops
            .values()
            .filter_map(|v| v.as_doc())
            .find(|d| d.get_str("ns") == Some("t.c"));
        if let Some(id) = ours.and_then(|d| d.get("opid")) {
            break id.as_i64_exact().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    c.command("admin", &doc! { "killOp": 1, "op": id }).unwrap();
    let e = runner.join().unwrap().unwrap_err().to_string();
    assert!(e.contains("interrupted"), "{e}");
    // Other clients were served all the time, and still are.
    c.command("t", &find("this.a > 3")).unwrap();
}

/// A command for each place that can have JavaScript, with a function that never ends.
fn endless() -> Vec<(&'static str, DocBuf)> {
    const LOOP: &str = "function() { while (true) { try { sleep(20) } catch (e) {} } }";
    const SPIN: &str = "function() { for (;;) { try { for (;;) {} } finally { } } }";
    let where_ = || doc! { "$where": SPIN };
    let call = |code: &str| doc! { "$function": doc! { "body": code, "args": array!["$a"], "lang": "js" } };
    let aggregate =
        |stage: DocBuf| doc! { "aggregate": "c", "pipeline": array![stage], "cursor": doc! {} };
    let accumulator = |place: &str| {
        let code = |name: &str, other: &str| {
            if name == place {
                SPIN.to_string()
            } else {
                other.to_string()
            }
        };
        let how = doc! {
            "init": code("init", "function() { return 0 }"),
            "accumulate": code("accumulate", "function(s, a) { return s + a }"),
            "accumulateArgs": array!["$a"],
            "merge": "function(s, t) { return s + t }",
            "finalize": code("finalize", "function(s) { return s }"),
            "lang": "js",
        };
        aggregate(doc! { "$group": doc! { "_id": Value::Null, "s": doc! { "$accumulator": how } } })
    };
    let map_reduce = |place: &str| {
        let code = |name: &str, other: &str| {
            if name == place {
                LOOP.to_string()
            } else {
                other.to_string()
            }
        };
        doc! {
            "mapReduce": "c",
            "map": code("map", if place == "scope" { "function() { forever() }" } else { "function() { emit(1, this.a) }" }),
            "reduce": code("reduce", "function(k, v) { return Array.sum(v) }"),
            "finalize": code("finalize", "function(k, v) { return v }"),
            "scope": doc! { "forever": Value::Code(LOOP) },
            "out": doc! { "inline": 1 },
        }
    };
    let set = doc! { "$set": doc! { "x": 1 } };
    vec![
        ("find", doc! { "find": "c", "filter": where_() }),
        ("count", doc! { "count": "c", "query": where_() }),
        (
            "distinct",
            doc! { "distinct": "c", "key": "a", "query": where_() },
        ),
        (
            "update",
            doc! { "update": "c", "updates": array![doc! { "q": where_(), "u": &set, "multi": true }] },
        ),
        (
            "delete",
            doc! { "delete": "c", "deletes": array![doc! { "q": where_(), "limit": 0 }] },
        ),
        (
            "findAndModify",
            doc! { "findAndModify": "c", "query": where_(), "update": &set },
        ),
        (
            "$project",
            aggregate(doc! { "$project": doc! { "b": call(SPIN) } }),
        ),
        (
            "sleep",
            aggregate(doc! { "$project": doc! { "b": call(LOOP) } }),
        ),
        (
            "$expr",
            doc! { "find": "c", "filter": doc! { "$expr": call(SPIN) } },
        ),
        (
            "projection",
            doc! { "find": "c", "filter": doc! {}, "projection": doc! { "b": call(LOOP) } },
        ),
        (
            "pipeline update",
            doc! { "update": "c", "updates": array![doc! {
                "q": doc! {}, "u": array![doc! { "$set": doc! { "b": call(SPIN) } }],
            }] },
        ),
        ("init", accumulator("init")),
        ("accumulate", accumulator("accumulate")),
        ("finalize", accumulator("finalize")),
        ("map", map_reduce("map")),
        ("reduce", map_reduce("reduce")),
        ("mapReduce finalize", map_reduce("finalize")),
        ("scope", map_reduce("scope")),
    ]
}

fn limited(command: &DocBuf, ms: i32) -> DocBuf {
    let mut d = command.clone();
    d.append("maxTimeMS", ms);
    d
}

#[test]
fn everywhere_a_loop_ends_with_the_time_limit_and_with_kill_op() {
    let s = Server::start(ServerOptions::new());
    let mut c = filled(&s);
    for (place, command) in endless() {
        let started = Instant::now();
        let e = c.command("t", &limited(&command, 150)).unwrap_err();
        assert!(e.to_string().contains("time limit"), "{place}: {e}");
        assert!(started.elapsed() < Duration::from_secs(5), "{place}");

        // The time limit is a safety net, so that a place that cannot be killed is reported.
        let command = limited(&command, 20_000);
        let mut other = s.connect();
        let runner = std::thread::spawn(move || (other.command("t", &command), Instant::now()));
        let id = loop {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "{place} was never seen"
            );
            let ops = c.command("admin", &doc! { "currentOp": 1 }).unwrap();
            let ops = ops.as_doc().get_array("inprog").unwrap();
            let ours = ops
                .values()
                .filter_map(|v| v.as_doc())
                .find(|d| d.get_str("ns") == Some("t.c"));
            if let Some(id) = ours.and_then(|d| d.get("opid")) {
                break id.as_i64_exact().unwrap();
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        // By now it is in its loop.
        std::thread::sleep(Duration::from_millis(50));
        let killed = Instant::now();
        c.command("admin", &doc! { "killOp": 1, "op": id }).unwrap();
        let (reply, ended) = runner.join().unwrap();
        let e = reply.unwrap_err().to_string();
        assert!(e.contains("interrupted"), "{place}: {e}");
        assert!(ended - killed < Duration::from_secs(5), "{place}");
    }
    // Nothing was written.
    let n = c
        .command(
            "t",
            &doc! { "count": "c", "query": doc! { "x": Value::Null } },
        )
        .unwrap();
    assert_eq!(n.as_doc().get("n").and_then(|v| v.as_i64_exact()), Some(2));
}
