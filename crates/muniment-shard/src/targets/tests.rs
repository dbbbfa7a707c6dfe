//! What filters are targeted to, example by example.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use muniment_query::QueryContext;
use muniment_value::hashed::hash64;
use muniment_value::{ArrayBuf, Collation, DocBuf, doc, keyenc};

fn key(pattern: &str) -> ShardKey {
    ShardKey::parse(DocBuf::from_json(pattern).unwrap().as_doc()).unwrap()
}

fn filter(filter: &DocBuf, collation: &Collation) -> Filter {
    let ctx = QueryContext::at(0).with_collation(collation.clone());
    Filter::parse(filter.as_doc(), &ctx).unwrap()
}

/// The intervals as text: each end by its values, with `…` where it is not a whole key. A point is `=`.
fn shown(pattern: &str, json: &str, collation: &Collation) -> String {
    let key = key(pattern);
    let found = targets(&key, &filter(&DocBuf::from_json(json).unwrap(), collation));
    if found.is_all() {
        return "all".into();
    }
    let each = found.intervals.iter().map(|i| match i.is_prefix() {
        true => format!("={}", values(&i.low)),
        false => {
            let high = i.high.as_ref().map_or("end".into(), |h| values(h));
            format!("{}..{high}", values(&i.low))
        }
    });
    each.collect::<Vec<_>>().join(" ")
}

/// The values of a key; `+` for the end of the keys that begin with the last of them.
fn values(mut bytes: &[u8]) -> String {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        match keyenc::decode(bytes, false, &mut &[][..]) {
            Ok((v, rest)) => {
                out.push(v.as_value().to_display());
                bytes = rest;
            }
            Err(_) => {
                let mut before = bytes.to_vec();
                *before.last_mut().unwrap() -= 1;
                match keyenc::decode(&before, false, &mut &[][..]) {
                    Ok((v, [])) => out.push(format!("{}+", v.as_value().to_display())),
                    _ => out.push(format!("{bytes:02x?}")),
                }
                break;
            }
        }
    }
    out.join(",")
}

#[test]
fn one_field() {
    for (json, want) in [
        ("{}", "all"),
        (r#"{"b": 1}"#, "all"),
        (r#"{"a": 5}"#, "=5"),
        (r#"{"a": {"$in": [7, "x", 5, 5.0]}}"#, "=5 =7 =\"x\""),
        (r#"{"a": {"$in": []}}"#, ""),
        (r#"{"a": null}"#, "=null"),
        (r#"{"a": {"$exists": false}}"#, "=null"),
        (r#"{"a": {"$exists": true}}"#, "all"),
        (r#"{"a": {"$gte": 5, "$lt": 7}}"#, "5..7"),
        (r#"{"a": {"$gt": 5, "$lte": 7}}"#, "5+..7+"),
        (r#"{"a": {"$lte": 7}}"#, "-inf..7+"),
        (
            r#"{"a": {"$gte": 5}, "$and": [{"a": {"$in": [4, 5, 6]}}]}"#,
            "=5 =6",
        ),
        (
            r#"{"$or": [{"a": 5}, {"a": {"$gt": 7, "$lt": 9}}]}"#,
            "=5 7+..9",
        ),
        (r#"{"$or": [{"a": 5}, {"b": 5}]}"#, "all"),
        (r#"{"$or": [{"a": 5, "b": 1}, {"a": 6}], "a": 6}"#, "=6"),
        (r#"{"a": 5, "$nor": [{"b": 1}]}"#, "=5"),
        (r#"{"a": [5]}"#, "all"),
        (r#"{"a": {"$ne": 5}}"#, "all"),
        (r#"{"a": {"$lt": null}}"#, ""),
        (r#"{"a": {"$lte": null}}"#, "=null"),
        (r#"{"a": {"$gte": {"$minKey": 1}}}"#, "all"),
        (r#"{"a": {"$all": [5]}}"#, "=5"),
        (r#"{"a": {"$elemMatch": {"$eq": 5}}}"#, "all"),
        (r#"{"$expr": {"$eq": ["$a", 5]}}"#, "=5"),
        (r#"{"a": 5, "$and": [{"a": 6}]}"#, ""),
    ] {
        assert_eq!(
            shown(r#"{"a": 1}"#, json, &Collation::SIMPLE),
            want,
            "{json}"
        );
    }
}

#[test]
fn several_fields() {
    let ab = r#"{"a": 1, "b": 1}"#;
    for (pattern, json, want) in [
        (ab, r#"{"a": 5, "b": 6}"#, "=5,6"),
        (ab, r#"{"a": 5}"#, "5,MinKey..5+"),
        (ab, r#"{"b": 5}"#, "all"),
        (
            ab,
            r#"{"a": {"$in": [1, 2]}, "b": {"$in": [3, 4]}}"#,
            "=1,3 =1,4 =2,3 =2,4",
        ),
        (ab, r#"{"a": 1, "b": {"$gte": 3, "$lt": 5}}"#, "1,3..1,5"),
        (ab, r#"{"a": {"$gte": 3, "$lt": 5}, "b": 7}"#, "3,MinKey..5"),
        (
            ab,
            r#"{"$or": [{"a": 1, "b": 2}, {"a": 3, "b": 4}]}"#,
            "=1,2 =3,4",
        ),
        (r#"{"a.b": 1}"#, r#"{"a.b": 5}"#, "=5"),
        (r#"{"a.b": 1}"#, r#"{"a": {"b": 5, "c": 6}}"#, "=5"),
        (r#"{"a.b": 1}"#, r#"{"a": {"c": 6}}"#, "=null"),
        (
            r#"{"a.b": 1}"#,
            r#"{"a": {"$in": [7, {"b": 1}]}}"#,
            "=null =1",
        ),
        (r#"{"a.b": 1}"#, r#"{"a": {"$gt": {"b": 5}}}"#, "all"),
        (
            r#"{"a.b": 1, "a.c": 1}"#,
            r#"{"a": {"b": 1, "c": 2}}"#,
            "=1,2",
        ),
        (r#"{"a": 1}"#, r#"{"a.b": 5}"#, "all"),
    ] {
        assert_eq!(shown(pattern, json, &Collation::SIMPLE), want, "{json}");
    }
}

#[test]
fn hashed_fields() {
    let hashes = |json: &str| shown(r#"{"a": "hashed"}"#, json, &Collation::SIMPLE);
    let point = |v: Value<'_>| format!("={}", hash64(v));
    assert_eq!(hashes(r#"{"a": 5}"#), point(Value::Int32(5)));
    assert_eq!(hashes(r#"{"a": null}"#), point(Value::Null));
    assert_eq!(hashes(r#"{"a": {"$gt": 5}}"#), "all");
    // 1.5 is 1 as a double and 2 as a decimal.
    let both = hashes(r#"{"a": 1.5}"#);
    assert!(both.contains(&point(Value::Int32(1))) && both.contains(&point(Value::Int32(2))));
    assert_eq!(hashes(r#"{"a": {"x": 1.5}}"#), "all");
    assert!(hashes(r#"{"a": {"x": 1}}"#).starts_with('='));
    let compound = r#"{"a": 1, "b": "hashed"}"#;
    let want = format!("=7,{}", hash64(Value::Int32(5)));
    assert_eq!(
        shown(compound, r#"{"a": 7, "b": 5}"#, &Collation::SIMPLE),
        want
    );
}

#[test]
fn collations() {
    let c = Collation::parse(doc! { "locale": "en", "strength": 1 }.as_doc()).unwrap();
    for (json, want) in [
        (r#"{"a": 5}"#, "=5"),
        (r#"{"a": {"$gt": 5, "$lt": 7}}"#, "5+..7"),
        (r#"{"a": "x"}"#, "all"),
        (r#"{"a": {"$in": [5, "x"]}}"#, "all"),
        (r#"{"a": {"$lt": "x"}}"#, "all"),
        (r#"{"a": {"b": "x"}}"#, "all"),
        (r#"{"a": {"b": 1}}"#, "={ b: 1 }"),
        (r#"{"a": {"$lt": {"b": 1}}}"#, "all"),
    ] {
        assert_eq!(shown(r#"{"a": 1}"#, json, &c), want, "{json}");
    }
}

#[test]
fn a_single_key_is_known_as_such() {
    let of = |pattern: &str, json: &str| {
        let key = key(pattern);
        let f = filter(&DocBuf::from_json(json).unwrap(), &Collation::SIMPLE);
        targets(&key, &f).key().map(<[u8]>::to_vec)
    };
    let ab = r#"{"a": 1, "b": 1}"#;
    let doc = doc! { "a": 1, "b": 2 };
    assert_eq!(
        of(ab, r#"{"a": 1, "b": 2}"#),
        key(ab).key_of(doc.as_doc()).ok()
    );
    assert_eq!(of(ab, r#"{"a": 1}"#), None);
    assert_eq!(of(ab, r#"{"a": 1, "b": {"$in": [1, 2]}}"#), None);
}

#[test]
fn large_filters_stay_small() {
    let key = key(r#"{"a": 1, "b": 1, "c": "hashed"}"#);
    let many = |n: i32| (0..n).collect::<ArrayBuf>();
    let list = doc! { "$in": many(300) };
    let product = doc! { "a": &list, "b": &list, "c": &list };
    let or: ArrayBuf = (0..12_000)
        .map(|n| doc! { "a": n, "b": 2 * n, "c": 1 })
        .collect();
    let ors: ArrayBuf = (0..200)
        .map(|n| {
            let pair = [doc! { "a": n }, doc! { "b": n, "a": doc! { "$gt": n } }];
            doc! { "$or": pair.into_iter().collect::<ArrayBuf>() }
        })
        .collect();
    for f in [
        doc! { "a": doc! { "$in": many(25_000) } },
        product,
        doc! { "$or": or },
        doc! { "$and": ors },
    ] {
        let found = targets(&key, &filter(&f, &Collation::SIMPLE));
        assert!(found.intervals.len() <= MOST);
        assert!(!found.is_all());
    }
}
