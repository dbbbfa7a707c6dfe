//! `_mergeAuthzCollections`: what mongorestore makes users and roles with. It has written the documents of the
//! dump into collections of its own before.
//!
//! Source: the words on this command in mongorestore's source, `mongorestore/metadata.go`.

use super::accounts;
use crate::audit::Audits;
use crate::auth::{self, Asks, Needs, ROLES, USERS};
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use muniment_auth::action::{Action, Actions};
use muniment_auth::builtin;
use muniment_auth::names::{RoleName, UserName};
use muniment_auth::privilege::Privileges;
use muniment_auth::resource::Target;
use muniment_auth::restrictions::Restrictions;
use muniment_auth::scram::{Credentials, Mechanism};
use muniment_value::args::{Field, Types, opt, req};
use muniment_value::{Doc, DocBuf, Error, Result, Value, doc};
use std::collections::BTreeSet;

const FROM_USERS: &str = "tempUsersCollection";
const FROM_ROLES: &str = "tempRolesCollection";

const FIELDS: &[Field] = &[
    opt(FROM_USERS, Types::STRING),
    opt(FROM_ROLES, Types::STRING),
    req("db", Types::STRING),
    req("drop", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    admin_only: true,
    audits: Some(Audits::each("directAuthMutation", audited)),
    ..accounts::command(
        "_mergeAuthzCollections",
        "Takes users and roles over from collections that mongorestore has filled",
        FIELDS,
        Needs::Of(needs),
        run,
    )
};

/// Documents of users and roles may grant everything, so this takes the right to make any of them in every
/// database. The role `restore` has it, and cannot read the collections that it has filled.
fn needs(asks: &Asks<'_>) -> bool {
    let mut actions = Actions::of(&[
        Action::ChangeCustomData,
        Action::ChangePassword,
        Action::CreateRole,
        Action::CreateUser,
        Action::GrantRole,
        Action::RevokeRole,
        Action::SetAuthenticationRestriction,
    ]);
    if asks.request.body.get("drop").is_some_and(|v| v.truthy()) {
        actions = actions.union(Actions::of(&[Action::DropRole, Action::DropUser]));
    }
    asks.may(Target::Database(""), actions)
}

fn audited(cx: &CommandContext<'_>) -> DocBuf {
    let mut d = doc! { "ns": cx.args.str(FROM_USERS).map_or(ROLES, |_| USERS) };
    for field in [FROM_USERS, FROM_ROLES, "db"] {
        d.append_some(field, cx.args.str(field));
    }
    d.append("drop", cx.args.bool("drop", false));
    d.append("operation", cx.spec.name);
    d
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let (users, roles) = (cx.args.str(FROM_USERS), cx.args.str(FROM_ROLES));
    if users.is_none() && roles.is_none() {
        return Err(Error::bad_value(format!(
            "Must provide at least one of \"{FROM_USERS}\" and \"{FROM_ROLES}\""
        )));
    }
    let filter = match cx.args.str("db").unwrap_or_default() {
        "" => DocBuf::new(),
        db => accounts::of_db(db),
    };
    let server = cx.server;
    let _changing = server.auth.changing.lock_for(&**cx.op)?;
    let read = |from: Option<&str>, check: fn(Doc<'_>) -> Result<()>| -> Result<Option<_>> {
        let Some(from) = from else { return Ok(None) };
        if !from.starts_with("admin.") {
            return Err(Error::bad_value(format!(
                "users and roles are taken from a collection of admin, and not from {from}"
            )));
        }
        let all = auth::all(server, from, filter.as_doc())?;
        all.iter().try_for_each(|d| check(d.as_doc()))?;
        Ok(Some(all))
    };
    // Nothing is written unless all of it can be read.
    let (users, roles) = (read(users, check_user)?, read(roles, check_role)?);
    for (namespace, new) in [(USERS, users), (ROLES, roles)] {
        if let Some(new) = new {
            merge(cx, namespace, &new, filter.as_doc())?;
        }
    }
    Ok(())
}

/// Stores the documents in place of those with the same names, and with `drop` removes the others.
fn merge(
    cx: &mut CommandContext<'_>,
    namespace: &str,
    new: &[DocBuf],
    filter: Doc<'_>,
) -> Result<()> {
    let before = auth::all(cx.server, namespace, filter)?;
    let id = |d: &DocBuf| d.as_doc().get_str("_id").unwrap_or_default().to_string();
    for d in new {
        // A user who is there stays the same one, or the connection that restores users could lose its own.
        let known = before.iter().find(|old| id(old) == id(d));
        let user_id = known.and_then(|old| old.as_doc().get("userId"));
        let kept = match user_id {
            Some(user_id) => accounts::with(d.as_doc(), &[("userId", Some(user_id))]),
            None => d.clone(),
        };
        auth::replace(cx, namespace, kept.as_doc())?;
    }
    if cx.args.bool("drop", false) {
        let names: BTreeSet<String> = new.iter().map(id).collect();
        for old in before.iter().filter(|old| !names.contains(&id(old))) {
            let gone = doc! { "_id": id(old).as_str() };
            auth::remove(cx, namespace, gone.as_doc())?;
        }
    }
    Ok(())
}

/// The error for a document that cannot become a user or a role. Nothing of its content is in it.
fn unusable(d: Doc<'_>, why: &str) -> Error {
    let id = d.get("_id").unwrap_or(Value::Null).to_display();
    Error::bad_value(format!("the document {id} cannot be restored: {why}"))
}

fn check_user(d: Doc<'_>) -> Result<()> {
    let (user, db) = (d.get_str("user"), d.get_str("db"));
    let name = UserName::checked(user.unwrap_or_default(), db.unwrap_or_default())?;
    check_common(d, &name.id(), &name.db)?;
    let credentials = d.get_doc("credentials").unwrap_or(Doc::EMPTY);
    for e in credentials {
        if let (Some(mechanism), Some(stored)) =
            (Mechanism::from_name(e.name()), e.value().as_doc())
        {
            Credentials::from_doc(mechanism, stored)?;
        }
    }
    Ok(())
}

fn check_role(d: Doc<'_>) -> Result<()> {
    let (role, db) = (d.get_str("role"), d.get_str("db"));
    let name = RoleName::checked(role.unwrap_or_default(), db.unwrap_or_default())?;
    check_common(d, &name.id(), &name.db)?;
    if builtin::is_builtin(&name) {
        return Err(unusable(d, "a built-in role has this name"));
    }
    let privileges = d.get_array("privileges");
    let privileges = privileges.ok_or_else(|| unusable(d, "it has no array of privileges"))?;
    let privileges = Privileges::from_array(privileges)?;
    accounts::check_privileges(&name, &accounts::roles_of(d), &privileges)
}

/// What users and roles have in common.
fn check_common(d: Doc<'_>, id: &str, db: &str) -> Result<()> {
    if d.get_str("_id") != Some(id) {
        return Err(unusable(d, "its _id is not its name"));
    }
    let roles = d.get_array("roles");
    let roles = roles.ok_or_else(|| unusable(d, "it has no array of roles"))?;
    RoleName::from_array(roles, db)?;
    if let Some(list) = d.get_array("authenticationRestrictions") {
        Restrictions::parse(list)?;
    }
    Ok(())
}
