//! `_shardDropViews`: a router takes views away from a shard that their database has left.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use muniment_exec::CatalogChange;
use muniment_value::args::{Types, req};
use muniment_value::{Doc, Result};

/// The command: `{_shardDropViews: 1, views: [name, …]}`, in the database. A collection that has the name of one is left
/// alone: it may have come here since, with all its documents.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardDropViews",
    doc: "Internal: a router takes the views of a database away that has left the shard",
    write_concern: true,
    fields: &[req("views", Types::ARRAY)],
    run,
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let views = cx.args.array("views").unwrap_or(Doc::EMPTY);
    for name in views.values().filter_map(|v| v.as_str()) {
        let ns = format!("{}.{name}", cx.db());
        if cx.engine().drop_view(cx.op, &ns)? {
            cx.op
                .note_change(|| CatalogChange::DroppedCollection(ns.clone()));
        }
    }
    // What was found done may not be on the disk of the majority yet.
    cx.note_write();
    Ok(())
}
