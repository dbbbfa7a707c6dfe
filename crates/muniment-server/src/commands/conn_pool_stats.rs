//! `connPoolStats`: the connections that a router keeps to the servers of its cluster. Other servers keep none.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Routed};
use muniment_auth::action::Action;
use muniment_value::{DocBuf, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "connPoolStats",
    doc: "Connections that a router keeps to the servers of its cluster",
    open_fields: true,
    run: |cx| {
        let router = cx.server.router.as_ref();
        let sets = router.map_or_else(Vec::new, |router| router.sets());
        let (mut available, mut created, mut in_use) = (0, 0, 0);
        let (mut hosts, mut names) = (DocBuf::new(), DocBuf::new());
        for set in &sets {
            for of in set.connections() {
                let counts = doc! {
                    "inUse": of.in_use as i32, "available": of.idle as i32, "created": of.created as i32,
                };
                hosts.append(&of.host, counts);
                available += of.idle as i32;
                created += of.created as i32;
                in_use += of.in_use as i32;
            }
            names.append(&set.name, doc! { "hosts": set.text() });
        }
        let w = &mut cx.reply;
        w.field("numClientConnections", available + in_use);
        w.field("numAScopedConnections", 0);
        w.field("totalInUse", in_use);
        w.field("totalAvailable", available);
        // A router leases none, and looks at none in the background.
        w.field("totalLeased", 0);
        w.field("totalCreated", created);
        w.field("totalRefreshing", 0);
        w.field("pools", doc! {});
        w.field("hosts", hosts);
        w.field("replicaSets", names);
        Ok(())
    },
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::ConnPoolStats]))
};
