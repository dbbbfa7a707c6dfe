//! Reading views: find, count and distinct on them.

use super::*;
use crate::view::View;
use muniment_value::{Code, DocBuf, array, doc};

fn fixture() -> Bench {
    let f = Bench::new();
    let docs: Vec<DocBuf> = (0..10)
        .map(|i| doc! { "_id": i, "a": i % 3, "b": array![i, 7] })
        .collect();
    f.insert(&docs);
    assert_eq!(NS, "test.c");
    let view = View {
        on: "c".into(),
        pipeline: array![
            doc! { "$match": doc! { "_id": doc! { "$gte": 2 } } },
            doc! { "$set": doc! { "s": doc! { "$add": array!["$a", 1] } } },
        ],
        collation: Default::default(),
    };
    f.engine
        .create_view(&OpContext::internal("create"), "test.v", &view)
        .unwrap();
    let top = View {
        on: "v".into(),
        pipeline: array![doc! { "$match": doc! { "a": 0 } }],
        collation: Default::default(),
    };
    f.engine
        .create_view(&OpContext::internal("create"), "test.w", &top)
        .unwrap();
    f
}

#[test]
fn reading_is_translated() {
    let f = fixture();
    let op = f.op.clone();
    let filter = doc! { "s": 1 };
    let sort = doc! { "_id": -1 };
    let projection = doc! { "s": 1 };
    let find = FindRequest {
        filter: filter.as_doc(),
        sort: sort.as_doc(),
        projection: projection.as_doc(),
        skip: 1,
        limit: 1,
        ..FindRequest::new("test.v")
    };
    let mut cursor = f.engine.find(&op, &find).unwrap();
    assert_eq!(cursor.namespace(), "test.v");
    let d = cursor.next_doc(&op).unwrap().unwrap();
    assert_eq!(Doc::new(&d).to_buf(), doc! { "_id": 6, "s": 1 });
    assert!(cursor.next_doc(&op).unwrap().is_none());
    let n = f.engine.count(&op, &CountRequest::new("test.v")).unwrap();
    assert_eq!(n, 8);
    let n = f.engine.count(&op, &CountRequest::new("test.w")).unwrap();
    assert_eq!(n, 3);
    let distinct = DistinctRequest {
        namespace: "test.w",
        key: "b",
        filter: Doc::EMPTY,
        hint: None,
        let_: Doc::EMPTY,
        collation: None,
    };
    let values = f.engine.distinct(&op, &distinct).unwrap();
    assert_eq!(values, array![3, 6, 7, 9]);
}

#[test]
fn options_that_no_stage_has() {
    let f = fixture();
    let op = f.op.clone();
    let code = |r: &FindRequest<'_>| f.engine.find(&op, r).err().unwrap().code().0;
    let natural: DocBuf = doc! { "$natural": 1 };
    for r in [
        FindRequest {
            return_key: true,
            ..FindRequest::new("test.v")
        },
        FindRequest {
            show_record_id: true,
            ..FindRequest::new("test.v")
        },
        FindRequest {
            tailable: true,
            ..FindRequest::new("test.v")
        },
        FindRequest {
            sort: natural.as_doc(),
            ..FindRequest::new("test.v")
        },
    ] {
        assert_eq!(code(&r), 168);
    }
}

#[test]
fn writing_is_refused() {
    let f = fixture();
    let op = f.op.clone();
    let d = doc! { "x": 1 };
    let e = f
        .engine
        .insert_many(
            &op,
            "test.v",
            &|| Box::new(std::iter::once(d.as_doc())),
            crate::InsertOptions::default(),
        )
        .unwrap_err();
    assert_eq!(e.code(), Code::CommandNotSupportedOnView);
    let u = doc! { "$set": doc! { "x": 1 } };
    let s = crate::UpdateStatement::new(Doc::EMPTY, muniment_value::Value::Document(u.as_doc()));
    let e = f.engine.update(&op, "test.v", &s).unwrap_err();
    assert_eq!(e.code(), Code::CommandNotSupportedOnView);
}

/// Somebody who may open only what is named here.
struct Only(&'static [&'static str]);

impl Opens for Only {
    fn may_open(&self, namespace: &str) -> bool {
        self.0.contains(&namespace)
    }
}

#[test]
fn an_operation_opens_only_what_its_user_has_a_right_to() {
    let f = fixture();
    let begin = |names: &'static [&'static str]| {
        f.engine.operations.begin(OpStart {
            opens: Some(Arc::new(Only(names))),
            ..OpStart::default()
        })
    };
    let lookup = array![doc! { "$lookup": doc! {
        "from": "v", "localField": "_id", "foreignField": "_id", "as": "v",
    } }];
    let read = |names, collection: &str, pipeline: Doc<'_>| {
        let request = AggregateRequest {
            collection: Some(collection),
            ..aggregation(pipeline)
        };
        let op = begin(names);
        let mut cursor = f.engine.aggregate(&op, &request)?;
        let mut n = 0;
        while cursor.next_doc(&op)?.is_some() {
            n += 1;
        }
        Ok::<_, muniment_value::Error>(n)
    };
    let refused = |r: Result<i32>| r.unwrap_err().code() == Code::Unauthorized;
    assert_eq!(read(&["test.c"], "c", Doc::EMPTY).unwrap(), 10);
    assert!(refused(read(&["test.v"], "c", Doc::EMPTY)));
    assert!(refused(read(&["test.c"], "v", Doc::EMPTY)));
    // What a view is made of comes with it.
    assert_eq!(read(&["test.w"], "w", Doc::EMPTY).unwrap(), 3);
    assert!(refused(read(&["test.c"], "c", lookup.as_doc())));
    let both = read(&["test.c", "test.v"], "c", lookup.as_doc());
    assert_eq!(both.unwrap(), 10);
    // Writes, and a name that nothing has.
    let docs = [doc! { "_id": 100 }];
    let insert = |names| {
        let op = begin(names);
        let options = InsertOptions::default();
        let done = f.engine.insert_many(&op, NS, &each(&docs), options);
        done.map(|_| 0)
    };
    assert!(refused(insert(&["test.v"])));
    assert!(refused(read(&["test.c"], "none", Doc::EMPTY)));
    assert_eq!(f.find("{\"_id\": 100}").len(), 0);
}
