//! The problems that `validate` finds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::tests::index::{create, index, key, valid};
use crate::tests::{insert, key_of, open};
use crate::*;
use muniment_op::NeverInterrupted;
use muniment_value::{Value, doc};

/// It also reads the parts that a scan does not need: the filters, which serve look-ups of one key.
#[test]
fn validate_reads_the_files_through() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    for i in 0..500 {
        insert(&store, &c, doc! { "_id": i, "text": "x".repeat(100) }).unwrap();
    }
    store.flush().unwrap();
    valid(&store, &c);
    let files = std::fs::read_dir(dir.path().join("trees")).unwrap();
    let tables: Vec<_> = files
        .map(|f| f.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "table"))
        .collect();
    let [table] = &tables[..] else {
        panic!("{tables:?}");
    };
    let written = std::fs::read(table).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(table).unwrap();
    for at in (0..written.len()).step_by(written.len() / 50) {
        std::os::unix::fs::FileExt::write_at(&file, &[!written[at]], at as u64).unwrap();
        let report = store.validate(&c, true, &NeverInterrupted).unwrap();
        assert!(!report.as_doc().get("valid").unwrap().truthy(), "{at}");
        std::os::unix::fs::FileExt::write_at(&file, &written[at..=at], at as u64).unwrap();
    }
    valid(&store, &c);
}

#[test]
fn validate_finds_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    let x = index(&store, &c, doc! { "key": doc! { "x": 1 }, "name": "x_1" });
    for i in 0..10 {
        insert(&store, &c, doc! { "_id": i, "x": i }).unwrap();
    }
    valid(&store, &c);
    let entry = |index: &Index, value: i32, of: i32| {
        let record_key = key_of(&store, &c, of);
        crate::entries::entry_of(index, &key(Value::Int32(value)), &[], &record_key)
    };
    let op = |index: &Index, (key, value): (Vec<u8>, Vec<u8>), there: bool| muniment_tree::Op {
        tree: muniment_tree::TreeId(index.id),
        key: key.into(),
        value: there.then(|| value.into()),
        fresh: false,
    };
    let wrong = |batch: Vec<muniment_tree::Op>, missing: usize, extra: usize| {
        let inner = &store.inner;
        inner.trees.apply(batch, inner.newest_timestamp());
        let report = store.validate(&c, true, &NeverInterrupted).unwrap();
        let r = report.as_doc();
        assert!(!r.get("valid").unwrap().truthy());
        let count = |name: &str| r.get_array(name).unwrap().count();
        assert_eq!(count("missingIndexEntries"), missing, "{report:?}");
        assert_eq!(count("extraIndexEntries"), extra, "{report:?}");
    };
    let batch = vec![
        op(&x, entry(&x, 3, 3), false),
        op(&x, entry(&x, 50, 5), true),
    ];
    wrong(batch, 1, 1);
    // The same for `_id_`: one document is not in it, and one entry leads to another document.
    let id = c.indexes()[0].clone();
    let batch = vec![
        op(&id, entry(&id, 7, 7), false),
        op(&id, entry(&id, 8, 9), true),
    ];
    wrong(batch, 3, 2);
}
