//! kill -9 with clients that send everything again until it is answered: retryable writes and commits count
//! exactly once, and transactions survive completely or not at all. A change stream that is resumed from its
//! token after every kill returns everything once and in order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::clients::{Client, Manner, check, prepare, until_enough};
use fault_tests::follower::{Follow, Told};
use fault_tests::session::{Address, Session};
use fault_tests::{DB, Rng, long, seed};
use muniment_value::{array, doc};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use testkit::{Server, ServerOptions};

const CLIENTS: u8 = 4;

#[test]
fn operations_that_are_sent_again_are_done_once() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut server = Server::start(ServerOptions::new());
    prepare(&mut server.connect());
    let address = Address::new(server.address());
    let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
    let rounds = if long() { 200 } else { 12 };
    let manner = Manner {
        journaled_percent: 10,
        may_lose: false,
    };
    let stream = Follow {
        collection: None,
        batch: 7,
        by_event: false,
    };
    let (clients, told, opened) = std::thread::scope(|scope| {
        let _guard = address.guard();
        let follower = scope.spawn(|| {
            let mut told = Told::default();
            let opened = stream.run(&address, |event| {
                if event.get_doc("ns").unwrap().get_str("coll") == Some("end") {
                    return ControlFlow::Break(());
                }
                told.apply(event);
                ControlFlow::Continue(())
            });
            (told, opened)
        });
        let clients: Vec<_> = (1..=CLIENTS)
            .map(|i| {
                let (address, stop, operations) = (&address, &stop, &operations);
                scope.spawn(move || {
                    let session = Session::new(address, i);
                    let rng = Rng::new(seed ^ u64::from(i));
                    let mut client = Client::new(session, i, rng, manner);
                    while !stop.load(SeqCst) {
                        client.operate();
                        operations.fetch_add(1, SeqCst);
                    }
                    client.settle_lost();
                    (client.tally, client.again)
                })
            })
            .collect();
        for _ in 0..rounds {
            std::thread::sleep(Duration::from_millis(60 + rng.below(250)));
            server.kill9();
            server.start_again();
            address.set(server.address());
        }
        until_enough(&operations);
        stop.store(true, SeqCst);
        let clients: Vec<_> = clients.into_iter().map(|c| c.join().unwrap()).collect();
        let end = doc! { "insert": "end", "documents": array![doc! { "_id": 1 }] };
        server.connect().command(DB, &end).unwrap();
        let (told, opened) = follower.join().unwrap();
        (clients, told, opened)
    });
    let tallies: Vec<_> = clients.iter().map(|c| c.0).collect();
    let again: u64 = clients.iter().map(|c| c.1).sum();
    check(&mut server.connect(), &tallies, &told);
    println!(
        "{rounds} kills, {} operations, {again} sent again; {} events, the stream opened {opened} times",
        operations.load(SeqCst),
        told.events
    );
    assert!(again > 0 && opened > 1);
}
