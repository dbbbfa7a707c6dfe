//! `usersInfo`.

use crate::registry::CommandSpec;
use muniment_value::args::{Field, Types, opt};
use muniment_value::array;

const FIELDS: &[Field] = &[
    opt("showCredentials", Types::SAFE_BOOL),
    opt("showCustomData", Types::SAFE_BOOL),
    opt("showPrivileges", Types::SAFE_BOOL),
    opt("showAuthenticationRestrictions", Types::SAFE_BOOL),
    opt("filter", Types::OBJECT),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "usersInfo",
    doc: "The users; there are none",
    fields: FIELDS,
    run: |cx| {
        cx.reply.field("users", array![]);
        Ok(())
    },
    ..CommandSpec::DEFAULT
};
