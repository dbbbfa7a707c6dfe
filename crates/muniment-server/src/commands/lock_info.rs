//! `lockInfo`.
//!
//! There is no lock manager: records are latched only for the moment of their write. The one lock that can be
//! held for long is that of fsyncLock.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Routed};
use muniment_auth::action::Action;
use muniment_value::{ArrayBuf, array, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "lockInfo",
    doc: "Locks that are held",
    admin_only: true,
    run: |cx| {
        let mut locks = ArrayBuf::new();
        if cx.engine().store.write_lock_depth() > 0 {
            locks.push(doc! {
                "resourceId": "{1: Global, 1}",
                "granted": array![doc! {
                    "mode": "S",
                    "convertMode": "NONE",
                    "enqueueAtFront": false,
                    "compatibleFirst": false,
                    "debugInfo": "fsyncLock",
                }],
                "pending": array![],
            });
        }
        cx.reply.field("lockInfo", locks);
        Ok(())
    },
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::ServerStatus]))
};
