//! The audit log and the redaction of the server's log: a real server, over the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod actions;
mod failing;
mod logins;
mod options;
mod redaction;
mod rotation;
mod server_events;

use muniment_auth::scram::Mechanism;
use muniment_auth::scram::client::Client;
use muniment_value::{Doc, DocBuf, Result, Value, doc};
use muniment_wire::Connection;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use testkit::{Server, ServerOptions, shell};

/// A password that may appear nowhere.
const PASSWORD: &str = "sesame-in-no-log";

/// A server with an audit log, and the directory of the log.
struct Audited {
    server: Server,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Audited {
    fn start(args: &[&str]) -> Audited {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.json");
        Audited::start_at(dir, path, args)
    }

    fn start_at(dir: tempfile::TempDir, path: PathBuf, args: &[&str]) -> Audited {
        let server = Server::start(options(&path, args));
        Audited {
            server,
            path,
            _dir: dir,
        }
    }

    /// A connection whose user may do everything.
    fn root(&self) -> Connection {
        let mut c = self.server.connect();
        let create = format!("{{createUser: 'root', pwd: '{PASSWORD}', roles: ['root']}}");
        run(&mut c, "admin", &create);
        login(&mut c, "admin", "root", PASSWORD).unwrap();
        c
    }

    fn events(&self) -> Vec<DocBuf> {
        events_in(&self.path)
    }

    /// The events of a type.
    fn of(&self, atype: &str) -> Vec<DocBuf> {
        let all = self.events().into_iter();
        all.filter(|e| text(e, "atype") == atype).collect()
    }

    /// The last event of a type.
    fn last(&self, atype: &str) -> DocBuf {
        let mut all = self.of(atype);
        all.pop().unwrap_or_else(|| {
            panic!(
                "no {atype}:\n{}",
                std::fs::read_to_string(&self.path).unwrap()
            )
        })
    }
}

fn options(path: &Path, args: &[&str]) -> ServerOptions {
    let options = ServerOptions::new()
        .arg("--auditDestination")
        .arg("file")
        .arg("--auditPath")
        .arg(path.to_str().unwrap());
    args.iter().fold(options, |o, arg| o.arg(*arg))
}

/// The events of a file, all of whose lines have to be whole.
fn events_in(path: &Path) -> Vec<DocBuf> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "a torn line: {text}"
    );
    let event = |line: &str| DocBuf::from_json(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    text.lines().map(event).collect()
}

fn text<'d>(d: &'d DocBuf, field: &str) -> &'d str {
    d.as_doc().get_str(field).unwrap_or_default()
}

fn param(event: &DocBuf) -> Doc<'_> {
    event.as_doc().get_doc("param").unwrap()
}

fn result(event: &DocBuf) -> i64 {
    let code = event.as_doc().get("result");
    code.and_then(|v| v.as_i64_exact()).unwrap()
}

/// The name of the event's user, `user@db`; empty without one.
fn who(event: &DocBuf) -> String {
    let users = event.as_doc().get_array("users").unwrap();
    let first = users.values().next().and_then(|v| v.as_doc());
    first.map_or_else(String::new, |u| {
        format!(
            "{}@{}",
            u.get_str("user").unwrap(),
            u.get_str("db").unwrap()
        )
    })
}

fn client(user: &str, password: &str) -> Client {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let nonce = format!("nonceOfTheTests{:020}", NEXT.fetch_add(1, SeqCst));
    Client::new(Mechanism::Sha256, user, password, &nonce).unwrap()
}

fn login(c: &mut Connection, db: &str, user: &str, password: &str) -> Result<()> {
    let mut client = client(user, password);
    let payload = |reply: &DocBuf| match reply.as_doc().get("payload") {
        Some(Value::Binary { bytes, .. }) => bytes.to_vec(),
        _ => panic!("{reply:?}"),
    };
    let binary = |bytes| Value::Binary { subtype: 0, bytes };
    let first = client.first();
    let start = doc! {
        "saslStart": 1,
        "mechanism": "SCRAM-SHA-256",
        "payload": binary(first.as_bytes()),
        "options": doc! { "skipEmptyExchange": true },
    };
    let answer = client.next(&payload(&c.command(db, &start)?))?;
    let go_on =
        doc! { "saslContinue": 1, "conversationId": 1, "payload": binary(answer.as_bytes()) };
    let reply = c.command(db, &go_on)?;
    client.verify(&payload(&reply))
}

/// Runs a command that has to succeed.
fn run(c: &mut Connection, db: &str, cmd: &str) -> DocBuf {
    let reply = c.command(db, &shell(cmd));
    reply.unwrap_or_else(|e| panic!("{db}: {cmd}: {e}"))
}

/// A field as people read it.
fn shown(d: &DocBuf, field: &str) -> String {
    let v = d.as_doc().get(field);
    v.map_or_else(String::new, |v| v.to_display())
}

/// The code and the text of a command's error; 0 if it has none.
fn told(c: &mut Connection, db: &str, cmd: &str) -> (i32, String) {
    match c.command(db, &shell(cmd)) {
        Err(e) => (e.code().0, e.message().to_string()),
        Ok(reply) => (0, reply.as_doc().to_display()),
    }
}
