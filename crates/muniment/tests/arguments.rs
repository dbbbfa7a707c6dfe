//! Every field of every command is given every BSON type. The server must reply with an error if the type is
//! wrong, with any reply if it is right, and must never close the connection. The test uses the registry, so
//! that a new command is covered without a change here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_server::{CommandSpec, registry};
use muniment_value::args::Types;
use muniment_value::{Doc, DocBuf, Value, doc};
use muniment_wire::Connection;
use testkit::{Server, ServerOptions};

/// Commands that would end or lock the tested server.
const SKIP_LEGAL: [&str; 2] = ["shutdown", "fsync"];

/// One value of each type, and a few unusual ones.
fn values() -> Vec<Value<'static>> {
    static BYTES: [u8; 16] = [7; 16];
    vec![
        Value::Double(1.5),
        Value::Double(f64::NAN),
        Value::Double(f64::NEG_INFINITY),
        Value::String("text"),
        Value::String(""),
        Value::Document(Doc::EMPTY),
        Value::Array(Doc::EMPTY),
        Value::Binary {
            subtype: 4,
            bytes: &BYTES,
        },
        Value::Binary {
            subtype: 0,
            bytes: &[],
        },
        Value::Undefined,
        Value::ObjectId([1; 12]),
        Value::Bool(true),
        Value::DateTime(-1),
        Value::Null,
        Value::Regex {
            pattern: "a(",
            options: "i",
        },
        Value::DbPointer {
            namespace: "a.b",
            id: [2; 12],
        },
        Value::Code("function() {}"),
        Value::Symbol("symbol"),
        Value::CodeWithScope {
            code: "x",
            scope: Doc::EMPTY,
        },
        Value::Int32(-7),
        Value::Timestamp { t: 1, i: 2 },
        Value::Int64(i64::MIN),
        Value::Int64(i64::MAX),
        Value::Decimal128([0xFF; 16]),
        Value::MaxKey,
        Value::MinKey,
    ]
}

fn start() -> (Server, Connection) {
    let server = Server::start(
        ServerOptions::new()
            .arg("--setParameter")
            .arg("enableTestCommands=1"),
    );
    let mut c = server.connect();
    c.command(
        "t",
        &doc! { "insert": "c", "documents": muniment_value::array![doc! { "_id": 1 }] },
    )
    .unwrap();
    (server, c)
}

/// Sends a command and returns the error code of the reply; 0 for ok.
fn code(c: &mut Connection, db: &str, cmd: &DocBuf, what: &str) -> i32 {
    let reply = c
        .command_raw(db, cmd)
        .unwrap_or_else(|e| panic!("{what}: no reply: {e}\n{cmd:?}"));
    let d = reply.as_doc();
    match d.get("code").and_then(|v| v.as_i64_exact()) {
        Some(n) => {
            let text = d.get_str("errmsg").unwrap_or_default();
            assert_ne!(n, 1, "{what}: an internal error: {text}\n{cmd:?}");
            assert!(
                !text.is_empty() && d.get_str("codeName").is_some(),
                "{what}: {reply:?}"
            );
            n as i32
        }
        None => 0,
    }
}

fn db_of(spec: &CommandSpec) -> &'static str {
    if spec.admin_only { "admin" } else { "t" }
}

/// The command with only its first element.
fn bare(spec: &CommandSpec) -> DocBuf {
    let mut d = DocBuf::new();
    match spec.name {
        "getMore" => d.append(spec.name, 77_i64),
        "explain" => d.append(spec.name, doc! { "find": "c" }),
        "renameCollection" => d.append(spec.name, "t.nothing"),
        "dropDatabase" | "profile" => d.append(spec.name, 1),
        _ => d.append(spec.name, "c"),
    };
    d
}

#[test]
fn fields_of_wrong_types_are_14() {
    let (_server, mut c) = start();
    for spec in registry().iter().filter(|spec| !spec.of_router) {
        for field in spec.fields.iter().filter(|f| f.types != Types::ANY) {
            for v in values() {
                let nullish = matches!(v, Value::Null | Value::Undefined);
                if nullish || field.types.has(v.ty()) {
                    continue;
                }
                let mut d = bare(spec);
                d.append(field.name, v);
                let what = format!("{}.{} = {v:?}", spec.name, field.name);
                assert_eq!(code(&mut c, db_of(spec), &d, &what), 14, "{what}");
            }
        }
        let mut d = bare(spec);
        d.append("noSuchField", 1);
        let what = format!("{}.noSuchField", spec.name);
        let got = code(&mut c, db_of(spec), &d, &what);
        assert!(got == 40415 || spec.open_fields, "{what}: {got}");
    }
}

#[test]
fn fields_of_right_types_get_some_reply() {
    let (_server, mut c) = start();
    for spec in registry() {
        if SKIP_LEGAL.contains(&spec.name) {
            continue;
        }
        for field in spec.fields {
            for v in values() {
                if field.types.has(v.ty()) {
                    let mut d = bare(spec);
                    d.append(field.name, v);
                    let what = format!("{}.{} = {v:?}", spec.name, field.name);
                    code(&mut c, db_of(spec), &d, &what);
                }
            }
        }
    }
    assert!(c.command("admin", &doc! { "ping": 1 }).is_ok());
}

#[test]
fn first_elements_of_all_types_get_some_reply() {
    let (_server, mut c) = start();
    for spec in registry() {
        if SKIP_LEGAL.contains(&spec.name) {
            continue;
        }
        for v in values() {
            let mut d = DocBuf::new();
            d.append(spec.name, v);
            let what = format!("{} = {v:?}", spec.name);
            code(&mut c, db_of(spec), &d, &what);
        }
    }
    assert!(c.command("admin", &doc! { "ping": 1 }).is_ok());
}

#[test]
fn generic_arguments_of_all_types_get_some_reply() {
    let (_server, mut c) = start();
    let generic = [
        "$db",
        "lsid",
        "$clusterTime",
        "$readPreference",
        "readConcern",
        "writeConcern",
        "maxTimeMS",
        "comment",
        "apiVersion",
        "apiStrict",
        "apiDeprecationErrors",
        "txnNumber",
        "autocommit",
        "startTransaction",
    ];
    for name in generic {
        for v in values() {
            for command in ["find", "insert", "ping"] {
                let mut d = doc! {};
                d.append(command, "c");
                if command == "insert" {
                    d.append("documents", muniment_value::array![doc! {}]);
                }
                d.append(name, v);
                let what = format!("{command} with {name} = {v:?}");
                code(&mut c, "t", &d, &what);
            }
        }
    }
}
