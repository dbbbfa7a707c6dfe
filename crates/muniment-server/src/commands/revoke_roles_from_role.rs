//! `revokeRolesFromRole`.

use super::accounts::{self, Change};
use crate::audit::{self, Audits};
use crate::auth::Needs;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    audits: Some(Audits::each("revokeRolesFromRole", audit::own_roles)),
    ..accounts::command(
        "revokeRolesFromRole",
        "Has a role no longer inherit others",
        accounts::ROLES_FIELD,
        Needs::Of(|asks| accounts::may_grant(asks, "roles", Action::RevokeRole)),
        |cx| accounts::change_roles_of_role(cx, Change::Revoke),
    )
};
