//! Fills a new member with the state of one position and the log after it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::tests::follow::{member, ship};
use crate::tests::noise::{Noise, Random, Stopper, one_state, same, totals_are_right};
use crate::tests::{all, insert, open, options};
use crate::*;
use bytes::Bytes;
use muniment_op::NeverInterrupted;
use muniment_value::{Error, array, doc};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// The chunks as they arrive.
fn sent(export: Export) -> impl Iterator<Item = muniment_value::Result<Chunk>> {
    export.map(|chunk| {
        let bytes = Bytes::from(chunk?.to_bytes());
        Chunk::from_bytes(&bytes).ok_or_else(|| Error::internal("malformed"))
    })
}

#[test]
fn a_member_that_is_filled_under_everything_at_once_goes_on_by_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let a = Store::open(member(dir.path())).unwrap();
    a.open_door(2).unwrap();
    let (stop, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut rng = Random(3);
    // Held while two stores are compared, so that the commit point does not move.
    let compared = Mutex::new(());
    std::thread::scope(|s| {
        let _stopper = Stopper(&stop);
        Noise {
            store: &a,
            stop: &stop,
            seed: 77,
            commits: &commits,
        }
        .start(s);
        s.spawn(|| {
            let _stopper = Stopper(&stop);
            let mut rng = Random(4);
            while !stop.load(SeqCst) {
                let resting = compared.lock();
                let end = a.position().unwrap().applied.index;
                a.set_committed(end - rng.below(end.min(30) + 1)).unwrap();
                a.flush().unwrap();
                drop(resting);
                std::thread::sleep(Duration::from_millis(7));
            }
        });
        for round in 0..5 {
            std::thread::sleep(Duration::from_millis(150));
            let to = tempfile::tempdir().unwrap();
            let export = a.export(&NeverInterrupted).unwrap();
            let position = export.position();
            // The import is slow, and much is written meanwhile.
            let slow = sent(export).inspect(|_| std::thread::sleep(Duration::from_millis(3)));
            Store::import(&options(to.path()), position, slow).unwrap();
            for life in 0..2 {
                let b = Store::open(member(to.path())).unwrap();
                let positions = b.position().unwrap();
                if life == 0 {
                    assert_eq!(
                        (positions.appended, positions.durable),
                        (position, position)
                    );
                    assert_eq!(b.log_begins_behind().unwrap(), position);
                    assert!(
                        b.records_behind(position.index.saturating_sub(1)).is_err()
                            || position.index == 0
                    );
                    one_state(&b, &b.snapshot());
                }
                totals_are_right(&b);
                let _resting = compared.lock();
                ship(&a, &b, &mut rng);
                let end = b.position().unwrap().applied;
                // What is in the log may be visible a moment later.
                a.wait_for_visible(end.at, &NeverInterrupted).unwrap();
                let on_a = a
                    .snapshot_at(end.at)
                    .unwrap_or_else(|| panic!("round {round}: {end:?}"));
                same(&on_a, &b.snapshot());
                one_state(&b, &b.snapshot());
                totals_are_right(&b);
                b.set_committed(end.index).unwrap();
                b.flush().unwrap();
            }
        }
        stop.store(true, SeqCst);
    });
    assert!(commits.load(SeqCst) > 100);
}

/// A member that was filled may become primary. Numbers of records and ids are not given again.
#[test]
fn who_was_filled_counts_on() {
    let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = open(dir.path());
    let options_of = CollectionOptions::default();
    let c = a
        .create_collection("db.c", options_of.clone(), &NeverInterrupted)
        .unwrap();
    for i in 0..10 {
        insert(&a, &c, doc! { "_id": i, "m": array![1, 2] }).unwrap();
    }
    let spec = IndexSpec::parse(doc! { "key": doc! { "m": 1 }, "name": "m" }.as_doc()).unwrap();
    a.create_index(&c, spec, &NeverInterrupted).unwrap();
    // The newest document is deleted, and its number is not given again.
    let mut unit = a.write_unit(&c, &NeverInterrupted).unwrap();
    let found = unit
        .lock_by_id(muniment_value::Value::Int32(9))
        .unwrap()
        .unwrap();
    let (key, old) = found.unwrap();
    unit.delete(&key, &old).unwrap().unwrap();
    unit.commit().unwrap();
    let export = a.export(&NeverInterrupted).unwrap();
    let position = export.position();
    assert_eq!(position, a.position().unwrap().appended);
    Store::import(&options(to.path()), position, sent(export)).unwrap();
    let b = Store::open(member(to.path())).unwrap();
    let on_b = b.collection("db.c").unwrap();
    assert!(on_b.all_indexes()[1].is_multikey());
    assert_eq!((on_b.count(), on_b.append().last), (9, c.append().last));
    b.open_door(1).unwrap();
    insert(&b, &on_b, doc! { "_id": 99 }).unwrap();
    let last = b
        .snapshot()
        .find_by_id(&on_b, muniment_value::Value::Int32(99))
        .unwrap()
        .unwrap();
    assert!(last.0 > key);
    let new = b
        .create_collection("db.new", options_of, &NeverInterrupted)
        .unwrap();
    assert!(new.tree() > c.all_indexes()[1].tree());
    assert_eq!(b.position().unwrap().appended.index, position.index + 2);
    assert_eq!(all(&b, &on_b).len(), 10);
}

/// A member that lost the connection after any row gets the rest of the same state.
#[test]
fn an_export_goes_on_behind_any_row() {
    let dir = tempfile::tempdir().unwrap();
    let a = Store::open(member(dir.path())).unwrap();
    a.open_door(2).unwrap();
    let mut made = Vec::new();
    for (name, docs, size) in [("db.a", 3, 10), ("db.empty", 0, 0), ("db.b", 4000, 900)] {
        let options = CollectionOptions::default();
        let c = a
            .create_collection(name, options, &NeverInterrupted)
            .unwrap();
        for i in 0..docs {
            insert(&a, &c, doc! { "_id": i, "t": "t".repeat(size) }).unwrap();
        }
        made.push(c);
    }
    for i in 0..60 {
        let name = format!("many.c{i}");
        let options = CollectionOptions::default();
        a.create_collection(&name, options, &NeverInterrupted)
            .unwrap();
    }
    a.set_committed(a.position().unwrap().applied.index)
        .unwrap();
    let mut export = a.export(&NeverInterrupted).unwrap();
    let told: Vec<_> = export
        .collections()
        .iter()
        .map(|c| (&*c.namespace, c.documents))
        .take(3)
        .collect();
    assert_eq!(told, [("db.a", 3), ("db.b", 4000), ("db.empty", 0)]);
    let rows = |chunks: &mut Export| -> Vec<(u32, Bytes, Bytes)> {
        let each = |c: Chunk| c.rows.into_iter().map(move |(k, v)| (c.tree, k, v));
        chunks.flat_map(|c| each(c.unwrap())).collect()
    };
    let all = rows(&mut export);
    assert!(export.next().is_none());
    export.go_on_behind(None).unwrap();
    let of_catalog = |c: &muniment_value::Result<Chunk>| c.as_ref().unwrap().is_of_catalog();
    assert!(export.by_ref().filter(of_catalog).count() > 1);
    // It stays the same state while documents change.
    let mut unit = a.write_unit(&made[2], &NeverInterrupted).unwrap();
    let found = unit
        .lock_by_id(muniment_value::Value::Int32(7))
        .unwrap()
        .unwrap();
    let (key, old) = found.unwrap();
    unit.delete(&key, &old).unwrap().unwrap();
    unit.commit().unwrap();
    a.drop_collection("db.a", &NeverInterrupted).unwrap();
    a.set_committed(a.position().unwrap().applied.index)
        .unwrap();
    a.flush().unwrap();
    export.go_on_behind(None).unwrap();
    assert!(rows(&mut export) == all);
    for at in (0..all.len()).filter(|i| i % 97 == 0 || i + 60 > all.len() || *i < 9) {
        let (tree, key, _) = &all[at];
        // The reader goes back in the middle of the export, or after its end.
        if at % 2 == 0 {
            export.next();
        }
        export.go_on_behind(Some((*tree, key))).unwrap();
        let rest = rows(&mut export);
        let expected = &all[at + 1..];
        assert!(rest == expected, "behind {at} of {}", all.len());
    }
    let e = export.go_on_behind(Some((999, b"k"))).unwrap_err();
    assert_eq!(e.code(), muniment_value::Code::BadValue);
}

#[test]
fn what_is_not_all_of_a_state_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let a = open(dir.path());
    let c = a
        .create_collection("db.c", CollectionOptions::default(), &NeverInterrupted)
        .unwrap();
    for i in 0..3000 {
        insert(&a, &c, doc! { "_id": i, "t": "t".repeat(900) }).unwrap();
    }
    let chunks: Vec<_> = a
        .export(&NeverInterrupted)
        .unwrap()
        .map(|c| c.unwrap())
        .collect();
    assert!(chunks.len() > 3, "{}", chunks.len());
    let position = a.position().unwrap().appended;
    let import = |chunks: Vec<muniment_value::Result<Chunk>>| {
        let to = tempfile::tempdir().unwrap();
        let result = Store::import(&options(to.path()), position, chunks.into_iter());
        (result, to)
    };
    let all = || chunks.iter().cloned().map(Ok);
    let (done, to) = import(all().collect());
    done.unwrap();
    // The directory is not empty.
    assert!(Store::import(&options(to.path()), position, all()).is_err());
    assert_eq!(open(to.path()).collection("db.c").unwrap().count(), 3000);
    let (cut, _) = import(all().take(chunks.len() - 1).collect());
    assert!(cut.is_err());
    let mut twice: Vec<_> = all().collect();
    twice.insert(1, Ok(chunks[0].clone()));
    assert!(import(twice).0.is_err());
    let mut fails: Vec<_> = all().take(2).collect();
    fails.push(Err(Error::internal("the source has gone")));
    let e = import(fails).0.unwrap_err();
    assert!(e.message().contains("source"), "{e}");
}

/// Each commit has the term in which it was made. A commit that a copy does not have in its log has the
/// term of the last one before the copy's log.
#[test]
fn the_terms_of_commits() {
    let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = Store::open(member(dir.path())).unwrap();
    let mut made: Vec<(Timestamp, u64)> = Vec::new();
    let mut write = |store: &Store, term: u64| {
        store.open_door(term).unwrap();
        for i in 0..5 {
            let id = made.len() as i32;
            let ns = format!("db.c{term}");
            let c = store.collection(&ns).unwrap_or_else(|| {
                store
                    .create_collection(&ns, CollectionOptions::default(), &NeverInterrupted)
                    .unwrap()
            });
            insert(store, &c, doc! { "_id": id, "i": i }).unwrap();
            made.push((store.position().unwrap().appended.at, term));
        }
        store.close_door();
        made.clone()
    };
    let mut all = Vec::new();
    for term in [2, 3, 7] {
        all = write(&a, term);
    }
    // The terms are asked for from either end.
    let found = |store: &Store, backward: bool| {
        let mut terms = store.terms().unwrap();
        let mut found: Vec<_> = all.clone();
        if backward {
            found.reverse();
        }
        for (at, term) in &mut found {
            *term = terms.of(*at).unwrap();
        }
        found.sort_unstable();
        found
    };
    assert_eq!(found(&a, false), all);
    assert_eq!(found(&a, true), all);
    // Only committed records are copied.
    a.sync().unwrap();
    let last = a.position().unwrap().appended;
    assert_eq!(a.set_committed(last.index).unwrap(), last);
    let export = a.export(&NeverInterrupted).unwrap();
    let position = export.position();
    Store::import(&options(to.path()), position, sent(export)).unwrap();
    let b = Store::open(member(to.path())).unwrap();
    assert!(found(&b, false).iter().all(|(_, term)| *term == 7));
    write(&b, 9);
    let mut terms = b.terms().unwrap();
    assert_eq!(terms.of(b.position().unwrap().appended.at).unwrap(), 9);
    assert_eq!(terms.of(position.at).unwrap(), 7);
}
