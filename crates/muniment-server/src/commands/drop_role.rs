//! `dropRole`.

use super::accounts;
use crate::audit::{self, Audits};
use crate::auth::{self, Needs, ROLES};
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;
use muniment_value::{Result, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    audits: Some(Audits::each("dropRole", audit::role)),
    ..accounts::command(
        "dropRole",
        "Removes a role, also from those that have it",
        &[],
        Needs::database(&[Action::DropRole]),
        run,
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let role = accounts::own_role(cx)?;
    let server = cx.server;
    let _changing = server.auth.changing.lock_for(&**cx.op)?;
    accounts::stored_role(cx, &role)?;
    // If this is cut off, the role still exists, and can be dropped again.
    accounts::take_roles_away(cx, std::slice::from_ref(&role))?;
    let filter = doc! { "_id": role.id() };
    auth::remove(cx, ROLES, filter.as_doc())?;
    Ok(())
}
