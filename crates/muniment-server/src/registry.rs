//! What a command is, and the sorted registry of all commands.

use crate::args::Field;
use crate::context::CommandContext;
use crate::metrics::OpKind;
use foldhash::HashMap;
use muniment_value::{Doc, Result};
use std::sync::OnceLock;

/// What a command does to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads documents.
    Read,
    /// Writes documents.
    Write,
    /// Changes collections, databases or indexes.
    Ddl,
    /// Concerns the server.
    Admin,
    /// Tells about the server.
    Diagnostic,
}

/// What a command's first element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The name of a collection.
    Collection,
    /// The name of a collection, or the number 1.
    CollectionOrDatabase,
    /// The name of a collection, or its UUID.
    CollectionOrUuid,
    /// A cursor's id; its collection is named by the field `collection`.
    Cursor,
    /// Anything; by convention the number 1.
    Anything,
}

/// Who may run it: room for authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Also before authentication.
    Anyone,
    /// Privileges on its namespace or on the cluster.
    Privileged,
    /// Other members of the replica set only.
    Member,
}

/// One command: its file exports this as `COMMAND`.
pub struct CommandSpec {
    /// Its name.
    pub name: &'static str,
    /// Further names.
    pub aliases: &'static [&'static str],
    /// One line for people.
    pub doc: &'static str,
    /// What it does to data.
    pub kind: Kind,
    /// Who may run it.
    pub access: Access,
    /// What it counts as.
    pub op: OpKind,
    /// What its first element is.
    pub target: Target,
    /// Only in the database "admin".
    pub admin_only: bool,
    /// It takes a `writeConcern`.
    pub write_concern: bool,
    /// Whether it only reads, so that the cluster parameter defaultMaxTimeMS limits it.
    pub is_read_operation: fn(Doc<'_>) -> bool,
    /// It takes a `readConcern`.
    pub read_concern: bool,
    /// It may be a part of a transaction.
    pub in_transactions: bool,
    /// A driver may send it again with the same `txnNumber`.
    pub retryable_write: bool,
    /// Part of the Stable API, version 1.
    pub api_v1: bool,
    /// Its fields beside the first element and the generic ones.
    pub fields: &'static [Field],
    /// Further fields are the command's own business (parameters' names).
    pub open_fields: bool,
    /// Checks of the body that come before those of the concerns.
    pub precheck: fn(Doc<'_>) -> Result<()>,
    /// Runs it: appends to the reply; `ok` is added afterwards.
    pub run: fn(&mut CommandContext<'_>) -> Result<()>,
}

impl std::fmt::Debug for CommandSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "command {}", self.name)
    }
}

fn nothing(_: &mut CommandContext<'_>) -> Result<()> {
    Ok(())
}

impl CommandSpec {
    /// What most commands have in common.
    pub const DEFAULT: CommandSpec = CommandSpec {
        name: "",
        aliases: &[],
        doc: "",
        kind: Kind::Diagnostic,
        access: Access::Privileged,
        op: OpKind::Command,
        target: Target::Anything,
        admin_only: false,
        write_concern: false,
        is_read_operation: |_| false,
        read_concern: false,
        in_transactions: false,
        retryable_write: false,
        api_v1: false,
        fields: &[],
        open_fields: false,
        precheck: |_| Ok(()),
        run: nothing,
    };

    /// True for its name and its aliases.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// All commands, sorted by name.
pub fn registry() -> &'static [&'static CommandSpec] {
    crate::commands::ALL
}

/// The command with this name or alias.
pub fn find(name: &str) -> Option<&'static CommandSpec> {
    static BY_NAME: OnceLock<HashMap<&'static str, &'static CommandSpec>> = OnceLock::new();
    BY_NAME
        .get_or_init(|| {
            registry()
                .iter()
                .flat_map(|c| {
                    let c: &'static CommandSpec = c;
                    std::iter::once(c.name)
                        .chain(c.aliases.iter().copied())
                        .map(move |n| (n, c))
                })
                .collect()
        })
        .get(name)
        .copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::args::MAX_FIELDS;

    #[test]
    fn the_registry_is_sorted_and_complete() {
        let names: Vec<_> = registry().iter().map(|c| c.name).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(names, sorted);
        for c in registry() {
            assert!(!c.doc.is_empty() && !c.doc.ends_with('.'), "{}", c.name);
            assert!(c.fields.len() <= MAX_FIELDS, "{}", c.name);
            assert!(std::ptr::eq(find(c.name).unwrap(), *c));
        }
        assert!(find("nope").is_none());
    }
}
