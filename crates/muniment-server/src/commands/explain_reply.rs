//! What the replies of explain have in common, on a server and at a router.

use crate::context::CommandContext;
use muniment_value::doc;

/// Says which server explains.
pub fn write_server(cx: &mut CommandContext<'_>) {
    let info = doc! {
        "host": muniment_logger::hostname(),
        "port": i32::from(cx.server.address.port),
        "version": crate::server::MONGODB_VERSION,
        "gitVersion": "0000000000000000000000000000000000000000",
    };
    cx.reply.field("serverInfo", info);
    cx.reply.field("serverParameters", doc! {});
}
