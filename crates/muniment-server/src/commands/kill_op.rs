//! `killOp`.

use crate::args::{Types, req};
use crate::registry::{CommandSpec, Kind};
use muniment_value::{Error, number};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "killOp",
    doc: "Interrupts an operation",
    open_fields: true,
    kind: Kind::Admin,
    admin_only: true,
    fields: &[req("op", Types::NUMBER)],
    run: |cx| {
        let id = cx.args.get("op").and_then(number::to_i64_exact);
        let id = id.and_then(|n| u32::try_from(n).ok()).ok_or_else(|| {
            Error::bad_value("invalid op: must be the number of an operation".to_string())
        })?;
        cx.engine().operations.kill(id);
        cx.reply.field("info", "attempting to kill op");
        Ok(())
    },
    ..CommandSpec::DEFAULT
};
