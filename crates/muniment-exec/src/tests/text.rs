//! `$text` finds by the index the same as matching every document.

use super::metamorphic::run_with_releases;
use super::*;
use muniment_query::running::Work;
use muniment_query::{Filter, QueryContext};
use muniment_value::{Value, doc};
use testkit::random::Rng;

const WORDS: [&str; 16] = [
    "cat",
    "Cats",
    "dog",
    "the",
    "running",
    "run",
    "café",
    "CAFE",
    "brown",
    "fox",
    "foxes",
    "well-known",
    "it's",
    "über",
    "数据",
    "none",
];

fn words(rng: &mut Rng, most: usize) -> String {
    let list: Vec<&str> = (0..rng.below(most + 1)).map(|_| rng.pick(&WORDS)).collect();
    list.join(rng.pick(&[" ", ", ", " - "]))
}

/// A value that may stand at an indexed path; mostly text.
fn value(rng: &mut Rng) -> String {
    match rng.below(10) {
        0 => "5".into(),
        1 => format!(r#"["{}", 7, "{}"]"#, words(rng, 3), words(rng, 3)),
        2 => format!(r#"{{"c": "{}", "language": "none"}}"#, words(rng, 4)),
        3 => format!(
            r#"[{{"c": "{}"}}, {{"c": ["{}"]}}]"#,
            words(rng, 3),
            words(rng, 2)
        ),
        _ => format!(r#""{}""#, words(rng, 6)),
    }
}

fn document(rng: &mut Rng, id: usize) -> DocBuf {
    let language = match rng.below(4) {
        0 => format!(
            r#", "language": "{}""#,
            rng.pick(&["none", "french", "de", "en"])
        ),
        _ => String::new(),
    };
    j(&format!(
        r#"{{"_id": {id}, "p": {}, "a": {}, "b": {}{language}}}"#,
        rng.below(3),
        value(rng),
        value(rng),
    ))
}

const INDEXES: [&str; 7] = [
    r#"{"key": {"a": "text"}, "name": "t"}"#,
    r#"{"key": {"a": "text", "b.c": "text"}, "name": "t", "weights": {"a": 3}}"#,
    r#"{"key": {"$**": "text"}, "name": "t"}"#,
    r#"{"key": {"p": -1, "b": "text"}, "name": "t", "default_language": "none"}"#,
    r#"{"key": {"b": "text", "a.c": "text", "p": 1}, "name": "t"}"#,
    r#"{"key": {"a": "text", "_id": 1}, "name": "t", "unique": true}"#,
    r#"{"key": {"a": "text"}, "name": "t", "partialFilterExpression": {"p": {"$gt": 0}}}"#,
];

fn search(rng: &mut Rng) -> String {
    let mut parts = Vec::new();
    for _ in 0..1 + rng.below(3) {
        let word = rng.pick(&WORDS);
        parts.push(match rng.below(6) {
            0 => format!("-{word}"),
            1 => format!(r#"\"{word} {}\""#, rng.pick(&WORDS)),
            2 if rng.below(2) == 0 => format!(r#"-\"{word}\""#),
            _ => word.to_string(),
        });
    }
    let mut options = String::new();
    if rng.below(4) == 0 {
        options.push_str(&format!(
            r#", "$language": "{}""#,
            rng.pick(&["none", "fr", "english"])
        ));
    }
    for name in ["$caseSensitive", "$diacriticSensitive"] {
        if rng.below(5) == 0 {
            options.push_str(&format!(r#", "{name}": true"#));
        }
    }
    format!(r#""$text": {{"$search": "{}"{options}}}"#, parts.join(" "))
}

fn filter(rng: &mut Rng) -> String {
    let text = search(rng);
    match rng.below(5) {
        0 | 1 => format!(r#"{{{text}, "p": {}}}"#, rng.below(3)),
        2 => format!(r#"{{"p": 1, "$or": [{{{text}}}, {{"_id": {{"$lt": 9}}}}]}}"#),
        3 => format!(r#"{{{text}, "p": 2, "_id": {{"$gt": 20}}}}"#),
        4 if rng.below(3) == 0 => format!(
            r#"{{"$and": [{{"p": {}}}, {{{text}}}, {{"p": {}}}]}}"#,
            rng.below(3),
            rng.below(3)
        ),
        _ => format!(r#"{{{text}}}"#),
    }
}

fn ids(docs: &[DocBuf]) -> Vec<i64> {
    let mut ids: Vec<i64> = docs
        .iter()
        .map(|d| d.as_doc().get("_id").unwrap().as_i64_exact().unwrap())
        .collect();
    ids.sort_unstable();
    ids
}

/// Checks one filter, and returns how many documents it found. `None` if the index cannot serve it.
fn check(b: &Bench, rng: &mut Rng, text_: &str) -> Option<usize> {
    let collection = b.engine.store.collection(NS).unwrap();
    let filter = j(text_);
    let parsed = Filter::parse_query(filter.as_doc(), &QueryContext::new()).unwrap();
    let indexes = collection.indexes();
    let index = indexes.iter().find(|i| i.spec().name == "t").unwrap();
    let spec = index.kind().unwrap().text().unwrap().spec().clone();
    let bound = parsed.bind_text(&spec);
    let all = b.run(&FindRequest::new(NS)).unwrap();
    let mut want: Vec<DocBuf> = all;
    want.retain(|d| bound.matches(d.as_doc(), Work::unasked()).unwrap());
    let request = FindRequest {
        filter: filter.as_doc(),
        ..FindRequest::new(NS)
    };
    let got = match rng.below(2) {
        0 => b.run(&request),
        _ => run_with_releases(b, &request),
    };
    let got = match got {
        Ok(g) => g,
        Err(e) => {
            assert_eq!(e.code(), muniment_value::Code::NoQueryExecutionPlans, "{e}");
            return None;
        }
    };
    let context = || {
        format!(
            "{text_}\n{:?}\n{}",
            index.spec().document,
            text(&b.explain(&request))
        )
    };
    assert_eq!(ids(&got), ids(&want), "{}", context());
    let count = CountRequest {
        filter: filter.as_doc(),
        ..CountRequest::new(NS)
    };
    let n = b.engine.count(&b.op, &count).unwrap();
    assert_eq!(n, want.len() as u64, "{}", context());
    Some(want.len())
}

fn round(seed: u64) -> (usize, usize) {
    let mut rng = Rng::new(seed);
    let b = Bench::new();
    let half: Vec<DocBuf> = (0..30).map(|i| document(&mut rng, i)).collect();
    assert!(b.insert(&half).errors.is_empty());
    b.index(INDEXES[seed as usize % INDEXES.len()]).unwrap();
    let more: Vec<DocBuf> = (30..60).map(|i| document(&mut rng, i)).collect();
    assert!(b.insert(&more).errors.is_empty());
    let (mut found, mut planned) = (0, 0);
    for step in 0..60 {
        let f = filter(&mut rng);
        if let Some(n) = check(&b, &mut rng, &f) {
            found += n;
            planned += 1;
        }
        // Writes have to keep the index's entries right.
        let id = rng.below(60);
        let one = format!(r#"{{"_id": {id}}}"#);
        match step % 6 {
            0 => {
                let change = format!(r#"{{"$set": {{"a": {}}}}}"#, value(&mut rng));
                b.update(&one, &change, false).unwrap();
            }
            1 => {
                let change = format!(
                    r#"{{"$set": {{"language": "{}"}}}}"#,
                    rng.pick(&["none", "fr"])
                );
                b.update(&one, &change, false).unwrap();
            }
            2 => {
                b.update(&one, r#"{"$set": {"p": 1, "x": 5}}"#, false)
                    .unwrap();
            }
            3 => {
                // These documents are found by their words.
                let _ = b.update(&f, r#"{"$inc": {"x": 1}}"#, true);
            }
            4 if step % 12 == 4 => {
                b.delete(&one, false).unwrap();
            }
            _ => {}
        }
    }
    let collection = b.engine.store.collection(NS).unwrap();
    let report = b
        .engine
        .store
        .validate(&collection, true, &NeverInterrupted)
        .unwrap();
    let valid = report.as_doc().get("valid");
    assert!(
        matches!(valid, Some(Value::Bool(true))),
        "{seed}: {report:?}"
    );
    (found, planned)
}

#[test]
fn the_index_finds_what_matching_finds() {
    let (mut found, mut planned) = (0, 0);
    for seed in 0..14 {
        let (f, p) = round(seed);
        found += f;
        planned += p;
    }
    assert!(found > 500 && planned > 300, "{found} {planned}");
}

#[test]
fn writes_find_their_documents_by_words() {
    let b = Bench::new();
    b.index(INDEXES[0]).unwrap();
    b.insert_json(&[
        r#"{"_id": 1, "a": "red cats"}"#,
        r#"{"_id": 2, "a": "a dog"}"#,
        r#"{"_id": 3, "a": "the cat"}"#,
    ]);
    let cat = r#"{"$text": {"$search": "cat"}}"#;
    assert_eq!(
        b.update(cat, r#"{"$set": {"a": "bird"}}"#, true)
            .unwrap()
            .matched,
        2
    );
    assert!(b.find(cat).is_empty());
    let bird = r#"{"$text": {"$search": "birds"}}"#;
    assert_eq!(b.find(bird).len(), 2);
    assert_eq!(b.delete(bird, false).unwrap().matched, 1);
    assert_eq!(b.find(bird).len(), 1);
}

#[test]
fn a_search_needs_its_index() {
    let b = Bench::new();
    b.insert_json(&[r#"{"_id": 1, "p": 1, "a": "cat"}"#]);
    let code = |b: &Bench, filter: &str, hint: Option<Hint<'_>>| {
        let filter = j(filter);
        let request = FindRequest {
            filter: filter.as_doc(),
            hint,
            ..FindRequest::new(NS)
        };
        b.run(&request).unwrap_err().code().0
    };
    let cat = r#"{"$text": {"$search": "cat"}}"#;
    assert_eq!(code(&b, cat, None), 27);
    b.index(r#"{"key": {"p": 1, "a": "text"}, "name": "t"}"#)
        .unwrap();
    assert_eq!(code(&b, cat, None), 291);
    assert_eq!(code(&b, cat, Some(Hint::Name("t"))), 2);
    let or = r#"{"p": 1, "$or": [{"$text": {"$search": "cat"}}, {"b": 1}]}"#;
    assert_eq!(code(&b, or, None), 291);
    let range = r#"{"p": {"$gt": 0}, "$text": {"$search": "cat"}}"#;
    assert_eq!(code(&b, range, None), 291);
    // A text index serves no other query.
    assert_eq!(code(&b, r#"{"p": 1}"#, Some(Hint::Name("t"))), 291);
    assert_eq!(b.find(r#"{"p": 1, "$text": {"$search": "cat"}}"#).len(), 1);
}

#[test]
fn explain_shows_the_search() {
    let b = Bench::new();
    b.index(r#"{"key": {"p": 1, "a": "text"}, "name": "t"}"#)
        .unwrap();
    let docs: Vec<DocBuf> = (0..100)
        .map(|i| doc! { "_id": i, "p": 1, "a": if i % 10 == 0 { "cat dog" } else { "dog bird" } })
        .collect();
    assert!(b.insert(&docs).errors.is_empty());
    let filter = j(r#"{"p": 1, "$text": {"$search": "cat -bird fish"}}"#);
    let request = FindRequest {
        filter: filter.as_doc(),
        ..FindRequest::new(NS)
    };
    let d = b.explain(&request);
    let planner = d.as_doc().get_doc("queryPlanner").unwrap();
    let plan = planner.get_doc("winningPlan").unwrap();
    assert_eq!(plan.get_str("stage"), Some("TEXT_MATCH"));
    assert_eq!(
        plan.get_doc("indexPrefix").unwrap().to_buf(),
        doc! { "p": 1 }
    );
    assert_eq!(
        plan.get_doc("parsedTextQuery").unwrap().to_buf(),
        j(
            r#"{"terms": ["cat", "fish"], "negatedTerms": ["bird"], "phrases": [], "negatedPhrases": []}"#
        )
    );
    let fetch = plan.get_doc("inputStage").unwrap();
    assert_eq!(fetch.get_str("stage"), Some("FETCH"));
    assert_eq!(
        fetch.get_doc("inputStage").unwrap().get_str("stage"),
        Some("OR")
    );
    let parsed = planner.get_doc("parsedQuery").unwrap().to_buf();
    assert!(
        text(&parsed).contains(r#""$language":"english""#),
        "{}",
        text(&parsed)
    );
    let stats = d.as_doc().get_doc("executionStats").unwrap();
    let figure = |name: &str| stats.get(name).unwrap().as_i64_exact().unwrap();
    assert_eq!((figure("nReturned"), figure("totalKeysExamined")), (10, 10));
    assert_eq!(figure("totalDocsExamined"), 10);
    // A count reads only keys.
    let filter = j(r#"{"p": 1, "$text": {"$search": "cat bird"}}"#);
    let count = CountRequest {
        filter: filter.as_doc(),
        ..CountRequest::new(NS)
    };
    let d = b
        .engine
        .explain(
            &b.op,
            &Explainable::Count(&count),
            Verbosity::ExecutionStats,
        )
        .unwrap();
    let stats = d.as_doc().get_doc("executionStats").unwrap();
    assert_eq!(
        stats.get("totalDocsExamined").unwrap().as_i64_exact(),
        Some(0)
    );
    assert_eq!(
        stats.get("totalKeysExamined").unwrap().as_i64_exact(),
        Some(100)
    );
}

#[test]
fn scores_sort_before_documents_are_read() {
    let b = Bench::new();
    b.index(INDEXES[0]).unwrap();
    let docs: Vec<DocBuf> = (0..500)
        .map(|i| {
            let others = vec!["dog"; 1 + i as usize % 50].join(" ");
            doc! { "_id": i, "p": i % 7, "a": format!("cat {others}").as_str() }
        })
        .collect();
    assert!(b.insert(&docs).errors.is_empty());
    let sort = j(r#"{"s": {"$meta": "textScore"}}"#);
    let projection = j(r#"{"_id": 1, "p": 1, "s": {"$meta": "textScore"}}"#);
    let score = |d: &DocBuf| match d.as_doc().get("s") {
        Some(Value::Double(s)) => s,
        other => panic!("{other:?}"),
    };
    let run = |filter: &str, limit: u64, released: bool| {
        let filter = j(filter);
        let request = FindRequest {
            filter: filter.as_doc(),
            sort: sort.as_doc(),
            projection: projection.as_doc(),
            limit,
            ..FindRequest::new(NS)
        };
        let docs = match released {
            true => run_with_releases(&b, &request).unwrap(),
            false => b.run(&request).unwrap(),
        };
        let explain = b.explain(&request);
        let stats = explain.as_doc().get_doc("executionStats").unwrap();
        let read = stats.get("totalDocsExamined").unwrap().as_i64_exact();
        (docs, read.unwrap())
    };
    let exact = r#"{"$text": {"$search": "cat dog"}}"#;
    // The same search with a word to leave out, which needs the documents.
    let looked_at = r#"{"$text": {"$search": "cat dog -bird"}}"#;
    let (all, _) = run(exact, 0, false);
    assert_eq!(all.len(), 500);
    assert!(all.is_sorted_by(|x, y| score(x) >= score(y)));
    assert_eq!(all, run(looked_at, 0, false).0);
    assert_eq!(all, run(exact, 0, true).0);
    let (ten, read) = run(exact, 10, false);
    assert_eq!((ten.as_slice(), read), (&all[..10], 10));
    let (ten, read) = run(looked_at, 10, false);
    assert_eq!((ten.as_slice(), read), (&all[..10], 500));
}

#[test]
fn find_and_modify_tells_the_score() {
    let b = Bench::new();
    b.index(INDEXES[0]).unwrap();
    b.insert_json(&[r#"{"_id": 1, "a": "cat dog"}"#, r#"{"_id": 2, "a": "cat"}"#]);
    let filter = j(r#"{"$text": {"$search": "cat"}}"#);
    let sort = j(r#"{"s": {"$meta": "textScore"}}"#);
    let fields = j(r#"{"x": 1, "s": {"$meta": "textScore"}}"#);
    let update = j(r#"{"$inc": {"x": 1}}"#);
    for (new, want) in [
        (false, r#"{"_id":2,"s":1.1}"#),
        (true, r#"{"_id":2,"x":2,"s":1.1}"#),
    ] {
        let request = FindAndModifyRequest {
            namespace: NS,
            filter: filter.as_doc(),
            sort: sort.as_doc(),
            remove: false,
            update: Some(Value::Document(update.as_doc())),
            new,
            fields: fields.as_doc(),
            upsert: false,
            array_filters: Doc::EMPTY,
            hint: None,
            collation: None,
            let_: Doc::EMPTY,
            bypass_document_validation: false,
            bypass_empty_ts_replacement: false,
        };
        let out = b.engine.find_and_modify(&b.op, &request).unwrap();
        assert_eq!(text(&out.value.unwrap()), want);
    }
}
