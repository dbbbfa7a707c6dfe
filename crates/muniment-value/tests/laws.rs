//! Laws of values, keys and validation over arbitrary BSON.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use muniment_value::arbitrary::{doc, name, number, value};
use muniment_value::decimal::Decimal;
use muniment_value::keyenc::{self, TypeBits};
use muniment_value::path::{Path, visit, visit_leaves};
use muniment_value::{
    Doc, IndexKeys, JsonMode, Value, ValueBuf, cmp_values, index_keys, number as num, validate,
};
use proptest::prelude::*;
use std::cmp::Ordering;

/// The sign, decimal exponent and digits of a finite number, from its exact decimal text.
type Exact = (i8, i64, String);

/// A form of the number that compares in the same order. It is made in a way that shares no code with the
/// crate: the standard library prints every digit of a double. NaN is least, infinities are at the ends.
fn exact(v: Value<'_>) -> (i8, Option<Exact>) {
    let text = match v {
        Value::Int32(n) => format!("{n}e0"),
        Value::Int64(n) => format!("{n}e0"),
        Value::Double(n) if n.is_finite() => format!("{n:.1100e}"),
        Value::Double(n) => n.to_string(),
        Value::Decimal128(b) => match Decimal::from_bid(b).parts() {
            Some((neg, c, e)) => format!("{}{c}e{e}", if neg { "-" } else { "" }),
            None => Decimal::from_bid(b).to_string(),
        },
        _ => panic!("no number"),
    };
    match text.as_str() {
        "NaN" => return (-3, None),
        "-inf" | "-Infinity" => return (-2, None),
        "inf" | "Infinity" => return (2, None),
        _ => {}
    }
    let (mantissa, exponent) = text.split_once('e').unwrap();
    let sign = if mantissa.starts_with('-') { -1 } else { 1 };
    let mantissa = mantissa.trim_start_matches('-');
    let before = mantissa.split('.').next().unwrap().len() as i64;
    let digits = mantissa.replace('.', "");
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return (0, None);
    }
    let zeros = (digits.len() - significant.len()) as i64;
    let first = exponent.parse::<i64>().unwrap() + before - zeros;
    let digits = significant.trim_end_matches('0').to_string();
    (sign, Some((sign, first, digits)))
}

fn cmp_exact(a: Value<'_>, b: Value<'_>) -> Ordering {
    let ((ra, a), (rb, b)) = (exact(a), exact(b));
    ra.cmp(&rb).then_with(|| match (a, b) {
        (Some((s, ea, da)), Some((_, eb, db))) => {
            let o = ea.cmp(&eb).then_with(|| da.cmp(&db));
            if s < 0 { o.reverse() } else { o }
        }
        _ => Ordering::Equal,
    })
}

fn key(v: &ValueBuf, descending: bool) -> (Vec<u8>, TypeBits) {
    let (mut out, mut bits) = (Vec::new(), TypeBits::new());
    keyenc::encode_with_bits(v.as_value(), descending, &mut out, &mut bits);
    (out, bits)
}

fn orders_agree(a: &ValueBuf, b: &ValueBuf) {
    let order = cmp_values(a.as_value(), b.as_value());
    assert_eq!(cmp_values(b.as_value(), a.as_value()), order.reverse());
    let (ka, kb) = (key(a, false).0, key(b, false).0);
    assert_eq!(ka.cmp(&kb), order);
    assert_eq!(key(a, true).0.cmp(&key(b, true).0), order.reverse());
    assert_eq!(ka.starts_with(&kb), order == Ordering::Equal);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_compare_exactly(a in number(), b in number()) {
        let (x, y) = (a.as_value(), b.as_value());
        prop_assert_eq!(num::cmp(x, y), cmp_exact(x, y));
        orders_agree(&a, &b);
        // These are the same number in other types, rounded or not.
        let others = [
            num::to_f64(x).map(ValueBuf::new),
            num::to_i64_clamped(x).map(ValueBuf::new),
            num::to_decimal(x).map(|d| ValueBuf::new(Value::Decimal128(d.to_bid()))),
        ];
        for c in others.into_iter().flatten() {
            prop_assert_eq!(num::cmp(x, c.as_value()), cmp_exact(x, c.as_value()));
            orders_agree(&a, &c);
        }
    }

    #[test]
    fn arithmetic_has_its_laws(a in number(), b in number()) {
        let (x, y) = (a.as_value(), b.as_value());
        let show = |v: Value<'static>| ValueBuf::new(v);
        let (sum, back) = (num::add(x, y, true).unwrap(), num::add(y, x, true).unwrap());
        if !num::is_nan(sum) {
            prop_assert_eq!(show(sum), show(back));
            prop_assert_eq!(num::mul(x, y, true).is_ok(), true);
        }
        // Whole results are exact.
        if let (Value::Int32(_) | Value::Int64(_), Value::Int32(_) | Value::Int64(_)) = (x, y) {
            let wide = |v| i128::from(num::to_i64_exact(v).unwrap());
            let exact = |r: Result<Value<'static>, muniment_value::Error>, want: i128| match r {
                Ok(v @ (Value::Int32(_) | Value::Int64(_))) => assert_eq!(wide(v), want),
                Ok(v) => panic!("{v:?}"),
                Err(_) => assert!(i64::try_from(want).is_err()),
            };
            exact(num::add(x, y, false), wide(x) + wide(y));
            exact(num::mul(x, y, false), wide(x) * wide(y));
        }
        // A number that converts exactly compares equal.
        if let Some(n) = num::to_i64_exact(x) {
            prop_assert_eq!(num::cmp(x, Value::Int64(n)), Ordering::Equal);
        }
    }

    #[test]
    fn decimals_come_back_from_bytes_and_text(v in number()) {
        if let Value::Decimal128(b) = v.as_value() {
            let d = Decimal::from_bid(b);
            let canonical = d.to_bid();
            prop_assert_eq!(Decimal::from_bid(canonical).to_bid(), canonical);
            let text = d.to_string();
            let read = Decimal::parse(&text).unwrap();
            // A NaN may have a sign, but its text has none.
            prop_assert_eq!(read.is_nan(), d.is_nan());
            if !d.is_nan() {
                prop_assert_eq!(read.to_bid(), canonical, "{}", text);
            }
        }
    }

    #[test]
    fn keys_order_as_values_do(a in value(), b in value(), c in value()) {
        orders_agree(&a, &b);
        // Concatenated keys compare field by field.
        let joined = |x: &ValueBuf, y: &ValueBuf| [key(x, false).0, key(y, true).0].concat();
        let order = cmp_values(a.as_value(), b.as_value())
            .then(cmp_values(c.as_value(), b.as_value()).reverse());
        prop_assert_eq!(joined(&a, &c).cmp(&joined(&b, &b)), order);
    }

    #[test]
    fn values_come_back_from_keys(v in value(), descending: bool) {
        let (k, bits) = key(&v, descending);
        let mut left = bits.as_bytes();
        let (back, rest) = keyenc::decode(&k, descending, &mut left).unwrap();
        prop_assert!(rest.is_empty() && left.is_empty());
        prop_assert_eq!(&back, &v);
        prop_assert_eq!(keyenc::skip(&k, descending).unwrap(), k.len());
        let (plain, _) = keyenc::decode(&k, descending, &mut &[][..]).unwrap();
        prop_assert_eq!(cmp_values(plain.as_value(), v.as_value()), Ordering::Equal);
        let (low, high) = keyenc::bracket(v.ty(), descending);
        prop_assert!(low.as_slice() <= k.as_slice() && k.as_slice() < high.as_slice());
    }

    #[test]
    fn built_documents_are_valid(d in doc()) {
        prop_assert!(validate(d.as_bytes()).is_ok());
        let _ = d.as_doc().to_display();
        let _ = d.as_doc().to_json(JsonMode::Relaxed);
    }

    #[test]
    fn damage_never_panics(
        d in doc(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        p in prop::collection::vec(name(), 1..4),
    ) {
        let mut bytes = d.into_bytes();
        for (at, b) in damage {
            let n = at.index(bytes.len());
            bytes[n] = b;
        }
        muniment_value::fuzzing::bson_validate(&bytes);
        let p = Path::new(&p.join("."));
        visit(Doc::new(&bytes), p.parts(), &mut |_, _| false);
        muniment_value::fuzzing::key_encoding(&bytes);
    }

    #[test]
    fn every_leaf_a_query_sees_is_in_the_index(
        d in doc(),
        p in prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "_id", ""]), 1..4),
        descending: bool,
    ) {
        // For paths without numbers the keys are exactly the values that a query compares with, except for
        // whole arrays, and null or undefined for missing values.
        let path = Path::new(&p.join("."));
        let mut keys = IndexKeys::new();
        index_keys(d.as_doc(), &[(path.clone(), descending)], false, &mut keys).unwrap();
        let found: Vec<Vec<u8>> = keys.iter().map(|(k, _)| k.to_vec()).collect();
        prop_assert!(found.is_sorted() && !found.is_empty());
        let mut seen = Vec::new();
        visit_leaves(d.as_doc(), path.parts(), &mut |v, _| {
            let v = v.unwrap_or(Value::Null);
            seen.push(key(&ValueBuf::new(v), descending).0);
            false
        });
        visit(d.as_doc(), path.parts(), &mut |v, _| {
            if let Some(Value::Array(a)) = v {
                // The array itself is not a key, unless it is also an element.
                let k = key(&ValueBuf::new(Value::Array(a)), descending).0;
                let at = seen.iter().rposition(|s| *s == k).unwrap();
                seen.remove(at);
            }
            false
        });
        for k in &seen {
            prop_assert!(found.contains(k), "{:?} {}", d, path.as_str());
        }
        let null = keyenc::encoded(Value::Null);
        let undefined = keyenc::encoded(Value::Undefined);
        for k in &found {
            let k_up: Vec<u8> = k.iter().map(|b| if descending { !b } else { *b }).collect();
            prop_assert!(seen.contains(k) || k_up == null || k_up == undefined);
        }
    }
}
