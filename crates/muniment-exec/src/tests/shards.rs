//! Several engines as the shards of a cluster: what is split over them and put together by a router has the answer
//! of one engine with all documents.

use super::metamorphic::{as_set, seeds};
use super::pipelines::{by_value, shown};
use super::*;
use crate::run::current::CurrentOp;
use crate::verbs::aggregate::link::Link;
use bytes::Bytes;
use muniment_query::split::{Division, FindParts, split, split_find};
use muniment_query::{DocStream, QueryContext, Runtime};
use muniment_value::{ArrayBuf, doc};
use testkit::random::Rng;

/// One engine with all documents, and several with a part of them each.
struct Cluster {
    whole: Bench,
    shards: Vec<Bench>,
}

/// The documents that a shard has sent.
struct Sent(std::vec::IntoIter<DocBuf>);

impl DocStream for Sent {
    fn next(&mut self) -> Result<Option<Bytes>> {
        Ok(self.0.next().map(|d| d.into_bytes().into()))
    }
}

fn drain(mut s: Box<dyn DocStream>) -> Result<Vec<DocBuf>> {
    let mut all = Vec::new();
    while let Some(d) = s.next()? {
        all.push(Doc::new(&d).to_buf());
    }
    Ok(all)
}

impl Cluster {
    fn new(rng: &mut Rng, docs: &[DocBuf]) -> Cluster {
        let shards = [1, 3][rng.below(2)];
        let mut parts = vec![Vec::new(); shards];
        for d in docs {
            parts[rng.below(shards)].push(d.clone());
        }
        let filled = |docs: &[DocBuf]| {
            let b = Bench::new();
            b.collection().unwrap();
            assert!(b.insert(docs).errors.is_empty());
            b
        };
        Cluster {
            whole: filled(docs),
            shards: parts.iter().map(|p| filled(p)).collect(),
        }
    }

    /// Creates an index everywhere. One that an engine refuses for its documents does not matter here.
    fn index(&self, spec: &str) {
        for b in self.shards.iter().chain([&self.whole]) {
            let _ = b.index(spec);
        }
    }

    fn streams(&self, mut of: impl FnMut(&Bench) -> Result<Vec<DocBuf>>) -> Result<Streams> {
        let mut streams: Streams = Vec::new();
        for b in &self.shards {
            let docs = of(b)?;
            for d in &docs {
                muniment_value::validate(d.as_bytes()).unwrap();
            }
            streams.push(Box::new(Sent(docs.into_iter())));
        }
        Ok(streams)
    }

    /// The answer of one engine.
    fn alone(&self, stages: &ArrayBuf) -> Result<Vec<DocBuf>> {
        aggregate(&self.whole, &aggregation(stages.as_doc()))
    }

    /// The answer of the cluster, whose router finds other collections in the engine with all documents.
    fn routed(&self, stages: &ArrayBuf) -> Result<Vec<DocBuf>> {
        let mut ctx = QueryContext::new();
        ctx.db = "test".to_string();
        ctx.collection = "c".to_string();
        let Division::Split(split) = split(stages.as_doc(), &ctx)? else {
            panic!("{stages:?} is not split");
        };
        let streams = self.streams(|b| {
            let request = AggregateRequest {
                member: true,
                ..aggregation(split.shards.as_doc())
            };
            aggregate(b, &request)
        })?;
        drain(split.open(streams, &self.runtime())?)
    }

    fn runtime(&self) -> Runtime {
        let current = CurrentOp::new(&self.whole.op);
        let request = aggregation(Doc::EMPTY);
        let link = Link::new(&self.whole.engine, &current, &request).unwrap();
        link.runtime().unwrap()
    }

    fn compare(&self, pipeline: &str, show: impl Fn(&[DocBuf]) -> Vec<String>) {
        let stages = stages(pipeline);
        let want = self.alone(&stages).map(|l| show(&l));
        let got = self.routed(&stages).map(|l| show(&l));
        match (&want, &got) {
            (Ok(w), Ok(g)) if w == g => {}
            (Err(w), Err(g)) if w.code() == g.code() => {}
            // A sort on one engine, or on a shard, may have met documents that the other one left out before.
            (Err(e), _) | (_, Err(e)) if e.message().contains("parallel arrays") => {}
            _ => panic!("{pipeline}\nwant {want:#?}\ngot {got:#?}"),
        }
    }
}

type Streams = Vec<Box<dyn DocStream>>;

fn stages(pipeline: &str) -> ArrayBuf {
    let p = j(&format!("{{\"p\": {pipeline}}}"));
    p.as_doc().get_array("p").unwrap().values().collect()
}

fn aggregate(b: &Bench, request: &AggregateRequest<'_>) -> Result<Vec<DocBuf>> {
    let mut cursor = b.engine.aggregate(&b.op, request)?;
    let mut out = Vec::new();
    while let Some(d) = cursor.next_doc(&b.op)? {
        out.push(DocBuf::from_doc(Doc::new(&d)));
    }
    Ok(out)
}

fn in_order(docs: &[DocBuf]) -> Vec<String> {
    shown(docs, true)
}

/// Random documents in a cluster with random indexes.
fn random(rng: &mut Rng) -> Cluster {
    let arrays = rng.below(3) > 0;
    let all: Vec<DocBuf> = (0..80).map(|i| rng.document(i, arrays)).collect();
    let c = Cluster::new(rng, &all);
    for _ in 0..rng.below(3) {
        c.index(rng.index());
    }
    c
}

#[test]
fn random_pipelines_agree() {
    let (from, to) = seeds();
    for seed in from..to {
        let mut rng = Rng::new(seed ^ 0x5A4D);
        let c = random(&mut rng);
        for _ in 0..40 {
            let (stages, sorted) = rng.pipeline();
            let has = |name: &str| stages.iter().any(|s| s.starts_with(&format!("{{\"{name}")));
            // After an unwind several documents have the same `_id`, by which ties in sorts are decided.
            let unwinds = has("$unwind");
            if unwinds && (has("$limit") || has("$skip")) {
                continue;
            }
            let text = format!("[{}]", stages.join(", "));
            match has("$group") || has("$sortByCount") {
                true => c.compare(&text, by_value),
                false => c.compare(&text, |l| shown(l, sorted && !unwinds)),
            }
        }
    }
}

#[test]
fn stages_of_the_router_agree() {
    let mut rng = Rng::new(11);
    for _ in 0..4 {
        let c = random(&mut rng);
        c.whole
            .engine
            .insert_many(
                &c.whole.op,
                "test.other",
                &each(&[j(r#"{"_id": 1, "x": 2}"#), j(r#"{"_id": 2, "x": 3}"#)]),
                InsertOptions::default(),
            )
            .unwrap();
        let lookup = r#"{"$lookup": {"from": "c", "localField": "_id", "foreignField": "a", "as": "j"}},
            {"$set": {"j": {"$size": "$j"}}}"#;
        for text in [
            format!("[{lookup}]"),
            format!(r#"[{{"$match": {{"a": {{"$gt": 1}}}}}}, {lookup}, {{"$match": {{"b": 1}}}}]"#),
            r#"[{"$lookup": {"from": "other", "as": "o", "let": {"a": "$a"}, "pipeline":
                [{"$match": {"$expr": {"$eq": ["$x", "$$a"]}}}]}}, {"$unwind": "$o"}]"#
                .to_string(),
            r#"[{"$graphLookup": {"from": "other", "startWith": "$a", "connectFromField": "x",
                "connectToField": "_id", "as": "g"}}, {"$set": {"g": {"$size": "$g"}}}]"#
                .to_string(),
            r#"[{"$match": {"_id": {"$lt": 5}}}, {"$unionWith": "other"}]"#.to_string(),
            r#"[{"$facet": {"n": [{"$count": "n"}], "m": [{"$sort": {"_id": -1}}, {"$limit": 2}]}}]"#
                .to_string(),
            r#"[{"$group": {"_id": null, "": {"$sum": 1}}}]"#.to_string(),
            r#"[{"$group": {"_id": {"$literal": "x"}, "n": {"$sum": 1}}}]"#.to_string(),
            r#"[{"$match": {"_id": {"$lt": 7}}}, {"$count": "n"}]"#.to_string(),
            r#"[{"$bucketAuto": {"groupBy": "$_id", "buckets": 3}}]"#.to_string(),
            r#"[{"$setWindowFields": {"sortBy": {"_id": 1}, "output": {"n": {"$documentNumber": {}}}}}]"#
                .to_string(),
        ] {
            c.compare(&text, as_set);
        }
        for (writer, target) in [
            (r#"{"$out": "made"}"#, "test.made"),
            (r#"{"$merge": {"into": "merged"}}"#, "test.merged"),
        ] {
            let stages = stages(&format!(
                r#"[{{"$match": {{"_id": {{"$lt": 40}}}}}}, {{"$project": {{"a": 1}}}}, {writer}]"#
            ));
            assert!(c.routed(&stages).unwrap().is_empty());
            let made = c.whole.run(&FindRequest::new(target)).unwrap();
            let again = c.alone(&stages).unwrap();
            assert!(again.is_empty());
            assert_eq!(
                as_set(&made),
                as_set(&c.whole.run(&FindRequest::new(target)).unwrap())
            );
            assert_eq!(made.len(), 40);
        }
    }
}

/// A stage that describes a collection describes each shard's.
#[test]
fn reports_come_from_each_shard() {
    let mut rng = Rng::new(3);
    let c = random(&mut rng);
    c.index(r#"{"key": {"z": 1}, "name": "z"}"#);
    let stages = stages(r#"[{"$indexStats": {}}, {"$match": {"name": "z"}}]"#);
    let got = c.routed(&stages).unwrap();
    assert_eq!(got.len(), c.shards.len());
    let named = |d: &DocBuf| d.as_doc().get_str("name") == Some("z");
    assert!(got.iter().all(named), "{got:?}");
}

/// Places and texts, whose order only an index of a shard knows.
fn places(rng: &mut Rng) -> Cluster {
    let docs: Vec<DocBuf> = (0..40)
        .map(|i| {
            let words =
                (0..1 + i % 4).map(|n| ["tea", "milk", "sun"][(i as usize * 7 + n as usize) % 3]);
            doc! {
                "_id": i,
                // No two distances are equal.
                "p": muniment_value::array![i * 37 % 41, 0],
                "t": words.collect::<Vec<_>>().join(" "),
                "k": i % 3,
            }
        })
        .collect();
    let c = Cluster::new(rng, &docs);
    c.index(r#"{"key": {"p": "2d"}, "name": "p_2d"}"#);
    c.index(r#"{"key": {"t": "text"}, "name": "t_text"}"#);
    c
}

const NEAR: &str = r#"{"$geoNear": {"near": [0, 0], "distanceField": "d"}}"#;
const TEXT: &str = r#"{"$match": {"$text": {"$search": "tea milk"}}}"#;

#[test]
fn distances_and_scores_agree() {
    let mut rng = Rng::new(5);
    for _ in 0..6 {
        let c = places(&mut rng);
        for (text, ordered) in [
            (format!("[{NEAR}]"), true),
            (
                format!(r#"[{{"$match": {{}}}}, {NEAR}, {{"$project": {{"k": 1}}}}]"#),
                true,
            ),
            (
                format!(r#"[{NEAR}, {{"$skip": 3}}, {{"$limit": 9}}]"#),
                true,
            ),
            (
                format!(
                    r#"[{NEAR}, {{"$limit": 9}}, {{"$set": {{"m": {{"$meta": "geoNearDistance"}}}}}}]"#
                ),
                true,
            ),
            (
                format!(r#"[{NEAR}, {{"$group": {{"_id": "$k", "f": {{"$first": "$_id"}}}}}}]"#),
                false,
            ),
            (
                format!(r#"[{NEAR}, {{"$sort": {{"_id": -1}}}}, {{"$limit": 5}}]"#),
                true,
            ),
            (format!("[{TEXT}]"), false),
            (
                format!(
                    r#"[{TEXT}, {{"$sort": {{"s": {{"$meta": "textScore"}}, "_id": 1}}}}, {{"$project": {{"k": 1}}}}]"#
                ),
                true,
            ),
            (
                format!(
                    r#"[{TEXT}, {{"$sort": {{"_id": 1}}}}, {{"$limit": 4}}, {{"$set": {{"s": {{"$meta": "textScore"}}}}}}]"#
                ),
                true,
            ),
            (
                format!(
                    r#"[{TEXT}, {{"$group": {{"_id": {{"$meta": "textScore"}}, "n": {{"$sum": 1}}}}}}]"#
                ),
                false,
            ),
        ] {
            c.compare(&text, |l| shown(l, ordered));
        }
    }
}

/// The answers of one engine and of the cluster to a find.
fn finds(c: &Cluster, request: &FindRequest<'_>) -> (Result<Vec<DocBuf>>, Result<Vec<DocBuf>>) {
    let routed = || {
        let parts = FindParts {
            filter: request.filter,
            sort: request.sort,
            skip: request.skip,
            limit: request.limit,
        };
        let split = split_find(&parts, &QueryContext::new())?;
        let streams = c.streams(|b| {
            b.run(&FindRequest {
                skip: 0,
                limit: split.limit,
                sort_key: split.sort_key,
                ..request.clone()
            })
        })?;
        drain(split.open(streams, &c.runtime()))
    };
    (c.whole.run(request), routed())
}

#[test]
fn random_finds_agree() {
    let (from, to) = seeds();
    for seed in from..to {
        let mut rng = Rng::new(seed ^ 0xF12D);
        let c = random(&mut rng);
        for _ in 0..40 {
            let filter = j(&rng.filter(2));
            let sorted = rng.below(3) > 0;
            let sort = if sorted {
                j(&rng.sort())
            } else {
                DocBuf::new()
            };
            let projection =
                j(rng.pick(&["{}", r#"{"b": 1, "_id": 0}"#, r#"{"a": 0}"#, r#"{"c": 1}"#]));
            let request = FindRequest {
                filter: filter.as_doc(),
                sort: sort.as_doc(),
                projection: projection.as_doc(),
                skip: if sorted { rng.below(5) as u64 } else { 0 },
                limit: if sorted { rng.below(9) as u64 } else { 0 },
                show_record_id: false,
                ..FindRequest::new(NS)
            };
            let (want, got) = finds(&c, &request);
            match (want, got) {
                (Ok(w), Ok(g)) => assert_eq!(
                    shown(&g, sorted),
                    shown(&w, sorted),
                    "seed {seed} {request:?}"
                ),
                (Err(w), Err(g)) if w.code() == g.code() => {}
                (Err(e), _) | (_, Err(e)) if e.message().contains("parallel arrays") => {}
                (w, g) => panic!("seed {seed} {request:?}: {w:?} {g:?}"),
            }
        }
    }
}

#[test]
fn finds_by_distance_and_score_agree() {
    let mut rng = Rng::new(6);
    for _ in 0..6 {
        let c = places(&mut rng);
        for (filter, sort, projection) in [
            (r#"{"p": {"$near": [0, 0]}}"#, "{}", "{}"),
            (
                r#"{"p": {"$near": [0, 0]}}"#,
                r#"{"_id": -1}"#,
                r#"{"k": 1}"#,
            ),
            (
                r#"{"$text": {"$search": "tea milk"}}"#,
                r#"{"s": {"$meta": "textScore"}, "_id": 1}"#,
                r#"{"k": 1}"#,
            ),
            (r#"{"_id": 7}"#, r#"{"k": 1}"#, "{}"),
        ] {
            let (f, s, p) = (j(filter), j(sort), j(projection));
            for (skip, limit) in [(0, 0), (3, 8)] {
                let request = FindRequest {
                    filter: f.as_doc(),
                    sort: s.as_doc(),
                    projection: p.as_doc(),
                    skip,
                    limit,
                    ..FindRequest::new(NS)
                };
                let (want, got) = finds(&c, &request);
                assert_eq!(
                    in_order(&got.unwrap()),
                    in_order(&want.unwrap()),
                    "{filter} {sort}"
                );
            }
        }
    }
}

/// A sort key is no reason to read documents that an index covers.
#[test]
fn sort_keys_come_from_a_covering_index() {
    use std::sync::atomic::Ordering::Relaxed;
    let b = Bench::new();
    b.index(r#"{"key": {"a": 1, "b": 1}, "name": "ab"}"#)
        .unwrap();
    b.insert_json(&[
        r#"{"_id": 1, "a": 5, "b": 1}"#,
        r#"{"_id": 2, "a": 3, "b": 2}"#,
    ]);
    let examined = || b.op.counters.docs_examined.load(Relaxed);
    let (filter, projection) = (
        j(r#"{"a": {"$gt": 0}}"#),
        j(r#"{"a": 1, "b": 1, "_id": 0}"#),
    );
    for (sort, reads) in [(r#"{"a": 1}"#, 0), (r#"{"a": 1, "c": 1}"#, 2)] {
        let sort = j(sort);
        let request = FindRequest {
            filter: filter.as_doc(),
            sort: sort.as_doc(),
            projection: projection.as_doc(),
            sort_key: true,
            ..FindRequest::new(NS)
        };
        let before = examined();
        let got = b.run(&request).unwrap();
        assert_eq!(examined() - before, reads, "{sort:?}");
        assert_eq!(got[0].as_doc().get("a").unwrap().to_display(), "3");
        let list = muniment_value::array![
            doc! { "$match": filter.as_doc() },
            doc! { "$sort": sort.as_doc() },
            doc! { "$project": projection.as_doc() },
            doc! { "$_internalToRouter": doc! { "sortKey": true, "metadata": ArrayBuf::new() } },
        ];
        let request = AggregateRequest {
            member: true,
            ..aggregation(list.as_doc())
        };
        let before = examined();
        let streamed = aggregate(&b, &request).unwrap();
        assert_eq!(examined() - before, reads, "{sort:?}");
        assert_eq!(streamed, got);
    }
}

#[test]
fn only_a_find_with_an_order_has_sort_keys() {
    let b = Bench::new();
    b.insert_json(&[r#"{"_id": 1, "a": 5}"#]);
    let (sort, natural) = (j(r#"{"a": 1}"#), j(r#"{"$natural": 1}"#));
    let of = |sort| FindRequest {
        sort,
        sort_key: true,
        ..FindRequest::new(NS)
    };
    let got = b.run(&of(sort.as_doc())).unwrap();
    let names: Vec<&str> = got[0].as_doc().iter().map(|e| e.name()).collect();
    assert_eq!(names, ["_id", "a", "$sortKey"]);
    for sort in [Doc::EMPTY, natural.as_doc()] {
        assert_eq!(b.run(&of(sort)).unwrap_err().code().0, 2);
    }
    // Nor has a client's aggregation the stages of members.
    let p = stages(
        r#"[{"$sort": {"a": 1}}, {"$_internalToRouter": {"sortKey": true, "metadata": []}}]"#,
    );
    assert_eq!(
        aggregate(&b, &aggregation(p.as_doc()))
            .unwrap_err()
            .code()
            .0,
        40324
    );
}
