//! `grantPrivilegesToRole`.

use super::accounts::{self, Change};
use crate::audit::{self, Audits};
use crate::auth::Needs;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    audits: Some(Audits::each("grantPrivilegesToRole", audit::own_privileges)),
    ..accounts::command(
        "grantPrivilegesToRole",
        "Has a role allow more",
        accounts::PRIVILEGES_FIELD,
        Needs::Of(|asks| accounts::may_grant_privileges(asks, Action::GrantRole)),
        |cx| accounts::change_privileges(cx, Change::Grant),
    )
};
