//! `authenticate`.

use crate::auth::{self, EXTERNAL, MONGODB_X509, Needs};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_value::args::{Field, Types, opt};
use muniment_value::{Code, Error, Result};

const FIELDS: &[Field] = &[opt("mechanism", Types::STRING), opt("user", Types::STRING)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "authenticate",
    doc: "Logs a user in by the certificate that the client has shown",
    kind: Kind::Admin,
    api_v1: true,
    fields: FIELDS,
    run,
    ..CommandSpec::new(Routed::Here, Needs::Nothing)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let mechanism = cx.args.str("mechanism").unwrap_or_default();
    if mechanism != MONGODB_X509 {
        return Err(Error::new(
            Code::MechanismUnavailable,
            format!(
                "authenticate: the mechanism has to be {MONGODB_X509}, not '{mechanism}'; passwords go by \
                 saslStart"
            ),
        ));
    }
    if cx.db() != EXTERNAL {
        return Err(Error::bad_value(format!(
            "X.509 authentication must always use the {EXTERNAL} database."
        )));
    }
    let reply = auth::by_certificate(
        cx.server,
        cx.conn,
        cx.local,
        &**cx.op,
        cx.args.str("user"),
        true,
    )?;
    cx.reply.elements(reply.as_doc());
    Ok(())
}
