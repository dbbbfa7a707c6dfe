//! Measures what a second core costs: nanoseconds of processor time of one operation, with one thread
//! and with two on cores of their own. Memory that both change (locks, counters) travels between the
//! cores, and each way takes some 100 ns.
//!
//! `cargo run --release -p muniment-storage --example cores -- find|update|insert [OPERATIONS]`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use muniment_op::NeverInterrupted;
use muniment_storage::{Collection, CollectionOptions, Store, StoreOptions};
use muniment_value::{Doc, Value, doc};
use std::sync::Arc;

const DOCUMENTS: usize = 1000;
const ROUNDS: usize = 4;

/// Nanoseconds that the calling thread has run.
fn processor_time() -> f64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes only to `t`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
}

fn pin(core: usize) {
    // SAFETY: an empty set is all zeros; the set is read only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

fn insert(store: &Store, c: &Arc<Collection>, id: i64) {
    let d = doc! { "_id": id, "n": 0, "text": "x".repeat(1000) }.into_bytes();
    let mut unit = store.write_unit(c, &NeverInterrupted).unwrap();
    unit.reserve(1, d.len());
    unit.insert(&d).unwrap().unwrap();
    unit.commit().unwrap();
}

fn update(store: &Store, c: &Arc<Collection>, id: i64, n: i32) {
    let mut unit = store.write_unit(c, &NeverInterrupted).unwrap();
    let found = unit.lock_by_id(Value::Int64(id)).unwrap().unwrap();
    let (key, old) = found.unwrap();
    let text = Doc::new(&old).get_str("text").unwrap();
    let new = Bytes::from(doc! { "_id": id, "n": n, "text": text }.into_bytes());
    unit.update(
        &key,
        &old,
        &new,
        muniment_storage::Changed::Shorter,
        &|_| false,
    )
    .unwrap()
    .unwrap();
    unit.commit().unwrap();
}

fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_else(|| "find".into());
    let operations = args.next().map_or(100_000, |n| n.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::new(dir.path())).unwrap();
    for round in 0..ROUNDS {
        for threads in [1, 2] {
            let name = format!("db.c{round}_{threads}");
            let c = store
                .create_collection(&name, CollectionOptions::default(), &NeverInterrupted)
                .unwrap();
            (0..DOCUMENTS).for_each(|id| insert(&store, &c, id as i64));
            let one = |thread: usize| {
                pin(thread);
                let began = processor_time();
                for i in 0..operations {
                    let id = ((i * 7919 + thread * DOCUMENTS / 2) % DOCUMENTS) as i64;
                    match what.as_str() {
                        "find" => {
                            let view = store.glance().unwrap();
                            assert!(view.find_by_id(&c, Value::Int64(id)).unwrap().is_some());
                        }
                        "update" => update(&store, &c, id, i as i32),
                        "insert" => {
                            insert(&store, &c, (DOCUMENTS + i * threads + thread) as i64);
                        }
                        other => panic!("find, update or insert, not {other}"),
                    }
                }
                (processor_time() - began) / operations as f64
            };
            let times: Vec<f64> = std::thread::scope(|s| {
                let all: Vec<_> = (0..threads)
                    .map(|t| {
                        let one = &one;
                        s.spawn(move || one(t))
                    })
                    .collect();
                all.into_iter().map(|t| t.join().unwrap()).collect()
            });
            println!("{what}, {threads} threads: {times:.0?} ns");
        }
    }
}
