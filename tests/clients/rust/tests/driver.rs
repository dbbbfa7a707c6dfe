//! The Rust driver against the server that MUNIMENT_URI names.

use mongodb::IndexModel;
use mongodb::bson::{Document, doc};
use mongodb::error::{ErrorKind, WriteFailure};
use mongodb::options::{IndexOptions, WriteConcern};
use mongodb::sync::{Client, Database};

fn client() -> Client {
    let uri = std::env::var("MUNIMENT_URI").expect("MUNIMENT_URI");
    Client::with_uri_str(uri).expect("connect")
}

fn database(name: &str) -> Database {
    database_of(&client(), name)
}

fn database_of(client: &Client, name: &str) -> Database {
    let db = client.database(name);
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

#[test]
fn snapshot_session() {
    let client = client();
    let db = database_of(&client, "rust_snapshot");
    let c = db.collection::<Document>("c");
    c.insert_many((0..100).map(|i| doc! {"_id": i, "k": i % 2}))
        .run()
        .expect("insert");
    let mut session = client.start_session().snapshot(true).run().expect("session");
    let mut cursor = c
        .find(doc! {})
        .batch_size(10)
        .session(&mut session)
        .run()
        .expect("find");
    // The cursor is open and the session begun: neither sees what comes now.
    c.delete_many(doc! {"_id": {"$gte": 20}}).run().expect("delete");
    c.update_many(doc! {}, doc! {"$set": {"k": 7}}).run().expect("update");
    let mut found = 0;
    while let Some(document) = cursor.next(&mut session) {
        assert_ne!(document.expect("document").get_i32("k"), Ok(7));
        found += 1;
    }
    assert_eq!(found, 100);
    let kinds = c.distinct("k", doc! {}).session(&mut session).run().expect("distinct");
    assert_eq!(kinds, [0, 1].map(mongodb::bson::Bson::Int32));
    assert_eq!(c.count_documents(doc! {"k": 7}).run().expect("count"), 20);
    db.drop().run().expect("drop");
}

#[test]
fn transactions() {
    let client = client();
    let db = database_of(&client, "rust_transactions");
    let (a, b) = (db.collection::<Document>("a"), db.collection::<Document>("b"));
    a.insert_one(doc! {"_id": 1, "n": 100}).run().expect("insert");
    b.insert_one(doc! {"_id": 1, "n": 0}).run().expect("insert");
    // Eight at once over two documents: who meets another is run again by the driver.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut session = client.start_session().run().expect("session");
                session
                    .start_transaction()
                    .and_run(|session| {
                        a.update_one(doc! {}, doc! {"$inc": {"n": -1}})
                            .session(&mut *session)
                            .run()?;
                        b.update_one(doc! {}, doc! {"$inc": {"n": 1}})
                            .session(&mut *session)
                            .run()?;
                        Ok(())
                    })
                    .expect("transaction");
            });
        }
    });
    let n = |c: &mongodb::sync::Collection<Document>| {
        let found = c.find_one(doc! {}).run().expect("find").expect("a document");
        found.get_i32("n").expect("n")
    };
    assert_eq!((n(&a), n(&b)), (92, 8));
    db.drop().run().expect("drop");
}
