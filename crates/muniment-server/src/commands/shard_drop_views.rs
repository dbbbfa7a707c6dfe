//! `_shardDropViews`: a router takes views away from a shard that their database has left.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use muniment_exec::CatalogChange;
use muniment_shard::Timestamp;
use muniment_value::args::{Types, req};
use muniment_value::{Code, Doc, Error, Result, Value};

/// The command: `{_shardDropViews: 1, views: [name, …], at}`, in the database. A collection that has the name of one is left
/// alone: it may have come here since, with all its documents. `at` is the time at which the router got the right to move
/// the database: a message that comes after one of a later right is refused (117), since the database may be back.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardDropViews",
    doc: "Internal: a router takes the views of a database away that has left the shard",
    write_concern: true,
    fields: &[req("views", Types::ARRAY), req("at", Types::TIMESTAMP)],
    run,
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let Some(Value::Timestamp { t, i }) = cx.args.get("at") else {
        return Err(Error::bad_value("a right to move a database has a time"));
    };
    if cx.engine().has_moved_after(cx.db(), Timestamp::new(t, i))? {
        return Err(Error::new(
            Code::ConflictingOperationInProgress,
            format!("another router has moved the database {} since", cx.db()),
        ));
    }
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
