//! `revokeRolesFromUser`.

use super::accounts;
use crate::auth::{self, Needs, USERS};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, RunsOn};
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, req};
use muniment_value::{Doc, Result, Value};

const FIELDS: &[Field] = &[req("roles", Types::ARRAY)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "revokeRolesFromUser",
    doc: "Takes roles away from a user",
    kind: Kind::Admin,
    runs_on: Some(RunsOn::Primary),
    write_concern: true,
    fields: FIELDS,
    run,
    ..CommandSpec::needing(Needs::Of(|asks| {
        accounts::may_grant(asks, "roles", Action::RevokeRole)
    }))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let name = accounts::user(cx)?;
    let roles = accounts::roles(cx.args.array("roles").unwrap_or(Doc::EMPTY), &name.db)?;
    let server = cx.server;
    let _changing = server.auth.changing.lock_for(&**cx.op)?;
    let stored = accounts::stored_user(cx, &name)?;
    let stored = stored.as_doc();
    let mut all = accounts::roles_of(stored);
    all.retain(|r| !roles.contains(r));
    let all = accounts::to_array(&all);
    let user = accounts::with(stored, &[("roles", Some(Value::Array(all.as_doc())))]);
    auth::replace(cx, USERS, user.as_doc())
}
