//! From a request to the bytes of its reply document, in five steps: [`parse`] finds the command and checks
//! its arguments; [`admit`] decides whether it may run here and now, and gives it what it needs; [`run`] runs
//! it inside the unwind guard; [`acknowledge`] waits as its write concern asks; [`account`] ends the reply,
//! counts and logs.
//!
//! What a step needs to know of a command is a field of its `CommandSpec`: no step asks for a command by
//! name.
//!
//! Invariants: exactly one reply document is appended for every request, whatever happens; the
//! journal is waited for once, after all statements.

pub mod account;
mod acknowledge;
mod admit;
mod labels;
mod parse;
mod run;
mod within;

pub use admit::KEEP_COMMAND;
pub use within::run_within;

use crate::audit;
use crate::auth;
use crate::connections::ConnShared;
use crate::context::{ConnLocal, Request};
use crate::metrics::Counter;
use crate::replica_set;
use crate::state::ServerState;
use admit::Admitted;
use labels::labelled;
use muniment_auth::action::Action;
use muniment_member::{Proof, append_times, topology_of_error};
use muniment_value::{ArrayBuf, Code, Error, doc};
use std::sync::Arc;

/// What is to happen with the connection after a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Close it without a reply.
    pub close: bool,
    /// Close it after the reply.
    pub last: bool,
    /// Another reply follows without a request.
    pub exhaust: bool,
    /// The command was refused because this member is not primary, or no longer is.
    pub no_primary: bool,
}

/// A request, with its connection and server.
#[derive(Clone, Copy)]
pub struct Caller<'r> {
    /// All that is shared.
    pub server: &'r Arc<ServerState>,
    /// The connection as others see it.
    pub conn: &'r Arc<ConnShared>,
    /// The connection's counters.
    pub counter: &'r Counter,
    /// The request.
    pub request: &'r Request<'r>,
}

/// The reason why a request goes no further.
enum Early {
    /// The request fails with this error and these `errorLabels`.
    Failed(Error, Option<ArrayBuf>),
    /// The reply is already written.
    Answered,
    /// The connection is closed without a reply, because a fail point asks for it.
    Closes,
}

impl From<Error> for Early {
    fn from(e: Error) -> Early {
        Early::Failed(e, None)
    }
}

/// Runs one request and appends its reply document to `out`.
pub fn execute(caller: Caller<'_>, local: &mut ConnLocal, out: &mut Vec<u8>) -> Done {
    let (at, server) = (out.len(), caller.server);
    let mut done = Done::default();
    match steps(&caller, local, out, &mut done) {
        Ok(()) | Err(Early::Answered) => {}
        Err(Early::Closes) => done.close = true,
        Err(Early::Failed(error, labels)) => {
            out.truncate(at);
            if error.code() == Code::Unauthorized {
                audit_denied(&caller, local, &error);
            }
            caller.counter.error(error.code() == Code::InternalError);
            let mut reply = error.to_reply();
            if let Some(labels) = labels {
                reply.append("errorLabels", labels);
            }
            let topology = topology_of_error(server.replica_set.as_deref(), error.code());
            done.no_primary = topology.is_some();
            reply.append_some("topologyVersion", topology.as_ref());
            out.extend_from_slice(reply.as_bytes());
        }
    }
    if let Some(set) = &server.replica_set {
        append_times(set, out, at, !auth::is_unknown(server, local));
    }
    if let Some(router) = &server.router
        && !auth::is_unknown(server, local)
    {
        router.times.append(out, at);
    }
    done.last = matches!(local.proof, Proof::Failed);
    done
}

/// Notes in the audit log that a request was refused.
fn audit_denied(caller: &Caller<'_>, local: &ConnLocal, e: &Error) {
    let (server, request) = (caller.server, caller.request);
    let Some(audit) = &server.audit else {
        return;
    };
    let spec = crate::registry::find(request.name);
    let namespace = spec.and_then(|spec| parse::namespace_of(server, spec, request).ok());
    let who = auth::who(caller.conn, local);
    audit::denied(audit, &who, request, namespace, e);
}

fn steps(
    caller: &Caller<'_>,
    local: &mut ConnLocal,
    out: &mut Vec<u8>,
    done: &mut Done,
) -> Result<(), Early> {
    let at = out.len();
    let mut parsed = parse::parse(caller, local, out)?;
    if auth::is_unknown(caller.server, local) {
        // Nothing is kept for strangers, and they do not set the clock.
        (parsed.generic.session, parsed.generic.cluster_time) = (None, None);
        // Nor do they make the server wait.
        parsed.generic.read_concern = None;
    }
    if let Some(id) = &mut parsed.generic.session {
        auth::own_session(caller.server, local, id, Action::Impersonate)?;
    }
    let Admitted {
        op,
        transaction,
        ticket,
        write_concern,
        failure,
    } = admit::admit(caller, local, &parsed)?;
    let (spec, began) = (parsed.spec, parsed.began);
    let mut cx = run::context(caller, local, parsed, transaction, write_concern, &op, out);
    // The commit of the command's record does not wake the driver. The command tells the driver of it when it
    // begins to wait for other members, or ends.
    let keeper = replica_set::keeper(&cx);
    let kept_back = keeper
        .as_ref()
        .and_then(|node| node.keep_back(&cx.op.announcer));
    let ran = run::run(&mut cx, ticket);
    let told = acknowledge::acknowledge(&cx, ran.result, kept_back.as_ref());
    drop(kept_back);
    acknowledge::take_settings(&cx);
    let counted = account::Counted::of(&mut cx);
    let failed = told.result.as_ref().err().cloned();
    let ended = match told.result {
        Ok(()) => {
            if account::finish_reply(cx, failure.as_ref(), told.concern) {
                out.truncate(at);
                out.extend_from_slice(doc! { "ok": 1.0 }.as_bytes());
            }
            Ok(())
        }
        Err(e) => Err(labelled(caller, spec, &cx.generic, &op, e)),
    };
    done.exhaust = counted.exhaust && ended.is_ok();
    done.close = ran.loses_reply;
    let finished = account::Finished {
        caller,
        spec,
        op: &op,
        took: muniment_op::since(began).saturating_sub(op.counters.idle_time()),
        counted: &counted,
        error: failed.as_ref(),
        reply_bytes: out.len(),
    };
    account::account(&finished, local);
    ended
}
