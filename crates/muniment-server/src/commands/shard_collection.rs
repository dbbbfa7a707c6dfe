//! `shardCollection`: divides a collection over the shards.

use super::clustering::time_series;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::sharded::dividing::{ShardRequest, simple_collation};
use crate::router::sharded::shard::shard;
use crate::router::sharded::whole;
use crate::uuid::uuid_value;
use muniment_auth::action::{Action, Actions};
use muniment_shard::ShardKey;
use muniment_value::args::{Field, Types, idle, opt, refused, req};
use muniment_value::{Code, Doc, Error, Result, number};
use std::sync::Arc;

const FIELDS: &[Field] = &[
    req("key", Types::OBJECT),
    opt("unique", Types::SAFE_BOOL),
    opt("numInitialChunks", Types::NUMBER),
    opt("collation", Types::OBJECT),
    idle(
        "presplitHashedZones",
        Types::SAFE_BOOL,
        "the chunks of an empty collection begin and end where zones do in any case",
    ),
    idle(
        "enforceUniquenessCheck",
        Types::SAFE_BOOL,
        "an index that keeps the key unique is asked for with `unique`",
    ),
    opt("timeseries", Types::OBJECT),
    refused("implicitlyCreateIndex", Types::BOOL),
    refused("initialSplitPoints", Types::ARRAY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "shardCollection",
    aliases: &["shardcollection"],
    doc: "Divides a collection over the shards by a key",
    fields: FIELDS,
    ..CommandSpec::of_cluster(
        run,
        Needs::Of(|asks| {
            let ns = asks
                .request
                .body
                .get_str(asks.request.name)
                .unwrap_or_default();
            asks.may_on(ns, Actions::of(&[Action::EnableSharding]))
        }),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let ns = cx.text_target()?;
    let (db, name) = namespace::split(ns)?;
    namespace::check_create(db, name)?;
    if ["admin", "config", "local"].contains(&db) || name.starts_with("system.") {
        return Err(Error::new(
            Code::IllegalOperation,
            format!("can't shard system namespace {ns}"),
        ));
    }
    let key = ShardKey::parse(cx.args.doc("key").unwrap_or(Doc::EMPTY))?;
    let unique = cx.args.bool("unique", false);
    if unique && key.is_hashed() {
        return Err(Error::new(
            Code::InvalidOptions,
            "hashed shard keys cannot be declared unique.",
        ));
    }
    let chunks = cx
        .args
        .get("numInitialChunks")
        .and_then(number::to_i64_clamped);
    let simple = simple_collation(cx)?;
    let series = cx.args.doc("timeseries").map(time_series).transpose()?;
    whole::bring_home(cx, router, ns)?;
    let request = ShardRequest {
        ns,
        key: Arc::new(key),
        unique,
        chunks: chunks.and_then(|n| usize::try_from(n).ok()),
        simple,
        unsplittable: false,
        series,
    };
    let uuid = shard(cx, router, &request)?;
    cx.reply.field("collectionsharded", ns);
    cx.reply.field("collectionUUID", uuid_value(&uuid));
    Ok(())
}
