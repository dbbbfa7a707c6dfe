//! Change streams against everything that writes: every event comes once and in order, and the
//! events add up to what is stored.

use super::*;
use crate::changes::feed::Waits;
use muniment_query::Account;
use muniment_storage::{Announce, CollectionOptions, Timestamp, Transaction};
use muniment_value::{ArrayBuf, Code, DocBuf, Value, array, doc};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A reader of a stream, which can be opened again from its newest token.
struct Follower<'b> {
    engine: &'b Arc<Database>,
    stage: DocBuf,
    behind: ArrayBuf,
    id: i64,
    pub token: Option<DocBuf>,
}

fn cursor_of(out: &[u8]) -> DocBuf {
    let mut bytes = (out.len() as u32 + 5).to_le_bytes().to_vec();
    bytes.extend_from_slice(out);
    bytes.push(0);
    Doc::new(&bytes).get_doc("cursor").unwrap().to_buf()
}

impl<'b> Follower<'b> {
    fn new(engine: &'b Arc<Database>, stage: DocBuf, behind: ArrayBuf) -> Follower<'b> {
        let mut f = Follower {
            engine,
            stage,
            behind,
            id: 0,
            token: None,
        };
        f.open().unwrap();
        f
    }

    /// Opens the stream, after the newest token.
    fn open(&mut self) -> Result<Vec<DocBuf>> {
        let mut stage = self.stage.clone();
        if let Some(token) = &self.token {
            stage.append("resumeAfter", token);
        }
        let mut stages = array![doc! { "$changeStream": stage }];
        for v in self.behind.as_doc().values() {
            stages.push(v);
        }
        let op = OpContext::internal("test");
        let request = AggregateRequest {
            member: self.stage.as_doc().get("$shard").is_some(),
            ..aggregation(stages.as_doc())
        };
        let cursor = self.engine.aggregate(&op, &request)?;
        let mut out = Vec::new();
        self.id = self.engine.first_batch(
            &op,
            cursor,
            CursorOwner::default(),
            BatchLimits::of(3),
            &mut out,
        )?;
        Ok(self.batch(&out, "firstBatch"))
    }

    fn batch(&mut self, out: &[u8], field: &str) -> Vec<DocBuf> {
        let reply = cursor_of(out);
        let batch = reply.as_doc().get_array(field).unwrap();
        let docs: Vec<DocBuf> = batch
            .values()
            .map(|v| v.as_doc().unwrap().to_buf())
            .collect();
        let token = reply
            .as_doc()
            .get_doc("postBatchResumeToken")
            .unwrap()
            .to_buf();
        if let Some(last) = docs.last() {
            let last = last.as_doc().get_doc("_id").unwrap();
            assert!(last.get_str("_data") <= token.as_doc().get_str("_data"));
        }
        if let Some(before) = &self.token {
            assert!(before.as_doc().get_str("_data") <= token.as_doc().get_str("_data"));
        }
        self.token = Some(token);
        docs
    }

    fn next(&mut self, wait: Duration, size: usize) -> Result<Vec<DocBuf>> {
        self.next_of(&OpContext::internal("test"), wait, size)
    }

    fn next_of(&mut self, op: &Arc<OpContext>, wait: Duration, size: usize) -> Result<Vec<DocBuf>> {
        let request = GetMoreRequest {
            id: self.id,
            namespace: NS,
            batch_size: Some(size),
            owner: CursorOwner::default(),
            await_time: Some(wait),
            await_time_given: true,
            is_late: &|| false,
            fails: &|| None,
        };
        let mut out = Vec::new();
        self.id = self.engine.get_more(op, &request, &mut out)?;
        Ok(self.batch(&out, "nextBatch"))
    }
}

/// A transaction, and an operation that is part of it.
fn begin(b: &Bench) -> (Arc<Transaction>, Arc<OpContext>) {
    let store = &b.engine.store;
    let t = store.begin_transaction(Duration::from_millis(5), None);
    let op = OpContext::internal("test");
    op.enter(t.clone());
    (t, op)
}

/// Documents by `_id`, maintained from events that contain the documents before and after the
/// change.
#[derive(Default)]
struct Model {
    docs: BTreeMap<i64, DocBuf>,
    events: usize,
}

impl Model {
    fn apply(&mut self, event: &DocBuf) {
        self.events += 1;
        let e = event.as_doc();
        let id = e.get_doc("documentKey").unwrap().get("_id").unwrap();
        let id = id.as_i64_exact().unwrap();
        let kind = e.get_str("operationType").unwrap();
        let before = self.docs.get(&id).map(|d| d.as_doc().to_display());
        let said = e
            .get_doc("fullDocumentBeforeChange")
            .map(|d| d.to_display());
        assert_eq!(said, before, "{kind} of {id}: {}", e.to_display());
        match kind {
            "delete" => drop(self.docs.remove(&id)),
            "insert" | "update" | "replace" => {
                let full = e.get_doc("fullDocument").unwrap().to_buf();
                if kind == "update" {
                    let said = e.get_doc("updateDescription").unwrap();
                    let fields = said.get_doc("updatedFields").unwrap().iter();
                    for field in fields.filter(|f| !f.name().contains('.')) {
                        let now = full.as_doc().get_elem(field.name()).unwrap();
                        assert_eq!(now.as_bytes(), field.as_bytes());
                    }
                }
                self.docs.insert(id, full);
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn every_event_comes_once_and_in_order_whatever_else_happens() {
    let b = Bench::new();
    let options = CollectionOptions {
        document: doc! { "changeStreamPreAndPostImages": doc! { "enabled": true } },
        ..CollectionOptions::default()
    };
    b.engine.create_collection(NS, options, &b.op).unwrap();
    b.index(r#"{"key": {"n": 1}, "name": "n_1"}"#).unwrap();
    let stage = doc! {
        "fullDocument": "required", "fullDocumentBeforeChange": "required",
    };
    let (done, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let long = std::env::var_os("MUNIMENT_LONG").is_some();
    let rounds = if long { 20_000 } else { 400 };
    std::thread::scope(|s| {
        let b = &b;
        let followers: Vec<_> = (0..3)
            .map(|kind| {
                let (stage, done) = (stage.clone(), &done);
                let mut f = Follower::new(&b.engine, stage, array![]);
                s.spawn(move || {
                    let mut model = Model::default();
                    let mut turn = 0;
                    loop {
                        let last = done.load(SeqCst);
                        // One reader continues its stream, one opens a new one each time, and one
                        // is slow.
                        let batch = match kind {
                            1 => f.open(),
                            2 if !last => {
                                std::thread::sleep(Duration::from_millis(20));
                                f.next(Duration::from_millis(1), 50)
                            }
                            _ => f.next(Duration::from_millis(50), 1 + turn % 7),
                        };
                        let batch = batch.unwrap();
                        turn += 1;
                        if last && batch.is_empty() {
                            return (kind, model);
                        }
                        batch.iter().for_each(|e| model.apply(e));
                    }
                })
            })
            .collect();
        let other = s.spawn(|| {
            let mut n = 0;
            while !stop.load(SeqCst) {
                n += 1;
                // The streams do not watch these collections, but the log grows by their entries.
                let name = format!("test.other{}", n % 3);
                let docs = [doc! { "n": n }];
                let options = InsertOptions::default();
                let _ = b.engine.insert_many(&b.op, &name, &each(&docs), options);
                if n % 5 == 0 {
                    let _ = b.engine.store.drop_collection(&name, &NeverInterrupted);
                }
                if n % 7 == 0 {
                    b.engine.store.flush().unwrap();
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let writers: Vec<_> = (0..3_i64)
            .map(|w| {
                s.spawn(move || {
                    let mut x = 0x9E37_79B9_u64 ^ (w as u64 + 1);
                    for n in 0..rounds {
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        // All threads write the same documents.
                        let id = (x >> 8) % 20;
                        let q = format!(r#"{{"_id": {id}}}"#);
                        let done = match x % 6 {
                            0 => b.delete(&q, false).map(drop),
                            1 => {
                                let u = format!(r#"{{"n": {n}, "w": {w}}}"#);
                                let (q, u) = (j(&q), j(&u));
                                let statement = UpdateStatement {
                                    upsert: true,
                                    ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
                                };
                                b.engine.update(&b.op, NS, &statement).map(drop)
                            }
                            2 => {
                                let u = format!(
                                    r#"{{"$push": {{"list": {n}}}, "$set": {{"w": {w}}}}}"#
                                );
                                b.update(&q, &u, false).map(drop)
                            }
                            3 => {
                                let docs = [
                                    doc! { "_id": id as i64, "n": n },
                                    doc! { "_id": 100 + (x >> 20) as i64 % 1000, "n": n },
                                ];
                                let options = InsertOptions {
                                    ordered: false,
                                    ..InsertOptions::default()
                                };
                                b.engine
                                    .insert_many(&b.op, NS, &each(&docs), options)
                                    .map(drop)
                            }
                            4 => {
                                let (t, op) = begin(b);
                                let u = j(r#"{"$inc": {"n": 1}}"#);
                                let all = [id, (id + 1) % 20].iter().try_for_each(|id| {
                                    let q = doc! { "_id": *id as i64 };
                                    let u = Value::Document(u.as_doc());
                                    let statement = UpdateStatement::new(q.as_doc(), u);
                                    b.engine.update(&op, NS, &statement).map(drop)
                                });
                                match all {
                                    Ok(()) => {
                                        t.commit(None, Announce::Door, &NeverInterrupted).map(drop)
                                    }
                                    Err(e) if e.code() == Code::WriteConflict => {
                                        t.abort();
                                        Ok(())
                                    }
                                    Err(e) => Err(e),
                                }
                            }
                            _ => b.update("{}", r#"{"$inc": {"n": 1}}"#, true).map(drop),
                        };
                        match done {
                            Ok(()) => {}
                            Err(e) if e.code() == Code::DuplicateKey => {}
                            Err(e) => panic!("{e}"),
                        }
                    }
                })
            })
            .collect();
        for w in writers {
            w.join().unwrap();
        }
        stop.store(true, SeqCst);
        other.join().unwrap();
        done.store(true, SeqCst);
        let stored: BTreeMap<i64, String> = b
            .run(&FindRequest::new(NS))
            .unwrap()
            .iter()
            .map(|d| {
                let id = d.as_doc().get("_id").unwrap().as_i64_exact().unwrap();
                (id, d.as_doc().to_display())
            })
            .collect();
        let mut events = Vec::new();
        for f in followers {
            let (kind, model) = f.join().unwrap();
            let told: BTreeMap<i64, String> = model
                .docs
                .iter()
                .map(|(id, d)| (*id, d.as_doc().to_display()))
                .collect();
            assert_eq!(told, stored, "follower {kind}");
            events.push(model.events);
        }
        assert!(
            events[0] > 100 && events.iter().all(|n| *n == events[0]),
            "{events:?}"
        );
    });
}

#[test]
fn who_is_far_behind_reads_the_log_and_then_what_all_read() {
    let b = Bench::new();
    let mut f = Follower::new(&b.engine, doc! {}, array![]);
    let mut other = Follower::new(&b.engine, doc! {}, array![]);
    let pad = "x".repeat(1 << 20);
    let mut seen = 0;
    for n in 0..40 {
        b.insert(&[doc! { "_id": n, "pad": pad.as_str() }]);
        // This stream is always at the end, so that the entries in memory move on.
        let came = other.next(Duration::from_secs(5), 100).unwrap();
        seen += came.len();
    }
    assert_eq!(seen, 40);
    let mut ids = Vec::new();
    while ids.len() < 40 {
        for e in f.next(Duration::from_secs(5), 7).unwrap() {
            let key = e.as_doc().get_doc("documentKey").unwrap();
            ids.push(key.get("_id").unwrap().as_i64_exact().unwrap());
        }
        // As for an idle cursor: what the stream has read ahead is read again.
        if ids.len() % 2 == 1 {
            b.engine.cursors.release_all();
        }
    }
    assert_eq!(ids, (0..40).collect::<Vec<_>>());
    b.insert(&[doc! { "_id": 99 }]);
    assert_eq!(f.next(Duration::from_secs(5), 7).unwrap().len(), 1);
}

#[test]
fn a_thousand_streams_read_every_entry_once_for_all() {
    let b = Bench::new();
    b.insert(&[doc! { "_id": -1 }]);
    let open = |_| Follower::new(&b.engine, doc! {}, array![]);
    let mut all: Vec<Follower<'_>> = (0..1000).map(open).collect();
    let (rounds, at_once) = (6_i64, 10_i64);
    let mut events = vec![0; all.len()];
    for round in 0..rounds {
        for n in 0..at_once {
            b.insert(&[doc! { "_id": round * at_once + n }]);
        }
        // Most streams have events left, which an idle stream releases.
        for (i, f) in all.iter_mut().enumerate() {
            events[i] += f.next(Duration::from_secs(5), 1 + i % 12).unwrap().len();
        }
        b.engine.cursors.release_all();
    }
    let written = (rounds * at_once) as usize;
    for (f, n) in all.iter_mut().zip(&mut events) {
        while *n < written {
            *n += f.next(Duration::from_secs(5), 100).unwrap().len();
        }
    }
    assert!(events.iter().all(|n| *n == written), "{events:?}");
    let (read, by_itself) = b.engine.changes.read();
    assert!(
        read as usize <= written + 1 && by_itself == 0,
        "{read} {by_itself}"
    );
}

#[test]
fn nothing_is_read_for_nobody() {
    let b = Bench::new();
    b.insert(&[doc! { "_id": -1 }]);
    let mut f = Follower::new(&b.engine, doc! {}, array![]);
    // The stream waits once, so that the feed has its thread.
    assert!(f.next(Duration::from_millis(20), 10).unwrap().is_empty());
    for round in 0..4 {
        // By now the thread has noticed that no stream waits any more.
        std::thread::sleep(Duration::from_millis(60));
        let before = b.engine.changes.read();
        for n in 0..50 {
            b.insert(&[doc! { "_id": round * 50 + n }]);
        }
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(b.engine.changes.read(), before, "round {round}");
        // A stream that comes back finds everything, and is woken by later entries.
        let mut came = 0;
        while came < 50 {
            came += f.next(Duration::from_secs(5), 7).unwrap().len();
        }
        assert_eq!(came, 50);
        std::thread::scope(|s| {
            let waits = s.spawn(|| f.next(Duration::from_secs(60), 10).unwrap().len());
            std::thread::sleep(Duration::from_millis(30));
            b.insert(&[doc! { "_id": 1000 + round }]);
            assert_eq!(waits.join().unwrap(), 1);
        });
    }
    assert_eq!(b.engine.changes.read(), (204, 0));
}

#[test]
fn who_begins_at_the_end_does_not_wait_for_what_lies_between_to_be_read() {
    let b = Bench::new();
    let mut slow = Follower::new(&b.engine, doc! {}, array![]);
    b.insert(&[doc! { "_id": -1 }]);
    assert_eq!(slow.next(Duration::from_secs(5), 10).unwrap().len(), 1);
    for round in 0..3 {
        // By now the thread has noticed that no stream waits any more.
        std::thread::sleep(Duration::from_millis(60));
        let read = b.engine.changes.read().0;
        for n in 0..40 {
            b.insert(&[doc! { "_id": round * 100 + n }]);
        }
        let mut new = Follower::new(&b.engine, doc! {}, array![]);
        std::thread::scope(|s| {
            let waits = s.spawn(move || new.next(Duration::from_secs(60), 10).unwrap().len());
            std::thread::sleep(Duration::from_millis(30));
            b.insert(&[doc! { "_id": round * 100 + 99 }]);
            assert_eq!(waits.join().unwrap(), 1);
        });
        assert_eq!(b.engine.changes.read().0, read + 1, "round {round}");
        // The stream that is further back reads the log itself, up to the place where it meets the
        // others.
        let mut ids = Vec::new();
        while ids.len() < 41 {
            for e in slow.next(Duration::from_secs(5), 9).unwrap() {
                let key = e.as_doc().get_doc("documentKey").unwrap();
                ids.push(key.get("_id").unwrap().as_i64_exact().unwrap() - round * 100);
            }
        }
        assert!(ids.into_iter().eq((0..40).chain([99])));
        let by_itself = b.engine.changes.read().1;
        assert_eq!(by_itself, 40 * (round as u64 + 1));
    }
}

/// Of many streams that read the log themselves, only some keep their readers between batches. The others
/// lose nothing by it, not even one that is in the middle of a record.
#[test]
fn few_streams_keep_a_reader_of_their_own_between_batches() {
    const ROWS: i64 = 24;
    let b = Bench::new();
    let most = b.engine.changes.own_readers().1;
    let mut streams: Vec<_> = (0..most + 20)
        .map(|_| (Follower::new(&b.engine, doc! {}, array![]), Vec::new()))
        .collect();
    // More than the shared entries take.
    let text = "x".repeat(1 << 20);
    let all: Vec<DocBuf> = (0..ROWS).map(|n| doc! { "_id": n, "x": &*text }).collect();
    for rows in all.chunks(3) {
        b.insert(rows);
    }
    let mut kept = 0;
    while streams.iter().any(|(_, ids)| ids.len() < all.len()) {
        for (stream, ids) in &mut streams {
            for e in stream.next(Duration::from_millis(1), 2).unwrap() {
                let key = e.as_doc().get_doc("documentKey").unwrap();
                ids.push(key.get("_id").unwrap().as_i64_exact().unwrap());
            }
            let own = b.engine.changes.own_readers().0;
            kept = kept.max(own);
            assert!(own <= most, "{own} readers");
        }
    }
    for (_, ids) in &streams {
        assert!(ids.iter().copied().eq(0..ROWS), "{ids:?}");
    }
    assert_eq!(kept, most);
}

#[test]
fn waiting_ends_with_what_is_waited_for_and_with_nothing_else() {
    let b = Bench::new();
    let matches = array![doc! { "$match": doc! { "operationType": "delete" } }];
    let mut f = Follower::new(&b.engine, doc! {}, matches);
    std::thread::scope(|s| {
        let waits = s.spawn(|| {
            let began = std::time::Instant::now();
            let came = f.next(Duration::from_secs(60), 10).unwrap();
            (came.len(), began.elapsed())
        });
        std::thread::sleep(Duration::from_millis(50));
        b.insert(&[doc! { "_id": 1 }]);
        std::thread::sleep(Duration::from_millis(50));
        b.delete("{}", true).unwrap();
        let (came, took) = waits.join().unwrap();
        assert_eq!(came, 1);
        assert!(took < Duration::from_secs(30));
    });
    // The high-water mark advances even if no event is given.
    let before = f.token.clone().unwrap();
    b.insert(&[doc! { "_id": 2 }]);
    assert!(f.next(Duration::ZERO, 10).unwrap().is_empty());
    let after = f.token.clone().unwrap();
    assert!(before.as_doc().get_str("_data") < after.as_doc().get_str("_data"));
}

#[test]
fn who_waits_ends_when_killed() {
    let b = Bench::new();
    let all: Vec<_> = (0..8).map(|_| OpContext::internal("test")).collect();
    std::thread::scope(|s| {
        let waiting: Vec<_> = all
            .iter()
            .map(|op| {
                let mut f = Follower::new(&b.engine, doc! {}, array![]);
                s.spawn(move || f.next_of(op, Duration::from_secs(120), 10))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(100));
        let began = std::time::Instant::now();
        for op in &all {
            op.kill(Code::Interrupted);
        }
        for ended in waiting {
            let e = ended.join().unwrap().unwrap_err();
            assert_eq!(e.code(), Code::Interrupted);
        }
        assert!(began.elapsed() < Duration::from_secs(60));
    });
}

/// A stream that waits already is woken for an entry between its last look and the feed's first
/// one, even if the feed begins after that entry and does not read it.
#[test]
fn who_waits_is_told_of_what_the_feed_does_not_read() {
    let b = Bench::new();
    let scope = crate::changes::scope::Scope::of("test", Some("c"), false);
    // The rounds write one small document, and more than is read into memory at once.
    for (round, (docs, size)) in [(1, 1), (12, 1 << 20)].into_iter().enumerate() {
        let feed = Arc::new(crate::changes::feed::Feed::default());
        let after = b.engine.store.visible();
        for i in 0..docs {
            let id = (round * 100 + i) as i32;
            b.insert(&[doc! { "_id": id, "s": "x".repeat(size) }]);
        }
        let began = std::time::Instant::now();
        let until = began + Duration::from_secs(10);
        feed.wait(&b.engine.store, &Waits::alone(&scope, after), &b.op, until);
        assert!(began.elapsed() < Duration::from_secs(5), "{docs} of {size}");
    }
}

/// A time-series collection is shown by its document among the views, even if `$out` made it.
#[test]
fn an_out_to_a_time_series_tells_of_no_rename() {
    let b = Bench::new();
    let mut f = Follower::new(&b.engine, doc! {}, array![]);
    let docs = [doc! { "_id": 1, "t": Value::DateTime(1000) }];
    let options = InsertOptions::default();
    let insert = b
        .engine
        .insert_many(&b.op, "test.src", &each(&docs), options);
    assert!(insert.unwrap().errors.is_empty());
    let out = doc! { "db": "test", "coll": "c", "timeseries": doc! { "timeField": "t" } };
    let stages = array![doc! { "$out": out }];
    let request = AggregateRequest {
        collection: Some("src"),
        ..aggregation(stages.as_doc())
    };
    let mut cursor = b.engine.aggregate(&b.op, &request).unwrap();
    while cursor.next_doc(&b.op).unwrap().is_some() {}
    assert!(
        b.engine
            .store
            .collection("test.c")
            .unwrap()
            .is_time_series()
    );
    let events = f.next(Duration::ZERO, 10).unwrap();
    let told: Vec<String> = events.iter().map(|e| text(e.as_bytes())).collect();
    assert!(told.is_empty(), "{told:#?}");
}

/// A rename to another database is shown as the end of one collection and a rename within the other
/// database. Each stream shows the part of it that it watches, and can be resumed between the two.
#[test]
fn a_rename_to_another_database_is_a_rename_there_and_a_drop_here() {
    let b = Bench::new();
    let store = &b.engine.store;
    b.insert(&[doc! { "_id": 1 }]);
    let made = b.engine.insert_many(
        &b.op,
        "other.d",
        &each(&[doc! { "_id": 2 }]),
        InsertOptions::default(),
    );
    assert!(made.unwrap().errors.is_empty());
    let before = store.visible();
    store
        .rename_collection("test.c", "other.d", true, &NeverInterrupted)
        .unwrap();
    b.insert(&[doc! { "_id": 3 }]);
    let told = |db: &str, collection: Option<&str>, mut stage: DocBuf| -> Vec<DocBuf> {
        let all = db == "admin";
        if all {
            stage.append("allChangesForCluster", true);
        }
        let stages = array![doc! { "$changeStream": stage }];
        let request = AggregateRequest {
            db,
            collection,
            ..aggregation(stages.as_doc())
        };
        let cursor = b.engine.aggregate(&b.op, &request).unwrap();
        let (mut out, owner) = (Vec::new(), CursorOwner::default());
        let limits = BatchLimits::of(0);
        let first = b.engine.first_batch(&b.op, cursor, owner, limits, &mut out);
        let id = first.unwrap();
        let more = GetMoreRequest {
            id,
            namespace: &format!("{db}.{}", collection.unwrap_or("$cmd.aggregate")),
            batch_size: Some(10),
            owner: CursorOwner::default(),
            await_time: Some(Duration::ZERO),
            await_time_given: true,
            is_late: &|| false,
            fails: &|| None,
        };
        let mut out = Vec::new();
        b.engine.get_more(&b.op, &more, &mut out).unwrap();
        let reply = cursor_of(&out);
        let batch = reply.as_doc().get_array("nextBatch").unwrap();
        let events = batch.values().filter_map(|v| v.as_doc());
        events.map(|d| d.to_buf()).collect()
    };
    let since = || {
        let at = Value::Timestamp {
            t: before.seconds(),
            i: before.increment() + 1,
        };
        doc! { "startAtOperationTime": at }
    };
    let shown = |events: &[DocBuf]| -> Vec<String> {
        let name = |d: Doc<'_>| {
            let coll = d.get_str("coll").unwrap_or_default();
            let hidden = coll
                .strip_prefix("tmp")
                .and_then(|n| n.strip_suffix(".rename"));
            let coll = hidden.map_or(coll, |_| "TMP");
            format!("{}.{coll}", d.get_str("db").unwrap_or_default())
        };
        let one = |e: &DocBuf| {
            let e = e.as_doc();
            let names: Vec<_> = ["ns", "to"]
                .iter()
                .filter_map(|n| e.get_doc(n))
                .map(name)
                .collect();
            format!(
                "{} {}",
                e.get_str("operationType").unwrap(),
                names.join(" ")
            )
        };
        events.iter().map(one).collect()
    };
    let rename = "rename other.TMP other.d";
    for (db, collection, wanted) in [
        ("test", Some("c"), vec!["drop test.c", "invalidate "]),
        ("test", None, vec!["drop test.c", "insert test.c"]),
        ("other", Some("d"), vec![rename, "invalidate "]),
        ("other", None, vec![rename]),
        ("admin", None, vec![rename, "drop test.c", "insert test.c"]),
    ] {
        let events = told(db, collection, since());
        assert_eq!(shown(&events), wanted, "{db} {collection:?}");
        // A stream that begins after one of the events gives the later ones.
        for (n, event) in events.iter().enumerate() {
            let behind = doc! { "startAfter": event.as_doc().get_doc("_id").unwrap() };
            let rest = told(db, collection, behind);
            // A new stream begins after an invalidation.
            let left: Vec<_> = wanted.iter().skip(n + 1).copied().collect();
            if wanted[n] != "invalidate " {
                assert_eq!(shown(&rest), left, "{db} {collection:?} behind {n}");
            }
        }
    }
    // The log has a single operation, which another server can apply.
    let mut entries = store.log_entries(before).unwrap();
    let renamed = entries.next().unwrap().unwrap();
    let [muniment_storage::Operation { what, .. }] = &renamed.ops[..] else {
        panic!("{renamed:?}");
    };
    let muniment_storage::What::Note { doc } = what else {
        panic!("{what:?}");
    };
    let o = Doc::new(doc).get_doc("o").unwrap();
    assert_eq!(o.get_str("renameCollection"), Some("test.c"));
    assert_eq!(o.get_str("to"), Some("other.d"));
}

#[test]
fn a_place_that_is_gone_is_an_error() {
    let b = Bench::new();
    b.insert(&[doc! { "_id": 1 }]);
    let mut f = Follower::new(&b.engine, doc! {}, array![]);
    b.engine.store.keep_log(0, Duration::ZERO);
    for n in 0..12 {
        b.insert(&[doc! { "_id": 100 + n, "pad": "x".repeat(4 << 20) }]);
        b.engine.store.flush().unwrap();
    }
    let e = f.next(Duration::from_secs(1), 10).unwrap_err();
    assert_eq!(e.code(), Code::ChangeStreamHistoryLost, "{e}");
    let e = f.open().unwrap_err();
    assert_eq!(e.code(), Code::ChangeStreamHistoryLost, "{e}");
}

#[test]
fn who_looks_by_itself_takes_no_wake_up_from_another() {
    let b = Bench::new();
    b.insert(&[doc! { "_id": 1 }]);
    let mut slow = 0;
    for round in 0..20_i64 {
        let mut f = Follower::new(&b.engine, doc! {}, array![]);
        let mut g = Follower::new(&b.engine, doc! {}, array![]);
        std::thread::scope(|s| {
            let waits = s.spawn(move || {
                let began = std::time::Instant::now();
                while f.next(Duration::from_secs(10), 10).unwrap().is_empty() {}
                began.elapsed()
            });
            std::thread::sleep(Duration::from_millis(30));
            b.insert(&[doc! { "_id": 1000 + round }]);
            g.next(Duration::ZERO, 10).unwrap();
            // A stream that was not woken waits until its time is over.
            slow += usize::from(waits.join().unwrap() > Duration::from_millis(150));
        });
    }
    assert!(slow < 5, "{slow}");
}

#[test]
fn a_resumed_stream_without_a_batch_has_the_token_it_was_given() {
    let b = Bench::new();
    let mut f = Follower::new(&b.engine, doc! {}, array![]);
    b.insert(&[doc! { "_id": 1 }, doc! { "_id": 2 }]);
    let got = f.next(Duration::from_secs(5), 10).unwrap();
    let token = got[0].as_doc().get_doc("_id").unwrap().to_buf();
    let stages = array![doc! { "$changeStream": doc! { "resumeAfter": &token } }];
    let op = OpContext::internal("test");
    let cursor = b
        .engine
        .aggregate(&op, &aggregation(stages.as_doc()))
        .unwrap();
    let mut out = Vec::new();
    let (owner, none) = (CursorOwner::default(), BatchLimits::of(0));
    b.engine
        .first_batch(&op, cursor, owner, none, &mut out)
        .unwrap();
    let reply = cursor_of(&out);
    let said = reply.as_doc().get_doc("postBatchResumeToken").unwrap();
    assert_eq!(said.to_buf(), token);
    f.token = Some(token);
    assert_eq!(f.open().unwrap().len(), 1);
}

#[test]
fn a_description_that_grows_beyond_all_is_refused() {
    let name = "n".repeat(100_000);
    let make = |v: i32| {
        let all: ArrayBuf = (0..1000).map(|i| i + v).collect();
        let mut d = doc! { "_id": 1 };
        d.append(&name, all);
        d
    };
    let mut out = Vec::new();
    let (old, new) = (make(0), make(1));
    let told = |_: &[&[u8]]| true;
    assert!(muniment_query::diff::encode_by(
        old.as_doc(),
        new.as_doc(),
        &told,
        &mut out
    ));
    let e = muniment_query::diff::describe(Doc::new(&out)).unwrap_err();
    assert_eq!(e.code(), Code::BSONObjectTooLarge);
}

#[test]
fn a_transaction_that_is_given_up_ends_no_stream() {
    let b = Bench::new();
    let mut f = Follower::new(&b.engine, doc! {}, array![]);
    for _ in 0..2 {
        let (t, op) = begin(&b);
        let docs = [doc! { "_id": 1 }];
        let options = InsertOptions::default();
        let out = b
            .engine
            .insert_many(&op, NS, &each(&docs), options)
            .unwrap();
        assert!(out.errors.is_empty());
        t.abort();
        assert!(b.engine.store.collection(NS).is_none());
    }
    b.insert(&[doc! { "_id": 7 }]);
    let got = f.next(Duration::from_secs(5), 10).unwrap();
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].as_doc().get_str("operationType"), Some("insert"));
}

/// Streams in the middle of a large transaction share its record, and none of them keeps all of its
/// operations. A stream that asks for the memory of a second such record is refused.
#[test]
fn streams_share_a_large_transaction() {
    let b = Bench::new();
    b.insert_json(&[r#"{"_id": -1}"#]);
    let ledger = b.engine.memory.clone();
    let streams = || ledger.figures(Account::Streams);
    let transaction = |from: i32| {
        let (t, op) = begin(&b);
        for i in from..from + 25 {
            let docs: Vec<DocBuf> = (0..200)
                .map(|n| doc! { "_id": i * 1000 + n, "x": "x".repeat(4000) })
                .collect();
            let options = InsertOptions::default();
            let out = b
                .engine
                .insert_many(&op, NS, &each(&docs), options)
                .unwrap();
            assert!(out.errors.is_empty(), "{:?}", out.errors);
        }
        let size = t.bytes();
        t.commit(None, Announce::Door, &NeverInterrupted).unwrap();
        size
    };
    let mut followers: Vec<_> = (0..5)
        .map(|_| Follower::new(&b.engine, doc! {}, array![]))
        .collect();
    let size = transaction(0);
    assert!(size > 20_000_000);
    for f in &mut followers {
        let wait = Duration::from_secs(10);
        assert_eq!(f.next(wait, 10).unwrap().len(), 10);
    }
    let mut told = vec![10; followers.len()];
    while told[0] < 5000 {
        for (f, told) in followers.iter_mut().zip(&mut told) {
            let events = f.next(Duration::from_millis(100), 700).unwrap();
            for e in &events {
                let id = e
                    .as_doc()
                    .get_doc("documentKey")
                    .unwrap()
                    .get("_id")
                    .unwrap();
                assert_eq!(id.as_i64_exact(), Some(*told / 200 * 1000 + *told % 200));
                *told += 1;
            }
        }
    }
    assert!(told.iter().all(|n| *n == 5000), "{told:?}");
    // Each stream holds one record at a time, and may read the next one while it gives the last one
    // back.
    let peak = streams().peak;
    let record = 20_000_000..size + (1 << 20);
    assert!(record.contains(&peak), "{peak} of {size}");
    // If there is room for one record, another one is refused, and its stream continues when there
    // is room.
    ledger.set_limit(Account::Streams, size);
    let mut held = b.engine.store.log_entries(Timestamp::ZERO).unwrap();
    while held.next().unwrap().unwrap().weight == 0 {}
    assert!(record.contains(&streams().used));
    transaction(100);
    let e = followers[0].next(Duration::from_secs(10), 10).unwrap_err();
    assert_eq!(e.code(), Code::ExceededMemoryLimit);
    assert_eq!(e.labels(), ["ResumableChangeStreamError"]);
    drop(held);
    let before = b.engine.store.visible();
    assert_eq!(
        followers[1]
            .next(Duration::from_secs(10), 10)
            .unwrap()
            .len(),
        10
    );
    assert!(b.engine.store.visible() >= before);
    drop(followers);
}

/// A part of a stream that a router merges, which begins after this token.
fn part<'b>(b: &'b Bench, shard: &str, token: &DocBuf) -> (Follower<'b>, Vec<DocBuf>) {
    let mut part = Follower {
        engine: &b.engine,
        stage: doc! { "$shard": shard },
        behind: array![],
        id: 0,
        token: Some(token.clone()),
    };
    let events = part.open().unwrap();
    (part, events)
}

#[test]
fn a_shard_knows_on_which_side_of_a_token_its_events_are() {
    let b = Bench::new();
    b.insert(&[doc! { "_id": 0 }]);
    let begin = Follower::new(&b.engine, doc! {}, array![]).token.unwrap();
    for id in 1..4 {
        b.insert(&[doc! { "_id": id }]);
    }
    let ids = |events: &[DocBuf]| -> Vec<i64> {
        let id = |e: &DocBuf| {
            e.as_doc()
                .get_doc("documentKey")?
                .get("_id")?
                .as_i64_exact()
        };
        events.iter().filter_map(id).collect()
    };
    let token_of = |e: &DocBuf| e.as_doc().get_doc("_id").unwrap().to_buf();
    // A mark is before the events of every shard.
    let (_, own) = part(&b, "s1", &begin);
    assert_eq!(ids(&own), [1, 2, 3]);
    let token = token_of(&own[1]);
    let mut sides = [0, 0];
    for other in ["a", "b", "c", "d", "s0", "s1", "s2", "s3"] {
        let (_, all) = part(&b, other, &begin);
        let same = token_of(&all[1]);
        let data = |t: &DocBuf| t.as_doc().get_str("_data").unwrap().to_string();
        let comes_after = data(&same) > data(&token);
        let (_, rest) = part(&b, other, &token);
        let expected: &[i64] = if comes_after { &[2, 3] } else { &[3] };
        assert_eq!(ids(&rest), expected, "{other}");
        sides[usize::from(comes_after)] += 1;
    }
    assert!(sides[0] > 1 && sides[1] > 0, "{sides:?}");
    // Without a shard, the token is that of a stream of this server alone, and the other way round.
    let mut alone = Follower::new(&b.engine, doc! {}, array![]);
    alone.token = Some(token);
    assert_eq!(ids(&alone.open().unwrap()), [3]);
    alone.token = Some(begin);
    let token = token_of(&alone.open().unwrap()[1]);
    assert_eq!(ids(&part(&b, "s1", &token).1), [3]);
}

#[test]
fn a_router_that_asks_is_told_that_nothing_happens() {
    let b = Bench::new();
    b.insert(&[doc! { "_id": 0 }]);
    let begin = Follower::new(&b.engine, doc! {}, array![]).token.unwrap();
    let (mut part, _) = part(&b, "s0", &begin);
    for _ in 0..3 {
        let op = OpContext::internal("test");
        b.engine.store.commit_nothing(&*op).unwrap();
        let time = b.engine.store.visible();
        let began = std::time::Instant::now();
        let told = std::thread::scope(|scope| {
            scope.spawn(|| b.engine.ask_changes(time));
            part.next(Duration::from_secs(60), 10).unwrap()
        });
        assert!(began.elapsed() < Duration::from_secs(30) && told.is_empty());
        let (at, _) = crate::read_token(part.token.as_ref().unwrap().as_doc()).unwrap();
        assert!(at > time, "the promise is later than what was asked for");
    }
    // It was told before, so this one waits.
    let began = std::time::Instant::now();
    part.next(Duration::from_millis(50), 10).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(50));
}
