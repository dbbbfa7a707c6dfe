//! `dropAllRolesFromDatabase`.

use super::accounts;
use crate::audit::{self, Audits};
use crate::auth::{self, Needs, ROLES};
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;
use muniment_auth::names::RoleName;
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    audits: Some(Audits::each(
        "dropAllRolesFromDatabase",
        audit::all_of_database,
    )),
    ..accounts::command(
        "dropAllRolesFromDatabase",
        "Removes all roles that users have made in the database",
        &[],
        Needs::database(&[Action::DropRole]),
        run,
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let filter = accounts::of_db(cx.db());
    let server = cx.server;
    let _changing = server.auth.changing.lock_for(&**cx.op)?;
    let all = auth::all(server, ROLES, filter.as_doc())?;
    let gone: Vec<_> = all
        .iter()
        .filter_map(|d| {
            Some(RoleName {
                role: d.as_doc().get_str("role")?.to_string(),
                db: d.as_doc().get_str("db")?.to_string(),
            })
        })
        .collect();
    accounts::take_roles_away(cx, &gone)?;
    let n = auth::remove(cx, ROLES, filter.as_doc())?;
    cx.reply.field("n", n as i32);
    Ok(())
}
