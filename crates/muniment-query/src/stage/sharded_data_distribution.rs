//! `$shardedDataDistribution`: how much each shard has of the sharded collections.

use super::registry::{Input, Place, Spec};
use super::rights::{Right, Rights};
use super::spread::Spread;
use super::{Stage, report};
use crate::context::QueryContext;
use muniment_value::{Elem, Error, Result, Value};

pub(crate) const SPEC: Spec = Spec {
    name: "$shardedDataDistribution",
    doc: "One document per sharded collection, at a router: what each shard has of it.",
    place: Place::REPORT.needs(Input::AdminDatabase),
    spread: Spread::Alone,
    rights: Rights::Instead(|_, right| {
        right(Right::Cluster("shardedDataDistribution"));
    }),
    parse,
};

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    match e.value() {
        Value::Document(d) if d.is_empty() => {
            stages.push(report::stage("$shardedDataDistribution", d, ctx));
            Ok(())
        }
        _ => Err(Error::location(
            6_789_100,
            "The $shardedDataDistribution stage specification must be an empty object",
        )),
    }
}
