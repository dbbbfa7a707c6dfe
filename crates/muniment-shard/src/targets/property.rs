//! Random filters, documents and keys: every document that matches has its key in the intervals.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::targets;
use crate::key::ShardKey;
use crate::table::{Generation, RangeTable, Record};
use crate::{Timestamp, Version};
use muniment_query::running::Work;
use muniment_query::{Filter, QueryContext};
use muniment_value::decimal::Decimal;
use muniment_value::{ArrayBuf, Collation, Doc, DocBuf, Value, ValueBuf, arbitrary, doc};
use proptest::prelude::*;
use std::sync::Arc;

/// Values of which two are often equal, or equal by a collation.
fn value() -> BoxedStrategy<ValueBuf> {
    let small = prop_oneof![
        (0..3_i32).prop_map(ValueBuf::new),
        (-3..4_i32).prop_map(|n| ValueBuf::new(f64::from(n) / 2.0)),
        (-3..4_i32).prop_map(|n| decimal(f64::from(n) / 2.0)),
        prop::sample::select(vec!["", "x", "X", "y"]).prop_map(ValueBuf::new),
        Just(ValueBuf::new(Value::Null)),
        Just(ValueBuf::new(f64::NAN)),
        any::<bool>().prop_map(ValueBuf::new),
        Just(ValueBuf::new(Value::MinKey)),
        Just(ValueBuf::new(Value::MaxKey)),
    ];
    let inner = small.clone();
    let within = (prop::sample::select(vec!["b", "c", "0"]), inner)
        .prop_map(|(name, v)| ValueBuf::new(one(name, v)));
    prop_oneof![12 => small, 4 => within, 1 => arbitrary::number(), 1 => arbitrary::value()].boxed()
}

fn decimal(n: f64) -> ValueBuf {
    let n = Decimal::parse(&n.to_string()).unwrap();
    ValueBuf::new(Value::Decimal128(n.to_bid()))
}

fn one(name: &str, v: ValueBuf) -> DocBuf {
    let mut out = DocBuf::new();
    out.append(name, v);
    out
}

fn document() -> impl Strategy<Value = DocBuf> {
    let fields = prop::sample::subsequence(vec!["a", "b", "c"], 0..=3);
    (fields, prop::collection::vec(value(), 3)).prop_map(|(names, values)| {
        let mut out = DocBuf::new();
        for (name, v) in names.iter().zip(values) {
            out.append(name, v);
        }
        out
    })
}

fn condition() -> impl Strategy<Value = DocBuf> {
    let path = prop::sample::select(vec!["a", "b", "c", "a.b", "a.c", "b.c", "a.0", "d"]);
    let operator = prop::sample::select(vec![
        "$eq", "$lt", "$lte", "$gt", "$gte", "$ne", "$gt", "$lte",
    ]);
    let operators = prop_oneof![
        4 => value(),
        4 => (operator, value()).prop_map(|(op, v)| ValueBuf::new(one(op, v))),
        2 => (value(), value()).prop_map(|(a, b)| ValueBuf::new(doc! { "$gte": a, "$lt": b })),
        3 => prop::collection::vec(value(), 0..4).prop_map(|list| {
            ValueBuf::new(doc! { "$in": list.into_iter().collect::<ArrayBuf>() })
        }),
        1 => any::<bool>().prop_map(|b| ValueBuf::new(doc! { "$exists": b })),
        1 => value().prop_map(|v| ValueBuf::new(doc! { "$not": doc! { "$gt": v } })),
        1 => value().prop_map(|v| ValueBuf::new(doc! { "$all": muniment_value::array![v] })),
        1 => value().prop_map(|v| {
            ValueBuf::new(doc! { "$elemMatch": doc! { "$gte": v } })
        }),
    ];
    (path, operators).prop_map(|(path, v)| one(path, v))
}

fn filters() -> impl Strategy<Value = DocBuf> {
    condition().prop_recursive(3, 12, 3, |inner| {
        let op = prop::sample::select(vec!["$and", "$or", "$or", "$and", "$nor"]);
        prop_oneof![
            4 => (op, prop::collection::vec(inner.clone(), 1..4)).prop_map(|(op, list)| {
                let mut out = DocBuf::new();
                out.append(op, list.into_iter().collect::<ArrayBuf>());
                out
            }),
            1 => (value(), prop::sample::select(vec!["$eq", "$lt", "$gte"])).prop_map(|(v, op)| {
                let literal = doc! { "$literal": v };
                let mut compare = DocBuf::new();
                compare.append(op, muniment_value::array!["$a", literal]);
                doc! { "$expr": compare }
            }),
        ]
    })
}

fn keys() -> Vec<Arc<ShardKey>> {
    [
        doc! { "a": 1 },
        doc! { "a": "hashed" },
        doc! { "a.b": 1 },
        doc! { "a": 1, "b": 1 },
        doc! { "b": 1, "a": "hashed", "c": 1 },
        doc! { "a.b": "hashed", "a.c": 1 },
        doc! { "a.0": 1, "b.c": 1 },
    ]
    .iter()
    .map(|p| Arc::new(ShardKey::parse(p.as_doc()).unwrap()))
    .collect()
}

/// A table in which each of the keys begins a range on a shard of its own.
fn table(key: &Arc<ShardKey>, mut bounds: Vec<Vec<u8>>) -> RangeTable {
    bounds.extend([key.lowest(), key.highest()]);
    bounds.sort();
    bounds.dedup();
    let record = |(n, w): (usize, &[Vec<u8>])| Record {
        min: w[0].clone(),
        max: w[1].clone(),
        shard: format!("s{n}").into(),
        version: Version::new(1, n as u32),
    };
    let generation = Generation {
        uuid: [0; 16],
        timestamp: Timestamp::new(1, 1),
    };
    let records = bounds.windows(2).enumerate().map(record).collect();
    RangeTable::build(key.clone(), generation, records).unwrap()
}

fn check(docs: &[DocBuf], filter: &DocBuf, collation: &Collation) {
    let ctx = QueryContext::at(0).with_collation(collation.clone());
    let Ok(parsed) = Filter::parse(filter.as_doc(), &ctx) else {
        return;
    };
    for key in keys() {
        let found = targets(&key, &parsed);
        for w in found.intervals.windows(2) {
            assert!(w[0].high.as_ref().is_some_and(|high| *high <= w[1].low));
        }
        let keyed: Vec<_> = docs
            .iter()
            .filter_map(|d| Some((d, key.key_of(d.as_doc()).ok()?)))
            .collect();
        let table = table(&key, keyed.iter().map(|(_, k)| k.clone()).collect());
        let shards = table.shards_in(&found.intervals);
        for (doc, k) in keyed {
            if matches!(parsed.matches(doc.as_doc(), Work::unasked()), Ok(true)) {
                let inside = found.intervals.iter().any(|i| i.contains(&k));
                let pattern = key.pattern();
                assert!(
                    inside,
                    "{pattern:?} {filter:?} {doc:?}: {:?}",
                    found.intervals
                );
                assert!(
                    shards.contains(&table.owner(&k)),
                    "{pattern:?} {filter:?} {doc:?}"
                );
                if let Some(only) = found.key() {
                    assert_eq!(only, k);
                }
            }
        }
    }
}

/// One value of each type and those at the edges, with equal ones of other types.
fn pool() -> Vec<ValueBuf> {
    let oid = |b: u8| Value::ObjectId([b; 12]);
    let values = [
        Value::MinKey,
        Value::Undefined,
        Value::Null,
        Value::Double(f64::NAN),
        Value::Double(f64::NEG_INFINITY),
        Value::Int64(i64::MIN),
        Value::Double(-1.5),
        Value::Double(-0.0),
        Value::Int32(0),
        Value::Int32(1),
        Value::Double(1.0),
        Value::Double(1.5),
        Value::Double(2.5),
        Value::Int64(2),
        Value::Int64(i64::MAX),
        Value::Double(9_223_372_036_854_775_808.0),
        Value::Double(1e300),
        Value::Double(f64::INFINITY),
        Value::String(""),
        Value::String("\0"),
        Value::String("x"),
        Value::String("X"),
        Value::Symbol("x"),
        Value::String("y"),
        Value::Document(Doc::EMPTY),
        Value::Binary {
            subtype: 0,
            bytes: &[1],
        },
        Value::Binary {
            subtype: 4,
            bytes: &[1],
        },
        oid(0),
        oid(0xFF),
        Value::Bool(false),
        Value::Bool(true),
        Value::DateTime(i64::MIN),
        Value::DateTime(0),
        Value::Timestamp { t: 0, i: 0 },
        Value::Timestamp {
            t: u32::MAX,
            i: u32::MAX,
        },
        Value::Code("x"),
        Value::MaxKey,
    ];
    let mut pool: Vec<ValueBuf> = values.iter().map(ValueBuf::new).collect();
    pool.extend([-1.5, 1.0, 1.5, 2.5, 2.0].map(decimal));
    let inner = [Value::Int32(1), Value::Double(1.5), Value::String("x")];
    pool.extend(inner.map(|v| ValueBuf::new(one("b", ValueBuf::new(v)))));
    pool.extend(
        [decimal(1.5), decimal(1.0), ValueBuf::new("X")].map(|v| ValueBuf::new(one("b", v))),
    );
    pool
}

#[test]
fn every_comparison_of_every_kind_of_value() {
    let with_b = |mut d: DocBuf| {
        d.append("b", 1);
        d
    };
    let mut docs = vec![doc! {}, with_b(doc! {})];
    docs.extend(pool().into_iter().map(|v| with_b(one("a", v))));
    let primary = doc! { "locale": "en", "strength": 1 };
    let collations = [
        Collation::SIMPLE,
        Collation::parse(primary.as_doc()).unwrap(),
    ];
    for v in pool() {
        for op in ["$eq", "$lt", "$lte", "$gt", "$gte", "$ne", "$in", "$nin"] {
            let list = muniment_value::array![v.clone(), 7];
            let condition = match op {
                "$in" | "$nin" => one(op, ValueBuf::new(list)),
                op => one(op, v.clone()),
            };
            for c in &collations {
                check(&docs, &with_b(one("a", ValueBuf::new(&condition))), c);
                check(&docs, &one("a.b", ValueBuf::new(&condition)), c);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn what_matches_is_inside(
        docs in prop::collection::vec(document(), 20),
        filters in prop::collection::vec(filters(), 5),
    ) {
        filters.iter().for_each(|f| check(&docs, f, &Collation::SIMPLE));
    }

    #[test]
    fn what_matches_by_a_collation_is_inside(
        docs in prop::collection::vec(document(), 20),
        filters in prop::collection::vec(filters(), 5),
    ) {
        let c = Collation::parse(doc! { "locale": "en", "strength": 1 }.as_doc()).unwrap();
        filters.iter().for_each(|f| check(&docs, f, &c));
    }

    #[test]
    fn an_equality_with_a_whole_key_is_a_point(doc in document()) {
        for key in keys().into_iter().filter(|k| !k.is_hashed()) {
            let Ok(k) = key.key_of(doc.as_doc()) else {
                continue;
            };
            let mut filter = DocBuf::new();
            for e in key.key_doc(doc.as_doc()).unwrap().as_doc() {
                filter.append(e.name(), doc! { "$eq": e.value() });
            }
            let Ok(f) = Filter::parse(filter.as_doc(), &QueryContext::at(0)) else {
                continue;
            };
            let found = targets(&key, &f);
            prop_assert_eq!(found.key(), Some(&*k), "{:?}", filter);
        }
    }
}
