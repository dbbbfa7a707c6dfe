//! The Rust driver against the server that MUNIMENT_URI names.

use mongodb::IndexModel;
use mongodb::bson::{Document, doc};
use mongodb::error::{ErrorKind, WriteFailure};
use mongodb::options::{IndexOptions, WriteConcern};
use mongodb::sync::{Client, Database};

fn database(name: &str) -> Database {
    let uri = std::env::var("MUNIMENT_URI").expect("MUNIMENT_URI");
    let db = Client::with_uri_str(uri).expect("connect").database(name);
    db.drop().run().expect("drop");
    db
}

#[test]
fn crud() {
    let db = database("rust_crud");
    let c = db.collection::<Document>("c");
    c.insert_many((0..300).map(|i| doc! {"_id": i, "k": i % 3}))
        .run()
        .expect("insert");
    let got: Vec<_> = c
        .find(doc! {"k": 1})
        .sort(doc! {"_id": -1})
        .batch_size(7)
        .run()
        .expect("find")
        .map(|d| d.expect("document").get_i32("_id").expect("_id"))
        .collect();
    assert_eq!((got.len(), got[0]), (100, 298));
    let r = c
        .update_many(doc! {"k": 1}, doc! {"$inc": {"k": 10}})
        .run()
        .expect("update");
    assert_eq!(r.modified_count, 100);
    assert_eq!(
        c.delete_many(doc! {"k": 11}).run().expect("delete").deleted_count,
        100
    );
    assert_eq!(c.count_documents(doc! {}).run().expect("count"), 200);
    db.drop().run().expect("drop");
}

#[test]
fn duplicate_key_and_write_concern() {
    let db = database("rust_dup");
    let c = db.collection::<Document>("c");
    c.create_index(
        IndexModel::builder()
            .keys(doc! {"u": 1})
            .options(IndexOptions::builder().unique(true).build())
            .build(),
    )
    .run()
    .expect("index");
    c.insert_one(doc! {"u": 1})
        .write_concern(WriteConcern::builder().journal(true).build())
        .run()
        .expect("insert");
    let e = c.insert_one(doc! {"u": 1}).run().expect_err("duplicate");
    match *e.kind {
        ErrorKind::Write(WriteFailure::WriteError(w)) => assert_eq!(w.code, 11000),
        other => panic!("{other:?}"),
    }
    db.drop().run().expect("drop");
}

#[test]
fn change_streams() {
    let db = database("rust_changes");
    let c = db.collection::<Document>("c");
    let mut stream = c.watch().run().expect("watch");
    c.insert_one(doc! {"_id": 1}).run().expect("insert");
    c.update_one(doc! {}, doc! {"$set": {"x": 1}}).run().expect("update");
    let first = stream.next().expect("an event").expect("insert");
    assert_eq!(first.full_document, Some(doc! {"_id": 1}));
    let token = first.id;
    let mut resumed = c.watch().resume_after(token).run().expect("resume");
    let second = resumed.next().expect("an event").expect("update");
    let changed = second.update_description.expect("a description");
    assert_eq!(changed.updated_fields, doc! {"x": 1});
    db.drop().run().expect("drop");
}
