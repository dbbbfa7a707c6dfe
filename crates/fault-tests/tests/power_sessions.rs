//! Power cuts with sessions: transactions over two collections survive completely or not at all, retryable
//! writes count exactly once, and change streams that are resumed after every cut return what is in the log:
//! no event is left out, comes twice, or was undone by the cut.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::clients::{Client, Manner, check, prepare, stored, until_enough};
use fault_tests::follower::{Follow, Told};
use fault_tests::session::{Address, Session};
use fault_tests::{DB, Rng, long, seed};
use muniment_value::{Doc, DocBuf, array, doc};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use testkit::{Server, ServerOptions};

const CLIENTS: u8 = 4;

/// The streams that are followed: one on the whole database in small batches, and one on a collection,
/// resumed after the last event.
const STREAMS: [Follow; 2] = [
    Follow {
        collection: None,
        batch: 7,
        by_event: false,
    },
    Follow {
        collection: Some("counters"),
        batch: 500,
        by_event: true,
    },
];

/// Whether this is the last event of all.
fn is_end(event: Doc<'_>) -> bool {
    let key = event.get_doc("documentKey").and_then(|k| k.get_str("_id"));
    key == Some("end")
}

/// All events up to the last one.
fn events(stream: Follow, address: &Address) -> (Vec<DocBuf>, u64) {
    let mut all = Vec::new();
    let opened = stream.run(address, |event| {
        if is_end(event) {
            return ControlFlow::Break(());
        }
        all.push(event.to_buf());
        ControlFlow::Continue(())
    });
    (all, opened)
}

/// Runs rounds of load and power cut with these streams. Returns how many acknowledged operations were lost,
/// where that is allowed.
fn cuts(
    options: ServerOptions,
    interval: u64,
    journaled_percent: u64,
    rounds: u64,
    streams: &[Follow],
) -> u64 {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let options = options
        .sync_delay(Duration::from_millis(1))
        .arg("--journalCommitInterval")
        .arg(interval.to_string());
    let mut server = Server::start(options);
    prepare(&mut server.connect());
    let address = Address::new(server.address());
    let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
    let manner = Manner {
        journaled_percent,
        may_lose: true,
    };
    let (clients, followed) = std::thread::scope(|scope| {
        let _guard = address.guard();
        let address = &address;
        let followers: Vec<_> = streams
            .iter()
            .map(|stream| scope.spawn(|| events(*stream, address)))
            .collect();
        let clients: Vec<_> = (1..=CLIENTS)
            .map(|i| {
                let (stop, operations) = (&stop, &operations);
                scope.spawn(move || {
                    let session = Session::new(address, i);
                    let rng = Rng::new(seed ^ u64::from(i));
                    let mut client = Client::new(session, i, rng, manner);
                    while !stop.load(SeqCst) {
                        client.operate();
                        operations.fetch_add(1, SeqCst);
                    }
                    client.settle_lost();
                    client
                })
            })
            .collect();
        for _ in 0..rounds {
            std::thread::sleep(Duration::from_millis(60 + rng.below(250)));
            if rng.below(3) == 0 {
                // Records that were never synced may still be lost although a start has found them.
                server.kill9();
                server.start_again();
                address.set(server.address());
                std::thread::sleep(Duration::from_millis(rng.below(150)));
            }
            server.cut_power();
            server.start_again();
            // This is checked before the clients come back: no transaction may be there in part.
            stored(&mut server.connect());
            address.set(server.address());
        }
        until_enough(&operations);
        stop.store(true, SeqCst);
        let clients: Vec<_> = clients.into_iter().map(|c| c.join().unwrap()).collect();
        let end = doc! { "insert": "counters", "documents": array![doc! { "_id": "end" }] };
        server.connect().command(DB, &end).unwrap();
        let followed = followers.into_iter().map(|f| f.join().unwrap());
        (clients, followed.collect::<Vec<_>>())
    });
    let mut opened = 0;
    for (stream, (given, times)) in streams.iter().zip(&followed) {
        // A stream that begins now returns the events of the log.
        let (log, _) = events(*stream, &address);
        same(given, &log, *stream);
        opened += times;
    }
    let (log, _) = events(STREAMS[0], &address);
    in_order(&log);
    let mut told = Told::default();
    log.iter().for_each(|e| told.apply(e.as_doc()));
    let tallies: Vec<_> = clients.iter().map(|c| c.tally).collect();
    check(&mut server.connect(), &tallies, &told);
    let again: u64 = clients.iter().map(|c| c.again).sum();
    let lost: u64 = clients.iter().map(|c| c.lost).sum();
    println!(
        "{rounds} power cuts, {} operations, {again} sent again, {lost} lost and done again or gone \
         as a whole; {} events, streams opened {opened} times",
        operations.load(SeqCst),
        told.events
    );
    assert!(again > 0 && opened >= rounds * streams.len() as u64);
    lost
}

/// Checks that both have the same events, byte by byte.
fn same(given: &[DocBuf], log: &[DocBuf], stream: Follow) {
    let differ = given.iter().zip(log).position(|(a, b)| a != b);
    let at = differ.unwrap_or(given.len().min(log.len()));
    let show = |all: &[DocBuf]| match all.get(at) {
        Some(e) => e.as_doc().to_display(),
        None => "no further event".into(),
    };
    assert!(
        differ.is_none() && given.len() == log.len(),
        "{stream:?}: {} events were told and the log has {}; the first that differs is {at}:\n\
         told    {}\nthe log {}",
        given.len(),
        log.len(),
        show(given),
        show(log)
    );
}

/// Checks that the tokens rise.
fn in_order(events: &[DocBuf]) {
    let token = |e: &DocBuf| {
        let token = e.as_doc().get_doc("_id").unwrap();
        token.get_str("_data").unwrap().to_string()
    };
    for pair in events.windows(2) {
        assert!(token(&pair[0]) < token(&pair[1]), "{pair:?}");
    }
}

#[test]
fn journaled_operations_survive_whole_and_once() {
    let rounds = if long() { 60 } else { 4 };
    let options = ServerOptions::new().powerloss();
    let lost = cuts(options, 100, 100, rounds, &STREAMS);
    assert_eq!(lost, 0);
}

#[test]
fn nothing_is_told_that_is_lost() {
    let rounds = if long() { 60 } else { 5 };
    let options = ServerOptions::new().powerloss();
    cuts(options, 500, 2, rounds, &STREAMS);
}

/// Streams make the events durable that they return. Without streams, the operations of an interval are lost.
#[test]
fn lost_operations_are_lost_whole_and_done_once_by_the_retry() {
    let rounds = if long() { 60 } else { 4 };
    let options = ServerOptions::new().powerloss();
    let lost = cuts(options, 500, 2, rounds, &[]);
    assert!(lost > 0, "nothing was lost: is the layer active?");
}

#[test]
fn the_same_of_a_replica_set_on_a_file_system_that_orders_its_metadata() {
    let rounds = if long() { 40 } else { 4 };
    let options = ServerOptions::new().powerloss_ordered();
    let options = options.arg("--replSet").arg("rs0").arg("--autoInitiate");
    cuts(options, 300, 20, rounds, &STREAMS);
}

/// The first token of a stream must not be later than the durable data: otherwise writes after the cut would
/// have earlier tokens.
#[test]
fn a_stream_that_was_opened_just_before_the_cut_tells_what_follows() {
    let options = ServerOptions::new()
        .powerloss()
        .sync_delay(Duration::from_millis(1))
        .arg("--journalCommitInterval")
        .arg("500");
    let mut server = Server::start(options);
    let mut c = server.connect();
    let rounds = if long() { 60 } else { 6 };
    let write = |c: &mut muniment_wire::Connection, collection: &str, concern: DocBuf| {
        let documents = array![doc! { "x": 1 }];
        let insert = doc! { "insert": collection, "documents": documents, "writeConcern": concern };
        c.command(DB, &insert).map(|_| ())
    };
    for round in 0..rounds {
        // The other collection's entries are at the beginning of the ring, and wait for the journal's own
        // flush.
        for _ in 0..2000 {
            write(&mut c, "others", doc! { "w": 1 }).unwrap();
        }
        let open = |c: &mut muniment_wire::Connection, stage: DocBuf| {
            let pipeline = array![doc! { "$changeStream": stage }];
            let open = doc! { "aggregate": "watched", "pipeline": pipeline, "cursor": doc! {} };
            let reply = c.command(DB, &open).unwrap();
            let cursor = reply.as_doc().get_doc("cursor").unwrap();
            let token = cursor.get_doc("postBatchResumeToken").unwrap().to_buf();
            let events = cursor.get_array("firstBatch").unwrap().count();
            (token, events)
        };
        open(&mut c, doc! {});
        for _ in 0..200 {
            write(&mut c, "others", doc! { "w": 1 }).unwrap();
        }
        let (token, events) = open(&mut c, doc! {});
        assert_eq!(events, 0);
        server.cut_power();
        server.start_again();
        c = server.connect();
        write(&mut c, "watched", doc! { "w": 1, "j": true }).unwrap();
        let (_, events) = open(&mut c, doc! { "resumeAfter": token });
        assert_eq!(events, 1, "round {round}");
    }
}
