//! `dropUser`.

use super::accounts;
use crate::audit::{self, Audits};
use crate::auth::{self, Needs, USERS};
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;
use muniment_value::{Code, Error, Result, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    audits: Some(Audits::each("dropUser", audit::user)),
    ..accounts::command(
        "dropUser",
        "Removes a user",
        &[],
        Needs::database(&[Action::DropUser]),
        run,
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let server = cx.server;
    let _changing = server.auth.changing.lock_for(&**cx.op)?;
    let name = accounts::user(cx)?;
    let filter = doc! { "_id": name.id() };
    match auth::remove(cx, USERS, filter.as_doc())? {
        0 => Err(Error::new(
            Code::UserNotFound,
            format!("User '{}@{}' not found", name.user, name.db),
        )),
        _ => Ok(()),
    }
}
