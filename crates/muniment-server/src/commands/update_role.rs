//! `updateRole`.

use super::accounts;
use crate::audit::{self, Audits};
use crate::auth::{self, Needs, ROLES};
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;
use muniment_auth::privilege::Privileges;
use muniment_auth::resource::Target;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{Error, Result, Value};

const FIELDS: &[Field] = &[
    opt("privileges", Types::ARRAY),
    opt("roles", Types::ARRAY),
    opt("authenticationRestrictions", Types::ARRAY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    audits: Some(Audits::each("updateRole", audit::role_granted)),
    ..accounts::command(
        "updateRole",
        "Changes a role",
        FIELDS,
        Needs::Of(|asks| {
            // What the role has until then is taken away, whatever it is.
            asks.may_one(Target::Database(""), Action::RevokeRole)
                && accounts::may_grant(asks, "roles", Action::GrantRole)
                && accounts::may_grant_privileges(asks, Action::GrantRole)
                && accounts::may_restrict(asks)
        }),
        run,
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let role = accounts::own_role(cx)?;
    let (roles, privileges) = (cx.args.array("roles"), cx.args.array("privileges"));
    let restrictions = cx.args.array("authenticationRestrictions");
    if roles.is_none() && privileges.is_none() && restrictions.is_none() {
        return Err(Error::bad_value(
            "Must specify at least one field to update in updateRole",
        ));
    }
    let roles = roles.is_some().then(|| accounts::named_roles(cx, &role.db));
    let roles = roles.transpose()?;
    let privileges = privileges.map(Privileges::from_array).transpose()?;
    accounts::check_privileges(
        &role,
        roles.as_deref().unwrap_or_default(),
        privileges.as_ref().unwrap_or(&Privileges::new()),
    )?;
    accounts::check_restrictions(cx)?;
    let server = cx.server;
    let _changing = server.auth.changing.lock_for(&**cx.op)?;
    let stored = accounts::stored_role(cx, &role)?;
    if let Some(roles) = &roles {
        accounts::check_roles(server, roles)?;
        accounts::check_circle(server, &role, roles)?;
    }
    let roles = roles.map(|r| accounts::to_array(&r));
    let privileges = privileges.map(|p| p.to_array());
    let mut fields = Vec::new();
    if let Some(p) = &privileges {
        fields.push(("privileges", Some(Value::Array(p.as_doc()))));
    }
    if let Some(r) = &roles {
        fields.push(("roles", Some(Value::Array(r.as_doc()))));
    }
    if let Some(list) = restrictions {
        fields.push(("authenticationRestrictions", Some(Value::Array(list))));
    }
    let new = accounts::with(stored.as_doc(), &fields);
    auth::replace(cx, ROLES, new.as_doc())
}
