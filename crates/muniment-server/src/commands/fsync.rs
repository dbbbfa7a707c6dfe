//! `fsync`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_value::Result;
use muniment_value::args::{Field, Types, idle, opt, refused};

const FIELDS: &[Field] = &[
    opt("lock", Types::SAFE_BOOL),
    idle(
        "fsyncLockAcquisitionTimeoutMillis",
        Types::NUMBER,
        "locking waits for the running writes only",
    ),
    refused("async", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "fsync",
    doc: "Flushes everything to the disk; with lock: blocks writers",
    kind: Kind::Admin,
    admin_only: true,
    fields: FIELDS,
    run,
    ..CommandSpec::new(
        Routed::By(crate::router::fsync::sync),
        Needs::cluster(&[Action::Fsync]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let store = &cx.engine().store;
    if cx.args.bool("lock", false) {
        let lock = || store.lock_writes(&**cx.op);
        let node = cx.server.replica_set.as_ref().and_then(|set| set.node());
        let depth = match node {
            Some(node) => node.while_still(&**cx.op, lock)?,
            None => lock()?,
        };
        cx.reply.field(
            "info",
            "now locked against writes, use db.fsyncUnlock() to unlock",
        );
        cx.reply.field("lockCount", i64::from(depth));
        cx.reply
            .field("seeAlso", "http://dochub.mongodb.org/core/fsynccommand");
        return Ok(());
    }
    store.sync()?;
    cx.reply.field("numFiles", 1);
    Ok(())
}
