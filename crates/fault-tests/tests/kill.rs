//! kill -9 during mixed writes with several indexes: everything acknowledged survives, no write is partial,
//! and every index matches its collection.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::{DB, Load, Promise, Rng, consistent, create_indexes, long, seed, valid};
use muniment_value::{array, doc};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::{Server, ServerOptions};

#[test]
fn kills_lose_nothing() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut server = Server::start(ServerOptions::new());
    create_indexes(&mut server.connect());
    let mut load = Load::new(seed, 4, 10);
    let mut acknowledged = 0;
    let rounds = if long() { 200 } else { 20 };
    for round in 0..rounds {
        let time = Duration::from_millis(20 + rng.below(if long() { 1500 } else { 250 }));
        let address = server.address();
        load.run(&address, time, || server.kill9());
        acknowledged += load.acknowledged();
        server.start_again();
        let mut c = server.connect();
        let lost = load.judge(&mut c, Promise::All);
        assert_eq!(lost, 0, "round {round}");
        if round % 4 == 3 {
            consistent(&mut c);
        } else {
            valid(&mut c);
        }
    }
    println!("{rounds} kills, {acknowledged} acknowledged writes, none lost");
    assert!(acknowledged > rounds, "the load hardly ran");
}

#[test]
fn kills_during_flushes_and_compactions() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    // The memory is small, so that it is full soon.
    let options = ServerOptions::new().arg("--cacheSizeGB").arg("0.03");
    let mut server = Server::start(options);
    create_indexes(&mut server.connect());
    let mut load = Load::new(seed, 4, 10).large();
    for _ in 0..if long() { 60 } else { 4 } {
        let address = server.address();
        let time = Duration::from_millis(300 + rng.below(1200));
        load.run(&address, time, || server.kill9());
        server.start_again();
        let mut c = server.connect();
        load.judge(&mut c, Promise::All);
        consistent(&mut c);
    }
    let tables = testkit::files_below(&server.dir())
        .into_iter()
        .filter(|f| f.extension().is_some_and(|e| e == "table"));
    assert!(tables.count() > 0, "nothing was ever flushed");
}

#[test]
fn kills_during_index_builds_and_drops() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut server = Server::start(ServerOptions::new());
    create_indexes(&mut server.connect());
    let mut load = Load::new(seed, 2, 10);
    for _ in 0..if long() { 60 } else { 6 } {
        let address = server.address();
        let killed = AtomicBool::new(false);
        let time = Duration::from_millis(100 + rng.below(200));
        std::thread::scope(|scope| {
            let (builder, killed) = (server.connect(), &killed);
            scope.spawn(move || build_and_drop(builder, killed));
            load.run(&address, time, || {
                killed.store(true, Ordering::SeqCst);
                server.kill9();
            });
        });
        server.start_again();
        let mut c = server.connect();
        load.judge(&mut c, Promise::All);
        consistent(&mut c);
    }
}

fn build_and_drop(mut c: muniment_wire::Connection, killed: &AtomicBool) {
    let build = doc! {
        "createIndexes": "a",
        "indexes": array![doc! { "key": doc! { "v": 1, "tags": 1 }, "name": "extra" }],
    };
    let drop = doc! { "dropIndexes": "a", "index": "extra" };
    loop {
        // The index may exist already, if the restart has finished the build.
        for cmd in [&build, &drop] {
            if let Err(e) = c.command(DB, cmd) {
                assert!(killed.load(Ordering::SeqCst), "{e:?}");
                return;
            }
        }
    }
}

#[test]
fn a_clean_end_loses_nothing_and_a_second_server_is_refused() {
    let seed = seed();
    let mut server = Server::start(ServerOptions::new());
    create_indexes(&mut server.connect());
    let mut load = Load::new(seed, 3, 0);
    let address = server.address();
    load.run(&address, Duration::from_millis(300), || {
        let said = server.refused_second();
        assert!(said.contains("in use"), "not a clear message: {said}");
        assert!(server.terminate().success());
    });
    server.start_again();
    let mut c = server.connect();
    load.judge(&mut c, Promise::All);
    consistent(&mut c);
}
