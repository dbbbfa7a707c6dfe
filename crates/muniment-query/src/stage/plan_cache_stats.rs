//! `$planCacheStats`: the cached plans of a collection.

use super::registry::{Place, Spec};
use super::rights::{Right, Rights};
use super::spread::Spread;
use super::{Stage, report};
use crate::context::QueryContext;
use muniment_value::{Doc, Elem, Error, Result, Value};

pub(crate) const SPEC: Spec = Spec {
    name: "$planCacheStats",
    doc: "One document per plan that is cached for the collection.",
    place: Place::REPORT,
    spread: Spread::Each,
    rights: Rights::Instead(|_, right| right(Right::Collection("planCacheRead"))),
    parse,
};

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::failed_to_parse(
            "$planCacheStats value must be an object.",
        ));
    };
    if d.iter().any(|o| o.name() != "allHosts") || d.count() > 1 {
        return Err(Error::failed_to_parse(
            "$planCacheStats parameters object may contain only 'allHosts', once",
        ));
    }
    match d.get("allHosts") {
        None | Some(Value::Bool(false)) => {}
        Some(Value::Bool(true)) => {
            return Err(Error::location(
                4_503_200,
                "$planCacheStats stage supports allHosts parameter only for sharded clusters",
            ));
        }
        Some(v) => {
            return Err(Error::location(
                13111,
                format!("wrong type for field (allHosts) {} != bool", v.type_name()),
            ));
        }
    }
    stages.push(report::stage("$planCacheStats", Doc::EMPTY, ctx));
    Ok(())
}
