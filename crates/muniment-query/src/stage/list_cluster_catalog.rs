//! `$listClusterCatalog`: the collections of a database, or of all databases.

use super::registry::{Input, Place, Spec};
use super::rights::{Right, Rights};
use super::spread::Spread;
use super::{Stage, idl, report};
use crate::context::QueryContext;
use muniment_value::{Elem, Error, Result, Value};

pub(crate) const SPEC: Spec = Spec {
    name: "$listClusterCatalog",
    doc: "One document per collection of the database (of all databases on admin).",
    place: Place::REPORT.needs(Input::Database),
    spread: Spread::Alone,
    rights: Rights::Instead(|_, right| {
        right(Right::Collection("listCollections"));
    }),
    parse,
};

const FIELDS: &[&str] = &["shards", "tracked", "balancingConfiguration"];

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::location(
            9_621_302,
            format!(
                "The $listClusterCatalog stage specification must be an object. Found: {}",
                e.value().type_name()
            ),
        ));
    };
    idl::only("$listClusterCatalog", d, FIELDS)?;
    for name in FIELDS {
        idl::boolean("$listClusterCatalog", d, name)?;
    }
    stages.push(report::stage("$listClusterCatalog", d, ctx));
    Ok(())
}
