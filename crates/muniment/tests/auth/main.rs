//! Logging in, users and roles, and what a user may do: a real server with `--auth`, over the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod force;
mod logins;
mod nested;
mod owners;
mod restored;
mod roads;
mod roles;
mod routers;
mod secrets;
#[path = "../set/mod.rs"]
mod set;
mod slowing;
mod times;
mod users;

use muniment_auth::scram::Mechanism;
use muniment_auth::scram::client::Client;
use muniment_value::{DocBuf, Result, Value, doc};
use muniment_wire::Connection;
use muniment_wire::op_query::parse_op_reply;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions, Set, shell};

const SHA1: &str = "SCRAM-SHA-1";
const SHA256: &str = "SCRAM-SHA-256";
const NEEDED: &str = "requires authentication";
const FAILED: &str = "Authentication failed.";

fn auth() -> Server {
    Server::start(ServerOptions::new().arg("--auth"))
}

/// With the fail points.
fn auth_for_tests() -> Server {
    let options = ServerOptions::new().arg("--auth");
    Server::start(options.arg("--setParameter").arg("enableTestCommands=1"))
}

fn nonce() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, SeqCst);
    format!("nonceOfTheTests{n:020}")
}

fn client(user: &str, password: &str, mechanism: &str) -> Client {
    let mechanism = Mechanism::from_name(mechanism).unwrap();
    Client::new(mechanism, user, password, &nonce()).unwrap()
}

fn binary(bytes: &[u8]) -> Value<'_> {
    Value::Binary { subtype: 0, bytes }
}

fn sasl_start(
    c: &mut Connection,
    db: &str,
    mechanism: &str,
    payload: &[u8],
    skips: bool,
) -> Result<DocBuf> {
    let cmd = doc! {
        "saslStart": 1,
        "mechanism": mechanism,
        "payload": binary(payload),
        "options": doc! { "skipEmptyExchange": skips },
    };
    c.command(db, &cmd)
}

fn sasl_continue(c: &mut Connection, db: &str, payload: &[u8]) -> Result<DocBuf> {
    let cmd = doc! { "saslContinue": 1, "conversationId": 1, "payload": binary(payload) };
    c.command(db, &cmd)
}

fn payload(reply: &DocBuf) -> Vec<u8> {
    match reply.as_doc().get("payload") {
        Some(Value::Binary { bytes, .. }) => bytes.to_vec(),
        _ => panic!("{reply:?}"),
    }
}

fn is_done(reply: &DocBuf) -> bool {
    reply.as_doc().get("done").unwrap().as_bool().unwrap()
}

/// Logs in as drivers do.
fn login(c: &mut Connection, db: &str, user: &str, password: &str, mechanism: &str) -> Result<()> {
    let mut client = client(user, password, mechanism);
    let reply = sasl_start(c, db, mechanism, client.first().as_bytes(), true)?;
    let answer = client.next(&payload(&reply))?;
    let reply = sasl_continue(c, db, answer.as_bytes())?;
    assert!(is_done(&reply), "{reply:?}");
    client.verify(&payload(&reply))
}

/// Runs a command that has to succeed.
fn run(c: &mut Connection, db: &str, cmd: &str) -> DocBuf {
    let reply = c.command(db, &shell(cmd));
    let reply = reply.unwrap_or_else(|e| panic!("{db}: {cmd}: {e}"));
    assert_eq!(code_in(&reply), 0, "{db}: {cmd}: {reply:?}");
    reply
}

fn code_in(reply: &DocBuf) -> i64 {
    let errors = reply.as_doc().get_array("writeErrors");
    let first = errors.and_then(|a| a.first()?.value().as_doc()?.get("code"));
    first.and_then(|v| v.as_i64_exact()).unwrap_or(0)
}

/// The code and the text of a command's error, or that of its first failed statement.
fn told(c: &mut Connection, db: &str, cmd: &str) -> (i64, String) {
    match c.command(db, &shell(cmd)) {
        Err(e) => (i64::from(e.code().0), e.message().to_string()),
        Ok(reply) => (code_in(&reply), reply.as_doc().to_display()),
    }
}

fn code(c: &mut Connection, db: &str, cmd: &str) -> i64 {
    told(c, db, cmd).0
}

/// The commands that fail with another code than this.
fn expect(c: &mut Connection, db: &str, wanted: i64, commands: &[&str]) {
    let mut wrong = Vec::new();
    for cmd in commands {
        let (code, text) = told(c, db, cmd);
        if code != wanted {
            wrong.push(format!("{cmd}: {code} {text}"));
        }
    }
    assert!(wrong.is_empty(), "not {wanted}:\n{}", wrong.join("\n"));
}

fn is_logged_out(c: &mut Connection) -> bool {
    let (code, text) = told(c, "admin", "{usersInfo: 1}");
    code == 13 && text.contains(NEEDED) && whoami(c).is_none()
}

fn whoami(c: &mut Connection) -> Option<String> {
    let reply = run(c, "admin", "{connectionStatus: 1}");
    let info = reply.as_doc().get_doc("authInfo").unwrap();
    let users = info.get_array("authenticatedUsers").unwrap();
    assert!(users.values().count() <= 1);
    let first = users.first()?.value().as_doc().unwrap();
    Some(format!(
        "{}@{}",
        first.get_str("user")?,
        first.get_str("db")?
    ))
}

/// Creates the first user, and logs in as that.
fn root(server: &Server) -> Connection {
    let mut c = server.connect();
    make_root(&mut c);
    c
}

fn make_root(c: &mut Connection) {
    run(
        c,
        "admin",
        "{createUser: 'root', pwd: 'rootpw', roles: ['root'], mechanisms: ['SCRAM-SHA-1']}",
    );
    login(c, "admin", "root", "rootpw", SHA1).unwrap();
}

/// Creates a user of the database `own` with the password "pw".
fn user(root: &mut Connection, name: &str, roles: &str) {
    let cmd =
        format!("{{createUser: '{name}', pwd: 'pw', roles: {roles}, mechanisms: ['SCRAM-SHA-1']}}");
    run(root, "own", &cmd);
}

fn as_user(server: &Server, name: &str) -> Connection {
    let mut c = server.connect();
    login(&mut c, "own", name, "pw", SHA1).unwrap();
    c
}

/// The names and aliases of all commands.
fn all_names(c: &mut Connection) -> Vec<String> {
    let reply = run(c, "admin", "{listCommands: 1}");
    let commands = reply.as_doc().get_doc("commands").unwrap();
    let mut names = Vec::new();
    for e in commands.iter() {
        names.push(e.name().to_string());
        let aliases = e.value().as_doc().unwrap().get_array("aliases").unwrap();
        names.extend(aliases.values().map(|v| v.as_str().unwrap().to_string()));
    }
    assert!(names.len() > 100, "{names:?}");
    names
}

const OPEN: [&str; 12] = [
    "hello",
    "isMaster",
    "ping",
    "buildInfo",
    "whatsmyuri",
    "connectionStatus",
    "listCommands",
    "logout",
    "saslStart",
    "authenticate",
    "saslContinue",
    "_replSetProve",
];

/// What is answered without a login, apart from the commands that are open to all.
fn answered_without(server: &Server) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in all_names(&mut server.connect()) {
        let open = OPEN.iter().any(|o| o.eq_ignore_ascii_case(&name));
        for db in ["admin", "test"] {
            let mut c = server.connect();
            let mut cmd = DocBuf::new();
            cmd.append(&name, 1);
            let first = c.command(db, &cmd);
            let (code, text) = match &first {
                Ok(reply) => (0, reply.as_doc().to_display()),
                Err(e) => (e.code().0, e.message().to_string()),
            };
            if open == (code == 13 && text.contains(NEEDED)) {
                wrong.push(format!("{db}.{name}: {code} {text}"));
            }
            if open {
                continue;
            }
            let ns = format!("{db}.$cmd");
            c.send_bytes(&testkit::op_query(&ns, &cmd)).unwrap();
            if let Ok(bytes) = c.recv_bytes() {
                let reply = parse_op_reply(bytes).unwrap();
                if reply.get("ok").is_some_and(|v| v.truthy()) {
                    wrong.push(format!("OP_QUERY {db}.{name}: {reply:?}"));
                }
            }
        }
    }
    wrong
}

/// What a server says to a client that begins: the iterations and the length of the salt, and the salt.
fn first_answer(c: &mut Connection, user: &str, mechanism: &str) -> (usize, String, String) {
    let first = client(user, "x", mechanism).first();
    let reply = sasl_start(c, "own", mechanism, first.as_bytes(), true).unwrap();
    let text = String::from_utf8(payload(&reply)).unwrap();
    let field = |name: &str| {
        let mut all = text.split(',');
        all.find_map(|f| f.strip_prefix(name)).unwrap().to_string()
    };
    (field("r=").len(), field("i="), field("s="))
}

fn users(c: &mut Connection, db: &str, cmd: &str) -> Vec<DocBuf> {
    let reply = run(c, db, cmd);
    let users = reply.as_doc().get_array("users").unwrap();
    users
        .values()
        .map(|v| v.as_doc().unwrap().to_buf())
        .collect()
}

fn ids(c: &mut Connection, db: &str, cmd: &str) -> Vec<String> {
    let users = users(c, db, cmd);
    let id = |d: &DocBuf| d.as_doc().get_str("_id").unwrap().to_string();
    users.iter().map(id).collect()
}

fn shown(d: &DocBuf, field: &str) -> String {
    let v = d.as_doc().get(field);
    v.map_or_else(|| "nothing".to_string(), |v| v.to_display())
}

fn role(c: &mut Connection, db: &str, cmd: &str) -> DocBuf {
    let reply = run(c, db, cmd);
    let roles = reply.as_doc().get_array("roles").unwrap();
    let first = roles.first().unwrap_or_else(|| panic!("{cmd}: {reply:?}"));
    first.value().as_doc().unwrap().to_buf()
}

/// The operations that a command shows.
fn inprog(c: &mut Connection, cmd: &str) -> String {
    run(c, "admin", cmd).as_doc().to_display()
}

/// The `uid` of a user's session, as hexadecimal digits.
fn uid_of(root: &mut Connection, session: &str) -> String {
    let cmd = "{aggregate: 1, pipeline: [{$listLocalSessions: {allUsers: true}}], cursor: {}}";
    let all = run(root, "admin", cmd);
    let cursor = all.as_doc().get_doc("cursor").unwrap();
    let batch = cursor.get_array("firstBatch").unwrap();
    let uid = batch.values().find_map(|v| {
        let id = v.as_doc()?.get_doc("_id")?;
        let Some(Value::Binary { bytes, .. }) = id.get("uid") else {
            return None;
        };
        id.to_display().contains(session).then(|| bytes.to_vec())
    });
    let uid = uid.unwrap_or_else(|| panic!("{all:?}"));
    uid.iter().map(|b| format!("{b:02x}")).collect()
}

/// The UUID of a collection, as text.
fn uuid_of(c: &mut Connection, db: &str, name: &str) -> String {
    let reply = run(
        c,
        db,
        &format!("{{listCollections: 1, filter: {{name: '{name}'}}}}"),
    );
    let batch = reply
        .as_doc()
        .get_doc("cursor")
        .unwrap()
        .get_array("firstBatch")
        .unwrap();
    let info = batch
        .first()
        .unwrap()
        .value()
        .as_doc()
        .unwrap()
        .get_doc("info")
        .unwrap();
    let Some(Value::Binary { bytes, .. }) = info.get("uuid") else {
        panic!("{info:?}")
    };
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("HexData(4, '{hex}')")
}

const PASSWORD: &str = "Recognisable-Password-7391";
/// Part of the nonces of the tests.
const NONCE: &str = "nonceOfTheTests";
