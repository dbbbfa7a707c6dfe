//! `grantRolesToUser`.

use super::accounts::{self, Change};
use crate::audit::{self, Audits};
use crate::auth::Needs;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    audits: Some(Audits::each("grantRolesToUser", audit::user_granted)),
    ..accounts::command(
        "grantRolesToUser",
        "Grants roles to a user",
        accounts::ROLES_FIELD,
        Needs::Of(|asks| accounts::may_grant(asks, "roles", Action::GrantRole)),
        |cx| accounts::change_roles_of_user(cx, Change::Grant),
    )
};
