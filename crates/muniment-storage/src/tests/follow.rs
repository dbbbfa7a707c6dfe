//! A store as a member of a replica set: the door, following, the commit point, giving up a tail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::tests::natural::crash;
use crate::tests::noise::{Noise, Random, Stopper, one_state, same, totals_are_right};
use crate::tests::{all, bytes, insert, options};
use crate::*;
use muniment_op::NeverInterrupted;
use muniment_value::{Code, Value, doc};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

pub(crate) fn member(path: &Path) -> StoreOptions {
    StoreOptions {
        member: true,
        ..options(path)
    }
}

fn open_member(path: &Path) -> Arc<Store> {
    Store::open(member(path)).unwrap()
}

/// A record as a member sends it.
pub(crate) struct Sent {
    pub(crate) position: Position,
    payload: Vec<u8>,
}

/// The records after an index, `most` of them at most.
pub(crate) fn behind(from: &Store, index: u64, most: usize) -> Vec<Sent> {
    let mut records = from.records_behind(index).unwrap();
    let mut found = Vec::new();
    while found.len() < most
        && let Some(r) = records.next().unwrap()
    {
        found.push(Sent {
            position: Position {
                index: r.index,
                term: r.term,
                at: r.at,
            },
            payload: r.payload.to_vec(),
        });
    }
    found
}

pub(crate) fn deliver(to: &Store, sent: &[Sent]) -> muniment_value::Result<()> {
    let records: Vec<Record<'_>> = sent
        .iter()
        .map(|s| Record {
            index: s.position.index,
            term: s.position.term,
            at: s.position.at,
            payload: &s.payload,
        })
        .collect();
    to.append_replicated(&records, &NeverInterrupted)
}

/// Sends everything that one store has by now and the other does not, in pieces. Returns the number of
/// records.
pub(crate) fn ship(from: &Store, to: &Store, rng: &mut Random) -> usize {
    let end = from.position().unwrap().appended.index;
    let mut n = 0;
    loop {
        let index = to.position().unwrap().appended.index;
        if index >= end {
            return n;
        }
        let sent = behind(from, index, 1 + rng.below(40) as usize);
        n += sent.len();
        deliver(to, &sent).unwrap();
    }
}

fn as_the_log_says(store: &Store) {
    let differences = store.compare_with_log(&NeverInterrupted).unwrap();
    let differences = differences.expect("the log begins with its first record");
    assert!(differences.is_empty(), "{differences:#?}");
}

fn create(store: &Store, name: &str) -> Arc<Collection> {
    let options = CollectionOptions::default();
    store
        .create_collection(name, options, &NeverInterrupted)
        .unwrap()
}

fn code<T>(result: muniment_value::Result<T>) -> Code {
    result.err().expect("it went through").code()
}

#[test]
fn behind_a_closed_door_nobody_writes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_member(dir.path());
    let never = &NeverInterrupted;
    let refused = |store: &Store, c: Option<&Arc<Collection>>| {
        let options = CollectionOptions::default();
        let spec = IndexSpec::parse(doc! { "key": doc! { "a": 1 }, "name": "a" }.as_doc()).unwrap();
        let no = Code::NotWritablePrimary;
        assert_eq!(
            code(store.create_collection("db.new", options.clone(), never)),
            no
        );
        assert_eq!(code(store.drop_collection("db.c", never)), no);
        assert_eq!(
            code(store.rename_collection("db.c", "db.d", true, never)),
            no
        );
        assert_eq!(code(store.commit_nothing(never)), no);
        assert_eq!(code(store.note(doc! { "op": "n" }.as_doc(), never)), no);
        store
            .forget_sessions(&[SessionKey::of_nobody([1; 16])], never)
            .unwrap();
        let Some(c) = c else { return };
        assert_eq!(code(store.write_unit(c, never)), no);
        assert_eq!(code(store.exclusive(c, never)), no);
        assert_eq!(code(store.create_index(c, spec.clone(), never)), no);
        assert_eq!(code(store.replace_index(c, spec.clone(), never)), no);
        assert_eq!(code(store.drop_index(c, "a_1", never)), no);
        assert_eq!(code(store.modify_index(c, spec, never)), no);
        assert_eq!(code(store.modify_options(c, options, never)), no);
        let t = store.begin_transaction(Duration::from_millis(1), None);
        assert_eq!(code(store.write_unit_in(&t, c, never)), no);
        assert!(t.snapshot().is_ok() && t.commit(None, Announce::Door, never).unwrap().is_none());
    };
    refused(&store, None);
    let told: Arc<Mutex<Vec<Position>>> = Arc::default();
    let to = told.clone();
    store.listen(move |p, _| to.lock().push(p)).unwrap();
    store.open_door(7).unwrap();
    assert!(store.open_door(7).is_err() && store.is_door_open());
    let c = create(&store, "db.c");
    insert(&store, &c, doc! { "_id": 1 }).unwrap();
    // A unit that was begun under one opening cannot be committed in another.
    let mut unit = store.write_unit(&c, never).unwrap();
    unit.insert(&bytes(doc! { "_id": 2 })).unwrap().unwrap();
    let t = store.begin_transaction(Duration::from_millis(1), None);
    let mut part = store.write_unit_in(&t, &c, never).unwrap();
    part.insert(&bytes(doc! { "_id": 3 })).unwrap().unwrap();
    part.commit().unwrap();
    let mut late = store.write_unit(&c, never).unwrap();
    late.insert(&bytes(doc! { "_id": 4 })).unwrap().unwrap();
    store.close_door();
    assert!(!store.is_door_open());
    refused(&store, Some(&c));
    assert_eq!(code(unit.commit()), Code::NotWritablePrimary);
    assert!(store.open_door(6).is_err());
    store.open_door(9).unwrap();
    assert_eq!(code(late.commit()), Code::NotWritablePrimary);
    assert_eq!(
        code(t.commit(None, Announce::Door, never)),
        Code::NotWritablePrimary
    );
    insert(&store, &c, doc! { "_id": 5 }).unwrap();
    assert_eq!((all(&store, &c).len(), c.count()), (2, 2));
    let end = store.position().unwrap();
    assert_eq!((end.appended, end.applied), (end.applied, end.appended));
    let told = told.lock().clone();
    assert_eq!(told.last(), Some(&end.appended));
    let places: Vec<_> = told.iter().map(|p| (p.index, p.term)).collect();
    assert_eq!(places, [(1, 7), (2, 7), (3, 9)]);
    as_the_log_says(&store);
    // Records of others are refused while the door is open.
    let next = Sent {
        position: Position {
            index: 4,
            term: 9,
            at: Timestamp(end.appended.at.0 + 1),
        },
        payload: Vec::new(),
    };
    assert!(deliver(&store, &[next]).is_err());
    assert_eq!(store.position().unwrap().appended.index, 3);
}

/// The door is closed while many threads write: what went through before is all there, and nothing comes
/// after.
#[test]
fn closing_the_door_waits_for_the_thread_inside() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_member(dir.path());
    store.open_door(1).unwrap();
    let c = create(&store, "db.c");
    let (ids, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|s| {
        let _stopper = Stopper(&stop);
        for _ in 0..4 {
            s.spawn(|| {
                while !stop.load(SeqCst) {
                    let id = ids.fetch_add(1, SeqCst) as i64;
                    if let Err(e) = insert(&store, &c, doc! { "_id": id }) {
                        assert_eq!(e.code(), Code::NotWritablePrimary, "{e}");
                    }
                }
            });
        }
        for term in 2..60 {
            std::thread::sleep(Duration::from_millis(3));
            store.close_door();
            let before = store.position().unwrap();
            assert_eq!(before.appended, before.applied);
            let n = c.count();
            std::thread::sleep(Duration::from_millis(2));
            assert_eq!(
                (store.position().unwrap().appended, c.count()),
                (before.appended, n)
            );
            assert_eq!(all(&store, &c).len() as u64, n);
            store.open_door(term).unwrap();
        }
        stop.store(true, SeqCst);
    });
    as_the_log_says(&store);
}

fn rounds(ordinary: usize) -> usize {
    match std::env::var_os("MUNIMENT_LONG") {
        Some(_) => ordinary * 10,
        None => ordinary,
    }
}

/// One store under everything at once, and another that follows it, with readers, flushes and restarts:
/// they are equal wherever they stand at the same record.
#[test]
fn who_follows_has_the_same_at_every_position() {
    let (dir, dir_b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = open_member(dir.path());
    a.open_door(3).unwrap();
    let mut path = dir_b.path().to_path_buf();
    let mut kept = Vec::new();
    let (stop, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut rng, mut looked) = (Random(11), 0);
    std::thread::scope(|s| {
        let _stopper = Stopper(&stop);
        Noise {
            store: &a,
            stop: &stop,
            seed: 1,
            commits: &commits,
        }
        .start(s);
        for round in 0..rounds(6) {
            let b = open_member(&path);
            looked += follow_for_a_while(&a, &b, &stop, &mut rng);
            as_the_log_says(&b);
            let at = b.position().unwrap();
            assert_eq!(at.appended, at.applied, "round {round}");
            same(&a.snapshot_at(at.applied.at).unwrap(), &b.snapshot());
            totals_are_right(&b);
            // The commit point is somewhere in the newer half.
            let committed = at.applied.index - rng.below(at.applied.index / 2 + 1);
            a.set_committed(committed).unwrap();
            b.set_committed(committed).unwrap();
            match rng.below(2) {
                0 => {
                    // The store goes on from what a crash leaves.
                    kept.push(crash(&b, &path));
                    path = kept[kept.len() - 1].path().to_path_buf();
                }
                _ => b.close().unwrap(),
            }
        }
        stop.store(true, SeqCst);
        // A writer that waits for memory to be flushed goes on.
        a.set_committed(u64::MAX).unwrap();
    });
    assert!(commits.load(SeqCst) > 100, "{commits:?}");
    assert!(looked > 10, "{looked}");
    a.close_door();
    let b = open_member(&path);
    ship(&a, &b, &mut rng);
    same(&a.snapshot(), &b.snapshot());
    as_the_log_says(&a);
    as_the_log_says(&b);
    totals_are_right(&b);
}

/// A hash of what a view sees of each collection.
fn documents(store: &Store, view: &Snapshot) -> BTreeMap<u32, u64> {
    let mut seen = BTreeMap::new();
    for c in store.collections("db") {
        let mut hasher = DefaultHasher::new();
        let mut docs = view.docs(&c, &KeyRange::all(), Direction::Forward);
        while let Some((key, d)) = docs.next(&NeverInterrupted).unwrap() {
            (key, &d[..]).hash(&mut hasher);
        }
        // A dropped collection is given up when no view is left that began before the drop.
        if !c.is_dropped() && c.named_since() <= view.timestamp() {
            seen.insert(c.id, hasher.finish());
        }
    }
    seen
}

/// Checks that a view of a past timestamp sees what was seen then, if it is still kept. Returns 1 if
/// that was before the commit point, else 0.
fn look_back(store: &Store, past: &mut Vec<(Timestamp, BTreeMap<u32, u64>)>, n: u64) -> u64 {
    let view = store.snapshot();
    past.push((view.timestamp(), documents(store, &view)));
    drop(view);
    let (at, wanted) = &past[n as usize % past.len()];
    let Some(view) = store.snapshot_at(*at) else {
        return 0;
    };
    for (id, hash) in documents(store, &view) {
        assert_eq!(wanted.get(&id), Some(&hash), "collection {id} at {at}");
    }
    u64::from(view.timestamp() < store.committed().unwrap().at)
}

/// Ships for some time, while others read and flush. Returns how often a view from before the commit
/// point was read.
fn follow_for_a_while(a: &Store, b: &Arc<Store>, stop: &AtomicBool, rng: &mut Random) -> u64 {
    let (done, looked) = (AtomicBool::new(false), AtomicU64::new(0));
    b.keep_history(2, false);
    std::thread::scope(|s| {
        let _stopper = Stopper(&done);
        for kind in 0..4 {
            let (done, looked) = (&done, &looked);
            s.spawn(move || {
                let _stopper = Stopper(stop);
                let (mut past, mut rng) = (Vec::new(), Random(kind));
                while !done.load(SeqCst) && !stop.load(SeqCst) {
                    match kind {
                        0 => b.flush().unwrap(),
                        1 => one_state(b, &b.snapshot()),
                        2 => {
                            let n = look_back(b, &mut past, rng.below(u64::MAX));
                            looked.fetch_add(n, SeqCst);
                        }
                        _ => {
                            let committed = b.committed().unwrap();
                            if let Some(view) = b.snapshot_at(committed.at) {
                                assert_eq!(view.timestamp(), committed.at);
                                one_state(b, &view);
                            }
                            let persisted = b.inner.trees.persisted();
                            assert!(persisted <= b.committed().unwrap().at);
                        }
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        // On a busy machine it goes on until a few past views were read.
        let until = Instant::now() + Duration::from_millis(250);
        let patience = until + Duration::from_secs(20);
        let looks = || looked.load(SeqCst) < 3 && !stop.load(SeqCst);
        while Instant::now() < until || looks() && Instant::now() < patience {
            if ship(a, b, rng) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            if rng.below(3) == 0 {
                let at = b.position().unwrap();
                b.set_committed(at.applied.index - rng.below(at.applied.index.min(50) + 1))
                    .unwrap();
            }
        }
        done.store(true, SeqCst);
    });
    looked.into_inner()
}

/// The primary changes in the middle of everything, again and again. Sometimes it has a tail that the
/// next primary does not have, which it gives up before it follows.
#[test]
fn the_primary_changes_under_everything_at_once() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut stores: Vec<Arc<Store>> = dirs.iter().map(|d| open_member(d.path())).collect();
    let mut rng = Random(5);
    for term in 1..=rounds(8) as u64 {
        let (one, other) = (term as usize % 2, 1 - term as usize % 2);
        stores[one].open_door(term).unwrap();
        let (stop, commits) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|s| {
            let _stopper = Stopper(&stop);
            Noise {
                store: &stores[one],
                stop: &stop,
                seed: term,
                commits: &commits,
            }
            .start(s);
            let until = Instant::now() + Duration::from_millis(200);
            while Instant::now() < until {
                ship(&stores[one], &stores[other], &mut rng);
                let index = stores[other].position().unwrap().appended.index;
                for store in &stores {
                    store.set_committed(index).unwrap();
                    store.flush().unwrap();
                }
            }
            // The writers are still at work then.
            stores[one].close_door();
            stop.store(true, SeqCst);
        });
        let end = stores[one].position().unwrap().appended;
        if rng.below(2) == 0 {
            ship(&stores[one], &stores[other], &mut rng);
        }
        let common = stores[other].position().unwrap().appended;
        if common != end {
            let path = dirs[one].path();
            drop(stores.remove(one));
            let cut = StoreOptions {
                cut_behind: Some(common.index),
                ..member(path)
            };
            stores.insert(one, Store::open(cut).unwrap());
            assert_eq!(stores[one].position().unwrap().appended, common);
        }
        same(&stores[one].snapshot(), &stores[other].snapshot());
        for store in &stores {
            as_the_log_says(store);
            totals_are_right(store);
        }
    }
    // Nothing is left half done: the next primary has ended earlier builds.
    let last = &stores[0];
    last.open_door(1000).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let unfinished = || !last.inner.unfinished_builds().is_empty() || pending(last);
    while unfinished() {
        assert!(Instant::now() < until, "something stays unfinished");
        std::thread::sleep(Duration::from_millis(5));
    }
    one_state(last, &last.snapshot());
    last.close_door();
    ship(last, &stores[1], &mut rng);
    same(&last.snapshot(), &stores[1].snapshot());
    as_the_log_says(last);
}

fn pending(store: &Store) -> bool {
    store.collections("db").iter().any(|c| c.is_pending())
}

#[test]
fn what_is_not_committed_is_read_as_it_was_and_can_be_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let ids = |view: &Snapshot, c: &Collection| {
        let mut docs = view.docs(c, &KeyRange::all(), Direction::Forward);
        let mut n = 0;
        while docs.next(&NeverInterrupted).unwrap().is_some() {
            n += 1;
        }
        n
    };
    let common = {
        let store = open_member(dir.path());
        store.open_door(1).unwrap();
        let c = create(&store, "db.c");
        let mut committed = Position::default();
        for i in 0..300 {
            insert(&store, &c, doc! { "_id": i, "t": "t".repeat(100) }).unwrap();
            if i == 99 {
                let index = store.position().unwrap().appended.index;
                committed = store.set_committed(index).unwrap();
            }
            if i % 70 == 69 {
                store.flush().unwrap();
                assert!(store.inner.trees.persisted() <= committed.at);
            }
        }
        let view = store.snapshot_at(committed.at).unwrap();
        assert_eq!((ids(&view, &c), ids(&store.snapshot(), &c)), (100, 300));
        drop(view);
        assert!(store.snapshot_at(Timestamp(committed.at.0 - 1)).is_none());
        let positions = store.position().unwrap();
        assert_eq!(positions.applied.index, 301);
        assert!(positions.durable.index >= committed.index);
        assert!(store.inner.trees.sizes().uncommitted > 0);
        assert_eq!(store.committed().unwrap(), committed);
        store.close().unwrap();
        committed
    };
    for _ in 0..2 {
        let store = Store::open(StoreOptions {
            cut_behind: Some(common.index),
            ..member(dir.path())
        })
        .unwrap();
        assert_eq!(store.position().unwrap().appended, common);
        let c = store.collection("db.c").unwrap();
        assert_eq!((all(&store, &c).len(), c.count()), (100, 100));
        as_the_log_says(&store);
    }
    // A record that is in files cannot be given up.
    let store = open_member(dir.path());
    store.set_committed(common.index).unwrap();
    store.flush().unwrap();
    assert_eq!(store.inner.trees.persisted(), common.at);
    drop(store);
    let refused = Store::open(StoreOptions {
        cut_behind: Some(common.index - 1),
        ..member(dir.path())
    });
    assert!(refused.is_err());
    assert_eq!(open_member(dir.path()).position().unwrap().appended, common);
}

/// A commit point that is ahead of the records counts when they come. A follower's memory never waits
/// for it.
#[test]
fn the_commit_point_may_be_ahead_of_the_records() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [a, b] = [0, 1].map(|i| open_member(dirs[i].path()));
    a.open_door(1).unwrap();
    let c = create(&a, "db.c");
    for i in 0..50 {
        insert(&a, &c, doc! { "_id": i }).unwrap();
    }
    assert_eq!(b.set_committed(30).unwrap(), Position::default());
    deliver(&b, &behind(&a, 0, 20)).unwrap();
    assert_eq!(b.committed().unwrap().index, 20);
    deliver(&b, &behind(&a, 20, 20)).unwrap();
    assert_eq!(b.committed().unwrap().index, 30);
    assert_eq!(b.set_committed(7).unwrap().index, 30);
    // One delivery leaves a gap, the other repeats records.
    assert!(deliver(&b, &behind(&a, 41, 1)).is_err());
    assert!(deliver(&b, &behind(&a, 39, 1)).is_err());
    assert_eq!(b.position().unwrap().applied.index, 40);
}

/// An open cursor and a view that is held, while what they read is dropped by a record.
#[test]
fn a_drop_that_comes_as_a_record_leaves_views_what_they_read() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [a, b] = [0, 1].map(|i| open_member(dirs[i].path()));
    let mut rng = Random(1);
    a.open_door(1).unwrap();
    let c = create(&a, "db.c");
    let d = create(&a, "db.d");
    let spec = IndexSpec::parse(doc! { "key": doc! { "x": 1 }, "name": "x" }.as_doc()).unwrap();
    a.create_index(&c, spec, &NeverInterrupted).unwrap();
    for i in 0..2000 {
        insert(&a, &c, doc! { "_id": i, "x": i }).unwrap();
    }
    insert(&a, &d, doc! { "_id": 1 }).unwrap();
    ship(&a, &b, &mut rng);
    let on_b = b.collection("db.c").unwrap();
    let index = on_b.all_indexes()[1].clone();
    assert!(index.is_ready());
    let view = b.snapshot();
    let mut cursor = view.entries(&on_b, &index, &KeyRange::all(), Direction::Forward);
    for _ in 0..100 {
        cursor.next(&NeverInterrupted).unwrap().unwrap();
    }
    let (inserts, generation) = (on_b.inserts(), on_b.generation());
    assert_eq!(inserts, 2000);
    a.rename_collection("db.d", "db.c", true, &NeverInterrupted)
        .unwrap();
    insert(&a, &d, doc! { "_id": 2, "m": Value::Null }).unwrap();
    let before = b.collection("db.d").unwrap();
    let named = b.visible();
    ship(&a, &b, &mut rng);
    for _ in 0..3 {
        let end = b.position().unwrap().applied.index;
        for store in [&a, &b] {
            store.set_committed(end).unwrap();
            store.flush().unwrap();
        }
        std::thread::sleep(Duration::from_millis(120));
    }
    // Plans on it end, and the holder of the view still finds all of it.
    assert!(on_b.is_dropped() && index.is_dropped() && on_b.generation() > generation);
    let mut left = 100;
    while cursor.next(&NeverInterrupted).unwrap().is_some() {
        left += 1;
    }
    assert_eq!(left, 2000);
    let renamed = b.collection("db.c").unwrap();
    assert!(Arc::ptr_eq(&renamed, &before) && renamed.named_since() > named);
    assert_eq!(
        b.collection_at("db.d", named).err().map(|e| e.code()),
        Some(Code::SnapshotUnavailable)
    );
    assert_eq!(all(&b, &renamed).len(), 2);
    drop((cursor, view));
    same(&a.snapshot(), &b.snapshot());
}

/// The listener learns what announces a record: the caller if it says so, else the door.
#[test]
fn a_record_is_announced_by_the_one_that_says_so() {
    let (dir, never) = (tempfile::tempdir().unwrap(), &NeverInterrupted);
    let store = open_member(dir.path());
    store.open_door(1).unwrap();
    let told: Arc<Mutex<Vec<Announce>>> = Arc::default();
    let to = told.clone();
    store.listen(move |_, who| to.lock().push(who)).unwrap();
    let heard = |what: &str, who: &[Announce]| assert_eq!(*told.lock(), who, "{what}");
    let c = create(&store, "db.c");
    heard("a change of the catalog", &[Announce::Door]);
    let staged = |id: i32| {
        let mut unit = store.write_unit(&c, never).unwrap();
        unit.insert(&bytes(doc! { "_id": id })).unwrap().unwrap();
        unit
    };
    staged(1).commit().unwrap();
    staged(2).commit_announced_by(Announce::Caller).unwrap();
    heard("units", &[Announce::Door, Announce::Door, Announce::Caller]);
    told.lock().clear();
    for announce in [Announce::Caller, Announce::Door] {
        let t = store.begin_transaction(Duration::from_millis(1), None);
        let mut part = store.write_unit_in(&t, &c, never).unwrap();
        let id = 3 + told.lock().len() as i32;
        part.insert(&bytes(doc! { "_id": id })).unwrap().unwrap();
        part.commit().unwrap();
        t.commit(None, announce, never).unwrap();
    }
    heard("transactions", &[Announce::Caller, Announce::Door]);
}
