//! The cost of a filter for one document, in nanoseconds. The documents are in the cache, and the figure is
//! the best of 400 short rounds in one thread, so that other load disturbs little. `cargo run --release -p
//! muniment-query --example filter_bench`
#![allow(clippy::unwrap_used, clippy::expect_used)]

use muniment_query::running::Task;
use muniment_query::{Filter, NeverInterrupted, QueryContext};
use muniment_value::{Doc, DocBuf, Value, array, doc};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

fn small(i: i32) -> DocBuf {
    doc! {
        "_id": Value::ObjectId([(i % 251) as u8; 12]),
        "number": i,
        "string": "somewhere over the rainbow",
        "when": Value::DateTime(1_700_000_000_000 + i64::from(i)),
        "price": f64::from(i) * 0.25,
        "tags": array!["a", "b", "c"],
        "sub": doc! { "x": i % 10, "y": "abc" },
    }
}

/// The least time of many rounds, in nanoseconds.
fn least(mut round: impl FnMut()) -> f64 {
    (0..400)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_nanos() as f64
        })
        .fold(f64::MAX, f64::min)
}

fn measure(name: &str, filter: &DocBuf, docs: &[DocBuf]) {
    let f = Filter::parse(filter.as_doc(), &QueryContext::new()).unwrap();
    let task = Task::of(Arc::new(NeverInterrupted));
    let mut matched = 0;
    let best = least(|| {
        matched = 0;
        for d in docs {
            matched += usize::from(
                f.matches(black_box(Doc::new(d.as_bytes())), task.work())
                    .unwrap(),
            );
        }
    }) / docs.len() as f64;
    println!(
        "{name:<44} {best:>7.1} ns/doc {:>6} of {} match",
        matched,
        docs.len()
    );
}

fn main() {
    let docs: Vec<DocBuf> = (0..1000).map(small).collect();
    println!("documents of {} bytes, 7 fields", docs[0].len());
    let rows: Vec<(&str, DocBuf)> = vec![
        ("{}", doc! {}),
        ("{number: -1}", doc! { "number": -1 }),
        (
            "{number: {$gte: 500}}",
            doc! { "number": doc! { "$gte": 500 } },
        ),
        ("{price: 1.5}", doc! { "price": 1.5 }),
        ("{string: 'x'}", doc! { "string": "x" }),
        (
            "{_id: ObjectId}",
            doc! { "_id": Value::ObjectId([255; 12]) },
        ),
        ("{missing: 1}", doc! { "missing": 1 }),
        ("{missing: null}", doc! { "missing": Value::Null }),
        ("{'sub.x': 3}", doc! { "sub.x": 3 }),
        ("{tags: 'z'}", doc! { "tags": "z" }),
        (
            "{number: {$in: [16 ints]}}",
            doc! { "number": doc! { "$in": (0..16).map(|i| i * 7).collect::<muniment_value::ArrayBuf>() } },
        ),
        (
            "{sub.x: 3, number: {$lt: 500}, price: {$gt: 9}}",
            doc! { "sub.x": 3, "number": doc! { "$lt": 500 }, "price": doc! { "$gt": 9 } },
        ),
        (
            "{string: /^some/}",
            doc! { "string": Value::Regex { pattern: "^some", options: "" } },
        ),
        (
            "{string: /rain.*w/}",
            doc! { "string": Value::Regex { pattern: "rain.*w", options: "" } },
        ),
        (
            "{$or: [{number: 1}, {price: 2}]}",
            doc! { "$or": array![doc! { "number": 1 }, doc! { "price": 2 }] },
        ),
        (
            "{$expr: {$gt: ['$number', '$price']}}",
            doc! { "$expr": doc! { "$gt": array!["$number", "$price"] } },
        ),
    ];
    for (name, f) in &rows {
        measure(name, f, &docs);
    }
    for (name, f) in &rows {
        let ctx = QueryContext::new();
        let ns = least(|| {
            for _ in 0..100 {
                black_box(Filter::parse(black_box(f.as_doc()), &ctx).unwrap());
            }
        }) / 100.0;
        println!("parse {name:<50} {ns:>9.1} ns");
    }
}
