//! Many clients of a router that need the same of the configuration at the same time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::doc;
use muniment_wire::Connection;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use testkit::ask::{number, run};
use testkit::{Cluster, freeze, thaw};

/// The clients.
const MANY: usize = 48;

/// How many operations the configuration has run so far.
fn operations(c: &mut Connection) -> i64 {
    let status = run(c, "admin", "{serverStatus: 1}");
    let counted = status.as_doc().get_doc("opcounters").unwrap().to_buf();
    ["insert", "query", "update", "delete", "command"]
        .iter()
        .map(|name| number(&counted, name))
        .sum()
}

/// Has all clients run something while the configuration does not answer, and lets it answer when all of them have
/// begun; how many operations that was for it.
fn while_it_stands_still(cluster: &Cluster, ask: impl Fn(usize, &mut Connection) + Sync) -> i64 {
    let mut config = cluster.config.connect(0);
    let router = &cluster.routers[1];
    let clients: Vec<Connection> = (0..MANY).map(|_| router.connect()).collect();
    let before = operations(&mut config);
    let pid = cluster.config.members[0].pid().unwrap();
    freeze(pid);
    let begun = AtomicUsize::new(0);
    let all = thread::scope(|scope| {
        let ask = &ask;
        let begun = &begun;
        let asks: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(i, mut c)| {
                scope.spawn(move || {
                    begun.fetch_add(1, SeqCst);
                    ask(i, &mut c);
                })
            })
            .collect();
        while begun.load(SeqCst) < MANY {
            thread::sleep(Duration::from_millis(1));
        }
        // By then their operations have come to where they wait.
        let until = Instant::now() + Duration::from_millis(700);
        while Instant::now() < until && asks.iter().all(|a| !a.is_finished()) {
            thread::sleep(Duration::from_millis(10));
        }
        thaw(pid);
        asks.into_iter().all(|a| a.join().is_ok())
    });
    assert!(all);
    operations(&mut config) - before
}

/// What one router has moved, all clients of the other one learn of from one read or two.
#[test]
fn a_table_is_read_once_for_all() {
    let cluster = Cluster::start(2, 1, 2);
    let (mut a, mut b) = (cluster.connect(), cluster.routers[1].connect());
    run(&mut a, "admin", "{enableSharding: 't', primaryShard: 's0'}");
    run(&mut a, "admin", "{shardCollection: 't.c', key: {k: 1}}");
    let docs: Vec<_> = (0..MANY).map(|i| doc! { "k": i as i32 }).collect();
    a.command_with("t", &doc! { "insert": "c" }, &[("documents", &docs)])
        .unwrap();
    assert_eq!(
        number(&run(&mut b, "t", "{count: 'c', query: {k: 1}}"), "n"),
        1
    );
    run(
        &mut a,
        "admin",
        "{moveRange: 't.c', min: {k: 0}, toShard: 's1'}",
    );
    let count = while_it_stands_still(&cluster, |i, c| {
        let count = format!("{{count: 'c', query: {{k: {i}}}}}");
        assert_eq!(number(&run(c, "t", &count), "n"), 1);
    });
    // Each read is of two collections. Besides there is what the configuration does for itself.
    assert!(count < MANY as i64, "{count} operations");
}

/// A database that many clients begin to use is created once.
#[test]
fn a_database_is_created_once_for_all() {
    let cluster = Cluster::start(2, 1, 2);
    let count = while_it_stands_still(&cluster, |i, c| {
        let insert = format!("{{insert: 'c', documents: [{{_id: {i}}}]}}");
        assert_eq!(number(&run(c, "new", &insert), "n"), 1);
    });
    assert!(count < MANY as i64, "{count} operations");
    let mut c = cluster.connect();
    assert_eq!(
        number(&run(&mut c, "new", "{count: 'c'}"), "n"),
        MANY as i64
    );
}
