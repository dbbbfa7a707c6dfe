//! `connectionStatus`.

use crate::registry::{Access, CommandSpec};
use muniment_value::args::{Types, opt};
use muniment_value::{Value, array, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "connectionStatus",
    doc: "Which users are authenticated on the connection",
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
        let uuid = cx.conn.uuid.get_or_init(super::random_uuid);
        cx.reply.field(
            "uuid",
            Value::Binary {
                subtype: 4,
                bytes: uuid,
            },
        );
        Ok(())
    },
    ..CommandSpec::DEFAULT
};
