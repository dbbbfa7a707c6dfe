//! `_shardLeaveDatabase`: a router tells a shard that it holds a database no more, or that it does.

use crate::context::CommandContext;
use crate::distributed::durable;
use crate::registry::CommandSpec;
use muniment_shard::Timestamp;
use muniment_value::args::{Types, req};
use muniment_value::{Code, Error, Result, Value};

/// The command: `{_shardLeaveDatabase: 1, left, at}`, in the database. Operations of routers on a database that was left
/// are refused. `at` is the time at which the router got the right to move the database: a message that comes after one
/// of a later right is refused (117).
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardLeaveDatabase",
    doc: "Internal: a router tells a shard that a database has gone to another one",
    fields: &[req("left", Types::BOOL), req("at", Types::TIMESTAMP)],
    run,
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let left = cx.args.bool("left", false);
    let Some(Value::Timestamp { t, i }) = cx.args.get("at") else {
        return Err(Error::bad_value("a right to move a database has a time"));
    };
    let (db, at) = (cx.db(), Timestamp::new(t, i));
    if !cx.engine().note_moved(db, left, at, cx.op)? {
        return Err(Error::new(
            Code::ConflictingOperationInProgress,
            format!("another router moves the database {db}, or has moved it"),
        ));
    }
    // A message of a later right may come in between, and what it says is to remain.
    loop {
        let now = cx.engine().has_moved(db)?;
        make_guests(cx, now)?;
        if cx.engine().has_moved(db)? == now {
            break;
        }
    }
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
