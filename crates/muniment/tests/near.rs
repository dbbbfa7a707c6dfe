//! Servers on one host speak to each other over Unix sockets.
#![allow(clippy::unwrap_used, missing_docs)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use testkit::ask::run;
use testkit::{Cluster, ServerOptions};

/// How many connections there are at the Unix socket of the server with this port.
fn connections(dir: &Path, port: u16) -> usize {
    let path = dir.join(format!("mongodb-{port}.sock"));
    let all = std::fs::read_to_string("/proc/net/unix").unwrap();
    let ours = all
        .lines()
        .filter(|line| line.ends_with(path.to_str().unwrap()));
    // One is the socket that listens.
    ours.count().saturating_sub(1)
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Starts a cluster of one shard whose Unix sockets are in a directory of their own, and works with it while the shard
/// ends, comes back, and loses its socket's file.
fn goes_on_over_unix_sockets(args: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let options = [&["--unixSocketPrefix", dir.path().to_str().unwrap()], args].concat();
    let options = options
        .iter()
        .fold(ServerOptions::new(), |options, arg| options.arg(*arg));
    let mut cluster = Cluster::prepare_on(&options, 1, 1, 1, 1);
    let mut c = cluster.connect();
    cluster.add_shards(&mut c);
    let find = |c: &mut _, n: i32| {
        let insert = format!("{{insert: 'c', documents: [{{_id: {n}}}]}}");
        run(c, "d", &insert);
        let found = run(c, "d", "{count: 'c', readConcern: {level: 'majority'}}");
        assert_eq!(
            found.as_doc().get("n").unwrap().as_i64_exact(),
            Some(n.into())
        );
    };
    find(&mut c, 1);
    let (config, shard) = (
        cluster.config.members[0].port(),
        cluster.shards[0].members[0].port(),
    );
    until("the router reaches the shard by TCP", || {
        run(&mut cluster.connect(), "d", "{count: 'c'}");
        connections(dir.path(), shard) > 0
    });
    until("the router reaches the configuration by TCP", || {
        run(&mut cluster.connect(), "admin", "{listShards: 1}");
        connections(dir.path(), config) > 0
    });
    // What an ended process leaves is no socket, and what comes after it is another process.
    cluster.shards[0].members[0].kill9();
    cluster.shards[0].members[0].start_again();
    cluster.shards[0].primary();
    find(&mut c, 2);
    until("the router does not come back to the socket", || {
        run(&mut cluster.connect(), "d", "{count: 'c'}");
        connections(dir.path(), shard) > 0
    });
    std::fs::remove_file(dir.path().join(format!("mongodb-{shard}.sock"))).unwrap();
    find(&mut c, 3);
}

#[test]
fn servers_with_a_key_prove_themselves_there_too() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "abcdef").unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    goes_on_over_unix_sockets(&["--noauth", "--keyFile", key.to_str().unwrap()]);
}

#[test]
fn a_router_on_the_same_host_goes_on_over_unix_sockets() {
    goes_on_over_unix_sockets(&[]);
}
