//! `getLog`.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Routed};
use muniment_auth::action::Action;
use muniment_value::args::Types;
use muniment_value::{ArrayBuf, Error, array};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "getLog",
    doc: "The newest lines of the log, or the warnings of the start",
    admin_only: true,
    run: |cx| {
        let name = cx.typed_target(Types::STRING)?;
        let name = name.as_str().unwrap_or_default();
        if name == "*" {
            cx.reply.field("names", array!["global", "startupWarnings"]);
            return Ok(());
        }
        let (lines, total) = cx.server.log.kept(name).ok_or_else(|| {
            Error::new(
                muniment_value::Code::OperationFailed,
                format!("No log named '{name}'"),
            )
        })?;
        cx.reply.field("totalLinesWritten", total as i64);
        cx.reply.field("log", lines.iter().collect::<ArrayBuf>());
        Ok(())
    },
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::GetLog]))
};
