//! The files of the audit log.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

fn rotate(c: &mut Connection, what: &str) {
    run(c, "admin", &format!("{{logRotate: {what}}}"));
}

/// The files of the audit log that were put aside.
fn aside(audited: &Audited) -> Vec<PathBuf> {
    let dir = audited.path.parent().unwrap();
    let all = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    all.filter(|p| *p != audited.path).collect()
}

#[test]
fn rotation_puts_the_file_aside() {
    // The umask of the tests would let others read the file.
    let umask = "honorSystemUmask=true";
    let audited = Audited::start(&["--setParameter", umask]);
    let mode = || {
        std::fs::metadata(&audited.path)
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(), 0o600);
    let mut c = audited.server.connect();
    run(&mut c, "d", "{create: 'a'}");
    let before = audited.events();
    rotate(&mut c, "'audit'");
    let files = aside(&audited);
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(events_in(&files[0]), before);
    let events = audited.events();
    assert_eq!(events.len(), 1, "{events:?}");
    let status = param(&events[0]).get_doc("logRotationStatus").unwrap();
    assert_eq!(text(&events[0], "atype"), "rotateLog");
    assert_eq!(status.get_str("status"), Some("OK"));
    assert_eq!(status.get_str("rotatedLogPath"), files[0].to_str());
    assert_eq!(mode(), 0o600);
    run(&mut c, "d", "{create: 'b'}");
    assert_eq!(
        param(&audited.last("createCollection")).get_str("ns"),
        Some("d.b")
    );
    rotate(&mut c, "1");
    assert_eq!(aside(&audited).len(), 2);
    // The server's own log alone.
    rotate(&mut c, "'server'");
    assert_eq!(aside(&audited).len(), 2);
    assert_eq!(audited.of("rotateLog").len(), 2);
    Command::new("kill")
        .args(["-USR1", &audited.server.pid().unwrap().to_string()])
        .status()
        .unwrap();
    audited.server.until("a third file", || {
        (aside(&audited).len() == 3).then_some(())
    });
    let (code, _) = told(&mut c, "admin", "{logRotate: 'nope'}");
    assert_eq!(code, 4);
    let without = Server::start(ServerOptions::new());
    assert_eq!(
        told(&mut without.connect(), "admin", "{logRotate: 'audit'}").0,
        4
    );
}

#[test]
fn a_file_that_another_program_moved_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let log = log.to_str().unwrap();
    let args = ["--logRotate", "reopen", "--logappend", "--logpath", log];
    let audited = Audited::start(&args);
    let mut c = audited.server.connect();
    let moved = audited.path.with_extension("moved");
    std::fs::rename(&audited.path, &moved).unwrap();
    run(&mut c, "d", "{create: 'a'}");
    rotate(&mut c, "'audit'");
    run(&mut c, "d", "{create: 'b'}");
    let last = events_in(&moved).pop().unwrap();
    assert_eq!(param(&last).get_str("ns"), Some("d.a"));
    let new = audited.events();
    let types: Vec<_> = new.iter().map(|e| text(e, "atype")).collect();
    assert_eq!(types, ["rotateLog", "createCollection"]);
}

#[test]
fn a_new_start_keeps_the_file() {
    let mut audited = Audited::start(&[]);
    audited.server.kill9();
    // The end of the process cut a line.
    let mut text = std::fs::read_to_string(&audited.path).unwrap();
    text.push_str("{\"atype\":\"half");
    std::fs::write(&audited.path, &text).unwrap();
    audited.server.start_again();
    let after = std::fs::read_to_string(&audited.path).unwrap();
    let rest = after.strip_prefix(&text).unwrap();
    assert!(rest.starts_with("\n{\"atype\":\"startup\""), "{rest}");
    assert!(rest.ends_with('\n'));
}
