//! An audit log that cannot be written: what has to be audited fails, and works again with the log.

use super::*;
use std::os::unix::fs::symlink;
use std::process::Command;

/// Lets the server start although nothing can be written.
const WITHOUT_START: &str = "{atype: {$nin: ['startup', 'clientMetadata']}}";

fn is_refused(c: &mut Connection, db: &str, cmd: &str) -> String {
    let (code, message) = told(c, db, cmd);
    assert_eq!(code, 96, "{cmd}: {message}");
    assert!(
        message.contains("audit log"),
        "{cmd} does not say why: {message}"
    );
    message
}

#[test]
fn what_must_be_audited_fails_while_nothing_can_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.json");
    symlink("/dev/full", &path).unwrap();
    // The first user and a collection are made while there is no audit log.
    let mut server = Server::start(ServerOptions::new().arg("--auth"));
    let mut c = server.connect();
    let create = format!("{{createUser: 'root', pwd: '{PASSWORD}', roles: ['root']}}");
    run(&mut c, "admin", &create);
    login(&mut c, "admin", "root", PASSWORD).unwrap();
    run(&mut c, "d", "{insert: 'there', documents: [{a: 1}]}");
    drop(c);
    server.terminate();
    let (file, filter) = (path.to_str().unwrap(), WITHOUT_START);
    server.set_args(&[
        "--auth",
        "--logRotate",
        "reopen",
        "--logappend",
        "--logpath",
        dir.path().join("log").to_str().unwrap(),
        "--auditDestination",
        "file",
        "--auditPath",
        file,
        "--auditFilter",
        filter,
    ]);
    server.start_again();
    let mut c = server.connect();
    // Not even with the right password.
    let e = login(&mut c, "admin", "root", PASSWORD).unwrap_err();
    assert_eq!(e.code().0, 96, "{e}");
    assert_eq!(told(&mut c, "d", "{find: 'there'}").0, 13);
    let wrong = login(&mut c, "admin", "root", "wrong").unwrap_err();
    assert_eq!(wrong.code().0, 18, "{wrong}");
    // A client can greet.
    let hello = "{hello: 1, client: {driver: {name: 'x', version: '1'}, os: {type: 'x'}}}";
    run(&mut c, "admin", hello);
    // The file is a good one again, and the server is told so by the signal, since nobody can log in.
    std::fs::remove_file(&path).unwrap();
    Command::new("kill")
        .args(["-USR1", &server.pid().unwrap().to_string()])
        .status()
        .unwrap();
    server.until("a login", || {
        login(&mut server.connect(), "admin", "root", PASSWORD).ok()
    });
    let events = events_in(&path);
    let gap = param(&events[0]).get_str("msg").unwrap_or_default();
    assert!(gap.contains("could not be written"), "{events:?}");
    assert!(events.iter().any(|e| text(e, "atype") == "rotateLog"));
}

#[test]
fn an_action_is_refused_before_it_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.json");
    symlink("/dev/full", &path).unwrap();
    let audited = Audited::start_at(dir, path, &["--auditFilter", WITHOUT_START]);
    let mut c = audited.server.connect();
    // The first failure is noticed when the event is written. The reply says that it has been done.
    let message = is_refused(&mut c, "d", "{create: 'a'}");
    assert!(message.contains("create has been done, but"), "{message}");
    let names = |c: &mut Connection| {
        let reply = run(c, "d", "{listCollections: 1, nameOnly: true}");
        reply.as_doc().to_display()
    };
    assert!(names(&mut c).contains("\"a\""));
    // From then on nothing is done that could not be told of.
    for cmd in [
        "{create: 'b'}",
        "{drop: 'a'}",
        "{createUser: 'u', pwd: 'x', roles: []}",
        "{createIndexes: 'a', indexes: [{key: {a: 1}, name: 'x'}]}",
    ] {
        let message = is_refused(&mut c, "d", cmd);
        assert!(message.contains("was not run"), "{cmd}: {message}");
    }
    assert!(names(&mut c).contains("\"a\"") && !names(&mut c).contains("\"b\""));
    assert_eq!(told(&mut c, "d", "{dropUser: 'u'}").0, 96);
    // What is not audited goes on.
    run(&mut c, "d", "{insert: 'a', documents: [{a: 1}]}");
    run(&mut c, "d", "{find: 'a'}");
    is_refused(&mut c, "d", "{insert: 'new', documents: [{a: 1}]}");
    // Reads are audited, too, if that is asked for.
    let set = |on: bool| format!("{{setParameter: 1, auditAuthorizationSuccess: {on}}}");
    run(&mut c, "admin", &set(true));
    is_refused(&mut c, "d", "{find: 'a'}");
    is_refused(
        &mut c,
        "d",
        "{insert: 'a', documents: [{_id: 'unwritten'}]}",
    );
    // Nor can that be switched off without an event.
    is_refused(&mut c, "admin", &set(false));
    is_refused(&mut c, "admin", "{shutdown: 1}");
    run(&mut c, "admin", "{ping: 1}");
    assert!(
        audited
            .server
            .log()
            .contains("The audit log cannot be written"),
        "the server's log is silent about it"
    );
    // The end does not wait for the audit log.
    let mut server = audited.server;
    assert!(server.terminate().success());
    server.set_args(&[]);
    server.start_again();
    let found = run(
        &mut server.connect(),
        "d",
        "{count: 'a', query: {_id: 'unwritten'}}",
    );
    assert_eq!(shown(&found, "n"), "0");
}

/// A small file system of its own.
struct Tmpfs(PathBuf);

impl Tmpfs {
    /// `None` without the right to mount one.
    fn mount(at: &Path) -> Option<Tmpfs> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "none"])
            .arg(at)
            .status();
        mounted
            .is_ok_and(|s| s.success())
            .then(|| Tmpfs(at.to_path_buf()))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_loses_no_line_and_tears_none() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Tmpfs::mount(dir.path()) else {
        eprintln!("not tested: a file system can be mounted by root only");
        return;
    };
    let path = disk.0.join("audit.json");
    let audited = Audited::start_at(tempfile::tempdir().unwrap(), path, &[]);
    let mut c = audited.server.connect();
    run(&mut c, "d", "{create: 'before'}");
    // Fills the disk up to its last byte.
    let fill = disk.0.join("fill");
    let mut filler = std::fs::File::create(&fill).unwrap();
    while std::io::Write::write(&mut filler, &[0; 4096]).is_ok() {}
    drop(filler);
    // What is announced is refused before any write has failed: soon there is no more room to reserve.
    let mut early = 0;
    let refused = loop {
        let (code, message) = told(&mut c, "d", &format!("{{create: 'early{early}'}}"));
        if code != 0 {
            break message;
        }
        early += 1;
        assert!(early < 100, "the disk is not full");
    };
    assert!(refused.contains("was not run"), "{refused}");
    // The room that was reserved is used up by events that are not announced before.
    let mut n = 0;
    let failed = loop {
        let (code, message) = told(
            &mut c,
            "d",
            &format!("{{insert: 'c{n}', documents: [{{}}]}}"),
        );
        if code != 0 {
            break message;
        }
        n += 1;
        assert!(n < 2000, "the disk is not full");
    };
    assert!(failed.contains("No space left"), "{failed}");
    for cmd in [
        "{create: 'refused'}",
        "{createUser: 'u', pwd: 'x', roles: []}",
    ] {
        let message = is_refused(&mut c, "d", cmd);
        assert!(message.contains("was not run"), "{message}");
    }
    events_in(&audited.path);
    std::fs::remove_file(&fill).unwrap();
    run(&mut c, "d", "{create: 'after'}");
    run(&mut c, "d", "{createUser: 'u', pwd: 'x', roles: []}");
    // Every collection that was acknowledged is there.
    let events = audited.events();
    let has = |ns: &str| {
        let is = |e: &&DocBuf| text(e, "atype") == "createCollection";
        let mut created = events.iter().filter(is);
        created.any(|e| param(e).get_str("ns") == Some(ns))
    };
    assert!(has("d.before") && has("d.after") && !has("d.refused"));
    assert!((0..n).all(|n| has(&format!("d.c{n}"))));
    assert!((0..early).all(|n| has(&format!("d.early{n}"))));
    assert!(!has(&format!("d.early{early}")));
    assert!(!has(&format!("d.c{n}")));
    let gap = |e: &DocBuf| {
        param(e)
            .get_str("msg")
            .is_some_and(|m| m.contains("could not be written"))
    };
    assert_eq!(events.iter().filter(|e| gap(e)).count(), 1);
    drop(audited);
}
