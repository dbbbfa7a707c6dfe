//! `refineCollectionShardKey`: gives the shard key of a collection more fields.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::sharded::refine::refine;
use muniment_auth::action::Action;
use muniment_shard::ShardKey;
use muniment_value::args::{Field, Types, opt, req};
use muniment_value::{Doc, Result};
use std::sync::Arc;

const FIELDS: &[Field] = &[
    req("key", Types::OBJECT),
    opt("enforceUniquenessCheck", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "refineCollectionShardKey",
    doc: "Gives the shard key of a divided collection more fields",
    fields: FIELDS,
    ..CommandSpec::of_collection(run, Action::RefineCollectionShardKey)
};

fn run(cx: &mut CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let key = ShardKey::parse(cx.args.doc("key").unwrap_or(Doc::EMPTY))?;
    let keeps_unique = cx.args.bool("enforceUniquenessCheck", true);
    refine(cx, router, ns, &Arc::new(key), keeps_unique)
}
