//! The users and roles that are stored, in MongoDB's collections and documents.

use super::{ROLES, USERS, User};
use crate::context::CommandContext;
use crate::sessions::digest_of;
use crate::state::ServerState;
use muniment_auth::builtin;
use muniment_auth::names::{RoleName, UserName};
use muniment_auth::privilege::Privileges;
use muniment_auth::restrictions::Restrictions;
use muniment_exec::{DeleteStatement, FindRequest, OpContext, UpdateStatement, VERSION_COLLECTION};
use muniment_logger::Severity;
use muniment_value::{Doc, DocBuf, Error, Result, Value, doc};
use std::collections::BTreeSet;

/// The database of users and roles.
pub const DB: &str = "admin";

/// The document of a user or a role with this `_id`, `db.name`.
///
/// # Errors
/// Those of reading.
pub fn find(server: &ServerState, namespace: &str, id: &str) -> Result<Option<DocBuf>> {
    let store = &server.engine.store;
    let Some(c) = store.collection(namespace) else {
        return Ok(None);
    };
    let found = store.snapshot().find_by_id(&c, Value::String(id))?;
    Ok(found.map(|(_, bytes)| Doc::new(&bytes).to_buf()))
}

/// The documents that a filter matches, sorted by `_id`.
///
/// # Errors
/// Those of reading.
pub fn all(server: &ServerState, namespace: &str, filter: Doc<'_>) -> Result<Vec<DocBuf>> {
    if server.engine.store.collection(namespace).is_none() {
        return Ok(Vec::new());
    }
    let op = OpContext::internal("users");
    let sort = doc! { "_id": 1 };
    let request = FindRequest {
        filter,
        sort: sort.as_doc(),
        ..FindRequest::new(namespace)
    };
    let mut cursor = server.engine.find(&op, &request)?;
    let mut found = Vec::new();
    while let Some(bytes) = cursor.next_doc(&op)? {
        found.push(Doc::new(&bytes).to_buf());
    }
    Ok(found)
}

/// Whether there is any user.
///
/// # Errors
/// Those of reading.
pub(super) fn any(server: &ServerState) -> Result<bool> {
    if server.engine.store.collection(USERS).is_none() {
        return Ok(false);
    }
    let op = OpContext::internal("users");
    let request = FindRequest::new(USERS);
    let mut cursor = server.engine.find(&op, &request)?;
    Ok(cursor.next_doc(&op)?.is_some())
}

/// The `_id` of the document that says how users and roles are stored. mongorestore looks for it in a dump.
pub const SCHEMA_ID: &str = "authSchema";

/// The document with [`SCHEMA_ID`], of `admin.system.version`.
pub fn schema() -> DocBuf {
    doc! { "_id": SCHEMA_ID, "currentVersion": 5 }
}

/// Stores a document of a user or a role in place of the one with its `_id`. As in MongoDB, the first one
/// brings [`schema`] with it.
///
/// # Errors
/// Those of writing.
pub fn replace(cx: &mut CommandContext<'_>, namespace: &str, document: Doc<'_>) -> Result<()> {
    if find(cx.server, VERSION_COLLECTION, SCHEMA_ID)?.is_none() {
        put(cx, VERSION_COLLECTION, schema().as_doc())?;
    }
    put(cx, namespace, document)
}

fn put(cx: &mut CommandContext<'_>, namespace: &str, document: Doc<'_>) -> Result<()> {
    let id = document.get("_id").unwrap_or(Value::Null);
    let filter = doc! { "_id": id };
    let statement = UpdateStatement {
        upsert: true,
        ..UpdateStatement::new(filter.as_doc(), Value::Document(document))
    };
    let outcome = cx.engine().update(cx.op, namespace, &statement)?;
    cx.note_commit(outcome.commit);
    Ok(())
}

/// Removes the documents that a filter matches. Returns how many there were.
///
/// # Errors
/// Those of writing.
pub fn remove(cx: &mut CommandContext<'_>, namespace: &str, filter: Doc<'_>) -> Result<u64> {
    let statement = DeleteStatement {
        filter,
        multi: true,
        hint: None,
        let_: Doc::EMPTY,
        collation: None,
    };
    let mut statements = std::iter::once(Ok(statement));
    let mut outcome = cx
        .engine()
        .delete_many(cx.op, namespace, &mut statements, true);
    cx.note_commit(outcome.commit);
    match outcome.errors.pop() {
        Some(e) => Err(e.error),
        None => Ok(outcome.n as u64),
    }
}

/// The roles that a document of a user or a role names.
fn roles_in(document: Doc<'_>) -> Vec<RoleName> {
    let list = document.get_array("roles").unwrap_or(Doc::EMPTY);
    let db = document.get_str("db").unwrap_or_default();
    let role = |v: Value<'_>| RoleName::from_value(v, db).ok();
    list.values().filter_map(role).collect()
}

/// What roles amount to: these and all that they inherit, what they allow, and their restrictions. A role
/// that does not exist, or cannot be read, allows nothing.
///
/// # Errors
/// Those of reading.
pub fn privileges_of(server: &ServerState, roles: &[RoleName]) -> Result<Granted> {
    let mut granted = Granted::default();
    let mut open: Vec<RoleName> = roles.to_vec();
    while let Some(role) = open.pop() {
        if !granted.roles.insert(role.clone()) {
            continue;
        }
        if let Some(privileges) = builtin::privileges_of(&role) {
            granted.privileges.merge(&privileges);
            continue;
        }
        let Some(stored) = find(server, ROLES, &role.id())? else {
            granted.roles.remove(&role);
            continue;
        };
        let stored = stored.as_doc();
        match own(stored) {
            Ok((privileges, restrictions)) => {
                granted.privileges.merge(&privileges);
                granted.restrictions.extend(restrictions);
                open.extend(roles_in(stored));
            }
            Err(e) => unusable(server, "role", &role.id(), &e),
        }
    }
    Ok(granted)
}

/// The privileges of a stored role without those that it inherits, and its restrictions.
fn own(stored: Doc<'_>) -> Result<(Privileges, Option<Restrictions>)> {
    let privileges = stored.get_array("privileges").unwrap_or(Doc::EMPTY);
    let privileges = Privileges::from_array(privileges)?;
    let restrictions = stored.get_array("authenticationRestrictions");
    Ok((
        privileges,
        restrictions.map(Restrictions::parse).transpose()?,
    ))
}

/// Logs that a stored user or role cannot be read, and therefore allows nothing.
pub(super) fn unusable(server: &ServerState, what: &str, name: &str, e: &Error) {
    server.log.log(
        Severity::Warning,
        "ACCESS",
        7_340_027,
        "auth",
        "A stored user or role cannot be read, and allows nothing",
        Some(&doc! { "kind": what, "name": name, "error": server.log.error(e) }),
    );
}

/// What some roles amount to.
#[derive(Default)]
pub struct Granted {
    /// The roles, and those that they inherit.
    pub roles: BTreeSet<RoleName>,
    /// What they allow.
    pub privileges: Privileges,
    /// Each role's restrictions.
    pub restrictions: Vec<Restrictions>,
}

/// A user with all privileges, as stored now; `None` if there is no such user.
///
/// # Errors
/// Those of reading, and of [`user`].
pub(super) fn resolve(
    server: &ServerState,
    name: &UserName,
    generation: u64,
) -> Result<Option<User>> {
    let stored = find(server, USERS, &name.id())?;
    stored
        .map(|stored| user(server, name, stored.as_doc(), generation))
        .transpose()
}

/// The user of a stored document, with all privileges.
///
/// # Errors
/// Those of reading roles; restrictions that cannot be read.
pub(super) fn user(
    server: &ServerState,
    name: &UserName,
    stored: Doc<'_>,
    generation: u64,
) -> Result<User> {
    let roles = roles_in(stored);
    let mut granted = privileges_of(server, &roles)?;
    if let Some(list) = stored.get_array("authenticationRestrictions") {
        granted.restrictions.push(Restrictions::parse(list)?);
    }
    let id = match stored.get("userId") {
        Some(Value::Binary { bytes, .. }) => bytes.to_vec(),
        _ => Vec::new(),
    };
    Ok(User {
        key: format!("{}@{}", name.user, name.db).into(),
        digest: digest_of(&name.user, &name.db),
        id,
        roles,
        all_roles: granted.roles.into_iter().collect(),
        privileges: granted.privileges,
        restrictions: granted.restrictions,
        generation,
        name: name.clone(),
    })
}

/// The mechanisms for which a user has credentials; `None` if there is no such user.
///
/// # Errors
/// Those of reading.
pub fn mechanisms_of(server: &ServerState, name: &UserName) -> Result<Option<Vec<String>>> {
    let Some(stored) = find(server, USERS, &name.id())? else {
        return Ok(None);
    };
    let credentials = stored.as_doc().get_doc("credentials").unwrap_or(Doc::EMPTY);
    Ok(Some(
        credentials.iter().map(|e| e.name().to_string()).collect(),
    ))
}
