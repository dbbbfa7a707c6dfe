//! `saslContinue`.

use super::sasl_start::payload;
use crate::auth::{self, Needs};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, Secret};
use muniment_value::Result;
use muniment_value::args::{Field, Types, req};

const FIELDS: &[Field] = &[
    req("conversationId", Types::NUMBER),
    req("payload", Types::BINARY.or(Types::STRING)),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "saslContinue",
    doc: "Goes on to log a user in",
    kind: Kind::Admin,
    api_v1: true,
    secret: Secret::Always,
    fields: FIELDS,
    run,
    ..CommandSpec::new(Routed::Here, Needs::Nothing)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let id = cx
        .args
        .int("conversationId", i64::MIN, i64::MAX)?
        .unwrap_or_default();
    let payload = payload(cx.args.get("payload"))?;
    let reply = auth::go_on(cx.server, cx.conn, cx.local, id, &payload)?;
    cx.reply.elements(reply.as_doc());
    Ok(())
}
