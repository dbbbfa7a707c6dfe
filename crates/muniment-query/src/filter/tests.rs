//! Helpers for the operators' table tests, and tests that do not belong to a single operator.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{Filter, Node, Pred};
use crate::context::QueryContext;
use crate::expr::testing::json;
use crate::running::Work;
use muniment_value::{Code, DocBuf, Error, Result, Type};

pub(crate) fn parse(filter: &str) -> Filter {
    Filter::parse_query(json(filter).as_doc(), &QueryContext::new())
        .unwrap_or_else(|e| panic!("{filter}: {e:?}"))
}

/// Asserts that the filter matches the first documents and not the second, and that its negation does the
/// opposite.
pub(crate) fn matches(filter: &str, yes: &[&str], no: &[&str]) {
    let f = parse(filter);
    let negated = Filter::from_root(Node::Nor(vec![f.root().clone()]), f.collation());
    for (docs, want) in [(yes, true), (no, false)] {
        for d in docs {
            let doc = json(d);
            assert_eq!(
                f.matches(doc.as_doc(), Work::unasked()).unwrap(),
                want,
                "{filter} on {d}"
            );
            let info = f.matches_info(doc.as_doc(), Work::unasked()).unwrap();
            assert_eq!(info.is_some(), want, "{filter} on {d}, with info");
            assert_eq!(
                negated.matches(doc.as_doc(), Work::unasked()).unwrap(),
                !want,
                "not {filter} on {d}"
            );
        }
    }
}

/// Asserts that the filter does not parse.
pub(crate) fn fails(filter: &str, code: i32, message: &str) {
    match Filter::parse_query(json(filter).as_doc(), &QueryContext::new()) {
        Ok(f) => panic!("{filter} parsed: {:?}", f.root()),
        Err(e) => assert_eq!((e.code().0, e.message()), (code, message), "{filter}"),
    }
}

/// Asserts that a filter is refused with a code, whatever the message.
pub(crate) fn refused(filter: &str, code: i32) {
    match Filter::parse_query(json(filter).as_doc(), &QueryContext::new()) {
        Ok(f) => panic!("{filter} parsed: {:?}", f.root()),
        Err(e) => assert_eq!(e.code().0, code, "{filter}"),
    }
}

#[test]
fn positional_index() {
    for (filter, doc, want) in [
        ("{'a': 2}", "{'a': [1, 2]}", Some(1)),
        ("{'a': 2}", "{'a': 2}", None),
        ("{'a': [1, 2]}", "{'a': [1, 2]}", None),
        ("{'a.b': 2}", "{'a': [{'b': 1}, {'b': 2}]}", Some(1)),
        ("{'a.b': 2}", "{'a': [{'b': 1}, {'b': [3, 4, 2]}]}", Some(1)),
        ("{'a.b': 2}", "{'a': {'b': [3, 4, 2]}}", Some(2)),
        (
            "{'a': {'$elemMatch': {'b': 2}}}",
            "{'a': [{'b': 1}, {'b': 2}]}",
            Some(1),
        ),
        (
            "{'a': {'$elemMatch': {'$gt': 1}}}",
            "{'a': [1, 2]}",
            Some(1),
        ),
        (
            "{'a.b': {'$elemMatch': {'$gt': 1}}}",
            "{'a': [{'b': [1]}, {'b': [0, 0, 5]}]}",
            Some(1),
        ),
        ("{'a': 2, 'b': 5}", "{'b': [5], 'a': [1, 2]}", Some(0)),
        ("{'b': 5, 'a': 2}", "{'b': [5], 'a': [1, 2]}", Some(1)),
        ("{'a': {'$gte': 2, '$lte': 3}}", "{'a': [1, 2, 3]}", Some(0)),
        ("{'x': 1, 'a': 2}", "{'a': [1, 2], 'x': 1}", Some(1)),
        ("{'$or': [{'a': 2}, {'b': 1}]}", "{'a': [1, 2]}", None),
        ("{'a': {'$ne': 3}}", "{'a': [1, 2]}", None),
        ("{'a.1': 2}", "{'a': [1, 2]}", None),
        ("{'a.1.b': 2}", "{'a': [1, {'b': 2}]}", None),
        ("{'a.1.b': 2}", "{'a': [1, {'b': [1, 2]}]}", Some(1)),
        ("{'a.0.1': 2}", "{'a': [[1, 2]]}", None),
        ("{'a': 1, 'b.0': 0}", "{'a': [0, 1], 'b': [0]}", Some(1)),
        ("{'a': {'$in': [7, 8]}}", "{'a': [1, 2, 8]}", Some(2)),
    ] {
        let info = parse(filter)
            .matches_info(json(doc).as_doc(), Work::unasked())
            .unwrap();
        assert_eq!(info.map(|i| i.array_index), Some(want), "{filter} on {doc}");
    }
}

#[test]
fn the_tree_that_the_planner_reads() {
    let f = parse("{'a': {'$gt': 1, '$lt': 5}, '$and': [{'b': 1}, {'$and': [{'c': 1}]}]}");
    let Node::And(nodes) = f.root() else {
        panic!("{:?}", f.root())
    };
    assert_eq!(nodes.len(), 3);
    assert!(matches!(&nodes[0], Node::Field { pred: Pred::And(p), .. } if p.len() == 2));
    let f = parse("{'$or': [{'a': 3}, {'a': {'$in': [1, 3]}}, {'$or': [{'a': 2}]}]}");
    let Node::Field {
        pred: Pred::In { values, .. },
        ..
    } = f.root()
    else {
        panic!("{:?}", f.root())
    };
    assert_eq!(values.len(), 3);
    assert!(matches!(parse("{}").root(), Node::True));
    assert!(matches!(parse("{'a': {'$in': []}}").root(), Node::False));
    assert!(matches!(
        parse("{'a': 1, 'b': {'$in': []}}").root(),
        Node::False
    ));
}

#[test]
fn id_equality() {
    assert_eq!(parse("{'_id': 5}").id_equality().unwrap().ty(), Type::Int32);
    assert!(parse("{'_id': {'$eq': 'x'}}").id_equality().is_some());
    assert!(parse("{'_id': {'a': 1}}").id_equality().is_some());
    for f in [
        "{'_id': null}",
        "{'_id': [1]}",
        "{'_id': ['$re', 'a']}",
        "{'_id': 5, 'a': 1}",
        "{'_id.a': 5}",
        "{'_id': {'$gt': 5}}",
    ] {
        assert!(parse(f).id_equality().is_none(), "{f}");
    }
}

#[test]
fn parsed_query() {
    for (filter, want) in [
        ("{}", "{}"),
        ("{'a': 1}", "{'a': {'$eq': 1}}"),
        (
            "{'b': 1, 'a': 2}",
            "{'$and': [{'a': {'$eq': 2}}, {'b': {'$eq': 1}}]}",
        ),
        (
            "{'a': {'$gt': 1, '$lt': 5}}",
            "{'$and': [{'a': {'$lt': 5}}, {'a': {'$gt': 1}}]}",
        ),
        ("{'a': {'$ne': 1}}", "{'a': {'$not': {'$eq': 1}}}"),
        (
            "{'a': {'$nin': [2, 1]}}",
            "{'a': {'$not': {'$in': [1, 2]}}}",
        ),
        (
            "{'a': {'$exists': false}}",
            "{'a': {'$not': {'$exists': true}}}",
        ),
        (
            "{'$or': [{'b': 1}, {'a': 1, 'c': 2}]}",
            "{'$or': [{'$and': [{'a': {'$eq': 1}}, {'c': {'$eq': 2}}]}, {'b': {'$eq': 1}}]}",
        ),
        ("{'a': {'$in': [1]}}", "{'a': {'$eq': 1}}"),
        ("{'a': {'$in': []}}", "{'$alwaysFalse': 1}"),
        (
            "{'a': ['$re', '^x', 'i']}",
            "{'a': {'$regex': '^x', '$options': 'i'}}",
        ),
        (
            "{'a': {'$elemMatch': {'b': 1, 'c': 2}}}",
            "{'a': {'$elemMatch': {'$and': [{'b': {'$eq': 1}}, {'c': {'$eq': 2}}]}}}",
        ),
        (
            "{'a': {'$elemMatch': {'$gt': 1, '$lt': 3}}}",
            "{'a': {'$elemMatch': {'$gt': 1, '$lt': 3}}}",
        ),
        ("{'a': {'$size': 2}}", "{'a': {'$size': 2}}"),
        (
            "{'$expr': {'$gt': ['$a', '$b']}}",
            "{'$expr': {'$gt': ['$a', '$b']}}",
        ),
        ("{'$nor': [{'a': 1}]}", "{'$nor': [{'a': {'$eq': 1}}]}"),
    ] {
        assert_eq!(parse(filter).to_doc(), json(want), "{filter}");
    }
}

#[test]
fn nesting_is_bounded() {
    let nest = |depth: usize, wrap: &dyn Fn(DocBuf) -> DocBuf| {
        let mut d = json("{'a': 1}");
        for _ in 0..depth {
            d = wrap(d);
        }
        Filter::parse(d.as_doc(), &QueryContext::new()).map(|_| ())
    };
    let and = |d: DocBuf| muniment_value::doc! { "$and": muniment_value::array![d] };
    let elem = |d: DocBuf| muniment_value::doc! { "a": muniment_value::doc! { "$elemMatch": d } };
    let not = |d: DocBuf| muniment_value::doc! { "$not": d };
    assert!(nest(40, &and).is_ok());
    for deep in [150, 5000] {
        assert_eq!(nest(deep, &and).unwrap_err().code().0, 2);
        assert_eq!(nest(deep, &elem).unwrap_err().code().0, 2);
        let e = nest(deep, &not).unwrap_err();
        assert!(matches!(e.code().0, 2), "{e:?}");
        let expr = |d: DocBuf| muniment_value::doc! { "$not": muniment_value::array![d] };
        let mut d = json("{'$not': [1]}");
        for _ in 0..deep {
            d = expr(d);
        }
        let d = muniment_value::doc! { "$expr": d };
        let e = Filter::parse(d.as_doc(), &QueryContext::new()).unwrap_err();
        assert_eq!(e.code().0, 15);
    }
}

/// Says that the operation has ended, and counts how often it was asked.
struct Ended(std::sync::atomic::AtomicUsize);

impl muniment_op::Interrupt for Ended {
    fn check(&self) -> Result<()> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Err(Error::new(Code::Interrupted, "operation was interrupted"))
    }

    fn sleepers(&self, _: &mut dyn FnMut(&muniment_op::Sleepers)) {}
}

/// After the test that learns that the operation has ended, no other one that takes long is run.
#[test]
fn no_test_runs_after_the_end_of_the_operation() {
    let slow = r#"{"$expr": {"$gt": [0, {"$size": {"$range": [0, "$n"]}}]}}"#;
    let text = format!(r#"{{"$nor": [{slow}, {slow}, {{"$or": [{slow}, {slow}]}}]}}"#);
    let f = parse(&text);
    let ended = std::sync::Arc::new(Ended(Default::default()));
    let task = crate::running::Task::of(ended.clone());
    let d = json(r#"{"n": 200000}"#);
    let e = f.matches(d.as_doc(), task.work()).unwrap_err();
    assert_eq!(e.code(), Code::Interrupted);
    assert_eq!(ended.0.load(std::sync::atomic::Ordering::Relaxed), 1);
}
