//! The body of the fuzz target `filter`, shared with the test that replays its corpus. It panics if an
//! invariant does not hold, so production code must never call it.

use super::{Filter, Node};
use crate::context::QueryContext;
use crate::expr::{EvalContext, Expr, arena};
use crate::running::Work;
use muniment_value::{Doc, DocBuf, Value, array, doc, validate};

/// The documents that every filter is matched against.
fn documents() -> Vec<DocBuf> {
    vec![
        doc! {},
        doc! { "a": 1, "b": "abc", "c": doc! { "d": 2.5 } },
        doc! { "a": array![1, 2, array![3, doc! { "b": 4 }]], "b": Value::Null },
        doc! { "a": array![doc! { "b": 1, "c": array!["x", "y"] }, doc! { "b": array![5, 6] }, doc! {}] },
        doc! { "a": f64::NAN, "b": Value::MinKey, "c": Value::MaxKey, "d": Value::Undefined },
        doc! { "a": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "b": Value::Regex { pattern: "^a", options: "i" } },
        doc! { "a": i64::MIN, "b": i64::MAX, "c": -0.0, "": array![array![doc! { "0": 1 }]] },
        doc! { "_id": Value::ObjectId([7; 12]), "a": Value::Binary { subtype: 0, bytes: &[255, 1] } },
    ]
}

/// Reads a filter, and a document after it if there is one. It checks that parsing and matching do not panic,
/// that both ways of matching agree, and that `$nor` is the complement. Then it reads the same bytes as an
/// expression.
pub fn filter(data: &[u8]) {
    let ctx = QueryContext::new();
    let len = data
        .first_chunk()
        .map_or(0, |n| u32::from_le_bytes(*n) as usize);
    let (head, tail) = data.split_at_checked(len).unwrap_or((data, &[]));
    let Ok(spec) = validate(head) else { return };
    let mut docs = documents();
    if let Ok(d) = validate(tail) {
        docs.push(d.to_buf());
    }
    if let Ok(f) = Filter::parse(spec, &ctx) {
        let negated = Filter::from_root(Node::Nor(vec![f.root().clone()]), f.collation());
        let random = format!("{:?}", f.root()).contains("$rand");
        for d in &docs {
            match_one(&f, &negated, random, d.as_doc());
        }
        let _ = (f.to_doc(), f.id_equality());
    }
    for d in &docs {
        let _ = super::details::details(spec, d.as_doc(), Work::unasked());
    }
    if let Ok(schema) = super::schema::Schema::parse(spec) {
        for d in &docs {
            let v = Value::Document(d.as_doc());
            if let (Ok(valid), Ok(failures)) = (schema.matches(v), schema.failures(v)) {
                assert_eq!(valid, failures.is_empty(), "{spec:?} on {d:?}");
            }
        }
    }
    if let Ok(e) = Expr::parse(Value::Document(spec), &ctx) {
        for d in &docs {
            arena::with_arena(Work::unasked(), |a| {
                if let Ok(Some(v)) = e.eval(&EvalContext::new(d.as_doc(), a)) {
                    let value = doc! { "v": v };
                    // The value may nest deeper than a document may, but it must not be malformed.
                    if let Err(e) = validate(value.as_bytes()) {
                        assert!(e.code().0 == 15, "{e:?} in {value:?}");
                    }
                }
            });
        }
    }
}

fn match_one(f: &Filter, negated: &Filter, random: bool, d: Doc<'_>) {
    let work = Work::unasked();
    let plain = f.matches(d, work);
    let with_info = f.matches_info(d, work);
    let complement = negated.matches(d, work);
    if random {
        return;
    }
    if let (Ok(m), Ok(i), Ok(n)) = (plain, with_info, complement) {
        assert_eq!(m, i.is_some(), "{:?} on {d:?}", f.root());
        assert_eq!(m, !n, "{:?} on {d:?}", f.root());
    }
}
