//! `getShardMap`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Routed};
use crate::router::Router;
use muniment_auth::action::Action;
use muniment_value::{DocBuf, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "getShardMap",
    doc: "The addresses of the configuration and of the shards",
    of_router: true,
    admin_only: true,
    ..CommandSpec::new(Routed::By(run), Needs::cluster(&[Action::GetShardMap]))
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let mut map = DocBuf::new();
    map.append("config", router.config.text());
    for (name, set) in router.catalog.shards(&**cx.op, router)? {
        map.append(&name, set.text());
    }
    cx.reply.field("map", map);
    Ok(())
}
