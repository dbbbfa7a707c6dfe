//! `connectionStatus`.

use crate::args::{Types, opt};
use crate::registry::{Access, CommandSpec};
use muniment_value::{array, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "connectionStatus",
    doc: "Who is authenticated on the connection",
    access: Access::Anyone,
    fields: &[opt("showPrivileges", Types::SAFE_BOOL)],
    run: |cx| {
        let mut info = doc! {
            "authenticatedUsers": array![],
            "authenticatedUserRoles": array![],
        };
        if cx.args.bool("showPrivileges", false) {
            info.append("authenticatedUserPrivileges", array![]);
        }
        cx.reply.field("authInfo", info);
        Ok(())
    },
    ..CommandSpec::DEFAULT
};
