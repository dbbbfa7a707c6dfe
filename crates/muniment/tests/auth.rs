//! Logging in, users and roles, and what a user may do: a real server with `--auth`, over the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod set;

use muniment_auth::scram::Mechanism;
use muniment_auth::scram::client::Client;
use muniment_value::{DocBuf, Result, Value, doc};
use muniment_wire::op_query::parse_op_reply;
use muniment_wire::{Connection, Header, OP_QUERY};
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

fn query(ns: &str, command: &DocBuf) -> Vec<u8> {
    let mut m = Vec::new();
    let len = 16 + 4 + ns.len() + 1 + 8 + command.as_bytes().len();
    Header {
        message_length: len as i32,
        request_id: 5,
        response_to: 0,
        op_code: OP_QUERY,
    }
    .put(&mut m);
    m.extend_from_slice(&4_u32.to_le_bytes());
    m.extend_from_slice(ns.as_bytes());
    m.push(0);
    m.extend_from_slice(&0_i32.to_le_bytes());
    m.extend_from_slice(&(-1_i32).to_le_bytes());
    m.extend_from_slice(command.as_bytes());
    m
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

const OPEN: [&str; 11] = [
    "hello",
    "isMaster",
    "ping",
    "buildInfo",
    "whatsmyuri",
    "connectionStatus",
    "listCommands",
    "logout",
    "saslStart",
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
            c.send_bytes(&query(&ns, &cmd)).unwrap();
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

/// The first user may be created by a client on this host; nothing else is possible without a login.
#[test]
fn before_a_login_only_a_handful_is_answered() {
    let server = auth();
    let mut c = server.connect();
    // Well-formed commands, too, and before there is a user.
    for (db, cmd) in [
        ("test", "{createUser: 'x', pwd: 'x', roles: []}"),
        ("admin", "{find: 'c'}"),
        ("admin", "{find: 'system.users'}"),
        ("admin", "{createRole: 'x', roles: [], privileges: []}"),
        ("admin", "{usersInfo: 1}"),
        ("admin", "{grantRolesToUser: 'x', roles: ['root']}"),
        (
            "admin",
            "{aggregate: 1, pipeline: [{$documents: [{}]}], cursor: {}}",
        ),
        ("test", "{insert: 'c', documents: [{}]}"),
        ("test", "{endSessions: []}"),
        ("admin", "{serverStatus: 1}"),
        ("admin", "{explain: {createUser: 'x', pwd: 'x', roles: []}}"),
        ("admin", "{bulkWrite: 1, ops: [], nsInfo: []}"),
    ] {
        let (code, text) = told(&mut c, db, cmd);
        assert!(code == 13 && text.contains(NEEDED), "{cmd}: {code} {text}");
    }
    make_root(&mut c);
    let wrong = answered_without(&server);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A command without a reply does nothing either.
    let mut other = server.connect();
    let insert = "{insert: 'c', documents: [{}], writeConcern: {w: 0}}";
    other.send_only("test", &shell(insert)).unwrap();
    run(&mut other, "test", "{ping: 1}");
    let n = run(&mut c, "test", "{count: 'c'}");
    assert_eq!(n.as_doc().get("n").unwrap().as_i64_exact(), Some(0));
}

#[test]
fn the_exception_for_the_first_user_ends_with_that() {
    let mut server = auth();
    let create = "{createUser: 'other', pwd: 'x', roles: ['root']}";
    let mut c = root(&server);
    let refused = |server: &Server| {
        let mut c = server.connect();
        for db in ["admin", "$external", "test"] {
            let (code, text) = told(&mut c, db, create);
            assert!(code == 13 && text.contains(NEEDED), "{db}: {code} {text}");
        }
        for cmd in [
            "{replSetGetStatus: 1}",
            "{replSetGetConfig: 1}",
            "{replSetInitiate: {}}",
        ] {
            assert_eq!(code(&mut c, "admin", cmd), 13, "{cmd}");
        }
    };
    refused(&server);
    if !testkit::persistent() {
        return;
    }
    server.restart();
    refused(&server);
    drop(c);
    c = server.connect();
    login(&mut c, "admin", "root", "rootpw", SHA1).unwrap();
    let reply = run(&mut c, "admin", "{dropAllUsersFromDatabase: 1}");
    assert_eq!(reply.as_doc().get("n").unwrap().as_i64_exact(), Some(1));
    assert!(is_logged_out(&mut c));
    // No user is left, but there was one since the start.
    refused(&server);
    server.restart();
    // Now it holds again.
    let mut c = root(&server);
    assert_eq!(whoami(&mut c).as_deref(), Some("root@admin"));
    refused(&server);
}

#[test]
fn both_mechanisms_log_in() {
    let server = auth();
    let mut admin = root(&server);
    run(
        &mut admin,
        "own",
        "{createUser: 'both', pwd: 'pä=,ss', roles: ['read']}",
    );
    run(
        &mut admin,
        "own",
        "{createUser: 'a=b,c', pwd: 'pw', roles: [], mechanisms: ['SCRAM-SHA-256']}",
    );
    user(&mut admin, "sha1", "[]");
    for mechanism in [SHA1, SHA256] {
        for skips in [false, true] {
            let mut c = server.connect();
            let mut client = client("both", "pä=,ss", mechanism);
            let first = client.first();
            let reply = sasl_start(&mut c, "own", mechanism, first.as_bytes(), skips).unwrap();
            assert!(!is_done(&reply));
            assert_eq!(
                reply.as_doc().get("conversationId").unwrap().as_i64_exact(),
                Some(1)
            );
            assert!(whoami(&mut c).is_none());
            let answer = client.next(&payload(&reply)).unwrap();
            let reply = sasl_continue(&mut c, "own", answer.as_bytes()).unwrap();
            client.verify(&payload(&reply)).unwrap();
            assert_eq!(is_done(&reply), skips);
            if !skips {
                let last = sasl_continue(&mut c, "own", b"").unwrap();
                assert!(is_done(&last) && payload(&last).is_empty());
            }
            assert_eq!(whoami(&mut c).as_deref(), Some("both@own"));
            assert_eq!(code(&mut c, "own", "{find: 'c'}"), 0);
            assert_eq!(code(&mut c, "other", "{find: 'c'}"), 13);
            // The conversation is over.
            let again = sasl_continue(&mut c, "own", answer.as_bytes()).unwrap_err();
            assert_eq!(again.code().0, 17, "{again}");
            assert_eq!(whoami(&mut c).as_deref(), Some("both@own"));
        }
        // With hello.
        let mut c = server.connect();
        let mut client = client("both", "pä=,ss", mechanism);
        let first = client.first();
        let hello = doc! {
            "hello": 1,
            "saslSupportedMechs": "own.both",
            "speculativeAuthenticate": doc! {
                "saslStart": 1,
                "mechanism": mechanism,
                "payload": binary(first.as_bytes()),
                "db": "own",
                "options": doc! { "skipEmptyExchange": true },
            },
        };
        let reply = c.command("admin", &hello).unwrap();
        let begun = reply
            .as_doc()
            .get_doc("speculativeAuthenticate")
            .unwrap()
            .to_buf();
        assert!(!is_done(&begun) && whoami(&mut c).is_none());
        let answer = client.next(&payload(&begun)).unwrap();
        let reply = sasl_continue(&mut c, "own", answer.as_bytes()).unwrap();
        client.verify(&payload(&reply)).unwrap();
        assert!(is_done(&reply));
        assert_eq!(whoami(&mut c).as_deref(), Some("both@own"));
    }
    let mut c = server.connect();
    login(&mut c, "own", "a=b,c", "pw", SHA256).unwrap();
    assert_eq!(whoami(&mut c).as_deref(), Some("a=b,c@own"));
    // The mechanisms of a user.
    let mut c = server.connect();
    for (asked, mechanisms) in [
        ("'own.both'", Some("[ \"SCRAM-SHA-1\", \"SCRAM-SHA-256\" ]")),
        (
            "{user: 'both', db: 'own'}",
            Some("[ \"SCRAM-SHA-1\", \"SCRAM-SHA-256\" ]"),
        ),
        ("'own.sha1'", Some("[ \"SCRAM-SHA-1\" ]")),
        ("'own.nobody'", None),
        ("'other.both'", None),
    ] {
        let reply = run(
            &mut c,
            "admin",
            &format!("{{hello: 1, saslSupportedMechs: {asked}}}"),
        );
        let shown = reply
            .as_doc()
            .get("saslSupportedMechs")
            .map(|v| v.to_display());
        assert_eq!(shown.as_deref(), mechanisms, "{asked}");
    }
    // What cannot be begun with hello is left out of its reply.
    for mechanism in ["PLAIN", "MONGODB-X509", ""] {
        let cmd = format!(
            "{{hello: 1, speculativeAuthenticate: {{saslStart: 1, mechanism: '{mechanism}', \
             payload: HexData(0, '6e'), db: 'own'}}}}"
        );
        let reply = run(&mut c, "admin", &cmd);
        assert!(reply.as_doc().get("speculativeAuthenticate").is_none());
        let e = sasl_start(&mut c, "own", mechanism, b"n,,n=both,r=x", true).unwrap_err();
        assert_eq!(e.code().0, 334, "{e}");
    }
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

#[test]
fn an_unknown_user_and_a_wrong_password_look_the_same() {
    let server = auth();
    let mut admin = root(&server);
    run(
        &mut admin,
        "own",
        "{createUser: 'known', pwd: 'pw', roles: ['read']}",
    );
    user(&mut admin, "sha1", "[]");
    for mechanism in [SHA1, SHA256] {
        let mut c = server.connect();
        let (nonce, iterations, salt) = first_answer(&mut c, "known", mechanism);
        let (nonce2, iterations2, salt2) = first_answer(&mut c, "unknown", mechanism);
        assert_eq!((nonce, iterations), (nonce2, iterations2));
        assert_eq!(salt.len(), salt2.len());
        assert_ne!(salt, salt2);
        // The salt of a user who does not exist does not change either.
        assert_eq!(
            first_answer(&mut server.connect(), "unknown", mechanism).2,
            salt2
        );
        assert_ne!(first_answer(&mut c, "unknown2", mechanism).2, salt2);
        for (name, password) in [("known", "wrong"), ("unknown", "pw"), ("unknown", "wrong")] {
            let e = login(&mut c, "own", name, password, mechanism).unwrap_err();
            assert_eq!((e.code().0, e.message()), (18, FAILED), "{name}");
            assert!(is_logged_out(&mut c));
        }
        login(&mut c, "own", "known", "pw", mechanism).unwrap();
    }
    // A user without this mechanism, and a known user's name in another database.
    for (db, name) in [("own", "sha1"), ("other", "known"), ("admin", "known")] {
        let e = login(&mut server.connect(), db, name, "pw", SHA256).unwrap_err();
        assert_eq!((e.code().0, e.message()), (18, FAILED), "{db}.{name}");
    }
}

#[test]
fn altered_messages_log_nobody_in() {
    let server = auth();
    let mut admin = root(&server);
    user(&mut admin, "u", "['read']");
    let reset = || login(&mut server.connect(), "own", "u", "pw", SHA1).unwrap();
    // The first message.
    let long = format!("n,,n=u,r={}", "x".repeat(5000));
    for first in [
        "",
        "n",
        "n,,",
        "n,,n=u",
        "n,,r=nonceOfTheTests0000",
        "n,,n=,r=nonceOfTheTests000000000",
        "n,,n=u,r=",
        "y,,n=u",
        "p=tls-unique,,n=u,r=nonceOfTheTests000000000",
        "n,a=root,n=u,r=nonceOfTheTests000000000",
        "n,,m=x,n=u,r=nonceOfTheTests000000000",
        "n,,n=u=,r=nonceOfTheTests000000000",
        "n,,n=u\0,r=nonceOfTheTests000000000",
        &long,
    ] {
        let mut c = server.connect();
        let e = sasl_start(&mut c, "own", SHA1, first.as_bytes(), true);
        let e = e.expect_err(first);
        assert!(matches!(e.code().0, 2 | 9 | 17 | 18), "{first}: {e}");
        let e = sasl_continue(&mut c, "own", b"c=biws,r=x,p=x").unwrap_err();
        assert_eq!(e.code().0, 17, "{first}: {e}");
        assert!(is_logged_out(&mut c), "{first}");
    }
    let e = sasl_start(
        &mut server.connect(),
        "own",
        SHA1,
        b"n,,n=\xff,r=abcdefgh",
        true,
    );
    assert!(e.is_err());
    // The final message.
    let flipped = |text: &str| {
        // The first character of the proof.
        let (before, proof) = text.split_once(",p=").unwrap();
        let first = if proof.starts_with('A') { "B" } else { "A" };
        format!("{before},p={first}{}", &proof[1..])
    };
    type Alter<'a> = &'a dyn Fn(&str) -> String;
    let alterations: &[Alter<'_>] = &[
        &|_| String::new(),
        &flipped,
        &|t| t.replace("c=biws", "c=eSws"),
        &|t| t.replace("c=biws,", ""),
        &|t| t.replacen("nonceOfTheTests", "nonceOfTheTestz", 1),
        &|t| t.replacen(",p=", "x,p=", 1),
        &|t| t.replacen(",p=", ",z=1,p=", 1),
        &|t| t.split_once(",p=").unwrap().0.to_string(),
        &|t| format!("{},p=", t.split_once(",p=").unwrap().0),
        &|t| t[..t.len() - 4].to_string(),
        &|t| format!("{t}AAAA"),
        &|t| format!("{t},p=AAAA"),
        &|t| format!("{t}{}", "A".repeat(5000)),
        &|t| t.split_once(",p=").unwrap().1.to_string(),
    ];
    let mut old = String::new();
    for (i, alter) in alterations.iter().enumerate() {
        let mut c = server.connect();
        let mut client = client("u", "pw", SHA1);
        let reply = sasl_start(&mut c, "own", SHA1, client.first().as_bytes(), true).unwrap();
        let answer = client.next(&payload(&reply)).unwrap();
        let altered = alter(&answer);
        assert_ne!(altered, answer, "{i}");
        let e = sasl_continue(&mut c, "own", altered.as_bytes()).expect_err(&altered);
        assert_eq!((e.code().0, e.message()), (18, FAILED), "{i}: {altered}");
        // A conversation is for one try.
        let e = sasl_continue(&mut c, "own", answer.as_bytes()).unwrap_err();
        assert_eq!(e.code().0, 17, "{i}: {e}");
        assert!(is_logged_out(&mut c), "{i}");
        old = answer;
        reset();
    }
    // An old message is of no use, in the same conversation's place or in another.
    let mut c = server.connect();
    let begin = |c: &mut Connection| {
        let mut client = client("u", "pw", SHA1);
        let reply = sasl_start(c, "own", SHA1, client.first().as_bytes(), true).unwrap();
        client.next(&payload(&reply)).unwrap()
    };
    begin(&mut c);
    assert_eq!(
        sasl_continue(&mut c, "own", old.as_bytes())
            .unwrap_err()
            .code()
            .0,
        18
    );
    // A conversation that another replaces is over.
    let first = begin(&mut c);
    begin(&mut c);
    assert_eq!(
        sasl_continue(&mut c, "own", first.as_bytes())
            .unwrap_err()
            .code()
            .0,
        18
    );
    // Another id, another connection.
    let answer = begin(&mut c);
    let other =
        doc! { "saslContinue": 1, "conversationId": 2, "payload": binary(answer.as_bytes()) };
    assert_eq!(c.command("own", &other).unwrap_err().code().0, 17);
    assert!(is_logged_out(&mut c));
    let answer = begin(&mut c);
    let mut d = server.connect();
    assert_eq!(
        sasl_continue(&mut d, "own", answer.as_bytes())
            .unwrap_err()
            .code()
            .0,
        17
    );
    assert!(is_logged_out(&mut d));
    // The same conversation is not affected.
    sasl_continue(&mut c, "own", answer.as_bytes()).unwrap();
    assert_eq!(whoami(&mut c).as_deref(), Some("u@own"));
}

#[test]
fn one_user_at_a_time_and_logging_out() {
    let server = auth();
    let mut admin = root(&server);
    user(&mut admin, "a", "['read']");
    user(&mut admin, "b", "['readWrite']");
    let mut c = as_user(&server, "a");
    let e = login(&mut c, "own", "b", "pw", SHA1).unwrap_err();
    assert_eq!(e.code().0, 17, "{e}");
    assert_eq!(whoami(&mut c).as_deref(), Some("a@own"));
    assert_eq!(code(&mut c, "own", "{insert: 'c', documents: [{}]}"), 13);
    // A try that fails leaves the login as it was; the same user again is fine.
    assert_eq!(
        login(&mut c, "own", "a", "wrong", SHA1)
            .unwrap_err()
            .code()
            .0,
        18
    );
    assert_eq!(whoami(&mut c).as_deref(), Some("a@own"));
    login(&mut c, "own", "a", "pw", SHA1).unwrap();
    // Without being proven, nothing changes.
    let first = client("b", "pw", SHA1).first();
    sasl_start(&mut c, "own", SHA1, first.as_bytes(), true).unwrap();
    assert_eq!(whoami(&mut c).as_deref(), Some("a@own"));
    for db in ["own", "admin"] {
        run(&mut c, db, "{logout: 1}");
        assert!(is_logged_out(&mut c));
        // A conversation does not outlive it.
        assert_eq!(sasl_continue(&mut c, "own", b"x").unwrap_err().code().0, 17);
        login(&mut c, "own", "b", "pw", SHA1).unwrap();
        run(&mut c, "own", "{insert: 'c', documents: [{}]}");
        assert_eq!(whoami(&mut c).as_deref(), Some("b@own"));
    }
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

#[test]
fn users_are_created_changed_and_dropped() {
    let server = auth();
    let mut c = root(&server);
    run(
        &mut c,
        "own",
        "{createUser: 'all', pwd: 'pw', customData: {a: 1}, digestPassword: true,
          roles: ['read', {role: 'readWrite', db: 'other'}],
          authenticationRestrictions: [{clientSource: ['127.0.0.1/8'], serverAddress: ['127.0.0.1']}],
          mechanisms: ['SCRAM-SHA-256'], writeConcern: {w: 1}, comment: 'x'}",
    );
    let all = users(&mut c, "own", "{usersInfo: 'all'}").remove(0);
    assert_eq!(shown(&all, "_id"), "\"own.all\"");
    assert_eq!(shown(&all, "customData"), "{ a: 1 }");
    assert_eq!(shown(&all, "mechanisms"), "[ \"SCRAM-SHA-256\" ]");
    assert_eq!(
        shown(&all, "roles"),
        "[ { role: \"read\", db: \"own\" }, { role: \"readWrite\", db: \"other\" } ]"
    );
    assert!(matches!(
        all.as_doc().get("userId"),
        Some(Value::Binary { subtype: 4, .. })
    ));
    login(&mut server.connect(), "own", "all", "pw", SHA256).unwrap();
    expect(
        &mut c,
        "own",
        51003,
        &["{createUser: 'all', pwd: 'x', roles: []}"],
    );
    // The same name in another database is another user.
    run(&mut c, "other", "{createUser: 'all', pwd: 'x', roles: []}");
    expect(
        &mut c,
        "own",
        31,
        &[
            "{createUser: 'x', pwd: 'x', roles: ['nope']}",
            "{createUser: 'x', pwd: 'x', roles: ['root']}",
            "{createUser: 'x', pwd: 'x', roles: [{role: 'read', db: 'own'}, {role: 'x', db: 'y'}]}",
            "{grantRolesToUser: 'all', roles: ['nope']}",
            "{updateUser: 'all', roles: ['nope']}",
        ],
    );
    expect(
        &mut c,
        "own",
        2,
        &[
            "{createUser: 'x', roles: []}",
            "{createUser: '', pwd: 'x', roles: []}",
            "{createUser: 'x', pwd: 'x', roles: [], mechanisms: []}",
            "{createUser: 'x', pwd: 'x', roles: [], mechanisms: ['PLAIN']}",
            "{createUser: 'x', pwd: 'x', roles: [], authenticationRestrictions: [{clientSource: ['x']}]}",
            "{createUser: 'x', pwd: 'x', roles: [], authenticationRestrictions: [{other: ['::1']}]}",
            "{createUser: 'x', pwd: 'x', roles: [], digestPassword: false}",
            "{updateUser: 'all'}",
            "{updateUser: 'all', mechanisms: ['SCRAM-SHA-1']}",
        ],
    );
    expect(
        &mut c,
        "own",
        14,
        &[
            "{createUser: 'x', pwd: 1, roles: []}",
            "{createUser: 1, pwd: 'x', roles: []}",
            "{createUser: 'x', pwd: 'x', roles: 'read'}",
            "{createUser: 'x', pwd: 'x', roles: [], customData: 1}",
        ],
    );
    expect(
        &mut c,
        "own",
        40415,
        &["{createUser: 'x', pwd: 'x', roles: [], other: 1}"],
    );
    expect(&mut c, "own", 40414, &["{createUser: 'x', pwd: 'x'}"]);
    expect(
        &mut c,
        "own",
        50687,
        &["{createUser: 'x', pwd: '', roles: []}"],
    );
    // A privilege on all databases leaves local out.
    expect(
        &mut c,
        "local",
        13,
        &["{createUser: 'x', pwd: 'x', roles: []}"],
    );
    run(
        &mut c,
        "admin",
        "{createUser: 'member', pwd: 'pw', roles: ['__system'], mechanisms: ['SCRAM-SHA-1']}",
    );
    let mut member = server.connect();
    login(&mut member, "admin", "member", "pw", SHA1).unwrap();
    expect(
        &mut member,
        "local",
        2,
        &["{createUser: 'x', pwd: 'x', roles: []}"],
    );
    run(&mut c, "admin", "{dropUser: 'member'}");
    assert_eq!(
        ids(&mut c, "own", "{usersInfo: {forAllDBs: true}}"),
        ["admin.root", "other.all", "own.all"]
    );
    expect(
        &mut c,
        "own",
        11,
        &[
            "{updateUser: 'nobody', pwd: 'x'}",
            "{dropUser: 'nobody'}",
            "{grantRolesToUser: 'nobody', roles: ['read']}",
            "{revokeRolesFromUser: 'nobody', roles: ['read']}",
        ],
    );
    // Each field alone.
    let mut open = server.connect();
    login(&mut open, "own", "all", "pw", SHA256).unwrap();
    let id = shown(&all, "userId");
    run(&mut c, "own", "{updateUser: 'all', pwd: 'new'}");
    assert_eq!(
        login(&mut server.connect(), "own", "all", "pw", SHA256)
            .unwrap_err()
            .code()
            .0,
        18
    );
    login(&mut server.connect(), "own", "all", "new", SHA256).unwrap();
    run(&mut c, "own", "{updateUser: 'all', customData: {b: 2}}");
    run(&mut c, "own", "{updateUser: 'all', roles: ['dbAdmin']}");
    assert_eq!(code(&mut open, "own", "{find: 'c'}"), 13);
    assert_eq!(code(&mut open, "own", "{profile: -1}"), 0);
    run(
        &mut c,
        "own",
        "{updateUser: 'all', pwd: 'new', mechanisms: ['SCRAM-SHA-1', 'SCRAM-SHA-256']}",
    );
    login(&mut server.connect(), "own", "all", "new", SHA1).unwrap();
    run(
        &mut c,
        "own",
        "{updateUser: 'all', mechanisms: ['SCRAM-SHA-1']}",
    );
    assert_eq!(
        login(&mut server.connect(), "own", "all", "new", SHA256)
            .unwrap_err()
            .code()
            .0,
        18
    );
    login(&mut server.connect(), "own", "all", "new", SHA1).unwrap();
    let digest = Mechanism::Sha1.prepared("all", "digested").unwrap();
    let digested = doc! {
        "updateUser": "all", "pwd": digest.as_str(), "digestPassword": false,
        "mechanisms": ["SCRAM-SHA-1"].iter().collect::<muniment_value::ArrayBuf>(),
    };
    c.command("own", &digested).unwrap();
    login(&mut server.connect(), "own", "all", "digested", SHA1).unwrap();
    run(
        &mut c,
        "own",
        "{grantRolesToUser: 'all', roles: ['read', 'dbAdmin']}",
    );
    assert_eq!(code(&mut open, "own", "{find: 'c'}"), 0);
    run(
        &mut c,
        "own",
        "{revokeRolesFromUser: 'all', roles: ['dbAdmin', 'readWrite']}",
    );
    assert_eq!(code(&mut open, "own", "{profile: -1}"), 13);
    let all = users(&mut c, "own", "{usersInfo: 'all'}").remove(0);
    assert_eq!(shown(&all, "customData"), "{ b: 2 }");
    assert_eq!(shown(&all, "roles"), "[ { role: \"read\", db: \"own\" } ]");
    assert_eq!(shown(&all, "mechanisms"), "[ \"SCRAM-SHA-1\" ]");
    assert_eq!(shown(&all, "userId"), id, "it is still the same user");
    assert_eq!(whoami(&mut open).as_deref(), Some("all@own"));
    // Restrictions come into force on open connections as well.
    run(
        &mut c,
        "own",
        "{updateUser: 'all', authenticationRestrictions: [{clientSource: ['10.0.0.0/8']}]}",
    );
    assert!(is_logged_out(&mut open));
    assert_eq!(
        login(&mut open, "own", "all", "digested", SHA1)
            .unwrap_err()
            .code()
            .0,
        18
    );
    run(
        &mut c,
        "own",
        "{updateUser: 'all', authenticationRestrictions: []}",
    );
    login(&mut open, "own", "all", "digested", SHA1).unwrap();
    // Dropped.
    run(&mut c, "own", "{dropUser: 'all'}");
    assert!(is_logged_out(&mut open));
    expect(&mut c, "own", 11, &["{dropUser: 'all'}"]);
    for name in ["x", "y"] {
        user(&mut c, name, "[]");
    }
    let reply = run(&mut c, "own", "{dropAllUsersFromDatabase: 1}");
    assert_eq!(reply.as_doc().get("n").unwrap().as_i64_exact(), Some(2));
    assert_eq!(
        ids(&mut c, "own", "{usersInfo: {forAllDBs: true}}"),
        ["admin.root", "other.all"]
    );
}

#[test]
fn restrictions_keep_this_host_out() {
    let server = auth();
    let mut c = root(&server);
    run(
        &mut c,
        "admin",
        "{createRole: 'far', privileges: [], roles: [],
        authenticationRestrictions: [{clientSource: ['10.1.0.0/16']}]}",
    );
    run(
        &mut c,
        "admin",
        "{createRole: 'near', privileges: [], roles: [],
        authenticationRestrictions: [{clientSource: ['127.0.0.0/8']}]}",
    );
    run(
        &mut c,
        "admin",
        "{createRole: 'farther', privileges: [], roles: ['far']}",
    );
    for (i, (restrictions, roles, allowed)) in [
        ("[]", "[]", true),
        ("[{clientSource: ['127.0.0.1']}]", "[]", true),
        ("[{clientSource: ['::1', '127.0.0.1/32']}]", "[]", true),
        ("[{serverAddress: ['127.0.0.0/8']}]", "[]", true),
        (
            "[{clientSource: ['10.0.0.1']}, {clientSource: ['127.0.0.1']}]",
            "[]",
            true,
        ),
        ("[{clientSource: ['10.0.0.1']}]", "[]", false),
        ("[{clientSource: ['127.0.0.2']}]", "[]", false),
        ("[{serverAddress: ['10.0.0.1']}]", "[]", false),
        (
            "[{clientSource: ['127.0.0.1'], serverAddress: ['10.0.0.1']}]",
            "[]",
            false,
        ),
        ("[]", "[{role: 'near', db: 'admin'}]", true),
        ("[]", "[{role: 'far', db: 'admin'}]", false),
        ("[]", "[{role: 'farther', db: 'admin'}]", false),
        (
            "[{clientSource: ['127.0.0.1']}]",
            "[{role: 'far', db: 'admin'}]",
            false,
        ),
        (
            "[{clientSource: ['10.1.0.1']}]",
            "[{role: 'near', db: 'admin'}]",
            false,
        ),
    ]
    .iter()
    .enumerate()
    {
        let cmd = format!(
            "{{createUser: 'u{i}', pwd: 'pw', roles: {roles}, mechanisms: ['SCRAM-SHA-1'], \
             authenticationRestrictions: {restrictions}}}"
        );
        run(&mut c, "own", &cmd);
        let mut d = server.connect();
        match login(&mut d, "own", &format!("u{i}"), "pw", SHA1) {
            Ok(()) => assert!(allowed, "{cmd}"),
            Err(e) => {
                assert!(!allowed, "{cmd}: {e}");
                assert_eq!((e.code().0, e.message()), (18, FAILED));
                assert!(is_logged_out(&mut d));
                // So that the next try need not wait.
                login(&mut d, "admin", "root", "rootpw", SHA1).unwrap();
            }
        }
    }
}

#[test]
fn users_are_shown_in_every_form() {
    let server = auth();
    let mut c = root(&server);
    run(
        &mut c,
        "own",
        "{createUser: 'a', pwd: 'pw', roles: ['read'], customData: {n: 1}}",
    );
    user(&mut c, "b", "['readWrite']");
    run(&mut c, "other", "{createUser: 'a', pwd: 'pw', roles: []}");
    for (db, cmd, wanted) in [
        ("own", "{usersInfo: 1}", vec!["own.a", "own.b"]),
        ("admin", "{usersInfo: 1}", vec!["admin.root"]),
        ("own", "{usersInfo: 'a'}", vec!["own.a"]),
        ("own", "{usersInfo: 'nobody'}", vec![]),
        (
            "own",
            "{usersInfo: {user: 'a', db: 'other'}}",
            vec!["other.a"],
        ),
        (
            "own",
            "{usersInfo: {forAllDBs: true}}",
            vec!["admin.root", "other.a", "own.a", "own.b"],
        ),
        (
            "own",
            "{usersInfo: ['a', {user: 'a', db: 'other'}, 'nobody']}",
            vec!["other.a", "own.a"],
        ),
        ("own", "{usersInfo: []}", vec![]),
        (
            "own",
            "{usersInfo: 1, filter: {'customData.n': 1}}",
            vec!["own.a"],
        ),
        (
            "own",
            "{usersInfo: 1, filter: {roles: {role: 'readWrite', db: 'own'}}}",
            vec!["own.b"],
        ),
        (
            "own",
            "{usersInfo: {forAllDBs: true}, filter: {user: 'a'}}",
            vec!["other.a", "own.a"],
        ),
        (
            "own",
            "{usersInfo: 1, filter: {credentials: {$exists: true}}}",
            vec![],
        ),
    ] {
        assert_eq!(ids(&mut c, db, cmd), wanted, "{cmd}");
    }
    expect(
        &mut c,
        "own",
        2,
        &[
            "{usersInfo: true}",
            "{usersInfo: {user: 'a'}}",
            "{usersInfo: [1]}",
        ],
    );
    let mut one = |options: &str| {
        let cmd = format!("{{usersInfo: 'a'{options}}}");
        users(&mut c, "own", &cmd).remove(0)
    };
    let plain = one("");
    for field in ["credentials", "inheritedRoles", "inheritedPrivileges"] {
        assert!(plain.as_doc().get(field).is_none(), "{plain:?}");
    }
    assert_eq!(
        shown(&one(", showCustomData: false"), "customData"),
        "nothing"
    );
    let with = one(", showCredentials: true");
    let credentials = with.as_doc().get_doc("credentials").unwrap();
    for mechanism in [SHA1, SHA256] {
        let names: Vec<&str> = credentials
            .get_doc(mechanism)
            .unwrap()
            .iter()
            .map(|e| e.name())
            .collect();
        assert_eq!(names, ["iterationCount", "salt", "storedKey", "serverKey"]);
    }
    let with = one(", showPrivileges: true");
    assert_eq!(
        shown(&with, "inheritedRoles"),
        "[ { role: \"read\", db: \"own\" } ]"
    );
    let privileges = shown(&with, "inheritedPrivileges");
    assert!(
        privileges.contains("\"find\"") && !privileges.contains("\"insert\""),
        "{privileges}"
    );
    // Without the right, a user sees nobody else, and no credentials.
    let mut a = as_user(&server, "b");
    assert_eq!(ids(&mut a, "own", "{usersInfo: 'b'}"), ["own.b"]);
    expect(
        &mut a,
        "own",
        13,
        &[
            "{usersInfo: 1}",
            "{usersInfo: 'a'}",
            "{usersInfo: ['b', 'a']}",
            "{usersInfo: {forAllDBs: true}}",
            "{usersInfo: {forAllDBs: false}}",
            "{usersInfo: {user: 'a', db: 'other'}}",
            "{usersInfo: 'b', showCredentials: true}",
            "{usersInfo: 'b', showCredentials: 1}",
        ],
    );
    // The right in one database is none in others.
    user(&mut c, "admin1", "['userAdmin']");
    let mut d = as_user(&server, "admin1");
    assert_eq!(
        ids(&mut d, "own", "{usersInfo: 1}"),
        ["own.a", "own.admin1", "own.b"]
    );
    expect(
        &mut d,
        "own",
        13,
        &[
            "{usersInfo: {user: 'a', db: 'other'}}",
            "{usersInfo: {user: 'a', db: 'other'}, showCredentials: true}",
            "{usersInfo: ['a', {user: 'a', db: 'other'}]}",
            "{usersInfo: {forAllDBs: true}}",
            "{createUser: 'x', pwd: 'x', roles: [{role: 'read', db: 'other'}]}",
            "{createUser: 'x', pwd: 'x', roles: [{role: 'root', db: 'admin'}]}",
            "{grantRolesToUser: 'admin1', roles: [{role: 'root', db: 'admin'}]}",
            "{updateUser: 'admin1', roles: [{role: 'root', db: 'admin'}]}",
            "{createRole: 'x', privileges: [], roles: [{role: 'read', db: 'other'}]}",
            "{createRole: 'x', privileges: [{resource: {db: 'other', collection: ''}, actions: ['find']}], roles: []}",
            "{createRole: 'x', privileges: [{resource: {cluster: true}, actions: ['shutdown']}], roles: []}",
            "{createRole: 'x', privileges: [{resource: {anyResource: true}, actions: ['anyAction']}], roles: []}",
            "{createRole: 'x', privileges: [{resource: {db: '', collection: 'c'}, actions: ['find']}], roles: []}",
            "{createRole: 'x', privileges: [{resource: {db: '', system_buckets: 'c'}, actions: ['find']}], roles: []}",
        ],
    );
}

#[test]
fn a_user_changes_only_what_the_rights_allow() {
    let server = auth();
    let mut c = root(&server);
    run(&mut c, "own", "{createRole: 'self', roles: [], privileges: [
        {resource: {db: 'own', collection: ''}, actions: ['changeOwnPassword', 'changeOwnCustomData']}]}");
    user(&mut c, "me", "['self']");
    user(&mut c, "you", "[]");
    run(&mut c, "other", "{createUser: 'me', pwd: 'pw', roles: []}");
    let mut d = as_user(&server, "me");
    run(&mut d, "own", "{updateUser: 'me', customData: {a: 1}}");
    expect(
        &mut d,
        "own",
        13,
        &[
            "{updateUser: 'you', pwd: 'x'}",
            "{updateUser: 'you', customData: {}}",
            "{updateUser: 'me', roles: ['dbOwner']}",
            "{updateUser: 'me', pwd: 'x', roles: []}",
            "{updateUser: 'me', authenticationRestrictions: []}",
            "{grantRolesToUser: 'me', roles: ['self']}",
            "{dropUser: 'me'}",
        ],
    );
    expect(&mut d, "other", 13, &["{updateUser: 'me', pwd: 'x'}"]);
    run(
        &mut d,
        "own",
        "{updateUser: 'me', pwd: 'changed', mechanisms: ['SCRAM-SHA-1']}",
    );
    login(&mut server.connect(), "own", "me", "changed", SHA1).unwrap();
    let mut d = as_user(&server, "you");
    expect(
        &mut d,
        "own",
        13,
        &[
            "{updateUser: 'you', pwd: 'x'}",
            "{updateUser: 'you', customData: {}}",
        ],
    );
}

fn role(c: &mut Connection, db: &str, cmd: &str) -> DocBuf {
    let reply = run(c, db, cmd);
    let roles = reply.as_doc().get_array("roles").unwrap();
    let first = roles.first().unwrap_or_else(|| panic!("{cmd}: {reply:?}"));
    first.value().as_doc().unwrap().to_buf()
}

#[test]
fn roles_are_created_changed_inherited_and_dropped() {
    let server = auth();
    let mut c = root(&server);
    let on = |collection: &str, actions: &str| {
        format!("{{resource: {{db: 'own', collection: '{collection}'}}, actions: {actions}}}")
    };
    let create = |name: &str, privileges: &str, roles: &str| {
        format!("{{createRole: '{name}', privileges: [{privileges}], roles: {roles}}}")
    };
    run(&mut c, "own", &create("low", &on("c", "['find']"), "[]"));
    run(
        &mut c,
        "own",
        &create("mid", &on("d", "['find']"), "['low']"),
    );
    run(
        &mut c,
        "own",
        &create("top", &on("e", "['insert']"), "['mid']"),
    );
    user(&mut c, "u", "['top']");
    let mut u = as_user(&server, "u");
    expect(
        &mut u,
        "own",
        0,
        &[
            "{find: 'c'}",
            "{find: 'd'}",
            "{insert: 'e', documents: [{}]}",
        ],
    );
    expect(
        &mut u,
        "own",
        13,
        &[
            "{find: 'e'}",
            "{find: 'x'}",
            "{insert: 'c', documents: [{}]}",
        ],
    );
    let shown_role = role(&mut c, "own", "{rolesInfo: 'top', showPrivileges: true}");
    let inherited = shown(&shown_role, "inheritedRoles");
    assert!(
        inherited.contains("\"low\"") && inherited.contains("\"mid\""),
        "{inherited}"
    );
    let own = shown(&shown_role, "privileges");
    assert!(own.contains("\"e\"") && !own.contains("\"c\""), "{own}");
    let all = shown(&shown_role, "inheritedPrivileges");
    assert!(all.contains("\"c\"") && all.contains("\"d\""), "{all}");
    assert_eq!(shown(&shown_role, "isBuiltin"), "false");
    expect(&mut c, "own", 51002, &[create("low", "", "[]").as_str()]);
    // A circle.
    expect(
        &mut c,
        "own",
        49,
        &[
            "{grantRolesToRole: 'low', roles: ['top']}",
            "{grantRolesToRole: 'low', roles: ['mid']}",
            "{grantRolesToRole: 'low', roles: ['low']}",
            "{updateRole: 'low', roles: ['top']}",
            "{updateRole: 'low', roles: ['low']}",
        ],
    );
    // Built-in roles, and those that do not exist.
    expect(
        &mut c,
        "own",
        49,
        &[
            "{updateRole: 'read', roles: []}",
            "{dropRole: 'read'}",
            "{grantPrivilegesToRole: 'readWrite', privileges: []}",
            "{revokePrivilegesFromRole: 'dbOwner', privileges: []}",
            "{grantRolesToRole: 'dbAdmin', roles: ['low']}",
            "{revokeRolesFromRole: 'userAdmin', roles: ['low']}",
        ],
    );
    expect(
        &mut c,
        "admin",
        49,
        &["{dropRole: 'root'}", "{updateRole: '__system', roles: []}"],
    );
    expect(
        &mut c,
        "own",
        2,
        &[
            create("read", "", "[]").as_str(),
            create("", "", "[]").as_str(),
        ],
    );
    expect(
        &mut c,
        "own",
        31,
        &[
            "{updateRole: 'nope', roles: []}",
            "{dropRole: 'nope'}",
            "{grantRolesToRole: 'low', roles: ['nope']}",
            "{grantRolesToRole: 'nope', roles: ['low']}",
            "{revokeRolesFromRole: 'nope', roles: ['low']}",
            "{grantPrivilegesToRole: 'nope', privileges: []}",
            "{createRole: 'x', privileges: [], roles: ['nope']}",
        ],
    );
    // Outside of admin a role is about its own database.
    expect(
        &mut c,
        "own",
        49,
        &[
            "{createRole: 'x', privileges: [], roles: [{role: 'read', db: 'other'}]}",
            "{createRole: 'x', privileges: [{resource: {db: 'other', collection: ''}, actions: ['find']}], roles: []}",
            "{createRole: 'x', privileges: [{resource: {cluster: true}, actions: ['shutdown']}], roles: []}",
            "{createRole: 'x', privileges: [{resource: {db: '', collection: ''}, actions: ['find']}], roles: []}",
            "{grantRolesToRole: 'low', roles: [{role: 'read', db: 'other'}]}",
            "{grantPrivilegesToRole: 'low', privileges: [{resource: {anyResource: true}, actions: ['anyAction']}]}",
            "{updateRole: 'low', roles: [{role: 'root', db: 'admin'}]}",
        ],
    );
    expect(
        &mut c,
        "own",
        9,
        &[
            "{createRole: 'x', privileges: [{resource: {db: 'own', collection: ''}, actions: ['nope']}], roles: []}",
            "{createRole: 'x', privileges: [{resource: {}, actions: ['find']}], roles: []}",
        ],
    );
    // Privileges and roles granted and revoked are in force at the next command.
    run(
        &mut c,
        "own",
        &format!(
            "{{grantPrivilegesToRole: 'low', privileges: [{}]}}",
            on("c", "['insert', 'update']")
        ),
    );
    expect(
        &mut u,
        "own",
        0,
        &["{insert: 'c', documents: [{}]}", "{find: 'c'}"],
    );
    run(
        &mut c,
        "own",
        &format!(
            "{{revokePrivilegesFromRole: 'low', privileges: [{}]}}",
            on("c", "['insert']")
        ),
    );
    expect(&mut u, "own", 13, &["{insert: 'c', documents: [{}]}"]);
    expect(&mut u, "own", 0, &["{find: 'c'}"]);
    run(
        &mut c,
        "own",
        &format!(
            "{{updateRole: 'low', privileges: [{}]}}",
            on("f", "['find']")
        ),
    );
    expect(&mut u, "own", 13, &["{find: 'c'}"]);
    expect(&mut u, "own", 0, &["{find: 'f'}"]);
    run(
        &mut c,
        "own",
        "{revokeRolesFromRole: 'mid', roles: ['low']}",
    );
    expect(&mut u, "own", 13, &["{find: 'f'}"]);
    run(&mut c, "own", "{grantRolesToRole: 'mid', roles: ['low']}");
    expect(&mut u, "own", 0, &["{find: 'f'}"]);
    // A role that is dropped is taken away from roles and users.
    run(&mut c, "own", "{dropRole: 'low'}");
    expect(&mut u, "own", 13, &["{find: 'f'}"]);
    assert_eq!(
        shown(&role(&mut c, "own", "{rolesInfo: 'mid'}"), "roles"),
        "[]"
    );
    run(&mut c, "own", "{dropRole: 'top'}");
    let after = users(&mut c, "own", "{usersInfo: 'u'}").remove(0);
    assert_eq!(shown(&after, "roles"), "[]");
    expect(
        &mut u,
        "own",
        13,
        &["{find: 'd'}", "{insert: 'e', documents: [{}]}"],
    );
    // One of the same name later is not the user's.
    run(&mut c, "own", &create("top", &on("c", "['find']"), "[]"));
    expect(&mut u, "own", 13, &["{find: 'c'}"]);
    run(
        &mut c,
        "own",
        "{grantRolesToUser: 'u', roles: ['top', 'mid']}",
    );
    expect(&mut u, "own", 0, &["{find: 'c'}", "{find: 'd'}"]);
    let reply = run(&mut c, "own", "{dropAllRolesFromDatabase: 1}");
    assert_eq!(reply.as_doc().get("n").unwrap().as_i64_exact(), Some(2));
    expect(&mut u, "own", 13, &["{find: 'c'}", "{find: 'd'}"]);
    let after = users(&mut c, "own", "{usersInfo: 'u'}").remove(0);
    assert_eq!(shown(&after, "roles"), "[]");
}

#[test]
fn changes_are_in_force_at_the_next_command() {
    let server = auth();
    let mut c = root(&server);
    run(
        &mut c,
        "own",
        "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}]}",
    );
    run(
        &mut c,
        "own",
        "{createRole: 'r', roles: [], privileges: [
        {resource: {db: 'own', collection: 'c'}, actions: ['find']}]}",
    );
    user(&mut c, "u", "['r', 'dbAdmin']");
    let mut u = as_user(&server, "u");
    let find = "{find: 'c', batchSize: 1}";
    // A cursor that was opened before needs the right, too.
    let cursor = run(&mut u, "own", find);
    let cursor = cursor
        .as_doc()
        .get_doc("cursor")
        .unwrap()
        .get("id")
        .unwrap()
        .as_i64_exact()
        .unwrap();
    let more = format!("{{getMore: NumberLong('{cursor}'), collection: 'c', batchSize: 1}}");
    run(&mut u, "own", &more);
    run(&mut c, "own", "{revokeRolesFromUser: 'u', roles: ['r']}");
    expect(&mut u, "own", 13, &[&more, find]);
    expect(&mut u, "own", 0, &["{collStats: 'c'}"]);
    run(&mut c, "own", "{grantRolesToUser: 'u', roles: ['r']}");
    expect(&mut u, "own", 0, &[find]);
    run(
        &mut c,
        "own",
        "{revokePrivilegesFromRole: 'r', privileges: [
        {resource: {db: 'own', collection: 'c'}, actions: ['find']}]}",
    );
    expect(&mut u, "own", 13, &[find]);
    // The documents themselves are changed by a client.
    expect(&mut c, "admin", 0, &["{find: 'system.users'}"]);
    for (how, cmd) in [
        ("dropped", "{dropUser: 'u'}"),
        ("all dropped", "{dropAllUsersFromDatabase: 1}"),
    ] {
        run(&mut c, "own", cmd);
        assert!(is_logged_out(&mut u), "{how}");
        // Another user of the same name.
        user(&mut c, "u", "['readWrite']");
        assert!(is_logged_out(&mut u), "{how}");
        login(&mut u, "own", "u", "pw", SHA1).unwrap();
        run(&mut u, "own", find);
    }
    // Between two commands.
    run(&mut c, "own", "{dropUser: 'u'}");
    user(&mut c, "u", "['readWrite']");
    assert!(is_logged_out(&mut u));
    login(&mut u, "own", "u", "pw", SHA1).unwrap();
    let delete = "{delete: 'system.users', deletes: [{q: {_id: 'own.u'}, limit: 1}]}";
    run(&mut c, "admin", delete);
    assert!(is_logged_out(&mut u));
    assert_eq!(
        login(&mut u, "own", "u", "pw", SHA1).unwrap_err().code().0,
        18
    );
    user(&mut c, "u", "['readWrite']");
    login(&mut u, "own", "u", "pw", SHA1).unwrap();
    let update = "{update: 'system.users', updates: [{q: {_id: 'own.u'}, u: {$set: {roles: []}}}]}";
    run(&mut c, "admin", update);
    expect(&mut u, "own", 13, &[find]);
    assert_eq!(whoami(&mut u).as_deref(), Some("u@own"));
    // A login that has begun, and ends after its user is gone.
    let mut d = server.connect();
    let mut begun = client("u", "pw", SHA1);
    let reply = sasl_start(&mut d, "own", SHA1, begun.first().as_bytes(), true).unwrap();
    run(&mut c, "own", "{dropUser: 'u'}");
    let answer = begun.next(&payload(&reply)).unwrap();
    assert!(sasl_continue(&mut d, "own", answer.as_bytes()).is_err());
    assert!(is_logged_out(&mut d));
    // The root user drops itself.
    run(&mut c, "admin", "{dropUser: 'root'}");
    assert!(is_logged_out(&mut c));
}

#[test]
fn changes_on_the_primary_are_in_force_on_secondaries() {
    if !testkit::persistent() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "abcdef").unwrap();
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    let options = ServerOptions::new().arg("--auth").arg("--keyFile");
    let set = Set::prepare(3, &options.arg(key.to_str().unwrap()));
    let members = (0..3).map(|i| doc! { "_id": i, "host": set.host(i as usize) });
    set.initiate(&set.config(members.collect()));
    let primary = set.primary();
    let secondary = (primary + 1) % 3;
    let mut c = set.connect(primary);
    let wc = "writeConcern: {w: 3}";
    run(
        &mut c,
        "admin",
        &format!("{{createUser: 'root', pwd: 'rootpw', roles: ['root'], {wc}}}"),
    );
    login(&mut c, "admin", "root", "rootpw", SHA1).unwrap();
    let create = |roles: &str| {
        format!("{{createUser: 'u', pwd: 'pw', roles: {roles}, mechanisms: ['SCRAM-SHA-1'], {wc}}}")
    };
    run(&mut c, "own", &create("['read']"));
    let mut s = set.connect(secondary);
    let find = "{find: 'c', $readPreference: {mode: 'secondary'}}";
    let (refused, text) = told(&mut s, "own", find);
    assert!(refused == 13 && text.contains(NEEDED), "{text}");
    // There is no exception on a secondary either.
    assert_eq!(code(&mut s, "admin", &create("['root']")), 13);
    login(&mut s, "own", "u", "pw", SHA1).unwrap();
    expect(&mut s, "own", 0, &[find]);
    run(
        &mut c,
        "own",
        &format!("{{revokeRolesFromUser: 'u', roles: ['read'], {wc}}}"),
    );
    expect(&mut s, "own", 13, &[find]);
    assert_eq!(whoami(&mut s).as_deref(), Some("u@own"));
    run(
        &mut c,
        "own",
        &format!(
            "{{createRole: 'r', roles: [], privileges: [{{resource: {{db: 'own', collection: 'c'}}, actions: ['find']}}], {wc}}}"
        ),
    );
    run(
        &mut c,
        "own",
        &format!("{{grantRolesToUser: 'u', roles: ['r'], {wc}}}"),
    );
    expect(&mut s, "own", 0, &[find]);
    run(
        &mut c,
        "own",
        &format!("{{updateRole: 'r', privileges: [], {wc}}}"),
    );
    expect(&mut s, "own", 13, &[find]);
    run(&mut c, "own", &format!("{{dropUser: 'u', {wc}}}"));
    assert!(is_logged_out(&mut s));
    run(&mut c, "own", &create("['read']"));
    assert!(is_logged_out(&mut s));
    login(&mut s, "own", "u", "pw", SHA1).unwrap();
    run(
        &mut c,
        "admin",
        &format!("{{delete: 'system.users', deletes: [{{q: {{_id: 'own.u'}}, limit: 1}}], {wc}}}"),
    );
    assert!(is_logged_out(&mut s));
}

/// The operations that a command shows.
fn inprog(c: &mut Connection, cmd: &str) -> String {
    run(c, "admin", cmd).as_doc().to_display()
}

#[test]
fn cursors_sessions_and_operations_belong_to_their_user() {
    let server = auth_for_tests();
    let mut c = root(&server);
    run(&mut c, "own", "{insert: 'c', documents: [{}, {}, {}, {}]}");
    user(&mut c, "a", "['readWrite']");
    user(&mut c, "b", "['readWrite', 'dbOwner']");
    let (mut a, mut b) = (as_user(&server, "a"), as_user(&server, "b"));
    let open = |a: &mut Connection| {
        let reply = run(a, "own", "{find: 'c', batchSize: 1}");
        let cursor = reply.as_doc().get_doc("cursor").unwrap();
        cursor.get("id").unwrap().as_i64_exact().unwrap()
    };
    let id = open(&mut a);
    let more = format!("{{getMore: NumberLong('{id}'), collection: 'c', batchSize: 1}}");
    expect(&mut b, "own", 13, &[&more]);
    let mut stranger = server.connect();
    expect(&mut stranger, "own", 13, &[&more]);
    let kill = format!("{{killCursors: 'c', cursors: [NumberLong('{id}')]}}");
    let reply = run(&mut b, "own", &kill);
    assert_eq!(
        shown(&reply, "cursorsAlive"),
        format!("[ {id} ]"),
        "{reply:?}"
    );
    assert_eq!(shown(&reply, "cursorsKilled"), "[]", "{reply:?}");
    // On another connection of the same user.
    run(&mut as_user(&server, "a"), "own", &more);
    run(&mut a, "own", &more);
    let reply = run(&mut a, "own", &kill);
    assert_eq!(
        shown(&reply, "cursorsKilled"),
        format!("[ {id} ]"),
        "{reply:?}"
    );
    // Sessions.
    let uuid = "UUID('00112233-4455-6677-8899-aabbccddeeff')";
    run(
        &mut a,
        "own",
        &format!("{{find: 'c', lsid: {{id: {uuid}}}}}"),
    );
    let hex = uid_of(&mut c, "00112233-4455");
    let zeros = "00".repeat(32);
    for uid in [&hex, &zeros] {
        let lsid = format!("{{id: {uuid}, uid: HexData(0, '{uid}')}}");
        expect(
            &mut b,
            "own",
            13,
            &[
                &format!("{{find: 'c', lsid: {lsid}}}"),
                &format!("{{ping: 1, lsid: {lsid}}}"),
                &format!("{{endSessions: [{lsid}]}}"),
                &format!("{{refreshSessions: [{lsid}]}}"),
                &format!("{{killSessions: [{lsid}]}}"),
            ],
        );
    }
    expect(
        &mut b,
        "admin",
        13,
        &[
            "{killAllSessions: []}",
            "{killAllSessionsByPattern: []}",
            "{aggregate: 1, pipeline: [{$listLocalSessions: {allUsers: true}}], cursor: {}}",
            "{aggregate: 1, pipeline: [{$listLocalSessions: {users: [{user: 'a', db: 'own'}]}}], cursor: {}}",
        ],
    );
    let own = inprog(
        &mut b,
        "{aggregate: 1, pipeline: [{$listLocalSessions: {}}], cursor: {}}",
    );
    assert!(!own.contains("a@own"), "{own}");
    run(
        &mut a,
        "own",
        &format!("{{find: 'c', lsid: {{id: {uuid}, uid: HexData(0, '{hex}')}}}}"),
    );

    // Operations.
    run(
        &mut c,
        "admin",
        "{configureFailPoint: 'failCommand', mode: 'alwaysOn',
        data: {failCommands: ['count'], blockConnection: true, blockTimeMS: 8000}}",
    );
    std::thread::scope(|scope| {
        let victim =
            scope.spawn(move || told(&mut a, "own", "{count: 'c', comment: 'the victim'}"));
        let find = doc! { "currentOp": 1, "command.comment": "the victim" };
        let op = server.until("the operation runs", || {
            let reply = c.command("admin", &find).unwrap();
            let ops = reply.as_doc().get_array("inprog").unwrap();
            ops.first()?.value().as_doc()?.get("opid")?.as_i64_exact()
        });
        let kill = format!("{{killOp: 1, op: {op}}}");
        expect(
            &mut b,
            "admin",
            13,
            &[
                "{currentOp: 1}",
                "{currentOp: 1, $all: true}",
                "{currentOp: 1, $ownOps: false}",
                "{aggregate: 1, pipeline: [{$currentOp: {allUsers: true}}], cursor: {}}",
                &kill,
                "{killOp: 1, op: 123456789}",
            ],
        );
        for cmd in [
            "{currentOp: 1, $ownOps: true}",
            "{currentOp: 1, $ownOps: true, $all: true}",
            "{aggregate: 1, pipeline: [{$currentOp: {}}], cursor: {}}",
            "{aggregate: 1, pipeline: [{$currentOp: {idleConnections: true, idleCursors: true, idleSessions: true}}], cursor: {}}",
        ] {
            let shown = inprog(&mut b, cmd);
            assert!(!shown.contains("the victim"), "{cmd}: {shown}");
            assert!(
                shown.contains("currentOp") || shown.contains("aggregate"),
                "{cmd}: {shown}"
            );
        }
        for cmd in [
            "{currentOp: 1, $ownOps: true}",
            "{aggregate: 1, pipeline: [{$currentOp: {}}], cursor: {}}",
        ] {
            let shown = inprog(&mut as_user(&server, "a"), cmd);
            assert!(shown.contains("the victim"), "{cmd}: {shown}");
        }
        assert!(!victim.is_finished());
        expect(&mut as_user(&server, "a"), "admin", 0, &[&kill]);
        assert_eq!(victim.join().unwrap().0, 11_601);
    });
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

#[test]
fn administrators_end_what_belongs_to_others() {
    let server = auth();
    let mut c = root(&server);
    run(&mut c, "own", "{insert: 'c', documents: [{}, {}, {}, {}]}");
    user(&mut c, "a", "['readWrite']");
    user(&mut c, "host", "[{role: 'hostManager', db: 'admin'}]");
    let (mut a, mut host) = (as_user(&server, "a"), as_user(&server, "host"));
    let open = |a: &mut Connection, session: &str| {
        let reply = run(a, "own", &format!("{{find: 'c', batchSize: 1{session}}}"));
        let cursor = reply.as_doc().get_doc("cursor").unwrap();
        cursor.get("id").unwrap().as_i64_exact().unwrap()
    };
    let session = "00112233-4455-6677-8899-aabbccddeeff";
    let lsid = format!(", lsid: {{id: UUID('{session}')}}");
    let of_session = open(&mut a, &lsid);
    let uid = uid_of(&mut c, session);
    let mut wrong = Vec::new();
    // killAnySession, by hostManager.
    let kill = format!("{{killSessions: [{{id: UUID('{session}'), uid: HexData(0, '{uid}')}}]}}");
    let (code, text) = told(&mut host, "admin", &kill);
    if code != 0 {
        wrong.push(format!("killSessions: {code} {text}"));
    }
    let more = format!("{{getMore: NumberLong('{of_session}'), collection: 'c'{lsid}}}");
    let (code, text) = told(&mut a, "own", &more);
    if code != 43 {
        wrong.push(format!("getMore after killSessions: {code} {text}"));
    }
    // killAnyCursor.
    for who in [&mut host, &mut c] {
        let id = open(&mut a, "");
        let kill = format!("{{killCursors: 'c', cursors: [NumberLong('{id}')]}}");
        let reply = run(who, "own", &kill);
        if shown(&reply, "cursorsKilled") != format!("[ {id} ]") {
            wrong.push(format!("killCursors: {reply:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A command that changes a user, and one that drops it, at the same time.
#[test]
fn a_user_who_is_dropped_does_not_come_back() {
    let server = auth();
    let mut c = root(&server);
    let mut d = server.connect();
    login(&mut d, "admin", "root", "rootpw", SHA1).unwrap();
    for drop in ["{dropUser: 'u'}", "{dropAllUsersFromDatabase: 1}"] {
        let until = Instant::now() + Duration::from_secs(2);
        let mut round = 0;
        while Instant::now() < until {
            round += 1;
            run(&mut c, "$external", "{createUser: 'u', roles: []}");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for i in 0..20 {
                        let cmd = format!("{{updateUser: 'u', customData: {{i: {i}}}}}");
                        let code = code(&mut d, "$external", &cmd);
                        assert!(matches!(code, 0 | 11), "{code}");
                    }
                });
                std::thread::sleep(Duration::from_micros(100 * (round % 20)));
                run(&mut c, "$external", drop);
            });
            let left = ids(&mut c, "$external", "{usersInfo: 1}");
            assert!(left.is_empty(), "{drop}, round {round}: {left:?} is back");
        }
    }
}

/// A user with the right to read a view need not be allowed to read what it shows, and may do nothing else
/// with that.
#[test]
fn the_name_of_a_view_counts() {
    let server = auth();
    let mut c = root(&server);
    run(
        &mut c,
        "own",
        "{insert: 'secret', documents: [{_id: 1, a: 1}]}",
    );
    run(
        &mut c,
        "own",
        "{create: 'v', viewOn: 'secret', pipeline: [{$project: {a: 1}}]}",
    );
    run(
        &mut c,
        "own",
        "{createRole: 'of-v', roles: [], privileges: [
            {resource: {db: 'own', collection: 'v'}, actions: ['find']}]}",
    );
    user(&mut c, "u", "['of-v']");
    let mut u = as_user(&server, "u");
    expect(
        &mut u,
        "own",
        0,
        &[
            "{find: 'v'}",
            "{count: 'v'}",
            "{distinct: 'v', key: 'a'}",
            "{aggregate: 'v', pipeline: [{$lookup: {from: 'v', pipeline: [], as: 'x'}}], cursor: {}}",
            "{explain: {find: 'v'}}",
        ],
    );
    expect(
        &mut u,
        "own",
        13,
        &[
            "{find: 'secret'}",
            "{aggregate: 'v', pipeline: [{$unionWith: 'secret'}], cursor: {}}",
            "{aggregate: 'v', pipeline: [{$lookup: {from: 'secret', pipeline: [], as: 'x'}}], cursor: {}}",
            "{listIndexes: 'v'}",
            "{collMod: 'v', viewOn: 'secret', pipeline: []}",
        ],
    );
}

/// What cannot be read in the collections of users and roles allows nothing.
#[test]
fn damaged_users_and_roles_allow_nothing() {
    let server = auth();
    let mut c = root(&server);
    // Only members may write roles without the commands for them.
    run(
        &mut c,
        "admin",
        "{createUser: 'member', pwd: 'pw', roles: ['__system'], mechanisms: ['SCRAM-SHA-1']}",
    );
    let mut member = server.connect();
    login(&mut member, "admin", "member", "pw", SHA1).unwrap();
    run(
        &mut c,
        "own",
        "{createRole: 'r', roles: [], privileges: [
            {resource: {db: 'own', collection: ''}, actions: ['find']}]}",
    );
    user(&mut c, "u", "['r']");
    let mut u = as_user(&server, "u");
    run(&mut u, "own", "{find: 'c'}");
    for damage in [
        "{privileges: 1}",
        "{privileges: [1]}",
        "{privileges: [{resource: 1, actions: ['find']}]}",
        "{privileges: [{resource: {db: 'own', collection: ''}, actions: ['nonsense']}]}",
        "{privileges: [{}], roles: 7}",
    ] {
        let update = format!(
            "{{update: 'system.roles', updates: [{{q: {{_id: 'own.r'}}, u: {{$set: {damage}}}}}]}}"
        );
        run(&mut member, "admin", &update);
        assert_ne!(code(&mut u, "own", "{find: 'c'}"), 0, "{damage}");
        // A driver must still be able to shake hands and to ask who it is.
        expect(
            &mut u,
            "admin",
            0,
            &["{hello: 1}", "{ping: 1}", "{logout: 1}"],
        );
        let _ = login(&mut u, "own", "u", "pw", SHA1);
        run(
            &mut c,
            "own",
            "{updateRole: 'r', roles: [], privileges: [
            {resource: {db: 'own', collection: ''}, actions: ['find']}]}",
        );
        login(&mut u, "own", "u", "pw", SHA1).unwrap();
        run(&mut u, "own", "{find: 'c'}");
    }
    for damage in [
        "{credentials: 1}",
        "{credentials: {'SCRAM-SHA-1': 1}}",
        "{'credentials.SCRAM-SHA-1': {iterationCount: 1, salt: 'x', storedKey: 'x', serverKey: 'x'}}",
        "{'credentials.SCRAM-SHA-1.iterationCount': 0}",
        "{'credentials.SCRAM-SHA-1.iterationCount': NumberLong('99999999999')}",
        "{'credentials.SCRAM-SHA-1.salt': ''}",
        "{authenticationRestrictions: [1]}",
        "{authenticationRestrictions: [{clientSource: 1}]}",
    ] {
        let name = "{_id: 'own.u'}";
        let update =
            format!("{{update: 'system.users', updates: [{{q: {name}, u: {{$set: {damage}}}}}]}}");
        run(&mut member, "admin", &update);
        let e = login(&mut server.connect(), "own", "u", "pw", SHA1);
        assert!(e.is_err(), "{damage}");
        run(&mut c, "own", "{dropUser: 'u'}");
        user(&mut c, "u", "['r']");
        login(&mut server.connect(), "own", "u", "pw", SHA1).unwrap();
    }
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

#[test]
fn what_is_nested_needs_its_own_right() {
    let server = auth();
    let mut c = root(&server);
    run(&mut c, "own", "{insert: 'c', documents: [{_id: 1, a: 1}]}");
    run(
        &mut c,
        "own",
        "{insert: 'secret', documents: [{_id: 1, a: 1}]}",
    );
    run(
        &mut c,
        "other",
        "{insert: 'x', documents: [{_id: 1, a: 1}]}",
    );
    run(
        &mut c,
        "own",
        "{create: 'v', viewOn: 'secret', pipeline: []}",
    );
    run(
        &mut c,
        "own",
        "{create: 'ts', timeseries: {timeField: 't'}}",
    );
    run(
        &mut c,
        "own",
        "{insert: 'ts', documents: [{t: ISODate('2020-01-01')}]}",
    );
    run(
        &mut c,
        "own",
        "{createRole: 'one', roles: [], privileges: [
        {resource: {db: 'own', collection: 'c'}, actions: ['find']},
        {resource: {db: 'own', collection: 'ts'}, actions: ['find']}]}",
    );
    user(&mut c, "u", "['one']");
    let mut u = as_user(&server, "u");
    let agg = |stages: &str| format!("{{aggregate: 'c', pipeline: [{stages}], cursor: {{}}}}");
    let allowed = [
        "{find: 'c'}".to_string(),
        "{count: 'c'}".to_string(),
        "{distinct: 'c', key: 'a'}".to_string(),
        "{find: 'ts'}".to_string(),
        "{explain: {find: 'c'}}".to_string(),
        "{mapReduce: 'c', map: 'function() { emit(1, 1) }', reduce: 'function() { return 1 }', out: {inline: 1}}".to_string(),
        agg(""),
        agg("{$match: {a: 1}}, {$lookup: {from: 'c', pipeline: [{$match: {}}], as: 'x'}}"),
        agg("{$lookup: {pipeline: [{$documents: [{a: 1}]}], as: 'x'}}"),
        agg("{$unionWith: 'c'}, {$facet: {x: [{$lookup: {from: 'c', pipeline: [], as: 'y'}}]}}"),
        agg("{$unionWith: {pipeline: [{$documents: [{a: 1}]}]}}"),
        agg("{$graphLookup: {from: 'c', startWith: '$a', connectFromField: 'a', connectToField: 'a', as: 'x'}}"),
    ];
    let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
    expect(&mut u, "own", 0, &allowed);
    let stages = [
        "{$lookup: {from: 'secret', localField: 'a', foreignField: 'a', as: 'x'}}",
        "{$lookup: {from: 'secret', pipeline: [], as: 'x'}}",
        "{$lookup: {as: 'x', pipeline: [{$match: {}}], from: 'secret'}}",
        "{$lookup: {from: {db: 'own', coll: 'secret'}, pipeline: [], as: 'x'}}",
        "{$lookup: {from: {db: 'other', coll: 'x'}, pipeline: [], as: 'x'}}",
        "{$lookup: {from: 'v', pipeline: [], as: 'x'}}",
        "{$lookup: {from: 'c', pipeline: [{$lookup: {from: 'secret', pipeline: [], as: 'y'}}], as: 'x'}}",
        "{$lookup: {from: 'c', pipeline: [{$unionWith: 'secret'}], as: 'x'}}",
        "{$lookup: {from: 'c', pipeline: [{$facet: {z: [{$unionWith: 'secret'}]}}], as: 'x'}}",
        "{$lookup: {pipeline: [{$documents: [{a: 1}]}, {$unionWith: 'secret'}], as: 'x'}}",
        "{$graphLookup: {from: 'secret', startWith: '$a', connectFromField: 'a', connectToField: 'a', as: 'x'}}",
        "{$graphLookup: {from: 'v', startWith: '$a', connectFromField: 'a', connectToField: 'a', as: 'x'}}",
        "{$unionWith: 'secret'}",
        "{$unionWith: {coll: 'secret'}}",
        "{$unionWith: {coll: 'secret', pipeline: []}}",
        "{$unionWith: {coll: 'c', pipeline: [{$unionWith: 'secret'}]}}",
        "{$unionWith: {pipeline: [{$documents: [{a: 1}]}, {$lookup: {from: 'secret', pipeline: [], as: 'x'}}]}}",
        "{$unionWith: 'v'}",
        "{$facet: {x: [{$lookup: {from: 'secret', pipeline: [], as: 'y'}}]}}",
        "{$facet: {ok: [{$match: {}}], x: [{$graphLookup: {from: 'secret', startWith: '$a', connectFromField: 'a', connectToField: 'a', as: 'x'}}]}}",
        "{$merge: 'secret'}",
        "{$merge: {into: 'secret'}}",
        "{$merge: {into: {db: 'other', coll: 'x'}}}",
        "{$merge: 'c'}",
        "{$merge: 'new'}",
        "{$out: 'secret'}",
        "{$out: 'c'}",
        "{$out: 'new'}",
        "{$out: {db: 'other', coll: 'x'}}",
        "{$changeStream: {}}",
        "{$indexStats: {}}",
        "{$collStats: {count: {}}}",
        "{$planCacheStats: {}}",
        "{$listSearchIndexes: {}}",
        "{$rankFusion: {input: {pipelines: {x: [{$sort: {a: 1}}, {$unionWith: 'secret'}]}}}}",
    ];
    let mut refused: Vec<String> = Vec::new();
    for s in stages {
        refused.push(agg(s));
        refused.push(format!("{{explain: {}}}", agg(s)));
    }
    let secret = uuid_of(&mut c, "own", "secret");
    let mr = |out: &str| {
        format!(
            "{{mapReduce: 'c', map: 'function() {{ emit(1, 1) }}', reduce: 'function() {{ return 1 }}', out: {out}}}"
        )
    };
    for cmd in [
        "{find: 'secret'}",
        "{find: 'v'}",
        "{find: 'system.buckets.ts'}",
        "{find: 'system.views'}",
        "{find: '$cmd'}",
        "{aggregate: 'v', pipeline: [], cursor: {}}",
        "{aggregate: 'secret', pipeline: [], cursor: {}}",
        "{aggregate: 'secret', pipeline: [{$lookup: {from: 'c', pipeline: [], as: 'x'}}], cursor: {}}",
        "{aggregate: 1, pipeline: [{$changeStream: {}}], cursor: {}}",
        "{aggregate: 1, pipeline: [{$documents: [{a: 1}]}, {$lookup: {from: 'secret', pipeline: [], as: 'x'}}], cursor: {}}",
        "{aggregate: 1, pipeline: [{$documents: [{a: 1}]}, {$out: 'c'}], cursor: {}}",
        "{count: 'secret'}",
        "{count: 'v'}",
        "{distinct: 'secret', key: 'a'}",
        "{distinct: 'v', key: 'a'}",
        "{collStats: 'c'}",
        "{validate: 'c'}",
        "{listIndexes: 'c'}",
        "{dataSize: 'own.secret'}",
        "{filemd5: 1, root: 'secret'}",
        "{dbHash: 1}",
        "{dbStats: 1}",
        "{listCollections: 1}",
        "{listCollections: 1, nameOnly: true}",
        "{insert: 'c', documents: [{}]}",
        "{update: 'c', updates: [{q: {}, u: {$set: {a: 1}}}]}",
        "{update: 'c', updates: [{q: {}, u: {$set: {a: 1}}, upsert: true}]}",
        "{delete: 'c', deletes: [{q: {}, limit: 1}]}",
        "{findAndModify: 'c', query: {}, update: {$set: {a: 1}}}",
        "{findAndModify: 'c', query: {}, remove: true}",
        "{create: 'w', viewOn: 'c', pipeline: []}",
        "{create: 'w'}",
        "{collMod: 'c', validator: {}}",
        "{drop: 'c'}",
        "{dropIndexes: 'c', index: '*'}",
        "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a'}]}",
        "{cloneCollectionAsCapped: 'secret', toCollection: 'c', size: 4096}",
        "{convertToCapped: 'c', size: 4096}",
        "{explain: {find: 'secret'}}",
        "{explain: {count: 'secret'}}",
        "{explain: {distinct: 'secret', key: 'a'}}",
        "{explain: {update: 'c', updates: [{q: {}, u: {a: 1}}]}}",
        "{explain: {delete: 'c', deletes: [{q: {}, limit: 1}]}}",
        "{explain: {findAndModify: 'c', query: {}, remove: true}}",
        "{explain: {find: 'v'}}",
        &format!("{{find: {secret}}}"),
        &format!("{{count: {secret}}}"),
        &format!("{{distinct: {secret}, key: 'a'}}"),
        &format!("{{listIndexes: {secret}}}"),
        &format!("{{explain: {{find: {secret}}}}}"),
        &mr("'secret'"),
        &mr("'new'"),
        &mr("'c'"),
        &mr("{replace: 'secret'}"),
        &mr("{merge: 'secret'}"),
        &mr("{reduce: 'secret'}"),
        &mr("{replace: 'x', db: 'other'}"),
        &mr("{merge: 'c', db: 'other'}"),
        "{mapReduce: 'secret', map: 'function() { emit(1, 1) }', reduce: 'function() { return 1 }', out: {inline: 1}}",
        "{explain: {mapReduce: 'secret', map: 'function() { emit(1, 1) }', reduce: 'function() { return 1 }', out: {inline: 1}}}",
    ] {
        refused.push(cmd.to_string());
    }
    let refused: Vec<&str> = refused.iter().map(String::as_str).collect();
    expect(&mut u, "own", 13, &refused);
    expect(
        &mut u,
        "admin",
        13,
        &[
            "{renameCollection: 'own.secret', to: 'own.c', dropTarget: true}",
            "{renameCollection: 'own.secret', to: 'own.c'}",
            "{renameCollection: 'own.c', to: 'own.d'}",
            "{renameCollection: 'own.secret', to: 'other.c'}",
            "{renameCollection: 'other.x', to: 'own.c', dropTarget: true}",
            "{bulkWrite: 1, ops: [{insert: 0, document: {}}], nsInfo: [{ns: 'own.c'}]}",
            "{bulkWrite: 1, ops: [{insert: 0, document: {}}, {insert: 1, document: {}}], nsInfo: [{ns: 'own.c'}, {ns: 'own.secret'}]}",
            "{aggregate: 1, pipeline: [{$changeStream: {allChangesForCluster: true}}], cursor: {}}",
            "{aggregate: 1, pipeline: [{$currentOp: {allUsers: true}}], cursor: {}}",
            "{aggregate: 1, pipeline: [{$listCatalog: {}}], cursor: {}}",
            "{applyOps: [{op: 'i', ns: 'own.c', o: {_id: 9}}]}",
            "{applyOps: [{op: 'u', ns: 'own.c', o2: {_id: 1}, o: {$v: 2, diff: {u: {a: 2}}}}]}",
            "{applyOps: [{op: 'd', ns: 'own.secret', o: {_id: 1}}]}",
            "{applyOps: [{op: 'c', ns: 'own.$cmd', o: {drop: 'secret'}}]}",
            "{applyOps: [{op: 'c', ns: 'own.$cmd', o: {create: 'new'}}]}",
            "{applyOps: [{op: 'c', ns: 'own.$cmd', o: {dropDatabase: 1}}]}",
            "{applyOps: [{op: 'c', ns: 'own.$cmd', o: {renameCollection: 'own.secret', to: 'own.c'}}]}",
            "{applyOps: [{op: 'c', ns: 'own.$cmd', o: {collMod: 'c', validator: {}}}]}",
            "{applyOps: [{op: 'c', ns: 'own.$cmd', o: {createIndexes: 'c', v: 2, key: {a: 1}, name: 'a'}}]}",
            "{applyOps: [{op: 'c', ns: 'admin.$cmd', o: {applyOps: [{op: 'i', ns: 'own.c', o: {_id: 9}}]}}]}",
            "{applyOps: [{op: 'n', ns: '', o: {}}]}",
            "{explain: {bulkWrite: 1, ops: [{insert: 0, document: {}}], nsInfo: [{ns: 'own.c'}]}}",
        ],
    );
    // Two namespaces, of which one is allowed.
    run(&mut c, "own", "{createRole: 'writer', roles: [], privileges: [
        {resource: {db: 'own', collection: 'c'}, actions: ['find', 'insert', 'update', 'remove']},
        {resource: {db: 'own', collection: 'w'}, actions: ['createCollection', 'collMod', 'find', 'dropCollection', 'insert']}]}");
    user(&mut c, "w", "['writer']");
    let mut w = as_user(&server, "w");
    expect(
        &mut w,
        "admin",
        0,
        &["{bulkWrite: 1, ops: [{insert: 0, document: {}}], nsInfo: [{ns: 'own.c'}]}"],
    );
    expect(
        &mut w,
        "admin",
        13,
        &[
            "{bulkWrite: 1, ops: [{insert: 0, document: {}}, {insert: 1, document: {}}], nsInfo: [{ns: 'own.c'}, {ns: 'own.secret'}]}",
            "{bulkWrite: 1, ops: [{insert: 0, document: {}}, {delete: 1, filter: {}}], nsInfo: [{ns: 'own.c'}, {ns: 'other.x'}], ordered: false}",
            "{bulkWrite: 1, ops: [{insert: 0, document: {}}], nsInfo: [{ns: 'own.c'}], bypassDocumentValidation: true}",
        ],
    );
    // A view shows what its maker may read.
    expect(
        &mut w,
        "own",
        13,
        &[
            "{create: 'w', viewOn: 'secret', pipeline: []}",
            "{create: 'w', viewOn: 'v', pipeline: []}",
            "{create: 'w', viewOn: 'c', pipeline: [{$unionWith: 'secret'}]}",
            "{create: 'w', viewOn: 'c', pipeline: [{$lookup: {from: 'secret', pipeline: [], as: 'x'}}]}",
            "{insert: 'c', documents: [{}], bypassDocumentValidation: true}",
            "{delete: 'secret', deletes: [{q: {}, limit: 1}]}",
        ],
    );
    expect(
        &mut w,
        "own",
        0,
        &["{create: 'w', viewOn: 'c', pipeline: []}", "{find: 'w'}"],
    );
    expect(
        &mut w,
        "own",
        13,
        &[
            "{collMod: 'w', viewOn: 'secret', pipeline: []}",
            "{collMod: 'w', viewOn: 'c', pipeline: [{$unionWith: 'secret'}]}",
        ],
    );
    expect(
        &mut w,
        "own",
        0,
        &["{collMod: 'w', viewOn: 'c', pipeline: [{$match: {}}]}"],
    );
    // Nothing of all that has been done.
    for (db, name, n) in [("own", "secret", 1), ("other", "x", 1)] {
        let reply = run(&mut c, db, &format!("{{count: '{name}'}}"));
        assert_eq!(reply.as_doc().get("n").unwrap().as_i64_exact(), Some(n));
    }
    // listCollections and listDatabases show what a user may read.
    let shown = run(
        &mut u,
        "own",
        "{listCollections: 1, nameOnly: true, authorizedCollections: true}",
    );
    let shown = shown.as_doc().to_display();
    assert!(
        shown.contains("\"c\"") && !shown.contains("secret"),
        "{shown}"
    );
    let shown = run(&mut u, "admin", "{listDatabases: 1}")
        .as_doc()
        .to_display();
    assert!(
        shown.contains("\"own\"") && !shown.contains("\"other\""),
        "{shown}"
    );
    expect(
        &mut u,
        "admin",
        13,
        &["{listDatabases: 1, authorizedDatabases: false}"],
    );
}

const PASSWORD: &str = "Recognisable-Password-7391";
/// Part of the nonces of the tests.
const NONCE: &str = "nonceOfTheTests";

#[test]
fn passwords_and_keys_appear_nowhere() {
    let server = auth_for_tests();
    let mut c = root(&server);
    let mut texts: Vec<String> = Vec::new();
    for db in ["admin", "own"] {
        run(&mut c, db, "{profile: 2, slowms: 0}");
        run(&mut c, db, "{find: 'c'}");
    }
    run(&mut c, "admin", "{setParameter: 1, logLevel: 1}");
    user(&mut c, "low", "['read']");
    let mut low = as_user(&server, "low");
    run(
        &mut c,
        "own",
        &format!("{{createUser: 'u', pwd: '{PASSWORD}', roles: ['read']}}"),
    );
    for mechanism in [SHA1, SHA256] {
        login(&mut server.connect(), "own", "u", PASSWORD, mechanism).unwrap();
        assert!(login(&mut server.connect(), "own", "nobody", PASSWORD, mechanism).is_err());
        login(&mut server.connect(), "own", "u", PASSWORD, mechanism).unwrap();
    }
    run(
        &mut c,
        "own",
        &format!("{{updateUser: 'u', pwd: '{PASSWORD}'}}"),
    );
    // A wrong one.
    assert!(login(&mut server.connect(), "own", "low", PASSWORD, SHA1).is_err());
    let p = PASSWORD;
    let plain = format!("\0u\0{p}");
    let plain: String = plain.bytes().map(|b| format!("{b:02x}")).collect();
    let malformed = [
        format!("{{createUser: 'x', pwd: '{p}', roles: 1}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: ['nope']}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [1]}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [], other: 1}}"),
        format!("{{createUser: 'x', pwd: '{p}'}}"),
        format!("{{createUser: 1, pwd: '{p}', roles: []}}"),
        format!("{{createUser: 'u', pwd: '{p}', roles: []}}"),
        format!("{{createUser: 'x', pwd: {{a: '{p}'}}, roles: []}}"),
        format!("{{createUser: 'x', pwd: ['{p}'], roles: []}}"),
        format!("{{createUser: 'x', pwd: '{p}', pwd: '{p}', roles: []}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [], mechanisms: ['PLAIN']}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [], digestPassword: false}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [], maxTimeMS: 'x'}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [], writeConcern: {{w: 'x'}}}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [], readConcern: {{level: 'x'}}}}"),
        format!("{{createUser: 'x', pwd: '{p}', roles: [], lsid: 1}}"),
        format!("{{createUser: 'x', pwd: '{p}\\u0007', roles: []}}"),
        format!("{{updateUser: 'nobody', pwd: '{p}'}}"),
        format!("{{updateUser: 'u', pwd: '{p}', roles: 1}}"),
        format!("{{updateUser: 'u', pwd: '{p}', mechanisms: 1}}"),
        format!("{{saslStart: 1, mechanism: 'PLAIN', payload: HexData(0, '{plain}')}}"),
        format!("{{saslStart: 1, mechanism: 'SCRAM-SHA-1', payload: HexData(0, '{plain}')}}"),
        format!("{{saslStart: 1, mechanism: 'SCRAM-SHA-1', payload: '{p}'}}"),
        format!("{{saslStart: 1, mechanism: 'SCRAM-SHA-1', payload: {{a: '{p}'}}}}"),
        format!("{{saslContinue: 1, conversationId: 1, payload: '{p}'}}"),
        format!("{{saslContinue: 1, conversationId: '{p}', payload: 1}}"),
        format!("{{explain: {{createUser: 'x', pwd: '{p}', roles: []}}}}"),
        format!("{{explain: {{updateUser: 'u', pwd: '{p}'}}}}"),
        format!("{{explain: {{saslStart: 1, mechanism: 'PLAIN', payload: '{p}'}}}}"),
        format!(
            "{{applyOps: [{{op: 'c', ns: 'own.$cmd', o: {{createUser: 'x', pwd: '{p}', roles: []}}}}]}}"
        ),
        format!("{{authenticate: 1, user: 'u', nonce: 'x', key: '{p}'}}"),
        format!(
            "{{hello: 1, speculativeAuthenticate: {{saslStart: 1, mechanism: 'SCRAM-SHA-1', payload: '{p}', db: 'own'}}}}"
        ),
        format!(
            "{{hello: 1, speculativeAuthenticate: {{saslStart: 1, mechanism: 'PLAIN', payload: HexData(0, '{plain}'), db: 'own'}}}}"
        ),
    ];
    let mut stranger = server.connect();
    for cmd in &malformed {
        for db in ["own", "admin"] {
            // The key of a speculative login is that of a hello, which anybody may send.
            for who in [&mut c, &mut low, &mut stranger] {
                let (_, text) = told(who, db, cmd);
                texts.push(format!("{cmd}: {text}"));
            }
        }
    }
    let mut wrong = Vec::new();
    for text in &texts {
        let (cmd, reply) = text.rsplit_once("}: ").unwrap();
        if reply.contains(PASSWORD) {
            wrong.push(format!("the reply to {cmd}}}: {reply}"));
        }
    }
    // While it runs.
    run(
        &mut c,
        "admin",
        "{configureFailPoint: 'failCommand', mode: 'alwaysOn', data: {
        failCommands: ['createUser', 'updateUser', 'saslStart', 'saslContinue', 'hello'],
        blockConnection: true, blockTimeMS: 1000, appName: 'blocked'}}",
    );
    let hello = "{hello: 1, client: {driver: {name: 'x', version: '1'}, os: {type: 'x'}, application: {name: 'blocked'}}}";
    let begin = client("u", PASSWORD, SHA1).first();
    let hex: String = begin.bytes().map(|b| format!("{b:02x}")).collect();
    let shown: Vec<String> = std::thread::scope(|scope| {
        let commands = [
            format!("{{createUser: 'blocked', pwd: '{p}', roles: []}}"),
            format!("{{updateUser: 'u', pwd: '{p}'}}"),
            format!("{{saslStart: 1, mechanism: 'SCRAM-SHA-1', payload: HexData(0, '{hex}')}}"),
            format!("{{saslContinue: 1, conversationId: 1, payload: HexData(0, '{hex}')}}"),
            format!(
                "{{hello: 1, speculativeAuthenticate: {{saslStart: 1, mechanism: 'SCRAM-SHA-1', payload: HexData(0, '{hex}'), db: 'own'}}}}"
            ),
        ];
        let n = commands.len();
        for cmd in commands {
            let mut d = server.connect();
            // Login first: the fail point is about connections that have told their name.
            login(&mut d, "admin", "root", "rootpw", SHA1).unwrap();
            scope.spawn(move || {
                let _ = d.command("admin", &shell(hello));
                d.command("own", &shell(&cmd)).map(|_| ())
            });
        }
        // First all greet, then all run their commands.
        let mut seen = Vec::new();
        for _ in 0..100 {
            let ops = inprog(&mut c, "{currentOp: 1, $all: true, $truncateOps: false}");
            let ended = !ops.contains("\"blocked\"") && seen.len() > 2 * n;
            seen.push(ops);
            if ended {
                break;
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        seen
    });
    let seen = |s: &String| s.contains("\"blocked\"") && s.contains("active: true");
    assert!(shown.iter().any(seen), "it was never seen");
    run(
        &mut c,
        "admin",
        "{configureFailPoint: 'failCommand', mode: 'off'}",
    );
    // Everything that shows commands.
    let mut places = vec![("the log", server.log())];
    for name in ["global", "startupWarnings"] {
        places.push(("getLog", inprog(&mut c, &format!("{{getLog: '{name}'}}"))));
    }
    for db in ["admin", "own"] {
        let all = c.find_all(db, &doc! { "find": "system.profile" }).unwrap();
        assert!(!all.is_empty(), "{db}");
        let all: Vec<String> = all.iter().map(|d| d.as_doc().to_display()).collect();
        places.push(("system.profile", all.join("\n")));
    }
    places.push(("currentOp", shown.join("\n")));
    places.push(("serverStatus", inprog(&mut c, "{serverStatus: 1}")));
    let stored = c
        .find_all("admin", &doc! { "find": "system.users" })
        .unwrap();
    let mut words: Vec<String> = vec![
        PASSWORD.to_string(),
        NONCE.to_string(),
        "rootpw".to_string(),
    ];
    // As base64 and as hexadecimal digits, in which bytes are shown.
    for text in [PASSWORD, NONCE] {
        words.push(text.bytes().map(|b| format!("{b:02X}")).collect());
        words.push(text.bytes().map(|b| format!("{b:02x}")).collect());
    }
    // "Recognisable" and "nonceOfTheTests" at each of the three places in which base64 can begin.
    words.extend(
        [
            "UmVjb2duaXNhYmxl",
            "JlY29nbmlzYWJsZ",
            "SZWNvZ25pc2FibG",
            "bm9uY2VPZlRoZVRlc3Rz",
        ]
        .map(String::from),
    );
    for d in &stored {
        for e in d.as_doc().get_doc("credentials").unwrap().iter() {
            let one = e.value().as_doc().unwrap();
            for field in ["salt", "storedKey", "serverKey"] {
                words.push(one.get_str(field).unwrap().to_string());
            }
        }
    }
    for (place, text) in &places {
        for word in &words {
            for line in text.lines().filter(|l| l.contains(word.as_str())) {
                let at = line.find(word.as_str()).unwrap();
                let from = (at.saturating_sub(200)..=at)
                    .find(|i| line.is_char_boundary(*i))
                    .unwrap();
                let to = (at + 40..)
                    .find(|i| line.is_char_boundary((*i).min(line.len())))
                    .unwrap();
                wrong.push(format!(
                    "{place}: {word}: …{}…",
                    &line[from..to.min(line.len())]
                ));
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The password is in no file either.
    for file in testkit::files_below(&server.dir()) {
        let Ok(bytes) = std::fs::read(&file) else {
            continue;
        };
        let found = bytes
            .windows(PASSWORD.len())
            .any(|w| w == PASSWORD.as_bytes());
        assert!(!found, "{}", file.display());
    }
}

/// What a reader who looked for ways around the checks has found.
#[test]
fn ways_around_the_checks_are_closed() {
    let server = auth();
    let mut r = root(&server);
    for (db, cmd) in [
        ("own", "{insert: 'c', documents: [{_id: 1, k: 1}]}"),
        (
            "own",
            "{insert: 'secret', documents: [{_id: 1, k: 1, s: 'SECRET'}]}",
        ),
        (
            "own",
            "{createRole: 'one', roles: [], privileges: [{resource: {db: 'own', collection: 'c'}, actions: ['find', 'insert']}]}",
        ),
        (
            "own",
            "{createRole: 'checks', roles: [], privileges: [{resource: {db: 'own', collection: ''}, actions: ['validate', 'collMod']}]}",
        ),
        (
            "own",
            "{createUser: 'lk', pwd: 'p', roles: ['one', 'checks']}",
        ),
        ("own", "{create: 'view', viewOn: 'c', pipeline: []}"),
    ] {
        assert_eq!(told(&mut r, db, cmd).0, 0, "{cmd}");
    }
    let mut c = server.connect();
    login(&mut c, "own", "lk", "p", SHA1).unwrap();
    for (db, cmd) in [
        (
            "own",
            "{aggregate: 'c', cursor: {}, pipeline: [{$graphLookup: {from: 'c', from: 'secret', startWith: 1, connectFromField: 'k', connectToField: 'k', as: 'x'}}]}",
        ),
        // An entry replaces what is there.
        (
            "own",
            "{applyOps: [{op: 'i', ns: 'own.c', o: {_id: 1, v: 'FORGED'}}]}",
        ),
        (
            "own",
            "{validateDBMetadata: 1, db: 'admin', apiParameters: {version: '1', strict: true}}",
        ),
        (
            "own",
            "{validateDBMetadata: 1, apiParameters: {version: '1', strict: true}}",
        ),
        // A view shows what its name's right does not: a user that changes it has to be allowed to read that.
        (
            "own",
            "{collMod: 'view', pipeline: [{$lookup: {from: 'secret', pipeline: [], as: 'x'}}]}",
        ),
        // An index that is no whole number names no namespace.
        (
            "admin",
            "{bulkWrite: 1, ops: [{insert: 0.5, document: {}}], nsInfo: [{ns: 'own.secret'}]}",
        ),
    ] {
        assert_eq!(told(&mut c, db, cmd).0, 13, "{cmd}");
    }
    // The first of two counts.
    let reply = run(
        &mut c,
        "admin",
        "{currentOp: 1, $ownOps: true, $ownOps: false, $all: true}",
    );
    assert!(!reply.as_doc().to_display().contains("root"), "{reply:?}");
    // A cursor of before does not outlive the right.
    run(&mut r, "own", "{insert: 'c', documents: [{}, {}, {}, {}]}");
    let reply = run(&mut c, "own", "{find: 'c', batchSize: 2}");
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let id = cursor.get("id").unwrap().as_i64_exact().unwrap();
    run(
        &mut r,
        "own",
        "{revokePrivilegesFromRole: 'one', privileges: [{resource: {db: 'own', collection: 'c'}, actions: ['find']}]}",
    );
    let more = format!("{{getMore: NumberLong('{id}'), collection: 'c'}}");
    assert_eq!(told(&mut c, "own", &more).0, 13);
    // Deep nesting costs no more than its length.
    let mut nested = "{ping: 1}".to_string();
    for _ in 0..60 {
        nested = format!("{{explain: {nested}}}");
    }
    let began = std::time::Instant::now();
    told(&mut c, "own", &nested);
    assert!(began.elapsed() < Duration::from_secs(2));
    // Nothing is kept for strangers.
    let known = |r: &mut Connection| {
        let reply = run(r, "admin", "{serverStatus: 1}");
        let sessions = reply.as_doc().get_doc("logicalSessionRecordCache").unwrap();
        sessions
            .get("activeSessionsCount")
            .unwrap()
            .as_i64_exact()
            .unwrap()
    };
    let before = known(&mut r);
    let mut stranger = server.connect();
    for n in 10..30 {
        let lsid = format!("aaaaaaaa-0000-4000-8000-0000000000{n}");
        run(
            &mut stranger,
            "admin",
            &format!("{{ping: 1, lsid: {{id: UUID('{lsid}')}}}}"),
        );
    }
    assert_eq!(known(&mut r), before);
}
