//! Transactions over several logs: prepared here, and decided elsewhere.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::commit::ops::{Encoder, HEAD};
use crate::commit::stage::Stage;
use crate::tests::follow::{behind, deliver, member};
use crate::tests::natural::crash;
use crate::tests::{all, bytes, insert, key_of, open, options};
use crate::transaction::{PREPARED, Row};
use crate::*;
use muniment_op::{Interrupt, NeverInterrupted, Sleepers};
use muniment_value::{Code, Error, Result, Value, doc};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const NEVER: &NeverInterrupted = &NeverInterrupted;

/// Ends a wait that lasts for too long, or must not be at all.
struct Within(Instant);

impl Within {
    fn ms(ms: u64) -> Within {
        Within(Instant::now() + Duration::from_millis(ms))
    }
}

impl Interrupt for Within {
    fn check(&self) -> Result<()> {
        match Instant::now() < self.0 {
            true => Ok(()),
            false => Err(Error::new(Code::MaxTimeMSExpired, "too late")),
        }
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}

    fn wakes_at(&self) -> Option<Instant> {
        Some(self.0)
    }
}

fn id(n: u8) -> TransactionId {
    TransactionId {
        session: SessionKey::of_nobody([n; 16]),
        number: i64::from(n),
    }
}

fn create(store: &Store, name: &str) -> Arc<Collection> {
    let options = CollectionOptions::default();
    store.create_collection(name, options, NEVER).unwrap()
}

/// A collection with a unique index and the documents 0 to 9.
fn filled(store: &Store) -> Arc<Collection> {
    let c = create(store, "db.c");
    let spec = doc! { "key": doc! { "u": 1 }, "name": "u", "unique": true };
    let spec = IndexSpec::parse(spec.as_doc()).unwrap();
    store.create_index(&c, spec, NEVER).unwrap();
    for i in 0..10 {
        insert(store, &c, doc! { "_id": i, "u": i }).unwrap();
    }
    c
}

fn set(store: &Store, c: &Arc<Collection>, t: &Arc<Transaction>, i: i32, u: i32) -> Result<()> {
    let mut unit = store.write_unit_in(t, c, NEVER)?;
    let found = unit.lock_by_id(Value::Int32(i))?;
    let (key, old) = found.unwrap().unwrap();
    let new = bytes(doc! { "_id": i, "u": u });
    let _ = unit.update(&key, &old, &new, Changed::Shorter, &|_| true)?;
    unit.commit().map(drop)
}

fn begin(store: &Store) -> Arc<Transaction> {
    store.begin_transaction(Duration::from_millis(5), None)
}

/// Prepares a transaction that sets document 1 to 100, deletes 2 and inserts 50.
fn prepare(store: &Store, c: &Arc<Collection>, n: u8) -> Timestamp {
    let t = begin(store);
    set(store, c, &t, 1, 100).unwrap();
    let mut unit = store.write_unit_in(&t, c, NEVER).unwrap();
    let (key, old) = unit.lock_by_id(Value::Int32(2)).unwrap().unwrap().unwrap();
    let _ = unit.delete(&key, &old).unwrap();
    let _ = unit.insert(&bytes(doc! { "_id": 50, "u": 50 })).unwrap();
    unit.commit().unwrap();
    let prepared = t.prepare(id(n), "s1/h:1", Announce::Door, NEVER).unwrap();
    assert!(t.has_ended());
    prepared.unwrap().at
}

fn resolve(store: &Store, n: u8, outcome: Outcome) -> Option<CommitId> {
    store
        .resolve(id(n), outcome, Announce::Door, NEVER)
        .unwrap()
}

fn of(view: &Snapshot, c: &Collection) -> Vec<(i32, i32)> {
    let mut docs = view.docs(c, &KeyRange::all(), Direction::Forward);
    let mut found = Vec::new();
    while let Some((_, d)) = docs.next(NEVER).unwrap() {
        let d = muniment_value::Doc::new(&d);
        let number = |f| d.get(f).unwrap().as_i64_exact().unwrap() as i32;
        found.push((number("_id"), number("u")));
    }
    found.sort_unstable();
    // The index tells the same.
    let index = c
        .all_indexes()
        .iter()
        .find(|i| i.spec().name == "u")
        .cloned();
    let mut entries = view.entries(c, &index.unwrap(), &KeyRange::all(), Direction::Forward);
    let mut n = 0;
    while entries.next(NEVER).unwrap().is_some() {
        n += 1;
    }
    assert_eq!(n, found.len());
    found
}

/// The view for a read at its time.
fn decided(store: &Store, view: &Snapshot, c: &Collection, on: &dyn Interrupt) -> Result<Snapshot> {
    let view = view.clone().read_at(view.timestamp());
    store.as_decided(view, c, on)
}

fn before() -> Vec<(i32, i32)> {
    (0..10).map(|i| (i, i)).collect()
}

fn after() -> Vec<(i32, i32)> {
    let mut all = before();
    all[1].1 = 100;
    all.remove(2);
    all.push((50, 50));
    all
}

fn as_the_log_says(store: &Store) {
    let differences = store.compare_with_log(NEVER).unwrap().unwrap();
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Nothing may come in the way of what is prepared: writes to its keys, keys of its unique indexes, DDL.
fn is_held(store: &Store, c: &Arc<Collection>) {
    let late = |e: Error| assert_eq!(e.code(), Code::MaxTimeMSExpired, "{e}");
    let within = Within::ms(30);
    for i in [1, 2] {
        let mut unit = store.write_unit(c, &within).unwrap();
        late(unit.lock_by_id(Value::Int32(i)).unwrap_err());
        let conflict = set(store, c, &begin(store), i, 7).unwrap_err();
        assert_eq!(conflict.code(), Code::WriteConflict);
    }
    for d in [doc! { "_id": 50, "u": 51 }, doc! { "_id": 51, "u": 100 }] {
        let within = Within::ms(30);
        let mut unit = store.write_unit(c, &within).unwrap();
        match unit.insert(&bytes(d)) {
            Ok(Ok(())) => panic!("it was inserted"),
            Ok(Err(Busy)) => {}
            Err(e) => late(e),
        }
    }
    late(store.drop_collection("db.c", &Within::ms(30)).unwrap_err());
}

fn is_free(store: &Store, c: &Arc<Collection>) {
    let mut unit = store.write_unit(c, NEVER).unwrap();
    assert!(unit.lock_by_id(Value::Int32(1)).unwrap().is_ok());
    drop(unit);
    let t = begin(store);
    set(store, c, &t, 1, 100).unwrap();
    t.abort();
    store
        .rename_collection("db.c", "db.d", false, &Within::ms(20_000))
        .unwrap();
    store
        .rename_collection("db.d", "db.c", false, &Within::ms(20_000))
        .unwrap();
}

fn number(store: &Store, n: u8) -> Option<(i64, SessionState)> {
    let head = store.session_head(&id(n).session).unwrap()?;
    Some((head.record().number, head.record().state))
}

#[test]
fn what_is_prepared_is_held_and_unseen_until_it_is_decided() {
    for commits in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let c = filled(&store);
        let at = prepare(&store, &c, 1);
        assert_eq!(of(&store.snapshot(), &c), before());
        is_held(&store, &c);
        let told = store.prepared();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].id, told[0].at), (id(1), at));
        assert_eq!(told[0].coordinator, "s1/h:1");
        as_the_log_says(&store);
        assert_eq!(c.count(), 10);
        let valid = store.validate(&c, false, NEVER).unwrap();
        assert!(valid.as_doc().get("valid").unwrap().truthy());
        let outcome = match commits {
            true => Outcome::Commit(at),
            false => Outcome::Abort,
        };
        let end = resolve(&store, 1, outcome).unwrap();
        assert!(end.at > at && store.visible() >= end.at);
        let (wanted, of_session) = match commits {
            true => (after(), Some((1, SessionState::Committed))),
            false => (before(), None),
        };
        assert_eq!(of(&store.snapshot(), &c), wanted);
        assert_eq!(number(&store, 1), of_session);
        assert_eq!(c.count(), 10);
        // Once more changes nothing.
        assert_eq!(resolve(&store, 1, Outcome::Abort), None);
        assert_eq!(of(&store.snapshot(), &c), wanted);
        as_the_log_says(&store);
        is_free(&store, &c);
        let valid = store.validate(&c, true, NEVER).unwrap();
        assert!(valid.as_doc().get("valid").unwrap().truthy());
    }
}

#[test]
fn a_start_takes_the_latches_again() {
    for flushed in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let at;
        let copy = {
            let store = open(dir.path());
            let c = filled(&store);
            at = prepare(&store, &c, 1);
            if flushed {
                store.flush().unwrap();
            }
            crash(&store, dir.path())
        };
        let store = open(copy.path());
        let c = store.collection("db.c").unwrap();
        assert_eq!(of(&store.snapshot(), &c), before());
        is_held(&store, &c);
        // The number of the record that is not there yet is not given to another one.
        insert(&store, &c, doc! { "_id": 60, "u": 60 }).unwrap();
        let valid = store.validate(&c, true, NEVER).unwrap();
        assert!(valid.as_doc().get("valid").unwrap().truthy(), "{valid:?}");
        let end = resolve(&store, 1, Outcome::Commit(at.plus(5))).unwrap();
        assert!(end.at > at.plus(5));
        let mut wanted = after();
        wanted.push((60, 60));
        assert_eq!(of(&store.snapshot(), &c), wanted);
        as_the_log_says(&store);
        is_free(&store, &c);
        drop(store);
        let store = open(copy.path());
        let c = store.collection("db.c").unwrap();
        assert_eq!(of(&store.snapshot(), &c).len(), 11);
        assert!(store.prepared().is_empty());
    }
}

#[test]
fn validate_tells_of_a_row_that_does_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = filled(&store);
    // Another version might have let a write come in between.
    let mut stage = Stage::new(store.inner.door.opening().unwrap());
    let mut ops = Encoder::new();
    let gone = doc! { "_id": 77 };
    ops.delete(c.id, &77_u64.to_be_bytes(), gone.as_bytes());
    let ops = bytes::Bytes::from(ops.into_payload()).slice(HEAD..);
    let row = Row::encode("s1/h:1", &[], &[ops]);
    let (key, row) = stage.log.prepare(&id(1).to_bytes(), &row);
    stage.put(
        PREPARED,
        Stage::logged(key),
        Some(Stage::logged(row)),
        false,
    );
    store.inner.commit_unchecked(stage).unwrap();
    drop(store);
    let store = open(dir.path());
    let c = store.collection("db.c").unwrap();
    let valid = store.validate(&c, false, NEVER).unwrap();
    assert!(!valid.as_doc().get("valid").unwrap().truthy());
    resolve(&store, 1, Outcome::Abort);
    let valid = store.validate(&c, false, NEVER).unwrap();
    assert!(valid.as_doc().get("valid").unwrap().truthy());
}

fn ship(from: &Store, to: &Store) {
    let sent = behind(from, to.position().unwrap().appended.index, usize::MAX);
    deliver(to, &sent).unwrap();
}

#[test]
fn the_next_primary_has_what_is_prepared_before_its_door_opens() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [a, b] = [0, 1].map(|i| Store::open(member(dirs[i].path())).unwrap());
    a.open_door(1).unwrap();
    let c = filled(&a);
    let at = prepare(&a, &c, 1);
    // A transaction of the old primary holds a latch of what the new one will have to hold.
    ship(&a, &b);
    a.close_door();
    let on_b = b.collection("db.c").unwrap();
    assert_eq!(b.prepared(), a.prepared());
    assert_eq!(
        b.resolve(id(1), Outcome::Abort, Announce::Door, NEVER)
            .unwrap_err()
            .code(),
        Code::NotWritablePrimary
    );
    b.open_door(2).unwrap();
    is_held(&b, &on_b);
    let end = resolve(&b, 1, Outcome::Commit(at)).unwrap();
    assert_eq!(of(&b.snapshot(), &on_b), after());
    // The former primary gives back what it held when the record comes.
    ship(&b, &a);
    assert!(a.prepared().is_empty());
    assert_eq!(of(&a.snapshot(), &c), after());
    b.close_door();
    a.open_door(3).unwrap();
    is_free(&a, &c);
    assert!(a.visible() >= end.at);
    as_the_log_says(&a);
    as_the_log_says(&b);
}

#[test]
fn an_end_that_is_rolled_back_leaves_it_prepared() {
    let dir = tempfile::tempdir().unwrap();
    let common = {
        let store = Store::open(member(dir.path())).unwrap();
        store.open_door(1).unwrap();
        let c = filled(&store);
        let at = prepare(&store, &c, 1);
        let common = store.position().unwrap().appended;
        store.set_committed(common.index).unwrap();
        resolve(&store, 1, Outcome::Commit(at)).unwrap();
        common
    };
    let store = Store::open(StoreOptions {
        cut_behind: Some(common.index),
        ..member(dir.path())
    })
    .unwrap();
    let c = store.collection("db.c").unwrap();
    assert_eq!(store.prepared().len(), 1);
    assert_eq!(number(&store, 1), None);
    store.open_door(2).unwrap();
    is_held(&store, &c);
    resolve(&store, 1, Outcome::Abort).unwrap();
    assert_eq!(of(&store.snapshot(), &c), before());
    as_the_log_says(&store);
}

#[test]
fn a_new_member_is_filled_with_what_is_prepared() {
    let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = open(dir.path());
    let c = filled(&a);
    let at = prepare(&a, &c, 1);
    let export = a.export(NEVER).unwrap();
    let position = export.position();
    Store::import(&options(to.path()), position, export).unwrap();
    let b = open(to.path());
    let on_b = b.collection("db.c").unwrap();
    assert_eq!(b.prepared()[0].id, id(1));
    is_held(&b, &on_b);
    insert(&b, &on_b, doc! { "_id": 60, "u": 60 }).unwrap();
    resolve(&b, 1, Outcome::Commit(at)).unwrap();
    let mut wanted = after();
    wanted.push((60, 60));
    assert_eq!(of(&b.snapshot(), &on_b), wanted);
    is_free(&b, &on_b);
}

/// A view between the commit time and the record sees the transaction, one before does not.
#[test]
fn a_view_sees_what_was_committed_at_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = filled(&store);
    let elsewhere = create(&store, "db.elsewhere");
    store.keep_history(60, false);
    let early = store.snapshot();
    let at = prepare(&store, &c, 1);
    let undecided = store.snapshot();
    assert!(undecided.timestamp() >= at);
    // One before it does not wait; one after it does, and can be ended.
    assert_eq!(
        of(&decided(&store, &early, &c, NEVER).unwrap(), &c),
        before()
    );
    let late = decided(&store, &undecided, &c, &Within::ms(30));
    assert_eq!(late.err().map(|e| e.code()), Some(Code::MaxTimeMSExpired));
    // One of another collection does not either.
    assert!(decided(&store, &undecided, &elsewhere, &Within::ms(30)).is_ok());
    let other = prepare_other(&store, &c);
    insert(&store, &c, doc! { "_id": 60, "u": 60 }).unwrap();
    let between = store.snapshot();
    insert(&store, &c, doc! { "_id": 61, "u": 61 }).unwrap();
    let ended = AtomicBool::new(false);
    let seen = std::thread::scope(|s| {
        let waits = s.spawn(|| {
            let view = decided(&store, &between, &c, NEVER).unwrap();
            assert!(ended.load(SeqCst));
            of(&view, &c)
        });
        std::thread::sleep(Duration::from_millis(20));
        resolve(&store, 1, Outcome::Commit(other)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        ended.store(true, SeqCst);
        resolve(&store, 2, Outcome::Commit(other)).unwrap();
        waits.join().unwrap()
    });
    // Both are seen, with what was committed before the view, and nothing later.
    let mut wanted = after();
    wanted[4].1 = 500;
    wanted.push((60, 60));
    wanted.sort_unstable();
    assert_eq!(seen, wanted);
    // Their commit time is later than this view.
    assert!(undecided.timestamp() < other);
    let view = decided(&store, &undecided, &c, NEVER).unwrap();
    assert_eq!(of(&view, &c), before());
    assert_eq!(
        of(&decided(&store, &early, &c, NEVER).unwrap(), &c),
        before()
    );
    // A transaction at that time sees the same, and must not write what was changed after its view.
    let begin_at = || {
        let view = between.clone().read_at(between.timestamp());
        store.begin_transaction(Duration::from_millis(5), Some(view))
    };
    let t = begin_at();
    assert_eq!(of(&t.view_of(&c, NEVER).unwrap(), &c), wanted);
    for id in [1, 50] {
        // Also where it is its first statement, which looks for nothing but the document's `_id`.
        let conflict = set(&store, &c, &begin_at(), id, 7).unwrap_err();
        assert_eq!(conflict.code(), Code::WriteConflict);
    }
    set(&store, &c, &t, 3, 300).unwrap();
    wanted[2].1 = 300;
    assert_eq!(of(&t.view_of(&c, NEVER).unwrap(), &c), wanted);
    t.abort();
    // What is kept for such views goes with them.
    drop((undecided, between, t));
    assert!(store.prepared().is_empty());
    as_the_log_says(&store);
}

/// Prepares another transaction, which sets document 5 to 500.
fn prepare_other(store: &Store, c: &Arc<Collection>) -> Timestamp {
    let t = begin(store);
    set(store, c, &t, 5, 500).unwrap();
    let prepared = t.prepare(id(2), "s1/h:1", Announce::Door, NEVER).unwrap();
    prepared.unwrap().at
}

#[test]
fn a_read_of_the_present_waits_for_what_was_prepared_before_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = filled(&store);
    let at = prepare(&store, &c, 1);
    store.wait_until_decided(at.minus(1), NEVER).unwrap();
    let late = store.wait_until_decided(at, &Within::ms(30)).unwrap_err();
    assert_eq!(late.code(), Code::MaxTimeMSExpired);
    std::thread::scope(|s| {
        let waits = s.spawn(|| {
            store.wait_until_decided(at, NEVER).unwrap();
            of(&store.snapshot(), &c)
        });
        std::thread::sleep(Duration::from_millis(20));
        resolve(&store, 1, Outcome::Commit(at)).unwrap();
        assert_eq!(waits.join().unwrap(), after());
    });
}

#[test]
fn what_cannot_be_prepared_is_aborted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = filled(&store);
    // One that has written nothing leaves nothing.
    let t = begin(&store);
    let index = store.last_commit().unwrap().index;
    assert_eq!(t.prepare(id(1), "s", Announce::Door, NEVER).unwrap(), None);
    assert!(t.has_ended() && store.last_commit().unwrap().index == index);
    let t = begin(&store);
    set(&store, &c, &t, 1, 100).unwrap();
    let options = CollectionOptions::default();
    store
        .create_collection_in(&t, "db.new", options, None, NEVER)
        .unwrap();
    let refused = t.prepare(id(1), "s", Announce::Door, NEVER).unwrap_err();
    assert_eq!(refused.code(), Code::OperationNotSupportedInTransaction);
    assert!(t.has_ended() && store.prepared().is_empty());
    is_free(&store, &c);
    assert_eq!(of(&store.snapshot(), &c), before());
    let again = t.prepare(id(1), "s", Announce::Door, NEVER).unwrap_err();
    assert_eq!(again.code(), Code::NoSuchTransaction);
}

#[test]
fn the_log_tells_of_it_when_it_is_committed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = filled(&store);
    let from = store.visible();
    let at = prepare(&store, &c, 1);
    let mut entries = store.log_entries(from).unwrap();
    assert_eq!(entries.next().unwrap(), None);
    let end = resolve(&store, 1, Outcome::Commit(at)).unwrap();
    let told = entries.next().unwrap().unwrap();
    assert_eq!((told.at, told.ops.len()), (end.at, 3));
    assert_eq!(told.session, Some((id(1).session, 1)));
    assert!(matches!(told.whole, Whole::Transaction(_)));
    prepare_again(&store, &c);
    resolve(&store, 3, Outcome::Abort).unwrap();
    assert_eq!(entries.next().unwrap(), None);
    let key = key_of(&store, &c, 50);
    assert!(store.snapshot().get(&c, &key).unwrap().is_some());
    assert_eq!(all(&store, &c).len(), 10);
}

fn prepare_again(store: &Store, c: &Arc<Collection>) {
    let t = begin(store);
    set(store, c, &t, 3, 300).unwrap();
    t.prepare(id(3), "s", Announce::Door, NEVER)
        .unwrap()
        .unwrap();
}
