//! Replica sets whose members authenticate each other with a key file: real servers, over the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod set;

use muniment_value::{ArrayBuf, DocBuf, Value, array, doc};
use muniment_wire::{Connection, Header};
use set::{config, ids, initiate_over_data, insert, lines, status_of, told_of};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions, Set};

fn write_key(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

/// Options with a key file in `dir`.
fn with_key(dir: &Path, name: &str, text: &str) -> ServerOptions {
    let path = dir.join(name);
    write_key(&path, text);
    ServerOptions::new()
        .arg("--noauth")
        .arg("--keyFile")
        .arg(path.to_str().unwrap())
}

fn of_set(options: ServerOptions) -> Server {
    Server::start(options.arg("--replSet").arg("rs0"))
}

fn members(set: &Set, n: usize) -> DocBuf {
    let members = (0..n).map(|i| doc! { "_id": i as i32, "host": set.host(i) });
    set.config(members.collect())
}

fn told(reply: &DocBuf) {
    let failed = reply.as_doc().get("writeConcernError");
    assert!(failed.is_none(), "{reply:?}");
}

/// Puts the configuration with one more member, or one member less, in force.
fn reconfigure(c: &mut Connection, set: &Set, wanted: Vec<DocBuf>) {
    let mut next = set.config(wanted);
    let version = config(c).as_doc().get("version").unwrap().as_i64_exact();
    next.append("version", version.unwrap() + 1);
    c.command("admin", &doc! { "replSetReconfig": next })
        .unwrap();
}

fn warnings(c: &mut Connection) -> String {
    let reply = c.command("admin", &doc! { "getLog": "startupWarnings" });
    reply.unwrap().as_doc().to_display()
}

#[test]
fn a_set_with_a_key_does_all_that_sets_do() {
    let dir = tempfile::tempdir().unwrap();
    let options = with_key(dir.path(), "key", "The/Key+of=this\n set");
    let mut set = Set::prepare(4, &options);
    // The other members copy the data that exists before.
    let key = dir.path().join("key");
    let args = [
        "--replSet",
        "rs0",
        "--noauth",
        "--keyFile",
        key.to_str().unwrap(),
    ];
    let config = members(&set, 3);
    initiate_over_data(&mut set, -1, &args, &config);
    let mut c = set.connect(set.primary());
    for id in 0..20 {
        told(&insert(&mut c, id, doc! { "w": 3 }));
    }
    let told_of = warnings(&mut c);
    assert!(
        told_of.contains("clients are not asked for credentials"),
        "{told_of}"
    );
    let first = set.primary();
    set.members[first].kill9();
    let second = set.primary();
    let mut c = set.connect(second);
    told(&insert(&mut c, 20, doc! { "w": "majority" }));
    set.members[first].start_again();
    set.settle();
    let primary = set.primary();
    let mut c = set.connect(primary);
    let fourth = doc! { "_id": 3, "host": set.host(3) };
    let all = (0..3).map(|i| doc! { "_id": i, "host": set.host(i as usize) });
    reconfigure(&mut c, &set, all.chain([fourth]).collect());
    set.settle();
    told(&insert(&mut c, 21, doc! { "w": 4 }));
    for i in 0..4 {
        assert_eq!(ids(&mut set.connect(i)), (-1..=21).collect::<Vec<_>>());
    }
    for i in 1..4 {
        assert!(lines(&set.members[i], "Starting initial sync") > 0, "{i}");
    }
    // The primary runs it for a member that proves to be one.
    let other = (primary + 1) % 4;
    let cmd = doc! {
        "aggregate": "c",
        "pipeline": array![doc! { "$out": "out" }],
        "cursor": doc! {},
        "$readPreference": doc! { "mode": "secondary" },
    };
    set.connect(other).command("test", &cmd).unwrap();
    let n = c.command("test", &doc! { "count": "out" }).unwrap();
    assert_eq!(n.as_doc().get("n").unwrap().as_i64_exact(), Some(23));
}

#[test]
fn strangers_are_kept_out() {
    let dir = tempfile::tempdir().unwrap();
    let set = Set::prepare(3, &with_key(dir.path(), "key", "abcdef"));
    set.initiate(&members(&set, 3));
    let other = of_set(with_key(dir.path(), "other", "ghijkl"));
    let none = of_set(ServerOptions::new());
    let primary = set.primary();
    let mut c = set.connect(primary);
    // A set with a member that has another key, or none, cannot be initiated.
    for (asked, others) in [(&none, [&other]), (&other, [&none])] {
        let all = [asked, others[0]];
        let all = all.iter().enumerate();
        let all = all.map(|(i, s)| doc! { "_id": i as i32, "host": s.address() });
        let wanted = set.config(all.collect());
        let initiate = doc! { "replSetInitiate": wanted };
        let e = asked.connect().command("admin", &initiate).unwrap_err();
        assert_eq!(e.code().0, 74, "{e}");
        assert!(e.message().contains("Authentication failed"), "{e}");
    }
    // One stranger at a time is added. It is told nothing, and affects no other member.
    for (stranger, reason) in [(&other, "no key in common"), (&none, "has no key file")] {
        let all = (0..3).map(|i| doc! { "_id": i, "host": set.host(i as usize) });
        let host = stranger.address();
        let fourth = doc! { "_id": 3, "host": host.as_str(), "votes": 0, "priority": 0 };
        reconfigure(&mut c, &set, all.chain([fourth]).collect());
        let status = set.until("nobody tells of the stranger", || {
            let status = status_of(&mut c, &host);
            let told = status.as_doc().get_str("lastHeartbeatMessage")?;
            told.contains("Authentication failed").then_some(status)
        });
        let status = status.as_doc();
        assert!(
            status
                .get_str("lastHeartbeatMessage")
                .unwrap()
                .contains(reason),
            "{status:?}"
        );
        assert!(matches!(status.get("state"), Some(Value::Int32(8))));
        told(&insert(&mut c, 0, doc! { "w": 3 }));
        c.command(
            "test",
            &doc! { "drop": "c", "writeConcern": doc! { "w": 3 } },
        )
        .unwrap();
        let mine = lines(stranger, "Failed to authenticate");
        assert!(mine >= 1, "{}", stranger.log());
        let refused = "do not prove to each other";
        assert!(lines(&set.members[primary], refused) > 0);
        // The three members try it again from time to time.
        std::thread::sleep(Duration::from_secs(4));
        let more = lines(stranger, "Failed to authenticate") - mine;
        assert!((1..=12).contains(&more), "{more}");
        let all = (0..3).map(|i| doc! { "_id": i, "host": set.host(i as usize) });
        reconfigure(&mut c, &set, all.collect());
        let status = stranger
            .connect()
            .command("admin", &doc! { "replSetGetStatus": 1 });
        assert_eq!(status.unwrap_err().code().0, 94);
    }
}

/// A member that comes back with another key, or none, is refused on both sides, and the two others continue.
#[test]
fn a_member_with_another_key_is_refused_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let mut set = Set::prepare(3, &with_key(dir.path(), "key", "abcdef"));
    set.initiate(&members(&set, 3));
    let primary = set.primary();
    let (strange, other) = ((primary + 1) % 3, (primary + 2) % 3);
    let key = dir.path().join("other");
    write_key(&key, "ghijkl");
    let with = [
        "--replSet",
        "rs0",
        "--noauth",
        "--keyFile",
        key.to_str().unwrap(),
    ];
    for args in [&with[..2], &with] {
        let member = &mut set.members[strange];
        member.terminate();
        member.set_args(args);
        member.start_again();
        for (asked, of) in [(strange, other), (other, strange), (primary, strange)] {
            let host = set.host(of);
            set.until("nobody tells of the stranger", || {
                let status = told_of(&mut set.connect(asked), &host)?;
                let told = status.as_doc().get_str("lastHeartbeatMessage")?;
                told.contains("Authentication failed").then_some(())
            });
        }
        for i in [strange, other] {
            let log = &set.members[i];
            assert!(lines(log, "Failed to authenticate") > 0, "{}", log.log());
            assert!(
                lines(log, "do not prove to each other") > 0,
                "{}",
                log.log()
            );
        }
        told(&insert(
            &mut set.connect(set.primary()),
            args.len() as i32,
            doc! { "w": 2 },
        ));
        // It cannot let another member run an aggregation, nor does it run one for another.
        let cmd = doc! {
            "aggregate": "c",
            "pipeline": array![doc! { "$out": "out" }],
            "cursor": doc! {},
            "$readPreference": doc! { "mode": "secondary" },
        };
        set.connect(strange).command("test", &cmd).unwrap_err();
    }
}

/// Sends commands and bytes on a socket, and returns the replies until the connection is closed.
fn raw(to: &str, commands: &[DocBuf], bytes: &[u8]) -> Vec<DocBuf> {
    let mut c = Connection::connect(to).unwrap();
    c.set_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut replies = Vec::new();
    for cmd in commands {
        match c.command_raw("admin", cmd) {
            Ok(reply) => replies.push(reply),
            Err(_) => return replies,
        }
    }
    c.send_bytes(bytes).unwrap();
    let begun = Instant::now();
    let end = c.command_raw("admin", &doc! { "ping": 1 });
    assert!(end.is_err(), "{end:?}");
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "it was not closed"
    );
    replies
}

fn code(reply: &DocBuf) -> i64 {
    let code = reply.as_doc().get("code").and_then(|v| v.as_i64_exact());
    code.unwrap_or_else(|| panic!("{reply:?}"))
}

#[test]
fn forged_messages_are_refused_and_end_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let set = Set::prepare(3, &with_key(dir.path(), "key", "abcdef"));
    set.initiate(&members(&set, 3));
    let at = set.host(0);
    let binary = |bytes: &'static [u8]| Value::Binary { subtype: 0, bytes };
    let greeting = doc! { "from": 2_i64, "to": 1_i64, "inForce": binary(&[]) };
    let stream = doc! { "_replSetStream": "rs0", "greeting": greeting };
    let checks = doc! { "_replSetStream": "rs0", "onlyChecks": true };
    let export = doc! { "_replSetExport": "rs0" };
    let begin = doc! {
        "_replSetProve": "rs0", "from": "x:1", "to": at.as_str(), "nonce": binary(&[7; 32]),
    };
    let keyless = doc! { "_replSetProve": "rs0", "from": "x:1", "to": at.as_str() };
    let elsewhere = doc! {
        "_replSetProve": "rs0", "from": "x:1", "to": set.host(1), "nonce": binary(&[7; 32]),
    };
    let short = doc! {
        "_replSetProve": "rs0", "from": "x:1", "to": at.as_str(), "nonce": binary(&[7; 31]),
    };
    let proofs: ArrayBuf = array![binary(&[1; 32]), binary(&[])];
    let proofs = doc! { "_replSetProve": "rs0", "proofs": proofs };
    let nothing = doc! { "_replSetProve": "rs0", "proofs": array![] };
    for (commands, wanted) in [
        (vec![stream.clone()], 13),
        (vec![checks], 13),
        (vec![export.clone()], 13),
        (vec![begin.clone(), stream.clone()], 13),
        (vec![begin.clone(), export], 13),
        (vec![keyless], 18),
        (vec![elsewhere], 18),
        (vec![short], 18),
        (vec![proofs.clone()], 18),
        (vec![begin.clone(), proofs.clone()], 18),
        (vec![begin.clone(), nothing], 18),
    ] {
        let replies = raw(&at, &commands, &[]);
        let last = replies.last().unwrap();
        assert_eq!(replies.len(), commands.len(), "{commands:?}: {replies:?}");
        assert_eq!(code(last), wanted, "{commands:?}: {last:?}");
    }
    // A client that wants no answer gets none, but its connection ends.
    let mut c = Connection::connect(&at).unwrap();
    c.set_timeout(Some(Duration::from_secs(10))).unwrap();
    c.send_only("admin", &stream).unwrap();
    assert!(c.command("admin", &doc! { "ping": 1 }).is_err());
    // A challenge can be used for one attempt.
    let again = raw(&at, &[begin, proofs.clone(), proofs], &[]);
    assert_eq!(again.len(), 2, "{again:?}");
    // A frame comes without authentication.
    let mut frame = Vec::new();
    let header = Header {
        message_length: 17,
        request_id: 0,
        response_to: 0,
        op_code: 2099,
    };
    header.put(&mut frame);
    frame.push(3);
    assert!(raw(&at, &[], &frame).is_empty());
    // Clients are not affected.
    told(&insert(&mut set.connect(set.primary()), 1, doc! { "w": 3 }));
}

/// The old and the new key are on one member after the other, then the new one alone; the set works all the
/// time.
#[test]
fn keys_are_changed_one_member_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut set = Set::prepare(3, &with_key(dir.path(), "key", "oldold"));
    set.initiate(&members(&set, 3));
    let mut id = 0;
    for text in ["- oldold\n- newnew\n", "newnew"] {
        for i in 0..3 {
            let path = dir.path().join(format!("key{i}"));
            write_key(&path, text);
            let member = &mut set.members[i];
            member.terminate();
            member.set_args(&[
                "--replSet",
                "rs0",
                "--noauth",
                "--keyFile",
                path.to_str().unwrap(),
            ]);
            member.start_again();
            set.settle();
            id += 1;
            told(&insert(
                &mut set.connect(set.primary()),
                id,
                doc! { "w": 3 },
            ));
        }
    }
}

#[test]
fn a_key_file_that_cannot_be_used_ends_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    let refused = |args: &[&str], why: &str| {
        let mut server = Server::prepare(ServerOptions::new());
        server.set_args(args);
        server.try_start().unwrap_err();
        let log = server.log();
        assert!(log.contains(why), "{why}: {log}");
    };
    let key = path.to_str().unwrap();
    let args = ["--replSet", "rs0", "--keyFile", key];
    refused(&args, "cannot read the key file");
    write_key(&path, "abcde");
    refused(&args, "it has length 5, must be between 6 and 1024 chars");
    write_key(&path, "abc_def");
    refused(&args, "not base64");
    write_key(&path, "abcdef");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    refused(&args, &format!("permissions on {key} are too open"));
}
