//! `grantPrivilegesToRole`.

use super::accounts;
use crate::auth::{self, Needs, ROLES};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, RunsOn};
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, req};
use muniment_value::{Doc, Result, Value};

const FIELDS: &[Field] = &[req("privileges", Types::ARRAY)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "grantPrivilegesToRole",
    doc: "Has a role allow more",
    kind: Kind::Admin,
    runs_on: Some(RunsOn::Primary),
    write_concern: true,
    fields: FIELDS,
    run,
    ..CommandSpec::needing(Needs::Of(|asks| {
        accounts::may_grant_privileges(asks, Action::GrantRole)
    }))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let role = accounts::own_role(cx)?;
    let privileges = accounts::privileges(cx.args.array("privileges").unwrap_or(Doc::EMPTY))?;
    accounts::check_privileges(&role, &[], &privileges)?;
    let server = cx.server;
    let _changing = server.auth.changing.lock_for(&**cx.op)?;
    let stored = accounts::stored_role(cx, &role)?;
    let stored = stored.as_doc();
    let mut all = accounts::stored_privileges(stored)?;
    for one in privileges {
        all.add(one);
    }
    let all = all.to_array();
    let new = accounts::with(stored, &[("privileges", Some(Value::Array(all.as_doc())))]);
    auth::replace(cx, ROLES, new.as_doc())
}
