//! Strategies for property tests: BSON values of every type that are often equal or nearly so.

use crate::decimal::Decimal;
use crate::{ArrayBuf, DocBuf, Value, ValueBuf};
use proptest::prelude::*;

/// A number of any type, often near a boundary of another type.
pub fn number() -> BoxedStrategy<ValueBuf> {
    let edges = prop_oneof![
        Just(0_i64),
        Just(1),
        Just(127),
        Just(255),
        Just(i64::from(i32::MAX)),
        Just(1 << 53),
        Just(i64::MAX),
        Just(i64::MIN + 2),
        any::<i64>(),
        any::<i16>().prop_map(i64::from),
    ];
    let whole = (edges, -2..=2_i64).prop_map(|(n, d)| n.wrapping_add(d));
    let float = prop_oneof![
        any::<f64>(),
        any::<u64>().prop_map(f64::from_bits),
        whole.clone().prop_map(|n| n as f64),
        whole.clone().prop_map(|n| n as f64 / 8.0),
        (any::<i16>(), 0..20_i32).prop_map(|(n, e)| f64::from(n) / 10_f64.powi(e)),
        Just(f64::MIN_POSITIVE),
        Just(5e-324),
        Just(f64::MAX),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(f64::NAN),
        Just(-0.0),
    ];
    let decimal = prop_oneof![
        any::<[u8; 16]>(),
        (any::<bool>(), any::<u128>(), -6176..=6111_i32)
            .prop_map(|(s, c, e)| bid(Decimal::from_parts(s, c >> 15, e))),
        (any::<bool>(), 0..100_000_u128, -45..=45_i32)
            .prop_map(|(s, c, e)| bid(Decimal::from_parts(s, c, e))),
        whole.clone().prop_map(|n| Decimal::from_i64(n).to_bid()),
        // The decimal has the digits of a double, and often more than the double is exact to, so it is equal
        // to it or very close.
        (float.clone(), 1..34_usize)
            .prop_map(|(n, digits)| bid(Decimal::parse(&format!("{n:.digits$e}")))),
    ];
    prop_oneof![
        whole.clone().prop_map(ValueBuf::new),
        whole.prop_map(|n| ValueBuf::new(n as i32)),
        float.prop_map(ValueBuf::new),
        decimal.prop_map(|b| ValueBuf::new(Value::Decimal128(b))),
    ]
    .boxed()
}

fn bid(d: Option<Decimal>) -> [u8; 16] {
    d.unwrap_or(Decimal::ZERO).to_bid()
}

/// A short text from few characters, among them NUL.
pub fn text() -> BoxedStrategy<String> {
    prop_oneof![
        prop::collection::vec(
            prop::sample::select(vec!['\0', '\u{1}', '\u{2}', 'a', 'b', 'ü', '\u{10FFFF}']),
            0..5
        )
        .prop_map(|c| c.into_iter().collect::<String>()),
        ".{0,40}",
    ]
    .boxed()
}

/// One of a few field names, so that paths often match documents.
pub fn name() -> BoxedStrategy<String> {
    prop::sample::select(vec!["a", "b", "c", "_id", "0", "1", "", "longer_name", "ü"])
        .prop_map(str::to_string)
        .boxed()
}

/// A value that is neither a document nor an array.
pub fn scalar() -> BoxedStrategy<ValueBuf> {
    let cstr = || "[a-c]{0,2}";
    prop_oneof![
        4 => number(),
        2 => text().prop_map(ValueBuf::new),
        1 => text().prop_map(|s| ValueBuf::new(Value::Symbol(&s))),
        1 => (0..3_u8, prop::collection::vec(0..2_u8, 0..4)).prop_map(|(subtype, bytes)| {
            ValueBuf::new(Value::Binary { subtype, bytes: &bytes })
        }),
        1 => (250..260_usize).prop_map(|n| {
            ValueBuf::new(Value::Binary { subtype: 0, bytes: &vec![0; n] })
        }),
        1 => any::<[u8; 12]>().prop_map(|id| ValueBuf::new(Value::ObjectId(id))),
        1 => any::<bool>().prop_map(ValueBuf::new),
        1 => any::<i64>().prop_map(|n| ValueBuf::new(Value::DateTime(n))),
        1 => (any::<u32>(), any::<u32>())
            .prop_map(|(t, i)| ValueBuf::new(Value::Timestamp { t, i })),
        1 => (cstr(), cstr()).prop_map(|(p, o)| {
            ValueBuf::new(Value::Regex { pattern: &p, options: &o })
        }),
        1 => (text(), any::<[u8; 12]>())
            .prop_map(|(s, id)| ValueBuf::new(Value::DbPointer { namespace: &s, id })),
        1 => text().prop_map(|s| ValueBuf::new(Value::Code(&s))),
        1 => Just(ValueBuf::new(Value::Null)),
        1 => Just(ValueBuf::new(Value::Undefined)),
        1 => Just(ValueBuf::new(Value::MinKey)),
        1 => Just(ValueBuf::new(Value::MaxKey)),
    ]
    .boxed()
}

/// Any value, nested a few levels deep.
pub fn value() -> BoxedStrategy<ValueBuf> {
    scalar()
        .prop_recursive(4, 24, 4, |inner| {
            let fields = prop::collection::vec((name(), inner.clone()), 0..4).prop_map(build);
            prop_oneof![
                2 => fields.clone().prop_map(ValueBuf::new),
                2 => prop::collection::vec(inner, 0..4)
                    .prop_map(|v| ValueBuf::new(v.into_iter().collect::<ArrayBuf>())),
                1 => (text(), fields).prop_map(|(code, scope)| {
                    ValueBuf::new(Value::CodeWithScope { code: &code, scope: scope.as_doc() })
                }),
            ]
        })
        .boxed()
}

/// Any document.
pub fn doc() -> BoxedStrategy<DocBuf> {
    prop::collection::vec((name(), value()), 0..6)
        .prop_map(build)
        .boxed()
}

fn build(fields: Vec<(String, ValueBuf)>) -> DocBuf {
    let mut d = DocBuf::new();
    for (name, value) in fields {
        d.append(&name, value);
    }
    d
}
