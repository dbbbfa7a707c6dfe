//! `reshardCollection`: divides a collection by another shard key.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::sharded::dividing::simple_collation;
use crate::router::sharded::reshard::{ReshardRequest, Spread, reshard};
use muniment_auth::action::Action;
use muniment_shard::ShardKey;
use muniment_shard::catalog::Tag;
use muniment_value::args::{Field, Types, idle, opt, refused, req};
use muniment_value::{Code, Doc, Error, Result, Value, ValueBuf, new_object_id, number};
use std::sync::Arc;

const FIELDS: &[Field] = &[
    req("key", Types::OBJECT),
    opt("unique", Types::SAFE_BOOL),
    opt("numInitialChunks", Types::NUMBER),
    opt("zones", Types::ARRAY),
    opt("collation", Types::OBJECT),
    opt("forceRedistribution", Types::BOOL),
    opt("shardDistribution", Types::ARRAY),
    idle(
        "implicitlyCreateIndex",
        Types::BOOL,
        "an index that begins with the new key is made if there is none",
    ),
    refused("reshardingUUID", Types::BINARY),
    refused("demoMode", Types::BOOL),
    refused("_presetReshardedChunks", Types::ARRAY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "reshardCollection",
    doc: "Divides a collection by another shard key while clients use it",
    fields: FIELDS,
    ..CommandSpec::of_collection(run, Action::ReshardCollection)
};

fn run(cx: &mut CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let key = ShardKey::parse(cx.args.doc("key").unwrap_or(Doc::EMPTY))?;
    if cx.args.bool("unique", false) {
        return Err(Error::bad_value(
            "reshardCollection with unique: true is not supported",
        ));
    }
    let simple = simple_collation(cx)?;
    let chunks = cx
        .args
        .get("numInitialChunks")
        .and_then(number::to_i64_clamped);
    let chunks = match chunks {
        Some(n @ 1..=100_000) => usize::try_from(n).ok(),
        None => None,
        Some(n) => {
            return Err(Error::bad_value(format!(
                "numInitialChunks has to be between 1 and 100000, and is {n}"
            )));
        }
    };
    let zones = cx
        .args
        .array("zones")
        .map(|list| zones(ns, list))
        .transpose()?;
    let request = ReshardRequest {
        ns,
        key: Arc::new(key),
        chunks,
        zones,
        simple,
        forced: cx.args.bool("forceRedistribution", false),
        spread: spread(cx.args.array("shardDistribution"))?,
    };
    reshard(cx, router, &request)
}

/// The ranges of zones: `[{zone, min, max}, …]`.
fn zones(ns: &str, list: Doc<'_>) -> Result<Vec<Tag>> {
    let zone = |v: Value<'_>| {
        let d = v.as_doc()?;
        Some(Tag {
            id: ValueBuf::new(Value::ObjectId(new_object_id())),
            ns: ns.to_string(),
            min: d.get_doc("min")?.to_buf(),
            max: d.get_doc("max")?.to_buf(),
            zone: d.get_str("zone")?.to_string(),
        })
    };
    let wrong = || Error::bad_value("zones are documents {zone, min, max}");
    list.values().map(|v| zone(v).ok_or_else(wrong)).collect()
}

/// The shards that get documents: `[{shard}, …]`, or `[{shard, min, max}, …]`.
fn spread(list: Option<Doc<'_>>) -> Result<Spread> {
    let Some(list) = list else {
        return Ok(Spread::Any);
    };
    let (mut names, mut ranges) = (Vec::new(), Vec::new());
    for v in list.values() {
        let d = v.as_doc().unwrap_or(Doc::EMPTY);
        let shard = d.get_str("shard").unwrap_or_default().to_string();
        match (d.get_doc("min"), d.get_doc("max")) {
            _ if shard.is_empty() => {
                return Err(Error::bad_value(
                    "shardDistribution has documents {shard}, or {shard, min, max}",
                ));
            }
            (Some(min), Some(max)) => ranges.push((shard, min.to_buf(), max.to_buf())),
            (None, None) => names.push(shard),
            _ => {
                return Err(Error::new(
                    Code::InvalidOptions,
                    "a range of shardDistribution has only one of min and max",
                ));
            }
        }
    }
    match (names.is_empty(), ranges.is_empty()) {
        (false, true) => Ok(Spread::Among(names)),
        (true, false) => Ok(Spread::Ranges(ranges)),
        _ => Err(Error::new(
            Code::InvalidOptions,
            "either all documents of shardDistribution have ranges, or none has",
        )),
    }
}
