//! The declaration of a command, and the sorted registry of all commands.

use crate::audit::Audits;
use crate::auth::Needs;
use crate::context::{CommandContext, Request};
use crate::generic::Generic;
use crate::metrics::OpKind;
use crate::router::{Known, Router};
use crate::state::ServerState;
use foldhash::HashMap;
use muniment_auth::action::Action;
use muniment_exec::Verbosity;
use muniment_value::args::{Args, Field};
use muniment_value::{ArrayBuf, Code, Doc, Error, Result};
use std::sync::{Arc, OnceLock};

/// What a command does to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads documents.
    Read,
    /// Writes documents.
    Write,
    /// Changes collections, databases or indexes.
    Ddl,
    /// Acts on the server.
    Admin,
    /// Reports on the server.
    Diagnostic,
}

/// What a command's first element must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The name of a collection.
    Collection,
    /// The name of a collection; the command itself refuses what is none.
    CollectionUnchecked,
    /// The name of a collection, or the number 1.
    CollectionOrDatabase,
    /// The name of a collection, or its UUID.
    CollectionOrUuid,
    /// A cursor's id; its collection is named by the field `collection`.
    Cursor,
    /// Anything; by convention the number 1.
    Anything,
}

/// The members of a set on which a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsOn {
    /// On every member.
    Any,
    /// On members whose data can be read, whatever the client's read preference. A cursor, for instance, was
    /// opened where that preference allowed it.
    Data,
    /// On members whose data can be read; on a secondary only if the client's read preference allows it.
    Readable,
    /// On the primary.
    Primary,
}

/// What a router of a cluster of shards does with a command.
#[derive(Clone, Copy)]
pub enum Routed {
    /// It has no such command.
    Refused,
    /// It runs it itself.
    Here,
    /// It passes it on to the primary of the set that holds the cluster's configuration.
    Config,
    /// It sets something for the whole cluster: it is passed on to the configuration's set and to all shards.
    Everywhere,
    /// It passes it on to the shard that holds the command's database.
    Database,
    /// As `Database`; if the command's collection is sharded, this function sends it to its shards.
    Shards(OnShards),
    /// As `By`, with the full name of a collection that is the command's first element.
    Named(fn(&mut CommandContext<'_>, &Router, &str) -> Result<()>),
    /// This function passes it on.
    By(fn(&mut CommandContext<'_>, &Router) -> Result<()>),
}

/// What a router does with a command on a sharded collection.
pub type OnShards = fn(&mut CommandContext<'_>, &Router, &Arc<Known>) -> Result<()>;

/// The statements of a writing command.
#[derive(Clone, Copy, Debug)]
pub enum Statements {
    /// It has none.
    None,
    /// The command itself is its only statement.
    One,
    /// They are the documents of an array.
    List {
        /// The name of the array's field.
        field: &'static str,
        /// Whether a statement may change several documents, so that it cannot be retried.
        many: fn(Doc<'_>) -> bool,
        /// The text by which an error names the reason.
        many_text: &'static str,
    },
}

/// How a command ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The transaction's writes take effect.
    Commit,
    /// The transaction's writes are discarded.
    Abort,
}

/// The place in which a command names the collections that it writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Its first element names the collection, in the command's database.
    Target,
    /// The documents of the array `nsInfo` name them, with their databases.
    NsInfo,
    /// They are elsewhere in the body.
    Elsewhere,
}

/// The input of a command's explanation: the fields and arguments of the command inside an explain command.
pub struct Explained<'a, 'c> {
    /// Its checked fields.
    pub args: Args<'a>,
    /// Its checked generic arguments.
    pub generic: Generic<'a>,
    /// `db.collection`; for a pipeline without a collection `db.$cmd.aggregate`.
    pub namespace: &'c str,
    /// The name of the collection.
    pub collection: Option<&'a str>,
    /// How much the explanation tells.
    pub verbosity: Verbosity,
    /// The explained command.
    pub command: Doc<'a>,
}

/// The stages that do on a view what a command with these arguments does. The view's full name is given, with its database
/// and its name there.
pub type OnView = for<'a> fn(&Args<'a>, (&'a str, &'a str, &'a str)) -> Result<ArrayBuf>;

/// Answers an explain command.
pub type Explain = for<'a> fn(&mut CommandContext<'a>, &Explained<'a, '_>) -> Result<()>;

/// When a command's body may hold a password or a key.
#[derive(Clone, Copy)]
pub enum Secret {
    /// Never.
    Never,
    /// Always.
    Always,
    /// If another command within it may.
    Within,
    /// If the function says so of the body.
    If(fn(Doc<'_>) -> bool),
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
    /// What a router does with it.
    pub routed: Routed,
    /// Only a router has it.
    pub of_router: bool,
    /// What its user has to be allowed.
    pub needs: Needs,
    /// Whether it may run without a user from the server's own host while there is no user (the localhost
    /// exception).
    pub before_first_user: fn(&Request<'_>) -> bool,
    /// Whether its body may hold a password or a key: it is never shown, logged or recorded then.
    pub secret: Secret,
    /// The event that it leaves in the audit log, beside the check of its user's rights.
    pub audits: Option<Audits>,
    /// The kind that it counts as.
    pub op: OpKind,
    /// What its first element is.
    pub target: Target,
    /// It runs only in the database "admin".
    pub admin_only: bool,
    /// It takes a `writeConcern`.
    pub write_concern: bool,
    /// Whether it only reads, so that the cluster parameter defaultMaxTimeMS limits it.
    pub is_read_operation: fn(Doc<'_>) -> bool,
    /// It takes a `readConcern`.
    pub read_concern: bool,
    /// It takes the level "snapshot" outside of a transaction, too.
    pub snapshot_reads: bool,
    /// The members of a set on which it runs; `None` for the default of its [`Kind`]
    /// ([`CommandSpec::runs_on`]).
    pub runs_on: Option<RunsOn>,
    /// It may be a part of a transaction.
    pub in_transactions: bool,
    /// A hint for the error, if it may not be part of a transaction: what to use instead.
    pub instead_in_transactions: &'static str,
    /// It ends a transaction.
    pub ends_transaction: Option<Ends>,
    /// Its statements.
    pub statements: Statements,
    /// The place in which it names the collections that it writes to.
    pub names: Names,
    /// Whether it is a reading command that writes its results into a collection.
    pub writes_output: fn(Doc<'_>) -> bool,
    /// It creates collections or indexes, in any database that may have them.
    pub makes_collections: bool,
    /// It drops its collection, and the collection's entry in `top`.
    pub drops_collection: bool,
    /// Whether it opens or continues a change stream.
    pub is_change_stream: fn(&ServerState, Doc<'_>) -> bool,
    /// It is still answered while the server shuts down, so that drivers notice the shutdown.
    pub while_stopping: bool,
    /// It is logged when it was slow.
    pub logged_when_slow: bool,
    /// The profiler records it.
    pub profiled: bool,
    /// The fail point failCommand can make it fail.
    pub can_be_failed: bool,
    /// Explains it; `None` if it cannot be explained.
    pub explain: Option<Explain>,
    /// The stages that do the same on a view; `None` if it does not read views.
    pub on_view: Option<OnView>,
    /// A driver may send it again with the same `txnNumber`.
    pub retryable_write: bool,
    /// Part of the Stable API, version 1.
    pub api_v1: bool,
    /// Its fields beside the first element and the generic ones.
    pub fields: &'static [Field],
    /// It also takes fields that are not in the table, such as names of parameters, and checks them itself.
    pub open_fields: bool,
    /// The kind that `opcounters` count it as, if that is not `op`.
    pub counted_as: Option<OpKind>,
    /// Checks the body before the concerns are checked.
    pub precheck: fn(Doc<'_>) -> Result<()>,
    /// Runs it and appends to the reply; `ok` is added afterwards.
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
    /// The values that most commands have, with what a router does with this one and what its user has to be
    /// allowed. There is no default for these, so a command that does not say them does not compile.
    pub const fn new(routed: Routed, needs: Needs) -> CommandSpec {
        CommandSpec {
            routed,
            of_router: false,
            needs,
            before_first_user: |_| false,
            secret: Secret::Never,
            audits: None,
            name: "",
            aliases: &[],
            doc: "",
            kind: Kind::Diagnostic,
            op: OpKind::Command,
            counted_as: None,
            target: Target::Anything,
            admin_only: false,
            write_concern: false,
            is_read_operation: |_| false,
            read_concern: false,
            snapshot_reads: false,
            runs_on: None,
            in_transactions: false,
            instead_in_transactions: "",
            ends_transaction: None,
            statements: Statements::None,
            names: Names::Target,
            writes_output: |_| false,
            makes_collections: false,
            drops_collection: false,
            is_change_stream: |_, _| false,
            while_stopping: false,
            logged_when_slow: true,
            profiled: true,
            can_be_failed: true,
            explain: None,
            on_view: None,
            retryable_write: false,
            api_v1: false,
            fields: &[],
            open_fields: false,
            precheck: |_| Ok(()),
            run: nothing,
        }
    }

    /// The values of a command in `admin` by which a router changes the cluster.
    pub const fn of_cluster(
        run: fn(&mut CommandContext<'_>, &Router) -> Result<()>,
        needs: Needs,
    ) -> CommandSpec {
        CommandSpec::changing(Routed::By(run), needs)
    }

    /// The values of a command in `admin` by which a router changes the collection that is its first element.
    pub const fn of_collection(
        run: fn(&mut CommandContext<'_>, &Router, &str) -> Result<()>,
        action: Action,
    ) -> CommandSpec {
        CommandSpec::changing(Routed::Named(run), Needs::named(action))
    }

    const fn changing(routed: Routed, needs: Needs) -> CommandSpec {
        CommandSpec {
            kind: Kind::Admin,
            of_router: true,
            admin_only: true,
            write_concern: true,
            ..CommandSpec::new(routed, needs)
        }
    }

    /// The values of a command that members of a cluster send to each other's primaries.
    pub const fn between_members() -> CommandSpec {
        CommandSpec {
            kind: Kind::Admin,
            runs_on: Some(RunsOn::Primary),
            logged_when_slow: false,
            profiled: false,
            ..CommandSpec::new(Routed::Refused, Needs::Member)
        }
    }

    /// The members of a set on which it runs with this body.
    pub fn runs_on(&self, body: Doc<'_>) -> RunsOn {
        match (self.runs_on, self.kind) {
            (Some(place), _) => place,
            (None, Kind::Write | Kind::Ddl) => RunsOn::Primary,
            (None, Kind::Read) if (self.writes_output)(body) => RunsOn::Primary,
            (None, Kind::Read) => RunsOn::Readable,
            (None, Kind::Admin | Kind::Diagnostic) => RunsOn::Any,
        }
    }

    /// Whether a server has it: some are of routers only, and a router does not have all.
    pub fn is_of(&self, server: &ServerState) -> bool {
        match server.router {
            Some(_) => !matches!(self.routed, Routed::Refused),
            None => !self.of_router,
        }
    }

    /// True for a command that continues a cursor which another one has opened.
    pub fn continues_cursor(&self) -> bool {
        self.target == Target::Cursor
    }

    /// True for the command's name and its aliases.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// All commands, sorted by name.
pub fn registry() -> &'static [&'static CommandSpec] {
    crate::commands::ALL
}

/// 59 CommandNotFound.
pub fn unknown(name: &str) -> Error {
    Error::new(Code::CommandNotFound, format!("no such command: '{name}'"))
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
    use muniment_value::args::MAX_FIELDS;

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
