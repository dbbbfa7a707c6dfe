//! `dropAllUsersFromDatabase`.

use super::accounts;
use crate::audit::{self, Audits};
use crate::auth::{self, Needs, USERS};
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    audits: Some(Audits::each(
        "dropAllUsersFromDatabase",
        audit::all_of_database,
    )),
    ..accounts::command(
        "dropAllUsersFromDatabase",
        "Removes all users of the database",
        &[],
        Needs::database(&[Action::DropUser]),
        run,
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let server = cx.server;
    let _changing = server.auth.changing.lock_for(&**cx.op)?;
    let filter = accounts::of_db(cx.db());
    let n = auth::remove(cx, USERS, filter.as_doc())?;
    cx.reply.field("n", n as i32);
    Ok(())
}
