//! `shutdown`.

use crate::args::{Field, Types, opt};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind};
use muniment_value::{Code, Error, Result};

const FIELDS: &[Field] = &[
    opt("force", Types::SAFE_BOOL),
    opt("timeoutSecs", Types::NUMBER),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "shutdown",
    doc: "Ends the server in order",
    kind: Kind::Admin,
    admin_only: true,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    cx.args.int("timeoutSecs", 0, i64::from(i32::MAX))?;
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
    if !cx.args.bool("force", false) {
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
    cx.server.request_stop("shutdown command");
    Ok(())
}
