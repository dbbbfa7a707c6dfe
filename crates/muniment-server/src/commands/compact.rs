//! `compact`: rewrites the files of a collection and its indexes without what is dead in them.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::{Action, Actions};
use muniment_value::args::{Field, Types, idle, opt};
use muniment_value::{Code, Error, Result, number};

const FIELDS: &[Field] = &[
    opt("dryRun", Types::BOOL),
    idle("force", Types::BOOL, "nobody is ever blocked"),
    opt("freeSpaceTargetMB", Types::NUMBER),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "compact",
    doc: "Rewrites a collection's files without what is dead in them",
    kind: Kind::Admin,
    fields: FIELDS,
    run,
    ..CommandSpec::new(
        Routed::Refused,
        Needs::Of(|asks| asks.may_on_named(Actions::of(&[Action::Compact]))),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    cx.args.int("freeSpaceTargetMB", 1, i64::MAX)?;
    let name = namespace::lenient(cx.target())?;
    let ns = format!("{}.{name}", cx.db());
    let engine = cx.engine();
    let source = engine.source(&ns)?;
    source.refuse_view(&ns)?;
    source.refuse_generated(&ns)?;
    let Some(collection) = source.stored() else {
        return Err(Error::new(
            Code::NamespaceNotFound,
            format!("collection {ns} does not exist"),
        ));
    };
    let size = || engine.store.file_bytes(collection);
    let before = size();
    let (name, freed) = if cx.args.bool("dryRun", false) {
        // Everything beyond the documents' own size may be dead.
        let least = collection.data_bytes();
        (
            "estimatedBytesFreed",
            engine.store.storage_bytes(collection).saturating_sub(least),
        )
    } else {
        engine.store.compact(Some(collection), &**cx.op)?;
        ("bytesFreed", before.saturating_sub(size()))
    };
    cx.reply.field(name, number::narrow(freed as i64));
    Ok(())
}
