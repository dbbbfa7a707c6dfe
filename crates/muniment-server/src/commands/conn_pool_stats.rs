//! `connPoolStats`: a standalone opens no connections itself.

use crate::auth::Needs;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;
use muniment_value::doc;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "connPoolStats",
    doc: "Connections that the server opened to others: none",
    open_fields: true,
    run: |cx| {
        let w = &mut cx.reply;
        w.field("numClientConnections", 0);
        w.field("numAScopedConnections", 0);
        w.field("totalInUse", 0);
        w.field("totalAvailable", 0);
        w.field("totalLeased", 0);
        w.field("totalCreated", 0);
        w.field("totalRefreshing", 0);
        w.field("pools", doc! {});
        w.field("hosts", doc! {});
        w.field("replicaSets", doc! {});
        Ok(())
    },
    ..CommandSpec::needing(Needs::cluster(&[Action::ConnPoolStats]))
};
