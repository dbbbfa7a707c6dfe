//! Keys, paths and specifications of wildcard indexes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use muniment_value::{DocBuf, keyenc};

fn spec(json: &str) -> Result<IndexSpec> {
    IndexSpec::parse(DocBuf::from_json(&format!(r#"{{"name": "w", {json}}}"#))?.as_doc())
}

/// The keys of a document, and the paths of its arrays.
fn keys(index: &str, json: &str) -> Result<(Vec<String>, Vec<String>)> {
    let kind = open(&spec(index)?)?;
    let mut out = IndexKeys::new();
    kind.keys(DocBuf::from_json(json)?.as_doc(), &mut out, Work::unasked())?;
    let columns = kind.columns().unwrap();
    let mut shown = Vec::new();
    for (mut key, mut bits) in out.iter() {
        let mut values = Vec::new();
        for (_, descending) in &columns {
            let (v, rest) = keyenc::decode(key, *descending, &mut bits)?;
            values.push(v.as_value().to_display());
            key = rest;
        }
        shown.push(values.join("|").replace('"', ""));
    }
    Ok((shown, out.arrays().to_vec()))
}

#[test]
fn leaves_become_keys() {
    let all = r#""key": {"$**": 1}"#;
    for (index, json, want, arrays) in [
        (
            all,
            r#"{"_id": 1, "a": 5, "b": {"c": "x"}}"#,
            &["a|5", "b.c|x"][..],
            &[][..],
        ),
        (
            all,
            r#"{"a": {}, "b": [], "c": null}"#,
            &["a|{}", "b|undefined", "c|null"],
            &["b"],
        ),
        (
            all,
            r#"{"a": [1, {"b": 2, "c": [3]}, [4], {}, []]}"#,
            &["a|1", "a|{}", "a|[]", "a|[ 4 ]", "a.b|2", "a.c|3"],
            &["a", "a.c"],
        ),
        (
            all,
            r#"{"a": {"x.y": 1}, "b": {"_id": 7}}"#,
            &["a|{}", "b._id|7"],
            &[],
        ),
        (all, r#"{"": {"x": 1}, "x": 2}"#, &[".x|1", "x|2"], &[]),
        (
            r#""key": {"$**": -1}"#,
            r#"{"a": [1, 2]}"#,
            &["a|2", "a|1"],
            &["a"],
        ),
        (
            r#""key": {"a.b.$**": 1}"#,
            r#"{"a": [{"b": {"c": 1}}, {"b": 2, "d": 3}, 9], "b": 1}"#,
            &["a.b|2", "a.b.c|1"],
            &["a"],
        ),
        (
            r#""key": {"_id.$**": 1}"#,
            r#"{"_id": {"a": 1}, "b": 2}"#,
            &["_id.a|1"],
            &[],
        ),
        (
            r#""key": {"$**": 1}, "wildcardProjection": {"a": 1, "b.c": 1}"#,
            r#"{"_id": 1, "a": {"x": 1}, "b": {"c": 2, "d": 3}, "e": 4}"#,
            &["a.x|1", "b.c|2"],
            &[],
        ),
        (
            r#""key": {"$**": 1}, "wildcardProjection": {"a": {"b": 1}}"#,
            r#"{"a": [[], 5]}"#,
            &[],
            &["a"],
        ),
        (
            r#""key": {"$**": 1}, "wildcardProjection": {"a": 0, "b.c": 0}"#,
            r#"{"_id": 1, "a": {"x": 1}, "b": {"c": 2}, "e": 4}"#,
            &["b|{}", "e|4"],
            &[],
        ),
        (
            r#""key": {"$**": 1}, "wildcardProjection": {"_id": 1, "a": 0}"#,
            r#"{"_id": 1, "a": 2, "b": 3}"#,
            &["_id|1", "b|3"],
            &[],
        ),
        (
            r#""key": {"$**": 1}, "wildcardProjection": {"_id": 1}"#,
            r#"{"_id": 1, "a": 2}"#,
            &["_id|1"],
            &[],
        ),
        (
            r#""key": {"$**": 1}, "wildcardProjection": {"_id": 0}"#,
            r#"{"_id": 1, "a": 2}"#,
            &["a|2"],
            &[],
        ),
        (
            r#""key": {"t": 1, "a.$**": 1, "z": -1}"#,
            r#"{"t": 3, "a": {"x": 1, "y": 2}, "z": 4}"#,
            &["3|a.x|1|4", "3|a.y|2|4"],
            &[],
        ),
        (
            r#""key": {"t": 1, "a.$**": 1}"#,
            r#"{"t": 3}"#,
            &["3|MinKey|MinKey"],
            &[],
        ),
    ] {
        let (got, at) = keys(index, json).unwrap();
        let want: Vec<String> = want.iter().map(|s| s.to_string()).collect();
        assert_eq!(
            (got, at.as_slice()),
            (
                want,
                arrays
                    .iter()
                    .map(|s| s.to_string())
                    .collect::<Vec<_>>()
                    .as_slice()
            ),
            "{index} {json}"
        );
    }
    let e = keys(r#""key": {"t.u": 1, "a.$**": 1}"#, r#"{"t": [{"u": 1}]}"#).unwrap_err();
    assert_eq!(e.code(), Code(7_246_301));
}

#[test]
fn paths_are_covered_or_not() {
    for (index, covered, not) in [
        (
            r#""key": {"$**": 1}"#,
            &["a", "a.b", "a._id"][..],
            &["_id", "_id.a"][..],
        ),
        (
            r#""key": {"a.b.$**": 1}"#,
            &["a.b", "a.b.c"],
            &["a", "a.c", "b"],
        ),
        (
            r#""key": {"$**": 1}, "wildcardProjection": {"a": 0, "b.c": 0}"#,
            &["b", "b.d", "e"],
            &["a", "a.x", "b.c", "b.c.d"],
        ),
        (
            r#""key": {"$**": 1}, "wildcardProjection": {"a.b": 1}"#,
            &["a.b", "a.b.c"],
            &["a", "e", "_id"],
        ),
    ] {
        let w = Wildcard::of(&spec(index).unwrap()).unwrap();
        for p in covered {
            assert!(w.covers(&Path::new(p)), "{index} {p}");
        }
        for p in not {
            assert!(!w.covers(&Path::new(p)), "{index} {p}");
        }
    }
}

#[test]
fn specifications_are_checked() {
    for (index, code) in [
        (r#""key": {"$**": 1}, "unique": true"#, 67),
        (r#""key": {"$**": 1}, "sparse": true"#, 67),
        (r#""key": {"$**": 1}, "expireAfterSeconds": 5"#, 67),
        (r#""key": {"$**": 1}, "v": 1"#, 67),
        (r#""key": {"$**": 0}"#, 67),
        (r#""key": {"$**": "hashed"}"#, 67),
        (r#""key": {"$**": "wildcard"}"#, 67),
        (r#""key": {"a": "wildcard"}"#, 7_246_202),
        (r#""key": {"a.$**.b": 1}"#, 67),
        (r#""key": {"$**.$**": 1}"#, 67),
        (r#""key": {"a": 1, "$**": 1}"#, 67),
        (r#""key": {"a": "hashed", "b.$**": 1}"#, 67),
        (r#""key": {"a.$**": 1, "b.$**": 1}"#, 7_246_201),
        (r#""key": {"a.b": 1, "a.$**": 1}"#, 7_246_204),
        (
            r#""key": {"a": 1, "$**": 1}, "wildcardProjection": {"a.b": 1}"#,
            7_246_208,
        ),
        (
            r#""key": {"a": 1, "$**": 1}, "wildcardProjection": {"b": 0}"#,
            7_246_209,
        ),
        (r#""key": {"$**": 1}, "wildcardProjection": {}"#, 9),
        (r#""key": {"$**": 1}, "wildcardProjection": 5"#, 14),
        (r#""key": {"a.$**": 1}, "wildcardProjection": {"b": 1}"#, 9),
        (r#""key": {"a": 1}, "wildcardProjection": {"b": 1}"#, 2),
        (
            r#""key": {"$**": 1}, "wildcardProjection": {"a": 1, "b": 0}"#,
            31_254,
        ),
        (
            r#""key": {"$**": 1}, "wildcardProjection": {"a": 1, "a.b": 0}"#,
            31_249,
        ),
        (
            r#""key": {"$**": 1}, "wildcardProjection": {"a": "x"}"#,
            51_271,
        ),
    ] {
        assert_eq!(spec(index).unwrap_err().code(), Code(code), "{index}");
    }
    let shown = spec(r#""key": {"a": 1, "$**": -1}, "wildcardProjection": {"a": 0}"#).unwrap();
    let want = r#"{"v":2,"key":{"a":1,"$**":-1},"name":"w","wildcardProjection":{"a":0}}"#;
    assert_eq!(
        shown
            .document
            .as_doc()
            .to_json(muniment_value::JsonMode::Relaxed),
        want
    );
}
