//! Waits and what ends them: index builds beside transactions; conflicts of transactions by version; and
//! the passing of time under clocks that are wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::ages::ByHand;
use crate::tests::follow::{behind, deliver, member};
use crate::tests::index::{create, delete, index, update, valid};
use crate::tests::noise::Random;
use crate::tests::{bytes, insert, open, options};
use crate::*;
use muniment_op::{Account, Interrupt, NeverInterrupted, Operation, Share, Sleepers};
use muniment_value::{Code, DocBuf, Error, Result, Value, doc};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// An operation that ends when it is killed. Only the kill wakes a thread that waits for it.
fn killable() -> Operation {
    Operation::new(Instant::now(), None)
}

/// An interrupt whose end is far away. An operation that reaches it has waited where it must not wait.
struct Late(Instant);

impl Interrupt for Late {
    fn check(&self) -> Result<()> {
        match self.0.elapsed() > Duration::from_secs(60) {
            true => Err(Error::new(Code::MaxTimeMSExpired, "too late")),
            false => Ok(()),
        }
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}

    fn wakes_at(&self) -> Option<Instant> {
        Some(self.0 + Duration::from_secs(60))
    }
}

fn begin(store: &Store) -> Arc<Transaction> {
    store.begin_transaction(Duration::from_millis(5), None)
}

/// The result of one statement.
fn staged(
    unit: WriteUnit<'_>,
    step: impl FnOnce(&mut WriteUnit<'_>) -> Staged<bool>,
) -> Result<bool> {
    let mut unit = unit;
    let done = step(&mut unit)?.expect("nobody else holds it");
    unit.commit()?;
    Ok(done)
}

fn update_in(
    store: &Store,
    t: &Arc<Transaction>,
    c: &Arc<Collection>,
    new: DocBuf,
) -> Result<bool> {
    let Some(Value::Int32(id)) = new.as_doc().get("_id") else {
        panic!("a number is to be updated");
    };
    let new = bytes(new);
    let unit = store.write_unit_in(t, c, &NeverInterrupted)?;
    staged(unit, |w| match w.lock_by_id(Value::Int32(id))? {
        Ok(Some((key, old))) => {
            let done = w.update(&key, &old, &new, Changed::Shorter, &|_| true)?;
            Ok(done.map(|()| true))
        }
        Ok(None) => Ok(Ok(false)),
        Err(busy) => Ok(Err(busy)),
    })
}

fn delete_in(store: &Store, t: &Arc<Transaction>, c: &Arc<Collection>, id: i32) -> Result<bool> {
    let unit = store.write_unit_in(t, c, &NeverInterrupted)?;
    staged(unit, |w| match w.lock_by_id(Value::Int32(id))? {
        Ok(Some((key, old))) => Ok(w.delete(&key, &old)?.map(|()| true)),
        Ok(None) => Ok(Ok(false)),
        Err(busy) => Ok(Err(busy)),
    })
}

fn insert_in(
    store: &Store,
    t: &Arc<Transaction>,
    c: &Arc<Collection>,
    new: DocBuf,
) -> Result<bool> {
    let unit = store.write_unit_in(t, c, &NeverInterrupted)?;
    staged(unit, |w| Ok(w.insert(&bytes(new))?.map(|()| true)))
}

/// An index that is registered and not built yet, unique or not, and a collection of 1200 documents.
fn registered(
    store: &Store,
    unique: bool,
) -> (Arc<Collection>, Arc<Index>, crate::commit::door::Opening) {
    let c = create(store, "db.c");
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    for i in 0..1200 {
        w.insert(&bytes(doc! { "_id": i, "u": i }))
            .unwrap()
            .unwrap();
    }
    w.commit().unwrap();
    let spec = doc! { "key": doc! { "u": 1 }, "name": "u_1", "unique": unique };
    let spec = IndexSpec::parse(spec.as_doc()).unwrap().with_document();
    let opening = store.inner.door.opening().unwrap();
    let found =
        store
            .inner
            .register_indexes(&c, &[Arc::new(spec)], false, opening, &NeverInterrupted);
    let mut new = found.unwrap().unwrap().new;
    (c, new.pop().expect("there are documents"), opening)
}

/// A plain update that has to end while another operation goes on.
fn updates(store: &Store, c: &Arc<Collection>, id: i32) {
    let late = Late(Instant::now());
    let mut w = store.write_unit(c, &late).unwrap();
    let (key, old) = w.lock_by_id(Value::Int32(id)).unwrap().unwrap().unwrap();
    let new = bytes(doc! { "_id": id, "u": id, "again": true });
    w.update(&key, &old, &new, Changed::Shorter, &|_| true)
        .unwrap()
        .unwrap();
    w.commit().unwrap();
}

#[test]
fn a_build_keeps_nobody_waiting_while_a_transaction_holds_a_document() {
    for unique in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let (c, index, opening) = registered(&store, unique);
        let t = begin(&store);
        // Its key may become another document's, too.
        assert!(update_in(&store, &t, &c, doc! { "_id": 700, "u": 5000 }).unwrap());
        let ended = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                let late = Late(Instant::now());
                store
                    .inner
                    .finish_indexes(&c, std::slice::from_ref(&index), opening, &late)
                    .unwrap();
                ended.store(true, SeqCst);
            });
            for _ in 0..20 {
                for id in [690, 699, 701, 710, 5, 1199] {
                    updates(&store, &c, id);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(!ended.load(SeqCst) && !index.is_ready());
            t.commit(None, Announce::Door, &NeverInterrupted).unwrap();
        });
        assert!(index.is_ready());
        valid(&store, &c);
    }
}

#[test]
fn the_last_step_of_a_build_waits_alone_and_can_be_killed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (c, index, opening) = registered(&store, false);
    let t = begin(&store);
    assert!(insert_in(&store, &t, &c, doc! { "_id": 5000, "u": 1 }).unwrap());
    let killed = killable();
    std::thread::scope(|s| {
        let build = s.spawn(|| {
            store
                .inner
                .finish_indexes(&c, std::slice::from_ref(&index), opening, &killed)
        });
        // Other operations use the collection, and so do other transactions.
        for id in 0..20 {
            updates(&store, &c, id);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!build.is_finished());
        killed.kill(Code::Interrupted);
        let e = build.join().unwrap().unwrap_err();
        assert_eq!(e.code(), Code::Interrupted);
    });
    assert!(!index.is_ready());
    updates(&store, &c, 30);
    t.abort();
    // A client that wants another index of the name while the old one is still there waits, and is not
    // refused.
    let again = doc! { "key": doc! { "other": 1 }, "name": "u_1" };
    let again = IndexSpec::parse(again.as_doc()).unwrap();
    let late = Late(Instant::now());
    store.create_index(&c, again, &late).unwrap();
    let names = c
        .all_indexes()
        .iter()
        .filter(|i| i.spec().name == "u_1")
        .count();
    assert_eq!(names, 1);
    valid(&store, &c);
}

/// If one of several indexes that are built together fails, no client is told that another one exists.
#[test]
fn indexes_of_one_command_are_ready_together() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    for i in 0..1200 {
        let doc = doc! { "_id": i, "a": i, "b": i.min(1198), "d": i };
        w.insert(&bytes(doc)).unwrap().unwrap();
    }
    w.commit().unwrap();
    let spec = |field: &str| {
        let mut key = DocBuf::new();
        key.append(field, 1);
        let spec = doc! { "key": key, "name": field, "unique": true };
        IndexSpec::parse(spec.as_doc()).unwrap()
    };
    let names = || {
        let all = c.all_indexes();
        let names = all.iter().map(|i| i.spec().name.clone());
        names.collect::<Vec<_>>()
    };
    for _ in 0..5 {
        let told = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                let late = Late(Instant::now());
                let both = vec![spec("a"), spec("b")];
                let built = store.create_indexes(&c, both, &late);
                let e = built.map(drop).unwrap_err();
                assert_eq!(e.code(), Code::DuplicateKey);
            });
            s.spawn(|| {
                while !names().contains(&"b".to_string()) && !names().contains(&"a".to_string()) {
                    std::thread::yield_now();
                }
                let late = Late(Instant::now());
                assert!(store.create_index(&c, spec("a"), &late).unwrap().is_ready());
                told.store(true, SeqCst);
            });
        });
        assert!(told.load(SeqCst));
        assert_eq!(names(), ["_id_", "a"]);
        store.drop_index(&c, "a", &NeverInterrupted).unwrap();
    }
    let all = store.create_indexes(&c, vec![spec("a"), spec("d")], &NeverInterrupted);
    assert!(all.unwrap().iter().all(|i| i.is_ready()));
    assert_eq!(names(), ["_id_", "a", "d"]);
    valid(&store, &c);
}

/// The collection that an aborted transaction has made is dropped, even if another operation holds it at
/// that moment and leaves it empty.
#[test]
fn the_collection_of_an_aborted_transaction_goes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let made = |name: &str| {
        let t = begin(&store);
        let options = CollectionOptions::default();
        let c = store
            .create_collection_in(&t, name, options, None, &NeverInterrupted)
            .unwrap();
        (t, c)
    };
    let ((t, c), (used, kept)) = (made("db.new"), made("db.used"));
    let shared = c.ddl.share(&NeverInterrupted).unwrap();
    t.abort();
    used.abort();
    assert!(!c.is_dropped() && kept.is_dropped());
    let (used, kept) = made("db.used");
    insert(&store, &kept, doc! { "_id": 1 }).unwrap();
    used.abort();
    drop(shared);
    let until = Instant::now() + Duration::from_secs(60);
    while !c.is_dropped() {
        assert!(Instant::now() < until);
        store.inner.clear_away(Duration::from_millis(10));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(store.collection("db.new").is_none() && store.collection("db.used").is_some());
}

/// A transaction that waits for DDL can be ended meanwhile, by the thread on which the DDL may depend.
#[test]
fn a_transaction_is_ended_while_it_waits_for_ddl() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = store
        .create_collection("db.c", CollectionOptions::default(), &NeverInterrupted)
        .unwrap();
    let t = store.begin_transaction(Duration::from_secs(60), None);
    let alone = c.ddl.own(&NeverInterrupted).unwrap();
    let waits = killable();
    std::thread::scope(|threads| {
        let joins = threads.spawn(|| t.join(&c, &waits));
        let until = Instant::now() + Duration::from_secs(30);
        while !waits.is_waiting() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
        let began = Instant::now();
        t.abort();
        assert!(began.elapsed() < Duration::from_secs(30), "it waits, too");
        drop(alone);
        let e = joins.join().unwrap().unwrap_err();
        assert_eq!(e.code(), Code::NoSuchTransaction);
    });
    // It holds nothing.
    assert!(c.ddl.own_for(Duration::from_secs(1)).is_some());
}

/// A failed build is taken away, and the wait for it ends, although others use the collection all the
/// time.
#[test]
fn a_failed_build_in_a_busy_collection_goes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (c, index, opening) = registered(&store, false);
    let (killed, stop) = (killable(), AtomicBool::new(false));
    killed.kill(Code::Interrupted);
    let e = store
        .inner
        .finish_indexes(&c, std::slice::from_ref(&index), opening, &killed);
    assert_eq!(e.unwrap_err().code(), Code::Interrupted);
    std::thread::scope(|s| {
        for i in 0..8 {
            let (c, stop) = (&c, &stop);
            s.spawn(move || {
                std::thread::sleep(Duration::from_millis(40 * i));
                while !stop.load(SeqCst) {
                    let shared = c.ddl.share(&NeverInterrupted).unwrap();
                    std::thread::sleep(Duration::from_millis(320));
                    drop(shared);
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(60);
        while c.all_indexes().len() > 1 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, SeqCst);
    });
    assert_eq!(c.all_indexes().len(), 1);
    valid(&store, &c);
}

/// A change of the catalog waits for a transaction, and no other operation waits for the change.
#[test]
fn changes_of_the_catalog_let_others_go_on_while_they_wait() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (a, b) = (create(&store, "db.a"), create(&store, "db.b"));
    for c in [&a, &b] {
        for id in 0..3 {
            insert(&store, c, doc! { "_id": id }).unwrap();
        }
    }
    let t = begin(&store);
    assert!(update_in(&store, &t, &b, doc! { "_id": 1, "x": 1 }).unwrap());
    std::thread::scope(|s| {
        let renames = s.spawn(|| {
            let late = Late(Instant::now());
            store.rename_collection("db.a", "db.b", true, &late)
        });
        for _ in 0..30 {
            updates(&store, &a, 0);
            updates(&store, &b, 0);
            std::thread::sleep(Duration::from_millis(3));
        }
        assert!(!renames.is_finished());
        t.abort();
        renames.join().unwrap().unwrap();
    });
    assert!(store.collection("db.a").is_none());
}

#[test]
fn a_latch_that_is_waited_for_is_given_up_however_busy_its_neighbours_are() {
    let latches = crate::latch::Latches::new();
    let (held, neighbour) = (7_u64, 8_u64);
    latches.lock(held, 1, &NeverInterrupted).unwrap();
    let (killed, stop) = (killable(), AtomicBool::new(false));
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(SeqCst) {
                latches.try_lock(neighbour, 2);
                latches.unlock(neighbour, 2);
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let waits = s.spawn(|| latches.lock(held, 3, &killed));
        std::thread::sleep(Duration::from_millis(20));
        killed.kill(Code::Interrupted);
        let until = Instant::now() + Duration::from_secs(30);
        while !waits.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let ended = waits.is_finished();
        // The threads are stopped even if the test fails.
        latches.unlock(held, 1);
        stop.store(true, SeqCst);
        assert!(ended);
        assert_eq!(waits.join().unwrap().unwrap_err().code(), Code::Interrupted);
    });
}

#[test]
fn what_changed_and_changed_back_is_a_conflict() {
    for clustered in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let mut made = CollectionOptions::default();
        if clustered {
            made.document =
                doc! { "clusteredIndex": doc! { "key": doc! { "_id": 1 }, "unique": true } };
        }
        let c = store
            .create_collection("db.c", made, &NeverInterrupted)
            .unwrap();
        index(
            &store,
            &c,
            doc! { "key": doc! { "u": 1 }, "name": "u_1", "unique": true },
        );
        for id in 1..=4 {
            insert(&store, &c, doc! { "_id": id, "u": id * 10 }).unwrap();
        }
        insert(&store, &c, doc! { "_id": 100, "u": 1000 }).unwrap();
        for flush in [false, true] {
            let t = || begin(&store);
            let (same, gone, key, free, all) = (t(), t(), t(), t(), t());
            update(&store, &c, 1, doc! { "_id": 1, "u": 10, "v": 2 }).unwrap();
            update(&store, &c, 1, doc! { "_id": 1, "u": 10 }).unwrap();
            insert(&store, &c, doc! { "_id": 50, "u": 500 }).unwrap();
            assert!(delete(&store, &c, 50).unwrap());
            insert(&store, &c, doc! { "_id": 60, "u": 600 }).unwrap();
            assert!(delete(&store, &c, 60).unwrap());
            if flush {
                store.flush().unwrap();
                store.compact(None, &NeverInterrupted).unwrap();
            }
            let code = |r: Result<bool>| r.map_err(|e| e.code());
            let conflict = Err(Code::WriteConflict);
            let doc = doc! { "_id": 1, "u": 10, "sum": 1 };
            assert_eq!(code(update_in(&store, &same, &c, doc)), conflict);
            // An `_id` came and went, and so did a unique key of another document.
            let doc = doc! { "_id": 50, "u": 7 };
            assert_eq!(code(insert_in(&store, &gone, &c, doc)), conflict);
            let doc = doc! { "_id": 70, "u": 600 };
            assert_eq!(code(insert_in(&store, &key, &c, doc)), conflict);
            // Keys that no other operation has touched are free.
            let doc = doc! { "_id": 55, "u": 550 };
            assert_eq!(code(insert_in(&store, &free, &c, doc)), Ok(true));
            assert_eq!(code(delete_in(&store, &free, &c, 2)), Ok(true));
            assert_eq!(code(delete_in(&store, &free, &c, 50)), Ok(false));
            for t in [same, gone, key, free, all] {
                t.abort();
            }
            // A transaction that begins now has seen all of it.
            let late = begin(&store);
            let doc = doc! { "_id": 50, "u": 600 };
            assert_eq!(code(insert_in(&store, &late, &c, doc)), Ok(true));
            late.abort();
        }
        valid(&store, &c);
    }
}

/// Random interleavings against an oracle that counts versions: it knows of each `_id` and of each
/// unique key when it was changed last. A transaction's write conflicts exactly if that is newer than
/// its view.
#[test]
fn conflicts_are_those_of_an_oracle_of_versions() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    index(
        &store,
        &c,
        doc! { "key": doc! { "u": 1 }, "name": "u_1", "unique": true },
    );
    insert(&store, &c, doc! { "_id": 1000, "u": 1_000_000 }).unwrap();
    let mut rng = Random(std::env::var("MUNIMENT_SEED").map_or(7, |s| s.parse().unwrap()));
    // The present rows, and the version at which `_id`s and keys were changed last.
    let mut rows: BTreeMap<i32, i32> = BTreeMap::new();
    let (mut ids, mut keys) = (BTreeMap::new(), BTreeMap::new());
    let mut version = 0_u64;
    let (mut conflicts, mut fine) = (0, 0);
    for _ in 0..400 {
        let (t, view, seen) = (begin(&store), version, rows.clone());
        for _ in 0..rng.below(5) {
            let id = rng.below(6) as i32;
            version += 1;
            match rows.get(&id).copied() {
                Some(u) if rng.below(2) == 0 => {
                    assert!(delete(&store, &c, id).unwrap());
                    rows.remove(&id);
                    keys.insert(u, version);
                }
                Some(u) => {
                    // A write of the same value counts as a change, too.
                    let v = rng.below(3) as i32;
                    update(
                        &store,
                        &c,
                        id,
                        doc! { "_id": id, "u": u, "v": v, "w": version as i64 },
                    )
                    .unwrap();
                    update(&store, &c, id, doc! { "_id": id, "u": u }).unwrap();
                }
                None => {
                    let u = rng.below(8) as i32;
                    if rows.values().any(|taken| *taken == u) {
                        continue;
                    }
                    insert(&store, &c, doc! { "_id": id, "u": u }).unwrap();
                    rows.insert(id, u);
                    keys.insert(u, version);
                }
            }
            ids.insert(id, version);
            if rng.below(20) == 0 {
                store.flush().unwrap();
            }
        }
        let id = rng.below(6) as i32;
        let newer = |of: &BTreeMap<i32, u64>, key: i32| of.get(&key).is_some_and(|v| *v > view);
        let wanted = match seen.get(&id) {
            Some(u) => {
                let done = update_in(
                    &store,
                    &t,
                    &c,
                    doc! { "_id": id, "u": *u, "t": version as i64 },
                );
                (newer(&ids, id), done)
            }
            None => {
                let u = rng.below(8) as i32;
                let done = insert_in(&store, &t, &c, doc! { "_id": id, "u": u });
                if let Err(e) = &done
                    && e.code() == Code::DuplicateKey
                {
                    // The duplicate is one that the transaction sees.
                    assert!(seen.values().any(|taken| *taken == u));
                    t.abort();
                    continue;
                }
                (newer(&ids, id) || newer(&keys, u), done)
            }
        };
        match wanted {
            (true, done) => {
                let e = done.unwrap_err();
                assert_eq!(e.code(), Code::WriteConflict, "{id} at {view}: {e}");
                conflicts += 1;
            }
            (false, done) => {
                assert!(done.unwrap());
                fine += 1;
            }
        }
        t.abort();
    }
    assert!(conflicts > 20 && fine > 20, "{conflicts} {fine}");
    valid(&store, &c);
}

/// A store with a clock that is set by hand; with `of_set` the store of a primary with other members.
fn with_clock(path: &std::path::Path, clock: &Arc<ByHand>, of_set: bool) -> Arc<Store> {
    let mut options = if of_set { member(path) } else { options(path) };
    options.machine.clock = clock.clone();
    let store = Store::open(options).unwrap();
    if of_set {
        store.open_door(1).unwrap();
    }
    store
}

fn commits(store: &Store) -> Timestamp {
    store.commit_nothing(&NeverInterrupted).unwrap().at
}

/// Versions are kept for a number of seconds that really pass, whatever the timestamps and the wall
/// clock say, even if a client or an earlier run has left timestamps of next year.
#[test]
fn history_is_kept_by_the_time_that_passes() {
    const YEAR: u64 = 365 * 86_400;
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ByHand::new(1_700_000_000_000));
    for run in 0..2 {
        let store = with_clock(dir.path(), &clock, true);
        store.keep_history(10, false);
        let commit = || {
            let at = commits(&store);
            let index = store.position().unwrap().appended.index;
            store.set_committed(index).unwrap();
            at
        };
        commit();
        if run == 0 {
            store.advance_clock(Timestamp(store.visible().0 + (YEAR << 32)));
        }
        let mut all = Vec::new();
        for i in 0..60 {
            clock.pass(1000);
            clock.set_wall([1_600_000_000_000, 1_800_000_000_000][i % 2]);
            all.push(commit());
        }
        let kept = |i: usize| store.snapshot_at(all[i]).is_some();
        assert!(kept(59) && kept(55) && kept(50), "run {run}");
        assert!(!kept(47) && !kept(10), "run {run}");
        assert!(!store.inner.majority_lags());
        store.close().unwrap();
    }
}

#[test]
fn a_majority_that_stands_still_is_behind_by_the_time_that_passes() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ByHand::new(1_700_000_000_000));
    let store = with_clock(dir.path(), &clock, true);
    store.set_flow_control(Some(Duration::from_secs(10)));
    store.advance_clock(Timestamp(store.visible().0 + (1 << 57)));
    for second in 0..30 {
        clock.pass(1000);
        commits(&store);
        // The thread that notes the time uses the same clock.
        store.inner.note_time();
        assert_eq!(store.inner.majority_lags(), second > 10, "{second}");
        if second == 20 {
            break;
        }
    }
    // A pause without writes is no lag.
    let index = store.position().unwrap().appended.index;
    store.set_committed(index).unwrap();
    clock.pass(3_600_000);
    clock.set_wall(0);
    commits(&store);
    store.inner.note_time();
    assert!(!store.inner.majority_lags());
}

/// The log is trimmed after some time that really passes. For records of an earlier run their wall
/// clocks count.
#[test]
fn the_log_is_kept_by_the_time_that_passes() {
    const HOUR: i64 = 3_600_000;
    let dir = tempfile::tempdir().unwrap();
    let start = 1_700_000_000_000;
    let clock = Arc::new(ByHand::new(start));
    let fill = |store: &Store, n: i32| {
        let c = match store.collection("db.c") {
            Some(c) => c,
            None => create(store, "db.c"),
        };
        for i in n..n + 40 {
            insert(store, &c, doc! { "_id": i, "x": "y".repeat(1 << 20) }).unwrap();
        }
        store.inner.note_time();
        store.flush().unwrap();
    };
    let begins = |store: &Store| {
        store.inner.note_time();
        store.flush().unwrap();
        store.log_begins_after().unwrap()
    };
    let store = with_clock(dir.path(), &clock, false);
    store.keep_log(0, Duration::from_secs(2 * 3600));
    // The wall clock is a year ahead for a while.
    clock.set_wall(start + 365 * 24 * HOUR);
    fill(&store, 0);
    clock.set_wall(start);
    clock.pass(HOUR);
    fill(&store, 100);
    assert_eq!(begins(&store), Timestamp::ZERO);
    clock.set_wall(start - 24 * HOUR);
    clock.pass(HOUR + 1000);
    fill(&store, 200);
    // Records that are two hours old are gone, although their wall clock is ahead; those that are one
    // hour old are not.
    let first = begins(&store);
    assert!(first > Timestamp::ZERO);
    store.close().unwrap();
    drop(store);
    // After a restart the clock is right again, and an hour has passed.
    clock.set_wall(start + 2 * HOUR);
    clock.pass(HOUR);
    let store = with_clock(dir.path(), &clock, false);
    store.keep_log(0, Duration::from_secs(2 * 3600));
    fill(&store, 300);
    assert!(begins(&store) >= first);
    clock.pass(2 * HOUR + 1000);
    fill(&store, 400);
    let later = begins(&store);
    assert!(later > first);
    assert!(later < store.visible());
}

#[test]
fn records_of_an_earlier_run_have_the_age_of_their_wall_clock() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ByHand::new(1_700_000_000_000));
    let age = |store: &Store, index: u64| {
        let mut records = store.records_behind(index - 1).unwrap();
        let record = records.next().unwrap().unwrap();
        store.age(&record).as_secs()
    };
    let store = with_clock(dir.path(), &clock, true);
    store.advance_clock(Timestamp(store.visible().0 + (1 << 57)));
    commits(&store);
    store.inner.note_time();
    clock.pass(600_000);
    clock.set_wall(5);
    assert_eq!(age(&store, 1), 600);
    assert_eq!(store.wall_of(store.visible()), 1_700_000_000_000);
    store.close().unwrap();
    drop(store);
    clock.set_wall(1_700_000_900_000);
    let store = with_clock(dir.path(), &clock, true);
    assert_eq!(age(&store, 1), 900);
    assert_eq!(store.wall_of(store.visible()), 1_700_000_000_000);
    clock.set_wall(0);
    clock.pass(100_000);
    assert_eq!(age(&store, 1), 1000);
}

/// Runs a wait for something that never comes, kills its operation while it sleeps, and checks that the
/// wait ends then. Reports how long after the kill it ended.
fn ends_when_killed<T: Send>(what: &str, wait: impl FnOnce(&Operation) -> Result<T> + Send) {
    let op = killable();
    std::thread::scope(|s| {
        let waits = s.spawn(|| {
            let error = wait(&op).err().expect(what);
            (error.code(), Instant::now())
        });
        while !op.is_waiting() {
            assert!(!waits.is_finished(), "{what} did not wait");
            std::thread::yield_now();
        }
        let killed = Instant::now();
        op.kill(Code::Interrupted);
        let (code, ended) = waits.join().unwrap();
        let late = ended.saturating_duration_since(killed);
        println!("{what}: {late:?}");
        assert_eq!(code, Code::Interrupted, "{what}");
        assert!(late < Duration::from_secs(20), "{what}: {late:?}");
        assert!(!op.is_waiting(), "{what}");
    });
}

fn inserts(store: &Store, c: &Arc<Collection>, new: DocBuf, op: &Operation) -> Result<()> {
    let mut w = store.write_unit(c, op)?;
    w.insert(&bytes(new))?.expect("nobody else holds it");
    w.commit()?;
    Ok(())
}

#[test]
fn a_kill_ends_each_wait_of_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    insert(&store, &c, doc! { "_id": 1 }).unwrap();

    let mut held = store.write_unit(&c, &NeverInterrupted).unwrap();
    held.lock_by_id(Value::Int32(1)).unwrap().unwrap();
    ends_when_killed("latch of a record", |op| {
        let mut w = store.write_unit(&c, op)?;
        w.lock_by_id(Value::Int32(1)).map(drop)
    });
    ends_when_killed("collection, to have it alone", |op| {
        store.drop_collection("db.c", op)
    });
    drop(held);

    let mut held = store.write_unit(&c, &NeverInterrupted).unwrap();
    held.insert(&bytes(doc! { "_id": 2 })).unwrap().unwrap();
    ends_when_killed("_id that is about to be appended", |op| {
        inserts(&store, &c, doc! { "_id": 2 }, op)
    });
    drop(held);

    let options = CollectionOptions {
        capped_size: Some(1 << 20),
        ..CollectionOptions::default()
    };
    let capped = store
        .create_collection("db.capped", options, &NeverInterrupted)
        .unwrap();
    let mut held = store.write_unit(&capped, &NeverInterrupted).unwrap();
    held.insert(&bytes(doc! { "_id": 1 })).unwrap().unwrap();
    ends_when_killed("turn in a capped collection", |op| {
        inserts(&store, &capped, doc! { "_id": 2 }, op)
    });
    drop(held);

    let alone = c.ddl.own(&NeverInterrupted).unwrap();
    ends_when_killed("collection that another one has alone", |op| {
        inserts(&store, &c, doc! { "_id": 3 }, op)
    });
    drop(alone);

    store.lock_writes(&NeverInterrupted).unwrap();
    ends_when_killed("commit while writes are locked", |op| {
        inserts(&store, &c, doc! { "_id": 3 }, op)
    });
    store.unlock_writes(&NeverInterrupted).unwrap();
    let gate = store.inner.cuts.gate.share(&NeverInterrupted).unwrap();
    ends_when_killed("commits, to lock writes", |op| store.lock_writes(op));
    drop(gate);
    let still = store.inner.cuts.still.lock();
    ends_when_killed("files, to lock writes", |op| store.lock_writes(op));
    drop(still);

    let names = store.inner.catalog.naming.lock();
    ends_when_killed("change of names", |op| {
        let options = CollectionOptions::default();
        store.create_collection("db.other", options, op)
    });
    drop(names);

    let ledger = &store.inner.home.ledger;
    ledger.set_limit(Account::Writes, 4 << 20);
    let mut share = Share::new(ledger, Account::Writes);
    share.holds(5 << 20);
    ends_when_killed("memory for a document", |op| {
        let mut w = store.write_unit(&c, op)?;
        w.make_room(8 << 20).map(drop)
    });
    drop(share);
    assert!(valid_writer(&store, &c));
}

/// The waits that ended have left nothing that is in a writer's way.
fn valid_writer(store: &Store, c: &Arc<Collection>) -> bool {
    let op = killable();
    inserts(store, c, doc! { "_id": 100 }, &op).unwrap();
    valid(store, c);
    true
}

#[test]
fn a_kill_ends_each_wait_for_what_becomes_visible() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    let late = Instant::now() + Duration::from_secs(600);
    ends_when_killed("insert, of an awaitData cursor", |op| {
        c.wait_insert(c.inserts(), late, op)
    });
    ends_when_killed("entry of the log", |op| {
        store.wait_past(store.visible(), late, op)
    });
    ends_when_killed("time to be visible", |op| {
        store.wait_for_visible(Timestamp::MAX, op)
    });
    // The end of the store ends them, too.
    std::thread::scope(|s| {
        let waits = s.spawn(|| store.wait_for_visible(Timestamp::MAX, &NeverInterrupted));
        while !store.is_watched() {
            std::thread::yield_now();
        }
        store.close().unwrap();
        let e = waits.join().unwrap().unwrap_err();
        assert_eq!(e.code(), Code::ShutdownInProgress);
    });
}

#[test]
fn a_kill_ends_each_wait_of_a_build() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (c, index, opening) = registered(&store, false);
    let t = begin(&store);
    assert!(update_in(&store, &t, &c, doc! { "_id": 700, "u": 5000 }).unwrap());
    let spec = (*index.spec()).clone();
    ends_when_killed("build of another client", |op| {
        store.create_index(&c, spec.clone(), op)
    });
    // The end of that build ends the wait as well.
    std::thread::scope(|s| {
        let waits = s.spawn(|| store.create_index(&c, spec.clone(), &NeverInterrupted));
        ends_when_killed("document of a transaction, to index it", |op| {
            let built = std::slice::from_ref(&index);
            store.inner.finish_indexes(&c, built, opening, op)
        });
        t.abort();
        // It builds the index that the other operation has given up.
        let built = waits.join().unwrap().unwrap();
        assert!(built.is_ready() && built.id != index.id);
    });
    valid(&store, &c);
}

/// Counts how often the threads that wait for it look whether they may go on: once before they sleep, and once
/// after each call.
#[derive(Default)]
struct Looks(AtomicUsize);

impl Looks {
    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Interrupt for Looks {
    fn check(&self) -> Result<()> {
        self.0.fetch_add(1, SeqCst);
        Ok(())
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}
}

/// A primary with so many records that a follower does not have yet, and the follower.
fn two_members(paths: [&std::path::Path; 2], records: i32) -> [Arc<Store>; 2] {
    let [a, b] = paths.map(|path| Store::open(member(path)).unwrap());
    a.open_door(1).unwrap();
    let c = create(&a, "db.c");
    for i in 0..records {
        insert(&a, &c, doc! { "_id": i }).unwrap();
    }
    [a, b]
}

/// The records before a time do not wake those that wait for it, be it to become visible or to be committed by
/// the majority. Each that waits for what came is woken, and nobody else.
#[test]
fn a_record_wakes_only_those_that_wait_for_it() {
    const MANY: usize = 500;
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [a, b] = two_members([dirs[0].path(), dirs[1].path()], 120);
    let sent = behind(&a, 0, 200);
    let far = sent.last().unwrap().position.at;
    let looks = Looks::default();
    std::thread::scope(|s| {
        for _ in 0..MANY {
            s.spawn(|| b.wait_for_visible(far, &looks).unwrap());
            s.spawn(|| b.wait_for_majority(far, &looks).unwrap());
        }
        while looks.count() < 2 * MANY {
            std::thread::yield_now();
        }
        for (n, record) in sent.iter().enumerate().take(sent.len() - 1) {
            let at = record.position.at;
            let near = Looks::default();
            std::thread::scope(|s| {
                let visible = s.spawn(|| b.wait_for_visible(at, &near).unwrap());
                let majority = s.spawn(|| b.wait_for_majority(at, &near).unwrap());
                while near.count() < 2 {
                    std::thread::yield_now();
                }
                deliver(&b, std::slice::from_ref(record)).unwrap();
                visible.join().unwrap();
                assert!(!majority.is_finished());
                b.set_committed(n as u64 + 1).unwrap();
                majority.join().unwrap();
            });
        }
        // A thread that may return for no reason at all does so hardly ever.
        let woken = looks.count() - 2 * MANY;
        assert!(woken < MANY / 10, "{woken} were woken for nothing");
        deliver(&b, &sent[sent.len() - 1..]).unwrap();
        b.set_committed(sent.len() as u64).unwrap();
    });
}

/// A thread that begins to wait at the moment at which the record comes is not left to sleep. No later record
/// comes that would wake it after all.
#[test]
fn a_time_that_is_reached_while_a_thread_begins_to_wait_wakes_it() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [a, b] = two_members([dirs[0].path(), dirs[1].path()], 2000);
    let sent = behind(&a, 0, 2100);
    let (reached, turn) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|s| {
        for majority in [false, true] {
            let (b, sent, reached, turn) = (&b, &sent, &reached, &turn);
            s.spawn(move || {
                for (n, record) in sent.iter().enumerate() {
                    let at = record.position.at;
                    // Begins at about the time at which the record is delivered.
                    while turn.load(SeqCst) < n {
                        std::hint::spin_loop();
                    }
                    let late = Late(Instant::now());
                    match majority {
                        false => b.wait_for_visible(at, &late).unwrap(),
                        true => b.wait_for_majority(at, &late).unwrap(),
                    }
                    reached.fetch_add(1, SeqCst);
                }
            });
        }
        for (n, record) in sent.iter().enumerate() {
            turn.store(n, SeqCst);
            deliver(&b, std::slice::from_ref(record)).unwrap();
            b.set_committed(n as u64 + 1).unwrap();
            while reached.load(SeqCst) < 2 * (n + 1) {
                std::thread::yield_now();
            }
        }
    });
}

/// What ends a wait for a time that does not come: nobody else is a member any more, and the end of the store;
/// and fsyncUnlock is what those wait for that wait for it.
#[test]
fn what_is_no_record_wakes_those_that_wait_for_it() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [a, b] = two_members([dirs[0].path(), dirs[1].path()], 1);
    b.lock_writes(&NeverInterrupted).unwrap();
    let looks = Looks::default();
    std::thread::scope(|s| {
        let unlocked = s.spawn(|| b.wait_for_unlock(&looks));
        let majority = s.spawn(|| b.wait_for_majority(Timestamp::MAX, &looks));
        let visible = s.spawn(|| b.wait_for_visible(Timestamp::MAX, &looks));
        while looks.count() < 3 {
            std::thread::yield_now();
        }
        b.unlock_writes(&NeverInterrupted).unwrap();
        unlocked.join().unwrap().unwrap();
        b.set_others(false);
        majority.join().unwrap().unwrap();
        assert!(!visible.is_finished());
        b.close().unwrap();
        let e = visible.join().unwrap().unwrap_err();
        assert_eq!(e.code(), Code::ShutdownInProgress);
    });
    drop(a);
}

/// fsyncUnlock waits while an fsyncLock does, and either wait ends with its operation.
#[test]
fn a_kill_ends_the_wait_of_an_unlock() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    // A write unit that has begun to write keeps the lock waiting.
    let writes = store.inner.cuts.gate.share(&NeverInterrupted).unwrap();
    let locks = killable();
    std::thread::scope(|s| {
        let lock = s.spawn(|| store.lock_writes(&locks).map(drop));
        while !locks.is_waiting() {
            std::thread::yield_now();
        }
        ends_when_killed("fsyncLock, to unlock", |op| {
            store.unlock_writes(op).map(drop)
        });
        let op = Operation::new(Instant::now(), Some(Duration::from_millis(20)));
        let e = store.unlock_writes(&op).unwrap_err();
        assert_eq!(e.code(), Code::MaxTimeMSExpired);
        locks.kill(Code::Interrupted);
        assert_eq!(lock.join().unwrap().unwrap_err().code(), Code::Interrupted);
    });
    drop(writes);
    // Nothing is locked, and nothing is left behind.
    let e = store.unlock_writes(&NeverInterrupted).unwrap_err();
    assert_eq!(e.code(), Code::IllegalOperation);
    assert!(valid_writer(&store, &c));
}
