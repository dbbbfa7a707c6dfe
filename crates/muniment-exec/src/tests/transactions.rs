//! Transactions: what they see of their own and others' writes, what conflicts, and all of it at
//! once.

use super::races::{INDEXES, Race, WAYS, flusher, number, row};
use super::*;
use muniment_query::Account;
use muniment_storage::{
    Announce, CollectionOptions, Session, SessionHead, SessionKey, Transaction,
};
use muniment_value::{Code, Value, doc};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

/// A random number generator (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as i64
    }
}

/// An operation of a new transaction.
fn begin(b: &Bench) -> (Arc<OpContext>, Arc<Transaction>) {
    let (engine, patience) = (&b.engine, Duration::from_millis(5));
    let transaction = engine.store.begin_transaction(patience, None);
    (part_of(&transaction), transaction)
}

fn part_of(transaction: &Arc<Transaction>) -> Arc<OpContext> {
    let op = OpContext::internal("test");
    op.enter(transaction.clone());
    op
}

fn find(b: &Bench, op: &Arc<OpContext>, request: &FindRequest<'_>) -> Result<Vec<DocBuf>> {
    let mut cursor = b.engine.find(op, request)?;
    let mut out = Vec::new();
    while let Some(d) = cursor.next_doc(op)? {
        out.push(DocBuf::from_doc(Doc::new(&d)));
    }
    Ok(out)
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.unwrap_err().code()
}

fn update(b: &Bench, op: &Arc<OpContext>, q: DocBuf, u: DocBuf) -> Result<StatementOutcome> {
    let u = Value::Document(u.as_doc());
    let statement = UpdateStatement::new(q.as_doc(), u);
    b.engine.update(op, NS, &statement)
}

fn delete(b: &Bench, op: &Arc<OpContext>, q: DocBuf) -> Result<StatementOutcome> {
    let statement = DeleteStatement {
        filter: q.as_doc(),
        multi: false,
        hint: None,
        collation: None,
        let_: Doc::EMPTY,
    };
    b.engine.delete(op, NS, &statement)
}

fn insert(b: &Bench, op: &Arc<OpContext>, d: DocBuf) -> Result<()> {
    let docs = [d];
    let out = b
        .engine
        .insert_many(op, NS, &each(&docs), InsertOptions::default())?;
    match out.errors.into_iter().next() {
        Some(e) => Err(e.error),
        None => Ok(()),
    }
}

/// Checks that every one of [`WAYS`], `_id` and both orders find exactly `model`.
fn check(b: &Bench, op: &Arc<OpContext>, model: &BTreeMap<i64, i64>, what: &str) {
    for (text, hint) in WAYS {
        let filter = j(text);
        let request = FindRequest {
            filter: filter.as_doc(),
            hint: hint.map(Hint::Name),
            ..FindRequest::new(NS)
        };
        let found = find(b, op, &request).unwrap();
        let n = found.len();
        let found: BTreeMap<i64, i64> = found
            .iter()
            .map(|d| (number(d, "_id"), number(d, "v")))
            .collect();
        assert_eq!(
            (&found, n),
            (model, model.len()),
            "{what}: {text} by {hint:?}"
        );
    }
    for (field, direction) in [("_id", 1), ("_id", -1), ("a", 1), ("a", -1)] {
        let (filter, mut sort) = (DocBuf::new(), DocBuf::new());
        sort.append(field, direction);
        let request = FindRequest {
            filter: filter.as_doc(),
            sort: sort.as_doc(),
            ..FindRequest::new(NS)
        };
        let found = find(b, op, &request).unwrap();
        assert_eq!(found.len(), model.len(), "{what}: sorted by {field}");
        let in_order = found.windows(2).all(|w| {
            let (x, y) = (number(&w[0], field), number(&w[1], field));
            if direction > 0 { x <= y } else { x >= y }
        });
        assert!(in_order, "{what}: sorted by {field} {direction}");
    }
    for (i, v) in model {
        let filter = doc! { "_id": *i };
        let request = FindRequest {
            filter: filter.as_doc(),
            ..FindRequest::new(NS)
        };
        let found = find(b, op, &request).unwrap();
        assert_eq!(found.len(), 1, "{what}: {i}");
        assert_eq!(found[0].as_bytes(), row(*i, *v).as_bytes(), "{what}");
    }
}

/// A transaction finds its own writes through every index, and nobody else does. After its end
/// either everybody does or nobody.
#[test]
fn a_transaction_reads_what_it_has_written_through_every_index() {
    let b = Bench::new();
    for spec in INDEXES {
        b.index(spec).unwrap();
    }
    let docs: Vec<DocBuf> = (0..60).map(|i| row(i, 0)).collect();
    assert!(b.insert(&docs).errors.is_empty());
    let mut outside: BTreeMap<i64, i64> = (0..60).map(|i| (i, 0)).collect();
    let mut numbers = Numbers(0x5EED);
    for round in 0..12 {
        if round % 3 == 2 {
            b.engine.store.flush().unwrap();
        }
        let (op, transaction) = begin(&b);
        let mut inside = outside.clone();
        for step in 0..25 {
            let i = numbers.below(80);
            match inside.get(&i).copied() {
                None => {
                    insert(&b, &op, row(i, round)).unwrap();
                    inside.insert(i, round);
                }
                Some(_) if numbers.below(3) == 0 => {
                    let q = match numbers.below(2) {
                        0 => doc! { "_id": i },
                        _ => doc! { "u": row(i, inside[&i]).as_doc().get("u").unwrap() },
                    };
                    assert_eq!(delete(&b, &op, q).unwrap().matched, 1);
                    inside.remove(&i);
                }
                Some(v) => {
                    let q = match numbers.below(2) {
                        0 => doc! { "_id": i },
                        _ => doc! { "a": row(i, v).as_doc().get("a").unwrap(), "_id": i },
                    };
                    let new = row(i, v + 1);
                    assert_eq!(update(&b, &op, q, new).unwrap().modified, 1);
                    inside.insert(i, v + 1);
                }
            }
            if step % 8 == 7 {
                check(&b, &part_of(&transaction), &inside, "inside");
                check(&b, &b.op, &outside, "outside");
            }
        }
        if numbers.below(3) == 0 {
            transaction.abort();
        } else {
            transaction
                .commit(None, Announce::Door, &NeverInterrupted)
                .unwrap();
            outside = inside;
        }
        check(&b, &b.op, &outside, "after");
        assert_eq!(
            b.engine.store.collection(NS).unwrap().count(),
            outside.len() as u64
        );
    }
}

/// A statement does not find a document again that it has changed.
#[test]
fn a_statement_does_not_see_what_it_writes() {
    let b = Bench::new();
    b.index(r#"{"key": {"x": 1}, "name": "x"}"#).unwrap();
    let docs: Vec<DocBuf> = (0..500).map(|i| doc! { "_id": i, "x": i }).collect();
    assert!(b.insert(&docs).errors.is_empty());
    let (op, transaction) = begin(&b);
    for round in 1..=3 {
        let (q, u) = (j(r#"{"x": {"$gte": 0}}"#), j(r#"{"$inc": {"x": 100}}"#));
        let statement = UpdateStatement {
            multi: true,
            hint: Some(Hint::Name("x")),
            ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
        };
        let out = b.engine.update(&op, NS, &statement).unwrap();
        assert_eq!((out.matched, out.modified), (500, 500), "{round}");
    }
    transaction
        .commit(None, Announce::Door, &NeverInterrupted)
        .unwrap();
    assert_eq!(b.find(r#"{"x": {"$lt": 300}}"#).len(), 0);
    assert_eq!(b.find(r#"{"x": {"$gte": 300, "$lt": 800}}"#).len(), 500);
}

/// A transaction must give up if it writes something that another operation has written since its
/// view began, or is writing now.
#[test]
fn the_first_to_write_wins() {
    let b = Bench::new();
    b.index(r#"{"key": {"k": 1}, "name": "k", "unique": true, "sparse": true}"#)
        .unwrap();
    b.insert_json(&[
        r#"{"_id": 1, "k": 1}"#,
        r#"{"_id": 2, "k": 2}"#,
        r#"{"_id": 3}"#,
    ]);
    let set = |x: i32| doc! { "$set": doc! { "x": x } };
    // The other write was committed since the view began.
    let (op, _a) = begin(&b);
    b.update(r#"{"_id": 1}"#, r#"{"$set": {"x": 5}}"#, false)
        .unwrap();
    assert_eq!(
        code(update(&b, &op, doc! { "_id": 1 }, set(1))),
        Code::WriteConflict
    );
    assert_eq!(
        code(update(&b, &op, doc! { "k": 1 }, set(1))),
        Code::WriteConflict
    );
    assert_eq!(
        code(delete(&b, &op, doc! { "_id": 1 })),
        Code::WriteConflict
    );
    // A document that the transaction does not see does not exist for it.
    b.insert_json(&[r#"{"_id": 4, "k": 4}"#]);
    assert_eq!(
        update(&b, &op, doc! { "_id": 4 }, set(1)).unwrap().matched,
        0
    );
    // But it cannot insert a document with the same keys.
    assert_eq!(
        code(insert(&b, &op, doc! { "_id": 4 })),
        Code::WriteConflict
    );
    assert_eq!(
        code(insert(&b, &op, doc! { "_id": 9, "k": 4 })),
        Code::WriteConflict
    );
    // A key that the transaction sees is a duplicate.
    assert_eq!(code(insert(&b, &op, doc! { "_id": 2 })), Code::DuplicateKey);
    assert_eq!(
        code(insert(&b, &op, doc! { "_id": 9, "k": 2 })),
        Code::DuplicateKey
    );
    // The other write is still under way.
    let (one, first) = begin(&b);
    let (two, _second) = begin(&b);
    update(&b, &one, doc! { "_id": 2 }, set(1)).unwrap();
    insert(&b, &one, doc! { "_id": 100, "k": 100 }).unwrap();
    assert_eq!(
        code(update(&b, &two, doc! { "_id": 2 }, set(2))),
        Code::WriteConflict
    );
    assert_eq!(
        code(insert(&b, &two, doc! { "_id": 100 })),
        Code::WriteConflict
    );
    assert_eq!(
        code(insert(&b, &two, doc! { "_id": 101, "k": 100 })),
        Code::WriteConflict
    );
    update(&b, &two, doc! { "_id": 3 }, set(2)).unwrap();
    first.abort();
    // After the abort, the documents and keys are free.
    update(&b, &two, doc! { "_id": 2 }, set(3)).unwrap();
    insert(&b, &two, doc! { "_id": 100, "k": 100 }).unwrap();
    // An operation outside any transaction appends a greater `_id` meanwhile.
    b.insert_json(&[r#"{"_id": 200}"#]);
    assert_eq!(
        code(insert(&b, &two, doc! { "_id": 200 })),
        Code::WriteConflict
    );
    // An aborted transaction accepts no further operation.
    assert_eq!(
        code(update(&b, &one, doc! { "_id": 1 }, set(1))),
        Code::NoSuchTransaction
    );
    assert_eq!(
        code(find(&b, &one, &FindRequest::new(NS))),
        Code::NoSuchTransaction
    );
}

/// A duplicate within the transaction, and a key that the transaction itself made free.
#[test]
fn unique_keys_move_within_a_transaction() {
    let b = Bench::new();
    b.index(r#"{"key": {"k": 1}, "name": "k", "unique": true}"#)
        .unwrap();
    b.insert_json(&[r#"{"_id": 1, "k": 1}"#, r#"{"_id": 2, "k": 2}"#]);
    let (op, transaction) = begin(&b);
    insert(&b, &op, doc! { "_id": 3, "k": 3 }).unwrap();
    assert_eq!(
        code(insert(&b, &op, doc! { "_id": 4, "k": 3 })),
        Code::DuplicateKey
    );
    delete(&b, &op, doc! { "_id": 1 }).unwrap();
    insert(&b, &op, doc! { "_id": 5, "k": 1 }).unwrap();
    insert(&b, &op, doc! { "_id": 1, "k": 7 }).unwrap();
    update(
        &b,
        &op,
        doc! { "_id": 3 },
        doc! { "$set": doc! { "k": 30 } },
    )
    .unwrap();
    update(&b, &op, doc! { "_id": 2 }, doc! { "$set": doc! { "k": 3 } }).unwrap();
    transaction
        .commit(None, Announce::Door, &NeverInterrupted)
        .unwrap();
    for (k, id) in [(1, 5), (7, 1), (30, 3), (3, 2)] {
        let found = b.find(&format!(r#"{{"k": {k}}}"#));
        assert_eq!(found, [format!(r#"{{"_id":{id},"k":{k}}}"#)]);
    }
    assert!(b.find(r#"{"k": 2}"#).is_empty());
}

/// A collection that a transaction created goes away with it, unless another operation uses it.
#[test]
fn collections_made_by_a_transaction_end_with_it() {
    let b = Bench::new();
    let (op, transaction) = begin(&b);
    insert(&b, &op, doc! { "_id": 1 }).unwrap();
    assert_eq!(find(&b, &op, &FindRequest::new(NS)).unwrap().len(), 1);
    assert!(b.find("{}").is_empty());
    transaction.abort();
    assert!(b.engine.store.collection(NS).is_none());
    let (op, transaction) = begin(&b);
    insert(&b, &op, doc! { "_id": 1 }).unwrap();
    b.insert_json(&[r#"{"_id": 2}"#]);
    transaction.abort();
    assert_eq!(b.find("{}"), [r#"{"_id":2}"#]);
    let (op, transaction) = begin(&b);
    insert(&b, &op, doc! { "_id": 1 }).unwrap();
    transaction
        .commit(None, Announce::Door, &NeverInterrupted)
        .unwrap();
    assert_eq!(b.find("{}").len(), 2);
}

/// A collection that was dropped or lost its name since a view began must not look empty in that
/// view.
#[test]
fn a_name_that_was_lost_since_the_view_is_no_empty_collection() {
    for way in ["dropped", "renamed", "replaced"] {
        let b = Bench::new();
        let store = &b.engine.store;
        b.insert_json(&[r#"{"_id": 1}"#]);
        let other = CollectionOptions::default();
        store
            .create_collection("test.other", other.clone(), &NeverInterrupted)
            .unwrap();
        let transactions: Vec<_> = (0..6).map(|_| begin(&b)).collect();
        let pinned = OpContext::internal("test");
        pinned.pin(store.snapshot());
        let never = &NeverInterrupted;
        match way {
            "renamed" => store.rename_collection(NS, "test.d", false, never).unwrap(),
            _ => assert!(store.drop_collection(NS, never).unwrap()),
        }
        if way == "replaced" {
            store.create_collection(NS, other, never).unwrap();
        }
        let set = || doc! { "$set": doc! { "x": 1 } };
        let upsert = |op: &Arc<OpContext>| {
            let (q, u) = (doc! { "_id": 7 }, set());
            let statement = UpdateStatement {
                upsert: true,
                ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
            };
            b.engine.update(op, NS, &statement).map(|_| ())
        };
        let read = |op: &Arc<OpContext>| find(&b, op, &FindRequest::new(NS)).map(|_| ());
        let distinct = |op: &Arc<OpContext>| {
            let request = DistinctRequest {
                namespace: NS,
                key: "x",
                filter: Doc::EMPTY,
                hint: None,
                let_: Doc::EMPTY,
                collation: None,
            };
            b.engine.distinct(op, &request).map(|_| ())
        };
        let aggregate = |op: &Arc<OpContext>| -> Result<()> {
            let pipeline = j(r#"{"p": [{"$match": {"x": 1}}]}"#);
            let pipeline = pipeline.as_doc().get_array("p").unwrap();
            let mut cursor = b.engine.aggregate(op, &aggregation(pipeline))?;
            while cursor.next_doc(op)?.is_some() {}
            Ok(())
        };
        let lost = Code::SnapshotUnavailable;
        let op = |n: usize| &transactions[n].0;
        assert_eq!(code(read(op(0))), lost, "{way}");
        assert_eq!(code(distinct(op(1))), lost, "{way}");
        assert_eq!(code(aggregate(op(2))), lost, "{way}");
        assert_eq!(code(insert(&b, op(3), doc! { "_id": 5 })), lost, "{way}");
        assert_eq!(code(upsert(op(4))), lost, "{way}");
        assert_eq!(code(delete(&b, op(5), doc! { "_id": 1 })), lost, "{way}");
        assert_eq!(
            code(update(&b, op(5), doc! { "_id": 1 }, set())),
            lost,
            "{way}"
        );
        assert_eq!(code(read(&pinned)), lost, "{way}");
        assert_eq!(code(distinct(&pinned)), lost, "{way}");
        assert_eq!(code(aggregate(&pinned)), lost, "{way}");
        // The writes that failed did not create a collection.
        assert_eq!(store.collection(NS).is_some(), way == "replaced");
        // A view that begins now finds the present collections.
        let (op, transaction) = begin(&b);
        read(&op).unwrap();
        insert(&b, &op, doc! { "_id": 5 }).unwrap();
        upsert(&op).unwrap();
        transaction
            .commit(None, Announce::Door, &NeverInterrupted)
            .unwrap();
        assert_eq!(b.find("{}").len(), 2, "{way}");
    }
}

/// A join with a collection that was dropped since the view began.
#[test]
fn a_join_with_a_lost_collection_fails() {
    let b = Bench::new();
    let store = &b.engine.store;
    b.insert_json(&[r#"{"_id": 1}"#]);
    let other = store
        .create_collection(
            "test.other",
            CollectionOptions::default(),
            &NeverInterrupted,
        )
        .unwrap();
    let (op, _transaction) = begin(&b);
    drop(other);
    store
        .drop_collection("test.other", &NeverInterrupted)
        .unwrap();
    for pipeline in [
        r#"{"p": [{"$lookup": {"from": "other", "localField": "_id",
            "foreignField": "_id", "as": "o"}}]}"#,
        r#"{"p": [{"$lookup": {"from": "other", "pipeline": [], "as": "o"}}]}"#,
        r#"{"p": [{"$unionWith": "other"}]}"#,
        r#"{"p": [{"$graphLookup": {"from": "other", "startWith": "$_id",
            "connectFromField": "_id", "connectToField": "_id", "as": "o"}}]}"#,
    ] {
        let parsed = j(pipeline);
        let request = aggregation(parsed.as_doc().get_array("p").unwrap());
        let run = || -> Result<()> {
            let mut cursor = b.engine.aggregate(&op, &request)?;
            while cursor.next_doc(&op)?.is_some() {}
            Ok(())
        };
        assert_eq!(code(run()), Code::SnapshotUnavailable, "{pipeline}");
    }
}

/// The same for names that are not those of collections: a view, and the buckets of a time series.
#[test]
fn a_view_that_was_lost_since_is_not_empty() {
    for way in ["view", "all views", "series"] {
        let b = Bench::new();
        let (store, never) = (&b.engine.store, &NeverInterrupted);
        b.insert_json(&[r#"{"_id": 1}"#]);
        let view = View {
            on: "c".into(),
            ..View::default()
        };
        b.engine.create_view(&b.op, "test.v", &view).unwrap();
        let series = CollectionOptions {
            time_field: Some("t".into()),
            document: doc! { "timeseries": doc! { "timeField": "t" } },
            ..CollectionOptions::default()
        };
        store.create_collection("test.ts", series, never).unwrap();
        let name = match way {
            "series" => "test.system.buckets.ts",
            _ => "test.v",
        };
        let (op, _transaction) = begin(&b);
        let pinned = OpContext::internal("test");
        pinned.pin(store.snapshot());
        let read = |op: &Arc<OpContext>| find(&b, op, &FindRequest::new(name)).map(|d| d.len());
        let n = read(&pinned).unwrap();
        assert_eq!(n, usize::from(way != "series"), "{way}");
        match way {
            "view" => assert!(b.engine.drop_view(&b.op, "test.v").unwrap()),
            "series" => assert!(store.drop_collection("test.ts", never).unwrap()),
            _ => assert!(store.drop_collection("test.system.views", never).unwrap()),
        }
        assert_eq!(code(read(&op)), Code::SnapshotUnavailable, "{way}");
        assert_eq!(code(read(&pinned)), Code::SnapshotUnavailable, "{way}");
        assert_eq!(read(&begin(&b).0).unwrap(), 0, "{way}");
        assert_eq!(read(&b.op).unwrap(), 0, "{way}");
    }
}

/// A collection that a transaction created, and that another operation relies on, survives the
/// abort.
#[test]
fn who_relies_on_a_collection_that_a_transaction_made_keeps_it() {
    for way in ["nobody", "create", "insert", "index", "transaction"] {
        let b = Bench::new();
        let store = &b.engine.store;
        let (op, transaction) = begin(&b);
        insert(&b, &op, doc! { "_id": 1 }).unwrap();
        match way {
            "create" => {
                let made = b
                    .engine
                    .create_collection(NS, CollectionOptions::default(), &b.op);
                assert_eq!(code(made.map(|_| ())), Code::NamespaceExists);
                assert!(!store.collection(NS).unwrap().is_pending());
            }
            "insert" => {
                b.insert_json(&[r#"{"_id": 2}"#]);
                assert_eq!(b.delete("{}", false).unwrap().matched, 1);
            }
            "index" => {
                // The build waits for the transaction.
                std::thread::scope(|s| {
                    let build = s.spawn(|| b.index(r#"{"key": {"x": 1}, "name": "x"}"#));
                    std::thread::sleep(Duration::from_millis(50));
                    transaction.abort();
                    build.join().unwrap().unwrap();
                });
                let c = store.collection(NS).unwrap();
                assert_eq!(c.indexes().len(), 2);
            }
            "transaction" => {
                let (op, second) = begin(&b);
                insert(&b, &op, doc! { "_id": 3 }).unwrap();
                assert_eq!(delete(&b, &op, doc! { "_id": 3 }).unwrap().matched, 1);
                second
                    .commit(None, Announce::Door, &NeverInterrupted)
                    .unwrap();
            }
            _ => {}
        }
        transaction.abort();
        assert_eq!(store.collection(NS).is_some(), way != "nobody", "{way}");
    }
}

/// The cost of a statement in a large command does not grow with the statements before it, and each
/// is remembered.
#[test]
fn many_statements_are_remembered_at_the_same_cost() {
    const STEPS: i32 = 20;
    const EACH: i32 = 500;
    let b = Bench::new();
    let key = SessionKey::of_nobody([7; 16]);
    let of = |step: i32| {
        let op = OpContext::internal("update");
        let record = b.engine.store.session(&key).unwrap();
        let record = record.unwrap_or_else(|| Session::new(1, SessionHead::default()));
        let record = Arc::new(Mutex::new(record));
        let ids = StatementIds::From(step * EACH);
        let retry = Arc::new(Retry::new(key, 1, ids, record, None));
        op.may_be_retried(retry.clone());
        (op, retry)
    };
    let run = |op: &Arc<OpContext>, step: i32| {
        let docs: Vec<_> = (0..EACH)
            .map(|i| {
                (
                    doc! { "n": step * EACH + i },
                    doc! { "$inc": doc! { "x": 1 } },
                )
            })
            .collect();
        let mut statements = docs.iter().map(|(q, u)| {
            Ok(UpdateStatement {
                upsert: true,
                ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
            })
        });
        b.engine.update_many(op, NS, &mut statements, true)
    };
    b.index(r#"{"key": {"n": 1}, "name": "n"}"#).unwrap();
    let mut took = Vec::new();
    for step in 0..STEPS {
        let (op, _) = of(step);
        let began = std::time::Instant::now();
        let out = run(&op, step);
        took.push(began.elapsed());
        assert_eq!((out.upserted.len(), out.errors.len()), (EACH as usize, 0));
    }
    println!("{took:?}");
    let (early, late): (Duration, Duration) = (took[1..4].iter().sum(), took[17..20].iter().sum());
    assert!(late < early * 4, "{took:?}");
    // Some of the statements are sent again, and answered from what is stored.
    for step in [0, 7, STEPS - 1] {
        let (op, retry) = of(step);
        let out = run(&op, step);
        assert_eq!((out.upserted.len(), out.errors.len()), (EACH as usize, 0));
        assert_eq!(retry.retried().len(), EACH as usize);
    }
    assert_eq!(b.find(r#"{"x": 1}"#).len() as i32, STEPS * EACH);
    // With a new number, the session's earlier rows are removed.
    let rows = |store: &Store| store.session_rows().unwrap();
    assert!(rows(&b.engine.store) > 10);
    let head = b
        .engine
        .store
        .session(&key)
        .unwrap()
        .unwrap()
        .head()
        .clone();
    let op = OpContext::internal("update");
    let record = Arc::new(Mutex::new(Session::new(2, head)));
    let retry = Retry::new(key, 2, StatementIds::From(0), record, None);
    op.may_be_retried(Arc::new(retry));
    insert(&b, &op, doc! { "_id": "again" }).unwrap();
    assert_eq!(rows(&b.engine.store), 1);
    b.engine
        .store
        .forget_sessions(&[key], &NeverInterrupted)
        .unwrap();
    assert_eq!(rows(&b.engine.store), 0);
}

/// The writes of open transactions count against the memory that all operations share.
#[test]
fn open_transactions_share_the_operations_memory() {
    let b = Bench::new();
    b.insert_json(&[r#"{"_id": 1}"#]);
    let memory = &b.engine.memory;
    let used = || memory.figures(Account::Transactions).used;
    memory.set_limit(Account::Transactions, 12 << 20);
    let large =
        |op: &Arc<OpContext>, id: i32| insert(&b, op, doc! { "_id": id, "x": "x".repeat(1 << 20) });
    let all: Vec<_> = (0..3).map(|_| begin(&b)).collect();
    let mut id = 100;
    let refused = 'full: loop {
        for (n, (op, _)) in all.iter().enumerate() {
            id += 1;
            if let Err(e) = large(op, id) {
                break 'full (n, e.code());
            }
            assert!(id < 120, "no limit: {}", used());
        }
    };
    assert_eq!(refused.1, Code::WriteConflict);
    assert_eq!(memory.figures(Account::Transactions).refused, 1);
    // A small transaction is not refused because of large ones.
    let (op, small) = begin(&b);
    insert(&b, &op, doc! { "_id": "small" }).unwrap();
    small.abort();
    all.iter().for_each(|(_, t)| t.abort());
    assert_eq!(used(), 0);
    // There is room again, but not for an unlimited transaction.
    let (op, transaction) = begin(&b);
    let e = (200..220).find_map(|id| large(&op, id).err()).unwrap();
    assert_eq!(e.code(), Code::TransactionTooLargeForCache);
    drop((op, transaction));
    assert_eq!(used(), 0);
    let (op, transaction) = begin(&b);
    large(&op, 300).unwrap();
    transaction
        .commit(None, Announce::Door, &NeverInterrupted)
        .unwrap();
    assert_eq!(used(), 0);
    assert_eq!(b.find("{}").len(), 2);
}

/// Transactions move amounts between accounts, so that the sum stays, while there are plain
/// writers, flushes, index builds and aborts. Every transaction sees the right sum, and every
/// increment counts once.
#[test]
fn sums_stay_while_everything_else_happens() {
    const ACCOUNTS: i64 = 20;
    const EACH: i64 = 1000;
    let b = Bench::new();
    b.index(r#"{"key": {"sum": 1}, "name": "sum"}"#).unwrap();
    let docs: Vec<DocBuf> = (0..ACCOUNTS)
        .map(|i| doc! { "_id": i, "sum": EACH, "moves": 0_i64, "plain": 0_i64 })
        .collect();
    assert!(b.insert(&docs).errors.is_empty());
    let (moved, plain, seed) = (AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(1));
    let total = |op: &Arc<OpContext>, text: &str| -> Result<(i64, i64)> {
        let filter = j(text);
        let request = FindRequest {
            filter: filter.as_doc(),
            ..FindRequest::new(NS)
        };
        let found = find(&b, op, &request)?;
        assert_eq!(found.len() as i64, ACCOUNTS, "{text}");
        let sum = |field| found.iter().map(|d| number(d, field)).sum();
        Ok((sum("sum"), sum("moves")))
    };
    let conflict = |e: &muniment_value::Error| {
        let known = matches!(
            e.code(),
            Code::WriteConflict
                | Code::LockTimeout
                | Code::SnapshotUnavailable
                | Code::QueryPlanKilled
        );
        assert!(known, "{e}");
    };
    let transfer = |race: &Race| {
        let mut numbers = Numbers(seed.fetch_add(77, SeqCst) as u64 * 0x9E37_79B9);
        while race.on() {
            let (op, transaction) = begin(&b);
            let (from, to) = (numbers.below(ACCOUNTS), numbers.below(ACCOUNTS));
            let run = || -> Result<()> {
                for (who, by) in [(from, -7_i64), (to, 7)] {
                    let filter = doc! { "_id": who };
                    let request = FindRequest {
                        filter: filter.as_doc(),
                        ..FindRequest::new(NS)
                    };
                    let found = find(&b, &op, &request)?;
                    let sum = number(&found[0], "sum") + by;
                    let moves = number(&found[0], "moves") + 1;
                    let set = doc! { "$set": doc! { "sum": sum, "moves": moves } };
                    assert_eq!(update(&b, &op, filter.clone(), set)?.matched, 1);
                }
                assert_eq!(
                    total(&op, r#"{"sum": {"$gte": -1000000}}"#)?.0,
                    ACCOUNTS * EACH
                );
                Ok(())
            };
            match run() {
                Ok(()) if numbers.below(5) == 0 => transaction.abort(),
                Ok(()) => {
                    transaction
                        .commit(None, Announce::Door, &NeverInterrupted)
                        .unwrap();
                    moved.fetch_add(2, SeqCst);
                }
                Err(e) => {
                    conflict(&e);
                    transaction.abort();
                }
            }
        }
    };
    let look = |race: &Race| {
        while race.on() {
            let (op, _transaction) = begin(&b);
            match total(&op, "{}")
                .and_then(|a| Ok((a, total(&op, r#"{"sum": {"$gte": -1000000}}"#)?)))
            {
                Ok((a, again)) => {
                    assert_eq!(a.0, ACCOUNTS * EACH);
                    assert_eq!(a, again, "a view that changed");
                }
                Err(e) => conflict(&e),
            }
        }
    };
    let add = |race: &Race| {
        let mut numbers = Numbers(99);
        while race.on() {
            let q = format!(r#"{{"_id": {}}}"#, numbers.below(ACCOUNTS));
            let out = b.update(&q, r#"{"$inc": {"plain": 1}}"#, false).unwrap();
            assert_eq!(out.modified, 1);
            plain.fetch_add(1, SeqCst);
            std::thread::sleep(Duration::from_micros(300));
        }
    };
    let builds = |race: &Race| {
        while race.on() {
            b.index(r#"{"key": {"moves": 1}, "name": "moves"}"#)
                .unwrap();
            let c = b.engine.store.collection(NS).unwrap();
            std::thread::sleep(Duration::from_millis(3));
            b.engine
                .store
                .drop_index(&c, "moves", &NeverInterrupted)
                .unwrap();
        }
    };
    Race::run(&[
        &transfer,
        &transfer,
        &transfer,
        &look,
        &add,
        &builds,
        &flusher(&b),
    ]);
    let (sum, moves) = total(&b.op, "{}").unwrap();
    assert_eq!(sum, ACCOUNTS * EACH);
    assert_eq!(moves, moved.load(SeqCst), "moves that were committed");
    let plains: i64 = b
        .run(&FindRequest::new(NS))
        .unwrap()
        .iter()
        .map(|d| number(d, "plain"))
        .sum();
    assert_eq!(plains, plain.load(SeqCst));
    assert!(moves > 0 && plains > 0);
}
