//! `unshardCollection`: brings a divided collection together on one shard.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::sharded::movement::refuse_shard;
use crate::router::sharded::whole;
use muniment_auth::action::Action;
use muniment_value::Result;
use muniment_value::args::{Field, Types, opt};

const FIELDS: &[Field] = &[opt("toShard", Types::STRING)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "unshardCollection",
    doc: "Brings a divided collection together on one shard",
    fields: FIELDS,
    ..CommandSpec::of_collection(run, Action::UnshardCollection)
};

fn run(cx: &mut CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let to = cx.args.str("toShard");
    if let Some(to) = to {
        refuse_shard(cx, router, to)?;
    }
    whole::unshard(cx, router, ns, to)
}
