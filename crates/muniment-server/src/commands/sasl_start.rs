//! `saslStart`.

use crate::auth::{self, Begin, Needs};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, Secret};
use muniment_value::args::{Args, Field, Types, idle, opt, req};
use muniment_value::{Error, Result, Value};

const FIELDS: &[Field] = &[
    req("mechanism", Types::STRING),
    req("payload", Types::BINARY.or(Types::STRING)),
    opt("options", Types::OBJECT),
    idle(
        "autoAuthorize",
        Types::ANY,
        "an old hint; the user is always authorized",
    ),
    idle("db", Types::STRING, "the command's own database counts"),
];

const OPTIONS: &[Field] = &[opt("skipEmptyExchange", Types::BOOL)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "saslStart",
    doc: "Begins to log a user in",
    kind: Kind::Admin,
    api_v1: true,
    secret: Secret::Always,
    fields: FIELDS,
    run,
    ..CommandSpec::new(Routed::Here, Needs::Nothing)
};

/// The bytes of a payload.
///
/// # Errors
/// 2 BadValue for text that is no base64.
pub(super) fn payload(v: Option<Value<'_>>) -> Result<Vec<u8>> {
    use base64::Engine;
    match v {
        Some(Value::Binary { bytes, .. }) => Ok(bytes.to_vec()),
        Some(Value::String(text)) => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_err(|_| Error::bad_value("the payload is no base64")),
        _ => Ok(Vec::new()),
    }
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let options = cx.args.doc("options");
    let options = options
        .map(|d| Args::parse("saslStart.options", OPTIONS, d))
        .transpose()?;
    let payload = payload(cx.args.get("payload"))?;
    let begin = Begin {
        db: cx.db(),
        mechanism: cx.args.str("mechanism").unwrap_or_default(),
        payload: &payload,
        skips_empty: options.is_some_and(|o| o.bool("skipEmptyExchange", false)),
        speculative: false,
    };
    let reply = auth::start(cx.server, cx.conn, cx.local, &**cx.op, &begin)?;
    cx.reply.elements(reply.as_doc());
    Ok(())
}
