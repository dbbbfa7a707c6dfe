//! The actions of commands: the type of the event that each leaves, and the event's parameters.
//!
//! Source of the names: the MongoDB manual, "System Event Audit Messages". Parameters are taken from the
//! request by name, never as a whole, so that no password gets into them.

use crate::context::CommandContext;
use muniment_auth::names::{RoleName, UserName};
use muniment_exec::CatalogChange;
use muniment_value::{ArrayBuf, Doc, DocBuf, Value, doc};

/// The event that a command leaves in the audit log, beside the check of its user's rights.
#[derive(Clone, Copy)]
pub struct Audits {
    /// The type of the event.
    pub atype: &'static str,
    /// The event's parameters, before the command runs.
    pub param: fn(&CommandContext<'_>) -> DocBuf,
    /// A successful command leaves the events of the catalog's changes that it made, and this one is only for
    /// a command that fails, beside what it has changed before.
    pub by_changes: bool,
}

impl Audits {
    /// One event for each run, successful or not.
    pub const fn each(atype: &'static str, param: fn(&CommandContext<'_>) -> DocBuf) -> Audits {
        Audits {
            atype,
            param,
            by_changes: false,
        }
    }

    /// The events of the catalog's changes; this one for a command that fails.
    pub const fn changes(atype: &'static str, param: fn(&CommandContext<'_>) -> DocBuf) -> Audits {
        Audits {
            atype,
            param,
            by_changes: true,
        }
    }
}

/// The type and the parameters of the event for a change of the catalog.
pub fn of_change(change: &CatalogChange) -> (&'static str, DocBuf) {
    match change {
        CatalogChange::CreatedDatabase(db) => ("createDatabase", doc! { "ns": db.as_str() }),
        CatalogChange::CreatedCollection(ns) => ("createCollection", doc! { "ns": ns.as_str() }),
        CatalogChange::CreatedView {
            namespace,
            on,
            pipeline,
        } => (
            "createCollection",
            doc! { "ns": namespace.as_str(), "viewOn": on.as_str(), "pipeline": pipeline },
        ),
        CatalogChange::CreatedIndex {
            namespace,
            name,
            spec,
        } => (
            "createIndex",
            doc! {
                "ns": namespace.as_str(),
                "indexName": name.as_str(),
                "indexSpec": spec,
                "indexBuildState": "IndexBuildSucceeded",
            },
        ),
        CatalogChange::DroppedIndex { namespace, name } => (
            "dropIndex",
            doc! { "ns": namespace.as_str(), "indexName": name.as_str() },
        ),
        CatalogChange::DroppedCollection(ns) => ("dropCollection", doc! { "ns": ns.as_str() }),
        CatalogChange::DroppedDatabase(db) => ("dropDatabase", doc! { "ns": db.as_str() }),
        CatalogChange::Renamed { from, to } => (
            "renameCollection",
            doc! { "old": from.as_str(), "new": to.as_str() },
        ),
    }
}

fn target<'a>(cx: &CommandContext<'a>) -> &'a str {
    cx.target().as_str().unwrap_or_default()
}

/// `{user, db}`.
pub fn user(cx: &CommandContext<'_>) -> DocBuf {
    UserName::new(target(cx), cx.db()).to_doc()
}

/// `{user, db, roles}`.
pub fn user_granted(cx: &CommandContext<'_>) -> DocBuf {
    let mut d = user(cx);
    d.append_some("roles", roles(cx));
    d
}

/// A user who is created or changed, without the password.
pub fn user_with_roles(cx: &CommandContext<'_>) -> DocBuf {
    let mut d = user(cx);
    d.append("passwordChanged", cx.args.get("pwd").is_some());
    d.append_some("customData", cx.args.doc("customData"));
    d.append_some("roles", roles(cx));
    let restrictions = cx.args.array("authenticationRestrictions");
    d.append_some("authenticationRestrictions", restrictions.map(Value::Array));
    d
}

/// `{role, db}`.
pub fn role(cx: &CommandContext<'_>) -> DocBuf {
    doc! { "role": target(cx), "db": cx.db() }
}

/// `{role, db, roles}`.
pub fn own_roles(cx: &CommandContext<'_>) -> DocBuf {
    let mut d = role(cx);
    d.append_some("roles", roles(cx));
    d
}

/// `{role, db, privileges}`.
pub fn own_privileges(cx: &CommandContext<'_>) -> DocBuf {
    let mut d = role(cx);
    d.append_some("privileges", privileges(cx));
    d
}

/// A role that is created or changed.
pub fn role_granted(cx: &CommandContext<'_>) -> DocBuf {
    let mut d = own_roles(cx);
    d.append_some("privileges", privileges(cx));
    let restrictions = cx.args.array("authenticationRestrictions");
    d.append_some("authenticationRestrictions", restrictions.map(Value::Array));
    d
}

/// `{db}`.
pub fn all_of_database(cx: &CommandContext<'_>) -> DocBuf {
    doc! { "db": cx.db() }
}

/// The collection that a command names: `{ns}`.
pub fn collection(cx: &CommandContext<'_>) -> DocBuf {
    doc! { "ns": cx.ns() }
}

/// The command's database: `{ns}`.
pub fn database(cx: &CommandContext<'_>) -> DocBuf {
    doc! { "ns": cx.db() }
}

/// The index that a command drops: `{ns, indexName}`.
pub fn dropped_index(cx: &CommandContext<'_>) -> DocBuf {
    let mut d = collection(cx);
    d.append_some("indexName", cx.args.get("index"));
    d
}

/// The first of the indexes that a command builds: `{ns, indexName, indexSpec}`.
pub fn new_index(cx: &CommandContext<'_>) -> DocBuf {
    let mut d = collection(cx);
    let first = cx
        .args
        .array("indexes")
        .and_then(|list| list.values().next());
    let first = first.and_then(|v| v.as_doc());
    d.append_some("indexName", first.and_then(|spec| spec.get("name")));
    d.append_some("indexSpec", first);
    d
}

/// `{old, new}` of a renaming.
pub fn renamed(cx: &CommandContext<'_>) -> DocBuf {
    doc! { "old": target(cx), "new": cx.args.str("to").unwrap_or_default() }
}

/// The configurations of the replica set before and after.
pub fn reconfigured(cx: &CommandContext<'_>) -> DocBuf {
    let set = cx.server.replica_set.as_ref();
    let old = set.and_then(|set| set.member().config.clone());
    let mut d = DocBuf::new();
    d.append_some("old", old.map(|config| config.to_doc()));
    d.append("new", cx.target());
    d
}

/// The message of a client.
pub fn message(cx: &CommandContext<'_>) -> DocBuf {
    doc! { "msg": target(cx) }
}

/// The roles that the command names, each with its database.
fn roles(cx: &CommandContext<'_>) -> Option<ArrayBuf> {
    let list: Doc<'_> = cx.args.array("roles")?;
    // A role that cannot be read is refused by the command.
    let named = list
        .values()
        .filter_map(|v| RoleName::from_value(v, cx.db()).ok());
    Some(named.map(|role| role.to_doc()).collect())
}

fn privileges<'a>(cx: &CommandContext<'a>) -> Option<Value<'a>> {
    cx.args.array("privileges").map(Value::Array)
}
