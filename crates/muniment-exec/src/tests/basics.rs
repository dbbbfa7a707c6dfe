//! Each operation once, with its corner cases.

use super::*;
use muniment_storage::{Announce, Collection, CollectionOptions};
use muniment_value::{Code, Value, array, doc};
use parking_lot::Mutex;

fn numbers(b: &Bench, n: i32) {
    let docs: Vec<DocBuf> = (0..n)
        .map(|i| doc! { "_id": i, "a": i % 10, "b": i })
        .collect();
    let out = b.insert(&docs);
    assert_eq!((out.n, out.errors.len()), (n as u64, 0));
}

#[test]
fn insert_find_update_delete() {
    let b = Bench::new();
    b.insert_json(&[
        r#"{"_id": 1, "x": "a"}"#,
        r#"{"_id": 2, "x": "b"}"#,
        r#"{"_id": 3, "x": "c", "t": [1, 2]}"#,
    ]);
    assert_eq!(b.find(r#"{"_id": 2}"#), [r#"{"_id":2,"x":"b"}"#]);
    assert_eq!(b.find(r#"{"x": {"$gt": "a"}}"#).len(), 2);
    let done = b
        .update(r#"{"_id": 2}"#, r#"{"$set": {"x": "z"}}"#, false)
        .unwrap();
    assert_eq!((done.matched, done.modified), (1, 1));
    assert!(done.commit.is_some());
    let same = b
        .update(r#"{"_id": 2}"#, r#"{"$set": {"x": "z"}}"#, false)
        .unwrap();
    assert_eq!((same.matched, same.modified), (1, 0));
    let pos = b
        .update(r#"{"t": 2}"#, r#"{"$set": {"t.$": 9}}"#, false)
        .unwrap();
    assert_eq!(pos.modified, 1);
    assert_eq!(b.find(r#"{"t": 9}"#), [r#"{"_id":3,"x":"c","t":[1,9]}"#]);
    let all = b.update("{}", r#"{"$inc": {"n": 1}}"#, true).unwrap();
    assert_eq!((all.matched, all.modified), (3, 3));
    assert_eq!(b.delete(r#"{"n": 1}"#, false).unwrap().matched, 1);
    assert_eq!(b.delete("{}", true).unwrap().matched, 2);
    assert!(b.find("{}").is_empty());
    assert_eq!(b.engine.store.collection(NS).unwrap().count(), 0);
}

#[test]
fn inserts_report_each_error() {
    let b = Bench::new();
    let docs = [
        doc! { "_id": 1 },
        doc! { "_id": 1 },
        doc! { "_id": array![1] },
        doc! { "_id": 2 },
    ];
    let mut options = InsertOptions::default();
    let run = |options| {
        b.engine
            .insert_many(&b.op, NS, &each(&docs), options)
            .unwrap()
    };
    let ordered = run(options);
    assert_eq!(ordered.n, 1);
    let e = ordered.errors[0].to_doc();
    assert_eq!(
        text(&e),
        concat!(
            r#"{"index":1,"code":11000,"errmsg":"E11000 duplicate key error collection: test.c "#,
            r#"index: _id_ dup key: { _id: 1 }","keyPattern":{"_id":1},"keyValue":{"_id":1}}"#
        )
    );
    options.ordered = false;
    let unordered = run(options);
    assert_eq!(unordered.n, 1);
    let found: Vec<_> = unordered
        .errors
        .iter()
        .map(|e| (e.index, e.error.code().0))
        .collect();
    assert_eq!(found, [(0, 11000), (1, 11000), (2, 53)]);
}

#[test]
fn cursors_give_batches_and_survive_letting_go() {
    let b = Bench::new();
    numbers(&b, 1000);
    b.index(r#"{"key": {"a": 1}, "name": "a_1"}"#).unwrap();
    for filter in [
        r#"{}"#,
        r#"{"a": {"$gte": 0}}"#,
        r#"{"$or": [{"a": {"$lt": 5}}, {"a": {"$gte": 5}}]}"#,
    ] {
        let filter = j(filter);
        let request = FindRequest {
            filter: filter.as_doc(),
            ..FindRequest::new(NS)
        };
        let cursor = b.engine.find(&b.op, &request).unwrap();
        let mut reply = vec![0; 4];
        let owner = CursorOwner::default();
        let id = b
            .engine
            .first_batch(&b.op, cursor, owner.clone(), BatchLimits::FIRST, &mut reply)
            .unwrap();
        assert_ne!(id, 0);
        reply.push(0);
        let n = (reply.len() as u32).to_le_bytes();
        reply[..4].copy_from_slice(&n);
        let d = muniment_value::validate(&reply)
            .unwrap()
            .get_doc("cursor")
            .unwrap();
        assert_eq!(d.get_array("firstBatch").unwrap().count(), 101);
        assert_eq!(d.get_str("ns"), Some(NS));
        let mut seen: Vec<i64> = d
            .get_array("firstBatch")
            .unwrap()
            .values()
            .map(|v| {
                v.as_doc()
                    .unwrap()
                    .get("_id")
                    .unwrap()
                    .as_i64_exact()
                    .unwrap()
            })
            .collect();
        loop {
            // The cursor has been idle for long: its snapshot is released, and its place stays.
            std::thread::sleep(Duration::from_millis(1));
            for s in b.engine.cursors.list() {
                assert_eq!(s.id, id);
            }
            b.engine.cursors.release_all();
            let mut reply = vec![0; 4];
            let next = b
                .engine
                .get_more(
                    &b.op,
                    &GetMoreRequest {
                        id,
                        namespace: NS,
                        batch_size: Some(300),
                        owner: owner.clone(),
                        await_time: None,
                        await_time_given: false,
                        is_late: &|| false,
                        fails: &|| None,
                    },
                    &mut reply,
                )
                .unwrap();
            reply.push(0);
            let n = (reply.len() as u32).to_le_bytes();
            reply[..4].copy_from_slice(&n);
            let d = Doc::new(&reply).get_doc("cursor").unwrap();
            seen.extend(d.get_array("nextBatch").unwrap().values().map(|v| {
                v.as_doc()
                    .unwrap()
                    .get("_id")
                    .unwrap()
                    .as_i64_exact()
                    .unwrap()
            }));
            if next == 0 {
                break;
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<i64>>());
        assert_eq!(b.engine.cursors.metrics().open, 0);
    }
}

#[test]
fn a_cursor_belongs_to_its_owner() {
    let b = Bench::new();
    numbers(&b, 300);
    let owner = CursorOwner {
        session: Some(muniment_storage::SessionKey::of_nobody([1; 16])),
        ..CursorOwner::default()
    };
    let cursor = b.engine.find(&b.op, &FindRequest::new(NS)).unwrap();
    let id = b
        .engine
        .first_batch(
            &b.op,
            cursor,
            owner.clone(),
            BatchLimits::of(2),
            &mut Vec::new(),
        )
        .unwrap();
    let more = |ns: &str, owner: &CursorOwner| {
        b.engine
            .get_more(
                &b.op,
                &GetMoreRequest {
                    id,
                    namespace: ns,
                    batch_size: Some(2),
                    owner: owner.clone(),
                    await_time: None,
                    await_time_given: false,
                    is_late: &|| false,
                    fails: &|| None,
                },
                &mut Vec::new(),
            )
            .map_err(|e| e.code().0)
    };
    assert_eq!(more("test.other", &owner), Err(13));
    assert_eq!(more(NS, &CursorOwner::default()), Err(50737));
    assert_eq!(more(NS, &owner), Ok(id));
    let killed = b.engine.cursors.kill(&[id, 77], &owner, |_| false);
    assert_eq!((killed.killed, killed.not_found), (vec![id], vec![77]));
    assert_eq!(more(NS, &owner), Err(43));
}

#[test]
fn limit_skip_sort_and_projection() {
    let b = Bench::new();
    numbers(&b, 50);
    let (sort, projection) = (j(r#"{"a": -1, "b": 1}"#), j(r#"{"b": 1, "_id": 0}"#));
    let request = FindRequest {
        sort: sort.as_doc(),
        projection: projection.as_doc(),
        skip: 3,
        limit: 4,
        ..FindRequest::new(NS)
    };
    let got: Vec<String> = b.run(&request).unwrap().iter().map(|d| text(d)).collect();
    assert_eq!(
        got,
        [r#"{"b":39}"#, r#"{"b":49}"#, r#"{"b":8}"#, r#"{"b":18}"#]
    );
    let natural = j(r#"{"$natural": -1}"#);
    let request = FindRequest {
        sort: natural.as_doc(),
        limit: 1,
        ..FindRequest::new(NS)
    };
    assert_eq!(
        text(&b.run(&request).unwrap()[0]),
        r#"{"_id":49,"a":9,"b":49}"#
    );
}

#[test]
fn counts_and_distinct_values() {
    let b = Bench::new();
    numbers(&b, 100);
    b.insert_json(&[r#"{"_id": 1000, "a": [1, 77, null]}"#, r#"{"_id": 1001}"#]);
    let count = |filter: &str, skip, limit| {
        let filter = j(filter);
        b.engine
            .count(
                &b.op,
                &CountRequest {
                    filter: filter.as_doc(),
                    skip,
                    limit,
                    ..CountRequest::new(NS)
                },
            )
            .unwrap()
    };
    let distinct = |filter: &str| {
        let filter = j(filter);
        let values = b
            .engine
            .distinct(
                &b.op,
                &DistinctRequest {
                    namespace: NS,
                    key: "a",
                    filter: filter.as_doc(),
                    hint: None,
                    collation: None,
                    let_: Doc::EMPTY,
                },
            )
            .unwrap();
        let mut all: Vec<String> = values.as_doc().values().map(|v| v.to_display()).collect();
        all.sort();
        all.join(" ")
    };
    for round in 0..2 {
        assert_eq!(count("{}", 0, 0), 102);
        assert_eq!(count("{}", 100, 0), 2);
        assert_eq!(count("{}", 0, 5), 5);
        assert_eq!(count(r#"{"a": 1}"#, 0, 0), 11, "round {round}");
        assert_eq!(count(r#"{"a": 1}"#, 4, 3), 3);
        // The array has one element above the range and another one below it.
        assert_eq!(count(r#"{"a": {"$gte": 5, "$lt": 7}}"#, 0, 0), 21);
        assert_eq!(count(r#"{"a": null}"#, 0, 0), 2);
        assert_eq!(distinct("{}"), "0 1 2 3 4 5 6 7 77 8 9 null");
        assert_eq!(distinct(r#"{"b": {"$lt": 2}}"#), "0 1");
        b.index(r#"{"key": {"a": 1}, "name": "a_1"}"#).unwrap();
    }
    b.delete(r#"{"_id": 1000}"#, false).unwrap();
    assert_eq!(distinct("{}"), "0 1 2 3 4 5 6 7 8 9");
}

#[test]
fn distinct_jumps_over_equal_keys() {
    let b = Bench::new();
    numbers(&b, 500);
    b.insert_json(&[r#"{"_id": "none"}"#]);
    b.index(r#"{"key": {"a": -1}, "name": "a_-1"}"#).unwrap();
    let op = OpContext::internal("distinct");
    let request = DistinctRequest {
        namespace: NS,
        key: "a",
        filter: Doc::EMPTY,
        hint: None,
        collation: None,
        let_: Doc::EMPTY,
    };
    let values = b.engine.distinct(&op, &request).unwrap();
    assert_eq!(values.len(), 10);
    let keys = op
        .counters
        .keys_examined
        .load(std::sync::atomic::Ordering::Relaxed);
    assert!(keys <= 12, "{keys} keys examined");
}

#[test]
fn aggregations() {
    let b = Bench::new();
    numbers(&b, 100);
    let run = |pipeline: &str| -> Vec<String> {
        let p = j(&format!(r#"{{"p": {pipeline}}}"#));
        let mut cursor = b
            .engine
            .aggregate(
                &b.op,
                &AggregateRequest {
                    db: "test",
                    collection: Some("c"),
                    pipeline: p.as_doc().get_array("p").unwrap(),
                    hint: None,
                    allow_disk_use: None,
                    collation: None,
                    let_: Doc::EMPTY,
                    bypass_document_validation: false,
                    member: false,
                },
            )
            .unwrap();
        let mut out = Vec::new();
        while let Some(d) = cursor.next_doc(&b.op).unwrap() {
            out.push(text(&d));
        }
        out
    };
    assert_eq!(
        run(r#"[{"$match": {}}, {"$group": {"_id": 1, "n": {"$sum": 1}}}]"#),
        [r#"{"_id":1,"n":100}"#]
    );
    assert_eq!(
        run(r#"[{"$match": {"a": 3}}, {"$count": "k"}]"#),
        [r#"{"k":10}"#]
    );
    assert_eq!(run(r#"[{"$match": {"a": 33}}, {"$count": "k"}]"#), [""; 0]);
    assert_eq!(
        run(r#"[{"$match": {"a": 3}}, {"$sort": {"b": -1}}, {"$skip": 1}, {"$limit": 1}]"#),
        [r#"{"_id":83,"a":3,"b":83}"#]
    );
    assert_eq!(
        run(
            r#"[{"$match": {"a": {"$lt": 2}}}, {"$group": {"_id": "$a", "s": {"$sum": "$b"}}}, {"$sort": {"_id": 1}}]"#
        ),
        [r#"{"_id":0,"s":450}"#, r#"{"_id":1,"s":460}"#]
    );
}

#[test]
fn upserts_and_find_and_modify() {
    let b = Bench::new();
    let fam = |query: &str, update: Option<&str>, new: bool, upsert: bool| {
        let q = j(query);
        let u = update.map(j);
        let out = b.engine.find_and_modify(
            &b.op,
            &FindAndModifyRequest {
                namespace: NS,
                filter: q.as_doc(),
                sort: Doc::EMPTY,
                remove: update.is_none(),
                update: u.as_ref().map(|u| Value::Document(u.as_doc())),
                new,
                fields: Doc::EMPTY,
                upsert,
                array_filters: Doc::EMPTY,
                hint: None,
                collation: None,
                let_: Doc::EMPTY,
                bypass_document_validation: false,
                bypass_empty_ts_replacement: false,
            },
        );
        out.map(|o| text(&o.to_doc()))
    };
    assert_eq!(
        fam(r#"{"_id": 1}"#, Some(r#"{"$inc": {"n": 1}}"#), true, true).unwrap(),
        r#"{"lastErrorObject":{"n":1,"updatedExisting":false,"upserted":1},"value":{"_id":1,"n":1}}"#
    );
    assert_eq!(
        fam(r#"{"_id": 1}"#, Some(r#"{"$inc": {"n": 1}}"#), false, true).unwrap(),
        r#"{"lastErrorObject":{"n":1,"updatedExisting":true},"value":{"_id":1,"n":1}}"#
    );
    assert_eq!(
        fam(r#"{"n": 2}"#, None, false, false).unwrap(),
        r#"{"lastErrorObject":{"n":1},"value":{"_id":1,"n":2}}"#
    );
    assert_eq!(
        fam(r#"{"n": 2}"#, None, false, false).unwrap(),
        r#"{"lastErrorObject":{"n":0},"value":null}"#
    );
    assert_eq!(
        fam("{}", None, true, false).unwrap_err().code(),
        Code::FailedToParse
    );
    let (q, u) = (j(r#"{"k": 5}"#), j(r#"{"$set": {"v": 1}}"#));
    let statement = UpdateStatement {
        upsert: true,
        ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
    };
    let first = b.engine.update(&b.op, NS, &statement).unwrap();
    assert!(first.upserted.is_some());
    let second = b.engine.update(&b.op, NS, &statement).unwrap();
    assert_eq!((second.matched, second.upserted.is_some()), (1, false));
}

/// If the filter does not find the duplicate, the upsert fails however often it is tried again.
#[test]
fn an_upsert_that_cannot_be_is_refused_at_once() {
    let b = Bench::new();
    numbers(&b, 100);
    b.index(r#"{"key": {"b": 1}, "name": "b_1", "unique": true}"#)
        .unwrap();
    let (q, u) = (j(r#"{"x": 1}"#), j(r#"{"$set": {"b": 7}}"#));
    let statement = UpdateStatement {
        upsert: true,
        ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
    };
    let op = OpContext::internal("update");
    let error = b.engine.update(&op, NS, &statement).unwrap_err();
    assert_eq!(error.code(), Code::DuplicateKey);
    let read = op
        .counters
        .docs_examined
        .load(std::sync::atomic::Ordering::Relaxed);
    // The documents are read once to change them, and once to see that no rival has come.
    assert_eq!(read, 200);
    // The fields with which the filter computes are not in the key that the error names.
    let (q, u) = (
        j(r#"{"_id": 3, "$expr": {"$lt": [{"$size": "$t"}, 2]}}"#),
        j(r#"{"$push": {"t": 9}}"#),
    );
    let full = UpdateStatement {
        upsert: true,
        ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
    };
    b.update(r#"{"_id": 3}"#, r#"{"$set": {"t": [1, 2]}}"#, false)
        .unwrap();
    let error = b.engine.update(&b.op, NS, &full).unwrap_err();
    assert_eq!(error.code(), Code::DuplicateKey);
}

#[test]
fn hints_and_bounds_by_hand() {
    let b = Bench::new();
    numbers(&b, 100);
    b.index(r#"{"key": {"a": 1, "b": 1}, "name": "ab"}"#)
        .unwrap();
    let find = |hint: Option<Hint<'_>>, min: &str, max: &str| {
        let (min, max) = (j(min), j(max));
        b.run(&FindRequest {
            hint,
            min: min.as_doc(),
            max: max.as_doc(),
            ..FindRequest::new(NS)
        })
        .map(|l| l.len())
        .map_err(|e| e.code().0)
    };
    assert_eq!(find(Some(Hint::Name("nope")), "{}", "{}"), Err(2));
    assert_eq!(find(Some(Hint::Name("ab")), "{}", "{}"), Ok(100));
    let ab = Some(Hint::Name("ab"));
    assert_eq!(
        find(ab, r#"{"a": 3, "b": 0}"#, r#"{"a": 5, "b": 0}"#),
        Ok(20)
    );
    assert_eq!(find(None, r#"{"a": 3, "b": 0}"#, "{}"), Err(51173));
    assert_eq!(find(ab, r#"{"z": 3}"#, "{}"), Err(51174));
    assert_eq!(
        find(ab, r#"{"a": 6, "b": 0}"#, r#"{"a": 5, "b": 0}"#),
        Err(51175)
    );
}

#[test]
fn tailable_cursors_wait_for_data() {
    let b = Bench::new();
    let not_capped = FindRequest {
        tailable: true,
        ..FindRequest::new(NS)
    };
    b.insert_json(&[r#"{"_id": 1}"#]);
    assert_eq!(
        b.engine.find(&b.op, &not_capped).err().map(|e| e.code().0),
        Some(2)
    );
    let ns = "test.capped";
    b.engine
        .store
        .create_collection(
            ns,
            CollectionOptions {
                capped_size: Some(1 << 20),
                document: doc! { "capped": true, "size": 1 << 20 },
                ..CollectionOptions::default()
            },
            &*b.op,
        )
        .unwrap();
    let put = |i: i32| {
        let d = doc! { "_id": i };
        let out = b
            .engine
            .insert_many(
                &b.op,
                ns,
                &each(std::slice::from_ref(&d)),
                InsertOptions::default(),
            )
            .unwrap();
        assert_eq!(out.n, 1, "{:?}", out.errors);
    };
    put(9);
    put(3);
    let request = FindRequest {
        tailable: true,
        await_data: true,
        ..FindRequest::new(ns)
    };
    let cursor = b.engine.find(&b.op, &request).unwrap();
    let owner = CursorOwner::default();
    let id = b
        .engine
        .first_batch(
            &b.op,
            cursor,
            owner.clone(),
            BatchLimits::FIRST,
            &mut Vec::new(),
        )
        .unwrap();
    assert_ne!(id, 0);
    let more = |wait: u64| {
        let mut out = Vec::new();
        let id = b
            .engine
            .get_more(
                &b.op,
                &GetMoreRequest {
                    id,
                    namespace: ns,
                    batch_size: None,
                    owner: owner.clone(),
                    await_time: Some(Duration::from_millis(wait)),
                    await_time_given: false,
                    is_late: &|| false,
                    fails: &|| None,
                },
                &mut out,
            )
            .unwrap();
        assert_ne!(id, 0);
        out.len()
    };
    let empty = more(1);
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            put(1);
        });
        let began = std::time::Instant::now();
        assert!(more(5000) > empty);
        assert!(began.elapsed() < Duration::from_secs(2));
    });
    assert_eq!(more(1), empty);
}

#[test]
fn expired_documents_go() {
    let b = Bench::new();
    let ago = |ms: i64| Value::DateTime(muniment_query::QueryContext::new().now_ms - ms);
    b.insert(&[
        doc! { "_id": 1, "at": ago(100_000) },
        doc! { "_id": 2, "at": ago(1_000) },
        doc! { "_id": 3, "at": "never" },
        doc! { "_id": 4, "at": array![ago(0), ago(99_000)] },
        doc! { "_id": 5 },
    ]);
    b.index(r#"{"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 60}"#)
        .unwrap();
    let out = b.engine.ttl_pass(&b.op).unwrap();
    assert_eq!((out.deleted, out.indexes), (2, 1));
    assert_eq!(b.find("{}").len(), 3);
}

/// A document that a client holds is left for the next pass and does not delay the other documents.
#[test]
fn a_pass_over_what_expires_waits_for_nobody() {
    let b = Bench::new();
    let store = &b.engine.store;
    let old = || doc! { "at": Value::DateTime(1_000) };
    let with_id = |id: i32| {
        let mut d = doc! { "_id": id };
        d.append_all(old().as_doc());
        d
    };
    b.insert(&(0..10).map(with_id).collect::<Vec<_>>());
    b.index(r#"{"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 60}"#)
        .unwrap();
    let options = CollectionOptions {
        document: doc! {
            "clusteredIndex": doc! { "key": doc! { "_id": 1 }, "unique": true },
            "expireAfterSeconds": 60_i64,
        },
        ..CollectionOptions::default()
    };
    let dated = store.create_collection("test.z", options, &*b.op).unwrap();
    let mut unit = store.write_unit(&dated, &*b.op).unwrap();
    for ms in 0..5 {
        let d = doc! { "_id": Value::DateTime(ms) }.into_bytes();
        unit.insert(&d).unwrap().unwrap();
    }
    unit.commit().unwrap();
    let holds = |collection: &Arc<Collection>, id: Value<'_>| {
        let t = store.begin_transaction(Duration::from_millis(5), None);
        let mut unit = store.write_unit_in(&t, collection, &*b.op).unwrap();
        let (key, old) = unit.lock_by_id(id).unwrap().unwrap().unwrap();
        unit.delete(&key, &old).unwrap().unwrap();
        unit.commit().unwrap();
        t
    };
    let first = holds(&store.collection(NS).unwrap(), Value::Int32(3));
    let second = holds(&dated, Value::DateTime(2));
    let deleted = std::thread::scope(|s| {
        let pass = s.spawn(|| b.engine.ttl_pass(&b.op).unwrap().deleted);
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while !pass.is_finished() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let waited = !pass.is_finished();
        // These must end even if the test fails, or the thread would wait for ever.
        first.abort();
        second.abort();
        assert!(!waited, "the pass waits for a transaction");
        pass.join().unwrap()
    });
    assert_eq!(deleted, 9 + 4);
    let rest = b.engine.ttl_pass(&b.op).unwrap();
    assert_eq!((rest.deleted, rest.failed.len()), (2, 0));
    // A collection that another operation holds exclusively is skipped.
    b.insert(&[with_id(20)]);
    let alone = store
        .exclusive(&store.collection(NS).unwrap(), &*b.op)
        .unwrap();
    let passed = b.engine.ttl_pass(&b.op).unwrap();
    assert_eq!((passed.deleted, passed.failed.len()), (0, 0));
    drop(alone);
    assert_eq!(b.engine.ttl_pass(&b.op).unwrap().deleted, 1);
}

#[test]
fn validators_refuse() {
    let b = Bench::new();
    b.engine
        .store
        .create_collection(
            NS,
            CollectionOptions {
                document: doc! { "validator": doc! { "a": doc! { "$gt": 0 } } },
                ..CollectionOptions::default()
            },
            &*b.op,
        )
        .unwrap();
    let out = b.insert(&[doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 0 }]);
    assert_eq!((out.n, out.errors[0].error.code().0), (1, 121));
    let e = b.update(r#"{"_id": 1}"#, r#"{"$set": {"a": -1}}"#, false);
    assert_eq!(e.unwrap_err().code().0, 121);
}

#[test]
fn statements_of_one_command() {
    let b = Bench::new();
    numbers(&b, 20);
    b.index(r#"{"key": {"b": 1}, "name": "b_1", "unique": true}"#)
        .unwrap();
    let run = |ordered: bool, list: &[(&str, &str, bool)]| {
        let docs: Vec<(DocBuf, DocBuf, bool)> =
            list.iter().map(|(q, u, up)| (j(q), j(u), *up)).collect();
        let mut statements = docs.iter().map(|(q, u, upsert)| {
            Ok(UpdateStatement {
                upsert: *upsert,
                ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
            })
        });
        let out = b.engine.update_many(&b.op, NS, &mut statements, ordered);
        let errors: Vec<_> = out
            .errors
            .iter()
            .map(|e| (e.index, e.error.code().0))
            .collect();
        let upserted: Vec<_> = out.upserted.iter().map(|(i, _)| *i).collect();
        (out.n, out.modified, upserted, errors)
    };
    let inc = r#"{"$inc": {"x": 1}}"#;
    let list = [
        (r#"{"_id": 1}"#, inc, false),
        (r#"{"_id": 1}"#, inc, false),
        (r#"{"_id": 77}"#, inc, false),
        (r#"{"_id": 99}"#, inc, true),
        (r#"{"x": 2}"#, inc, false),
        (r#"{"_id": 2}"#, r#"{"$set": {"b": 3}}"#, false),
        (r#"{"_id": 3}"#, inc, false),
    ];
    assert_eq!(run(true, &list), (4, 3, vec![3], vec![(5, 11000)]));
    assert_eq!(b.find(r#"{"_id": 1}"#), [r#"{"_id":1,"a":1,"b":1,"x":3}"#]);
    assert_eq!(run(false, &list[5..]), (1, 1, vec![], vec![(0, 11000)]));
    let ids = [
        doc! { "_id": 1 },
        doc! { "_id": 1 },
        doc! { "a": 5 },
        doc! { "_id": 4 },
    ];
    let mut deletes = ids.iter().map(|q| {
        Ok(DeleteStatement {
            filter: q.as_doc(),
            multi: true,
            hint: None,
            collation: None,
            let_: Doc::EMPTY,
        })
    });
    let out = b.engine.delete_many(&b.op, NS, &mut deletes, true);
    assert_eq!((out.n, out.errors.len()), (4, 0));
    assert_eq!(b.engine.store.collection(NS).unwrap().count(), 17);
}

/// A request that keeps a record back announces the first record of its write and no other. The
/// record of a collection that is created along with it is announced by the door.
#[test]
fn the_first_record_of_a_write_is_kept_back() {
    let b = Bench::member();
    let told: Arc<Mutex<Vec<Announce>>> = Arc::default();
    let to = told.clone();
    let store = &b.engine.store;
    store.listen(move |_, who| to.lock().push(who)).unwrap();
    let heard = || std::mem::take(&mut *told.lock());
    b.op.announcer.keep_next();
    b.insert_json(&[r#"{"_id": 1}"#]);
    assert_eq!(heard(), [Announce::Door, Announce::Caller]);
    b.insert_json(&[r#"{"_id": 2}"#]);
    assert_eq!(heard(), [Announce::Door]);
    assert!(b.op.announcer.take());
    let set = |id: i32| {
        b.update(
            &format!(r#"{{"_id": {id}}}"#),
            r#"{"$set": {"x": 1}}"#,
            false,
        )
    };
    assert!(set(3).unwrap().commit.is_none());
    assert_eq!(heard(), []);
    assert!(set(1).unwrap().commit.is_some() && set(2).unwrap().commit.is_some());
    assert_eq!(heard(), [Announce::Caller, Announce::Door]);
    assert!(b.op.announcer.end());
    b.insert_json(&[r#"{"_id": 4}"#]);
    assert_eq!(heard(), [Announce::Door]);
}
