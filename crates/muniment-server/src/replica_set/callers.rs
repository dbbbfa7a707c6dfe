//! What a connection may do whose caller has not proven that it is a member of the set.

use super::named_set;
use crate::audit::Login;
use crate::auth::{self, Needs};
use crate::connections::ConnShared;
use crate::context::{CommandContext, ConnLocal};
use crate::registry::CommandSpec;
use crate::state::ServerState;
use muniment_logger::Severity;
use muniment_member::{LONGEST_NAME, NEAR, Proof, Seen, Spot, answer_proof};
use muniment_value::{Code, Error, Result, doc};

/// Answers `_replSetProve`.
///
/// # Errors
/// 18 if the caller does not know a key, or one side has none; 76 without `--replSet`; 93 for another
/// set.
pub fn answer(cx: &mut CommandContext<'_>) -> Result<()> {
    let body = cx.request.body;
    let name = cx.target().as_str().unwrap_or_default();
    let set = named_set(cx.server, name)?;
    // After any failure the caller has to begin again with another connection.
    let before = std::mem::replace(&mut cx.local.proof, Proof::Failed);
    let tls = cx.conn.stream.tls();
    let seen = Seen {
        shown: tls.and_then(|s| s.certificate()),
        channel: tls.and_then(|s| s.binding()),
    };
    let answered = answer_proof(set, body, before, seen);
    let (proof, reply) = answered.inspect_err(|e| {
        tell(cx.server, cx.conn, body.get_str("from"), e);
        audit(cx, Some(e));
    })?;
    cx.local.proof = proof;
    if matches!(cx.local.proof, Proof::Given) {
        audit(cx, None);
    }
    cx.reply.elements(reply.as_doc());
    let address = &cx.server.address;
    let socket = address.socket.as_deref();
    // A caller that has yet to prove itself is told nothing.
    if let Some(socket) = socket.filter(|_| !matches!(cx.local.proof, Proof::Challenged(_)))
        && let Some(spot) = Spot::new(socket, address.port, cx.server.topology.process)
    {
        cx.reply.field(NEAR, spot.to_doc().as_doc());
    }
    Ok(())
}

/// Notes in the audit log that a member has proven itself, or has failed to. The set has to go on even if that
/// cannot be written, so an error is only in the server's log.
fn audit(cx: &CommandContext<'_>, error: Option<&Error>) {
    let login = Login {
        user: "__system",
        db: "local",
        mechanism: match cx.request.body.get("x509") {
            Some(_) => "x509",
            None => "keyFile",
        },
    };
    if let Some(audit) = &cx.server.audit {
        let _ = audit.authenticated(&auth::who(cx.conn, cx.local), &login, error);
    }
}

/// Whether the command may come on the connection.
///
/// # Errors
/// 13 for a command of members if there is a key, and the caller has not proven that it knows it.
pub fn check(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    spec: &CommandSpec,
) -> Result<()> {
    if !matches!(spec.needs, Needs::Member)
        || !server.trust.is_asked()
        || matches!(local.proof, Proof::Given)
    {
        return Ok(());
    }
    local.proof = Proof::Failed;
    let e = Error::new(
        Code::Unauthorized,
        format!(
            "{} is for members of the replica set, which know its key",
            spec.name
        ),
    );
    tell(server, conn, None, &e);
    Err(e)
}

fn tell(server: &ServerState, conn: &ConnShared, from: Option<&str>, e: &Error) {
    let mut attr = doc! { "remote": &*conn.peer };
    attr.append_some("from", from.filter(|from| from.len() <= LONGEST_NAME));
    attr.append("error", server.log.error(e));
    server.log.log(
        Severity::Info,
        "ACCESS",
        5_286_307,
        &format!("conn{}", conn.id),
        "Failed to authenticate",
        Some(&attr),
    );
}
