//! Queries that name very many values: their cost depends on the documents, and they find the same
//! as a scan of all documents.

use super::metamorphic::as_set;
use super::*;
use muniment_value::{ArrayBuf, Collation, Value, doc};
use testkit::random::Rng;

fn ints(values: impl Iterator<Item = i32>) -> ArrayBuf {
    values.map(Value::Int32).collect()
}

/// 4000 documents: a is even and below 4000, b = a / 100, c is a string, d has no index.
fn bench() -> Bench {
    let b = Bench::new();
    let docs: Vec<DocBuf> = (0..4000)
        .map(|i| {
            let a = i / 2 * 2;
            doc! { "_id": i, "a": a, "b": a / 100, "c": format!("t{i}"), "d": a, "m": ints([i, i + 1].into_iter()) }
        })
        .collect();
    assert!(b.insert(&docs).errors.is_empty());
    for index in [
        r#"{"key": {"a": 1}, "name": "a"}"#,
        r#"{"key": {"b": 1, "a": -1}, "name": "ba"}"#,
        r#"{"key": {"c": -1}, "name": "c"}"#,
        r#"{"key": {"m": 1, "b": 1}, "name": "m"}"#,
    ] {
        b.index(index).unwrap();
    }
    b
}

fn examined(explain: &DocBuf) -> i64 {
    let stats = explain.as_doc().get("executionStats");
    let stats = stats.and_then(|s| s.as_doc()).unwrap();
    stats
        .get("totalKeysExamined")
        .and_then(muniment_value::number::to_i64_exact)
        .unwrap()
}

/// Compares the documents that any plan finds with those of a full scan. Returns their number and
/// that of the keys examined.
fn check(b: &Bench, filter: &DocBuf, sort: &str, hint: Option<&str>) -> (usize, i64) {
    let natural = doc! { "$natural": 1 };
    let sort = j(sort);
    let all = FindRequest {
        filter: filter.as_doc(),
        hint: Some(Hint::Pattern(natural.as_doc())),
        ..FindRequest::new(NS)
    };
    let request = FindRequest {
        sort: sort.as_doc(),
        hint: hint.map(Hint::Name),
        ..all.clone()
    };
    let want = as_set(&b.run(&all).unwrap());
    let found = b.run(&request).unwrap();
    assert!(as_set(&found) == want, "{} of {}", found.len(), want.len());
    if !sort.as_doc().is_empty() {
        let by =
            muniment_query::SortSpec::parse(sort.as_doc(), &muniment_query::QueryContext::new())
                .unwrap();
        let mut keys = by
            .keys()
            .iter()
            .map(|k| (k.path.as_str().to_string(), k.descending));
        let (path, descending) = keys.next().unwrap();
        let of = |d: &DocBuf| muniment_value::ValueBuf::new(d.as_doc().get(&path).unwrap());
        for pair in found.windows(2) {
            let o = muniment_value::cmp_values(of(&pair[0]).as_value(), of(&pair[1]).as_value());
            assert!(if descending { o.is_ge() } else { o.is_le() });
        }
    }
    (want.len(), examined(&b.explain(&request)))
}

#[test]
fn long_in_lists_cost_what_is_there() {
    let b = bench();
    let wide = || ints((0..50_000).map(|i| i * 3));
    let hit = (0..4000).filter(|i| i / 2 * 2 % 3 == 0).count();
    for (sort, hint) in [
        ("{}", "a"),
        (r#"{"a": 1}"#, "a"),
        (r#"{"a": -1}"#, "a"),
        (r#"{"d": 1}"#, "a"),
    ] {
        let (n, keys) = check(&b, &doc! { "a": doc! { "$in": wide() } }, sort, Some(hint));
        assert_eq!(n, hit);
        assert!(keys <= 4000, "{sort} {keys}");
    }
    // Conditions on both fields of a compound index, in both directions.
    let both = doc! { "b": doc! { "$in": ints(0..9000) }, "a": doc! { "$in": wide() } };
    for sort in [
        "{}",
        r#"{"b": 1, "a": -1}"#,
        r#"{"b": -1, "a": 1}"#,
        r#"{"a": 1}"#,
    ] {
        let (n, keys) = check(&b, &both, sort, Some("ba"));
        assert_eq!(n, hit);
        assert!(keys <= 4000, "{sort} {keys}");
    }
    // Few documents and many values: a value that no document has costs no step.
    let far = doc! { "a": doc! { "$in": ints((0..50_000).map(|i| i * 1000)) } };
    let (n, keys) = check(&b, &far, "{}", Some("a"));
    assert_eq!(n, 8);
    assert!(keys <= 120, "{keys}");
    // The same by `_id`, through arrays, with strings, and without an index.
    for name in ["_id", "d"] {
        let mut filter = DocBuf::new();
        filter.append(name, doc! { "$in": wide() });
        check(&b, &filter, "{}", None);
        check(&b, &filter, r#"{"_id": -1}"#, None);
    }
    let (_, keys) = check(&b, &doc! { "m": doc! { "$in": wide() } }, "{}", Some("m"));
    assert!(keys <= 8000, "{keys}");
    let texts: Vec<String> = (0..20_000).map(|i| format!("t{}", i * 7)).collect();
    let mut texts: ArrayBuf = texts.iter().map(String::as_str).collect();
    check(
        &b,
        &doc! { "c": doc! { "$in": texts.clone() } },
        r#"{"c": 1}"#,
        Some("c"),
    );
    texts.push(Value::Regex {
        pattern: "^t39",
        options: "",
    });
    texts.push(Value::Null);
    check(&b, &doc! { "c": doc! { "$in": texts.clone() } }, "{}", None);
    check(&b, &doc! { "c": doc! { "$nin": texts } }, "{}", None);
}

#[test]
fn long_nin_lists() {
    let b = bench();
    for hint in ["a", "ba", "m"] {
        for n in [10, 200, 30_000] {
            let field = if hint == "m" { "m" } else { "a" };
            let mut filter = DocBuf::new();
            filter.append(
                field,
                doc! { "$nin": ints((0..n).map(|i| i * 2 + (i % 3) / 2)) },
            );
            check(&b, &filter, "{}", Some(hint));
            check(&b, &filter, r#"{"a": -1}"#, Some(hint));
        }
    }
    check(
        &b,
        &doc! { "_id": doc! { "$nin": ints((0..9000).map(|i| i * 2)) } },
        r#"{"_id": -1}"#,
        None,
    );
}

#[test]
fn collated_in_lists() {
    let b = bench();
    b.index(r#"{"key": {"c": 1}, "name": "cc", "collation": {"locale": "en", "strength": 2}}"#)
        .unwrap();
    let texts: Vec<String> = (0..9000).map(|i| format!("T{}", i * 3)).collect();
    let list: ArrayBuf = texts.iter().map(String::as_str).collect();
    let filter = doc! { "c": doc! { "$in": list } };
    let of = Collation::parse(j(r#"{"locale": "en", "strength": 2}"#).as_doc()).unwrap();
    let natural = doc! { "$natural": 1 };
    for hint in [Hint::Pattern(natural.as_doc()), Hint::Name("cc")] {
        let request = FindRequest {
            filter: filter.as_doc(),
            hint: Some(hint),
            collation: Some(of.clone()),
            ..FindRequest::new(NS)
        };
        assert_eq!(b.run(&request).unwrap().len(), 1334);
    }
}

#[test]
fn very_many_branches() {
    let b = bench();
    let branch = |i: i32| doc! { "a": i * 2, "b": i * 2 / 100 + i % 2 };
    let branches: ArrayBuf = (0..1100).map(branch).collect();
    let filter = doc! { "$or": branches.clone() };
    for sort in ["{}", r#"{"d": -1}"#] {
        let (n, keys) = check(&b, &filter, sort, None);
        assert_eq!(n, 1100);
        // Each branch examines at most one key of its own and the one at which it ends.
        assert!(keys <= 10_000, "{keys}");
    }
    // With a condition beside the `$or`, short and long.
    for list in [ints(0..50), ints((0..3000).map(|i| i * 4))] {
        let filter = doc! { "$or": branches.clone(), "d": doc! { "$in": list } };
        let (n, keys) = check(&b, &filter, "{}", None);
        assert!(n > 0 && keys <= 10_000, "{n} {keys}");
    }
    // With a branch of another form among them, and a nested `$or`.
    let mut mixed = branches;
    mixed.push(doc! { "c": "t17", "$or": ints(0..1).values_as_or() });
    check(&b, &doc! { "$or": mixed }, "{}", None);
    let hint = doc! { "$or": (0..1100).map(branch).collect::<ArrayBuf>() };
    let request = FindRequest {
        filter: hint.as_doc(),
        ..FindRequest::new(NS)
    };
    // The sizes of explain's reply and of the plan cache's entry stay below that of a document.
    let explain = b.explain(&request);
    assert!(explain.as_bytes().len() < 16 << 20);
    assert!(text(&explain).contains("stats tree exceeded"));
}

trait AsOr {
    fn values_as_or(self) -> ArrayBuf;
}

impl AsOr for ArrayBuf {
    fn values_as_or(self) -> ArrayBuf {
        self.as_doc()
            .values()
            .flat_map(|v| [doc! { "a": v }, doc! { "b": v }])
            .collect()
    }
}

#[test]
fn bounds_that_are_too_long_are_left_out_of_explain() {
    let b = bench();
    let filter = doc! { "a": doc! { "$in": ints(0..200_000) } };
    let request = FindRequest {
        filter: filter.as_doc(),
        hint: Some(Hint::Name("a")),
        ..FindRequest::new(NS)
    };
    let explain = text(&b.explain(&request));
    assert!(explain.contains("index bounds omitted due to BSON size limit for explain"));
}

#[test]
fn random_lists_of_all_lengths() {
    let b = bench();
    for seed in 1..25 {
        let mut rng = Rng::new(seed);
        let mut list = |n: usize, below: usize| {
            ints(
                (0..n)
                    .map(|_| rng.below(below) as i32)
                    .collect::<Vec<_>>()
                    .into_iter(),
            )
        };
        let lens = [[3, 40], [120, 140], [1, 3000], [3000, 2], [2000, 30]][seed as usize % 5];
        let op = if seed % 4 == 0 { "$nin" } else { "$in" };
        let mut of_a = DocBuf::new();
        of_a.append(op, list(lens[0], 4200));
        let filter = doc! { "a": of_a, "b": doc! { "$in": list(lens[1], 60) } };
        for hint in ["a", "ba", "m"] {
            check(&b, &filter, "{}", Some(hint));
            check(&b, &filter, r#"{"b": -1}"#, Some(hint));
        }
    }
}
