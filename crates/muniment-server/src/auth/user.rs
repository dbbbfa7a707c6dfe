//! A user who has logged in.

use crate::connections::{ConnShared, address_of};
use muniment_auth::action::{Action, Actions};
use muniment_auth::names::{RoleName, UserName};
use muniment_auth::privilege::Privileges;
use muniment_auth::resource::Target;
use muniment_auth::restrictions::Restrictions;
use muniment_exec::Opens;
use std::sync::Arc;

/// A user as a connection holds it. It does not change; when users or roles change, the connection takes
/// another one.
pub struct User {
    /// The name.
    pub name: UserName,
    /// `user@db`.
    pub key: Arc<str>,
    /// What sessions know the user by.
    pub digest: [u8; 32],
    /// The `userId`: a user who was dropped and created again has another one.
    pub id: Vec<u8>,
    /// The roles that were granted to the user.
    pub roles: Vec<RoleName>,
    /// These roles, and those that they inherit.
    pub all_roles: Vec<RoleName>,
    /// What all of these roles allow.
    pub privileges: Privileges,
    /// The addresses from which and at which the user and each of the roles may be used.
    pub restrictions: Vec<Restrictions>,
    /// The generation of users and roles that this was read from.
    pub generation: u64,
}

impl User {
    /// Whether the user may end the cursors of others on a collection, `db.collection`.
    pub fn may_end_cursors(&self, namespace: &str) -> bool {
        let (db, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
        let actions = Actions::of(&[Action::KillAnyCursor]);
        let on = [Target::Cluster, Target::Collection(db, collection)];
        on.iter().any(|on| self.privileges.allows(on, &actions))
    }

    /// Whether the user may log in on this connection.
    pub fn may_come_from(&self, conn: &ConnShared) -> bool {
        let client = address_of(&conn.peer);
        let server = conn.stream.local().as_deref().and_then(address_of);
        self.restrictions.iter().all(|r| r.allow(client, server))
    }
}

impl Opens for User {
    fn may_open(&self, namespace: &str) -> bool {
        let (db, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
        // Commands about users, sessions and settings write what is the server's own, by rights of their own.
        let servers = matches!(db, "admin" | "config" | "local");
        let may = |collection| {
            let target = Target::Collection(db, collection);
            self.privileges.allows_any_of(&target, &Actions::ALL)
        };
        // The buckets of a time series belong to it.
        let series = collection.strip_prefix("system.buckets.");
        // Pipelines that make their documents themselves read a collection without a name.
        servers || collection.is_empty() || may(collection) || series.is_some_and(may)
    }
}
