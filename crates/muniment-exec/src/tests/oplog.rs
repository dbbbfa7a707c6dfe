//! The log in the form of MongoDB's collections: how entries are shown, and how little of the log
//! is read.

use super::*;
use crate::cursor::{CursorOwner, Tail};
use crate::oplog::read::{Forward, Show, Span};
use crate::run::current::CurrentOp;
use muniment_query::DocStream;
use muniment_query::diff;
use muniment_storage::{Announce, CollectionOptions, Timestamp};
use muniment_value::{Code, Value, doc};
use std::sync::atomic::Ordering::Relaxed;

const OPLOG: &str = crate::OPLOG;

/// A find on the oplog; returns also how many entries it read.
fn find(b: &Bench, filter: &str, sort: &str, limit: u64) -> (Vec<DocBuf>, u64) {
    find_by(b, &j(filter), &j(sort), limit)
}

fn find_by(b: &Bench, filter: &DocBuf, sort: &DocBuf, limit: u64) -> (Vec<DocBuf>, u64) {
    let request = FindRequest {
        filter: filter.as_doc(),
        sort: sort.as_doc(),
        limit,
        ..FindRequest::new(OPLOG)
    };
    let before = b.op.counters.docs_examined.load(Relaxed);
    let found = b.run(&request).unwrap();
    (found, b.op.counters.docs_examined.load(Relaxed) - before)
}

/// The document without the fields that differ in each run.
fn shown(d: &DocBuf) -> String {
    let mut out = DocBuf::new();
    for e in d.as_doc() {
        if !matches!(e.name(), "ts" | "ui" | "wall") {
            out.append_elem(e);
        }
    }
    out.as_doc().to_display()
}

fn names(d: &DocBuf) -> Vec<&str> {
    d.as_doc().iter().map(|e| e.name()).collect()
}

fn ts(d: &DocBuf) -> Timestamp {
    match d.as_doc().get("ts") {
        Some(Value::Timestamp { t, i }) => Timestamp::new(t, i),
        other => panic!("{other:?}"),
    }
}

fn aggregate(b: &Bench, pipeline: &str) -> Vec<DocBuf> {
    let wrapped = j(&format!(r#"{{"p": {pipeline}}}"#));
    let pipeline = wrapped.as_doc().get_array("p").unwrap();
    let request = AggregateRequest {
        db: "local",
        collection: Some("oplog.rs"),
        ..aggregation(pipeline)
    };
    let mut cursor = b.engine.aggregate(&b.op, &request).unwrap();
    let mut out = Vec::new();
    while let Some(d) = cursor.next_doc(&b.op).unwrap() {
        out.push(DocBuf::from_doc(Doc::new(&d)));
    }
    out
}

fn update(b: &Bench, q: &str, u: &str) {
    let (q, u) = (j(q), j(u));
    let statement = UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()));
    b.engine.update(&b.op, NS, &statement).unwrap();
}

#[test]
fn entries_are_shown_as_mongodb_shows_them() {
    let b = Bench::new();
    b.insert_json(&[r#"{"_id":1,"a":1,"pad":"pppppppppppppppp"}"#]);
    update(&b, r#"{"_id":1}"#, r#"{"$set":{"a":2}}"#);
    update(&b, r#"{"_id":1}"#, r#"{"b":1}"#);
    let q = doc! { "_id": 1 };
    let delete = DeleteStatement {
        filter: q.as_doc(),
        multi: false,
        hint: None,
        collation: None,
        let_: Doc::EMPTY,
    };
    b.engine.delete(&b.op, NS, &delete).unwrap();
    // MongoDB's oplog does not show these operations.
    let own = CollectionOptions::default();
    b.engine
        .create_collection("local.own", own.clone(), &b.op)
        .unwrap();
    let made = b
        .engine
        .create_collection("test.system.profile", own, &b.op);
    made.unwrap();
    let mut old = Vec::new();
    assert!(diff::encode(
        j(r#"{"a":1,"pad":"pppppppppppppppp"}"#).as_doc(),
        j(r#"{"a":2,"pad":"pppppppppppppppp"}"#).as_doc(),
        &mut old
    ));
    let (all, _) = find(&b, "{}", "{}", 0);
    let lines: Vec<String> = all.iter().map(shown).collect();
    let tail = "t: 1, v: 2 }";
    let want = [
        format!(
            r#"{{ op: "c", ns: "test.$cmd", o: {{ create: "c", idIndex: {{ v: 2, key: {{ _id: 1 }}, name: "_id_" }} }}, {tail}"#
        ),
        format!(
            r#"{{ op: "i", ns: "test.c", o: {{ _id: 1, a: 1, pad: "pppppppppppppppp" }}, o2: {{ _id: 1 }}, {tail}"#
        ),
        format!(
            r#"{{ op: "u", ns: "test.c", o: {{ $v: 2, diff: {} }}, o2: {{ _id: 1 }}, {tail}"#,
            Doc::new(&old).to_display()
        ),
        format!(r#"{{ op: "u", ns: "test.c", o: {{ _id: 1, b: 1 }}, o2: {{ _id: 1 }}, {tail}"#),
        format!(r#"{{ op: "d", ns: "test.c", o: {{ _id: 1 }}, {tail}"#),
    ];
    assert_eq!(lines, want);
    let order = ["op", "ns", "ui", "o", "o2", "ts", "t", "v", "wall"];
    assert_eq!(names(&all[1]), order);
    let collection = b.engine.store.collection(NS).unwrap();
    let uuid = collection.uuid();
    for d in &all {
        let ui = d.as_doc().get("ui");
        assert!(matches!(ui, Some(Value::Binary { subtype: 4, bytes }) if bytes == uuid));
        assert!(matches!(d.as_doc().get("v"), Some(Value::Int64(2))));
        assert!(matches!(d.as_doc().get("wall"), Some(Value::DateTime(_))));
    }
    assert!(all.windows(2).all(|w| ts(&w[0]) < ts(&w[1])));
}

#[test]
fn transactions_are_shown_as_one_command_or_as_parts() {
    let b = Bench::new();
    let c = b.collection().unwrap();
    let never = &NeverInterrupted;
    for (first, size) in [(1, 1_usize), (10, 3 << 20)] {
        let t = b
            .engine
            .store
            .begin_transaction(Duration::from_millis(5), None);
        for i in first..first + 4 {
            let mut w = b.engine.store.write_unit_in(&t, &c, never).unwrap();
            let d = doc! { "_id": i, "x": "x".repeat(size) };
            w.insert(&bytes::Bytes::from(d.into_bytes()))
                .unwrap()
                .unwrap();
            w.commit().unwrap();
        }
        t.commit(None, Announce::Door, never).unwrap();
    }
    let (all, _) = find(&b, r#"{"o.applyOps":{"$exists":true}}"#, "{}", 0);
    let o = |n: usize| all[n].as_doc().get_doc("o").unwrap();
    let previous = |n: usize| all[n].as_doc().get_doc("prevOpTime").unwrap().to_display();
    assert_eq!(all.len(), 3);
    assert_eq!(
        names(&all[0]),
        ["op", "ns", "o", "ts", "t", "v", "wall", "prevOpTime"]
    );
    assert_eq!(all[0].as_doc().get_str("ns"), Some("admin.$cmd"));
    assert_eq!(o(0).count(), 1);
    let first = o(0).get_array("applyOps").unwrap().values().next().unwrap();
    let fields: Vec<_> = first.as_doc().unwrap().iter().map(|e| e.name()).collect();
    assert_eq!(fields, ["op", "ns", "ui", "o", "o2"]);
    assert_eq!(previous(0), "{ ts: Timestamp(0, 0), t: -1 }");
    assert!(matches!(o(1).get("partialTxn"), Some(Value::Bool(true))));
    assert_eq!(previous(1), "{ ts: Timestamp(0, 0), t: -1 }");
    assert!(matches!(o(2).get("count"), Some(Value::Int64(4))));
    assert_eq!(previous(2), format!("{{ ts: {}, t: 1 }}", ts(&all[1])));
}

/// A retryable update of several statements, in a session without a user.
fn update_retryably(b: &Bench, number: i64, ids: std::ops::Range<i32>) {
    let key = muniment_storage::SessionKey::of_nobody([9; 16]);
    let stored = b.engine.store.session(&key).unwrap();
    let session = match stored {
        Some(mut session) if session.number() != number => {
            session.renew(number);
            session
        }
        Some(session) => session,
        None => muniment_storage::Session::new(number, Default::default()),
    };
    let session = std::sync::Arc::new(parking_lot::Mutex::new(session));
    let first = crate::StatementIds::From(ids.start);
    let retry = crate::Retry::new(key, number, first, session, None);
    let op = OpContext::internal("update");
    op.may_be_retried(std::sync::Arc::new(retry));
    let queries: Vec<DocBuf> = ids.map(|i| doc! { "_id": i }).collect();
    let change = doc! { "$inc": doc! { "n": number } };
    let mut statements = queries.iter().map(|q| {
        let change = Value::Document(change.as_doc());
        Ok(UpdateStatement::new(q.as_doc(), change))
    });
    let out = b.engine.update_many(&op, NS, &mut statements, true);
    assert!(out.errors.is_empty() && out.n == queries.len() as u64);
}

#[test]
fn entries_of_one_number_of_a_session_are_linked() {
    let b = Bench::new();
    for i in 0..6 {
        b.insert(&[doc! { "_id": i, "n": 0 }]);
    }
    // The statements of number 1 come in several commands. Before the last one, the session is
    // flushed from memory.
    update_retryably(&b, 1, 0..3);
    update_retryably(&b, 1, 3..5);
    b.engine.store.flush().unwrap();
    update_retryably(&b, 1, 5..6);
    update_retryably(&b, 2, 0..1);
    let (all, _) = find(&b, r#"{"txnNumber":{"$exists":true}}"#, "{}", 0);
    let previous: Vec<Timestamp> = all
        .iter()
        .map(|d| {
            let d = d.as_doc().get_doc("prevOpTime").unwrap().to_buf();
            ts(&d)
        })
        .collect();
    let times: Vec<Timestamp> = all.iter().map(ts).collect();
    assert_eq!(times.len(), 7);
    assert_eq!(previous[0], Timestamp::ZERO);
    assert_eq!(previous[1..6], times[..5]);
    assert_eq!(previous[6], Timestamp::ZERO);
    let ids: Vec<_> = all.iter().map(|d| d.as_doc().get("stmtId")).collect();
    assert!(matches!(ids[4], Some(Value::Int32(4))), "{ids:?}");
    let order = [
        "lsid",
        "txnNumber",
        "op",
        "ns",
        "ui",
        "o",
        "o2",
        "stmtId",
        "ts",
        "t",
        "v",
        "wall",
        "prevOpTime",
    ];
    assert_eq!(names(&all[0]), order);
    // The last action of the session.
    let sessions = b.run(&FindRequest::new("config.transactions")).unwrap();
    let last = sessions[0].as_doc().get_doc("lastWriteOpTime").unwrap();
    assert_eq!(ts(&last.to_buf()), times[6]);
}

#[test]
fn reading_begins_where_the_filter_says_and_ends_there() {
    let b = Bench::new();
    // These documents make many places in the sparse index.
    for i in 0..400 {
        b.insert(&[doc! { "_id": i, "x": "x".repeat(4000) }]);
    }
    let (all, read) = find(&b, "{}", "{}", 0);
    assert_eq!((all.len(), read), (401, 401));
    let at = |n: usize| all[n].as_doc().get("ts").unwrap();
    let bounded = |operator: &str, n: usize, sort: DocBuf, limit: u64| {
        let mut compared = DocBuf::new();
        compared.append(operator, at(n));
        find_by(&b, &doc! { "ts": compared }, &sort, limit)
    };
    for (operator, want, most) in [
        ("$gt", &all[391..], 10),
        ("$gte", &all[390..], 11),
        ("$eq", &all[390..391], 2),
    ] {
        let (found, read) = bounded(operator, 390, DocBuf::new(), 0);
        assert!(found == want, "{operator}");
        assert!(read <= most, "{operator}: {read}");
        let (mut found, read) = bounded(operator, 390, doc! { "$natural": -1 }, 0);
        found.reverse();
        assert!(found == want, "{operator} backwards");
        assert!(read <= 40, "{operator} backwards: {read}");
    }
    let (found, read) = bounded("$lte", 5, DocBuf::new(), 0);
    assert!(found == all[..6]);
    assert!(read <= 7, "{read}");
    // Reading from the end takes one place or two.
    for sort in [r#"{"$natural":-1}"#, r#"{"ts":-1}"#] {
        let (last, read) = find(&b, "{}", sort, 1);
        assert!(last == all[400..], "{sort}");
        assert!(read <= 40, "{sort}: {read}");
        let (mut back, read) = find(&b, "{}", sort, 0);
        back.reverse();
        assert!(back == all && read == 401, "{read}");
    }
    let sorted = aggregate(
        &b,
        r#"[{"$match":{"op":"i"}},{"$sort":{"ts":-1}},{"$limit":2},{"$project":{"o._id":1}}]"#,
    );
    assert_eq!(
        sorted[0].as_doc().get_doc("o").unwrap().to_display(),
        "{ _id: 399 }"
    );
    // Another order, and the other options of a find.
    let (odd, _) = find(&b, r#"{"op":"i"}"#, r#"{"o._id":-1}"#, 2);
    assert!(odd == [all[400].clone(), all[399].clone()]);
    let filter = j(r#"{"o._id":{"$lt":10}}"#);
    let projection = j(r#"{"o._id":1}"#);
    let request = FindRequest {
        filter: filter.as_doc(),
        projection: projection.as_doc(),
        skip: 8,
        ..FindRequest::new(OPLOG)
    };
    let found: Vec<String> = b.run(&request).unwrap().iter().map(|d| text(d)).collect();
    assert_eq!(found, [r#"{"o":{"_id":8}}"#, r#"{"o":{"_id":9}}"#]);
    let count = CountRequest {
        filter: filter.as_doc(),
        ..CountRequest::new(OPLOG)
    };
    assert_eq!(b.engine.count(&b.op, &count).unwrap(), 10);
    assert_eq!(
        b.engine.count(&b.op, &CountRequest::new(OPLOG)).unwrap(),
        401
    );
    let distinct = DistinctRequest {
        namespace: OPLOG,
        key: "op",
        filter: Doc::EMPTY,
        hint: None,
        let_: Doc::EMPTY,
        collation: None,
    };
    let ops = b.engine.distinct(&b.op, &distinct).unwrap();
    assert_eq!(ops, muniment_value::array!["c", "i"]);
    let explained = b
        .engine
        .explain(
            &b.op,
            &Explainable::Find(&request),
            Verbosity::ExecutionStats,
        )
        .unwrap();
    let stats = explained.as_doc().get_doc("executionStats").unwrap();
    assert!(matches!(stats.get("nReturned"), Some(Value::Int32(2))));
    let stage = stats.get_doc("executionStages").unwrap();
    assert_eq!(stage.get_str("stage"), Some("COLLSCAN"));
}

#[test]
fn a_cursor_follows_and_loses_its_place() {
    let b = Bench::new();
    b.insert(&[doc! { "_id": 0 }]);
    let follow = FindRequest {
        tailable: true,
        await_data: true,
        ..FindRequest::new(OPLOG)
    };
    let get = |request: &FindRequest<'_>| b.engine.find(&b.op, request).unwrap();
    let mut cursor = get(&follow);
    let limits = BatchLimits::FIRST;
    let end = cursor.fill_batch(&b.op, &mut Vec::new(), limits).unwrap();
    assert_eq!((end.docs, end.exhausted), (2, false));
    b.insert(&[doc! { "_id": 1 }]);
    b.insert(&[doc! { "_id": 2 }]);
    let end = cursor.fill_batch(&b.op, &mut Vec::new(), limits).unwrap();
    assert_eq!((end.docs, end.exhausted), (2, false));
    // A getMore waits for new entries as long as it may.
    let mut out = Vec::new();
    let owner = CursorOwner::default();
    let id = b
        .engine
        .first_batch(&b.op, cursor, owner.clone(), limits, &mut out)
        .unwrap();
    let more = |wait: u64| -> Result<(usize, Duration)> {
        let began = std::time::Instant::now();
        let mut out = vec![0; 4];
        let request = GetMoreRequest {
            id,
            namespace: OPLOG,
            owner: owner.clone(),
            batch_size: None,
            await_time: Some(Duration::from_millis(wait)),
            await_time_given: true,
            is_late: &|| false,
            fails: &|| None,
        };
        let kept = b.engine.get_more(&b.op, &request, &mut out)?;
        assert_eq!(kept, id);
        out.push(0);
        let len = (out.len() as u32).to_le_bytes();
        out[..4].copy_from_slice(&len);
        let batch = Doc::new(&out).get_doc("cursor").unwrap();
        let n = batch.get_array("nextBatch").unwrap().count();
        Ok((n, began.elapsed()))
    };
    let (n, took) = more(300).unwrap();
    assert!(n == 0 && took >= Duration::from_millis(300), "{n} {took:?}");
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            b.insert(&[doc! { "_id": 3 }]);
        });
        let (n, took) = more(10_000).unwrap();
        assert!(n == 1 && took < Duration::from_secs(5), "{n} {took:?}");
    });
    // The log goes on and drops the entries that the cursor would read next.
    b.engine.store.keep_log(1, Duration::ZERO);
    for i in 10..90 {
        b.insert(&[doc! { "_id": i, "x": "x".repeat(1 << 20) }]);
    }
    b.engine.store.flush().unwrap();
    assert!(b.engine.store.log_begins_after().unwrap() > Timestamp::ZERO);
    let lost = more(100).unwrap_err();
    assert_eq!(lost.code(), Code::CappedPositionLost);
    // A new cursor begins with the oldest entry that still exists.
    let (rest, _) = find(
        &b,
        r#"{"ts":{"$gt":{"$timestamp":{"t":1,"i":1}}}}"#,
        "{}",
        0,
    );
    assert!(!rest.is_empty() && rest.len() < 80, "{}", rest.len());
    for (request, message) in [
        (
            FindRequest {
                sort: j(r#"{"$natural":-1}"#).as_doc(),
                ..follow.clone()
            },
            "sorted",
        ),
        (
            FindRequest {
                namespace: "config.transactions",
                ..follow.clone()
            },
            "non capped",
        ),
    ] {
        let e = b.engine.find(&b.op, &request).err().unwrap();
        assert!(
            e.code() == Code::BadValue && e.message().contains(message),
            "{e}"
        );
    }
}

#[test]
fn a_batch_ends_with_what_was_there_when_it_began() {
    let b = Bench::new();
    b.insert(&[doc! { "_id": 0 }]);
    let op = CurrentOp::new(&b.op);
    let show = Show {
        render: |entry| vec![doc! { "at": entry.at.to_string() }],
        since_ms: i64::MIN,
    };
    let mut log = Forward::open(&b.engine.store, &op, Span::ALL, show).unwrap();
    let follower = log.follower();
    let mut batch = |written: &[DocBuf]| {
        follower.begins();
        for one in written.chunks(1) {
            b.insert(one);
        }
        std::iter::from_fn(|| log.next().unwrap()).count()
    };
    // The batch has the creation of the collection, and its first document.
    assert_eq!(batch(&[doc! { "_id": 1 }, doc! { "_id": 2 }]), 2);
    // There are more entries, so the wait ends at once.
    let began = std::time::Instant::now();
    let wait = follower.wait(&b.op, began + Duration::from_secs(30));
    wait.unwrap();
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(batch(&[doc! { "_id": 3 }]), 2);
    assert_eq!(batch(&[]), 1);
    assert_eq!(batch(&[]), 0);
}

#[test]
fn nobody_writes_what_is_generated() {
    let b = Bench::new();
    for name in [OPLOG, "config.transactions", "config.system.preimages"] {
        let d = [doc! { "_id": 1 }];
        let insert = b
            .engine
            .insert_many(&b.op, name, &each(&d), InsertOptions::default());
        let error = match insert {
            Ok(mut out) => out.errors.pop().unwrap().error,
            Err(e) => e,
        };
        assert_eq!(error.code(), Code::InvalidNamespace, "{name}");
        let u = doc! { "$set": doc! { "x": 1 } };
        let statement = UpdateStatement::new(Doc::EMPTY, Value::Document(u.as_doc()));
        let e = b.engine.update(&b.op, name, &statement).unwrap_err();
        assert_eq!(e.code(), Code::InvalidNamespace, "{name}");
        let made = b
            .engine
            .create_collection(name, CollectionOptions::default(), &b.op);
        assert_eq!(made.err().unwrap().code(), Code::NamespaceExists);
    }
}

#[test]
fn pre_images_are_shown_where_they_are_kept() {
    let b = Bench::new();
    b.insert_json(&[r#"{"_id":1,"a":1}"#]);
    let mut images = CollectionOptions::default();
    images
        .document
        .append("changeStreamPreAndPostImages", doc! { "enabled": true });
    let c = b.engine.store.collection(NS).unwrap();
    b.engine
        .store
        .modify_options(&c, images, &NeverInterrupted)
        .unwrap();
    update(&b, r#"{"_id":1}"#, r#"{"$set":{"a":2}}"#);
    let found = b.run(&FindRequest::new("config.system.preimages")).unwrap();
    assert_eq!(found.len(), 1);
    let d = found[0].as_doc();
    assert_eq!(names(&found[0]), ["_id", "operationTime", "preImage"]);
    assert_eq!(
        d.get_doc("preImage").unwrap().to_display(),
        "{ _id: 1, a: 1 }"
    );
    let (last, _) = find(&b, "{}", r#"{"$natural":-1}"#, 1);
    let id = d.get_doc("_id").unwrap();
    assert_eq!(id.get("ts").unwrap().to_display(), ts(&last[0]).to_string());
    assert!(matches!(id.get("applyOpsIndex"), Some(Value::Int64(0))));

    // Images expire, however old the log is from which they are made.
    let count = || {
        let namespace = "config.system.preimages";
        // The time of an operation is that of its beginning, so each needs a new one.
        let op = OpContext::internal("test");
        let Source::Generated(of) = b.engine.source(namespace).unwrap() else {
            panic!("{namespace} is made when it is read");
        };
        let figures = b.engine.generated_figures(&op, of).unwrap();
        let read = |request: &FindRequest<'_>| {
            let mut cursor = b.engine.find(&op, request).unwrap();
            std::iter::from_fn(|| cursor.next_doc(&op).unwrap()).count()
        };
        let newest = j(r#"{"$natural":-1}"#);
        let backward = FindRequest {
            sort: newest.as_doc(),
            ..FindRequest::new(namespace)
        };
        let backward = read(&backward);
        let forward = read(&FindRequest::new(namespace));
        [forward, backward, figures.count as usize]
    };
    let seconds = b.engine.image_seconds();
    seconds.store(3600, Relaxed);
    assert_eq!(count(), [1; 3]);
    seconds.store(1, Relaxed);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(count(), [0; 3]);
    seconds.store(0, Relaxed);
    assert_eq!(count(), [1; 3]);
}
