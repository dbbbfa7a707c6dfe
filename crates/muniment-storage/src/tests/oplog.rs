//! Compares what readers of the log get with what was done.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::tests::natural::crash;
use crate::tests::{bytes, insert, key_of, open, options};
use crate::*;
use muniment_op::NeverInterrupted;
use muniment_query::diff;
use muniment_value::{Code, Doc, DocBuf, doc};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Follows a log to its end.
fn all(store: &Store, after: Timestamp) -> Vec<LogEntry> {
    let mut entries = store.log_entries(after).unwrap();
    let mut all = Vec::new();
    while let Some(e) = entries.next().unwrap() {
        all.push(e);
    }
    assert!(entries.position() >= all.last().map_or(after, |e| e.at));
    all
}

/// A line for each operation, without `at`.
fn told(entries: &[LogEntry]) -> Vec<String> {
    let ops = entries.iter().flat_map(|e| &e.ops);
    ops.map(|op| {
        let of = op.of.as_ref().map_or("", |n| n.namespace.as_str());
        let before = op.before.as_ref().map_or(String::new(), |b| {
            format!(" before {}", Doc::new(b).to_display())
        });
        let what = match &op.what {
            What::Insert { doc } => format!("i {}", Doc::new(doc).to_display()),
            What::Update { diff, .. } => format!("u {}", Doc::new(diff).to_display()),
            What::Replace { doc } => format!("r {}", Doc::new(doc).to_display()),
            What::Delete { id } => format!("d {id:?}"),
            What::Note { doc } => {
                let o = Doc::new(doc).get_doc("o").unwrap().to_buf();
                o.as_doc().to_display()
            }
        };
        format!("{of} {what}{before}")
    })
    .collect()
}

fn change(store: &Store, c: &Arc<Collection>, id: i32, new: Option<DocBuf>, how: Changed<'_>) {
    let key = key_of(store, c, id);
    let mut w = store.write_unit(c, &NeverInterrupted).unwrap();
    let old = w.lock(&key).unwrap().unwrap().unwrap();
    match new {
        Some(new) => w.update(&key, &old, &bytes(new), how, &|_| true),
        None => w.delete(&key, &old),
    }
    .unwrap()
    .unwrap();
    w.commit().unwrap();
}

#[test]
fn readers_are_told_everything_once_with_the_names_of_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let begin = store.visible();
    let never = &NeverInterrupted;
    let c = store
        .create_collection("db.c", CollectionOptions::default(), never)
        .unwrap();
    let mut w = store.write_unit(&c, never).unwrap();
    for i in 0..3 {
        w.insert(&bytes(doc! { "_id": i, "x": i, "pad": "ppppppppppppppp" }))
            .unwrap()
            .unwrap();
    }
    w.commit().unwrap();
    let next = doc! { "_id": 1, "x": 7, "pad": "ppppppppppppppp" };
    change(&store, &c, 1, Some(next.clone()), Changed::Shorter);
    store.flush().unwrap();
    change(&store, &c, 2, Some(doc! { "_id": 2 }), Changed::Whole);
    store
        .rename_collection("db.c", "db.d", false, never)
        .unwrap();
    let spec = IndexSpec::parse(doc! { "key": doc! { "x": 1 }, "name": "x_1" }.as_doc()).unwrap();
    store.create_index(&c, spec, never).unwrap();
    let mut images = CollectionOptions::default();
    images
        .document
        .append("changeStreamPreAndPostImages", doc! { "enabled": true });
    store.modify_options(&c, images, never).unwrap();
    change(&store, &c, 1, None, Changed::Whole);
    store.drop_index(&c, "x_1", never).unwrap();
    store.drop_collection("db.d", never).unwrap();
    let note = doc! { "op": "c", "ns": "db.$cmd", "o": doc! { "dropDatabase": 1 } };
    store.note(note.as_doc(), never).unwrap();

    let mut diff = Vec::new();
    let old = doc! { "_id": 1, "x": 1, "pad": "ppppppppppppppp" };
    assert!(diff::encode(old.as_doc(), next.as_doc(), &mut diff));
    let images = r#"{ changeStreamPreAndPostImages: { enabled: true } }"#;
    let id = r#"{ v: 2, key: { _id: 1 }, name: "_id_" }"#;
    let want = [
        format!(r#" {{ create: "c", idIndex: {id} }}"#),
        r#"db.c i { _id: 0, x: 0, pad: "ppppppppppppppp" }"#.into(),
        r#"db.c i { _id: 1, x: 1, pad: "ppppppppppppppp" }"#.into(),
        r#"db.c i { _id: 2, x: 2, pad: "ppppppppppppppp" }"#.into(),
        "db.c u { u: { x: 7 } }".into(),
        "db.c r { _id: 2 }".into(),
        r#" { renameCollection: "db.c", to: "db.d", stayTemp: false }"#.into(),
        r#" { createIndexes: "d", v: 2, key: { x: 1 }, name: "x_1" }"#.into(),
        format!(" {{ collMod: \"d\", {}", &images[2..]),
        format!(
            "db.d d b\"\\x10\\x01\\0\\0\\0\" before {}",
            next.as_doc().to_display()
        ),
        r#" { dropIndexes: "d", index: "x_1" }"#.into(),
        r#" { drop: "d" }"#.into(),
        " { dropDatabase: 1 }".into(),
    ];
    for round in 0..3 {
        let entries = all(&store, begin);
        assert_eq!(told(&entries), want, "round {round}");
        // Each entry has a timestamp of its own. A reader that begins in the middle of a record gets the
        // rest of it.
        assert!(entries.windows(2).all(|w| w[0].at < w[1].at));
        // Documents that were inserted together are one entry.
        let operations: Vec<usize> = entries.iter().map(|e| e.ops.len()).collect();
        assert_eq!(operations, [1, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(entries[1].whole, Whole::Batch);
        let mut n = 0;
        for e in &entries {
            n += e.ops.len();
            assert_eq!(told(&all(&store, e.at)), want[n..]);
        }
        store = match round {
            0 => {
                drop(store);
                open(dir.path())
            }
            _ => {
                store.flush().unwrap();
                let crashed = crash(&store, dir.path());
                drop(store);
                open(&crashed.keep())
            }
        };
    }
}

#[test]
fn a_transaction_is_one_entry_and_a_large_one_several() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let never = &NeverInterrupted;
    let make = |name| {
        let options = CollectionOptions::default();
        store.create_collection(name, options, never).unwrap()
    };
    let (a, b) = (make("db.a"), make("db.b"));
    let begin = store.visible();
    let t = store.begin_transaction(Duration::from_millis(5), None);
    let add = |c: &Arc<Collection>, d: DocBuf| {
        let mut w = store.write_unit_in(&t, c, never).unwrap();
        w.insert(&bytes(d)).unwrap().unwrap();
        w.commit().unwrap();
    };
    add(&a, doc! { "_id": 1 });
    add(&b, doc! { "_id": 1 });
    for i in 2..8 {
        add(&a, doc! { "_id": i, "big": "x".repeat(3 << 20) });
    }
    assert!(all(&store, begin).is_empty());
    t.commit(None, Announce::Door, never).unwrap();
    let entries = all(&store, begin);
    let sizes: Vec<usize> = entries.iter().map(|e| e.ops.len()).collect();
    assert_eq!(sizes, [4, 2, 2]);
    let parts: Vec<Part> = entries
        .iter()
        .map(|e| match e.whole {
            Whole::Transaction(part) => part,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        parts.iter().map(|p| p.before).collect::<Vec<_>>(),
        [0, 4, 6]
    );
    assert_eq!(
        parts.iter().map(|p| p.more).collect::<Vec<_>>(),
        [true, true, false]
    );
    assert_eq!(entries[0].previous, None);
    assert_eq!(entries[2].previous, Some(entries[1].at));
    assert!(entries[0].at > begin && entries[2].at == store.visible());
    // No other commit gets a timestamp between two parts.
    insert(&store, &a, doc! { "_id": 100 }).unwrap();
    let later = all(&store, entries[1].at);
    assert_eq!(later.len(), 2);
}

#[test]
fn the_log_is_kept_for_its_readers_and_no_longer() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(options(dir.path())).unwrap();
    let never = &NeverInterrupted;
    let c = store
        .create_collection("db.c", CollectionOptions::default(), never)
        .unwrap();
    store
        .rename_collection("db.c", "db.old", false, never)
        .unwrap();
    insert(&store, &c, doc! { "_id": -1 }).unwrap();
    store
        .rename_collection("db.old", "db.c", false, never)
        .unwrap();
    // The size is that of the files. The segment in use may have up to 16 MB, of which little may be
    // full.
    store.keep_log(40 << 20, Duration::ZERO);
    let fill = |n: i32| {
        for i in n..n + 10 {
            insert(&store, &c, doc! { "_id": i, "x": "y".repeat(1 << 20) }).unwrap();
        }
        store.flush().unwrap();
    };
    fill(0);
    // Everything is in tables, and the log is still read.
    assert_eq!(store.log_begins_after().unwrap(), Timestamp::ZERO);
    let entries = all(&store, Timestamp::ZERO);
    let names: BTreeMap<&str, usize> =
        entries
            .iter()
            .flat_map(|e| &e.ops)
            .fold(BTreeMap::new(), |mut m, op| {
                if let Some(n) = &op.of {
                    *m.entry(n.namespace.as_str()).or_default() += 1;
                }
                m
            });
    assert_eq!(names, BTreeMap::from([("db.c", 10), ("db.old", 1)]));
    for n in 1..8 {
        fill(n * 10);
    }
    let begins = store.log_begins_after().unwrap();
    assert!(begins > Timestamp::ZERO);
    let mut late = store.log_entries(Timestamp::ZERO).unwrap();
    let e = late.next().unwrap_err();
    assert_eq!(e.code(), Code::ChangeStreamHistoryLost);
    assert!(!all(&store, begins).is_empty());
    let (bytes, window) = store.log_size().unwrap();
    assert!(bytes >= window, "{bytes} {window}");
    // A rename from before the log begins is forgotten.
    store.flush().unwrap();
    assert!(store.inner.catalog.save_past(begins).is_empty());
    // Nothing that is younger than an hour is trimmed, whatever the size.
    store.keep_log(0, Duration::from_secs(3600));
    fill(100);
    assert_eq!(store.log_begins_after().unwrap(), begins);
    store.keep_log(0, Duration::ZERO);
    fill(110);
    assert!(store.log_begins_after().unwrap() > begins);
}

#[test]
fn who_waits_is_woken() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = store
        .create_collection("db.c", CollectionOptions::default(), &NeverInterrupted)
        .unwrap();
    let now = store.visible();
    let past = |time| store.wait_past(now, Instant::now() + time, &NeverInterrupted);
    assert!(!past(Duration::from_millis(5)).unwrap());
    std::thread::scope(|s| {
        let waits = s.spawn(|| past(Duration::from_secs(60)));
        std::thread::sleep(Duration::from_millis(20));
        insert(&store, &c, doc! { "_id": 1 }).unwrap();
        assert!(waits.join().unwrap().unwrap());
    });
}

#[test]
fn who_rests_in_a_trimmed_segment_is_not_told_wrong_names() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(options(dir.path())).unwrap();
    let never = &NeverInterrupted;
    let make = |name| {
        let options = CollectionOptions::default();
        store.create_collection(name, options, never).unwrap()
    };
    let (a, c) = (make("db.a"), make("db.c"));
    insert(&store, &a, doc! { "_id": 1 }).unwrap();
    insert(&store, &c, doc! { "_id": 2 }).unwrap();
    store
        .rename_collection("db.c", "db.d", false, never)
        .unwrap();
    let mut late = store.log_entries(Timestamp::ZERO).unwrap();
    for _ in 0..3 {
        late.next().unwrap().unwrap();
    }
    store.keep_log(0, Duration::ZERO);
    for i in 0..60 {
        insert(
            &store,
            &a,
            doc! { "_id": 100 + i, "x": "y".repeat(1 << 20) },
        )
        .unwrap();
    }
    store.flush().unwrap();
    store.flush().unwrap();
    let e = late.next().unwrap_err();
    assert_eq!(e.code(), Code::ChangeStreamHistoryLost, "{e}");
}
