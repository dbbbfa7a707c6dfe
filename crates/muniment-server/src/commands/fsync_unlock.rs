//! `fsyncUnlock`.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "fsyncUnlock",
    doc: "Lets writers go on after fsync with lock",
    open_fields: true,
    kind: Kind::Admin,
    admin_only: true,
    run: |cx| {
        let depth = cx.engine().store.unlock_writes(&**cx.op)?;
        if let Some(node) = cx.server.replica_set.as_ref().and_then(|set| set.node()) {
            // Wakes the driver, so that it appends the records that were set aside during the lock.
            node.inbox.look();
        }
        cx.reply.field("info", "fsyncUnlock completed");
        cx.reply.field("lockCount", i64::from(depth));
        Ok(())
    },
    ..CommandSpec::new(
        Routed::By(crate::router::fsync::unlock),
        Needs::cluster(&[Action::Unlock]),
    )
};
