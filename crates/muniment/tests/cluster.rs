//! `muniment cluster`: starts everything, ends everything, and finds its data again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::doc;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testkit::shell;

/// The first of so many ports that are free now.
fn free_ports(n: u16) -> u16 {
    let first = 21_000 + (std::process::id() % 8000) as u16;
    (first..60_000)
        .step_by(usize::from(n))
        .find(|first| {
            (*first..first + n).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        })
        .expect("free ports in a row")
}

struct Running {
    child: Child,
    uri: String,
}

impl Running {
    fn start(port: u16, dir: &Path) -> Running {
        let mut child = Command::new(testkit::binary())
            .args([
                "cluster",
                "--shards",
                "2",
                "--port",
                &port.to_string(),
                "--dir",
            ])
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut uri = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut uri).unwrap();
        let uri = uri.trim().to_string();
        if uri.is_empty() {
            let mut why = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut why);
            panic!("{why}");
        }
        Running { child, uri }
    }

    fn connect(&self) -> muniment_wire::Connection {
        let host = self
            .uri
            .trim_start_matches("mongodb://")
            .trim_end_matches('/');
        muniment_wire::Connection::connect(host).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        testkit::ask_to_end(self.child.id());
        let _ = self.child.wait();
    }
}

#[test]
fn it_starts_ends_and_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_ports(4);
    for n in 1..=2 {
        let mut running = Running::start(port, dir.path());
        assert_eq!(running.uri, format!("mongodb://127.0.0.1:{port}/"));
        let mut c = running.connect();
        for db in ["a", "b"] {
            let insert = format!("{{insert: 'c', documents: [{{_id: {n}}}]}}");
            c.command(db, &shell(&insert)).unwrap();
            if testkit::persistent() {
                assert_eq!(c.find_all(db, &shell("{find: 'c'}")).unwrap().len(), n);
            }
        }
        // Both shards have a part of it, and the database is at home on one.
        if n == 1 {
            let divide = "{shardCollection: 'a.divided', key: {k: 'hashed'}}";
            c.command("admin", &shell(divide)).unwrap();
            let docs: Vec<_> = (0..100).map(|k| doc! { "k": k }).collect();
            c.command_with("a", &doc! { "insert": "divided" }, &[("documents", &docs)])
                .unwrap();
        }
        if testkit::persistent() {
            let found = c.find_all("a", &shell("{find: 'divided'}")).unwrap();
            assert_eq!(found.len(), 100);
        }
        let shards = c.find_all("config", &shell("{find: 'shards'}")).unwrap();
        assert_eq!(shards.len(), 2);
        testkit::ask_to_end(running.child.id());
        assert!(running.child.wait().unwrap().success());
        // All of them have ended.
        for port in port..port + 4 {
            drop(TcpListener::bind(("127.0.0.1", port)).expect("the port is free again"));
        }
        std::mem::forget(running);
    }
    // It ends when a part of it does, and says which.
    let mut running = Running::start(port, dir.path());
    let mut shard = muniment_wire::Connection::connect(&format!("127.0.0.1:{}", port + 2)).unwrap();
    let _ = shard.command("admin", &shell("{shutdown: 1, force: true}"));
    let status = running.child.wait().unwrap();
    let mut why = String::new();
    let told = running
        .child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut why);
    told.unwrap();
    assert!(!status.success() && why.contains("shard0 on port"), "{why}");
    std::mem::forget(running);
}

#[test]
fn wrong_words_are_told() {
    for (args, what) in [
        (&["--shards", "0"][..], "'0'"),
        (&["--port", "65535"], "too few ports"),
        (&["--nope"], "nope"),
    ] {
        let out = Command::new(testkit::binary())
            .arg("cluster")
            .args(args)
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(2));
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(told.contains(what), "{told}");
    }
}

#[test]
fn ports_of_others_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let out = Command::new(testkit::binary())
        .args(["cluster", "--port", &port.to_string(), "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(!out.status.success());
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    let wanted = format!("cannot listen on port {port}");
    assert!(told.contains(&wanted) && told.contains("--port"), "{told}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
