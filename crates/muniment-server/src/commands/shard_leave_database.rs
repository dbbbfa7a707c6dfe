//! `_shardLeaveDatabase`: a router tells a shard that it holds a database no more, or that it does.

use crate::context::CommandContext;
use crate::distributed::durable;
use crate::registry::CommandSpec;
use muniment_value::args::{Types, req};
use muniment_value::{Code, Result};

/// The command: `{_shardLeaveDatabase: 1, left}`, in the database. Operations of routers on a database that was left are
/// refused.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardLeaveDatabase",
    doc: "Internal: a router tells a shard that a database has gone to another one",
    fields: &[req("left", Types::BOOL)],
    run,
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let left = cx.args.bool("left", false);
    cx.engine().note_moved(cx.db(), left, cx.op)?;
    make_guests(cx, left)?;
    durable(cx.server, cx.op)
}

/// Says whether what this shard has of the database's collections are guests, of whose drop, indexes and options the
/// other shard's change streams tell.
fn make_guests(cx: &CommandContext<'_>, left: bool) -> Result<()> {
    let store = &cx.engine().store;
    for collection in store.collections(cx.db()) {
        let mut options = (*collection.options()).clone();
        if options.guest == left {
            continue;
        }
        options.guest = left;
        match store.modify_options(&collection, options, &**cx.op) {
            // It was dropped meanwhile.
            Err(e) if e.code() == Code::NamespaceNotFound => {}
            done => done?,
        }
    }
    Ok(())
}
