//! The time for applying an update, a projection and a sort key to a document.
//!
//! `cargo run --release -p muniment-query --example update_bench` prints nanoseconds per operation, the best
//! of several rounds, and the bytes of the document.
#![allow(clippy::unwrap_used)]

use muniment_query::running::Task;
use muniment_query::{MatchInfo, NeverInterrupted, Projection, QueryContext, SortSpec, Update};
use muniment_value::{Doc, DocBuf, Value, array, doc};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// Ten fields of 200 bytes: the documents of the yardsticks.
fn two_kilobytes() -> DocBuf {
    let mut d = doc! { "_id": "user6284781860667377211" };
    for i in 0..10 {
        d.append(&format!("field{i}"), "x".repeat(190).as_str());
    }
    d
}

fn nested() -> DocBuf {
    let mut items = muniment_value::ArrayBuf::new();
    for i in 0..50 {
        items.push(doc! { "sku": format!("item-{i}").as_str(), "n": i, "price": 9.5 });
    }
    doc! { "_id": 1, "who": doc! { "name": "x", "visits": 1 }, "items": items, "tags": array!["a", "b"] }
}

fn time(name: &str, bytes: usize, mut f: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..7 {
        let n = 100_000;
        let start = Instant::now();
        for _ in 0..n {
            f();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(n));
    }
    println!("{name:<44} {bytes:>6} B {best:>8.0} ns");
}

fn update(name: &str, d: &DocBuf, u: &DocBuf, index: Option<usize>) {
    let ctx = QueryContext::new();
    let u = Update::parse(Value::Document(u.as_doc()), Doc::EMPTY, &ctx).unwrap();
    let info = MatchInfo { array_index: index };
    let task = Task::of(Arc::new(NeverInterrupted));
    let mut out = Vec::with_capacity(4096);
    time(name, d.len(), || {
        out.clear();
        black_box(
            u.apply(black_box(d.as_doc()), info, &mut out, task.work())
                .unwrap(),
        );
    });
}

fn main() {
    let flat = two_kilobytes();
    let deep = nested();
    let value = "y".repeat(190);
    let mut buf = Vec::with_capacity(4096);
    time("copy of the document", flat.len(), || {
        buf.clear();
        buf.extend_from_slice(black_box(flat.as_bytes()));
        black_box(&buf);
    });
    for f in ["field0", "field5", "field9", "fresh"] {
        let mut set = DocBuf::new();
        set.append(f, value.as_str());
        update(&format!("$set {f}"), &flat, &doc! { "$set": set }, None);
    }
    update(
        "$inc who.visits",
        &deep,
        &doc! { "$inc": doc! { "who.visits": 1 } },
        None,
    );
    update(
        "$push tags",
        &deep,
        &doc! { "$push": doc! { "tags": "c" } },
        None,
    );
    update(
        "$inc items.$.n (element 25)",
        &deep,
        &doc! { "$inc": doc! { "items.$.n": 1 } },
        Some(25),
    );
    update(
        "$inc items.$[].n (50 elements)",
        &deep,
        &doc! { "$inc": doc! { "items.$[].n": 1 } },
        None,
    );
    update("replacement", &flat, &flat.clone(), None);
    let ctx = QueryContext::new();
    let task = Task::of(Arc::new(NeverInterrupted));
    for p in [doc! { "field5": 1 }, doc! { "field5": 0 }] {
        let p = Projection::parse(p.as_doc(), None, &ctx).unwrap();
        let mut out = Vec::with_capacity(4096);
        time(
            &format!("projection {:?}", p.included_paths()),
            flat.len(),
            || {
                out.clear();
                p.apply(
                    black_box(flat.as_doc()),
                    MatchInfo::default(),
                    &mut out,
                    task.work(),
                )
                .unwrap();
                black_box(&out);
            },
        );
    }
    let s = SortSpec::parse(
        doc! { "field5": 1, "_id": -1 }.as_doc(),
        &QueryContext::new(),
    )
    .unwrap();
    let mut out = Vec::new();
    time("sort key of two fields", flat.len(), || {
        out.clear();
        s.key(black_box(flat.as_doc()), &mut out).unwrap();
        black_box(&out);
    });
}
