//! `$indexStats`: how often each index was used.

use super::registry::{Place, Spec};
use super::rights::{Right, Rights};
use super::spread::Spread;
use super::{Stage, report};
use crate::context::QueryContext;
use muniment_value::{Doc, Elem, Error, Result, Value};

pub(crate) const SPEC: Spec = Spec {
    name: "$indexStats",
    doc: "One document per index of the collection: how often it was used, and since when.",
    place: Place::REPORT,
    spread: Spread::Each,
    rights: Rights::Instead(|_, right| right(Right::Collection("indexStats"))),
    parse,
};

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    match e.value() {
        Value::Document(d) if d.is_empty() => {}
        _ => {
            return Err(Error::location(
                28803,
                "The $indexStats stage specification must be an empty object",
            ));
        }
    }
    stages.push(report::stage("$indexStats", Doc::EMPTY, ctx));
    Ok(())
}
