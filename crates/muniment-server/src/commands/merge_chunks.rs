//! `mergeChunks`: makes one chunk of several.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::sharded::split::{bounds_of, merge};
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, req};
use muniment_value::{Doc, Result};

const FIELDS: &[Field] = &[req("bounds", Types::ARRAY)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "mergeChunks",
    doc: "Makes one chunk of several that lie side by side on a shard",
    fields: FIELDS,
    ..CommandSpec::of_collection(run, Action::SplitChunk)
};

fn run(cx: &mut CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let bounds = bounds_of(cx.args.array("bounds").unwrap_or(Doc::EMPTY))?;
    merge(cx, router, ns, bounds)
}
