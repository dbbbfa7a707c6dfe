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
        let (mut available, mut hosts, mut names) = (0, DocBuf::new(), DocBuf::new());
        for set in &sets {
            for (host, idle) in set.idle() {
                available += idle as i32;
                hosts.append(&host, doc! { "available": idle as i32 });
            }
            names.append(&set.name, doc! { "hosts": set.text() });
        }
        let w = &mut cx.reply;
        w.field("numClientConnections", available);
        w.field("numAScopedConnections", 0);
        w.field("totalInUse", 0);
        w.field("totalAvailable", available);
        w.field("totalLeased", 0);
        w.field("totalCreated", 0);
        w.field("totalRefreshing", 0);
        w.field("pools", doc! {});
        w.field("hosts", hosts);
        w.field("replicaSets", names);
        Ok(())
    },
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::ConnPoolStats]))
};
