#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::{ValueBuf, array, cmp_values, doc};
use std::cmp::Ordering;

fn decimal(s: &str) -> ValueBuf {
    let d = crate::decimal::Decimal::parse(s).unwrap();
    ValueBuf::new(Value::Decimal128(d.to_bid()))
}

/// Values of every type in groups of equal values, in ascending order.
fn ascending() -> Vec<Vec<ValueBuf>> {
    let v = |x: Value<'_>| ValueBuf::new(x);
    let b = |subtype, bytes| ValueBuf::new(Value::Binary { subtype, bytes });
    vec![
        vec![v(Value::MinKey)],
        vec![v(Value::Undefined)],
        vec![v(Value::Null)],
        vec![
            ValueBuf::new(f64::NAN),
            ValueBuf::new(-f64::NAN),
            decimal("NaN"),
        ],
        vec![ValueBuf::new(f64::NEG_INFINITY), decimal("-Infinity")],
        vec![decimal("-1E+6100")],
        vec![decimal("-1E+400")],
        vec![ValueBuf::new(f64::MIN)],
        vec![decimal("-1E+300")],
        vec![ValueBuf::new(-9.3e18)],
        vec![decimal("-9223372036854775808.5")],
        vec![
            ValueBuf::new(i64::MIN),
            ValueBuf::new(-9223372036854775808.0),
        ],
        vec![ValueBuf::new(i64::MIN + 1), decimal("-9223372036854775807")],
        vec![ValueBuf::new(i32::MIN), ValueBuf::new(f64::from(i32::MIN))],
        vec![ValueBuf::new(-129)],
        vec![ValueBuf::new(-128)],
        vec![ValueBuf::new(-127)],
        vec![ValueBuf::new(-64)],
        vec![ValueBuf::new(-1.5), decimal("-1.50")],
        vec![
            ValueBuf::new(-1),
            ValueBuf::new(-1_i64),
            ValueBuf::new(-1.0),
        ],
        vec![decimal("-0.1000000000000000055511151231257828")],
        vec![ValueBuf::new(-0.1)],
        vec![decimal("-0.1")],
        vec![ValueBuf::new(-5e-324)],
        vec![decimal("-1E-6000")],
        vec![
            ValueBuf::new(0),
            ValueBuf::new(0_i64),
            ValueBuf::new(0.0),
            ValueBuf::new(-0.0),
            decimal("-0.00"),
        ],
        vec![decimal("1E-6176")],
        vec![decimal("2E-6176")],
        vec![ValueBuf::new(5e-324)],
        vec![decimal("0.1"), decimal("0.100")],
        vec![decimal("0.1000000000000000055511151231257827")],
        vec![ValueBuf::new(0.1)],
        vec![ValueBuf::new(0.5), decimal("0.5")],
        vec![decimal("0.9999999999999999999999999999999999")],
        vec![ValueBuf::new(1), ValueBuf::new(1.0), decimal("1.000")],
        vec![decimal("1.000000000000000000000000000000001")],
        vec![ValueBuf::new(1.0000000000000002)],
        vec![ValueBuf::new(63)],
        vec![ValueBuf::new(64)],
        vec![ValueBuf::new(127)],
        vec![ValueBuf::new(128)],
        vec![ValueBuf::new(256)],
        vec![ValueBuf::new(65535)],
        vec![ValueBuf::new(i32::MAX), ValueBuf::new(i64::from(i32::MAX))],
        vec![ValueBuf::new(i64::from(i32::MAX) + 1)],
        vec![
            ValueBuf::new(1_i64 << 53),
            ValueBuf::new(9007199254740992.0),
        ],
        vec![
            ValueBuf::new((1_i64 << 53) + 1),
            decimal("9007199254740993"),
        ],
        vec![
            ValueBuf::new((1_i64 << 53) + 2),
            ValueBuf::new(9007199254740994.0),
        ],
        vec![ValueBuf::new(i64::MAX)],
        vec![decimal("9223372036854775807.5")],
        vec![
            ValueBuf::new(9223372036854775808.0),
            decimal("9223372036854775808"),
        ],
        vec![decimal("9223372036854775809")],
        vec![ValueBuf::new(1e300)],
        vec![ValueBuf::new(f64::MAX)],
        vec![decimal("1E+400")],
        vec![decimal("9.999999999999999999999999999999999E+6144")],
        vec![ValueBuf::new(f64::INFINITY), decimal("Infinity")],
        vec![ValueBuf::new("")],
        vec![ValueBuf::new("\0")],
        vec![ValueBuf::new("\0\0")],
        vec![ValueBuf::new("\0a")],
        vec![ValueBuf::new("\x01")],
        vec![ValueBuf::new("\x01\0")],
        vec![ValueBuf::new("\x02")],
        vec![ValueBuf::new("a"), v(Value::Symbol("a"))],
        vec![ValueBuf::new("a\0")],
        vec![ValueBuf::new("a\x01")],
        vec![ValueBuf::new("ab")],
        vec![ValueBuf::new("ü")],
        vec![ValueBuf::new(doc! {})],
        vec![ValueBuf::new(doc! { "z": Value::Null })],
        vec![
            ValueBuf::new(doc! { "a": 1 }),
            ValueBuf::new(doc! { "a": 1.0 }),
        ],
        vec![ValueBuf::new(doc! { "a": 1, "b": 1 })],
        vec![ValueBuf::new(doc! { "a": 2 })],
        vec![ValueBuf::new(doc! { "a\u{1}": 1 })],
        vec![ValueBuf::new(doc! { "b": -5 })],
        vec![ValueBuf::new(doc! { "": "x" })],
        vec![ValueBuf::new(array![])],
        vec![ValueBuf::new(array![1])],
        vec![ValueBuf::new(array![1, 2])],
        vec![ValueBuf::new(array![2])],
        vec![ValueBuf::new(array![array![1]])],
        vec![b(0, b"")],
        vec![b(0, b"a")],
        vec![b(5, b"a")],
        vec![b(0, b"aa")],
        vec![b(0, &[0; 254])],
        vec![b(0, &[0; 255])],
        vec![b(0, &[0; 256])],
        vec![v(Value::ObjectId([0; 12]))],
        vec![v(Value::ObjectId([255; 12]))],
        vec![ValueBuf::new(false)],
        vec![ValueBuf::new(true)],
        vec![v(Value::DateTime(i64::MIN))],
        vec![v(Value::DateTime(-1))],
        vec![v(Value::DateTime(0))],
        vec![v(Value::Timestamp { t: 0, i: u32::MAX })],
        vec![v(Value::Timestamp { t: 1, i: 0 })],
        vec![v(Value::Regex {
            pattern: "a",
            options: "",
        })],
        vec![v(Value::Regex {
            pattern: "a",
            options: "i",
        })],
        vec![v(Value::Regex {
            pattern: "ab",
            options: "",
        })],
        vec![v(Value::DbPointer {
            namespace: "b",
            id: [0; 12],
        })],
        vec![v(Value::DbPointer {
            namespace: "aa",
            id: [0; 12],
        })],
        vec![v(Value::Code("f"))],
        vec![v(Value::CodeWithScope {
            code: "f",
            scope: Doc::EMPTY,
        })],
        vec![v(Value::CodeWithScope {
            code: "f",
            scope: doc! { "a": 1 }.as_doc(),
        })],
        vec![v(Value::MaxKey)],
    ]
}

fn key(v: &ValueBuf, descending: bool) -> (Vec<u8>, TypeBits) {
    let (mut out, mut bits) = (Vec::new(), TypeBits::new());
    encode_with_bits(v.as_value(), descending, &mut out, &mut bits);
    (out, bits)
}

#[test]
fn keys_order_as_values_do_and_come_back() {
    let groups = ascending();
    let all: Vec<_> = groups
        .iter()
        .enumerate()
        .flat_map(|(i, g)| g.iter().map(move |v| (i, v)))
        .collect();
    for (i, a) in &all {
        for (j, b) in &all {
            let want = i.cmp(j);
            assert_eq!(cmp_values(a.as_value(), b.as_value()), want, "{a:?} {b:?}");
            assert_eq!(key(a, false).0.cmp(&key(b, false).0), want, "{a:?} {b:?}");
            assert_eq!(key(b, true).0.cmp(&key(a, true).0), want, "{a:?} {b:?}");
            if want != Ordering::Equal {
                assert!(
                    !key(b, false).0.starts_with(&key(a, false).0),
                    "{a:?} {b:?}"
                );
            }
        }
        for descending in [false, true] {
            let (mut k, bits) = key(a, descending);
            let n = k.len();
            let (low, high) = bracket(a.ty(), descending);
            assert!(low.as_slice() <= k.as_slice() && k.as_slice() < high.as_slice());
            k.extend_from_slice(b"\xFF\x00rest");
            assert_eq!(skip(&k, descending).unwrap(), n);
            let mut rest_bits = bits.as_bytes();
            let (back, rest) = decode(&k, descending, &mut rest_bits).unwrap();
            assert_eq!(
                (&back, rest, rest_bits),
                (*a, &b"\xFF\x00rest"[..], &[][..])
            );
            // Without its type bits, the decoded value is equal in order.
            let (back, _) = decode(&k, descending, &mut &[][..]).unwrap();
            assert_eq!(
                cmp_values(back.as_value(), a.as_value()),
                Ordering::Equal,
                "{back:?} {a:?}"
            );
            for cut in 0..n {
                assert!(skip(&k[..cut], descending).is_err());
                assert!(decode(&k[..cut], descending, &mut bits.as_bytes()).is_err());
            }
        }
    }
}

#[test]
fn common_keys_are_compact() {
    let len = |v: Value<'_>| encoded(v).len();
    assert_eq!(len(Value::Int32(0)), 1);
    assert_eq!(len(Value::Int32(127)), 2);
    assert_eq!(len(Value::Int32(-127)), 2);
    assert_eq!(len(Value::Int32(32767)), 3);
    assert_eq!(len(Value::Int64(i64::MAX)), 9);
    assert_eq!(len(Value::Double(0.37)), 9);
    assert_eq!(len(Value::Double(1234.56)), 11);
    assert_eq!(len(Value::ObjectId([1; 12])), 13);
    assert_eq!(len(Value::String("abc")), 5);
    assert_eq!(
        key(&ValueBuf::new(doc! { "a": 1, "b": 0.5, "c": "x" }), false)
            .1
            .as_bytes(),
        b""
    );
    assert_eq!(
        key(&ValueBuf::new(array![1, 1_i64, 1]), false).1.as_bytes(),
        [0, 2]
    );
}

#[test]
fn nesting_without_end_is_cut() {
    let deep = (0..100_000).fold(vec![5, 0, 0, 0, 0], |d, _| {
        if d.len() > 4000 {
            return d;
        }
        let mut out = ((d.len() + 8) as u32).to_le_bytes().to_vec();
        out.extend_from_slice(b"\x03a\0");
        out.extend_from_slice(&d);
        out.push(0);
        out
    });
    let v = Value::Document(Doc::new(&deep));
    let k = encoded(v);
    assert_eq!(skip(&k, false).unwrap(), k.len());
    assert_eq!(
        cmp_values(v, Value::Document(Doc::new(&deep.clone()))),
        Ordering::Equal
    );
}
