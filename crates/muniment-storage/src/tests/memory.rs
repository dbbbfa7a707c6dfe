//! Limits on memory: for the keys of one document, and for all writes together.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::tests::index::{create, index, valid};
use crate::tests::{all, insert, open, options};
use crate::*;
use muniment_op::{Account, NeverInterrupted};
use muniment_value::{ArrayBuf, Code, DocBuf, KeyLimits, Value, doc};
use std::sync::Arc;

const TOO_MANY: Code = Code(201);

fn many(id: i32, keys: i32, text: usize) -> DocBuf {
    let elements: ArrayBuf = (0..keys).collect();
    doc! { "_id": id, "a": elements, "p": "x".repeat(text) }
}

fn limit(store: &Store, keys: usize, bytes: usize) {
    store.set_key_limits(KeyLimits { keys, bytes });
}

fn refused<T>(result: muniment_value::Result<T>) -> Code {
    result.err().expect("it went through").code()
}

fn delete(store: &Store, c: &Arc<Collection>, id: i32) {
    let mut unit = store.write_unit(c, &NeverInterrupted).unwrap();
    let found = unit.lock_by_id(Value::Int32(id)).unwrap().unwrap();
    let (key, old) = found.unwrap();
    unit.delete(&key, &old).unwrap().unwrap();
    unit.commit().unwrap();
}

#[test]
fn keys_of_a_document_have_limits_in_every_kind_of_index() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let path = "x".repeat(1000);
    let fields = |n: usize| {
        let mut d = DocBuf::new();
        for i in 0..n {
            d.append(&format!("k{i}"), 1);
        }
        d
    };
    let arrays = {
        let mut d = DocBuf::new();
        for i in 0..600 {
            d.append(&format!("k{i}"), ArrayBuf::new());
        }
        d
    };
    let long = |inner: DocBuf| {
        let mut d = doc! { "_id": 1 };
        d.append(&path, inner);
        d
    };
    let words: Vec<String> = (0..600).map(|i| format!("word{i}")).collect();
    let points: ArrayBuf = (0..600)
        .map(|i| {
            let at: ArrayBuf = [f64::from(i) / 10.0, 1.0].into_iter().collect();
            doc! { "l": doc! { "type": "Point", "coordinates": at } }
        })
        .collect();
    let pairs: ArrayBuf = (0..600)
        .map(|i| {
            let at: ArrayBuf = [f64::from(i) / 10.0, 1.0].into_iter().collect();
            at
        })
        .collect();
    let text = "y".repeat(1000);
    let cases = [
        (doc! { "a": 1, "p": 1 }, many(1, 600, 1000)),
        (doc! { "$**": 1 }, long(fields(600))),
        (doc! { "$**": 1 }, long(arrays)),
        (
            doc! { "p": 1, "s": "text" },
            doc! { "_id": 1, "p": text.as_str(), "s": words.join(" ").as_str() },
        ),
        (
            doc! { "g.l": "2dsphere", "p": 1 },
            doc! { "_id": 1, "g": points, "p": text.as_str() },
        ),
        (
            doc! { "g": "2d", "p": 1 },
            doc! { "_id": 1, "g": pairs, "p": text.as_str() },
        ),
    ];
    for (n, (key, document)) in cases.into_iter().enumerate() {
        let c = create(&store, &format!("db.c{n}"));
        index(&store, &c, doc! { "key": key, "name": "i" });
        // The limit is on the bytes of the keys, and on their number.
        limit(&store, usize::MAX, 400_000);
        assert_eq!(
            refused(insert(&store, &c, document.clone())),
            TOO_MANY,
            "{n}"
        );
        limit(&store, 500, usize::MAX);
        assert_eq!(
            refused(insert(&store, &c, document.clone())),
            TOO_MANY,
            "{n}"
        );
        // Another document is accepted, and so is the same one under a higher limit.
        insert(&store, &c, doc! { "_id": 2, "s": "a" }).unwrap();
        limit(&store, 100_000, 64 << 20);
        insert(&store, &c, document).unwrap();
        valid(&store, &c);
    }
}

#[test]
fn what_was_taken_once_stays_possible() {
    let dir = tempfile::tempdir().unwrap();
    let most = KeyLimits::default().keys as i32;
    let store = open(dir.path());
    let c = create(&store, "db.c");
    index(&store, &c, doc! { "key": doc! { "a": 1 }, "name": "a" });
    limit(&store, usize::MAX, usize::MAX);
    insert(&store, &c, many(1, most + 10, 0)).unwrap();
    insert(&store, &c, many(2, 50, 0)).unwrap();
    drop((c, store));
    // The log is applied regardless of the limit of this start.
    let store = open(dir.path());
    let c = store.collection("db.c").unwrap();
    assert_eq!(all(&store, &c).len(), 2);
    limit(&store, 10, 1000);
    valid(&store, &c);
    assert_eq!(refused(insert(&store, &c, many(3, 11, 0))), TOO_MANY);
    // An index over the document is not built, and leaves nothing.
    let spec = IndexSpec::parse(doc! { "key": doc! { "a": -1 }, "name": "b" }.as_doc()).unwrap();
    let built = store.create_index(&c, spec, &NeverInterrupted);
    assert_eq!(refused(built), TOO_MANY);
    assert_eq!(c.all_indexes().len(), 2);
    delete(&store, &c, 1);
    delete(&store, &c, 2);
    valid(&store, &c);
}

#[test]
fn writes_together_have_a_limit_and_the_largest_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(options(dir.path())).unwrap();
    let c = create(&store, "db.c");
    index(
        &store,
        &c,
        doc! { "key": doc! { "a": 1, "p": 1 }, "name": "i" },
    );
    let ledger = store.ledger().clone();
    ledger.set_limit(Account::Writes, 4 << 20);
    let figures = || ledger.figures(Account::Writes);
    // The document has 8 MB of keys.
    let e = insert(&store, &c, many(1, 2000, 4000)).unwrap_err();
    assert_eq!(e.code(), Code::ExceededMemoryLimit);
    assert!(e.message().contains("munimentWriteMemoryBytes"), "{e:?}");
    assert_eq!((figures().used, figures().refused), (0, 1));
    // The document has 1 MB of keys, while another unit holds as much.
    let large = many(2, 250, 4000);
    insert(&store, &c, large.clone()).unwrap();
    let mut unit = store.write_unit(&c, &NeverInterrupted).unwrap();
    let d = many(3, 250, 4000).into_bytes();
    unit.insert(&d).unwrap().unwrap();
    assert!(unit.staged_bytes() > 1_000_000 && figures().used > 1_000_000);
    insert(&store, &c, doc! { "_id": 4 }).unwrap();
    // The unit is told to commit when there is too much.
    assert!(!unit.is_pressed());
    ledger.set_limit(Account::Writes, 1 << 19);
    assert!(unit.is_pressed());
    unit.commit().unwrap();
    assert_eq!(figures().used, 0);
    // A stored document can always be deleted.
    delete(&store, &c, 2);
    assert_eq!(figures().used, 0);
    valid(&store, &c);
}
