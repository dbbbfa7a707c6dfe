//! `grantRolesToRole`.

use super::accounts::{self, Change};
use crate::audit::{self, Audits};
use crate::auth::Needs;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    audits: Some(Audits::each("grantRolesToRole", audit::own_roles)),
    ..accounts::command(
        "grantRolesToRole",
        "Has a role inherit others",
        accounts::ROLES_FIELD,
        Needs::Of(|asks| accounts::may_grant(asks, "roles", Action::GrantRole)),
        |cx| accounts::change_roles_of_role(cx, Change::Grant),
    )
};
