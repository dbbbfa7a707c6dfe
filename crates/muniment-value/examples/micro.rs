//! Nanoseconds of frequent operations: `cargo run --release -p muniment-value --example micro`.
//!
//! Each figure is the best of several rounds, so that other load on the machine affects it least.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use muniment_value::keyenc::{self, TypeBits};
use muniment_value::path::{Path, visit_leaves};
use muniment_value::{
    DocBuf, IndexKeys, Value, cmp_values, doc, index_keys, new_object_id, validate,
};
use std::hint::black_box;
use std::time::Instant;

fn ns(mut body: impl FnMut()) -> f64 {
    let mut count = 1_u64;
    loop {
        let start = Instant::now();
        for _ in 0..count {
            body();
        }
        if start.elapsed().as_millis() >= 10 {
            break;
        }
        count *= 2;
    }
    let round = |_| {
        let start = Instant::now();
        for _ in 0..count {
            body();
        }
        start.elapsed().as_nanos() as f64 / count as f64
    };
    (0..9).map(round).fold(f64::INFINITY, f64::min)
}

fn show(what: &str, ns: f64) {
    println!("{what:<52} {ns:>9.1} ns");
}

/// Four fields, 113 bytes: the document of the insert workloads.
fn small() -> DocBuf {
    let d = doc! {
        "_id": Value::ObjectId(new_object_id()), "name": "x".repeat(54), "number": 1234,
        "when": Value::DateTime(1_700_000_000_000),
    };
    assert_eq!(d.len(), 113);
    d
}

/// Ten strings of 190 bytes with an id and a number: about 2 KB.
fn strings() -> DocBuf {
    let mut d = doc! { "_id": 17 };
    for i in 0..10 {
        d.append(&format!("field{i}"), "abcdefghij".repeat(19).as_str());
    }
    d.append("n", 1.5);
    d
}

/// About 2 KB of many small values.
fn mixed() -> DocBuf {
    let mut d = doc! { "_id": Value::ObjectId(new_object_id()) };
    for i in 0..40 {
        d.append(&format!("number{i}"), i);
        d.append(&format!("text{i}"), "some value");
        d.append(&format!("d{i}"), f64::from(i) + 0.5);
    }
    d
}

fn main() {
    for (name, d) in [
        ("113-byte", small()),
        ("2 KB strings", strings()),
        ("2 KB mixed", mixed()),
    ] {
        let bytes = d.as_bytes();
        let t = ns(|| {
            let _ = black_box(validate(black_box(bytes)));
        });
        println!(
            "{:<52} {t:>9.1} ns  {:.2} GB/s",
            format!("validate {name} ({} bytes)", bytes.len()),
            bytes.len() as f64 / t
        );
        show(
            &format!("  iterate, {} fields", d.as_doc().count()),
            ns(|| {
                black_box(black_box(d.as_doc()).iter().count());
            }),
        );
        show(
            "  iterate and decode",
            ns(|| {
                for e in black_box(d.as_doc()) {
                    black_box(e.value());
                }
            }),
        );
    }
    let (s, m) = (strings(), mixed());
    show(
        "get last of 12",
        ns(|| {
            black_box(black_box(s.as_doc()).get("n"));
        }),
    );
    show(
        "get last of 121",
        ns(|| {
            black_box(black_box(m.as_doc()).get("d39"));
        }),
    );
    let path = Path::new("n");
    show(
        "visit_leaves, one part, last of 12",
        ns(|| {
            black_box(visit_leaves(
                black_box(s.as_doc()),
                path.parts(),
                &mut |v, _| v.is_none(),
            ));
        }),
    );

    let mut out = Vec::with_capacity(256);
    let mut bits = TypeBits::new();
    let id = new_object_id();
    for (name, v) in [
        ("int32 5", Value::Int32(5)),
        ("int32 123456", Value::Int32(123_456)),
        ("int64 2^40", Value::Int64(1 << 40)),
        ("double 0.37", Value::Double(0.37)),
        ("double 1234.56", Value::Double(1234.56)),
        ("ObjectId", Value::ObjectId(id)),
        ("date", Value::DateTime(1_700_000_000_000)),
        ("string of 20", Value::String("abcdefghijklmnopqrst")),
        ("document of 4 fields", Value::Document(small().as_doc())),
    ]
    .iter()
    .map(|(n, v)| (*n, muniment_value::ValueBuf::new(*v)))
    {
        let v = v.as_value();
        show(
            &format!("keyenc {name}"),
            ns(|| {
                out.clear();
                keyenc::encode(black_box(v), false, &mut out);
                black_box(&out);
            }),
        );
        show(
            "  with bits, descending",
            ns(|| {
                out.clear();
                bits.clear();
                keyenc::encode_with_bits(black_box(v), true, &mut out, &mut bits);
                black_box(&out);
            }),
        );
        let key = keyenc::encoded(v);
        show(
            "  skip",
            ns(|| {
                let _ = black_box(keyenc::skip(black_box(&key), false));
            }),
        );
    }

    let fields = [(Path::new("number"), false), (Path::new("when"), true)];
    let (d, mut keys) = (small(), IndexKeys::new());
    show(
        "index_keys, two fields of the 113-byte document",
        ns(|| {
            let _ = black_box(index_keys(black_box(d.as_doc()), &fields, false, &mut keys));
        }),
    );

    for (name, a, b) in [
        ("int32 int32", Value::Int32(5), Value::Int32(6)),
        ("int32 double", Value::Int32(5), Value::Double(5.5)),
        (
            "string string",
            Value::String("abcdefgh"),
            Value::String("abcdefgi"),
        ),
        ("date date", Value::DateTime(5), Value::DateTime(6)),
    ] {
        show(
            &format!("cmp {name}"),
            ns(|| {
                black_box(cmp_values(black_box(a), black_box(b)));
            }),
        );
    }
    show(
        "build the 113-byte document",
        ns(|| {
            black_box(doc! {
                "_id": Value::ObjectId(id), "name": "abcdefghijabcdefghijabcdefghijabcdefghij12345678",
                "number": 1234, "when": Value::DateTime(1_700_000_000_000),
            });
        }),
    );
    show(
        "new_object_id",
        ns(|| {
            black_box(new_object_id());
        }),
    );
}
