//! `$unset`: removes fields.

use super::Stage;
use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spread::Spread;
use crate::context::QueryContext;
use crate::projection::Projection;
use muniment_value::{Elem, Error, Result, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$unset",
    doc: "Removes fields.",
    place: Place::UPDATE,
    spread: Spread::Each,
    rights: Rights::Input,
    parse,
};

fn parse(e: Elem<'_>, _: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let mut paths = Vec::new();
    match e.value() {
        Value::String(s) => paths.push(s),
        Value::Array(a) => {
            if a.is_empty() {
                return Err(Error::location(
                    31119,
                    "$unset specification must be a string or an array with at least one field",
                ));
            }
            for v in a.values() {
                paths.push(v.as_str().ok_or_else(|| {
                    Error::location(
                        31120,
                        "$unset specification must be a string or an array containing only string \
                         values",
                    )
                })?);
            }
        }
        _ => {
            return Err(Error::location(
                31002,
                "$unset specification must be a string or an array",
            ));
        }
    }
    if paths.iter().any(|p| p.contains('\0')) {
        return Err(Error::location(
            9_527_900,
            "$unset field names may not contain embedded null bytes",
        ));
    }
    let p = Projection::excluding(paths.into_iter())
        .map_err(|e| e.context("Invalid $unset :: caused by :: "))?;
    stages.push(Stage::Map(Arc::new(p)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_unset() {
        table(&[
            (
                "[{a:1,b:1,c:{d:1,e:1}}]",
                "[{$unset:['a','c.d']}]",
                "[{b:1,c:{e:1}}]",
            ),
            ("[{a:1,b:1}]", "[{$unset:'a'}]", "[{b:1}]"),
            (
                "[]",
                "[{$unset:1}]",
                "31002: $unset specification must be a string or an array",
            ),
            (
                "[]",
                "[{$unset:[]}]",
                "31119: $unset specification must be a string or an array with at least one field",
            ),
            (
                "[]",
                "[{$unset:[1]}]",
                "31120: $unset specification must be a string or an array containing only string values",
            ),
        ]);
    }
}
