//! The harness itself: a server starts, is measured, ends, and starts again with its data.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{array, doc};
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions};

#[test]
fn starts_is_measured_ends_and_starts_again() {
    let mut server = Server::start(ServerOptions::new());
    let idle = server.rss_bytes();
    println!("resident when idle: {} MB", idle >> 20);
    assert!(idle > 1 << 20 && idle < 1 << 30);
    let mut c = server.connect();
    let insert = doc! { "insert": "c", "documents": array![doc! { "_id": 1 }] };
    c.command("db", &insert).unwrap();
    let before = server.cpu_time();
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        c.command("db", &doc! { "ping": 1 }).unwrap();
    }
    assert!(server.cpu_time() > before);
    server.restart();
    assert!(server.is_running());
    let found = server
        .connect()
        .find_all("db", &doc! { "find": "c" })
        .unwrap();
    assert_eq!(found, vec![doc! { "_id": 1 }]);
    let pid = server.pid().unwrap();
    drop(server);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}
