//! `getMore`.

use crate::args::{Field, Types, idle, opt, req};
use crate::context::CommandContext;
use crate::metrics::OpKind;
use crate::namespace;
use crate::registry::{CommandSpec, Kind};
use muniment_exec::GetMoreRequest;
use muniment_value::{Error, Result, Value};

const FIELDS: &[Field] = &[
    req("collection", Types::STRING),
    opt("batchSize", Types::NUMBER),
    idle("term", Types::LONG, "internal clients only"),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "getMore",
    doc: "The next batch of a cursor",
    kind: Kind::Read,
    op: OpKind::GetMore,
    api_v1: true,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let id = match cx.target() {
        Value::Int64(id) => id,
        v => {
            return Err(Error::type_mismatch(format!(
                "BSON field 'getMore.getMore' is the wrong type '{}', expected type 'long'",
                v.type_name()
            )));
        }
    };
    let collection = cx.args.str("collection").unwrap_or_default();
    namespace::check_collection(cx.db(), collection)?;
    let ns = format!("{}.{collection}", cx.db());
    let request = GetMoreRequest {
        id,
        namespace: &ns,
        batch_size: match cx.args.int("batchSize", 0, i64::MAX)? {
            Some(0) => {
                return Err(Error::bad_value(
                    "Batch size for getMore must be positive, but received: 0",
                ));
            }
            Some(n) => Some(n as usize),
            None => None,
        },
        owner: cx.cursor_owner(),
        await_time: cx.generic.max_time,
    };
    let next = cx
        .engine()
        .get_more(cx.op, &request, cx.reply.buffer())?;
    cx.exhaust = next != 0 && cx.request.exhaust_allowed;
    Ok(())
}
