//! A whole store on a disk of which every operation fails in turn, in tables, manifest and log.
//!
//! One thread does everything (writes, syncs, flushes, compactions, DDL), so that the disk's operations
//! come in the same order each time and "the n-th operation fails" names one place. The oracle knows
//! every state that the rows have had, and which of them were synced.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::tests::{all, bytes, options};
use crate::*;
use muniment_io::sim::{EIO, ENOSPC, Fault, Op};
use muniment_io::{Machine, SimDisk};
use muniment_op::{Interrupt, NeverInterrupted, Sleepers};
use muniment_value::{Code, Error, Value, doc};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

const STEPS: i32 = 160;

/// Ends a wait at the third look. There is no other thread that could end it, by clearing away a failed
/// build for example: that is done in the next round of work.
#[derive(Default)]
struct Impatient(AtomicU32);

impl Interrupt for Impatient {
    fn check(&self) -> muniment_value::Result<()> {
        match self.0.fetch_add(1, SeqCst) {
            0 | 1 => Ok(()),
            _ => Err(Error::new(Code::Interrupted, "waited long enough")),
        }
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}

    /// No event wakes the waiting thread, so it asks for a time.
    fn wakes_at(&self) -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(1))
    }
}

fn opened(disk: &SimDisk) -> muniment_value::Result<Arc<Store>> {
    let machine = Machine {
        disk: Arc::new(disk.clone()),
        threads: false,
        ..Machine::default()
    };
    let options = StoreOptions {
        machine,
        cache_bytes: 8 << 20,
        ..options(Path::new("/db"))
    };
    Store::open_locked(options, None)
}

/// Rows by `_id`: the value of `v`.
type Rows = BTreeMap<i32, i32>;

/// Knows the rows after each commit.
struct Oracle {
    states: Vec<Rows>,
    /// The rows with a commit that failed. A disk may have written all of what it refused, and a power
    /// cut before the next commit leaves it there: see the promises of `muniment_log`.
    failed: Vec<Rows>,
    /// The newest state that is on the disk for certain.
    durable: usize,
}

impl Oracle {
    fn now(&self) -> &Rows {
        self.states.last().unwrap()
    }

    fn changed(&self, change: impl FnOnce(&mut Rows)) -> Rows {
        let mut next = self.now().clone();
        change(&mut next);
        next
    }

    fn committed(&mut self, change: impl FnOnce(&mut Rows)) {
        self.states.push(self.changed(change));
        self.failed.clear();
    }
}

fn rows(store: &Store, c: &Arc<Collection>) -> Rows {
    let int = |d: &muniment_value::DocBuf, name| match d.as_doc().get(name) {
        Some(Value::Int32(n)) => n,
        other => panic!("{name} is {other:?}"),
    };
    let docs = all(store, c);
    docs.iter().map(|d| (int(d, "_id"), int(d, "v"))).collect()
}

fn valid(store: &Store, c: &Arc<Collection>, what: &str) {
    let report = store.validate(c, true, &NeverInterrupted).unwrap();
    let fine = report.as_doc().get("valid").is_some_and(|v| v.truthy());
    assert!(fine, "{what}: {report:?}");
    let differences = store.compare_with_log(&NeverInterrupted).unwrap();
    assert_eq!(
        differences.unwrap_or_default(),
        Vec::<String>::new(),
        "{what}"
    );
}

/// One write of a row, in one commit. Nothing is written if the row is not in the state that the write
/// needs.
fn write(store: &Store, c: &Arc<Collection>, step: i32, oracle: &mut Oracle) {
    let id = step * 7 % 40;
    let found = store.snapshot().find_by_id(c, Value::Int32(id));
    // A table cannot be read just now.
    let Ok(found) = found else { return };
    let known = oracle.now().contains_key(&id);
    assert_eq!(found.is_some(), known, "row {id} at step {step}");
    let Ok(mut unit) = store.write_unit(c, &NeverInterrupted) else {
        return;
    };
    let new = bytes(doc! { "_id": id, "v": step, "p": "p".repeat(3000), "a": step % 5 });
    let staged = match &found {
        None => unit.insert(&new),
        Some((key, _)) => match unit.lock(key) {
            Ok(Ok(Some(old))) if step % 3 == 0 => unit.delete(key, &old),
            Ok(Ok(Some(old))) => unit.update(key, &old, &new, Changed::Whole, &|_| true),
            Ok(Ok(None)) => panic!("row {id} went away at step {step}"),
            Ok(Err(busy)) => Ok(Err(busy)),
            Err(e) => Err(e),
        },
    };
    if !matches!(staged, Ok(Ok(_))) {
        return;
    }
    let change = |rows: &mut Rows| {
        match found.is_some() && step % 3 == 0 {
            true => rows.remove(&id),
            false => rows.insert(id, step),
        };
    };
    match unit.commit() {
        Ok(_) => oracle.committed(change),
        Err(_) => {
            oracle.failed.push(oracle.changed(change));
            assert!(nothing_came(store, c, oracle), "step {step}");
        }
    }
}

/// A commit that failed has left nothing: if the rows can be read, there are as many as before.
fn nothing_came(store: &Store, c: &Arc<Collection>, oracle: &Oracle) -> bool {
    let view = store.snapshot();
    let mut cursor = view.docs(c, &KeyRange::all(), Direction::Forward);
    let mut n = 0;
    loop {
        match cursor.next(&NeverInterrupted) {
            Ok(Some(_)) => n += 1,
            Ok(None) => return n == oracle.now().len(),
            // A table cannot be read just now.
            Err(_) => return true,
        }
    }
}

/// The work of one run, of which every step may fail.
fn work(store: &Store, oracle: &mut Oracle) {
    let none = CollectionOptions::default();
    for step in 0..STEPS {
        let Some(c) = store.collection("t.c") else {
            let _ = store.create_collection("t.c", none.clone(), &NeverInterrupted);
            continue;
        };
        write(store, &c, step, oracle);
        let spec = |key: &str| {
            let mut pattern = muniment_value::DocBuf::new();
            pattern.append(key, 1);
            IndexSpec::parse(doc! { "key": pattern, "name": key }.as_doc()).unwrap()
        };
        match step % 40 {
            5 => drop(store.create_index(&c, spec("a"), &Impatient::default())),
            9 => drop(store.create_index(&c, spec("v"), &Impatient::default())),
            25 => drop(store.drop_index(&c, "a", &NeverInterrupted)),
            30 => drop(store.create_collection("t.d", none.clone(), &NeverInterrupted)),
            35 => drop(store.drop_collection("t.d", &NeverInterrupted)),
            _ => {}
        }
        if step % 11 == 10 {
            let _ = store.flush();
        }
        if step % 4 == 3 {
            let newest = oracle.states.len() - 1;
            if store.sync().is_ok() {
                oracle.durable = newest;
            }
        }
        store.work();
    }
}

/// While tables cannot be written, cuts without new commits seal nothing.
#[test]
fn idle_cuts_do_not_pile_up_while_flushes_fail() {
    let disk = SimDisk::new();
    let store = opened(&disk).unwrap();
    let never = &NeverInterrupted;
    let c = store
        .create_collection("t.c", CollectionOptions::default(), never)
        .unwrap();
    let mut unit = store.write_unit(&c, never).unwrap();
    assert!(unit.insert(&bytes(doc! { "_id": 1 })).unwrap().is_ok());
    unit.commit().unwrap();
    store.sync().unwrap();
    disk.inject(Fault::new(Op::Create, ENOSPC).times(u64::MAX));
    let sealed = || store.inner.trees.sizes().sealed_count;
    assert!(store.flush().is_err());
    let first = sealed();
    assert!(first > 0);
    for _ in 0..10 {
        assert!(store.flush().is_err());
        store.work();
    }
    assert_eq!(sealed(), first);
    disk.heal();
    store.flush().unwrap();
    assert_eq!(sealed(), 0);
    drop(c);
    drop(store);
    let store = opened(&disk).unwrap();
    let c = store.collection("t.c").unwrap();
    valid(&store, &c, "after the flush");
}

fn number_of_operations() -> u64 {
    let disk = SimDisk::new();
    let store = opened(&disk).unwrap();
    let before = disk.count(Op::Any);
    let mut oracle = Oracle {
        states: vec![Rows::new()],
        failed: Vec::new(),
        durable: 0,
    };
    work(&store, &mut oracle);
    let c = store.collection("t.c").unwrap();
    assert_eq!(&rows(&store, &c), oracle.now());
    valid(&store, &c, "without faults");
    disk.count(Op::Any) - before
}

/// Lets the n-th operation fail, and those after it up to this many.
fn one(n: u64, errno: i32, times: u64) {
    let what = format!("operation {n} and {times} in all fail with {errno}");
    let disk = SimDisk::new();
    let store = opened(&disk).unwrap();
    let mut oracle = Oracle {
        states: vec![Rows::new()],
        failed: Vec::new(),
        durable: 0,
    };
    disk.inject(Fault::new(Op::Any, errno).after(n).times(times));
    work(&store, &mut oracle);
    // A power cut leaves one of the states that there were, and none before the durable one.
    let cut = disk.power_cut(n);
    let after = opened(&cut).unwrap_or_else(|e| panic!("{what}: does not open: {e}"));
    let found = after.collection("t.c").map(|c| {
        valid(&after, &c, &what);
        rows(&after, &c)
    });
    let found = found.unwrap_or_default();
    let known = oracle.states.iter().skip(oracle.durable);
    assert!(
        known.chain(&oracle.failed).any(|s| *s == found),
        "{what}: after a power cut there is {found:?}, durable was {:?}",
        oracle.states[oracle.durable]
    );
    drop(after);
    // The disk works again, and then the store does, and nothing is missing.
    disk.heal();
    for _ in 0..200 {
        store.work();
        if store.sync().is_ok() && store.flush().is_ok() && store.troubles().is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let troubles = store.troubles();
    assert!(troubles.is_empty(), "{what}: {troubles:?}");
    if let Some(c) = store.collection("t.c") {
        assert_eq!(&rows(&store, &c), oracle.now(), "{what}");
        valid(&store, &c, &what);
        let unit = store.write_unit(&c, &NeverInterrupted);
        let mut unit = unit.unwrap_or_else(|e| panic!("{what}: {e}"));
        let new = bytes(doc! { "_id": 1000, "v": 1, "p": "", "a": 1 });
        unit.insert(&new).unwrap().unwrap();
        unit.commit().unwrap_or_else(|e| panic!("{what}: {e}"));
        oracle.committed(|rows| {
            rows.insert(1000, 1);
        });
    }
    store.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(store);
    let again = opened(&disk).unwrap_or_else(|e| panic!("{what}: does not open again: {e}"));
    let found = again.collection("t.c").map(|c| {
        valid(&again, &c, &what);
        rows(&again, &c)
    });
    assert_eq!(&found.unwrap_or_default(), oracle.now(), "{what}");
}

#[test]
fn every_operation_of_the_disk_fails_in_turn() {
    let most = number_of_operations();
    assert!(most > 500, "{most} operations");
    let long = std::env::var_os("MUNIMENT_LONG").is_some();
    let stride = if long { 1 } else { 71 };
    for (errno, times) in [(EIO, 1), (ENOSPC, 1), (EIO, 12), (ENOSPC, 40)] {
        let first = if long { 0 } else { times % stride };
        for n in (first..most).step_by(stride as usize) {
            one(n, errno, times);
        }
    }
}
