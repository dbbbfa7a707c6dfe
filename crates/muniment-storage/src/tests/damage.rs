//! Records that the door refuses, and records that cannot be applied where they are.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::commit::ops::{Encoder, HEAD, Op, Reader};
use crate::commit::stage::Stage;
use crate::tests::follow::{member, ship};
use crate::tests::noise::Random;
use crate::tests::{all, bytes, insert, open, options};
use crate::*;
use muniment_op::NeverInterrupted;
use muniment_value::{Code, DocBuf, Value, doc};
use std::path::Path;
use std::sync::Arc;

pub(crate) const NEVER: &NeverInterrupted = &NeverInterrupted;

pub(crate) fn create(store: &Store, name: &str) -> Arc<Collection> {
    store
        .create_collection(name, CollectionOptions::default(), NEVER)
        .unwrap()
}

pub(crate) fn index(
    store: &Store,
    c: &Arc<Collection>,
    spec: DocBuf,
) -> muniment_value::Result<Arc<Index>> {
    store.create_index(c, IndexSpec::parse(spec.as_doc())?, NEVER)
}

/// `{x: {x: … {a: 1}}}`, nested this many times.
pub(crate) fn nested(times: usize) -> DocBuf {
    (0..times).fold(doc! { "a": 1 }, |d, _| doc! { "x": d })
}

fn ands(times: usize) -> DocBuf {
    (0..times).fold(doc! { "a": 1 }, |d, _| {
        doc! { "$and": muniment_value::array![d] }
    })
}

/// Commits one record with these operations, unchanged; the trees do not know of it until it is applied.
pub(crate) fn append(
    store: &Store,
    write: impl FnOnce(&mut Encoder),
) -> muniment_value::Result<CommitId> {
    let mut stage = Stage::new(store.inner.door.opening().unwrap());
    write(&mut stage.log);
    store.inner.commit(stage, Announce::Door, NEVER, |_| {})
}

/// The same for a record that the door would refuse.
fn plant(store: &Store, write: impl FnOnce(&mut Encoder)) {
    let mut stage = Stage::new(store.inner.door.opening().unwrap());
    write(&mut stage.log);
    store.inner.commit_unchecked(stage).unwrap();
}

/// The entry of a collection with a change.
fn entry_of(c: &Collection, change: impl Fn(Value<'_>, &str, &mut DocBuf) -> bool) -> DocBuf {
    let entry = crate::catalog::Entry::of(c, &c.all_indexes()).to_doc();
    let mut changed = DocBuf::new();
    for e in entry.as_doc() {
        if !change(e.value(), e.name(), &mut changed) {
            changed.append_elem(e);
        }
    }
    changed
}

/// The same with another specification of the index of this name.
pub(crate) fn with_spec(c: &Collection, name: &str, spec: &DocBuf) -> DocBuf {
    entry_of(c, |v, field, out| {
        let Value::Array(indexes) = v else {
            return false;
        };
        let indexes: muniment_value::ArrayBuf = indexes
            .values()
            .map(|v| {
                let i = v.as_doc().unwrap();
                let held = i.get_doc("spec").unwrap();
                let mine = held.get_str("name") == Some(name);
                doc! {
                    "id": i.get("id").unwrap(),
                    "state": "ready",
                    "spec": if mine { spec.clone() } else { held.to_buf() },
                }
            })
            .collect();
        out.append(field, indexes);
        true
    })
}

pub(crate) fn with_options(c: &Collection, options: &DocBuf) -> DocBuf {
    entry_of(c, |_, name, out| {
        let is = name == "options";
        if is {
            out.append(name, options);
        }
        is
    })
}

pub(crate) fn code<T>(result: muniment_value::Result<T>) -> Code {
    result.err().expect("it went through").code()
}

/// The depth at which the document passes and the entry around it does not.
const DEEP: usize = 200;

#[test]
fn the_door_takes_no_record_that_could_not_be_applied() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    insert(&store, &c, doc! { "_id": 1, "a": 1 }).unwrap();
    index(&store, &c, doc! { "key": doc! { "a": 1 }, "name": "a" }).unwrap();
    let before = store.last_commit().unwrap();
    // Every operation has a case here. The match makes a new one fail to compile until it gets one, too.
    let covered = |op: &Op| match op {
        Op::Insert { .. }
        | Op::Replace { .. }
        | Op::Diff { .. }
        | Op::Delete { .. }
        | Op::Collection { .. }
        | Op::Drop { .. }
        | Op::Entries { .. }
        | Op::Session { .. }
        | Op::Image { .. }
        | Op::Key { .. }
        | Op::Config { .. }
        | Op::Prepare { .. }
        | Op::Resolve { .. }
        | Op::Note { .. } => {}
    };
    let short = &[9, 0, 0, 0, 0][..];
    let entry = |spec: DocBuf| with_spec(&c, "a", &spec);
    let wild = doc! { "v": 2, "key": doc! { "$**": 1 }, "name": "a", "prepareUnique": true };
    let hashed = doc! { "v": 2, "key": doc! { "a": "hashed" }, "name": "a", "unique": true };
    let deep =
        doc! { "v": 2, "key": doc! { "a": 1 }, "name": "a", "partialFilterExpression": ands(90) };
    let bad = doc! { "v": 2, "key": doc! { "a": 1 }, "name": "a", "partialFilterExpression": doc! { "$bogus": 1 } };
    // Reading it gives `unique: true`, so it would not be read as it was written.
    let other = doc! { "v": 2, "key": doc! { "a": 1 }, "name": "a", "unique": 1 };
    type Case<'c> = (&'static str, Box<dyn FnOnce(&mut Encoder) + 'c>);
    let id = c.id;
    let collection = |entry: DocBuf| {
        Box::new(move |e: &mut Encoder| {
            let _ = e.collection(id, 99, entry.as_bytes());
        }) as Box<dyn FnOnce(&mut Encoder)>
    };
    let cases: Vec<Case<'_>> = vec![
        (
            "insert",
            Box::new(|e| {
                let _ = e.insert(id, &[1], short);
            }),
        ),
        (
            "replace",
            Box::new(|e| {
                let _ = e.replace(id, &[1], short);
            }),
        ),
        (
            "diff",
            Box::new(|e| {
                let _ = e.diff(id, &[1], &[], short);
            }),
        ),
        ("image", Box::new(|e| e.image(short))),
        ("key", Box::new(|e| e.key(short))),
        ("drop", Box::new(|e| e.drop(77))),
        ("note", Box::new(|e| e.note(nested(201).as_doc()))),
        (
            "entries",
            Box::new(|e| {
                let _ = e.entries(id, 5, &[], &[9]);
            }),
        ),
        (
            "session's key",
            Box::new(|e| {
                let _ = e.session(&[1], &[]);
            }),
        ),
        (
            "session",
            Box::new(|e| {
                let _ = e.session(&[7; 48], &[1, 2]);
            }),
        ),
        (
            "prepared transaction",
            Box::new(|e| {
                let _ = e.prepare(&[7; 56], &[1, 0, 0, 99]);
            }),
        ),
        (
            "prepared document",
            Box::new(|e| {
                let mut of = Encoder::new();
                let _ = of.insert(id, &[1], short);
                let row = [&[1, 0, 0][..], &of.into_payload()[HEAD..]].concat();
                let _ = e.prepare(&[7; 56], &row);
            }),
        ),
        (
            "prepared change of no collection",
            Box::new(|e| {
                let mut of = Encoder::new();
                let _ = of.insert(77, &[1], doc! { "_id": 1 }.as_bytes());
                let row = [&[1, 0, 0][..], &of.into_payload()[HEAD..]].concat();
                let _ = e.prepare(&[7; 56], &row);
            }),
        ),
        ("outcome", Box::new(|e| e.resolve(&[7; 56], &[1, 2]))),
        ("no entry", collection(doc! {})),
        ("wildcard that prepares", collection(entry(wild))),
        ("hashed and unique", collection(entry(hashed))),
        ("deep filter", collection(entry(deep))),
        ("unknown filter", collection(entry(bad))),
        ("another spec", collection(entry(other))),
        (
            "deep option",
            collection(with_options(&c, &doc! { "x": nested(DEEP) })),
        ),
        (
            "validator",
            collection(with_options(
                &c,
                &doc! { "validator": doc! { "$bogus": 1 } },
            )),
        ),
        (
            "collation",
            collection(with_options(
                &c,
                &doc! { "collation": doc! { "locale": "xx" } },
            )),
        ),
    ];
    for (what, write) in cases {
        let mut e = Encoder::new();
        write(&mut e);
        let payload = e.into_payload();
        if let Ok(Some(op)) = Reader::new(&payload).unwrap().next() {
            covered(&op);
        }
        let refused = append(&store, |log| *log = Encoder::of(&payload));
        assert!(refused.is_err(), "{what} went through");
    }
    // A transaction is refused as well.
    let patience = std::time::Duration::from_millis(1);
    let t = store.begin_transaction(patience, None);
    let mut part = store.write_unit_in(&t, &c, NEVER).unwrap();
    part.insert(doc! { "_id": 7 }.as_bytes()).unwrap().unwrap();
    // The executor passes only complete documents. This is the door's answer to an incomplete one.
    let refused = match part.insert(&[&doc! { "_id": 8 }.into_bytes()[..], &[1]].concat()) {
        Ok(_) => part
            .commit()
            .and_then(|_| t.commit(None, Announce::Door, NEVER).map(drop)),
        Err(e) => Err(e),
    };
    assert!(refused.is_err());
    t.abort();
    // Nothing of the record is stored, and the door works.
    assert_eq!(store.last_commit().unwrap(), before);
    assert_eq!(all(&store, &c).len(), 1);
    insert(&store, &c, doc! { "_id": 2 }).unwrap();
    assert!(store.damages().is_empty());
    let differences = store.compare_with_log(NEVER).unwrap().unwrap();
    assert!(differences.is_empty(), "{differences:?}");
}

#[test]
fn a_change_of_the_catalog_that_could_not_be_read_is_refused_with_its_own_code() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    insert(&store, &c, doc! { "_id": 1 }).unwrap();
    let wild = index(&store, &c, doc! { "key": doc! { "$**": 1 }, "name": "w" }).unwrap();
    let mut spec = (*wild.spec()).clone();
    spec.prepare_unique = true;
    assert_eq!(
        code(store.modify_index(&c, spec, NEVER)),
        Code::CannotCreateIndex
    );
    assert!(!wild.spec().prepare_unique && !wild.guards());
    let deep = doc! { "key": doc! { "a": 1 }, "name": "p", "partialFilterExpression": ands(90) };
    assert_eq!(code(index(&store, &c, deep)), Code::Overflow);
    let options = CollectionOptions {
        document: doc! { "x": nested(DEEP) },
        ..CollectionOptions::default()
    };
    assert_eq!(
        code(store.modify_options(&c, options.clone(), NEVER)),
        Code::Overflow
    );
    assert_eq!(
        code(store.create_collection("db.d", options, NEVER)),
        Code::Overflow
    );
    assert!(store.collection("db.d").is_none());
    assert_eq!(c.all_indexes().len(), 2);
    drop(store);
    let store = open(dir.path());
    assert!(store.damages().is_empty());
    assert_eq!(store.collection("db.c").unwrap().indexes().len(), 2);
}

/// A directory with one damage of each kind: `db.i` has an index that cannot be read, `db.u` a unique
/// one, `db.o` has an option that cannot be read, `db.e` an entry without a usable part, `db.v` a
/// validator that cannot be read, and `db.d` a difference that does not fit. `db.ok` is in order.
pub(crate) fn broken(path: &Path, flushed: bool) {
    let store = open(path);
    for name in ["db.i", "db.u", "db.o", "db.e", "db.v", "db.d", "db.ok"] {
        let c = create(&store, name);
        for spec in [
            doc! { "key": doc! { "a": 1 }, "name": "a" },
            doc! { "key": doc! { "b": 1 }, "name": "b" },
        ] {
            index(&store, &c, spec).unwrap();
        }
        for i in 0..5 {
            insert(&store, &c, doc! { "_id": i, "a": i, "b": i }).unwrap();
        }
    }
    if flushed {
        store.flush().unwrap();
    }
    plant_all(&store);
    // A later record is applied to them as well.
    for name in ["db.i", "db.o", "db.v", "db.ok"] {
        let c = store.collection(name).unwrap();
        insert(&store, &c, doc! { "_id": 9, "a": 9, "b": 9 }).unwrap();
    }
    if flushed {
        // The running store is not told of the planted entries: they are only in its trees.
        store.close().unwrap();
    }
}

fn plant_all(store: &Store) {
    let c = |name: &str| store.collection(name).unwrap();
    let deep =
        doc! { "v": 2, "key": doc! { "a": 1 }, "name": "a", "partialFilterExpression": ands(90) };
    let unique = doc! { "v": 2, "key": doc! { "a": "hashed" }, "name": "a", "unique": true };
    let deep_option = doc! { "validator": nested(DEEP), "size": 7 };
    let entries = [
        ("db.i", with_spec(&c("db.i"), "a", &deep)),
        ("db.u", with_spec(&c("db.u"), "a", &unique)),
        ("db.o", with_options(&c("db.o"), &deep_option)),
        ("db.e", doc! { "v": 3, "ns": "db.e" }),
        (
            "db.v",
            with_options(&c("db.v"), &doc! { "validator": doc! { "$bogus": 1 } }),
        ),
    ];
    for (name, entry) in &entries {
        plant_entry(store, c(name).id, entry);
    }
    let d = c("db.d");
    let key = crate::tests::key_of(store, &d, 1);
    plant(store, |log| {
        let bogus = doc! { "bogus": 1 };
        let _ = log.diff(d.id, &key, doc! { "_id": 1 }.as_bytes(), bogus.as_bytes());
    });
    plant(store, |log| {
        let _ = log.delete(d.id, &[7; 8], doc! { "_id": 77 }.as_bytes());
    });
}

/// Writes a catalog entry as the server with the mistake did: into the log, and into the trees.
pub(crate) fn plant_entry(store: &Store, id: u32, entry: &DocBuf) {
    let mut stage = Stage::new(store.inner.door.opening().unwrap());
    let logged = stage.log.collection(id, 999, entry.as_bytes());
    let key = stage.keep(&[&crate::keys::catalog(id)]);
    stage.put(crate::keys::META, key, Some(Stage::logged(logged)), false);
    store.inner.commit_unchecked(stage).unwrap();
}

pub(crate) fn what(store: &Store) -> Vec<(String, Damaged)> {
    let damages = store.damages().into_iter();
    damages.map(|d| (d.namespace, d.what)).collect()
}

fn expected() -> Vec<(String, Damaged)> {
    [
        ("db.d", Damaged::Collection),
        ("db.e", Damaged::Collection),
        ("db.i", Damaged::Index("a".into())),
        ("db.o", Damaged::Collection),
        ("db.u", Damaged::Index("a".into())),
        ("db.v", Damaged::Validator),
    ]
    .map(|(ns, what)| (ns.to_string(), what))
    .to_vec()
}

/// Checks that everything that is not damaged serves.
fn isolated(store: &Store) {
    assert_eq!(what(store), expected(), "{:?}", store.damages());
    let c = |name: &str| store.collection(name).unwrap();
    let corrupt = Code::DataCorruptionDetected;
    for name in ["db.d", "db.e", "db.o"] {
        let c = c(name);
        let snapshot = store.snapshot();
        assert_eq!(
            code(snapshot.find_by_id(&c, Value::Int32(1))),
            corrupt,
            "{name}"
        );
        let mut docs = snapshot.docs(&c, &KeyRange::all(), Direction::Forward);
        assert_eq!(code(docs.next(&NeverInterrupted)), corrupt);
        assert_eq!(code(insert(store, &c, doc! { "_id": 50 })), corrupt);
        let report = store.validate(&c, true, NEVER).unwrap();
        assert_eq!(report.as_doc().get("valid").unwrap().as_bool(), Some(false));
        assert!(!c.listed_indexes().is_empty() || name == "db.e");
    }
    let i = c("db.i");
    assert_eq!(all(store, &i).len(), 6);
    insert(store, &i, doc! { "_id": 10, "a": 9, "b": 10 }).unwrap();
    assert_eq!((i.indexes().len(), i.listed_indexes().len()), (2, 3));
    let report = store
        .validate(&i, true, NEVER)
        .unwrap()
        .as_doc()
        .to_display();
    assert!(report.contains("index 'a' of db.i is damaged"), "{report}");
    let damaged = i
        .listed_indexes()
        .into_iter()
        .find(|i| i.is_damaged())
        .unwrap();
    let mut entries = store
        .snapshot()
        .entries(&i, &damaged, &KeyRange::all(), Direction::Forward);
    assert_eq!(code(entries.next(&NeverInterrupted)), corrupt);
    // A duplicate would not be noticed.
    let u = c("db.u");
    assert_eq!(code(insert(store, &u, doc! { "_id": 50 })), corrupt);
    assert_eq!(all(store, &u).len(), 5);
    let v = c("db.v");
    insert(store, &v, doc! { "_id": 10 }).unwrap();
    assert_eq!(code(v.check_validator()), corrupt);
    let ok = c("db.ok");
    insert(store, &ok, doc! { "_id": 10 }).unwrap();
    let report = store.validate(&ok, true, NEVER).unwrap();
    assert_eq!(report.as_doc().get("valid").unwrap().as_bool(), Some(true));
}

#[test]
fn what_cannot_be_read_is_closed_and_the_rest_serves_from_log_and_from_tables() {
    for flushed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        broken(dir.path(), flushed);
        let store = open(dir.path());
        isolated(&store);
        // The next cut writes the mark into the tables.
        store.flush().unwrap();
        store.close().unwrap();
        drop(store);
        let store = open(dir.path());
        assert_eq!(what(&store), expected());
        // Another change of the collection leaves its damaged index as it is.
        let i = store.collection("db.i").unwrap();
        index(&store, &i, doc! { "key": doc! { "c": 1 }, "name": "c" }).unwrap();
        store
            .rename_collection("db.i", "db.j", false, NEVER)
            .unwrap();
        assert_eq!(
            code(store.rename_collection("db.e", "db.f", false, NEVER)),
            Code::DataCorruptionDetected
        );
        drop(store);
        let store = open(dir.path());
        let j = store.collection("db.j").unwrap();
        assert_eq!((j.indexes().len(), j.listed_indexes().len()), (3, 4));
        // An index that was dropped online is gone.
        store.drop_index(&j, "a", NEVER).unwrap();
        let u = store.collection("db.u").unwrap();
        store.drop_index(&u, "a", NEVER).unwrap();
        insert(&store, &u, doc! { "_id": 51, "a": 1 }).unwrap();
        for name in ["db.d", "db.e", "db.o"] {
            assert!(store.drop_collection(name, NEVER).unwrap());
        }
        let v = store.collection("db.v").unwrap();
        store
            .modify_options(&v, CollectionOptions::default(), NEVER)
            .unwrap();
        assert!(store.damages().is_empty(), "{:?}", store.damages());
        store.flush().unwrap();
        drop(store);
        let store = open(dir.path());
        assert!(store.damages().is_empty(), "{:?}", store.damages());
        create(&store, "db.e");
    }
}

#[test]
fn what_was_closed_stays_closed_though_its_specification_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = open(dir.path());
        let c = create(&store, "db.c");
        index(
            &store,
            &c,
            doc! { "key": doc! { "a": 1, "b": 1 }, "name": "ab" },
        )
        .unwrap();
        insert(&store, &c, doc! { "_id": 1, "a": 1 }).unwrap();
        // A key cannot have two arrays: the primary that made this had no such index, or a bug.
        let arrays = || muniment_value::array![1, 2];
        let two = doc! { "_id": 2, "a": arrays(), "b": arrays() };
        plant(&store, |log| {
            let _ = log.insert(c.id, &2_u64.to_be_bytes(), two.as_bytes());
        });
    }
    for round in 0..3 {
        let store = open(dir.path());
        let c = store.collection("db.c").unwrap();
        assert_eq!(
            what(&store),
            [("db.c".to_string(), Damaged::Index("ab".into()))],
            "{round}"
        );
        insert(&store, &c, doc! { "_id": 10 + round }).unwrap();
        let again = index(
            &store,
            &c,
            doc! { "key": doc! { "a": 1, "b": 1 }, "name": "ab" },
        );
        assert_eq!(code(again), Code::DataCorruptionDetected);
        store.flush().unwrap();
    }
}

/// A store with `db.c` and its indexes `a` and `b`, and with `db.d`. All commits are in tables.
fn in_tables(path: &Path) -> (Arc<Store>, Arc<Collection>, [Arc<Index>; 2]) {
    let store = open(path);
    create(&store, "db.d");
    let c = create(&store, "db.c");
    let specs = [
        doc! { "key": doc! { "a": 1 }, "name": "a" },
        doc! { "key": doc! { "b": 1 }, "name": "b" },
    ];
    let indexes = specs.map(|spec| index(&store, &c, spec).unwrap());
    insert(&store, &c, doc! { "_id": 1, "a": 1, "b": 1 }).unwrap();
    store.flush().unwrap();
    assert_eq!(store.persisted(), store.newest_timestamp());
    (store, c, indexes)
}

#[test]
fn what_is_closed_after_the_last_commit_is_in_tables_stays_closed() {
    let dir = tempfile::tempdir().unwrap();
    let (store, c, [a, _]) = in_tables(dir.path());
    c.close_index(&a, "a test says so");
    store.collection("db.d").unwrap().close("a test says so");
    let closed = [
        ("db.c".to_string(), Damaged::Index("a".into())),
        ("db.d".to_string(), Damaged::Collection),
    ];
    assert_eq!(what(&store), closed);
    store.flush().unwrap();
    drop((store, c, a));
    for _ in 0..2 {
        let store = open(dir.path());
        assert_eq!(what(&store), closed);
        store.flush().unwrap();
        // A flush that finds nothing new writes no table.
        let flushed = || store.inner.trees.sizes().flushed;
        let before = flushed();
        store.flush().unwrap();
        assert_eq!(flushed(), before);
    }
}

#[test]
fn arrays_that_a_cut_meets_before_their_commit_are_known_after_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let (store, c, [a, _]) = in_tables(dir.path());
    // The next cut looks at a collection with damage, although no commit has come since.
    c.close_index(&a, "a test says so");
    let t = store.begin_transaction(std::time::Duration::from_millis(5), None);
    let mut unit = store.write_unit_in(&t, &c, NEVER).unwrap();
    let arrays = doc! { "_id": 2, "b": muniment_value::array![1, 2] };
    unit.insert(&bytes(arrays)).unwrap().unwrap();
    unit.commit().unwrap();
    store.flush().unwrap();
    t.commit(None, Announce::Door, NEVER).unwrap().unwrap();
    store.flush().unwrap();
    drop((t, store, c, a));
    let store = open(dir.path());
    let c = store.collection("db.c").unwrap();
    let b = crate::store::index_by_name(&c, "b").unwrap();
    assert!(b.is_multikey());
}

#[test]
fn a_repair_keeps_the_documents_and_builds_what_can_be_built() {
    for flushed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        broken(dir.path(), flushed);
        let lock = DirLock::acquire(dir.path(), EngineKind::Lsm, &[]).unwrap();
        let Repaired { done, failed } = Store::repair(&options(dir.path()), &lock).unwrap();
        assert!(failed.is_empty(), "{failed:#?}");
        let said = |what: &str| done.iter().any(|line| line.contains(what));
        assert!(said("index 'a' of db.i is dropped, since"), "{done:#?}");
        assert!(said("index 'a' of db.u is dropped, since"), "{done:#?}");
        assert!(said("collection db.o keeps its 6 documents"), "{done:#?}");
        assert!(said("index 'b' of db.o is built anew"), "{done:#?}");
        assert!(said("collection db.d keeps its 5 documents"), "{done:#?}");
        assert!(said("the validator of db.v is gone"), "{done:#?}");
        assert_eq!(
            Store::repair(&options(dir.path()), &lock).unwrap(),
            Repaired::default()
        );
        drop(lock);
        let store = open(dir.path());
        assert!(store.damages().is_empty(), "{:?}", store.damages());
        for (name, docs, indexes) in [
            ("db.i", 6, 2),
            ("db.u", 5, 2),
            ("db.o", 6, 3),
            // Its entry named no index.
            ("db.e", 5, 1),
            ("db.v", 6, 3),
            ("db.d", 5, 3),
            ("db.ok", 6, 3),
        ] {
            let c = store.collection(name).unwrap();
            assert_eq!(
                (c.count(), all(&store, &c).len(), c.indexes().len()),
                (docs, docs as usize, indexes),
                "{name}"
            );
            let found = store.snapshot().find_by_id(&c, Value::Int32(3)).unwrap();
            assert!(found.is_some(), "{name}");
            insert(&store, &c, doc! { "_id": 100 }).unwrap();
            let report = store.validate(&c, true, NEVER).unwrap();
            let valid = report.as_doc().get("valid").unwrap().as_bool();
            assert_eq!(valid, Some(true), "{}", report.as_doc().to_display());
        }
        let o = store.collection("db.o").unwrap().options();
        assert_eq!(o.document, doc! { "size": 7 });
    }
}

#[test]
fn a_follower_closes_what_it_cannot_apply_and_a_copy_has_it_closed() {
    let (of_a, of_b, of_c) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let a = Store::open(member(of_a.path())).unwrap();
    a.open_door(1).unwrap();
    let b = Store::open(member(of_b.path())).unwrap();
    for name in ["db.i", "db.u", "db.o", "db.e", "db.v", "db.d", "db.ok"] {
        let c = create(&a, name);
        index(&a, &c, doc! { "key": doc! { "a": 1 }, "name": "a" }).unwrap();
        index(&a, &c, doc! { "key": doc! { "b": 1 }, "name": "b" }).unwrap();
        for i in 0..5 {
            insert(&a, &c, doc! { "_id": i, "a": i, "b": i }).unwrap();
        }
    }
    let mut rng = Random(5);
    ship(&a, &b, &mut rng);
    assert!(b.damages().is_empty());
    // A reader uses it meanwhile.
    let e = b.collection("db.e").unwrap();
    let view = b.snapshot();
    let mut docs = view.docs(&e, &KeyRange::all(), Direction::Forward);
    docs.next(&NeverInterrupted).unwrap().unwrap();
    plant_all(&a);
    for name in ["db.i", "db.o", "db.v", "db.ok"] {
        let c = a.collection(name).unwrap();
        insert(&a, &c, doc! { "_id": 9, "a": 9, "b": 9 }).unwrap();
    }
    ship(&a, &b, &mut rng);
    assert_eq!(what(&b), expected());
    assert_eq!(
        code(view.find_by_id(&e, Value::Int32(1))),
        Code::DataCorruptionDetected
    );
    assert_eq!(b.position().unwrap().applied, a.position().unwrap().applied);
    // A new member is filled from it and has the same parts closed, although its log has nothing about
    // them.
    let end = b.position().unwrap().applied;
    b.set_committed(end.index).unwrap();
    let export = b.export(NEVER).unwrap();
    Store::import(&options(of_c.path()), export.position(), export).unwrap();
    let c = Store::open(member(of_c.path())).unwrap();
    assert_eq!(what(&c), expected());
    ship(&a, &c, &mut rng);
    c.open_door(7).unwrap();
    isolated(&c);
    // They are closed after a restart of the follower, too.
    drop((docs, view, e));
    drop(b);
    let b = Store::open(member(of_b.path())).unwrap();
    b.open_door(7).unwrap();
    isolated(&b);
}

#[test]
fn a_follower_takes_no_record_that_no_collection_could_be_closed_for() {
    let dir = tempfile::tempdir().unwrap();
    let b = Store::open(member(dir.path())).unwrap();
    let mut of_nothing = Encoder::new();
    of_nothing.insert(77, &[1], doc! {}.as_bytes());
    for payload in [vec![99, 0, 0], of_nothing.into_payload()] {
        let record = Record {
            index: 1,
            term: 1,
            at: Timestamp::new(5, 1),
            payload: &payload,
        };
        let refused = b.append_replicated(&[record], NEVER);
        assert_eq!(code(refused), Code::DataCorruptionDetected);
        assert_eq!(b.position().unwrap().appended.index, 0);
    }
}
