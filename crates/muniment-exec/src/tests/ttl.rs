//! Which collections and indexes a TTL pass looks at.

use super::Bench;
use crate::TtlOutcome;
use muniment_query::{NeverInterrupted, QueryContext};
use muniment_storage::{Collection, CollectionOptions, IndexSpec};
use muniment_value::{Value, array, doc};
use std::sync::Arc;

fn ago(seconds: i64) -> Value<'static> {
    Value::DateTime(QueryContext::new().now_ms - seconds * 1000)
}

fn create(b: &Bench, name: &str, options: CollectionOptions) -> Arc<Collection> {
    let store = &b.engine.store;
    store
        .create_collection(name, options, &NeverInterrupted)
        .unwrap()
}

fn index(b: &Bench, c: &Arc<Collection>, order: i32, seconds: i64) {
    let key = doc! { "at": order };
    let d = doc! { "key": key, "name": "at", "expireAfterSeconds": seconds };
    let spec = IndexSpec::parse(d.as_doc()).unwrap();
    let made = b.engine.store.create_index(c, spec, &NeverInterrupted);
    made.unwrap();
}

fn insert(b: &Bench, c: &Arc<Collection>, d: muniment_value::DocBuf) {
    let mut unit = b.engine.store.write_unit(c, &*b.op).unwrap();
    unit.insert(&d.into_bytes()).unwrap().unwrap();
    unit.commit().unwrap();
}

/// Runs a pass. Returns how many documents were deleted, and how many indexes and collections were
/// looked at.
fn pass(b: &Bench) -> (u64, u64) {
    let TtlOutcome {
        deleted,
        indexes,
        failed,
    } = b.engine.ttl_pass(&b.op).unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    (deleted, indexes)
}

#[test]
fn a_pass_looks_only_at_what_is_due() {
    let b = Bench::new();
    for n in 0..20 {
        let c = create(&b, &format!("other.c{n}"), CollectionOptions::default());
        insert(&b, &c, doc! { "_id": 1, "at": ago(1000) });
    }
    let all: Vec<_> = [1, -1, 1, -1]
        .iter()
        .enumerate()
        .map(|(n, order)| {
            let c = create(&b, &format!("test.c{n}"), CollectionOptions::default());
            index(&b, &c, *order, 60);
            insert(&b, &c, doc! { "_id": 1, "at": ago(10) });
            insert(&b, &c, doc! { "_id": 2, "at": "no date" });
            c
        })
        .collect();
    // At first nothing is known of them; after the first pass, it is known that nothing is due.
    assert_eq!(pass(&b), (0, 4));
    assert_eq!(pass(&b), (0, 0));
    // Only collections that were written to are looked at, and only once.
    insert(&b, &all[1], doc! { "_id": 3, "at": ago(100) });
    insert(&b, &all[2], doc! { "_id": 3, "at": ago(5) });
    assert_eq!(pass(&b), (1, 2));
    assert_eq!(pass(&b), (0, 0));
    // The earliest date of an array counts.
    insert(
        &b,
        &all[0],
        doc! { "_id": 4, "at": array![ago(1), ago(61)] },
    );
    assert_eq!(pass(&b), (1, 1));
    // An update makes a date earlier.
    let mut unit = b.engine.store.write_unit(&all[3], &*b.op).unwrap();
    let (key, old) = unit.lock_by_id(Value::Int32(1)).unwrap().unwrap().unwrap();
    let new = bytes::Bytes::from(doc! { "_id": 1, "at": ago(99) }.into_bytes());
    let changed = muniment_storage::Changed::Whole;
    unit.update(&key, &old, &new, changed, &|_| true)
        .unwrap()
        .unwrap();
    unit.commit().unwrap();
    assert_eq!(pass(&b), (1, 1));
    // With a shorter expiry, documents become due.
    let mut spec = (*all[0].indexes()[1].spec()).clone();
    spec.expire_after_seconds = Some(3);
    let store = &b.engine.store;
    store
        .modify_index(&all[0], spec, &NeverInterrupted)
        .unwrap();
    assert_eq!(pass(&b), (1, 1));
    assert_eq!(pass(&b), (0, 0));
    // What was noted for a dropped collection is forgotten.
    store.drop_collection("test.c2", &NeverInterrupted).unwrap();
    pass(&b);
    assert_eq!(b.engine.expiries.lock().len(), 3);
}

#[test]
fn a_pass_comes_back_when_the_first_thing_expires() {
    let b = Bench::new();
    let c = create(&b, "test.c", CollectionOptions::default());
    index(&b, &c, 1, 1);
    let soon = QueryContext::new().now_ms;
    insert(&b, &c, doc! { "_id": 1, "at": Value::DateTime(soon) });
    insert(
        &b,
        &c,
        doc! { "_id": 2, "at": Value::DateTime(soon + 3_600_000) },
    );
    let mut deleted = 0;
    while deleted == 0 {
        deleted = pass(&b).0;
        // The pass does not look at it again before it is due.
        let due = QueryContext::new().now_ms - soon >= 1000;
        assert!(deleted == 0 || due);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!((deleted, c.count()), (1, 1));
    assert_eq!(pass(&b), (0, 0));
}

#[test]
fn clustered_collections_and_series_are_left_alone_until_something_is_due() {
    let b = Bench::new();
    let clustered = CollectionOptions {
        document: doc! {
            "clusteredIndex": doc! { "key": doc! { "_id": 1 }, "unique": true },
            "expireAfterSeconds": 60_i64,
        },
        ..CollectionOptions::default()
    };
    let clustered = create(&b, "test.clustered", clustered);
    let series = CollectionOptions {
        time_field: Some("t".into()),
        document: doc! {
            "timeseries": doc! { "timeField": "t" },
            "expireAfterSeconds": 60_i64,
        },
        ..CollectionOptions::default()
    };
    let series = create(&b, "test.series", series);
    insert(&b, &clustered, doc! { "_id": "text" });
    insert(&b, &clustered, doc! { "_id": ago(10) });
    insert(&b, &series, doc! { "t": ago(10) });
    assert_eq!(pass(&b), (0, 2));
    assert_eq!(pass(&b), (0, 0));
    insert(&b, &series, doc! { "t": ago(70) });
    assert_eq!(pass(&b), (1, 1));
    insert(&b, &clustered, doc! { "_id": ago(70) });
    assert_eq!(pass(&b), (1, 1));
    assert_eq!(pass(&b), (0, 0));
    assert_eq!((clustered.count(), series.count()), (2, 1));
}
