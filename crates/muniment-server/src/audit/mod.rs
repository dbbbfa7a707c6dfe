//! The audit log: who did what to users, roles, collections and the server, and who was refused, one line of
//! JSON an event.
//!
//! A command says in its `CommandSpec` which event it leaves (the [`Audits`] in [`actions`]); the two ends of
//! that are [`begin`] and [`end`], around its run. Everything else that is audited calls a function of this
//! module.
//!
//! Invariants: without `--auditDestination` a command pays for one look at an `Option`; an event is written
//! before the client is told of what it is about, and if that fails, so does the command; no event contains a
//! password, a key, or what is made of them.

mod actions;
mod direct;
mod event;
mod log;
mod logins;
mod sink;

pub use actions::{
    Audits, all_of_database, collection, database, dropped_index, message, new_index,
    own_privileges, own_roles, reconfigured, renamed, role, role_granted, user, user_granted,
    user_with_roles,
};
pub use event::Who;
pub use log::Audit;
pub use logins::Login;

use crate::auth::{self, Needs};
use crate::context::{CommandContext, Request};
use crate::registry::CommandSpec;
use crate::state::ServerState;
use muniment_value::{ArrayBuf, Code, DocBuf, Error, Result, array, doc};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

/// The most bytes of a command that an event shows.
const LONGEST_ARGS: usize = 64 << 10;
/// The same for a command of somebody who has not logged in, and could otherwise fill the disk quickly.
const LONGEST_OF_STRANGERS: usize = 1 << 10;

/// The parameters of the event that [`end`] has to write after a command, if it has one. What was there before
/// the command is a part of some.
pub struct Begun(Option<DocBuf>);

/// To be called before a command runs that the rights of its user allow.
///
/// # Errors
/// 96 OperationFailed if the command has to be audited and nothing can be written now. It must not run then.
#[inline]
pub fn begin(cx: &CommandContext<'_>) -> Result<Option<Begun>> {
    match &cx.server.audit {
        Some(audit) => begin_audited(audit, cx).map(Some),
        None => Ok(None),
    }
}

#[cold]
fn begin_audited(audit: &Audit, cx: &CommandContext<'_>) -> Result<Begun> {
    if cx.spec.audits.is_some() {
        audit.ready(cx.spec.name)?;
    }
    Ok(Begun(cx.spec.audits.as_ref().map(|a| (a.param)(cx))))
}

/// To be called after a command has run, and before its client is told of the result: writes its events, and
/// returns the result that the client is to be told.
///
/// # Errors
/// The command's own; 96 OperationFailed if an event could not be written, although the command has succeeded.
#[inline]
pub fn end(
    cx: &CommandContext<'_>,
    begun: Result<Option<Begun>>,
    result: Result<()>,
) -> Result<()> {
    match (&cx.server.audit, begun) {
        (Some(audit), Ok(Some(begun))) => end_audited(audit, cx, begun.0, result),
        _ => result,
    }
}

#[cold]
fn end_audited(
    audit: &Audit,
    cx: &CommandContext<'_>,
    param: Option<DocBuf>,
    result: Result<()>,
) -> Result<()> {
    let code = result.as_ref().map_or_else(|e| e.code(), |()| Code::OK);
    let changes = cx.op.take_changes();
    let mut events: Vec<_> = changes
        .iter()
        .map(actions::of_change)
        .map(|(atype, param)| (atype, param, Code::OK))
        .collect();
    let direct = direct::mutations(cx).into_iter();
    events.extend(direct.map(|param| ("directAuthMutation", param, Code::OK)));
    if let (Some(audits), Some(param)) = (&cx.spec.audits, param) {
        let is_told = audits.by_changes && code == Code::OK;
        if !is_told {
            events.push((audits.atype, param, code));
        }
    }
    if events.is_empty() {
        return result;
    }
    let who = auth::who(cx.conn, cx.local);
    // Each is tried, also after one that could not be written.
    let mut told = Ok(());
    for (atype, param, code) in &events {
        let written = audit.event(&who, atype, param, *code);
        told = told.and(written);
    }
    match (result, told) {
        (Ok(()), Err(e)) => Err(e.context(&format!("{} has been done, but ", cx.spec.name))),
        (result, _) => result,
    }
}

/// Notes that a request was refused, because its user may not run it or nobody has logged in. `namespace` is
/// what it is about, if that is known.
pub fn denied(
    audit: &Audit,
    who: &Who,
    request: &Request<'_>,
    namespace: Option<String>,
    e: &Error,
) {
    let spec = crate::registry::find(request.name);
    let ns = namespace.unwrap_or_else(|| format!("{}.$cmd", request.db));
    let longest = match who.is_known() {
        true => LONGEST_ARGS,
        false => LONGEST_OF_STRANGERS,
    };
    let param = checked(spec, request, &ns, longest);
    // The request fails anyway, and the server's log says that the event is missing.
    let _ = audit.event(who, "authCheck", &param, e.code());
}

/// Notes that a request that reads or writes documents is allowed, if auditAuthorizationSuccess asks for it.
///
/// # Errors
/// 96 OperationFailed if it cannot be written; the request must not run then.
#[inline]
pub fn allowed(
    server: &ServerState,
    who: impl FnOnce() -> Who,
    spec: &'static CommandSpec,
    request: &Request<'_>,
    namespace: &str,
) -> Result<()> {
    match &server.audit {
        Some(audit) if notes_allowed(server, spec) => {
            let param = checked(Some(spec), request, namespace, LONGEST_ARGS);
            let who = who();
            audit.event(&who, "authCheck", &param, Code::OK)
        }
        _ => Ok(()),
    }
}

fn notes_allowed(server: &ServerState, spec: &CommandSpec) -> bool {
    let successes = server.parameters.audit_successes.load(Relaxed);
    // What everybody may do is not checked.
    successes && !matches!(spec.needs, Needs::Nothing)
}

/// The parameters of an authCheck; the command is shown up to so many bytes.
fn checked(spec: Option<&CommandSpec>, request: &Request<'_>, ns: &str, longest: usize) -> DocBuf {
    let hidden = spec.and_then(|spec| auth::hidden_request(spec, request, ns));
    // Nothing is known of what an unknown command contains.
    let args = match (spec, hidden) {
        (_, Some(hidden)) => hidden,
        (None, _) => DocBuf::new(),
        (Some(_), None) => arguments(request, longest),
    };
    doc! { "command": request.name, "ns": ns, "args": args }
}

/// The command with the documents beside it, as far as they fit.
fn arguments(request: &Request<'_>, longest: usize) -> DocBuf {
    let mut args = request.body.abridged(longest);
    for sequence in request.sequences {
        let mut documents = ArrayBuf::new();
        let mut bytes = args.as_doc().byte_len();
        for d in sequence.docs {
            bytes += d.byte_len();
            if bytes > longest {
                break;
            }
            documents.push(d.abridged(longest));
        }
        args.append(sequence.name, documents);
    }
    args
}

/// The server begins to serve.
///
/// # Errors
/// 96 OperationFailed if that cannot be written; the server must not start then.
pub fn starts(server: &ServerState) -> Result<()> {
    let Some(audit) = &server.audit else {
        return Ok(());
    };
    let param = doc! { "options": &server.options.parsed };
    audit.event(&Who::server(), "startup", &param, Code::OK)
}

/// The server ends because a client has asked it to.
///
/// # Errors
/// 96 OperationFailed if that cannot be written.
pub fn ends(cx: &CommandContext<'_>) -> Result<()> {
    let Some(audit) = &cx.server.audit else {
        return Ok(());
    };
    let who = auth::who(cx.conn, cx.local);
    audit.event(&who, "shutdown", &DocBuf::new(), Code::OK)?;
    audit.is_ended();
    Ok(())
}

/// The server has ended. Only what no client has asked for is written here.
pub fn ended(server: &ServerState) {
    if let Some(audit) = &server.audit
        && !audit.is_ended()
    {
        let _ = audit.event(&Who::server(), "shutdown", &DocBuf::new(), Code::OK);
    }
}

/// The logs that are to be rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logs {
    /// The server's own.
    Server,
    /// The audit log.
    Audit,
    /// Both.
    Both,
}

/// Rotates logs, and notes it in the audit log's new file. `context` names the rotating thread.
///
/// # Errors
/// Those of renaming and creating files; the log then continues in the old one. 96 OperationFailed if the
/// event cannot be written.
pub fn rotate(server: &ServerState, who: &Who, logs: Logs, context: &str) -> Result<()> {
    let failed = |e: io::Error| Error::from(e).context("Log rotation failed: ");
    let mut result = match logs {
        Logs::Server | Logs::Both => server.log.rotate(context).map_err(failed),
        Logs::Audit => Ok(()),
    };
    let Some(audit) = &server.audit else {
        return result;
    };
    let mut aside: Option<PathBuf> = None;
    if logs != Logs::Server {
        match audit.rotate() {
            Ok(path) => aside = path,
            Err(e) => result = result.and(Err(failed(e))),
        }
    }
    let code = result.as_ref().map_or_else(|e| e.code(), |()| Code::OK);
    let errors = match &result {
        Ok(()) => array![],
        Err(e) => array![e.to_string()],
    };
    let status = doc! {
        "status": if result.is_ok() { "OK" } else { "FailedRotation" },
        "rotatedLogPath": aside.map_or_else(String::new, |p| p.display().to_string()),
        "errors": errors,
    };
    let param = doc! {
        "pid": i64::from(std::process::id()),
        "osInfo": doc! { "name": std::env::consts::OS },
        "logRotationStatus": status,
    };
    result.and(audit.event(who, "rotateLog", &param, code))
}
