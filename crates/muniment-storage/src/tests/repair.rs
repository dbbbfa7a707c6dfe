//! Repairs that are interrupted or impossible, and what repairs must not take away.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::build::Unbuilt;
use crate::session_key::SessionKey;
use crate::sessions::{SessionHead, SessionRecord, SessionState};
use crate::tests::damage::{
    NEVER, append, broken, code, create, index, nested, plant_entry, what, with_options, with_spec,
};
use crate::tests::noise::Random;
use crate::tests::{all, insert, open, options};
use crate::*;
use muniment_op::{Interrupt, Sleepers};
use muniment_value::{ArrayBuf, Code, DocBuf, Error, KeyLimits, Value, array, doc};
use std::path::Path;
use std::sync::Arc;

/// A specification that `_id_` never has.
fn bad_id() -> DocBuf {
    doc! { "v": 2, "key": doc! { "_id": 1 }, "name": "_id_", "unique": true }
}

fn repair(path: &Path) -> Repaired {
    let lock = DirLock::acquire(path, EngineKind::Lsm, &[]).unwrap();
    Store::repair(&options(path), &lock).unwrap()
}

fn valid(store: &Store, c: &Arc<Collection>) {
    let report = store.validate(c, true, NEVER).unwrap();
    let valid = report.as_doc().get("valid").unwrap().as_bool();
    assert_eq!(valid, Some(true), "{}", report.as_doc().to_display());
}

#[test]
fn an_interrupted_repair_leaves_closed_what_has_no_ids_yet() {
    for flushed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        broken(dir.path(), flushed);
        let store = open(dir.path());
        for name in ["db.d", "db.e", "db.o"] {
            let c = store.collection(name).unwrap();
            store.repair_collection(&c, &mut Vec::new(), NEVER).unwrap();
        }
        // The process ends after its first cut.
        store.flush().unwrap();
        drop(store);
        for _ in 0..2 {
            let store = open(dir.path());
            for name in ["db.d", "db.e", "db.o"] {
                let c = store.collection(name).unwrap();
                let damage = (name.to_string(), Damaged::Collection);
                assert!(what(&store).contains(&damage), "{:?}", what(&store));
                let corrupt = Code::DataCorruptionDetected;
                let found = store.snapshot().find_by_id(&c, Value::Int32(3));
                assert_eq!(code(found), corrupt, "{name}");
                assert_eq!(code(insert(&store, &c, doc! { "_id": 3 })), corrupt);
            }
            // A server's cut does not change that.
            store.flush().unwrap();
        }
        let repaired = repair(dir.path());
        assert!(repaired.failed.is_empty(), "{repaired:#?}");
        let store = open(dir.path());
        assert!(store.damages().is_empty(), "{:?}", store.damages());
        for name in ["db.d", "db.e", "db.o"] {
            let c = store.collection(name).unwrap();
            let found = store.snapshot().find_by_id(&c, Value::Int32(3)).unwrap();
            assert!(found.is_some(), "{name}");
            let twice = insert(&store, &c, doc! { "_id": 3 });
            assert_eq!(code(twice), Code::DuplicateKey);
            valid(&store, &c);
        }
    }
}

#[test]
fn a_capped_collection_gets_its_ids_while_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let options = CollectionOptions {
        capped_size: Some(1 << 20),
        document: doc! { "capped": true, "size": 1 << 20 },
        ..CollectionOptions::default()
    };
    let c = store.create_collection("db.c", options, NEVER).unwrap();
    for i in 0..5 {
        insert(&store, &c, doc! { "_id": i }).unwrap();
    }
    plant_entry(&store, c.id, &with_spec(&c, "_id_", &bad_id()));
    drop((c, store));
    let store = open(dir.path());
    let c = store.collection("db.c").unwrap();
    assert_eq!(what(&store)[0].1, Damaged::Collection);
    store.repair_collection(&c, &mut Vec::new(), NEVER).unwrap();
    store.flush().unwrap();
    drop((c, store));
    // No `_id` is looked up there before the index is built.
    let store = Store::open_as(crate::tests::options(dir.path()), None, false).unwrap();
    assert!(!store.collection("db.c").unwrap().finds_by_id());
    drop(store);
    let store = open(dir.path());
    let c = store.collection("db.c").unwrap();
    assert!(store.damages().is_empty());
    insert(&store, &c, doc! { "_id": 9 }).unwrap();
    while c.indexes().is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(
        code(insert(&store, &c, doc! { "_id": 3 })),
        Code::DuplicateKey
    );
    valid(&store, &c);
}

#[test]
fn a_clustered_collection_with_a_damaged_index_on_its_ids_is_repaired_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let options = CollectionOptions {
        document: doc! { "clusteredIndex": doc! { "key": doc! { "_id": 1 }, "unique": true } },
        ..CollectionOptions::default()
    };
    let c = store.create_collection("db.c", options, NEVER).unwrap();
    insert(&store, &c, doc! { "_id": 1 }).unwrap();
    plant_entry(&store, c.id, &with_spec(&c, "_id_", &bad_id()));
    drop((c, store));
    let repaired = repair(dir.path());
    assert_eq!(repaired.done.len(), 1, "{repaired:#?}");
    assert_eq!(repair(dir.path()), Repaired::default());
    let store = open(dir.path());
    let c = store.collection("db.c").unwrap();
    insert(&store, &c, doc! { "_id": 2 }).unwrap();
    assert_eq!((all(&store, &c).len(), c.indexes().len()), (2, 1));
    valid(&store, &c);
}

#[test]
fn what_cannot_be_repaired_keeps_nothing_else_from_it() {
    let dir = tempfile::tempdir().unwrap();
    broken(dir.path(), false);
    let store = open(dir.path());
    let clustered = doc! { "clusteredIndex": doc! { "key": doc! { "_id": 1 }, "unique": true } };
    let made = CollectionOptions {
        document: clustered.clone(),
        ..CollectionOptions::default()
    };
    // This collection is the first by its name.
    let c = store.create_collection("db.a", made, NEVER).unwrap();
    let mut lost = clustered;
    lost.append("collation", doc! { "locale": "xx" });
    plant_entry(&store, c.id, &with_options(&c, &lost));
    drop((c, store));
    for round in 0..2 {
        let repaired = repair(dir.path());
        let [failed] = &*repaired.failed else {
            panic!("{repaired:#?}");
        };
        assert!(failed.contains("db.a could not be repaired"), "{failed}");
        assert_eq!(repaired.done.is_empty(), round > 0, "{repaired:#?}");
    }
    let store = open(dir.path());
    assert_eq!(what(&store), [("db.a".to_string(), Damaged::Collection)]);
    assert_eq!(store.collection("db.o").unwrap().indexes().len(), 3);
}

/// A store with `db.c` and its index, which is closed although its specification can be used.
fn with_closed_index(path: &Path, spec: DocBuf, fill: impl FnOnce(&Store, &Arc<Collection>)) {
    let store = open(path);
    let c = create(&store, "db.c");
    index(&store, &c, spec).unwrap();
    fill(&store, &c);
    drop((c, store));
    // Records that are only in the log are applied.
    let store = open(path);
    let c = store.collection("db.c").unwrap();
    let all = c.all_indexes();
    let index = all.iter().find(|i| !i.is_id()).unwrap();
    c.close_index(index, "a test says so");
    store.flush().unwrap();
}

fn spec(fields: &[&str], unique: bool) -> DocBuf {
    let mut key = DocBuf::new();
    for f in fields {
        key.append(f, 1);
    }
    doc! { "key": key, "name": "i", "unique": unique }
}

#[test]
fn a_repair_builds_of_as_many_keys_as_documents_have() {
    let dir = tempfile::tempdir().unwrap();
    with_closed_index(dir.path(), spec(&["a"], false), |store, c| {
        store.set_key_limits(KeyLimits::NONE);
        let most = KeyLimits::default().keys as i32;
        let many: ArrayBuf = (0..=most).map(Value::Int32).collect();
        insert(store, c, doc! { "_id": 1, "a": many }).unwrap();
    });
    let repaired = repair(dir.path());
    assert_eq!(repaired.done, ["index 'i' of db.c is built anew"]);
    assert!(repaired.failed.is_empty(), "{repaired:#?}");
    // A start that goes on with a build knows the limits from its beginning.
    let mut wide = options(dir.path());
    wide.key_limits = KeyLimits::NONE;
    let store = Store::open(wide).unwrap();
    assert_eq!(store.key_limits(), KeyLimits::NONE);
    assert_eq!(store.collection("db.c").unwrap().indexes().len(), 2);
}

#[test]
fn an_index_is_dropped_for_what_the_documents_are_and_the_reason_is_told() {
    for (of, document, why) in [
        (
            spec(&["a", "b"], false),
            doc! { "_id": 2, "a": array![1, 2], "b": array![1, 2] },
            "parallel arrays",
        ),
        (
            spec(&["a"], true),
            doc! { "_id": 2, "a": 1 },
            "dup key: { a: 1 }",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        with_closed_index(dir.path(), of, |store, c| {
            insert(store, c, doc! { "_id": 1, "a": 1 }).unwrap();
            // The record comes as another member's log had it.
            append(store, |log| {
                let _ = log.insert(c.id, &2_u64.to_be_bytes(), document.as_bytes());
            })
            .unwrap();
        });
        let repaired = repair(dir.path());
        assert!(repaired.failed.is_empty(), "{repaired:#?}");
        let dropped = "index 'i' of db.c could not be built and was dropped";
        let said = repaired
            .done
            .iter()
            .any(|line| line.contains(dropped) && line.contains(why));
        assert!(said, "{repaired:#?}");
        assert_eq!(repair(dir.path()), Repaired::default());
        let store = open(dir.path());
        assert!(store.damages().is_empty());
        assert_eq!(store.collection("db.c").unwrap().all_indexes().len(), 1);
    }
}

/// An interrupt that stops the build for a reason other than the documents.
struct Fails;

impl Interrupt for Fails {
    fn check(&self) -> muniment_value::Result<()> {
        Err(Error::new(Code::OutOfDiskSpace, "no space"))
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}
}

#[test]
fn an_index_whose_build_fails_for_anything_else_stays_to_be_built() {
    let dir = tempfile::tempdir().unwrap();
    with_closed_index(dir.path(), spec(&["a"], false), |store, c| {
        insert(store, c, doc! { "_id": 1, "a": 1 }).unwrap();
    });
    let store = open(dir.path());
    let c = store.collection("db.c").unwrap();
    store.repair_collection(&c, &mut Vec::new(), NEVER).unwrap();
    let opening = store.inner.door.opening().unwrap();
    let (_, unbuilt) = store.inner.unfinished_builds().remove(0);
    let inner = &store.inner;
    let failed = inner.end_build(&c, &unbuilt, Unbuilt::StaysIfItCan, opening, &Fails);
    assert_eq!(code(failed), Code::OutOfDiskSpace);
    assert_eq!((c.all_indexes().len(), c.indexes().len()), (2, 1));
    assert!(store.inner.leftovers.failed_builds.lock().is_empty());
    inner
        .end_build(&c, &unbuilt, Unbuilt::StaysIfItCan, opening, NEVER)
        .unwrap();
    assert_eq!(c.indexes().len(), 2);
    valid(&store, &c);
}

#[test]
fn a_time_series_whose_entry_lost_its_time_field_stays_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let options = CollectionOptions {
        time_field: Some("t".into()),
        document: doc! { "timeseries": doc! { "timeField": "t" } },
        ..CollectionOptions::default()
    };
    let c = store.create_collection("db.s", options, NEVER).unwrap();
    for t in [30, 10, 20] {
        insert(&store, &c, doc! { "_id": 1, "t": Value::DateTime(t) }).unwrap();
    }
    let mut entry = DocBuf::new();
    let held = crate::catalog::Entry::of(&c, &c.all_indexes()).to_doc();
    for e in held.as_doc().iter().filter(|e| e.name() != "timeField") {
        entry.append_elem(e);
    }
    plant_entry(&store, c.id, &entry);
    drop((c, store));
    let repaired = repair(dir.path());
    assert!(repaired.failed.is_empty(), "{repaired:#?}");
    assert_eq!(repaired.done.len(), 1, "{repaired:#?}");
    let store = open(dir.path());
    let c = store.collection("db.s").unwrap();
    assert!(store.damages().is_empty() && c.is_time_series());
    assert!(c.all_indexes().is_empty());
    insert(&store, &c, doc! { "_id": 1, "t": Value::DateTime(15) }).unwrap();
    assert_eq!((c.count(), all(&store, &c).len()), (4, 4));
    valid(&store, &c);
}

#[test]
fn a_validator_stays_when_the_collation_goes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    let validator = doc! { "a": 1 };
    let lost = doc! { "collation": doc! { "locale": "xx" }, "validator": validator.clone() };
    plant_entry(&store, c.id, &with_options(&c, &lost));
    drop((c, store));
    let repaired = repair(dir.path());
    let said = repaired.done.iter().any(|line| line.contains("validator"));
    assert!(!said, "{repaired:#?}");
    let store = open(dir.path());
    let c = store.collection("db.c").unwrap();
    assert_eq!(c.options().document, doc! { "validator": validator });
    assert!(store.damages().is_empty());
}

#[test]
fn options_deeper_than_are_taken_now_may_stay() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    let deep = doc! { "x": nested(190), "collation": doc! { "locale": "xx" } };
    let deep_alone = doc! { "x": nested(190) };
    plant_entry(&store, c.id, &with_options(&c, &deep_alone));
    drop((c, store));
    let store = open(dir.path());
    assert!(store.damages().is_empty(), "{:?}", store.damages());
    let c = store.collection("db.c").unwrap();
    index(&store, &c, doc! { "key": doc! { "a": 1 }, "name": "a" }).unwrap();
    let mut options = (*c.options()).clone();
    options.document.append("validator", doc! { "a": 1 });
    store.modify_options(&c, options.clone(), NEVER).unwrap();
    options.document.append("y", nested(190));
    let deeper = store.modify_options(&c, options, NEVER);
    assert_eq!(code(deeper), Code::Overflow);
    // A repair keeps the options as well.
    plant_entry(&store, c.id, &with_options(&c, &deep));
    drop((c, store));
    let repaired = repair(dir.path());
    assert!(repaired.failed.is_empty(), "{repaired:#?}");
    let store = open(dir.path());
    assert!(store.damages().is_empty(), "{:?}", store.damages());
    let c = store.collection("db.c").unwrap();
    assert_eq!(c.options().document, deep_alone);
}

#[test]
fn a_damaged_block_of_sessions_keeps_no_store_from_opening() {
    for forgotten in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let key = SessionKey::of_nobody(
            *b"\xF7\x31\xC9\x5E\x02\xF8\x6B\xD4\x19\x8C\x77\xE3\x40\xBA\x25\x9D",
        );
        let record = |number| SessionRecord::new(number, SessionState::Retryable, 1);
        let store = open(dir.path());
        let c = create(&store, "db.c");
        let mut unit = store.write_unit(&c, NEVER).unwrap();
        unit.insert(doc! { "_id": 1 }.as_bytes()).unwrap().unwrap();
        let head = SessionHead::default();
        // Many other sessions come before it, so that it has a block of its own.
        let mut rng = Random(7);
        for n in 0..100 {
            let result = (0..3000).map(|_| rng.below(256) as u8).collect();
            let mut large = record(1);
            large.push(StatementRun {
                first: 0,
                count: 1,
                result,
            });
            let other = SessionKey::of_nobody([n; 16]);
            unit.remember(&SessionChange::new(other, large, &head));
        }
        unit.remember(&SessionChange::new(key, record(1), &head));
        unit.commit().unwrap();
        store.flush().unwrap();
        append(&store, |log| {
            let added = match forgotten {
                true => Vec::new(),
                false => record(2).encode(),
            };
            let _ = log.session(&key.to_bytes(), &added);
        })
        .unwrap();
        drop((c, store));
        damage(dir.path(), &key.id);
        let store = open(dir.path());
        let c = store.collection("db.c").unwrap();
        assert_eq!(all(&store, &c).len(), 1);
        let asked = store.session(&key);
        match forgotten {
            true => assert!(asked.unwrap().is_none()),
            false => {
                assert_eq!(code(asked), Code::DataCorruptionDetected);
                store.forget_sessions(&[key], NEVER).unwrap();
                assert!(store.session(&key).unwrap().is_none());
            }
        }
    }
}

/// Changes a bit of these bytes in a table.
fn damage(path: &Path, bytes: &[u8]) {
    let mut hits = 0;
    for file in std::fs::read_dir(path.join("trees")).unwrap() {
        let file = file.unwrap().path();
        let Ok(mut held) = std::fs::read(&file) else {
            continue;
        };
        let at = held.windows(bytes.len()).position(|w| w == bytes);
        if let Some(at) = at {
            held[at + 3] ^= 4;
            std::fs::write(&file, held).unwrap();
            hits += 1;
        }
    }
    assert!(hits > 0, "the session is in no table");
}
