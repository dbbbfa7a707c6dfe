//! `addShardToZone`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::sharded::zones::update_shard;
use muniment_auth::action::{Action, Actions};
use muniment_value::args::{Field, Types, req};
use muniment_value::{Result, doc};

const FIELDS: &[Field] = &[req("zone", Types::STRING)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "addShardToZone",
    doc: "Adds a shard to a zone",
    fields: FIELDS,
    ..CommandSpec::of_cluster(
        run,
        Needs::Of(|asks| asks.may_on("config.shards", Actions::of(&[Action::Update]))),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let shard = cx.typed_target(Types::STRING)?;
    let zone = cx.args.str("zone").unwrap_or_default();
    let change = doc! { "$addToSet": doc! { "tags": zone } };
    update_shard(cx, router, shard.as_str().unwrap_or_default(), change)
}
