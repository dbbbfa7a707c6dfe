//! Plans over wildcard indexes as explain shows them.

use super::explains::winner;
use super::metamorphic::as_set;
use super::*;
use muniment_value::{Code, Value, doc};
use testkit::random::Rng;

fn bench(indexes: &[&str]) -> Bench {
    let b = Bench::new();
    let docs: Vec<DocBuf> = (0..100)
        .map(|i| {
            doc! {
                "_id": i,
                "t": i % 5,
                "a": i,
                "o": doc! { "x": i % 10, "y": "s" },
                "l": muniment_value::array![i, i + 1],
                "m": muniment_value::array![doc! { "x": i }],
            }
        })
        .collect();
    assert!(b.insert(&docs).errors.is_empty());
    for i in indexes {
        b.index(i).unwrap();
    }
    b
}

fn plan(b: &Bench, filter: &str, sort: &str, projection: &str) -> String {
    let (filter, sort, projection) = (j(filter), j(sort), j(projection));
    winner(&b.explain(&FindRequest {
        filter: filter.as_doc(),
        sort: sort.as_doc(),
        projection: projection.as_doc(),
        ..FindRequest::new(NS)
    }))
}

#[test]
fn one_path_of_the_filter_makes_the_index() {
    let b = bench(&[r#"{"key": {"$**": 1}, "name": "w"}"#]);
    for (filter, sort, projection, want) in [
        (
            r#"{"a": 5}"#,
            "{}",
            "{}",
            r#"FETCH < IXSCAN w {$_path: ["a", "a"]; a: [5, 5]}"#,
        ),
        (
            r#"{"o.x": {"$in": [1, 2]}, "zz": {"$exists": false}}"#,
            "{}",
            "{}",
            r#"FETCH +filter < IXSCAN w {$_path: ["o.x", "o.x"]; o.x: [1, 1] [2, 2]}"#,
        ),
        (
            r#"{"o": {"$exists": true}}"#,
            "{}",
            "{}",
            r#"FETCH +filter < IXSCAN w {$_path: ["o", "o"] ["o.", "o/"); o: [MinKey, MaxKey]}"#,
        ),
        (
            r#"{"a": {"$ne": null}}"#,
            "{}",
            "{}",
            r#"FETCH +filter < IXSCAN w {$_path: ["a", "a"] ["a.", "a/"); a: [MinKey, MaxKey]}"#,
        ),
        (
            r#"{"a": {}}"#,
            "{}",
            "{}",
            r#"FETCH +filter < IXSCAN w {$_path: ["a", "a"]; a: [{}, {}]}"#,
        ),
        // The scan comes in the sort's order, and the plan reads only keys.
        (
            r#"{"a": {"$gt": 90}}"#,
            r#"{"a": -1}"#,
            r#"{"_id": 0, "a": 1}"#,
            r#"PROJECTION_COVERED < IXSCAN w backward {$_path: ["a", "a"]; a: [inf, 90)}"#,
        ),
        // With arrays, neither is possible.
        (
            r#"{"l": {"$gt": 90}}"#,
            r#"{"l": 1}"#,
            r#"{"_id": 0, "l": 1}"#,
            r#"PROJECTION_SIMPLE < SORT < FETCH < IXSCAN w {$_path: ["l", "l"]; l: (90, inf]}"#,
        ),
        (
            r#"{"$or": [{"a": 1}, {"o.x": 2}]}"#,
            "{}",
            "{}",
            r#"SUBPLAN < FETCH < OR [IXSCAN w {$_path: ["a", "a"]; a: [1, 1]}] [IXSCAN w {$_path: ["o.x", "o.x"]; o.x: [2, 2]}]"#,
        ),
        // The index cannot serve filters that match a document without the field, or that ask for a
        // whole document.
        (r#"{"a": null}"#, "{}", "{}", "COLLSCAN +filter"),
        (r#"{"a": {"$ne": 3}}"#, "{}", "{}", "COLLSCAN +filter"),
        (
            r#"{"a": {"$exists": false}}"#,
            "{}",
            "{}",
            "COLLSCAN +filter",
        ),
        (
            r#"{"o": {"x": 1, "y": "s"}}"#,
            "{}",
            "{}",
            "COLLSCAN +filter",
        ),
        (r#"{"o": {"$gt": {}}}"#, "{}", "{}", "COLLSCAN +filter"),
        (r#"{"l": [1, 2]}"#, "{}", "{}", "COLLSCAN +filter"),
        (r#"{"l.0": 1}"#, "{}", "{}", "COLLSCAN +filter"),
        (r#"{"l": {"$ne": null}}"#, "{}", "{}", "COLLSCAN +filter"),
        (
            r#"{"_id": {"$gt": 98}}"#,
            "{}",
            "{}",
            "FETCH < IXSCAN _id_ {_id: (98, inf]}",
        ),
        ("{}", r#"{"a": 1}"#, "{}", "SORT < COLLSCAN"),
    ] {
        assert_eq!(plan(&b, filter, sort, projection), want, "{filter}");
    }
}

#[test]
fn other_fields_stand_before_and_behind() {
    let b =
        bench(&[r#"{"key": {"t": 1, "$**": -1}, "name": "tw", "wildcardProjection": {"t": 0}}"#]);
    for (filter, sort, want) in [
        (
            r#"{"t": 1, "a": {"$gt": 90}}"#,
            r#"{"a": 1}"#,
            r#"FETCH < IXSCAN tw backward {t: [1, 1]; $_path: ["a", "a"]; a: (90, inf]}"#,
        ),
        (
            r#"{"t": {"$gte": 4}}"#,
            "{}",
            r#"FETCH < IXSCAN tw {t: [4, inf]; $_path: [MinKey, MinKey] ["", {})}"#,
        ),
        (r#"{"a": 4}"#, "{}", "COLLSCAN +filter"),
    ] {
        assert_eq!(plan(&b, filter, sort, "{}"), want, "{filter}");
    }
    assert_eq!(b.find(r#"{"t": {"$gte": 4}}"#).len(), 20);
}

#[test]
fn explain_names_the_path() {
    let b = bench(&[r#"{"key": {"$**": -1}, "name": "w"}"#]);
    let filter = j(r#"{"m.x": 7}"#);
    let explained = b.explain(&FindRequest {
        filter: filter.as_doc(),
        ..FindRequest::new(NS)
    });
    let shown = text(&explained);
    for part in [
        r#""keyPattern":{"$_path":1,"m.x":-1}"#,
        r#""isMultiKey":true,"multiKeyPaths":{"$_path":[],"m.x":["m"]}"#,
        r#""isSparse":true"#,
        r#""totalKeysExamined":1,"#,
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    // An array that comes into a field later changes the plans too.
    b.update(r#"{"_id": 3}"#, r#"{"$set": {"a": [1, 2]}}"#, false)
        .unwrap();
    assert_eq!(
        plan(&b, r#"{"a": 2}"#, "{}", r#"{"_id": 0, "a": 1}"#),
        r#"PROJECTION_SIMPLE < FETCH < IXSCAN w {$_path: ["a", "a"]; a: [2, 2]}"#
    );
    let request = |min, max| {
        let (min, max) = (j(min), j(max));
        b.run(&FindRequest {
            min: min.as_doc(),
            max: max.as_doc(),
            hint: Some(Hint::Name("w")),
            ..FindRequest::new(NS)
        })
    };
    let e = request(r#"{"a": 1}"#, "{}").unwrap_err();
    assert_eq!(e.code(), Code(51_174));
    let distinct = |filter: &str| {
        let filter = j(filter);
        let list = b.engine.distinct(
            &b.op,
            &DistinctRequest {
                namespace: NS,
                key: "o.x",
                filter: filter.as_doc(),
                hint: Some(Hint::Name("w")),
                collation: None,
                let_: Doc::EMPTY,
            },
        );
        Value::Array(list.unwrap().as_doc()).to_display()
    };
    assert_eq!(distinct(r#"{"o.x": {"$gte": 8}}"#), "[ 8, 9 ]");
}

#[test]
fn entries_and_arrays_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let options = StoreOptions::new(dir.path().join("db"));
        Database::new(Store::open(options).unwrap(), dir.path().join("db/_tmp"))
    };
    let op = OpContext::internal("test");
    for round in 0..2 {
        let engine = open();
        if round == 0 {
            let c = crate::verbs::write::perform::collection_or_create(&engine, &op, NS).unwrap();
            let spec = IndexSpec::parse(j(r#"{"key": {"$**": 1}, "name": "w"}"#).as_doc()).unwrap();
            let store = &engine.store;
            store.create_index(&c, spec, &NeverInterrupted).unwrap();
            let docs = [j(r#"{"_id": 1, "a": {"b": [1, 2]}}"#), j(r#"{"_id": 2}"#)];
            engine
                .insert_many(&op, NS, &each(&docs), InsertOptions::default())
                .unwrap();
        }
        let c = engine.store.collection(NS).unwrap();
        let index = c.indexes().iter().find(|i| !i.is_id()).cloned().unwrap();
        assert_eq!(index.multikey_path("a.b.c"), 2);
        let report = engine.store.validate(&c, true, &NeverInterrupted).unwrap();
        assert!(
            text(&report).contains(r#""valid":true"#),
            "{}",
            text(&report)
        );
        if round == 1 {
            engine.store.drop_index(&c, "w", &NeverInterrupted).unwrap();
        }
        engine.store.close().unwrap();
    }
}

/// Documents with arrays anywhere are changed at random. The indexes find the same as a scan, and
/// every entry is in its place.
#[test]
fn writes_keep_the_entries() {
    for seed in 1..20 {
        let mut rng = Rng::new(seed);
        let b = Bench::new();
        for _ in 0..3 {
            // This may ask for the same index twice, which does not matter here.
            let _ = b.index(rng.wildcard());
        }
        let document = |rng: &mut Rng, id: usize| {
            let (x, y) = (rng.value(true), rng.value(true));
            // The fields before a wildcard must not have arrays.
            let z = rng.value(false);
            j(&format!(r#"{{"_id": {id}, "a": {x}, "d": {y}, "c": {z}}}"#))
        };
        let docs: Vec<DocBuf> = (0..30).map(|i| document(&mut rng, i)).collect();
        assert!(b.insert(&docs).errors.is_empty());
        for step in 0..60 {
            let id = format!(r#"{{"_id": {}}}"#, rng.below(30));
            let v = rng.value(true);
            let update = match rng.below(5) {
                0 => format!(r#"{{"$set": {{"a": {v}}}}}"#),
                1 => format!(r#"{{"$set": {{"d.x": {v}}}}}"#),
                2 => r#"{"$unset": {"a": ""}}"#.into(),
                3 => format!(r#"{{"$push": {{"a": {v}}}}}"#),
                _ => text(&document(&mut rng, 0)).replacen(r#""_id":0,"#, "", 1),
            };
            // Some updates do not fit the document.
            let _ = b.update(&id, &update, false);
            if step % 20 == 19 {
                b.delete(&id, false).unwrap();
            }
            let shown = rng.filter(1);
            let filter = j(&shown);
            let natural = doc! { "$natural": 1 };
            let run = |hint| {
                b.run(&FindRequest {
                    filter: filter.as_doc(),
                    hint,
                    ..FindRequest::new(NS)
                })
                .map(|d| as_set(&d))
            };
            match (run(None), run(Some(Hint::Pattern(natural.as_doc())))) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "seed {seed} step {step} {shown}"),
                (Err(a), Err(b)) if a.code() == b.code() => {}
                other => panic!("seed {seed} step {step} {shown}: {other:?}"),
            }
        }
        let c = b.engine.store.collection(NS).unwrap();
        let report = b
            .engine
            .store
            .validate(&c, true, &NeverInterrupted)
            .unwrap();
        assert!(
            text(&report).contains(r#""valid":true"#),
            "{}",
            text(&report)
        );
    }
}
