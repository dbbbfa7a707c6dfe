//! The first step: finds the command of a request, and checks that somebody has logged in and its arguments.

use super::{Caller, Early};
use crate::auth;
use crate::concern::WriteConcern;
use crate::context::{ConnLocal, Request};
use crate::failpoint::Failure;
use crate::generic::Generic;
use crate::metrics::OpKind;
use crate::namespace;
use crate::registry::{CommandSpec, Target};
use crate::state::ServerState;
use crate::transactions;
use muniment_value::args::{Args, Types, unknown_field};
use muniment_value::{Code, Error, Result, Value, doc};
use std::time::Instant;

/// A request whose arguments are checked.
pub struct Parsed<'r> {
    /// The command.
    pub spec: &'static CommandSpec,
    /// Its own fields.
    pub args: Args<'r>,
    /// The fields that every command takes.
    pub generic: Generic<'r>,
    /// When the request began.
    pub began: Instant,
}

/// Finds the command and checks its arguments. If the client only asks for help, this step writes the whole
/// reply.
///
/// # Errors
/// 59 CommandNotFound; 13 Unauthorized if nobody has logged in; the errors of [`Args::parse_with`] and
/// [`Generic::check`].
pub fn parse<'r>(
    caller: &Caller<'r>,
    local: &mut ConnLocal,
    out: &mut Vec<u8>,
) -> std::result::Result<Parsed<'r>, Early> {
    let (server, request) = (caller.server, caller.request);
    let began = muniment_op::now();
    let known = crate::registry::find(request.name);
    let Some(spec) = known.filter(|spec| spec.is_of(server)) else {
        return Err(unknown(caller));
    };
    auth::admit(server, caller.conn, local, spec, request)?;
    let (args, generic) = match words(server, spec, request) {
        Ok((_, generic)) if generic.help => return Err(help(caller, spec, out)),
        // A request for help need not have the arguments that the command needs to run.
        Err(_) if request.body.get("help").is_some_and(|v| v.truthy()) => {
            return Err(help(caller, spec, out));
        }
        parsed => parsed?,
    };
    Ok(Parsed {
        spec,
        args,
        generic,
        began,
    })
}

/// The answer to a command that the server does not have, unless a fail point has another one.
fn unknown(caller: &Caller<'_>) -> Early {
    let (server, request) = (caller.server, caller.request);
    caller.counter.op(OpKind::Command, 1);
    if let Err(e) = transactions::check_unknown(request) {
        return e.into();
    }
    if server.failpoints.any() {
        let app_name = caller.conn.client.lock().app_name.clone();
        let ns = format!("{}.$cmd", request.db);
        let failure = server
            .failpoints
            .fail_unknown(request.name, &ns, app_name.as_deref());
        match failure {
            Some(f) if f.close => return Early::Closes,
            Some(Failure {
                error: Some(e),
                labels,
                ..
            }) => return Early::Failed(e, labels),
            _ => {}
        }
    }
    crate::registry::unknown(request.name).into()
}

/// Answers with a description of the command instead of running it.
fn help(caller: &Caller<'_>, spec: &CommandSpec, out: &mut Vec<u8>) -> Early {
    caller.counter.op(OpKind::Command, 1);
    let text = format!("help for: {} {}", spec.name, spec.doc);
    out.extend_from_slice(doc! { "help": text, "ok": 1.0 }.as_bytes());
    Early::Answered
}

/// Checks and takes the fields of a command, its own and the generic ones.
///
/// # Errors
/// The errors of [`Args::parse_with`] and [`Generic::check`]; 40571 without a database.
pub fn words<'a>(
    server: &ServerState,
    spec: &'static CommandSpec,
    request: &Request<'a>,
) -> Result<(Args<'a>, Generic<'a>)> {
    let mut generic = Generic::default();
    let mut fields = request.body.iter();
    // Skips the first element, which names the command.
    fields.next();
    let args = Args::parse_with(spec.name, spec.fields, fields, |e| {
        Ok(generic.take(spec.name, e)? || spec.open_fields)
    })?;
    if generic.db.is_none() && !request.legacy {
        return Err(Error::location(
            40571,
            "OP_MSG requests require a $db argument",
        ));
    }
    for s in request.sequences {
        let known = spec
            .fields
            .iter()
            .any(|f| f.name == s.name && f.types == Types::ARRAY);
        if !known {
            return Err(unknown_field(spec.name, s.name));
        }
    }
    let is_shard = server.options.role.may_be_shard();
    generic.check(spec, request.body, server.is_of_set(), is_shard)?;
    Ok((args, generic))
}

/// The namespace of the operation: `db.collection` for a command on a collection, else `db.$cmd`.
///
/// # Errors
/// 73 InvalidNamespace; 26 for a UUID that no collection has; 13 for a command of "admin" on another
/// database.
pub fn namespace_of(
    server: &ServerState,
    spec: &CommandSpec,
    request: &Request<'_>,
) -> Result<String> {
    namespace::check_db(request.db)?;
    let target = request.body.first().map_or(Value::Null, |e| e.value());
    let collection = match (spec.target, target) {
        // A router has no collections, so like MongoDB's it takes their names alone.
        (Target::CollectionOrUuid, Value::Binary { subtype: 4, .. }) if server.router.is_none() => {
            let found = uuid_of(request)
                .and_then(|uuid| server.engine.store.collection_by_uuid_in(request.db, uuid));
            return match found {
                Some(c) => Ok(c.namespace()),
                None => Err(Error::new(
                    Code::NamespaceNotFound,
                    format!(
                        "Unable to resolve {} in database {}",
                        target.to_display(),
                        request.db
                    ),
                )),
            };
        }
        (Target::Collection | Target::CollectionOrUuid, v) => {
            namespace::collection_of(request.db, v)?
        }
        (Target::CollectionUnchecked, v) => namespace::lenient(v).unwrap_or("$cmd"),
        (Target::CollectionOrDatabase, v) if v.is_number() => "$cmd.aggregate",
        (Target::CollectionOrDatabase, v) => namespace::collection_of(request.db, v)?,
        (Target::Cursor, _) => request.body.get_str("collection").unwrap_or("$cmd"),
        (Target::Anything, _) => "$cmd",
    };
    if spec.admin_only && request.db != "admin" {
        return Err(Error::new(
            Code::Unauthorized,
            format!("{} may only be run against the admin database.", spec.name),
        ));
    }
    let mut ns = String::with_capacity(request.db.len() + 1 + collection.len());
    ns.push_str(request.db);
    ns.push('.');
    ns.push_str(collection);
    Ok(ns)
}

/// The UUID by which a command names its collection.
pub fn uuid_of(request: &Request<'_>) -> Option<[u8; 16]> {
    match request.body.first()?.value() {
        Value::Binary { subtype: 4, bytes } => bytes.try_into().ok(),
        _ => None,
    }
}

/// The write concern that is in force: the command's own, or the server's default.
///
/// # Errors
/// The errors of [`WriteConcern::parse`].
pub fn write_concern_of(
    server: &ServerState,
    spec: &CommandSpec,
    request: &Request<'_>,
    generic: &Generic<'_>,
) -> Result<WriteConcern> {
    if !spec.write_concern {
        return Ok(WriteConcern::IMPLICIT);
    }
    let wc = match generic.write_concern {
        Some(d) => WriteConcern::parse(d, server.default_write_concern(), server.is_of_set())?,
        None => server.default_write_concern(),
    };
    // The database "local" ignores write concerns.
    Ok(if request.db == "local" {
        WriteConcern::IMPLICIT
    } else {
        wc
    })
}
