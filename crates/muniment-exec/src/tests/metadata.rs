//! Metadata that goes with documents: from the plan, through the stages, into `{$meta: …}`.

use super::*;

/// The results of a pipeline as JSON, or the error's code.
fn run(b: &Bench, pipeline: &str) -> std::result::Result<Vec<String>, i32> {
    let p = j(&format!("{{\"p\": {pipeline}}}"));
    let request = aggregation(p.as_doc().get_array("p").unwrap());
    let collect = || {
        let mut cursor = b.engine.aggregate(&b.op, &request)?;
        let mut out = Vec::new();
        while let Some(d) = cursor.next_doc(&b.op)? {
            // A document that goes to a client must not have any bytes after it.
            muniment_value::validate(&d).unwrap();
            out.push(text(&d));
        }
        Ok(out)
    };
    collect().map_err(|e: muniment_value::Error| e.code().0)
}

fn places() -> Bench {
    let b = Bench::new();
    b.index(r#"{"key": {"p": "2d"}, "name": "p_2d"}"#).unwrap();
    b.index(r#"{"key": {"a": 1, "b": 1}, "name": "a_b"}"#)
        .unwrap();
    b.insert_json(&[
        r#"{"_id": 1, "p": [3, 4], "a": 5, "b": [7, 8]}"#,
        r#"{"_id": 2, "p": [0, 1], "a": 6, "b": []}"#,
    ]);
    b
}

const NEAR: &str = r#"{"$geoNear": {"near": [0, 0], "distanceField": "d"}}"#;
const ASK: &str = r#"{"$project": {"_id": 1, "d": {"$meta": "geoNearDistance"}, "l": {"$meta": "geoNearPoint"}}}"#;

#[test]
fn stages_keep_metadata() {
    let b = places();
    let both = [
        r#"{"_id":2,"d":1.0,"l":[0,1]}"#.to_string(),
        r#"{"_id":1,"d":5.0,"l":[3,4]}"#.to_string(),
    ];
    for between in [
        "",
        r#"{"$match": {"a": {"$gt": 0}}},"#,
        r#"{"$project": {"a": 1}}, {"$addFields": {"c": 1}}, {"$unset": "c"},"#,
        r#"{"$replaceRoot": {"newRoot": {"_id": "$_id"}}},"#,
        r#"{"$limit": 5}, {"$skip": 0},"#,
        r#"{"$sort": {"a": -1}},"#,
        r#"{"$sort": {"x": {"$meta": "geoNearDistance"}}}, {"$sort": {"_id": -1}},"#,
        r#"{"$set": {"u": [1]}}, {"$unwind": "$u"},"#,
        r#"{"$unwind": {"path": "$none", "preserveNullAndEmptyArrays": true}},"#,
        r#"{"$lookup": {"from": "c", "localField": "a", "foreignField": "a", "as": "j"}},"#,
        r#"{"$lookup": {"from": "c", "localField": "a", "foreignField": "a", "as": "j"}}, {"$unwind": "$j"},"#,
        r#"{"$graphLookup": {"from": "c", "startWith": "$a", "connectFromField": "z", "connectToField": "a", "as": "j"}},"#,
        r#"{"$redact": "$$KEEP"},"#,
        r#"{"$setWindowFields": {"sortBy": {"a": -1}, "output": {"r": {"$rank": {}}}}},"#,
        r#"{"$match": {"$expr": {"$gt": [{"$meta": "geoNearDistance"}, 0]}}},"#,
    ] {
        let got = run(&b, &format!("[{NEAR}, {between} {ASK}]")).unwrap();
        assert_eq!(got, both, "{between}");
    }
    let got = run(&b, &format!(r#"[{NEAR}, {{"$facet": {{"x": [{ASK}]}}}}]"#)).unwrap();
    assert_eq!(got, [format!("{{\"x\":[{}]}}", both.join(","))]);
    let got = run(
        &b,
        &format!(
            r#"[{NEAR}, {{"$group": {{"_id": {{"$meta": "geoNearDistance"}}}}}}, {{"$sort": {{"_id": 1}}}}]"#
        ),
    );
    assert_eq!(got.unwrap(), [r#"{"_id":1.0}"#, r#"{"_id":5.0}"#]);
    let got = run(
        &b,
        &format!(
            r#"[{NEAR}, {{"$group": {{"_id": null, "t": {{"$top": {{"sortBy": {{"x": {{"$meta": "geoNearDistance"}}}}, "output": "$_id"}}}}}}}}]"#
        ),
    );
    assert_eq!(got.unwrap(), [r#"{"_id":null,"t":1}"#]);
    // Stages that store whole documents drop their metadata.
    let whole = r#"{"$facet": {"x": [{"$match": {}}]}}, {"$unwind": "$x"}, {"$replaceWith": "$x"}"#;
    let kept = format!(
        r#"[{NEAR}, {{"$set": {{"m": {{"$meta": "geoNearDistance"}}}}}}, {whole}, {{"$project": {{"m": 1}}}}]"#
    );
    assert_eq!(
        run(&b, &kept).unwrap(),
        [r#"{"_id":2,"m":1.0}"#, r#"{"_id":1,"m":5.0}"#]
    );
}

#[test]
fn metadata_survive_a_sort_on_disk() {
    let b = Bench::new();
    b.index(r#"{"key": {"p": "2d"}, "name": "p_2d"}"#).unwrap();
    let docs: Vec<DocBuf> = (0..400)
        .map(|i| muniment_value::doc! { "_id": i, "p": muniment_value::array![i % 90, 0], "pad": "x".repeat(500) })
        .collect();
    b.insert(&docs);
    b.engine.set_memory_limit(20_000);
    let got = run(
        &b,
        &format!(
            r#"[{NEAR}, {{"$sort": {{"_id": 1}}}}, {{"$group": {{"_id": null, "n": {{"$sum": {{"$cond": [{{"$eq": [{{"$meta": "geoNearDistance"}}, {{"$mod": ["$_id", 90]}}]}}, 1, 0]}}}}}}}}]"#
        ),
    );
    assert_eq!(got.unwrap(), [r#"{"_id":null,"n":400}"#]);
}

#[test]
fn keys_and_sorts_are_known_where_a_plan_ends() {
    let b = places();
    for (pipeline, want) in [
        (
            r#"[{"$match": {"a": 5}}, {"$project": {"_id": 1, "k": {"$meta": "indexKey"}}}]"#,
            vec![r#"{"_id":1,"k":{"a":5,"b":7}}"#],
        ),
        (
            r#"[{"$match": {"_id": 2}}, {"$project": {"_id": 1, "k": {"$meta": "indexKey"}}}]"#,
            vec![r#"{"_id":2,"k":{"_id":2}}"#],
        ),
        (
            r#"[{"$match": {"p": 9}}, {"$project": {"_id": 1, "k": {"$meta": "indexKey"}}}]"#,
            vec![],
        ),
        (
            r#"[{"$sort": {"b": -1, "_id": 1}}, {"$project": {"_id": 1, "k": {"$meta": "sortKey"}}}]"#,
            vec![
                r#"{"_id":1,"k":[8,1]}"#,
                r#"{"_id":2,"k":[{"$undefined":true},2]}"#,
            ],
        ),
        (
            r#"[{"$limit": 2}, {"$addFields": {"c": 1}}, {"$sort": {"a": -1}}, {"$project": {"_id": 1, "k": {"$meta": "sortKey"}}}]"#,
            vec![r#"{"_id":2,"k":[6]}"#, r#"{"_id":1,"k":[5]}"#],
        ),
        (
            r#"[{"$sort": {"a": 1}}, {"$project": {"k": {"$type": {"$meta": "recordId"}}}}, {"$limit": 1}]"#,
            vec![r#"{"_id":1,"k":"long"}"#],
        ),
        (
            r#"[{"$sample": {"size": 9}}, {"$project": {"_id": 0, "k": {"$type": {"$meta": "randVal"}}}}, {"$limit": 1}]"#,
            vec![r#"{"k":"double"}"#],
        ),
        (
            r#"[{"$project": {"_id": 1, "k": {"$meta": "randVal"}}}, {"$sort": {"_id": 1}}, {"$limit": 1}]"#,
            vec![r#"{"_id":1}"#],
        ),
    ] {
        assert_eq!(run(&b, pipeline).unwrap(), want, "{pipeline}");
    }
}

#[test]
fn what_is_not_there_cannot_be_demanded() {
    let b = places();
    for (pipeline, code) in [
        (
            r#"[{"$project": {"x": {"$meta": "textScore"}}}]"#.to_string(),
            40218,
        ),
        (format!("[{ASK}]"), 40218),
        (
            format!(r#"[{NEAR}, {{"$group": {{"_id": "$a"}}}}, {ASK}]"#),
            40218,
        ),
        (format!(r#"[{NEAR}, {{"$count": "n"}}, {ASK}]"#), 40218),
        (
            r#"[{"$sort": {"x": {"$meta": "textScore"}}}]"#.to_string(),
            40218,
        ),
        (
            format!(r#"[{NEAR}, {{"$lookup": {{"from": "c", "as": "j", "pipeline": [{ASK}]}}}}]"#),
            40218,
        ),
        (
            r#"[{"$project": {"x": {"$meta": "score"}}}]"#.to_string(),
            40218,
        ),
    ] {
        assert_eq!(run(&b, &pipeline).unwrap_err(), code, "{pipeline}");
    }
}

#[test]
fn finds_project_metadata() {
    let b = places();
    for (filter, sort, projection, want) in [
        (
            r#"{"p": {"$near": [0, 0]}}"#,
            "{}",
            r#"{"_id": 1, "d": {"$meta": "geoNearDistance"}, "l": {"$meta": "geoNearPoint"}}"#,
            vec![
                r#"{"_id":2,"d":1.0,"l":[0,1]}"#,
                r#"{"_id":1,"d":5.0,"l":[3,4]}"#,
            ],
        ),
        (
            r#"{"p": {"$near": [0, 0]}}"#,
            r#"{"a": 1}"#,
            r#"{"_id": 1, "d": {"$meta": "geoNearDistance"}, "k": {"$meta": "sortKey"}}"#,
            vec![
                r#"{"_id":1,"d":5.0,"k":[5]}"#,
                r#"{"_id":2,"d":1.0,"k":[6]}"#,
            ],
        ),
        (
            r#"{"_id": 2}"#,
            "{}",
            r#"{"_id": 1, "k": {"$meta": "indexKey"}}"#,
            vec![r#"{"_id":2,"k":{"_id":2}}"#],
        ),
        (
            "{}",
            r#"{"a": -1}"#,
            r#"{"_id": 1, "k": {"$meta": "sortKey"}}"#,
            vec![r#"{"_id":2,"k":[6]}"#, r#"{"_id":1,"k":[5]}"#],
        ),
    ] {
        let (f, s, p) = (j(filter), j(sort), j(projection));
        let request = FindRequest {
            filter: f.as_doc(),
            sort: s.as_doc(),
            projection: p.as_doc(),
            ..FindRequest::new(NS)
        };
        let got: Vec<String> = b.run(&request).unwrap().iter().map(|d| text(d)).collect();
        assert_eq!(got, want, "{filter} {sort} {projection}");
    }
    let p = j(r#"{"d": {"$meta": "geoNearDistance"}}"#);
    let request = FindRequest {
        projection: p.as_doc(),
        ..FindRequest::new(NS)
    };
    assert_eq!(b.run(&request).unwrap_err().code().0, 40218);
}
