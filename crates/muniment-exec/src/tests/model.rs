//! Updates and deletes against a model without indexes: a vector and the query crate's own
//! functions.

use super::*;
use muniment_query::running::Work;
use muniment_query::{Filter, MatchInfo, QueryContext, Update};
use muniment_value::{Value, doc};
use testkit::random::Rng;

fn update(rng: &mut Rng) -> String {
    let v = rng.value(false);
    match rng.below(7) {
        0 | 1 => format!(r#"{{"$set": {{"a": {v}}}}}"#),
        2 => format!(r#"{{"$set": {{"b": {v}, "c": {}}}}}"#, rng.below(5)),
        3 => r#"{"$unset": {"b": ""}}"#.into(),
        4 => format!(r#"{{"$min": {{"c": {}}}}}"#, rng.below(4)),
        5 => format!(r#"{{"$set": {{"n": {}}}}}"#, rng.below(3)),
        _ => r#"{"$rename": {"b": "c"}}"#.into(),
    }
}

fn round(seed: u64) {
    let mut rng = Rng::new(seed);
    let b = Bench::new();
    let ctx = QueryContext::new();
    let mut model: Vec<DocBuf> = (0..40).map(|i| rng.document(i, false)).collect();
    assert!(b.insert(&model).errors.is_empty());
    for _ in 0..4 {
        let _ = b.index(rng.index());
    }
    for step in 0..40 {
        let filter_text = rng.filter(1);
        let filter_doc = j(&filter_text);
        let Ok(filter) = Filter::parse(filter_doc.as_doc(), &ctx) else {
            continue;
        };
        let multi = rng.below(2) == 0;
        let what = format!("seed {seed} step {step} multi {multi} filter {filter_text}");
        if rng.below(5) == 0 {
            if multi {
                let n = b.delete(&filter_text, true).unwrap().matched as usize;
                let before = model.len();
                model.retain(|d| !filter.matches(d.as_doc(), Work::unasked()).unwrap());
                assert_eq!(before - model.len(), n, "{what}");
            }
        } else {
            let update_text = update(&mut rng);
            let update_doc = j(&update_text);
            let update =
                Update::parse(Value::Document(update_doc.as_doc()), Doc::EMPTY, &ctx).unwrap();
            let sort = doc! { "_id": 1 };
            let statement = UpdateStatement {
                multi,
                sort: if multi { Doc::EMPTY } else { sort.as_doc() },
                ..UpdateStatement::new(filter_doc.as_doc(), Value::Document(update_doc.as_doc()))
            };
            let done = b.engine.update(&b.op, NS, &statement).unwrap();
            let (mut matched, mut modified) = (0, 0);
            for d in &mut model {
                if !filter.matches(d.as_doc(), Work::unasked()).unwrap() {
                    continue;
                }
                matched += 1;
                let mut out = Vec::new();
                if update
                    .apply(d.as_doc(), MatchInfo::default(), &mut out, Work::unasked())
                    .unwrap()
                {
                    modified += 1;
                    *d = DocBuf::from_bytes_trusted(out);
                }
                if !multi {
                    break;
                }
            }
            assert_eq!(
                (done.matched, done.modified),
                (matched, modified),
                "{what} update {update_text}"
            );
        }
        let mut want: Vec<String> = model.iter().map(|d| format!("{d:?}")).collect();
        let mut got: Vec<String> = b
            .run(&FindRequest::new(NS))
            .unwrap()
            .iter()
            .map(|d| format!("{d:?}"))
            .collect();
        want.sort();
        got.sort();
        assert_eq!(got, want, "{what}");
    }
    let collection = b.engine.store.collection(NS).unwrap();
    assert_eq!(collection.count() as usize, model.len());
    let report = b
        .engine
        .store
        .validate(&collection, true, &muniment_query::NeverInterrupted)
        .unwrap();
    assert_eq!(
        report.as_doc().get("valid").and_then(|v| v.as_bool()),
        Some(true),
        "seed {seed} {}",
        text(&report)
    );
}

#[test]
fn writes_agree_with_a_model() {
    for seed in 1..20 {
        round(seed);
    }
}
