//! Time-series collections as mongodump and mongorestore see them: buckets that are read, written elsewhere
//! and written again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{ArrayBuf, Doc, DocBuf, Value, array, doc};
use muniment_wire::Connection;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use testkit::{Server, ServerOptions};

const DB: &str = "buckets";

/// Random numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn value(&mut self, d: &mut DocBuf, name: &str, depth: u32) {
        match self.below(if depth < 2 { 10 } else { 8 }) {
            0 => d.append(name, self.below(1000) as i32),
            1 => d.append(name, self.below(1000) as f64 / 8.0),
            2 => d.append(name, format!("text {}", self.below(50))),
            3 => d.append(name, Value::Null),
            4 => d.append(name, self.below(2) == 0),
            5 => d.append(name, Value::ObjectId([self.below(9) as u8; 12])),
            6 => d.append(name, Value::Decimal128([self.below(9) as u8; 16])),
            7 => d.append(name, doc! {}),
            8 => {
                let mut inner = DocBuf::new();
                self.value(&mut inner, "a", depth + 1);
                self.value(&mut inner, "b", depth + 1);
                d.append(name, inner)
            }
            _ => {
                let mut inner = DocBuf::new();
                for i in 0..self.below(3) {
                    self.value(&mut inner, &i.to_string(), depth + 1);
                }
                d.append(name, Value::Array(inner.as_doc()))
            }
        };
    }

    /// A measurement within `span` ms.
    fn measurement(&mut self, id: i32, span: u64) -> DocBuf {
        let mut d = doc! { "_id": id };
        d.append("t", Value::DateTime(self.below(span) as i64 - 1000));
        let c = doc! { "c": Value::Null };
        match self.below(8) {
            0 => d.append("m", 1),
            1 => d.append("m", 1.0),
            2 => d.append("m", doc! { "a": 1, "b": array![1, &c] }),
            3 => d.append("m", doc! { "b": array![1, &c], "a": 1 }),
            4 => d.append("m", array![1, 2]),
            5 => d.append("m", array![1, 3]),
            6 => d.append("m", Value::Null),
            _ => &mut d,
        };
        for name in ["u", "v", "", "x.y"] {
            if self.below(3) == 0 {
                self.value(&mut d, name, 0);
            }
        }
        d.append("temperature", self.below(300) as f64 / 10.0);
        d
    }
}

/// All documents by their `_id`s, with their fields in the order of their names.
fn all(c: &mut Connection, name: &str) -> HashMap<i32, Vec<Vec<u8>>> {
    let docs = c.find_all(DB, &doc! { "find": name }).unwrap();
    let n = docs.len();
    let all: HashMap<i32, Vec<Vec<u8>>> = docs
        .iter()
        .map(|d| {
            let Some(Value::Int32(id)) = d.as_doc().get("_id") else {
                panic!("{d:?}");
            };
            let mut fields: Vec<Vec<u8>> =
                d.as_doc().iter().map(|e| e.as_bytes().to_vec()).collect();
            fields.sort();
            (id, fields)
        })
        .collect();
    assert_eq!(all.len(), n, "an _id twice in {name}");
    all
}

fn create(c: &mut Connection, name: &str, more: &str) {
    let options = format!(
        r#"{{"create": "{name}", "timeseries": {{"timeField": "t", "metaField": "m"{more}}}}}"#
    );
    c.command(DB, &DocBuf::from_json(&options).unwrap())
        .unwrap();
}

fn insert(c: &mut Connection, name: &str, docs: &[DocBuf]) -> DocBuf {
    let mut last = DocBuf::new();
    for part in docs.chunks(1000) {
        let command = doc! { "insert": name, "ordered": false };
        last = c
            .command_with(DB, &command, &[("documents", part)])
            .unwrap();
    }
    last
}

fn buckets(c: &mut Connection, name: &str) -> Vec<DocBuf> {
    let find = doc! {
        "find": format!("system.buckets.{name}"),
        "hint": doc! { "$natural": 1 },
        "batchSize": 7,
    };
    c.find_all(DB, &find).unwrap()
}

fn errors(reply: &DocBuf) -> (i64, Vec<i32>) {
    let n = reply.as_doc().get("n").and_then(|v| v.as_i64_exact());
    let errors = reply.as_doc().get_array("writeErrors");
    let codes = errors.unwrap_or(Doc::EMPTY).values();
    let codes = codes.filter_map(|v| v.as_doc()?.get("code")?.as_i64_exact());
    (n.unwrap(), codes.map(|n| n as i32).collect())
}

#[test]
fn a_dump_is_restored_and_restored_once() {
    let mut server = Server::start(ServerOptions::new());
    let mut c = server.connect();
    let mut random = Random(0x1234_5678_9ABC_DEF1);
    for (i, (more, span)) in [
        ("", 20_000_000),
        (r#", "granularity": "minutes""#, 400_000_000),
        (r#", "granularity": "hours""#, 9_000_000_000),
        (
            r#", "bucketMaxSpanSeconds": 7, "bucketRoundingSeconds": 7"#,
            100_000,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let (from, to) = (format!("from{i}"), format!("to{i}"));
        create(&mut c, &from, more);
        create(&mut c, &to, more);
        let docs: Vec<DocBuf> = (0..1500).map(|n| random.measurement(n, span)).collect();
        insert(&mut c, &from, &docs);
        let dump = buckets(&mut c, &from);
        assert_eq!(dump, buckets(&mut c, &from), "two reads differ");
        let ids: std::collections::HashSet<Vec<u8>> = dump
            .iter()
            .map(|d| d.as_doc().first().unwrap().raw_value().to_vec())
            .collect();
        assert_eq!(ids.len(), dump.len(), "an _id of two buckets");
        let n = c
            .command(DB, &doc! { "count": format!("system.buckets.{from}") })
            .unwrap();
        assert_eq!(errors(&n).0, dump.len() as i64);
        let target = format!("system.buckets.{to}");
        let mut stored = 0;
        for part in dump.chunks(1000) {
            let reply = insert(&mut c, &target, part);
            let (n, codes) = errors(&reply);
            assert_eq!(codes, [0; 0], "{reply:?}");
            stored += n;
        }
        assert_eq!(stored, dump.len() as i64);
        let there = all(&mut c, &from);
        assert_eq!(there.len(), docs.len());
        assert!(
            there == all(&mut c, &to),
            "restored measurements differ ({more})"
        );
        assert_eq!(
            buckets(&mut c, &to)
                .iter()
                .map(|d| d.as_doc().first().unwrap().raw_value().to_vec())
                .collect::<std::collections::HashSet<_>>(),
            ids
        );
        // The buckets are restored again, both to where they were restored before and to where they came
        // from.
        for name in [&to, &from] {
            // When the first measurement of a bucket is deleted, the others still exist.
            let command = doc! { "delete": name.as_str() };
            let gone = doc! { "q": doc! { "_id": doc! { "$lt": 20 } }, "limit": 0 };
            c.command_with(DB, &command, &[("deletes", &[gone])])
                .unwrap();
            let left: i64 = all(&mut c, name).len() as i64;
            assert_eq!(left, 1480);
            let target = format!("system.buckets.{name}");
            let mut refused = 0;
            for part in dump.chunks(1000) {
                let (n, codes) = errors(&insert(&mut c, &target, part));
                assert!(codes.iter().all(|c| *c == 11000));
                assert_eq!(n as usize + codes.len(), part.len());
                refused += codes.len();
            }
            let now = all(&mut c, name).len();
            // Only buckets of which nothing was left were restored.
            assert!(refused >= dump.len() - 20 && now <= 1500, "{refused} {now}");
            let validate = doc! { "validate": name.as_str(), "full": true };
            let valid = c.command(DB, &validate).unwrap();
            assert!(valid.as_doc().get("valid").unwrap().truthy(), "{valid:?}");
        }
    }
    // Acknowledged buckets survive a crash.
    create(&mut c, "crash", "");
    let dump = buckets(&mut c, "to0");
    let command = doc! {
        "insert": "system.buckets.crash", "writeConcern": doc! { "j": true },
    };
    c.command_with(DB, &command, &[("documents", &dump[..100])])
        .unwrap();
    let before = all(&mut c, "crash");
    server.kill9();
    server.start_again();
    let mut c = server.connect();
    assert!(before == all(&mut c, "crash") && before.len() >= 100);
}

/// A window has more measurements than fit into memory, in buckets that are full by number and by size.
#[test]
fn many_measurements_in_a_window_go_to_disk() {
    let limit = "internalQueryMaxBlockingSortMemoryUsageBytes=200000";
    let server = Server::start(ServerOptions::new().arg("--setParameter").arg(limit));
    let mut c = server.connect();
    create(&mut c, "many", "");
    let docs: Vec<DocBuf> = (0..9000)
        .map(|i| {
            let long = i % 3 == 0;
            doc! {
                "_id": i, "t": Value::DateTime(i64::from(i * 7919 % 9000)), "m": i % 3,
                "s": if long { "x".repeat(400) } else { String::new() },
            }
        })
        .collect();
    insert(&mut c, "many", &docs);
    let dump = buckets(&mut c, "many");
    let rows = |d: &DocBuf| {
        let data = d.as_doc().get_doc("data").unwrap();
        data.get_doc("t").unwrap().count()
    };
    assert_eq!(dump.iter().map(rows).sum::<usize>(), 9000);
    assert_eq!(dump.iter().filter(|d| rows(d) == 1000).count(), 6);
    let size = |d: &DocBuf| d.as_doc().get_doc("data").unwrap().byte_len();
    assert!(
        dump.iter().all(|d| size(d) <= 126 * 1024),
        "buckets are too large"
    );
    assert!(dump.iter().filter(|d| size(d) > 120 * 1024).count() > 5);
    create(&mut c, "again", "");
    insert(&mut c, "system.buckets.again", &dump);
    assert!(all(&mut c, "many") == all(&mut c, "again"));
}

/// A measurement that stays is seen exactly once, whatever is written around it.
#[test]
fn buckets_are_read_while_measurements_come_and_go() {
    let server = Server::start(ServerOptions::new());
    let mut c = server.connect();
    create(&mut c, "busy", "");
    let mut random = Random(99);
    let docs: Vec<DocBuf> = (0..2000)
        .map(|n| random.measurement(n, 30_000_000))
        .collect();
    insert(&mut c, "busy", &docs);
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        for writer in 1..=2_i32 {
            let (server, done) = (&server, &done);
            s.spawn(move || {
                let mut c = server.connect();
                let mut random = Random(writer as u64);
                let mut next = writer * 10_000_000;
                while !done.load(SeqCst) {
                    let docs: Vec<DocBuf> = (next..next + 20)
                        .map(|n| random.measurement(n, 30_000_000))
                        .collect();
                    insert(&mut c, "busy", &docs);
                    next += 20;
                    let update = doc! {
                        "q": doc! { "m": doc! { "$type": "int" } },
                        "u": doc! { "$set": doc! { "m": next } },
                        "multi": true,
                    };
                    let command = doc! { "update": "busy" };
                    c.command_with(DB, &command, &[("updates", &[update])])
                        .unwrap();
                    let gone = doc! {
                        "q": doc! { "_id": doc! { "$gte": writer * 10_000_000, "$lt": next - 40 } },
                        "limit": 0,
                    };
                    let command = doc! { "delete": "busy" };
                    c.command_with(DB, &command, &[("deletes", &[gone])])
                        .unwrap();
                }
            });
        }
        for _ in 0..6 {
            let mut seen = HashMap::new();
            for b in buckets(&mut c, "busy") {
                let ids = b.as_doc().get_doc("data").unwrap().get_doc("_id").unwrap();
                for id in ids.values().filter_map(|v| v.as_i64_exact()) {
                    *seen.entry(id).or_insert(0) += 1;
                }
            }
            for id in 0..2000 {
                assert_eq!(seen.get(&id), Some(&1), "measurement {id}");
            }
        }
        done.store(true, SeqCst);
    });
}

/// Several connections restore the same bucket at once, and it is stored once.
#[test]
fn a_bucket_that_several_restore_is_stored_once() {
    let server = Server::start(ServerOptions::new());
    let mut c = server.connect();
    create(&mut c, "race", "");
    let bucket = |n: u8| {
        let times: ArrayBuf = (0..50).map(|i| Value::DateTime(i * 1000)).collect();
        let bound = doc! { "t": Value::DateTime(0) };
        doc! {
            "_id": Value::ObjectId([n; 12]),
            "control": doc! { "version": 1, "min": &bound, "max": &bound },
            "meta": i32::from(n),
            "data": doc! { "t": times.as_doc() },
        }
    };
    let all: Vec<DocBuf> = (0..40).map(bucket).collect();
    let stored: i64 = std::thread::scope(|s| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                s.spawn(|| {
                    let mut c = server.connect();
                    let (n, codes) = errors(&insert(&mut c, "system.buckets.race", &all));
                    assert!(codes.iter().all(|c| *c == 11000));
                    n
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(stored, 40);
    // The measurements came in others' buckets, and the buckets that were made of them exist as well.
    let made = buckets(&mut c, "race");
    assert_eq!(made.len(), 40);
    let (n, codes) = errors(&insert(&mut c, "system.buckets.race", &made));
    assert_eq!((n, codes.len()), (0, 40));
    let n = c.command(DB, &doc! { "count": "race" }).unwrap();
    assert_eq!(errors(&n).0, 2000);
}
