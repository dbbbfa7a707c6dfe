//! The shared parts of the commands on users and roles.

use crate::auth::{self, Asks, Needs, ROLES, USERS};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn};
use crate::state::ServerState;
use muniment_auth::action::Action;
use muniment_auth::builtin;
use muniment_auth::names::{RoleName, UserName};
use muniment_auth::privilege::{Privilege, Privileges};
use muniment_auth::resource::Target;
use muniment_auth::restrictions::Restrictions;
use muniment_auth::scram::{Credentials, Mechanism};
use muniment_value::args::{Field, Types, req};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc};

/// The database of users that some other service knows.
pub(super) use crate::auth::EXTERNAL;

/// The name that the command's first element gives.
///
/// # Errors
/// 14 TypeMismatch; 2 BadValue for an empty name or one with a NUL byte.
pub(super) fn named<'a>(cx: &CommandContext<'a>) -> Result<&'a str> {
    let name = match cx.typed_target(Types::STRING)? {
        Value::String(name) => name,
        _ => "",
    };
    let what = if cx.spec.name.contains("User") {
        "User"
    } else {
        "Role"
    };
    match name {
        "" => Err(Error::bad_value(format!("{what} name must be non-empty"))),
        name if name.contains('\0') => Err(Error::bad_value(format!(
            "{what} name must not contain a NUL byte"
        ))),
        name => Ok(name),
    }
}

/// The user that the command names.
///
/// # Errors
/// As [`named`].
pub(super) fn user(cx: &CommandContext<'_>) -> Result<UserName> {
    Ok(UserName {
        user: named(cx)?.to_string(),
        db: cx.db().to_string(),
    })
}

/// The role that the command names, which must not be built in.
///
/// # Errors
/// As [`named`]; 49 InvalidRoleModification.
pub(super) fn own_role(cx: &CommandContext<'_>) -> Result<RoleName> {
    let role = RoleName {
        role: named(cx)?.to_string(),
        db: cx.db().to_string(),
    };
    match builtin::is_builtin(&role) {
        true => Err(Error::new(
            Code::InvalidRoleModification,
            format!("{} is a built-in role and cannot be modified", role.id()),
        )),
        false => Ok(role),
    }
}

/// The roles that the command's field `roles` names, each a name in `db` or `{role, db}`.
///
/// # Errors
/// 2 BadValue, 14 TypeMismatch.
pub(super) fn named_roles(cx: &CommandContext<'_>, db: &str) -> Result<Vec<RoleName>> {
    RoleName::from_array(cx.args.array("roles").unwrap_or(Doc::EMPTY), db)
}

/// The privileges that the command's field `privileges` describes.
///
/// # Errors
/// Those of a privilege that cannot be read.
pub(super) fn named_privileges(cx: &CommandContext<'_>) -> Result<Privileges> {
    Privileges::from_array(cx.args.array("privileges").unwrap_or(Doc::EMPTY))
}

/// Refuses roles that do not exist.
///
/// # Errors
/// 31 RoleNotFound.
pub(super) fn check_roles(server: &ServerState, roles: &[RoleName]) -> Result<()> {
    for role in roles {
        if !builtin::is_builtin(role) && auth::find(server, ROLES, &role.id())?.is_none() {
            return Err(Error::new(
                Code::RoleNotFound,
                format!("Could not find role: {}@{}", role.role, role.db),
            ));
        }
    }
    Ok(())
}

/// Roles as a stored document has them.
pub(super) fn to_array(roles: &[RoleName]) -> ArrayBuf {
    roles.iter().map(RoleName::to_doc).collect()
}

/// The roles of a stored document.
pub(super) fn roles_of(stored: Doc<'_>) -> Vec<RoleName> {
    let db = stored.get_str("db").unwrap_or_default();
    let list = stored.get_array("roles").unwrap_or(Doc::EMPTY);
    RoleName::from_array(list, db).unwrap_or_default()
}

/// A stored document with other values of some fields, in their places or at the end. `None` takes a field
/// away.
pub(super) fn with(stored: Doc<'_>, fields: &[(&str, Option<Value<'_>>)]) -> DocBuf {
    let mut new = DocBuf::new();
    for e in stored {
        match fields.iter().find(|(name, _)| *name == e.name()) {
            Some((name, Some(v))) => {
                new.append(name, *v);
            }
            Some((_, None)) => {}
            None => {
                new.append_elem(e);
            }
        }
    }
    for (name, v) in fields {
        if let Some(v) = v
            && stored.get(name).is_none()
        {
            new.append(name, *v);
        }
    }
    new
}

/// The stored user.
///
/// # Errors
/// 11 UserNotFound.
pub(super) fn stored_user(cx: &CommandContext<'_>, name: &UserName) -> Result<DocBuf> {
    auth::find(cx.server, USERS, &name.id())?.ok_or_else(|| {
        Error::new(
            Code::UserNotFound,
            format!(
                "Could not find user \"{}\" for db \"{}\"",
                name.user, name.db
            ),
        )
    })
}

/// The stored role.
///
/// # Errors
/// 31 RoleNotFound.
pub(super) fn stored_role(cx: &CommandContext<'_>, name: &RoleName) -> Result<DocBuf> {
    auth::find(cx.server, ROLES, &name.id())?.ok_or_else(|| {
        Error::new(
            Code::RoleNotFound,
            format!("No role named {}@{}", name.role, name.db),
        )
    })
}

/// Refuses `authenticationRestrictions` that cannot be read.
///
/// # Errors
/// Those of [`Restrictions::parse`].
pub(super) fn check_restrictions(cx: &CommandContext<'_>) -> Result<()> {
    match cx.args.array("authenticationRestrictions") {
        Some(list) => Restrictions::parse(list).map(|_| ()),
        None => Ok(()),
    }
}

/// The mechanisms that the command names; all of them if it names none.
///
/// # Errors
/// 2 BadValue.
pub(super) fn mechanisms(cx: &CommandContext<'_>) -> Result<Vec<Mechanism>> {
    let Some(list) = cx.args.array("mechanisms") else {
        return Ok(vec![Mechanism::Sha1, Mechanism::Sha256]);
    };
    let mechanism = |v: Value<'_>| {
        v.as_str()
            .and_then(Mechanism::from_name)
            .ok_or_else(|| Error::bad_value(format!("Unknown auth mechanism {}", v.to_display())))
    };
    let all: Vec<_> = list.values().map(mechanism).collect::<Result<_>>()?;
    match all.is_empty() {
        true => Err(Error::bad_value("mechanisms field must not be empty")),
        false => Ok(all),
    }
}

/// The credentials that a user with this password has.
///
/// # Errors
/// 2 BadValue; 50687 for an empty password; 50692 for one that SASLprep refuses.
pub(super) fn credentials(
    cx: &CommandContext<'_>,
    user: &str,
    password: &str,
    mechanisms: &[Mechanism],
) -> Result<DocBuf> {
    if password.is_empty() {
        return Err(Error::location(50687, "Password cannot be empty"));
    }
    let digested = !cx.args.bool("digestPassword", true);
    let mut all = DocBuf::new();
    // Stretching takes milliseconds of a core, and no ticket.
    let _stretching = cx.server.auth.stretching.lock_for(&**cx.op)?;
    for mechanism in mechanisms {
        let iterations = cx.server.parameters.scram.of(*mechanism);
        let mut salt = vec![0; mechanism.salt_len()];
        getrandom::fill(&mut salt)
            .map_err(|e| Error::internal(format!("the system has no random bytes: {e}")))?;
        let one = match (digested, mechanism) {
            (true, Mechanism::Sha256) => {
                return Err(Error::bad_value(
                    "Use of SCRAM-SHA-256 requires undigested passwords",
                ));
            }
            (true, Mechanism::Sha1) => {
                Credentials::with_prepared(*mechanism, password, iterations, &salt)?
            }
            (false, _) => Credentials::new(*mechanism, user, password, iterations, &salt)?,
        };
        all.append(mechanism.name(), one.to_doc());
    }
    Ok(all)
}

/// Whether the user may grant all roles that a field of the command names.
pub(super) fn may_grant(asks: &Asks<'_>, field: &str, action: Action) -> bool {
    let list = asks.request.body.get_array(field).unwrap_or(Doc::EMPTY);
    // A role that cannot be read is refused by the command.
    let named = list
        .values()
        .filter_map(|v| RoleName::from_value(v, asks.request.db).ok());
    named
        .into_iter()
        .all(|role| asks.may_one(Target::Database(&role.db), action))
}

/// Whether the user may grant all privileges that the command names: each in the database that it is about,
/// or in admin.
pub(super) fn may_grant_privileges(asks: &Asks<'_>, action: Action) -> bool {
    let list = asks
        .request
        .body
        .get_array("privileges")
        .unwrap_or(Doc::EMPTY);
    list.values().filter_map(|v| v.as_doc()).all(|d| {
        let resource = d.get_doc("resource");
        let db = resource.and_then(|r| r.get_str("db")).unwrap_or_default();
        let db = if db.is_empty() { "admin" } else { db };
        asks.may_one(Target::Database(db), action)
    })
}

/// Whether the command sets restrictions only where the user may.
pub(super) fn may_restrict(asks: &Asks<'_>) -> bool {
    let here = Target::Database(asks.request.db);
    asks.request
        .body
        .get("authenticationRestrictions")
        .is_none()
        || asks.may_one(here, Action::SetAuthenticationRestriction)
}

/// Refuses roles that inherit `role`, or are it: granting them to it would close a circle.
///
/// # Errors
/// 49 InvalidRoleModification.
pub(super) fn check_circle(
    server: &ServerState,
    role: &RoleName,
    granted: &[RoleName],
) -> Result<()> {
    for one in granted {
        let all = auth::privileges_of(server, std::slice::from_ref(one))?;
        if one == role || all.roles.contains(role) {
            return Err(Error::new(
                Code::InvalidRoleModification,
                format!(
                    "Granting {} to {} would introduce a cycle in the role graph.",
                    one.id(),
                    role.id()
                ),
            ));
        }
    }
    Ok(())
}

/// Takes roles away from every user and role that has them.
///
/// # Errors
/// Those of reading and writing.
pub(super) fn take_roles_away(cx: &mut CommandContext<'_>, gone: &[RoleName]) -> Result<()> {
    for namespace in [USERS, ROLES] {
        for stored in auth::all(cx.server, namespace, Doc::EMPTY)? {
            let stored = stored.as_doc();
            let before = roles_of(stored);
            let after: Vec<_> = before
                .iter()
                .filter(|r| !gone.contains(r))
                .cloned()
                .collect();
            if after.len() < before.len() {
                let after = to_array(&after);
                let new = with(stored, &[("roles", Some(Value::Array(after.as_doc())))]);
                auth::replace(cx, namespace, new.as_doc())?;
            }
        }
    }
    Ok(())
}

/// The filter for everything of a database.
pub(super) fn of_db(db: &str) -> DocBuf {
    doc! { "db": db }
}

/// The privileges of a stored role.
///
/// # Errors
/// Those of a privilege that cannot be read.
pub(super) fn stored_privileges(stored: Doc<'_>) -> Result<Privileges> {
    Privileges::from_array(stored.get_array("privileges").unwrap_or(Doc::EMPTY))
}

/// Refuses privileges and roles of another database in a role that is not of admin.
///
/// # Errors
/// 49 InvalidRoleModification.
pub(super) fn check_privileges(
    role: &RoleName,
    roles: &[RoleName],
    privileges: &Privileges,
) -> Result<()> {
    if role.db == "admin" {
        return Ok(());
    }
    if let Some(other) = roles.iter().find(|r| r.db != role.db) {
        return Err(Error::new(
            Code::InvalidRoleModification,
            format!(
                "Roles on the '{}' database cannot be granted roles from other databases, such as {}",
                role.db,
                other.id()
            ),
        ));
    }
    let of_another = |p: &&Privilege| {
        let d = p.to_doc();
        let resource = d.as_doc().get_doc("resource");
        resource.and_then(|r| r.get_str("db")) != Some(&role.db)
    };
    match privileges.iter().find(of_another) {
        Some(p) => Err(Error::new(
            Code::InvalidRoleModification,
            format!(
                "Roles on the '{}' database cannot be granted privileges that target other databases \
                 or the cluster: {}",
                role.db,
                Value::Document(p.to_doc().as_doc()).to_display()
            ),
        )),
        None => Ok(()),
    }
}

/// A command that changes users or roles.
pub(super) const fn command(
    name: &'static str,
    doc: &'static str,
    fields: &'static [Field],
    needs: Needs,
    run: fn(&mut CommandContext<'_>) -> Result<()>,
) -> CommandSpec {
    CommandSpec {
        name,
        doc,
        kind: Kind::Admin,
        runs_on: Some(RunsOn::Primary),
        write_concern: true,
        fields,
        run,
        ..CommandSpec::new(Routed::Config, needs)
    }
}

/// The fields of a command that grants or revokes roles.
pub(super) const ROLES_FIELD: &[Field] = &[req("roles", Types::ARRAY)];
/// The fields of a command that grants or revokes privileges.
pub(super) const PRIVILEGES_FIELD: &[Field] = &[req("privileges", Types::ARRAY)];

/// What becomes of what a user or a role has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// What the command names is added.
    Grant,
    /// What the command names is taken away.
    Revoke,
}

impl Change {
    /// The roles of a stored user or role after the change.
    fn of_roles(self, stored: Doc<'_>, named: Vec<RoleName>) -> DocBuf {
        let mut all = roles_of(stored);
        match self {
            Change::Grant => {
                all.extend(named);
                all.sort();
                all.dedup();
            }
            Change::Revoke => all.retain(|r| !named.contains(r)),
        }
        let all = to_array(&all);
        with(stored, &[("roles", Some(Value::Array(all.as_doc())))])
    }
}

/// Grants a user the roles that the command names, or revokes them.
///
/// # Errors
/// 11 UserNotFound; 31 RoleNotFound for a role to grant; those of writing.
pub(super) fn change_roles_of_user(cx: &mut CommandContext<'_>, change: Change) -> Result<()> {
    let name = user(cx)?;
    let named = named_roles(cx, &name.db)?;
    let server = cx.server;
    let _changing = server.auth.changing.lock_for(&**cx.op)?;
    let stored = stored_user(cx, &name)?;
    if change == Change::Grant {
        check_roles(server, &named)?;
    }
    let new = change.of_roles(stored.as_doc(), named);
    auth::replace(cx, USERS, new.as_doc())
}

/// Has a role inherit the roles that the command names, or no longer.
///
/// # Errors
/// 31 RoleNotFound; 49 InvalidRoleModification; those of writing.
pub(super) fn change_roles_of_role(cx: &mut CommandContext<'_>, change: Change) -> Result<()> {
    let role = own_role(cx)?;
    let named = named_roles(cx, &role.db)?;
    let server = cx.server;
    let _changing = server.auth.changing.lock_for(&**cx.op)?;
    let stored = stored_role(cx, &role)?;
    if change == Change::Grant {
        check_privileges(&role, &named, &Privileges::new())?;
        check_roles(server, &named)?;
        check_circle(server, &role, &named)?;
    }
    let new = change.of_roles(stored.as_doc(), named);
    auth::replace(cx, ROLES, new.as_doc())
}

/// Has a role allow what the command names, or no longer.
///
/// # Errors
/// 31 RoleNotFound; 49 InvalidRoleModification; those of writing.
pub(super) fn change_privileges(cx: &mut CommandContext<'_>, change: Change) -> Result<()> {
    let role = own_role(cx)?;
    let named = named_privileges(cx)?;
    check_privileges(&role, &[], &named)?;
    let server = cx.server;
    let _changing = server.auth.changing.lock_for(&**cx.op)?;
    let stored = stored_role(cx, &role)?;
    let mut all = stored_privileges(stored.as_doc())?;
    match change {
        Change::Grant => all.merge(&named),
        Change::Revoke => named.iter().for_each(|p| all.remove(p)),
    }
    let all = all.to_array();
    let new = with(
        stored.as_doc(),
        &[("privileges", Some(Value::Array(all.as_doc())))],
    );
    auth::replace(cx, ROLES, new.as_doc())
}
