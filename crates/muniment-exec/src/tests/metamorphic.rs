//! The same query must find the same documents whatever plan runs it.

use super::*;
use muniment_value::{Code, doc};
use testkit::random::Rng;

/// Sorted by text, with the fields of every document sorted by name (a covered query takes them
/// from the index, in its order).
pub(super) fn as_set(docs: &[DocBuf]) -> Vec<String> {
    let mut all: Vec<String> = docs
        .iter()
        .map(|d| {
            let mut fields: Vec<String> = d
                .as_doc()
                .iter()
                .map(|e| format!("{}: {:?}", e.name(), e.value()))
                .collect();
            fields.sort();
            fields.join(", ")
        })
        .collect();
    all.sort();
    all
}

fn check(b: &Bench, rng: &mut Rng, seed: u64) {
    let filter_text = rng.filter(2);
    let filter = j(&filter_text);
    let sorted = rng.below(2) == 0;
    let sort = if sorted {
        j(&rng.sort())
    } else {
        DocBuf::new()
    };
    let projection = j(rng.pick(&[
        "{}",
        "{}",
        r#"{"a": 1, "_id": 0}"#,
        r#"{"b": 1, "a": 1, "_id": 0}"#,
        r#"{"c": 1}"#,
        r#"{"_id": 1}"#,
        r#"{"a.x": 1}"#,
        r#"{"a.x": 1, "_id": 0}"#,
        r#"{"b": 1, "a.x": 1, "_id": 0}"#,
        r#"{"n": {"$ifNull": ["$a", "$b"]}, "_id": 0}"#,
        r#"{"a": 0}"#,
    ]));
    let window = sorted && rng.below(3) == 0;
    let (skip, limit) = if window {
        (rng.below(4) as u64, 1 + rng.below(6) as u64)
    } else {
        (0, 0)
    };
    let natural = doc! { "$natural": 1 };
    let base = FindRequest {
        filter: filter.as_doc(),
        sort: sort.as_doc(),
        projection: projection.as_doc(),
        skip,
        limit,
        hint: Some(Hint::Pattern(natural.as_doc())),
        ..FindRequest::new(NS)
    };
    let want = b.run(&base).map(|l| as_ordered(&l, sorted));
    let collection = b.engine.store.collection(NS).unwrap();
    let mut hints: Vec<Option<String>> = vec![None];
    for index in collection.indexes().iter() {
        let spec = index.spec();
        if !spec.sparse && spec.partial_filter.is_none() {
            hints.push(Some(spec.name.clone()));
        }
    }
    for hint in &hints {
        let request = FindRequest {
            hint: hint.as_deref().map(Hint::Name),
            ..base.clone()
        };
        // Half of the queries release their snapshot after each document and have to find their
        // place again.
        let got = if rng.below(2) == 0 {
            b.run(&request)
        } else {
            run_with_releases(b, &request)
        };
        let got = got.map(|l| as_ordered(&l, sorted));
        match (&want, &got) {
            (Ok(w), Ok(g)) if w == g => {}
            (Err(w), Err(g)) if w.code() == g.code() => {}
            // A wildcard index has no plan for a filter without its paths.
            (_, Err(g)) if g.code() == Code::NoQueryExecutionPlans && hint.is_some() => {}
            _ => {
                let explain =
                    b.engine
                        .explain(&b.op, &Explainable::Find(&request), Verbosity::QueryPlanner);
                panic!(
                    "seed {seed}\nfilter {filter_text}\nsort {sort:?} projection {projection:?} \
                     skip {skip} limit {limit} hint {hint:?}\nwant {want:#?}\ngot {got:#?}\n{}",
                    explain.map_or_else(|e| e.to_string(), |d| text(&d))
                );
            }
        }
    }
    distinct(b, rng, &filter, &hints, seed);
    if !window && let Ok(w) = &want {
        let n = b
            .engine
            .count(
                &b.op,
                &CountRequest {
                    filter: filter.as_doc(),
                    ..CountRequest::new(NS)
                },
            )
            .unwrap();
        assert_eq!(n as usize, w.len(), "seed {seed} count of {filter_text}");
    }
}

/// The distinct values of a path are the same with every index.
fn distinct(b: &Bench, rng: &mut Rng, filter: &DocBuf, hints: &[Option<String>], seed: u64) {
    let natural = doc! { "$natural": 1 };
    let key = rng.pick(&["a", "b", "c", "a.x", "b.x", "_id"]);
    let values = |hint: Option<Hint<'_>>| {
        let request = DistinctRequest {
            namespace: NS,
            key,
            filter: filter.as_doc(),
            hint,
            collation: None,
            let_: Doc::EMPTY,
        };
        b.engine.distinct(&b.op, &request).map(|list| {
            let mut keys: Vec<Vec<u8>> = list
                .as_doc()
                .values()
                .map(muniment_value::keyenc::encoded)
                .collect();
            keys.sort();
            keys
        })
    };
    let want = values(Some(Hint::Pattern(natural.as_doc())));
    for hint in hints {
        let got = values(hint.as_deref().map(Hint::Name));
        match (&want, &got) {
            (Ok(w), Ok(g)) if w == g => {}
            (Err(w), Err(g)) if w.code() == g.code() => {}
            (_, Err(g)) if g.code() == Code::NoQueryExecutionPlans && hint.is_some() => {}
            _ => panic!("seed {seed}: distinct {key} of {filter:?} by {hint:?}: {want:?}, {got:?}"),
        }
    }
}

pub(super) fn run_with_releases(b: &Bench, request: &FindRequest<'_>) -> Result<Vec<DocBuf>> {
    let mut cursor = b.engine.find(&b.op, request)?;
    let mut out = Vec::new();
    while let Some(d) = cursor.next_doc(&b.op)? {
        out.push(DocBuf::from_doc(Doc::new(&d)));
        cursor.release();
    }
    Ok(out)
}

fn as_ordered(docs: &[DocBuf], sorted: bool) -> Vec<String> {
    if sorted {
        docs.iter()
            .map(|d| as_set(std::slice::from_ref(d)).concat())
            .collect()
    } else {
        as_set(docs)
    }
}

fn round(seed: u64, docs: usize, queries: usize, index: fn(&mut Rng) -> &'static str) {
    let mut rng = Rng::new(seed);
    let b = Bench::new();
    let arrays = rng.below(3) > 0;
    let all: Vec<DocBuf> = (0..docs).map(|i| rng.document(i, arrays)).collect();
    assert!(b.insert(&all).errors.is_empty());
    for _ in 0..1 + rng.below(5) {
        // This may ask for the same index twice, or for one on arrays in two fields. Neither
        // matters here.
        let _ = b.index(index(&mut rng));
    }
    for _ in 0..queries {
        check(&b, &mut rng, seed);
    }
}

#[test]
fn plans_agree() {
    let (from, to) = seeds();
    for seed in from..to {
        round(seed, 60, 60, Rng::index);
    }
}

#[test]
fn plans_by_wildcard_indexes_agree() {
    let (from, to) = seeds();
    for seed in from..to {
        round(seed, 60, 60, Rng::wildcard);
    }
}

/// The seeds; `MUNIMENT_SEEDS=from..to` tries others.
pub(super) fn seeds() -> (u64, u64) {
    std::env::var("MUNIMENT_SEEDS")
        .ok()
        .and_then(|s| {
            let (a, b) = s.split_once("..")?;
            Some((a.parse().ok()?, b.parse().ok()?))
        })
        .unwrap_or((1, 25))
}
