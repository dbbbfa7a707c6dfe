//! Changes of the catalog under concurrent writers, with and without kill -9 during the change: they happen
//! completely or not at all, and no acknowledged write is lost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::wire::{collections, ids, index, indexes, insert, int, j, sound};
use fault_tests::{Rng, long, seed};
use muniment_value::{DocBuf, doc};
use muniment_wire::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions};

const DB: &str = "ddl";

/// The number of documents that a collection has at first.
const BASE: i64 = 300;
/// The documents that clients insert have greater `_id`s.
const LATE: i64 = 1_000_000;

/// The documents of generation `g`.
fn generation(g: i64) -> Vec<DocBuf> {
    (0..BASE)
        .map(|i| doc! { "_id": i, "k": -1 - i, "g": g })
        .collect()
}

/// Makes `c` with documents of generation 0 and an index on `k`.
fn begin(c: &mut Connection, spec: &str) {
    c.command(DB, &doc! { "dropDatabase": 1 }).unwrap();
    index(c, DB, "c", spec).unwrap();
    insert(c, DB, "c", &generation(0)).unwrap();
}

const PLAIN: &str = r#"{"key": {"k": 1}, "name": "k_1"}"#;

/// The rounds, each with the time until the kill.
fn rounds(rng: &mut Rng, short: u64, longest: u64) -> Vec<Option<Duration>> {
    let n = if long() { short * 8 } else { short };
    // Every third round has no kill. A loss in such a round has another cause.
    (0..n)
        .map(|i| (i % 3 != 0).then(|| Duration::from_millis(5 + rng.below(longest))))
        .collect()
}

/// Writers that run during a change: they insert until they are told to stop or the server is gone.
#[derive(Default)]
struct Writers {
    stop: AtomicBool,
    next: AtomicI64,
    /// How many replacements have begun and ended. It is odd during a replacement.
    epoch: AtomicU64,
    /// The `_id`, `k` and epoch of every acknowledged insert; no epoch if it changed during the insert.
    acknowledged: Mutex<Vec<(i64, i64, Option<u64>)>>,
}

impl Writers {
    /// Inserts one document after the other; `k(n)` is the key of the n-th. A duplicate key is allowed.
    fn run(&self, mut c: Connection, k: impl Fn(i64) -> i64) {
        while !self.stop.load(SeqCst) {
            let n = self.next.fetch_add(1, SeqCst);
            let (id, k) = (LATE + n, k(n));
            let before = self.epoch.load(SeqCst);
            match insert(&mut c, DB, "c", &[doc! { "_id": id, "k": k }]) {
                Ok(_) => {
                    let same = before.is_multiple_of(2) && self.epoch.load(SeqCst) == before;
                    let epoch = same.then_some(before);
                    self.acknowledged.lock().unwrap().push((id, k, epoch));
                }
                Err(e) if e.code().0 == 11_000 => {}
                Err(e) => {
                    // The server was killed, so the writer waits until it is told to stop.
                    let gone = Instant::now();
                    while !self.stop.load(SeqCst) {
                        assert!(gone.elapsed() < Duration::from_secs(20), "{e}");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    return;
                }
            }
        }
    }
}

/// Runs `change` concurrently with `writers` inserters. It kills the server after `kill`, or lets the
/// inserters continue a moment longer than the change. Returns the acknowledged inserts and the result of the
/// change, which is `None` if it was cut off.
fn beside<R: Send>(
    server: &mut Server,
    kill: Option<Duration>,
    k: impl Fn(i64) -> i64 + Sync,
    change: impl FnOnce(&mut Connection, &Writers) -> muniment_value::Result<R> + Send,
) -> (Writers, Option<R>) {
    let writers = Writers::default();
    let result = std::thread::scope(|scope| {
        for _ in 0..3 {
            let (c, w, k) = (server.connect(), &writers, &k);
            scope.spawn(move || w.run(c, k));
        }
        let (mut c, w) = (server.connect(), &writers);
        let changing = scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            let result = change(&mut c, w);
            std::thread::sleep(Duration::from_millis(20));
            result
        });
        match kill {
            Some(after) => {
                std::thread::sleep(after);
                server.kill9();
                writers.stop.store(true, SeqCst);
                changing.join().unwrap().ok()
            }
            None => {
                let result = changing.join().unwrap();
                writers.stop.store(true, SeqCst);
                Some(result.unwrap())
            }
        }
    });
    if kill.is_some() {
        server.start_again();
    }
    (writers, result)
}

/// The documents of `c` by `_id`, each once. Checks that a count finds the same number.
fn found(c: &mut Connection) -> BTreeMap<i64, DocBuf> {
    let mut all = BTreeMap::new();
    for d in c.find_all(DB, &doc! { "find": "c" }).unwrap() {
        let id = int(d.as_doc(), "_id");
        assert!(all.insert(id, d).is_none(), "{id} twice");
    }
    let n = c.command(DB, &doc! { "count": "c" }).unwrap();
    assert_eq!(int(n.as_doc(), "n"), all.len() as i64, "count");
    sound(c, DB, "c");
    all
}

/// Checks that nothing is left of temporary collections.
fn only(c: &mut Connection, names: &[&str]) {
    let all = collections(c, DB).unwrap();
    let more: Vec<&String> = all
        .iter()
        .filter(|n| !names.contains(&n.as_str()))
        .collect();
    assert!(more.is_empty(), "left over: {more:?}");
}

/// Clients insert during convertToCapped. Every acknowledged insert exists, and after a kill the collection
/// is either capped or unchanged.
#[test]
fn converting_to_capped_under_writers_loses_nothing() {
    let mut rng = Rng::new(seed());
    let mut server = Server::start(ServerOptions::new());
    for kill in rounds(&mut rng, 6, 150) {
        begin(&mut server.connect(), PLAIN);
        let convert = doc! { "convertToCapped": "c", "size": 1_i64 << 30 };
        let (writers, done) = beside(&mut server, kill, |n| n, |c, _| c.command(DB, &convert));
        let mut c = server.connect();
        let acknowledged = writers.acknowledged.into_inner().unwrap();
        let found = found(&mut c);
        let lost: Vec<i64> = acknowledged
            .iter()
            .map(|a| a.0)
            .chain(0..BASE)
            .filter(|id| !found.contains_key(id))
            .collect();
        assert!(
            lost.is_empty(),
            "{} of {} acknowledged inserts are gone (kill {kill:?}): {:?} …",
            lost.len(),
            acknowledged.len(),
            &lost[..lost.len().min(10)]
        );
        only(&mut c, &["c"]);
        let stats = c.command(DB, &doc! { "collStats": "c" }).unwrap();
        let capped = stats.as_doc().get("capped").is_some_and(|v| v.truthy());
        assert!(capped || done.is_none(), "converted and not capped");
        // The conversion drops the indexes in the same step.
        let n = indexes(&mut c, DB, "c").unwrap().len();
        assert_eq!(n, if capped { 1 } else { 2 }, "capped: {capped}");
    }
}

/// Replaces a collection again and again under writers. The collection always has exactly one generation,
/// which is complete, and every insert that was acknowledged since it came.
fn replacements(replace: fn(&mut Connection, i64) -> muniment_value::Result<()>, others: &[&str]) {
    let mut rng = Rng::new(seed());
    let mut server = Server::start(ServerOptions::new());
    for kill in rounds(&mut rng, 6, 400) {
        let mut c = server.connect();
        begin(&mut c, PLAIN);
        let source = generation(0);
        insert(&mut c, DB, "source", &source).unwrap();
        let done = AtomicI64::new(0);
        let (writers, _) = beside(
            &mut server,
            kill,
            |n| n,
            |c, w| {
                let times = if kill.is_some() { 1_000_000 } else { 8 };
                for g in 1..times {
                    w.epoch.fetch_add(1, SeqCst);
                    replace(c, g)?;
                    done.store(g, SeqCst);
                    w.epoch.fetch_add(1, SeqCst);
                    std::thread::sleep(Duration::from_millis(3));
                }
                Ok(())
            },
        );
        let mut c = server.connect();
        let found = found(&mut c);
        let generations: BTreeSet<i64> = found
            .values()
            .filter(|d| int(d.as_doc(), "_id") < LATE)
            .map(|d| int(d.as_doc(), "g"))
            .collect();
        let done = done.into_inner();
        let all = generations.iter().next().copied().unwrap_or(-1);
        assert_eq!(generations.len(), 1, "generations {generations:?}");
        assert!(all == done || all == done + 1, "{all} after {done}");
        let base = found.keys().filter(|id| **id < LATE).count() as i64;
        assert_eq!(base, BASE, "generation {all} is not whole");
        // These are the inserts of the epoch in which only this generation existed.
        let epoch = 2 * all as u64;
        let lost: Vec<i64> = writers
            .acknowledged
            .into_inner()
            .unwrap()
            .into_iter()
            .filter(|a| a.2 == Some(epoch) && !found.contains_key(&a.0))
            .map(|a| a.0)
            .collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        let list = indexes(&mut c, DB, "c").unwrap();
        assert_eq!(list.len(), 2, "{list:?}");
        only(&mut c, others);
    }
}

/// renameCollection with dropTarget is atomic under writers, even if the server is killed.
#[test]
fn a_rename_onto_a_collection_under_writers_is_atomic() {
    replacements(
        |c, g| {
            index(c, DB, "next", PLAIN)?;
            insert(c, DB, "next", &generation(g))?;
            let rename = doc! {
                "renameCollection": "ddl.next", "to": "ddl.c", "dropTarget": true,
            };
            c.command("admin", &rename).map(|_| ())
        },
        &["c", "source", "next"],
    );
}

/// `$out` is atomic under writers, even if the server is killed, and leaves nothing behind.
#[test]
fn an_out_onto_a_collection_under_writers_is_atomic() {
    replacements(
        |c, g| {
            let out = format!(
                r#"{{"aggregate": "source", "cursor": {{}},
                    "pipeline": [{{"$set": {{"g": {g}}}}}, {{"$out": "c"}}]}}"#
            );
            c.command(DB, &j(&out)).map(|_| ())
        },
        &["c", "source"],
    );
}

/// collMod converts an index to unique under writers who insert duplicates all the time. No two documents
/// ever have the same key, every acknowledged insert exists and is found through the index, and after a kill
/// the index is unique or still being prepared.
#[test]
fn converting_to_unique_under_writers_is_exact() {
    let mut rng = Rng::new(seed());
    let mut server = Server::start(ServerOptions::new());
    for kill in rounds(&mut rng, 6, 150) {
        let spec = r#"{"key": {"k": 1}, "name": "k_1", "prepareUnique": true}"#;
        begin(&mut server.connect(), spec);
        let convert = j(r#"{"collMod": "c", "index": {"name": "k_1", "unique": true}}"#);
        // Two of three documents are duplicates.
        let (writers, done) = beside(&mut server, kill, |n| n / 3, |c, _| c.command(DB, &convert));
        let mut c = server.connect();
        let all = found(&mut c);
        let mut keys = BTreeMap::new();
        for d in all.values() {
            let (id, k) = (int(d.as_doc(), "_id"), int(d.as_doc(), "k"));
            let other = keys.insert(k, id);
            assert!(other.is_none(), "{id} and {other:?} both have {k}");
        }
        for (id, k, _) in writers.acknowledged.into_inner().unwrap() {
            assert_eq!(keys.get(&k), Some(&id), "acknowledged with k {k}");
        }
        let hinted = doc! { "find": "c", "hint": "k_1" };
        let mut by_index = ids(&mut c, DB, &hinted).unwrap();
        by_index.sort_unstable();
        let all: Vec<i64> = all.keys().copied().collect();
        assert!(
            by_index == all,
            "{} by the index of {}",
            by_index.len(),
            all.len()
        );
        let list = indexes(&mut c, DB, "c").unwrap();
        let unique = list.iter().any(|i| i.contains(r#""unique":true"#));
        let prepared = list.iter().any(|i| i.contains(r#""prepareUnique":true"#));
        assert!(list.len() == 2 && unique != prepared, "{list:?}");
        assert!(unique || done.is_none(), "converted: {list:?}");
        let refused = insert(&mut c, DB, "c", &[doc! { "_id": LATE * 2, "k": -1 }]);
        assert_eq!(refused.unwrap_err().code().0, 11_000);
    }
}
