//! `listShards`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Routed};
use crate::router::Router;
use crate::router::configuration::read;
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{ArrayBuf, DocBuf, Result};

const FIELDS: &[Field] = &[opt("filter", Types::OBJECT)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "listShards",
    aliases: &["listshards"],
    doc: "The shards of the cluster",
    of_router: true,
    admin_only: true,
    fields: FIELDS,
    ..CommandSpec::new(Routed::By(run), Needs::cluster(&[Action::ListShards]))
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let filter = cx
        .args
        .doc("filter")
        .map_or_else(DocBuf::new, |d| d.to_buf());
    let all: ArrayBuf = read(&**cx.op, router, "shards", filter)?
        .into_iter()
        .collect();
    cx.reply.field("shards", all);
    Ok(())
}
