//! `$currentOp`: the operations that the server is running.

use super::registry::{Input, Place, Spec};
use super::rights::{Right, Rights};
use super::spread::Spread;
use super::{Stage, idl, report};
use crate::context::QueryContext;
use muniment_value::{Elem, Error, Result, Value};

pub(crate) const SPEC: Spec = Spec {
    name: "$currentOp",
    doc: "One document per running operation, and if asked for per idle connection and cursor.",
    place: Place::REPORT.needs(Input::AdminDatabase),
    spread: Spread::Alone,
    rights: Rights::Instead(|operand, right| {
        let all = operand.as_doc().and_then(|d| d.get("allUsers"));
        if all.is_some_and(|v| v.truthy()) {
            right(Right::Cluster("inprog"));
        }
    }),
    parse,
};

const FIELDS: &[&str] = &[
    "allUsers",
    "idleConnections",
    "idleCursors",
    "idleSessions",
    "localOps",
    "targetAllNodes",
    "truncateOps",
];

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::type_mismatch(format!(
            "BSON field '$currentOp' is the wrong type '{}', expected type 'object'",
            e.value().type_name()
        )));
    };
    idl::only("$currentOp", d, FIELDS)?;
    for name in FIELDS {
        idl::boolean("$currentOp", d, name)?;
    }
    if matches!(d.get("targetAllNodes"), Some(Value::Bool(true))) {
        return Err(Error::failed_to_parse(
            "The 'targetAllNodes' parameter of the $currentOp stage cannot be specified as 'true' \
             when not running against a sharded cluster",
        ));
    }
    stages.push(report::stage("$currentOp", d, ctx));
    Ok(())
}
