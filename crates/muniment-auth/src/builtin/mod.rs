//! The built-in roles: what each is for and what it grants.
//!
//! The table is Muniment's own. Source: the manual's pages "Built-In Roles" and "Privilege Actions" (MongoDB
//! 8.0). Where these leave something open, a role gets the narrower right.

mod table;

use crate::action::Actions;
use crate::names::RoleName;
use crate::privilege::{Privilege, Privileges};
use crate::resource::Resource;
use table::ROLES;

/// The only database that has the roles for the whole server.
const ADMIN: &str = "admin";

/// One built-in role.
struct Role {
    name: &'static str,
    /// Whether every database has the role.
    everywhere: bool,
    /// What the role is for, in one line.
    purpose: &'static str,
    /// The roles of the same database whose privileges this one has too.
    includes: &'static [&'static str],
    /// What it grants itself.
    grants: &'static [(On, Actions)],
}

/// The resource of a grant. A role is defined for every database at once, so "own" is the role's database.
#[derive(Clone, Copy)]
enum On {
    /// The server or the set as a whole.
    Cluster,
    /// Everything, system collections included.
    Any,
    /// All databases but local and config, without system collections.
    Databases,
    /// The role's own database, without system collections.
    Own,
    /// The role's own database, but all databases if that is admin.
    OwnOrAll,
    /// A collection of the role's own database.
    OwnCollection(&'static str),
    /// A certain database, without system collections.
    Database(&'static str),
    /// The collections of a name in all databases.
    Collection(&'static str),
    /// One collection.
    Namespace(&'static str, &'static str),
    /// The buckets of all time series.
    Buckets,
}

impl On {
    fn resource(self, own: &str) -> Resource {
        match self {
            On::Cluster => Resource::Cluster,
            On::Any => Resource::Any,
            On::Databases => Resource::AnyNormal,
            On::OwnOrAll if own == ADMIN => Resource::AnyNormal,
            On::Own | On::OwnOrAll => Resource::of(own, ""),
            On::OwnCollection(name) => Resource::of(own, name),
            On::Database(db) => Resource::of(db, ""),
            On::Collection(name) => Resource::of("", name),
            On::Namespace(db, name) => Resource::of(db, name),
            On::Buckets => Resource::SystemBuckets {
                db: None,
                collection: None,
            },
        }
    }
}

fn in_database(db: &str) -> impl Iterator<Item = &'static Role> + use<> {
    // $external holds users only.
    let (admin, none) = (db == ADMIN, db.is_empty() || db == "$external");
    ROLES
        .iter()
        .filter(move |r| !none && (admin || r.everywhere))
}

fn find(role: &RoleName) -> Option<&'static Role> {
    in_database(&role.db).find(|r| r.name == role.role)
}

/// True if there is a built-in role of this name in its database.
pub fn is_builtin(role: &RoleName) -> bool {
    find(role).is_some()
}

/// The names of the built-in roles of a database, sorted.
pub fn builtin_names(db: &str) -> impl Iterator<Item = &'static str> + use<> {
    in_database(db).map(|r| r.name)
}

/// All built-in roles, sorted by name, each with one line that says what it is for.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROLES.iter().map(|r| (r.name, r.purpose))
}

/// All privileges of a built-in role, those of the roles that it includes too; `None` if it is not built in.
pub fn privileges_of(role: &RoleName) -> Option<Privileges> {
    let mut all = Privileges::new();
    collect(find(role)?, &role.db, &mut all);
    Some(all)
}

fn collect(role: &Role, own: &str, all: &mut Privileges) {
    for (on, actions) in role.grants {
        all.add(Privilege::new(on.resource(own), *actions));
    }
    for name in role.includes {
        if let Some(included) = ROLES.iter().find(|r| r.name == *name) {
            collect(included, own, all);
        }
    }
}

#[cfg(test)]
mod tests;
