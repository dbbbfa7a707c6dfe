//! `connectionStatus`.

use super::accounts;
use crate::auth::Needs;
use crate::registry::{CommandSpec, Routed};
use muniment_value::args::{Types, opt};
use muniment_value::{ArrayBuf, Value, array, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "connectionStatus",
    doc: "Which user has logged in on the connection",
    fields: &[opt("showPrivileges", Types::SAFE_BOOL)],
    run: |cx| {
        let user = cx.local.user.as_ref();
        let users = user.map_or(array![], |u| array![u.name.to_doc()]);
        let roles = user.map_or_else(ArrayBuf::new, |u| accounts::to_array(&u.all_roles));
        let mut info = doc! {
            "authenticatedUsers": users,
            "authenticatedUserRoles": roles,
        };
        if cx.args.bool("showPrivileges", false) {
            let all = user.map_or_else(ArrayBuf::new, |u| u.privileges.to_array());
            info.append("authenticatedUserPrivileges", all);
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
    ..CommandSpec::new(Routed::Here, Needs::Nothing)
};
