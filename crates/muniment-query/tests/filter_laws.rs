//! Laws that must hold for every filter on every document.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use muniment_query::running::Work;
use muniment_query::{Filter, QueryContext};
use muniment_value::decimal::Decimal;
use muniment_value::path::{Path, visit_leaves};
use muniment_value::{ArrayBuf, DocBuf, Value, ValueBuf, array, cmp_values, doc, number};
use proptest::prelude::*;
use std::cmp::Ordering;

fn leaf() -> impl Strategy<Value = ValueBuf> {
    let dec = |s: &str| Value::Decimal128(Decimal::parse(s).unwrap().to_bid());
    let mut pool: Vec<ValueBuf> = [
        Value::Null,
        Value::MinKey,
        Value::MaxKey,
        Value::Bool(true),
        Value::Bool(false),
        Value::Int32(0),
        Value::Int32(1),
        Value::Int32(-1),
        Value::Int64(1),
        Value::Int64(9_007_199_254_740_993),
        Value::Int64(i64::MAX),
        Value::Int64(i64::MIN),
        Value::Double(1.0),
        Value::Double(1.5),
        Value::Double(-0.0),
        Value::Double(f64::NAN),
        Value::Double(f64::INFINITY),
        Value::Double(9_007_199_254_740_992.0),
        Value::Double(9_223_372_036_854_775_808.0),
        dec("1"),
        dec("1.5"),
        dec("NaN"),
        dec("1e40"),
        Value::String(""),
        Value::String("a"),
        Value::String("ab"),
        Value::Symbol("a"),
        Value::ObjectId([1; 12]),
        Value::ObjectId([2; 12]),
        Value::DateTime(0),
        Value::DateTime(1),
        Value::Timestamp { t: 1, i: 1 },
        Value::Binary {
            subtype: 0,
            bytes: &[1, 2],
        },
        Value::Code("a"),
    ]
    .into_iter()
    .map(ValueBuf::new)
    .collect();
    // Small numbers are more frequent, so that filters match.
    pool.extend((0..3).cycle().take(20).map(ValueBuf::new));
    prop::sample::select(pool)
}

fn field() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "0"])
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec!["a", "a", "b", "c", "0", "1"]),
        1..4,
    )
    .prop_map(|p| p.join("."))
}

fn document(value: impl Strategy<Value = ValueBuf>) -> impl Strategy<Value = DocBuf> {
    prop::collection::vec((field(), value), 0..4).prop_map(|fields| {
        let mut d = DocBuf::new();
        for (k, v) in fields {
            if d.as_doc().get(k).is_none() {
                d.append(k, v);
            }
        }
        d
    })
}

/// Any value except undefined and regular expressions, which are not allowed as operands of comparisons.
fn value() -> impl Strategy<Value = ValueBuf> {
    leaf().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| {
                let items: ArrayBuf = items.into_iter().collect();
                ValueBuf::new(items)
            }),
            document(inner).prop_map(ValueBuf::new),
        ]
    })
}

fn stored() -> impl Strategy<Value = ValueBuf> {
    let odd = prop::sample::select(vec![
        ValueBuf::new(Value::Undefined),
        ValueBuf::new(Value::Regex {
            pattern: "a",
            options: "",
        }),
    ]);
    prop_oneof![30 => value(), 1 => odd]
}

fn one(name: &str, v: impl muniment_value::Put) -> DocBuf {
    let mut d = DocBuf::new();
    d.append(name, v);
    d
}

/// The operators below a path, as a document with one field.
fn operator() -> impl Strategy<Value = DocBuf> {
    let cmp = prop::sample::select(vec!["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]);
    let list =
        prop::collection::vec(value(), 0..4).prop_map(|v| v.into_iter().collect::<ArrayBuf>());
    let simple = prop_oneof![
        6 => (cmp, value()).prop_map(|(op, v)| one(op, v)),
        2 => (prop::sample::select(vec!["$in", "$nin", "$all"]), list)
            .prop_filter_map("operators in a list", |(op, v)| {
                let d = one(op, v);
                Filter::parse(one("x", d.clone()).as_doc(), &QueryContext::new()).ok().map(|_| d)
            }),
        1 => any::<bool>().prop_map(|b| one("$exists", b)),
        1 => (0..3).prop_map(|n| one("$size", n)),
        1 => prop::sample::select(vec!["int", "number", "array", "object", "string", "null"])
            .prop_map(|t| one("$type", t)),
        1 => (1..4, 0..3).prop_map(|(d, r)| one("$mod", array![d, r])),
        1 => (0..8).prop_map(|n| one("$bitsAnySet", n)),
        1 => prop::sample::select(vec!["^a", "b$", "a.*b", ""]).prop_map(|p| one("$regex", p)),
    ];
    simple.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|d| one("$not", d)),
            inner.clone().prop_map(|d| one("$elemMatch", d)),
            (path(), inner).prop_map(|(p, d)| one("$elemMatch", one(&p, d))),
        ]
    })
}

/// A filter.
fn filter() -> impl Strategy<Value = DocBuf> {
    let simple = prop_oneof![
        (path(), operator()).prop_map(|(p, d)| one(&p, d)),
        (path(), value()).prop_map(|(p, v)| one(&p, v)),
        (path(), operator(), path(), operator()).prop_map(|(p, d, q, e)| {
            let mut f = one(&p, d);
            f.append(&q, e);
            f
        }),
    ];
    simple.prop_recursive(2, 8, 3, |inner| {
        (
            prop::sample::select(vec!["$and", "$or", "$nor"]),
            prop::collection::vec(inner, 1..4),
        )
            .prop_map(|(op, list)| one(op, list.into_iter().collect::<ArrayBuf>()))
    })
}

fn matches(f: &DocBuf, d: &DocBuf) -> bool {
    let f =
        Filter::parse(f.as_doc(), &QueryContext::new()).unwrap_or_else(|e| panic!("{f:?}: {e:?}"));
    let m = f.matches(d.as_doc(), Work::unasked()).unwrap();
    assert_eq!(
        f.matches_info(d.as_doc(), Work::unasked())
            .unwrap()
            .is_some(),
        m,
        "with info: {:?} on {d:?}",
        f.root()
    );
    m
}

/// A comparison as the manual defines it, computed with the canonical order and the path walk of
/// muniment-value.
fn reference(op: &str, path: &str, operand: Value<'_>, d: &DocBuf) -> bool {
    let accepts = |o: Ordering| match op {
        "$eq" => o.is_eq(),
        "$gt" => o.is_gt(),
        "$gte" => o.is_ge(),
        "$lt" => o.is_lt(),
        _ => o.is_le(),
    };
    visit_leaves(
        d.as_doc(),
        Path::new(path).parts(),
        &mut |v, _| match (v, operand) {
            (None, Value::Null) => accepts(Ordering::Equal),
            (None, Value::MinKey) => op.starts_with("$gt"),
            (None, Value::MaxKey) => op.starts_with("$lt"),
            (None, _) => false,
            (Some(v), Value::MinKey | Value::MaxKey) => match cmp_values(v, operand) {
                Ordering::Equal => accepts(Ordering::Equal),
                o => op != "$eq" && accepts(o),
            },
            (Some(v), _) if v.ty().rank() != operand.ty().rank() => false,
            (Some(v), _) if v.is_number() && (number::is_nan(v) || number::is_nan(operand)) => {
                number::is_nan(v) && number::is_nan(operand) && accepts(Ordering::Equal)
            }
            (Some(v), _) => accepts(cmp_values(v, operand)),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nor_is_the_complement(f in filter(), d in document(stored())) {
        let nor = doc! { "$nor": array![f.as_doc()] };
        prop_assert_eq!(matches(&f, &d), !matches(&nor, &d));
    }

    #[test]
    fn not_is_the_complement(p in path(), o in operator(), d in document(stored())) {
        let f = one(&p, o.as_doc());
        let not = one(&p, one("$not", o.as_doc()));
        prop_assert_eq!(matches(&f, &d), !matches(&not, &d));
    }

    #[test]
    fn comparisons_agree_with_the_reference(
        op in prop::sample::select(vec!["$eq", "$gt", "$gte", "$lt", "$lte"]),
        p in path(), v in value(), d in document(stored()),
    ) {
        let f = one(&p, one(op, &v));
        prop_assert_eq!(matches(&f, &d), reference(op, &p, v.as_value(), &d));
    }

    #[test]
    fn in_is_an_or_of_equalities(p in path(), vs in prop::collection::vec(value(), 1..5), d in document(stored())) {
        let list: ArrayBuf = vs.iter().collect();
        let or: ArrayBuf = vs.iter().map(|v| one(&p, one("$eq", v))).collect();
        let f = one(&p, one("$in", list.clone()));
        let parsed = Filter::parse(f.as_doc(), &QueryContext::new());
        prop_assume!(parsed.is_ok());
        let by_parts = vs.iter().any(|v| matches(&one(&p, one("$eq", v)), &d));
        prop_assert_eq!(matches(&f, &d), by_parts);
        prop_assert_eq!(matches(&doc! { "$or": or }, &d), by_parts);
        prop_assert_eq!(matches(&one(&p, one("$nin", list)), &d), !by_parts);
    }

    #[test]
    fn and_is_every_part(fs in prop::collection::vec(filter(), 1..5), d in document(stored())) {
        let list: ArrayBuf = fs.iter().map(DocBuf::as_doc).collect();
        let all = fs.iter().all(|f| matches(f, &d));
        prop_assert_eq!(matches(&doc! { "$and": list }, &d), all);
    }

    #[test]
    fn several_operators_are_an_and(p in path(), os in prop::collection::vec(operator(), 1..4), d in document(stored())) {
        let mut together = DocBuf::new();
        for o in &os {
            together.append_all(o.as_doc());
        }
        let all = os.iter().all(|o| matches(&one(&p, o.as_doc()), &d));
        prop_assert_eq!(matches(&one(&p, together), &d), all);
    }

    #[test]
    fn parsed_query_means_the_same(f in filter(), d in document(stored())) {
        let parsed = Filter::parse(f.as_doc(), &QueryContext::new()).unwrap();
        prop_assert_eq!(matches(&parsed.to_doc(), &d), matches(&f, &d), "{:?}", parsed.to_doc());
    }

    #[test]
    fn expr_comparisons_follow_the_canonical_order(
        op in prop::sample::select(vec!["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"]),
        a in value(), b in value(),
    ) {
        let d = doc! { "a": &a, "b": &b };
        let f = doc! { "$expr": one(op, array!["$a", "$b"]) };
        let o = cmp_values(a.as_value(), b.as_value());
        let want = match op {
            "$eq" => o.is_eq(),
            "$gt" => o.is_gt(),
            "$gte" => o.is_ge(),
            "$lt" => o.is_lt(),
            "$lte" => o.is_le(),
            _ => o.is_ne(),
        };
        prop_assert_eq!(matches(&f, &d), want);
    }
}
