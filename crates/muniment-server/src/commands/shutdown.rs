//! `shutdown`.

use crate::audit;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::parameters::SHUTDOWN_PATIENCE_SECS;
use crate::registry::{CommandSpec, Kind, Routed};
use crate::signals;
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{Code, Error, Result};
use std::time::Duration;

const FIELDS: &[Field] = &[
    opt("force", Types::SAFE_BOOL),
    opt("timeoutSecs", Types::NUMBER),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "shutdown",
    doc: "Ends the server in order; a primary lets another member lead first",
    kind: Kind::Admin,
    admin_only: true,
    fields: FIELDS,
    run,
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::Shutdown]))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let patience = cx.args.int("timeoutSecs", 0, i64::from(i32::MAX))?;
    let patience = Duration::from_secs(patience.unwrap_or(SHUTDOWN_PATIENCE_SECS) as u64);
    let peer = &cx.conn.peer;
    let local = peer.is_empty()
        || peer
            .parse::<std::net::SocketAddr>()
            .is_ok_and(|a| a.ip().is_loopback());
    if !local {
        return Err(Error::new(
            Code::Unauthorized,
            "shutdown must run from localhost when running db without auth",
        ));
    }
    let force = cx.args.bool("force", false);
    if !force {
        let running = cx.engine().operations.list();
        let builds = running.iter().filter(|o| o.command() == "createIndexes");
        let builds = builds.count();
        if builds > 0 {
            return Err(Error::new(
                Code::ConflictingOperationInProgress,
                format!("Index builds in progress - {builds}; shut down with force: true"),
            ));
        }
    }
    if let Some(set) = &cx.server.replica_set {
        match set.hand_over(patience, force, &**cx.op) {
            Err(e) if force => signals::no_successor(&cx.server.log, "shutdown command", &e),
            other => other?,
        }
    }
    match audit::ends(cx) {
        Err(e) if !force => return Err(e),
        _ => {}
    }
    cx.server.lifecycle.request_stop("shutdown command");
    Ok(())
}
