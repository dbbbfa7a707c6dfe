//! `hello`: the handshake, and waiting for a change of the topology.

use crate::auth::{self, Needs};
use crate::connections::ClientInfo;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Routed, Secret};
use crate::server::MAX_WIRE_VERSION;
use muniment_auth::names::UserName;
use muniment_logger::now_ms;
use muniment_member::describe;
use muniment_op::Both;
use muniment_value::args::{Field, Types, check_type, idle, opt};
use muniment_value::{ArrayBuf, Code, Doc, Error, Result, Value, doc, number};
use muniment_wire::Compressor;
use std::sync::Arc;
use std::time::Duration;

/// Largest `client` document, in bytes.
const MAX_CLIENT: usize = 512;
/// Largest `client.application.name`, in bytes.
const MAX_APP_NAME: usize = 128;

pub(super) const FIELDS: &[Field] = &[
    opt("helloOk", Types::SAFE_BOOL),
    opt("client", Types::OBJECT),
    opt("compression", Types::ARRAY),
    opt("saslSupportedMechs", Types::ANY),
    opt("speculativeAuthenticate", Types::OBJECT),
    opt("topologyVersion", Types::OBJECT),
    opt("maxAwaitTimeMS", Types::NUMBER),
    idle(
        "loadBalanced",
        Types::BOOL,
        "only a router answers it with a serviceId",
    ),
    idle("backpressure", Types::ANY, "a hint of newer drivers"),
    idle("hostInfo", Types::STRING, "internal clients only"),
    idle("forShell", Types::ANY, "the old shell's"),
    // What MongoDB's own routers and members add to their greeting.
    opt("internalClient", Types::OBJECT),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "hello",
    doc: "Handshake: who the server is and what it can",
    api_v1: true,
    open_fields: true,
    fields: FIELDS,
    run: |cx| run(cx, "isWritablePrimary"),
    while_stopping: true,
    secret: Secret::If(|body| body.get("speculativeAuthenticate").is_some()),
    logged_when_slow: false,
    ..CommandSpec::new(Routed::Here, Needs::Nothing)
};

/// The user that `saslSupportedMechs` names, as `db.user` or as `{user, db}`.
///
/// # Errors
/// 14 TypeMismatch, 2 BadValue.
fn asked_user(v: Value<'_>) -> Result<UserName> {
    let named = match v {
        Value::String(s) => s.split_once('.').map(|(db, user)| UserName::new(user, db)),
        Value::Document(d) => match (d.get_str("user"), d.get_str("db")) {
            (Some(user), Some(db)) => Some(UserName::new(user, db)),
            _ => None,
        },
        v => {
            check_type("hello", "saslSupportedMechs", Types::STRING, v.ty())?;
            None
        }
    };
    named.ok_or_else(|| {
        Error::bad_value(format!(
            "UserName must contain a '.' separated database.user pair, but is {}",
            v.to_display()
        ))
    })
}

/// Sends away a router or member of MongoDB.
///
/// # Errors
/// 188 IncompatibleServerVersion.
fn check_kind(cx: &CommandContext<'_>) -> Result<()> {
    match cx.args.get("internalClient") {
        None => Ok(()),
        Some(_) => Err(Error::new(
            Code::IncompatibleServerVersion,
            "this is a server of Muniment, and the client is a mongos or mongod of MongoDB: all servers of a \
             cluster and of a replica set have to be of one kind. Muniment's router is `muniment router`",
        )),
    }
}

pub(super) fn run(cx: &mut CommandContext<'_>, primary: &str) -> Result<()> {
    check_kind(cx)?;
    let asked = cx.args.get("saslSupportedMechs");
    let asked = asked.map(asked_user).transpose()?;
    if let Some(client) = cx.args.doc("client") {
        note_client(cx, client)?;
    }
    if let Some(list) = cx.args.array("compression") {
        let offered = &cx.server.options.compressors;
        cx.local.compressors = list
            .values()
            .filter_map(|v| v.as_str().and_then(Compressor::from_name))
            .filter(|c| offered.contains(c))
            .collect();
    }
    await_topology(cx)?;
    let hello_ok = cx.args.bool("helloOk", false);
    // The counter is read before the state. If the state changes in between, the client is told of the new
    // state twice; in the other order it would miss a change.
    let counter = cx.server.topology.counter();
    cx.local.streamed = cx.exhaust.then_some(counter);
    // Whatever fails, the client then logs in by saslStart.
    let mechanisms = asked.and_then(|name| auth::mechanisms_of(cx.server, &name).ok().flatten());
    let login = cx.args.doc("speculativeAuthenticate");
    let login = login.and_then(|d| auth::speculative(cx.server, cx.conn, cx.local, &**cx.op, d));
    let w = &mut cx.reply;
    if hello_ok {
        w.field("helloOk", true);
    }
    match &cx.server.replica_set {
        Some(set) => {
            w.elements(describe(set, primary, counter).as_doc());
        }
        None => {
            w.field(primary, true);
            if cx.server.router.is_some() {
                w.field("msg", "isdbgrid");
            }
            w.field("topologyVersion", cx.server.topology.version(counter));
        }
    }
    w.field("maxBsonObjectSize", 16_777_216);
    w.field("maxMessageSizeBytes", 48_000_000);
    w.field("maxWriteBatchSize", 100_000);
    w.field("localTime", Value::DateTime(now_ms()));
    w.field(
        "logicalSessionTimeoutMinutes",
        crate::sessions::TIMEOUT_MINUTES,
    );
    w.field("connectionId", cx.conn.id as i32);
    w.field("minWireVersion", 0);
    w.field("maxWireVersion", MAX_WIRE_VERSION);
    w.field("readOnly", cx.server.kept_for_set);
    if cx.args.get("compression").is_some() && !cx.local.compressors.is_empty() {
        let names: ArrayBuf = cx.local.compressors.iter().map(|c| c.name()).collect();
        w.field("compression", names);
    }
    if let Some(mechanisms) = mechanisms {
        let names: ArrayBuf = mechanisms.iter().map(String::as_str).collect();
        w.field("saslSupportedMechs", names);
    }
    if let Some(login) = login {
        w.field("speculativeAuthenticate", login);
    }
    cx.local.greeted = true;
    Ok(())
}

/// Keeps what the client says about itself. It may say so only once per connection.
fn note_client(cx: &mut CommandContext<'_>, client: Doc<'_>) -> Result<()> {
    let mut info = cx.conn.client.lock();
    if let Some(before) = &info.document {
        if before.as_doc().as_bytes() == client.as_bytes() {
            return Ok(());
        }
        return Err(Error::new(
            Code::ClientMetadataCannotBeMutated,
            "The client metadata document may only be sent in the first hello",
        ));
    }
    check_client(client)?;
    *info = ClientInfo {
        document: Some(client.to_buf()),
        app_name: app_name(client)?.map(Arc::from),
    };
    drop(info);
    if let Some(audit) = &cx.server.audit {
        audit.greeted(&auth::who(cx.conn, cx.local), cx.conn, client);
    }
    if !cx.server.log.quiet() {
        cx.server.log.info(
            "NETWORK",
            51800,
            &format!("conn{}", cx.conn.id),
            "client metadata",
            &doc! { "remote": &*cx.conn.peer, "client": format!("conn{}", cx.conn.id), "doc": client },
        );
    }
    Ok(())
}

/// Refuses a client's description of itself that is too large or lacks a section.
///
/// # Errors
/// ClientMetadataDocumentTooLarge, ClientMetadataMissingField, 14 TypeMismatch.
fn check_client(client: Doc<'_>) -> Result<()> {
    if client.byte_len() > MAX_CLIENT {
        return Err(Error::new(
            Code::ClientMetadataDocumentTooLarge,
            format!(
                "The client metadata document must be less then or equal to {MAX_CLIENT} bytes"
            ),
        ));
    }
    for required in ["driver", "os"] {
        match client.get(required) {
            None => {
                return Err(Error::new(
                    Code::ClientMetadataMissingField,
                    format!(
                        "Missing required sub-document '{required}' in the client metadata document"
                    ),
                ));
            }
            Some(Value::Document(_)) => {}
            Some(v) => {
                return Err(Error::type_mismatch(format!(
                    "The '{required}' field is required to be a BSON document in the client \
                     metadata document, not {}",
                    v.type_name()
                )));
            }
        }
    }
    Ok(())
}

/// The name of the application in a client's description of itself.
///
/// # Errors
/// 14 TypeMismatch, ClientMetadataAppNameTooLarge.
fn app_name(client: Doc<'_>) -> Result<Option<&str>> {
    let application = match client.get("application") {
        None => return Ok(None),
        Some(Value::Document(a)) => a,
        Some(v) => {
            return Err(Error::type_mismatch(format!(
                "The 'application' field is required to be a BSON document in the client metadata \
                 document, not {}",
                v.type_name()
            )));
        }
    };
    match application.get("name") {
        None => Ok(None),
        Some(Value::String(n)) if n.len() > MAX_APP_NAME => Err(Error::new(
            Code::ClientMetadataAppNameTooLarge,
            format!(
                "The 'application.name' field in the client metadata document is longer than \
                 {MAX_APP_NAME} bytes"
            ),
        )),
        Some(Value::String(n)) => Ok(Some(n)),
        Some(v) => Err(Error::type_mismatch(format!(
            "The 'application.name' field must be a string, not {}",
            v.type_name()
        ))),
    }
}

/// Waits until the topology is another than the client knows, or its `maxAwaitTimeMS` is over.
fn await_topology(cx: &mut CommandContext<'_>) -> Result<()> {
    let known = cx.args.doc("topologyVersion");
    let wait = cx.args.int("maxAwaitTimeMS", 0, i64::from(i32::MAX))?;
    let (known, wait) = match (known, wait) {
        (Some(k), Some(w)) => (k, w),
        (None, None) => return Ok(()),
        (Some(_), None) => {
            return Err(Error::location(
                31368,
                "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'",
            ));
        }
        (None, Some(_)) => {
            return Err(Error::location(
                31368,
                "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'",
            ));
        }
    };
    let id = match known.get("processId") {
        Some(Value::ObjectId(id)) => id,
        other => return Err(field_error("processId", other)),
    };
    let counter = match known.get("counter") {
        Some(v) if v.is_number() => number::to_i64_clamped(v).unwrap_or(0),
        other => return Err(field_error("counter", other)),
    };
    if counter < 0 {
        return Err(Error::location(
            31372,
            "topologyVersion 'counter' must be non-negative",
        ));
    }
    cx.exhaust = cx.request.exhaust_allowed;
    let counter = match cx.local.streamed {
        Some(told) => told,
        None if id != cx.server.topology.process => return Ok(()),
        None => counter,
    };
    if counter > cx.server.topology.counter() {
        return Err(Error::location(
            31382,
            "Received a topology version with a counter greater than the server's",
        ));
    }
    let (wait, lifecycle) = (Duration::from_millis(wait as u64), &cx.server.lifecycle);
    let (topology, on) = (&cx.server.topology, Both(&**cx.op, &*cx.conn.remote));
    let wait_topology = || topology.wait(counter, wait, lifecycle, &on);
    cx.op.counters.idle(wait_topology)?;
    if cx.server.lifecycle.is_stopping() {
        cx.exhaust = false;
    }
    Ok(())
}

fn field_error(name: &str, v: Option<Value<'_>>) -> Error {
    match v {
        None => Error::location(
            40414,
            format!("BSON field 'TopologyVersion.{name}' is missing but a required field"),
        ),
        Some(v) => Error::type_mismatch(format!(
            "BSON field 'TopologyVersion.{name}' is the wrong type '{}'",
            v.type_name()
        )),
    }
}
