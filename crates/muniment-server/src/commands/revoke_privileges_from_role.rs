//! `revokePrivilegesFromRole`.

use super::accounts::{self, Change};
use crate::audit::{self, Audits};
use crate::auth::Needs;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    audits: Some(Audits::each(
        "revokePrivilegesFromRole",
        audit::own_privileges,
    )),
    ..accounts::command(
        "revokePrivilegesFromRole",
        "Has a role allow less",
        accounts::PRIVILEGES_FIELD,
        Needs::Of(|asks| accounts::may_grant_privileges(asks, Action::RevokeRole)),
        |cx| accounts::change_privileges(cx, Change::Revoke),
    )
};
