//! `revokeRolesFromUser`.

use super::accounts::{self, Change};
use crate::audit::{self, Audits};
use crate::auth::Needs;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    audits: Some(Audits::each("revokeRolesFromUser", audit::user_granted)),
    ..accounts::command(
        "revokeRolesFromUser",
        "Takes roles away from a user",
        accounts::ROLES_FIELD,
        Needs::Of(|asks| accounts::may_grant(asks, "roles", Action::RevokeRole)),
        |cx| accounts::change_roles_of_user(cx, Change::Revoke),
    )
};
