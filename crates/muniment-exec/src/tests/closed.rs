//! Operations beside a collection that is closed because it is damaged.

use super::*;
use muniment_op::NeverInterrupted;
use muniment_storage::{CollectionOptions, Direction, KeyRange, Record, Timestamp};
use muniment_value::{Code, Value, array, doc};

const NEVER: &NeverInterrupted = &NeverInterrupted;

/// Closes a collection by a record that cannot be applied: it deletes a document that does not
/// exist.
fn close(b: &Bench, namespace: &str) {
    let store = &b.engine.store;
    let c = store.collection(namespace).unwrap();
    store.close_door();
    let last = store.position().unwrap().appended;
    let id = doc! { "_id": 99 };
    let mut payload = vec![2, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    payload.extend([4, u8::try_from(c.tree()).unwrap()]);
    for field in [&[9; 8][..], id.as_bytes()] {
        payload.push(field.len() as u8);
        payload.extend_from_slice(field);
    }
    let record = Record {
        index: last.index + 1,
        term: last.term,
        at: Timestamp(last.at.0 + 1),
        payload: &payload,
    };
    store.append_replicated(&[record], NEVER).unwrap();
    assert_eq!(
        c.check_usable().unwrap_err().code(),
        Code::DataCorruptionDetected
    );
    store.set_committed(last.index + 1).unwrap();
    store.open_door(last.term + 1).unwrap();
}

fn create(b: &Bench, namespace: &str) {
    let options = CollectionOptions::default();
    b.engine
        .create_collection(namespace, options, &b.op)
        .unwrap();
}

/// Declares everything that has been written so far to be on a majority.
fn commit(b: &Bench) {
    let store = &b.engine.store;
    let last = store.position().unwrap().appended;
    store.set_committed(last.index).unwrap();
}

#[test]
fn giving_up_the_end_of_the_log_keeps_what_can_be_read_of_it() {
    let b = Bench::member();
    create(&b, "test.other");
    b.insert_json(&[r#"{"_id": 1}"#, r#"{"_id": 2}"#]);
    let store = &b.engine.store;
    let other = store.collection("test.other").unwrap();
    let mut unit = store.write_unit(&other, NEVER).unwrap();
    unit.insert(doc! { "_id": 7 }.as_bytes()).unwrap().unwrap();
    unit.commit().unwrap();
    close(&b, NS);
    let c = store.collection(NS).unwrap();
    let undone = b.engine.undone_by_giving_up(Timestamp::ZERO).unwrap();
    let of = |uuid| undone.get(&uuid).map(|docs| docs.len());
    assert_eq!((of(c.uuid()), of(other.uuid())), (Some(2), Some(1)));
}

#[test]
fn a_closed_collection_of_views_takes_nothing_else_with_it() {
    let b = Bench::member();
    let (e, store) = (&b.engine, &b.engine.store);
    let view = View {
        on: "c".to_string(),
        ..View::default()
    };
    e.create_view(&b.op, "d.v", &view).unwrap();
    close(&b, "d.system.views");
    assert!(e.views("d", &NeverInterrupted).unwrap().is_empty());
    let nothing = e.source("d.nothing").unwrap();
    assert!(matches!(nothing, Source::Absent));
    // A request for a view gets the reason why it cannot be read.
    let corrupt = Code::DataCorruptionDetected;
    assert_eq!(e.source("d.v").err().unwrap().code(), corrupt);
    assert_eq!(
        e.create_view(&b.op, "d.w", &view).unwrap_err().code(),
        corrupt
    );
    create(&b, "d.new");
    let series = CollectionOptions {
        time_field: Some("t".into()),
        document: doc! { "timeseries": doc! { "timeField": "t" } },
        ..CollectionOptions::default()
    };
    store.create_collection("d.s", series, NEVER).unwrap();
    e.settle_series(&b.op, "d").unwrap();
    // The collection of views may be dropped, and the new one lists the time series again.
    e.refuse_to_drop_views("d.system.views").unwrap();
    store.drop_collection("d.system.views", NEVER).unwrap();
    e.settle_series(&b.op, "d").unwrap();
    let views = store.collection("d.system.views").unwrap();
    let mut docs = store
        .snapshot()
        .docs(&views, &KeyRange::all(), Direction::Forward);
    let (_, row) = docs.next(&NeverInterrupted).unwrap().unwrap();
    assert_eq!(Doc::new(&row).get_str("_id"), Some("d.s"));
    assert!(docs.next(&NeverInterrupted).unwrap().is_none());
    assert!(e.refuse_to_drop_views("d.system.views").is_err());
}

#[test]
fn a_stream_tells_of_a_closed_collection_without_its_documents() {
    let b = Bench::member();
    b.insert_json(&[r#"{"_id": 1}"#]);
    let stage = doc! { "fullDocument": "updateLookup" };
    let stages = array![doc! { "$changeStream": stage }];
    let request = AggregateRequest {
        collection: None,
        ..aggregation(stages.as_doc())
    };
    commit(&b);
    let cursor = b.engine.aggregate(&b.op, &request).unwrap();
    let (mut out, owner) = (Vec::new(), CursorOwner::default());
    let id = b
        .engine
        .first_batch(&b.op, cursor, owner, BatchLimits::of(3), &mut out)
        .unwrap();
    b.update(r#"{"_id": 1}"#, r#"{"$set": {"a": 1}}"#, false)
        .unwrap();
    close(&b, NS);
    let request = GetMoreRequest {
        id,
        namespace: "test.$cmd.aggregate",
        batch_size: Some(1),
        owner: CursorOwner::default(),
        await_time: Some(Duration::from_secs(1)),
        await_time_given: true,
        is_late: &|| false,
        fails: &|| None,
    };
    let mut out = Vec::new();
    b.engine.get_more(&b.op, &request, &mut out).unwrap();
    let mut reply = (out.len() as u32 + 5).to_le_bytes().to_vec();
    reply.extend_from_slice(&out);
    reply.push(0);
    let batch = Doc::new(&reply).get_doc("cursor").unwrap();
    let batch = batch.get_array("nextBatch").unwrap();
    let event = batch.values().next().unwrap();
    let event = event.as_doc().unwrap();
    assert_eq!(event.get_str("operationType"), Some("update"));
    assert!(matches!(event.get("fullDocument"), Some(Value::Null)));
}
