//! Measures the important paths: `cargo test --release -p muniment-exec speed -- --ignored
//! --nocapture --test-threads=1`.

use super::*;
use muniment_value::{Value, doc};
use std::hint::black_box;
use std::time::Instant;

/// The CPU time of this thread in nanoseconds (Linux).
fn cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = stat.split(' ').next().unwrap_or_default();
    first.parse().unwrap_or(0)
}

/// Prints the CPU time of this thread, which a busy machine does not distort, and the wall time.
fn bench(name: &str, n: u64, run: impl FnOnce()) {
    let (began, before) = (Instant::now(), cpu());
    run();
    let (wall, cpu) = (began.elapsed(), cpu() - before);
    println!(
        "{name}: {:.2} us cpu each ({:.0} /s of cpu), {:.2} us wall",
        cpu as f64 / 1e3 / n as f64,
        n as f64 * 1e9 / cpu.max(1) as f64,
        wall.as_secs_f64() * 1e6 / n as f64,
    );
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    let b = Bench::with_cache(1 << 30);
    let n: u64 = 1_000_000;
    bench(
        "insert of 1000 small documents at once, per document",
        n,
        || {
            for batch in 0..n / 1000 {
                let docs: Vec<DocBuf> = (0..1000)
                    .map(|i| {
                        let id = (batch * 1000 + i) as i64;
                        doc! { "_id": id, "k": id % 1000, "name": "small document", "v": id as f64 }
                    })
                    .collect();
                assert!(b.insert(&docs).errors.is_empty());
            }
        },
    );
    let none = j(r#"{"v": -1.0}"#);
    let scan = |filter: &DocBuf| {
        let request = FindRequest {
            filter: filter.as_doc(),
            ..FindRequest::new(NS)
        };
        let mut cursor = b.engine.find(&b.op, &request).unwrap();
        let mut out = Vec::with_capacity(17 << 20);
        let mut docs = 0;
        loop {
            out.clear();
            let end = cursor
                .fill_batch(&b.op, &mut out, BatchLimits::NEXT)
                .unwrap();
            docs += end.docs;
            if end.exhausted {
                return docs;
            }
        }
    };
    for _ in 0..2 {
        bench("scan, one field that never matches", n, || {
            assert_eq!(scan(&none), 0);
        });
    }
    bench("scan, all returned", n, || {
        assert_eq!(scan(&DocBuf::new()), n as usize)
    });
    let collection = b.engine.store.collection(NS).unwrap();
    bench("storage scan alone", n, || {
        let mut c = b.engine.store.snapshot().docs(
            &collection,
            &muniment_storage::KeyRange::all(),
            muniment_storage::Direction::Forward,
        );
        while let Some(d) = c.next(&NeverInterrupted).unwrap() {
            black_box(&d);
        }
    });
    let gets: u64 = 200_000;
    let id = |i: u64| ((i * 7919) % n) as i64;
    for _ in 0..2 {
        bench("storage get", gets, || {
            for i in 0..gets {
                let s = b.engine.store.snapshot();
                let found = s.find_by_id(&collection, Value::Int64(id(i)));
                assert!(found.unwrap().is_some());
            }
        });
        bench("find by _id", gets, || {
            let mut out = Vec::new();
            for i in 0..gets {
                out.clear();
                let f = doc! { "_id": id(i) };
                let request = FindRequest {
                    filter: f.as_doc(),
                    limit: 1,
                    single_batch: true,
                    ..FindRequest::new(NS)
                };
                let cursor = b.engine.find(&b.op, &request).unwrap();
                b.engine
                    .first_batch(
                        &b.op,
                        cursor,
                        CursorOwner::default(),
                        BatchLimits::FIRST,
                        &mut out,
                    )
                    .unwrap();
                assert!(out.len() > 60);
            }
        });
    }
    bench("update by _id, $set of one field", gets, || {
        for i in 0..gets {
            let (q, u) = (
                doc! { "_id": id(i) },
                doc! { "$set": doc! { "v": i as f64 } },
            );
            let s = UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()));
            assert_eq!(b.engine.update(&b.op, NS, &s).unwrap().matched, 1);
        }
    });
    bench("index build", n, || {
        b.index(r#"{"key": {"k": 1}, "name": "k"}"#).unwrap()
    });
    bench("find by index, 1000 documents", 100 * 1000, || {
        for k in 0..100 {
            assert_eq!(scan(&doc! { "k": k as i64 }), 1000);
        }
    });
    bench("count by index, 1000 keys", 100 * 1000, || {
        for k in 0..100 {
            let f = doc! { "k": k as i64 };
            let r = CountRequest {
                filter: f.as_doc(),
                ..CountRequest::new(NS)
            };
            assert_eq!(b.engine.count(&b.op, &r).unwrap(), 1000);
        }
    });
}
