//! `createRole`.

use super::accounts;
use crate::audit::{self, Audits};
use crate::auth::{self, Needs, ROLES};
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;
use muniment_auth::builtin;
use muniment_auth::names::RoleName;
use muniment_auth::resource::Target;
use muniment_value::args::{Field, Types, opt, req};
use muniment_value::{DocBuf, Error, Result, Value};

const FIELDS: &[Field] = &[
    req("privileges", Types::ARRAY),
    req("roles", Types::ARRAY),
    opt("authenticationRestrictions", Types::ARRAY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    audits: Some(Audits::each("createRole", audit::role_granted)),
    ..accounts::command(
        "createRole",
        "Creates a role",
        FIELDS,
        Needs::Of(|asks| {
            asks.may_one(Target::Database(asks.request.db), Action::CreateRole)
                && accounts::may_grant(asks, "roles", Action::GrantRole)
                && accounts::may_grant_privileges(asks, Action::GrantRole)
                && accounts::may_restrict(asks)
        }),
        run,
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let role = RoleName {
        role: accounts::named(cx)?.to_string(),
        db: cx.db().to_string(),
    };
    match role.db.as_str() {
        "local" => {
            return Err(Error::bad_value(
                "Cannot create roles in the local database",
            ));
        }
        accounts::EXTERNAL => {
            return Err(Error::bad_value(
                "Cannot create roles in the $external database",
            ));
        }
        _ => {}
    }
    if builtin::is_builtin(&role) {
        return Err(Error::bad_value(format!(
            "Cannot create roles in the {} db with the same name as a built-in role",
            role.db
        )));
    }
    let roles = accounts::named_roles(cx, &role.db)?;
    let privileges = accounts::named_privileges(cx)?;
    accounts::check_privileges(&role, &roles, &privileges)?;
    accounts::check_restrictions(cx)?;
    let server = cx.server;
    let _changing = server.auth.changing.lock_for(&**cx.op)?;
    accounts::check_roles(server, &roles)?;
    if auth::find(server, ROLES, &role.id())?.is_some() {
        return Err(Error::location(
            51002,
            format!("Role \"{}@{}\" already exists", role.role, role.db),
        ));
    }
    let mut d = DocBuf::new();
    d.append("_id", role.id().as_str());
    d.append("role", role.role.as_str());
    d.append("db", role.db.as_str());
    d.append("privileges", privileges.to_array());
    d.append("roles", accounts::to_array(&roles));
    if let Some(list) = cx.args.array("authenticationRestrictions") {
        d.append("authenticationRestrictions", Value::Array(list));
    }
    auth::replace(cx, ROLES, d.as_doc())
}
