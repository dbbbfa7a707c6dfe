//! `dropUser`.

use super::accounts;
use crate::auth::{self, Needs, USERS};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, RunsOn};
use muniment_auth::action::Action;
use muniment_value::{Code, Error, Result, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "dropUser",
    doc: "Removes a user",
    kind: Kind::Admin,
    runs_on: Some(RunsOn::Primary),
    write_concern: true,
    run,
    ..CommandSpec::needing(Needs::database(&[Action::DropUser]))
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
