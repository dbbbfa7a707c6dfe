//! Crashes by copy, a poisoned engine, capped collections and group commit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::tests::index::valid;
use crate::tests::{Many, all, bytes, insert, key_of, open};
use crate::*;
use muniment_op::NeverInterrupted;
use muniment_value::{Code, DocBuf, Value, array, doc};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Copies what a crash at this moment would leave: every file as it is now, journals last, since a table
/// is complete before the journal that led to it is removed.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(from)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort_by_key(|f| f.extension().is_some_and(|e| e == "log"));
    for file in files {
        let target = to.join(file.file_name().unwrap());
        if file.is_dir() {
            copy(&file, &target);
        } else if file.file_name().unwrap() != "muniment.lock" {
            // Sparse files stay sparse: only what is not zero is written.
            let data = match std::fs::read(&file) {
                Ok(d) => d,
                Err(_) => continue,
            };
            let used = data.iter().rposition(|b| *b != 0).map_or(0, |p| p + 1);
            let used = if file.extension().is_some_and(|e| e == "log") {
                used
            } else {
                data.len()
            };
            std::fs::write(&target, &data[..used]).unwrap();
            let copied = std::fs::File::options().write(true).open(&target).unwrap();
            copied.set_len(data.len() as u64).unwrap();
        }
    }
}

#[test]
fn a_copy_made_while_writers_run_is_consistent() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = store
        .create_collection("db.c", CollectionOptions::default(), &NeverInterrupted)
        .unwrap();
    for (key, unique) in [("u", true), ("m", false)] {
        let mut pattern = DocBuf::new();
        pattern.append(key, 1);
        let spec = doc! { "key": pattern, "name": key, "unique": unique };
        let spec = IndexSpec::parse(spec.as_doc()).unwrap();
        store.create_index(&c, spec, &NeverInterrupted).unwrap();
    }
    // Stops the threads even if an assertion fails, because the scope waits for them.
    struct Stopper<'a>(&'a AtomicBool);
    impl Drop for Stopper<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let stop = AtomicBool::new(false);
    let acknowledged = [const { AtomicI64::new(-1) }; 3];
    std::thread::scope(|s| {
        for (t, acknowledged) in acknowledged.iter().enumerate() {
            let (store, c, stop) = (&store, &c, &stop);
            s.spawn(move || {
                for n in 0i64.. {
                    if stop.load(SeqCst) {
                        return;
                    }
                    let id = n * 3 + t as i64;
                    insert(
                        store,
                        c,
                        doc! { "_id": id, "u": id, "m": array![id % 7, "x"], "t": "t".repeat(100) },
                    )
                    .unwrap();
                    acknowledged.store(n, SeqCst);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let _at_the_end = Stopper(&stop);
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(100));
            let before: Vec<i64> = acknowledged.iter().map(|a| a.load(SeqCst)).collect();
            let to = tempfile::tempdir().unwrap();
            // No crash shows a later byte of the log without an earlier one, as a copy of a file
            // that is being written can.
            store.lock_writes(&NeverInterrupted).unwrap();
            copy(dir.path(), to.path());
            store.unlock_writes(&NeverInterrupted).unwrap();
            let crashed = open(to.path());
            let c = crashed.collection("db.c").unwrap();
            valid(&crashed, &c);
            for (t, last) in before.iter().enumerate() {
                for n in [0, *last / 2, *last] {
                    let id = Value::Int64(n.max(0) * 3 + t as i64);
                    let found = crashed.snapshot().find_by_id(&c, id).unwrap();
                    assert!(found.is_some() || *last < 0, "write {n} of {t} is lost");
                }
            }
        }
    });
    valid(&store, &c);
}

#[test]
fn group_commit_shares_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = store
        .create_collection("db.c", CollectionOptions::default(), &NeverInterrupted)
        .unwrap();
    store.set_journal_commit_interval(Duration::from_millis(500));
    let before = store.stats().journal;
    let next = AtomicU64::new(0);
    std::thread::scope(|s| {
        for _ in 0..32 {
            s.spawn(|| {
                for _ in 0..20 {
                    let id = next.fetch_add(1, SeqCst) as i64;
                    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
                    w.insert(&bytes(doc! { "_id": id })).unwrap().unwrap();
                    let commit = w.commit().unwrap().unwrap();
                    store.wait_journaled(commit, &NeverInterrupted).unwrap();
                }
            });
        }
    });
    let after = store.stats().journal;
    assert_eq!(after.commits - before.commits, 640);
    assert_eq!(after.waits - before.waits, 640);
    let syncs = after.syncs - before.syncs;
    assert!(syncs <= 640 / 4, "{syncs} syncs for 640 commits");
}

#[test]
fn everything_committed_is_synced_within_the_interval() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = store
        .create_collection("db.c", CollectionOptions::default(), &NeverInterrupted)
        .unwrap();
    insert(&store, &c, doc! { "_id": 1 }).unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while store.inner.journal.log().unwrap().is_dirty() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn capped(store: &Store, ns: &str, size: u64, max: Option<u64>) -> std::sync::Arc<Collection> {
    store
        .create_collection(
            ns,
            CollectionOptions {
                capped_size: Some(size),
                capped_max: max,
                time_field: None,
                without_ids: false,
                guest: false,
                ended: Default::default(),
                document: doc! { "capped": true, "size": size as i64 },
            },
            &NeverInterrupted,
        )
        .unwrap()
}

#[test]
fn what_a_smaller_limit_leaves_goes_in_commits_of_bounded_size() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let never = &NeverInterrupted;
    let c = capped(&store, "db.c", 64 << 20, None);
    let limited = |size: u64| {
        let document = doc! {
            "capped": true, "size": size as i64,
            "changeStreamPreAndPostImages": doc! { "enabled": true },
        };
        let options = CollectionOptions {
            capped_size: Some(size),
            document,
            ..CollectionOptions::default()
        };
        store.modify_options(&c, options, never).unwrap();
    };
    limited(64 << 20);
    for i in 0..150 {
        insert(&store, &c, doc! { "_id": i, "x": "x".repeat(100 << 10) }).unwrap();
    }
    limited(4096);
    let (begin, bytes) = (store.visible(), store.stats().journal.bytes);
    let commits = store.stats().journal.commits;
    // The old documents are deleted in commits of their own, so only the insert fails.
    let e = insert(&store, &c, doc! { "_id": 149 }).unwrap_err();
    assert_eq!(e.code(), Code::DuplicateKey);
    insert(&store, &c, doc! { "_id": 150 }).unwrap();
    assert_eq!(ids_of(&store, &c), [150]);
    // The log has 15 MB of documents as they were.
    let (written, n) = (
        store.stats().journal.bytes - bytes,
        store.stats().journal.commits - commits,
    );
    assert!(written > 14 << 20 && n >= 7, "{written} {n}");
    let mut entries = store.log_entries(begin).unwrap();
    let mut gone = 0;
    while let Some(e) = entries.next().unwrap() {
        gone += e.ops.iter().filter(|op| op.before.is_some()).count();
    }
    assert_eq!(gone, 150);
    assert_eq!(
        store.compare_with_log(never).unwrap(),
        Some(Vec::<String>::new())
    );
}

fn ids_of(store: &Store, c: &Collection) -> Vec<i64> {
    all(store, c)
        .iter()
        .map(|d| d.as_doc().get("_id").unwrap().as_i64_exact().unwrap())
        .collect()
}

#[test]
fn measurements_are_kept_in_the_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let options = CollectionOptions {
        time_field: Some("t".into()),
        ..CollectionOptions::default()
    };
    let c = store
        .create_collection("db.series", options, &NeverInterrupted)
        .unwrap();
    assert!(c.is_time_series() && !c.is_keyed_by_id() && !c.finds_by_id());
    // The same `_id` comes twice, and the times are out of order.
    for (id, t) in [(3, 30), (1, 10), (3, 20)] {
        insert(&store, &c, doc! { "_id": id, "t": Value::DateTime(t) }).unwrap();
    }
    assert_eq!(ids_of(&store, &c), [1, 3, 3]);
    valid(&store, &c);
}

#[test]
fn capped_collections_keep_the_newest_in_insertion_order() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = open(dir.path());
        let c = capped(&store, "db.c", 1 << 20, Some(5));
        assert!(c.is_capped());
        let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
        for id in [9, 3, 7, 1, 5, 2, 8] {
            w.insert(&bytes(doc! { "_id": id, "x": id }))
                .unwrap()
                .unwrap();
        }
        w.commit().unwrap();
        let ids = |c: &Collection| ids_of(&store, c);
        assert_eq!(ids(&c), [7, 1, 5, 2, 8]);
        assert_eq!(c.count(), 5);
        let e = insert(&store, &c, doc! { "_id": 5 }).unwrap_err();
        assert!(
            e.message().contains("index: _id_ dup key: { _id: 5 }"),
            "{e}"
        );
        insert(&store, &c, doc! { "_id": 9 }).unwrap();
        assert_eq!(ids(&c), [1, 5, 2, 8, 9]);
        let key = key_of(&store, &c, 2);
        let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
        let old = w.lock(&key).unwrap().unwrap().unwrap();
        w.update(
            &key,
            &old,
            &bytes(doc! { "_id": 2, "x": "longer" }),
            Changed::Shorter,
            &|_| true,
        )
        .unwrap()
        .unwrap();
        w.commit().unwrap();
        assert_eq!(
            store.snapshot().find_by_id(&c, Value::Int32(77)).unwrap(),
            None
        );
        valid(&store, &c);

        let small = capped(&store, "db.small", 200, None);
        for i in 0..50 {
            insert(&store, &small, doc! { "_id": i, "t": "t".repeat(20) }).unwrap();
            assert!(small.data_bytes() <= 200);
        }
        assert!(small.count() >= 3);
        // A document above the limit is the only one until the next one comes.
        insert(&store, &small, doc! { "_id": 99, "t": "t".repeat(300) }).unwrap();
        assert_eq!(ids_of(&store, &small), [99]);
        insert(&store, &small, doc! { "_id": 100 }).unwrap();
        assert_eq!(ids_of(&store, &small), [100]);
        valid(&store, &small);
    }
    let store = open(dir.path());
    let c = store.collection("db.c").unwrap();
    assert!(c.is_capped());
    insert(&store, &c, doc! { "_id": 100 }).unwrap();
    assert_eq!(c.count(), 5);
    assert_eq!(
        all(&store, &c)
            .last()
            .unwrap()
            .as_doc()
            .get("_id")
            .unwrap()
            .as_i64_exact(),
        Some(100)
    );
    valid(&store, &c);
}

/// While a client holds the oldest document none is deleted; when it lets go, the oldest ones are.
#[test]
fn a_capped_document_that_is_held_keeps_those_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = capped(&store, "db.c", 1 << 20, Some(3));
    for id in 0..3 {
        insert(&store, &c, doc! { "_id": id }).unwrap();
    }
    let key = key_of(&store, &c, 0);
    let mut holder = store.write_unit(&c, &NeverInterrupted).unwrap();
    holder.lock(&key).unwrap().unwrap().unwrap();
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    for id in 3..6 {
        w.insert(&bytes(doc! { "_id": id })).unwrap().unwrap();
    }
    w.commit().unwrap();
    assert_eq!(ids_of(&store, &c), [0, 1, 2, 3, 4, 5]);
    drop(holder);
    // Deletions for a smaller limit go in commits of their own.
    let mut rounds = 0;
    loop {
        let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
        let inserted = w.insert(&bytes(doc! { "_id": 6 })).unwrap();
        w.commit().unwrap();
        rounds += 1;
        if inserted.is_ok() {
            break;
        }
        assert!(rounds < 5);
    }
    assert_eq!(ids_of(&store, &c), [4, 5, 6]);
    valid(&store, &c);
}

#[test]
fn capped_inserts_of_many_threads() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = capped(&store, "db.c", 1 << 20, Some(50));
    std::thread::scope(|s| {
        for t in 0..4 {
            let (store, c) = (&store, &c);
            s.spawn(move || {
                for i in 0..100 {
                    let mut w = Many::new(store, c);
                    for j in 0..3 {
                        let d = bytes(doc! { "_id": t * 1000 + i * 3 + j });
                        w.run(|w| w.insert(&d)).unwrap();
                    }
                    w.commit().unwrap();
                }
            });
        }
        // A tailing reader sees the sequence grow without gaps.
        let (store, c) = (&store, &c);
        s.spawn(move || {
            let mut seen = 0;
            for _ in 0..20 {
                let until = Instant::now() + Duration::from_millis(50);
                c.wait_insert(seen, until, &NeverInterrupted).unwrap();
                seen = c.inserts();
            }
            assert!(seen > 0);
            let _ = store;
        });
    });
    assert_eq!(c.count(), 50);
    valid(&store, &c);
}

#[test]
fn dropped_data_is_reclaimed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = store
        .create_collection("db.c", CollectionOptions::default(), &NeverInterrupted)
        .unwrap();
    let spec = doc! { "key": doc! { "x": 1 }, "name": "x" };
    let spec = IndexSpec::parse(spec.as_doc()).unwrap();
    let x = store.create_index(&c, spec, &NeverInterrupted).unwrap();
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    for i in 0..5000 {
        w.insert(&bytes(doc! { "_id": i, "x": i }))
            .unwrap()
            .unwrap();
    }
    w.commit().unwrap();
    let held = store.snapshot();
    store.drop_collection("db.c", &NeverInterrupted).unwrap();
    let left = |s: &Snapshot| {
        let docs = s
            .docs(&c, &KeyRange::all(), Direction::Forward)
            .next(&NeverInterrupted)
            .unwrap()
            .is_some();
        let entries = s
            .entries(&c, &x, &KeyRange::all(), Direction::Forward)
            .next(&NeverInterrupted)
            .unwrap()
            .is_some();
        docs || entries
    };
    // A reader that had a snapshot reads on, whatever is reclaimed and flushed meanwhile.
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(150));
        store.flush().unwrap();
        assert!(left(&held));
    }
    drop(held);
    let deadline = Instant::now() + Duration::from_secs(20);
    while left(&store.snapshot()) {
        assert!(Instant::now() < deadline, "not reclaimed");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// After a crash nothing is left of a transaction, not even the collections that it made. A collection
/// that another operation has written to stays, and so does what was committed.
#[test]
fn collections_of_a_transaction_that_a_crash_ended_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let never = &NeverInterrupted;
    let begin = || store.begin_transaction(Duration::from_millis(5), None);
    let make = |t: &Transaction, ns: &str, document: DocBuf| {
        let options = CollectionOptions {
            document,
            ..CollectionOptions::default()
        };
        store
            .create_collection_in(t, ns, options, None, never)
            .unwrap()
    };
    let clustered = || doc! { "clusteredIndex": doc! { "key": doc! { "_id": 1 }, "unique": true } };
    let write = |t: &std::sync::Arc<Transaction>, c: &std::sync::Arc<Collection>| {
        let mut unit = store.write_unit_in(t, c, never).unwrap();
        unit.insert(&bytes(doc! { "_id": 1 })).unwrap().unwrap();
        unit.commit().unwrap();
    };
    let open_one = begin();
    let lost = make(&open_one, "db.lost", DocBuf::new());
    write(&open_one, &lost);
    make(&open_one, "db.empty", DocBuf::new());
    let used = make(&open_one, "db.used", DocBuf::new());
    insert(&store, &used, doc! { "_id": 1 }).unwrap();
    let committed = begin();
    for (ns, options) in [
        ("db.made", DocBuf::new()),
        ("db.written", DocBuf::new()),
        ("db.clustered", clustered()),
    ] {
        let made = make(&committed, ns, options);
        if ns != "db.made" {
            write(&committed, &made);
        }
    }
    committed.commit(None, Announce::Door, never).unwrap();
    for (ns, n) in [("db.written", 1), ("db.clustered", 1), ("db.used", 1)] {
        let c = store.collection(ns).unwrap();
        assert_eq!(c.count(), n, "{ns}");
        let mut many = Many::new(&store, &c);
        let key = key_of(&store, &c, 1);
        let doc = bytes(doc! { "_id": 1 });
        many.run(|w| w.delete(&key, &doc)).unwrap();
        many.commit().unwrap();
    }
    let expected = ["db.clustered", "db.made", "db.used", "db.written"];
    for flushed in [false, true] {
        if flushed {
            store.flush().unwrap();
        }
        let to = tempfile::tempdir().unwrap();
        store.lock_writes(never).unwrap();
        copy(dir.path(), to.path());
        store.unlock_writes(&NeverInterrupted).unwrap();
        for _ in 0..2 {
            let crashed = open(to.path());
            let names: Vec<String> = crashed
                .collections("db")
                .iter()
                .map(|c| c.namespace())
                .collect();
            assert_eq!(names, expected, "flushed: {flushed}");
            assert!(crashed.collections("db").iter().all(|c| !c.is_pending()));
        }
    }
    open_one.abort();
    let names: Vec<String> = store
        .collections("db")
        .iter()
        .map(|c| c.namespace())
        .collect();
    assert_eq!(names, expected);
}

/// An `_id` that a transaction sees, and that another operation has deleted since, is a conflict for its
/// insert, even if it was the greatest and there was no insert since the start.
#[test]
fn the_greatest_id_that_a_transaction_still_sees_is_a_conflict() {
    let never = &NeverInterrupted;
    for clustered in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        {
            let store = open(dir.path());
            let document = match clustered {
                true => {
                    doc! { "clusteredIndex": doc! { "key": doc! { "_id": 1 }, "unique": true } }
                }
                false => DocBuf::new(),
            };
            let options = CollectionOptions {
                document,
                ..CollectionOptions::default()
            };
            let c = store.create_collection("db.c", options, never).unwrap();
            for i in 1..=3 {
                insert(&store, &c, doc! { "_id": i }).unwrap();
            }
        }
        let store = open(dir.path());
        let c = store.collection("db.c").unwrap();
        let t = store.begin_transaction(Duration::from_millis(5), None);
        let mut many = Many::new(&store, &c);
        let key = key_of(&store, &c, 3);
        let doc = bytes(doc! { "_id": 3 });
        many.run(|w| w.delete(&key, &doc)).unwrap();
        many.commit().unwrap();
        let mut unit = store.write_unit_in(&t, &c, never).unwrap();
        let result = unit.insert(&bytes(doc! { "_id": 3, "again": true }));
        let code = result.err().map(|e| e.code());
        let name = code.map(|c| c.0);
        assert_eq!(
            code,
            Some(muniment_value::Code::WriteConflict),
            "clustered: {clustered}, {name:?}"
        );
    }
}

fn placement() -> crate::Placement {
    let key = muniment_shard::ShardKey::parse(doc! { "a": 1 }.as_doc()).unwrap();
    let (at, version) = (
        muniment_shard::Timestamp::new(5, 1),
        muniment_shard::Version::new(1, 2),
    );
    crate::Placement::new(at, version, Arc::new(key), vec![(vec![1], None)], false).unwrap()
}

/// The catalog's stored form, byte for byte in Extended JSON: a change of it is a change of the
/// format and needs a new layout version.
#[test]
fn golden_catalog_entry() {
    let entry = crate::catalog::Entry {
        namespace: "db.c".to_string(),
        uuid: [7; 16],
        options: CollectionOptions {
            capped_size: Some(1000),
            capped_max: None,
            time_field: None,
            without_ids: false,
            guest: false,
            ended: Default::default(),
            document: doc! { "capped": true, "size": 1000 },
        },
        indexes: vec![crate::catalog::IndexEntry {
            id: 3,
            ready: false,
            spec: IndexSpec::parse(
                doc! { "key": doc! { "a.b": -1 }, "name": "n", "unique": true, "sparse": true }
                    .as_doc(),
            )
            .unwrap()
            .into(),
            damage: None,
        }],
        pending: false,
        placement: Some(Arc::new(placement())),
        damage: None,
    };
    let stored = entry.to_doc();
    assert_eq!(
        stored.as_doc().to_json(muniment_value::JsonMode::Relaxed),
        r#"{"v":3,"ns":"db.c","uuid":{"$binary":{"base64":"BwcHBwcHBwcHBwcHBwcHBw==","subType":"04"}},"options":{"capped":true,"size":1000},"cappedSize":1000,"indexes":[{"id":3,"state":"building","spec":{"v":2,"key":{"a.b":-1},"name":"n","unique":true,"sparse":true}}],"placement":{"timestamp":{"$timestamp":{"t":5,"i":1}},"version":{"$timestamp":{"t":1,"i":2}},"key":{"a":1},"owned":[{"$binary":{"base64":"AQ==","subType":"00"}},{"$binary":{"base64":"","subType":"00"}}]}}"#
    );
    let read = crate::catalog::Entry::read(stored.as_bytes(), 1, &NeverInterrupted);
    read.check_new(stored.as_bytes(), None, &NeverInterrupted)
        .unwrap();
    assert_eq!(
        (read.options, &read.indexes[0].spec),
        (entry.options, &entry.indexes[0].spec)
    );
}
