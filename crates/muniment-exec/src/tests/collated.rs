//! Collations and plans: whichever index runs a query, it finds the same as a scan.

use super::metamorphic::{as_set, seeds};
use super::*;
use muniment_value::{Collation, DocBuf, doc};
use testkit::random::Rng;

const COLLATIONS: &[&str] = &[
    r#"{"locale": "simple"}"#,
    r#"{"locale": "en", "strength": 1}"#,
    r#"{"locale": "en", "strength": 2}"#,
    r#"{"locale": "en", "numericOrdering": true}"#,
    r#"{"locale": "fr_CA"}"#,
];

fn collation(text: &str) -> Collation {
    Collation::parse(j(text).as_doc()).unwrap()
}

/// Strings that some collations hold equal, and some values that are no strings.
fn scalar(rng: &mut Rng) -> String {
    match rng.below(8) {
        0 => rng.below(4).to_string(),
        1 => "null".into(),
        _ => format!(
            "\"{}\"",
            rng.pick(&[
                "a", "A", "á", "Á", "b", "B", "ab", "aB", "a-b", "", "2", "10", "côte", "coté"
            ])
        ),
    }
}

fn value(rng: &mut Rng, arrays: bool) -> String {
    match rng.below(8) {
        0 => format!(r#"{{"x": {}}}"#, scalar(rng)),
        1 if arrays => format!("[{}, {}]", scalar(rng), scalar(rng)),
        2 if arrays => format!(r#"[{{"x": {}}}]"#, scalar(rng)),
        _ => scalar(rng),
    }
}

fn predicate(rng: &mut Rng) -> String {
    let (v, w) = (value(rng, true), scalar(rng));
    match rng.below(12) {
        0..=2 => format!(r#"{{"$eq": {v}}}"#),
        3 => format!(r#"{{"$gt": {w}}}"#),
        4 => format!(r#"{{"$lte": {w}}}"#),
        5 => format!(r#"{{"$gte": {w}, "$lt": {}}}"#, scalar(rng)),
        6 => format!(r#"{{"$in": [{v}, {w}]}}"#),
        7 => format!(r#"{{"$ne": {w}}}"#),
        8 => format!(r#"{{"$nin": [{w}, {}]}}"#, scalar(rng)),
        9 => format!(r#"{{"$regex": "{}"}}"#, rng.pick(&["^a", "^A", "b"])),
        10 => format!(r#"{{"$elemMatch": {{"$gte": {w}}}}}"#),
        _ => format!(r#"{{"$all": [{w}, {}]}}"#, scalar(rng)),
    }
}

fn filter(rng: &mut Rng) -> String {
    let one = |rng: &mut Rng| {
        let path = rng.pick(&["a", "a", "b", "a.x", "_id"]);
        format!(r#"{{"{path}": {}}}"#, predicate(rng))
    };
    match rng.below(4) {
        0 => format!(r#"{{"$and": [{}, {}]}}"#, one(rng), one(rng)),
        1 => format!(r#"{{"$or": [{}, {}]}}"#, one(rng), one(rng)),
        _ => one(rng),
    }
}

fn round(seed: u64) {
    let mut rng = Rng::new(seed);
    let b = Bench::new();
    // Sometimes `_id`s are strings, compared by the collection's collation.
    let own = rng.pick(COLLATIONS);
    let options = muniment_storage::CollectionOptions {
        document: match collation(own).spec() {
            Some(c) => doc! { "collation": c },
            None => DocBuf::new(),
        },
        ..Default::default()
    };
    let c = b
        .engine
        .create_collection(NS, options, &OpContext::internal("create"))
        .unwrap();
    let arrays = rng.below(2) == 0;
    let docs: Vec<DocBuf> = (0..50)
        .map(|i| {
            let id = match rng.below(3) {
                0 => format!("\"{}{i}\"", rng.pick(&["k", "K", "ḱ"])),
                _ => i.to_string(),
            };
            let (a, w) = (value(&mut rng, arrays), value(&mut rng, false));
            j(&format!(r#"{{"_id": {id}, "a": {a}, "b": {w}}}"#))
        })
        .collect();
    assert!(b.insert(&docs).errors.is_empty());
    for i in 0..1 + rng.below(4) {
        let key = rng.pick(&[
            r#"{"a": 1}"#,
            r#"{"a": -1, "b": 1}"#,
            r#"{"a.x": 1}"#,
            r#"{"b": 1, "a": 1}"#,
            r#"{"b": "hashed"}"#,
            r#"{"$**": 1}"#,
        ]);
        let text = format!(
            r#"{{"key": {key}, "name": "i{i}", "collation": {}}}"#,
            rng.pick(COLLATIONS)
        );
        let _ = b.index(&text);
    }
    let report = b
        .engine
        .store
        .validate(&c, true, &NeverInterrupted)
        .unwrap();
    let valid = report.as_doc().get("valid").is_some_and(|v| v.truthy());
    assert!(valid, "seed {seed}: {report:?}");
    for _ in 0..30 {
        check(&b, &mut rng, seed);
    }
}

fn check(b: &Bench, rng: &mut Rng, seed: u64) {
    let (text, by) = (filter(rng), rng.pick(COLLATIONS));
    let (f, by) = (j(&text), collation(by));
    let sort = match rng.below(2) {
        0 => DocBuf::new(),
        _ => j(rng.pick(&[r#"{"b": 1, "_id": 1}"#, r#"{"a": -1, "_id": 1}"#])),
    };
    let projection = j(rng.pick(&["{}", r#"{"b": 1, "_id": 0}"#, r#"{"a": 1}"#]));
    let natural = doc! { "$natural": 1 };
    let scan = FindRequest {
        filter: f.as_doc(),
        sort: sort.as_doc(),
        projection: projection.as_doc(),
        collation: Some(by.clone()),
        hint: Some(Hint::Pattern(natural.as_doc())),
        ..FindRequest::new(NS)
    };
    let ordered = |docs: Vec<DocBuf>| match sort.as_doc().is_empty() {
        true => as_set(&docs),
        false => docs
            .iter()
            .map(|d| as_set(std::slice::from_ref(d)).concat())
            .collect(),
    };
    let want = ordered(b.run(&scan).unwrap());
    let c = b.engine.store.collection(NS).unwrap();
    let names: Vec<String> = c.indexes().iter().map(|i| i.spec().name.clone()).collect();
    for hint in names.iter().map(Some).chain([None]) {
        let request = FindRequest {
            hint: hint.map(|n| Hint::Name(n)),
            ..scan.clone()
        };
        let got = match b.run(&request) {
            Ok(docs) => ordered(docs),
            // A wildcard index does not have a plan for every filter.
            Err(e) if hint.is_some() && e.code().0 == 291 => continue,
            Err(e) => panic!("seed {seed}: {text}: {e}"),
        };
        let what = || {
            let explain =
                b.engine
                    .explain(&b.op, &Explainable::Find(&request), Verbosity::QueryPlanner);
            super::text(&explain.unwrap())
        };
        assert_eq!(
            got,
            want,
            "seed {seed}: {text} {sort:?} by {by:?} hint {hint:?}: {}",
            what()
        );
    }
    let count = CountRequest {
        filter: f.as_doc(),
        collation: Some(by.clone()),
        ..CountRequest::new(NS)
    };
    let n = b.engine.count(&b.op, &count).unwrap();
    assert_eq!(
        n as usize,
        want.len(),
        "seed {seed}: count of {text} by {by:?}"
    );
    distinct(b, rng, &f, &by, seed);
}

/// Distinct values by every index, compared by the collation, because it depends on the plan which
/// one of equal strings is shown.
fn distinct(b: &Bench, rng: &mut Rng, f: &DocBuf, by: &Collation, seed: u64) {
    let key = rng.pick(&["a", "b", "a.x", "_id"]);
    let natural = doc! { "$natural": 1 };
    let values = |hint: Option<Hint<'_>>| {
        let request = DistinctRequest {
            namespace: NS,
            key,
            filter: f.as_doc(),
            hint,
            collation: Some(by.clone()),
            let_: Doc::EMPTY,
        };
        let found = b.engine.distinct(&b.op, &request).unwrap();
        let mut keys: Vec<_> = found.as_doc().values().map(|v| by.encoded(v)).collect();
        keys.sort();
        keys
    };
    let want = values(Some(Hint::Pattern(natural.as_doc())));
    assert_eq!(
        values(None),
        want,
        "seed {seed}: distinct {key} of {f:?} by {by:?}"
    );
}

#[test]
fn plans_agree_under_collations() {
    let (from, to) = seeds();
    for seed in from..to {
        round(seed);
    }
}

#[test]
fn an_index_serves_the_texts_of_its_own_collation() {
    let b = Bench::new();
    b.insert_json(&[
        r#"{"_id": 1, "a": "x"}"#,
        r#"{"_id": 2, "a": "X"}"#,
        r#"{"_id": 3, "a": 5}"#,
    ]);
    b.index(r#"{"key": {"a": 1}, "name": "a", "collation": {"locale": "en", "strength": 2}}"#)
        .unwrap();
    let stage = |filter: &str, by: &str, sort: &str| {
        let (f, s) = (j(filter), j(sort));
        let request = FindRequest {
            filter: f.as_doc(),
            sort: s.as_doc(),
            collation: Some(collation(by)),
            ..FindRequest::new(NS)
        };
        let text = super::text(&b.explain(&request));
        let sorts = text.contains(r#""stage":"SORT""#);
        (
            text.contains("IXSCAN"),
            sorts,
            b.run(&request).unwrap().len(),
        )
    };
    let own = r#"{"locale": "en", "strength": 2}"#;
    let other = r#"{"locale": "en", "strength": 1}"#;
    let simple = r#"{"locale": "simple"}"#;
    assert_eq!(stage(r#"{"a": "x"}"#, own, "{}"), (true, false, 2));
    assert_eq!(stage(r#"{"a": "x"}"#, other, "{}"), (false, false, 2));
    assert_eq!(stage(r#"{"a": "x"}"#, simple, "{}"), (false, false, 1));
    // Numbers are the same under all collations.
    assert_eq!(stage(r#"{"a": 5}"#, simple, "{}"), (true, false, 1));
    assert_eq!(stage("{}", own, r#"{"a": 1}"#), (true, false, 3));
    assert_eq!(stage("{}", simple, r#"{"a": 1}"#), (false, true, 3));
    assert_eq!(
        stage(r#"{"a": {"$gt": 1}}"#, simple, r#"{"a": 1}"#),
        (true, false, 1)
    );
    // A regular expression is never answered by the keys alone.
    assert_eq!(
        stage(r#"{"a": {"$regex": "^x"}}"#, own, "{}"),
        (false, false, 1)
    );
}

#[test]
fn ids_collate_with_their_collection() {
    let b = Bench::new();
    let options = muniment_storage::CollectionOptions {
        document: doc! { "collation": doc! { "locale": "en", "strength": 2 } },
        ..Default::default()
    };
    b.engine
        .create_collection(NS, options, &OpContext::internal("create"))
        .unwrap();
    b.insert_json(&[r#"{"_id": "b", "n": 1}"#, r#"{"_id": "A", "n": 2}"#]);
    let twice = b.insert(&[j(r#"{"_id": "B"}"#)]);
    assert_eq!(twice.errors[0].error.code().0, 11000);
    assert_eq!(b.find(r#"{"_id": "B"}"#), [r#"{"_id":"b","n":1}"#]);
    b.update(r#"{"_id": "a"}"#, r#"{"$set": {"n": 3}}"#, false)
        .unwrap();
    assert_eq!(b.find(r#"{"n": 3}"#), [r#"{"_id":"A","n":3}"#]);
    // Compared by bytes, this is another `_id`.
    let f = j(r#"{"_id": "a"}"#);
    let simple = FindRequest {
        filter: f.as_doc(),
        collation: Some(Collation::SIMPLE),
        ..FindRequest::new(NS)
    };
    assert!(b.run(&simple).unwrap().is_empty());
    assert_eq!(b.delete(r#"{"_id": "a"}"#, false).unwrap().matched, 1);
    assert_eq!(b.find("{}").len(), 1);
}
