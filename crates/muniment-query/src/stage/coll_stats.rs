//! `$collStats`: sizes, latencies and counts of a collection.

use super::registry::{Place, Spec};
use super::rights::{Right, Rights};
use super::spread::Spread;
use super::{Stage, idl, report};
use crate::context::QueryContext;
use muniment_value::{Doc, DocBuf, Elem, Error, Result, Value, number};

pub(crate) const SPEC: Spec = Spec {
    name: "$collStats",
    doc: "Sizes, latencies and counts of the collection, in one document.",
    place: Place::REPORT,
    spread: Spread::Each,
    rights: Rights::Instead(|_, right| right(Right::Collection("collStats"))),
    parse,
};

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::location(
            5_447_000,
            format!(
                "$collStats must take a nested object but found: {}",
                crate::bytes::show(e)
            ),
        ));
    };
    // If a field occurs more than once, the first one that is not null counts.
    let mut operand = DocBuf::new();
    for o in d {
        let name = o.name();
        if !["latencyStats", "storageStats", "count", "queryExecStats"].contains(&name) {
            return Err(Error::location(
                40415,
                format!("BSON field '$collStats.{name}' is an unknown field."),
            ));
        }
        match o.value() {
            Value::Null => {}
            Value::Document(options) => {
                check(name, options)?;
                if operand.as_doc().get(name).is_none() {
                    operand.append(name, options);
                }
            }
            v => return Err(idl::wrong_type("$collStats", name, v, "object")),
        }
    }
    stages.push(report::stage("$collStats", operand.as_doc(), ctx));
    Ok(())
}

fn check(name: &str, options: Doc<'_>) -> Result<()> {
    match name {
        "latencyStats" => {
            idl::only("$collStats.latencyStats", options, &["histograms"])?;
            idl::boolean("$collStats.latencyStats", options, "histograms")?;
        }
        "storageStats" => {
            scale(options)?;
        }
        _ if !options.is_empty() => {
            return Err(Error::location(
                31170,
                format!(
                    "{name} argument must be an empty object, but got {}",
                    Value::Document(options).to_display()
                ),
            ));
        }
        _ => {}
    }
    Ok(())
}

/// The `scale` of `storageStats`: 1 if it is absent, and at most 2³¹ − 1.
///
/// # Errors
/// 14 for a value that is not a number, 2 for a number below 1.
pub fn scale(options: Doc<'_>) -> Result<i32> {
    let v = match options.get("scale") {
        None | Some(Value::Null | Value::Undefined) => return Ok(1),
        Some(v) if v.is_number() => v,
        Some(v) => {
            return Err(idl::wrong_type(
                "$collStats.storageStats",
                "scale",
                v,
                "[long, int, decimal, double']",
            ));
        }
    };
    let n = number::to_i64_clamped(v).unwrap_or(0);
    if n < 1 {
        return Err(Error::bad_value(format!(
            "BSON field '$collStats.storageStats.scale' value must be >= 1, actual value '{n}'"
        )));
    }
    Ok(i32::try_from(n).unwrap_or(i32::MAX))
}
