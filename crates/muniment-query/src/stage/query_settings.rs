//! `$querySettings` and `$queryStats`: the settings that administrators made for query shapes, and the
//! statistics of query shapes.

use super::registry::{Input, Place, Spec};
use super::rights::{Right, Rights};
use super::spread::Spread;
use super::{Stage, idl, report};
use crate::context::QueryContext;
use muniment_value::{Elem, Error, Result, Value};

pub(crate) const SPEC: Spec = Spec {
    name: "$querySettings",
    doc: "One document per query setting.",
    place: Place::REPORT.needs(Input::Nothing),
    spread: Spread::Alone,
    rights: Rights::Instead(|_, right| right(Right::Cluster("querySettings"))),
    parse,
};

pub(crate) const STATS: Spec = Spec {
    name: "$queryStats",
    doc: "One document per query shape that was counted; on the database admin.",
    place: Place::REPORT.needs(Input::AdminDatabase),
    spread: Spread::Alone,
    rights: Rights::Instead(|_, right| right(Right::Cluster("queryStatsRead"))),
    parse: parse_stats,
};

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::location(
            7_746_800,
            "$querySettings stage expects a document as argument",
        ));
    };
    idl::only("$querySettings", d, &["showDebugQueryShape"])?;
    idl::boolean("$querySettings", d, "showDebugQueryShape")?;
    stages.push(report::stage("$querySettings", d, ctx));
    Ok(())
}

fn parse_stats(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::failed_to_parse(format!(
            "$queryStats value must be an object. Found: {}",
            e.value().type_name()
        )));
    };
    idl::only("$queryStats", d, &["transformIdentifiers"])?;
    if let Some(t) = idl::document("$queryStats", d, "transformIdentifiers")? {
        let within = "$queryStats.transformIdentifiers";
        idl::only(within, t, &["algorithm", "hmacKey"])?;
        match idl::string(within, t, "algorithm")? {
            None => return Err(idl::missing(within, "algorithm")),
            Some("hmac-sha-256") => {}
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "Enumeration value '{other}' for field '{within}.algorithm' is not a valid \
                     value."
                )));
            }
        }
    }
    stages.push(report::stage("$queryStats", d, ctx));
    Ok(())
}
