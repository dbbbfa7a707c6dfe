//! `rolesInfo`.

use super::accounts;
use crate::auth::{self, Asks, Needs, ROLES};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Routed};
use muniment_auth::action::Action;
use muniment_auth::builtin;
use muniment_auth::names::RoleName;
use muniment_auth::resource::Target;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{ArrayBuf, Doc, DocBuf, Error, Result, Value};

const FIELDS: &[Field] = &[
    opt("showPrivileges", Types::ANY),
    opt("showBuiltinRoles", Types::SAFE_BOOL),
    opt("showAuthenticationRestrictions", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "rolesInfo",
    doc: "The roles of a database, and what they allow",
    fields: FIELDS,
    run,
    ..CommandSpec::new(Routed::Config, Needs::Of(needs))
};

/// A user may see the own roles without more.
fn needs(asks: &Asks<'_>) -> bool {
    let one = |v: Value<'_>| match RoleName::from_value(v, asks.request.db) {
        Ok(role) => {
            asks.user.all_roles.contains(&role)
                || asks.may_one(Target::Database(&role.db), Action::ViewRole)
        }
        Err(_) => true,
    };
    match asks.target() {
        Value::Array(list) => list.values().all(one),
        v @ (Value::Document(_) | Value::String(_)) => one(v),
        _ => asks.may_one(Target::Database(asks.request.db), Action::ViewRole),
    }
}

/// The roles that the command asks for.
fn asked(cx: &CommandContext<'_>) -> Result<Vec<RoleName>> {
    let one = |v: Value<'_>| RoleName::from_value(v, cx.db());
    match cx.target() {
        v @ (Value::Document(_) | Value::String(_)) => Ok(vec![one(v)?]),
        Value::Array(list) => list.values().map(one).collect(),
        v if v.is_number() => {
            let mut all = Vec::new();
            if cx.args.bool("showBuiltinRoles", false) {
                all.extend(
                    builtin::builtin_names(cx.db()).map(|name| RoleName::new(name, cx.db())),
                );
            }
            for stored in auth::all(cx.server, ROLES, accounts::of_db(cx.db()).as_doc())? {
                all.push(RoleName {
                    role: stored
                        .as_doc()
                        .get_str("role")
                        .unwrap_or_default()
                        .to_string(),
                    db: cx.db().to_string(),
                });
            }
            all.sort();
            Ok(all)
        }
        v => Err(Error::bad_value(format!(
            "User and role names must be either strings or objects, but rolesInfo got {}",
            v.type_name()
        ))),
    }
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let privileges = match cx.args.get("showPrivileges") {
        None => false,
        Some(Value::String("asUserFragment")) => return fragment(cx),
        Some(Value::String(other)) => {
            return Err(Error::failed_to_parse(format!(
                "Failed to parse 'showPrivileges'. 'asUserFragment' is the only value that is no \
                 boolean, not '{other}'"
            )));
        }
        Some(v) => v.truthy(),
    };
    let mut roles = ArrayBuf::new();
    for role in asked(cx)? {
        if let Some(d) = shown(cx, &role, privileges)? {
            roles.push(d);
        }
    }
    cx.reply.field("roles", roles);
    Ok(())
}

/// Answers with what a user who has these roles may do.
fn fragment(cx: &mut CommandContext<'_>) -> Result<()> {
    let roles = asked(cx)?;
    let granted = auth::privileges_of(cx.server, &roles)?;
    let all: Vec<_> = granted.roles.into_iter().collect();
    let mut d = DocBuf::new();
    d.append("roles", accounts::to_array(&roles));
    d.append("inheritedRoles", accounts::to_array(&all));
    d.append("inheritedPrivileges", granted.privileges.to_array());
    cx.reply.field("userFragment", d);
    Ok(())
}

/// A role as the command shows it; `None` if there is none.
fn shown(cx: &CommandContext<'_>, role: &RoleName, privileges: bool) -> Result<Option<DocBuf>> {
    let built_in = builtin::privileges_of(role);
    let stored = match built_in {
        Some(_) => None,
        None => match auth::find(cx.server, ROLES, &role.id())? {
            None => return Ok(None),
            found => found,
        },
    };
    let stored = stored.as_ref().map_or(Doc::EMPTY, |d| d.as_doc());
    let parents = accounts::roles_of(stored);
    let granted = auth::privileges_of(cx.server, &parents)?;
    let inherited: Vec<_> = granted.roles.iter().cloned().collect();
    let mut d = DocBuf::new();
    d.append("_id", role.id().as_str());
    d.append("role", role.role.as_str());
    d.append("db", role.db.as_str());
    d.append("roles", accounts::to_array(&parents));
    if cx.args.bool("showAuthenticationRestrictions", false) {
        let own = stored
            .get_array("authenticationRestrictions")
            .unwrap_or(Doc::EMPTY);
        d.append("authenticationRestrictions", Value::Array(own));
    }
    d.append("inheritedRoles", accounts::to_array(&inherited));
    d.append("isBuiltin", built_in.is_some());
    if privileges {
        let own = match &built_in {
            Some(own) => own.clone(),
            None => accounts::stored_privileges(stored)?,
        };
        let mut all = own.clone();
        all.merge(&granted.privileges);
        d.append("privileges", own.to_array());
        d.append("inheritedPrivileges", all.to_array());
    }
    Ok(Some(d))
}
