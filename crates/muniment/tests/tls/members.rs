//! Sets whose members speak TLS with each other.

use super::{LIMIT, answers, client, dial, open, options, options_with, run};
use muniment_value::{DocBuf, Value, array, doc};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Authority, Server, ServerOptions, Set};

fn with_key(options: ServerOptions, dir: &Path) -> ServerOptions {
    let path = dir.join("key");
    std::fs::write(&path, "TheKeyOfTheSet").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    options
        .arg("--keyFile")
        .arg(path.to_str().unwrap())
        .arg("--noauth")
}

fn config(set: &Set, n: usize) -> DocBuf {
    let members = (0..n).map(|i| doc! { "_id": i as i32, "host": set.host(i) });
    set.config(members.collect())
}

/// How many connections a server has accepted with TLS.
fn accepted(server: &Server) -> i64 {
    let status = run(&mut server.connect(), "admin", "{serverStatus: 1}");
    super::number(&status, &["transportSecurity", "1.3"])
}

fn insert(set: &Set, id: i64, w: impl muniment_value::Put) {
    let cmd = doc! {
        "insert": "c",
        "documents": array![doc! { "_id": id }],
        "writeConcern": doc! { "w": w, "wtimeout": 20_000 },
    };
    let reply = set.connect(set.primary()).command("test", &cmd).unwrap();
    assert!(
        reply.as_doc().get("writeConcernError").is_none(),
        "{reply:?}"
    );
}

#[test]
fn members_speak_tls_if_they_prefer_it() {
    for (mode, speaks) in [("preferTLS", true), ("allowTLS", false)] {
        let authority = Authority::new();
        let dir = tempfile::tempdir().unwrap();
        // Members have to show a certificate, too.
        let options = with_key(options(&authority, mode), dir.path());
        let mut set = Set::prepare(3, &options);
        set.initiate(&config(&set, 3));
        insert(&set, 1, 3);
        // A member that has nothing copies over TLS.
        let second = (set.primary() + 1) % 3;
        set.members[second].kill9();
        set.members[second].empty();
        set.members[second].start_again();
        set.settle();
        insert(&set, 2, 3);
        for server in &set.members {
            assert_eq!(accepted(server) > 0, speaks, "{mode}");
        }
        let big = "x".repeat(5 << 20);
        let docs: Vec<DocBuf> = (0..3).map(|_| doc! { "text": big.as_str() }).collect();
        let cmd = doc! { "insert": "big", "writeConcern": doc! { "w": 3 } };
        let mut c = set.connect(set.primary());
        c.command_with("test", &cmd, &[("documents", &docs)])
            .unwrap();
    }
}

#[test]
fn certificates_make_members_known() {
    let authority = Authority::new();
    let by = |options: ServerOptions| options.arg("--clusterAuthMode").arg("x509").arg("--noauth");
    let set = Set::prepare(3, &by(options(&authority, "preferTLS")));
    set.initiate(&config(&set, 3));
    insert(&set, 1, 3);
    // One of the same authority whose unit is another one is no member.
    let other = authority.issue("other", "clients");
    let stranger = by(options_with(&authority, "preferTLS", &other));
    let stranger = Server::start(stranger.arg("--replSet").arg("rs0"));
    // A server cannot be of two clusters at once, or of none.
    let mixed = by(options(&authority, "preferTLS")).arg("--tlsClusterFile");
    let mut mixed = Server::prepare(mixed.arg(other.to_str().unwrap()));
    mixed.try_start().unwrap_err();
    assert!(mixed.log().contains("members of two clusters"));
    let mut c = set.connect(set.primary());
    let mut next = config(&set, 3);
    let members = (0..3).map(|i| doc! { "_id": i, "host": set.host(i as usize) });
    let fourth = doc! { "_id": 3, "host": stranger.address(), "votes": 0, "priority": 0 };
    let all: muniment_value::ArrayBuf = members.chain([fourth]).collect();
    next = {
        let mut d = DocBuf::new();
        for e in next.as_doc() {
            match e.name() {
                "members" => d.append("members", &all),
                _ => d.append_elem(e),
            };
        }
        d.append("version", 2);
        d
    };
    let _ = c.command("admin", &doc! { "replSetReconfig": next });
    stranger.until("the stranger is refused", || {
        let said = |s: &Server| s.log().contains("is not that of a member");
        let refused = |s: &Server| s.log().contains("accepts no certificate of");
        let any = set.members.iter().any(|s| said(s) || refused(s));
        (any || said(&stranger) || refused(&stranger)).then_some(())
    });
    insert(&set, 2, 3);
    let status = doc! { "replSetGetStatus": 1 };
    let status = stranger.connect().command("admin", &status);
    assert_eq!(status.unwrap_err().code().0, 94, "it is in the set");
}

#[test]
fn a_client_with_a_members_command_and_no_proof_is_refused() {
    let authority = Authority::new();
    let options = open(&authority, "preferTLS")
        .arg("--clusterAuthMode")
        .arg("x509")
        .arg("--noauth");
    let set = Set::prepare(1, &options);
    set.initiate(&config(&set, 1));
    let proof = doc! { "_replSetProve": "rs0", "from": "x:1", "to": set.host(0), "x509": true };
    let stream = |c: &mut muniment_wire::Connection| {
        let code = |r: muniment_value::Result<DocBuf>| r.map_or_else(|e| e.code().0, |_| 0);
        (
            code(c.command("admin", &proof)),
            code(c.command(
                "admin",
                &doc! { "_replSetStream": "rs0", "onlyChecks": true },
            )),
        )
    };
    let member = client(&authority, Some(&authority.issue("m", "db")));
    let user = client(&authority, Some(&authority.issue("u", "clients")));
    let nobody = client(&authority, None);
    for (tls, known) in [(&member, true), (&user, false), (&nobody, false)] {
        let mut c = dial(&set.host(0), tls).unwrap();
        let (proven, asked) = stream(&mut c);
        assert_eq!(proven == 0, known, "{proven}");
        assert_eq!(asked == 13 || asked == 9001, !known, "{asked}");
    }
    let (proven, _) = stream(&mut set.connect(0));
    assert_eq!(proven, 18);
}

/// Restarts each member with other arguments, secondaries first, as an operator does.
fn roll(set: &mut Set, args: &[&str]) {
    let first = set.primary();
    for i in (0..3).map(|n| (first + 1 + n) % 3) {
        set.members[i].terminate();
        let all = [&["--replSet", "rs0", "--noauth"], args].concat();
        set.members[i].set_args(&all);
        set.members[i].start_again();
        set.settle();
    }
}

#[test]
fn a_set_goes_from_keys_to_certificates_a_member_at_a_time() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let pair = authority.issue("server", "db");
    let (pair, ca) = (pair.to_str().unwrap(), authority.ca());
    let key = dir.path().join("key");
    let options = with_key(ServerOptions::new(), dir.path());
    let mut set = Set::prepare(3, &options);
    set.initiate(&config(&set, 3));
    let key = ["--keyFile", key.to_str().unwrap()];
    let tls = |mode: &'static str| {
        [
            "--tlsMode",
            mode,
            "--tlsCertificateKeyFile",
            pair,
            "--tlsCAFile",
            ca.to_str().unwrap(),
        ]
    };
    for (n, (mode, by, keyed)) in [
        ("allowTLS", "keyFile", true),
        ("preferTLS", "keyFile", true),
        ("preferTLS", "sendKeyFile", true),
        ("preferTLS", "sendX509", true),
        ("preferTLS", "x509", false),
    ]
    .into_iter()
    .enumerate()
    {
        let mut args = [&tls(mode)[..], &["--clusterAuthMode", by]].concat();
        if keyed {
            args.extend(key);
        }
        roll(&mut set, &args);
        insert(&set, n as i64, 3);
    }
}

/// A client that writes without a pause, and counts what fails.
struct Writer<'w> {
    stop: AtomicBool,
    written: AtomicI64,
    failed: Mutex<Vec<String>>,
    set: &'w Set,
}

impl Writer<'_> {
    fn run(&self, tls: &muniment_tls::Endpoint) {
        let mut c = dial(&self.set.host(self.set.primary()), tls).unwrap();
        while !self.stop.load(SeqCst) {
            let id = self.written.load(SeqCst);
            let cmd = doc! {
                "insert": "w",
                "documents": array![doc! { "_id": id }],
                "writeConcern": doc! { "w": 3, "wtimeout": 20_000 },
            };
            match c.command("test", &cmd) {
                Ok(r) if r.as_doc().get("writeConcernError").is_none() => {}
                other => self.failed.lock().unwrap().push(format!("{other:?}")),
            }
            self.written.fetch_add(1, SeqCst);
        }
    }

    fn goes_on(&self) {
        let (before, began) = (self.written.load(SeqCst), Instant::now());
        while self.written.load(SeqCst) < before + 5 {
            assert!(began.elapsed() < LIMIT, "{:?}", self.failed.lock().unwrap());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn certificates_and_authority_change_under_a_client_that_writes() {
    let old = Authority::new();
    let new = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let set = Set::prepare(3, &with_key(open(&old, "preferTLS"), dir.path()));
    set.initiate(&config(&set, 3));
    let tls = client(&old, None);
    let writer = Writer {
        stop: AtomicBool::new(false),
        written: AtomicI64::new(0),
        failed: Mutex::default(),
        set: &set,
    };
    let rotate = || {
        for i in 0..3 {
            run(&mut set.connect(i), "admin", "{rotateCertificates: 1}");
        }
        writer.goes_on();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| writer.run(&tls));
        writer.goes_on();
        let both = [old.ca(), new.ca()].map(|p| std::fs::read_to_string(p).unwrap());
        // Both authorities are trusted before the first certificate of the new one is shown.
        std::fs::write(old.ca(), both.concat()).unwrap();
        rotate();
        new.issue_into(&old.file("server.pem"), "server", "db", 4000);
        rotate();
        std::fs::write(old.ca(), &both[1]).unwrap();
        rotate();
        // Members meet with what they have now: a way that is made anew uses the new files.
        for i in 0..3 {
            let other = (0..3).find(|j| *j != i).unwrap();
            assert!(
                !answers(&set.host(i), &client_of(&both[0], &old)),
                "{other}"
            );
            assert!(answers(&set.host(i), &client(&new, None)));
        }
        writer.stop.store(true, SeqCst);
    });
    assert!(writer.failed.lock().unwrap().is_empty());
    let n = run(&mut set.connect(set.primary()), "test", "{count: 'w'}");
    let n = n
        .as_doc()
        .get("n")
        .and_then(|v: Value<'_>| v.as_i64_exact());
    assert_eq!(n, Some(writer.written.load(SeqCst)));
}

/// A client that trusts the authority of this text alone.
fn client_of(pem: &str, authority: &Authority) -> muniment_tls::Endpoint {
    let path = authority.file("alone.pem");
    std::fs::write(&path, pem).unwrap();
    let settings = muniment_tls::Settings {
        ca_file: Some(path),
        ..muniment_tls::Settings::default()
    };
    muniment_tls::Endpoint::new(muniment_tls::Mode::Require, settings).unwrap()
}
