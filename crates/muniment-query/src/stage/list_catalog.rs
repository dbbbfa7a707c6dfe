//! `$listCatalog`: the catalog's entry of a collection, or of all collections.

use super::registry::{Input, Place, Spec};
use super::rights::{Right, Rights};
use super::spread::Spread;
use super::{Stage, report};
use crate::context::QueryContext;
use muniment_value::{Elem, Error, Result, Value};

pub(crate) const SPEC: Spec = Spec {
    name: "$listCatalog",
    doc: "The catalog's entry of the collection; on admin those of all collections and views.",
    place: Place::REPORT.needs(Input::CollectionOrAdmin),
    spread: Spread::Alone,
    rights: Rights::Instead(|_, right| {
        right(Right::Cluster("listDatabases"));
        right(Right::Collection("listCollections"));
        right(Right::Collection("listIndexes"));
    }),
    parse,
};

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    match e.value() {
        Value::Document(d) if d.is_empty() => {
            stages.push(report::stage("$listCatalog", d, ctx));
            Ok(())
        }
        _ => Err(Error::location(
            6_200_600,
            "The $listCatalog stage specification must be an empty object",
        )),
    }
}
