//! `$addFields`, also called `$set`: computes fields and keeps the others.

use super::Stage;
use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spread::Spread;
use crate::context::QueryContext;
use crate::projection::Projection;
use muniment_value::{Elem, Error, Result, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$addFields",
    doc: "Computes fields and keeps the others.",
    place: Place::UPDATE,
    spread: Spread::Each,
    rights: Rights::Input,
    parse,
};

pub(crate) const SET: Spec = Spec {
    name: "$set",
    doc: "Another name of $addFields.",
    place: Place::UPDATE,
    spread: Spread::Each,
    rights: Rights::Input,
    parse,
};

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::location(
            40272,
            format!(
                "{} specification stage must be an object, got {}",
                e.name(),
                e.value().type_name()
            ),
        ));
    };
    let p = Projection::parse_add_fields(d, ctx).map_err(|err| {
        let err = match err.code().0 {
            31249 | 31250 => Error::location(
                40176,
                format!(
                    "specification contains two conflicting paths. {}: {}",
                    err.message(),
                    e.value().to_display()
                ),
            ),
            _ => err,
        };
        err.parsing_context(&format!("Invalid {} :: caused by :: ", e.name()))
    })?;
    stages.push(Stage::Map(Arc::new(p)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_add_fields() {
        table(&[
            (
                "[{a:1}]",
                "[{$addFields:{b:{$add:['$a',1]}}}]",
                "[{a:1,b:2}]",
            ),
            ("[{a:1,b:1}]", "[{$set:{a:7}}]", "[{a:7,b:1}]"),
            ("[{a:{x:1}}]", "[{$set:{'a.y':2}}]", "[{a:{x:1,y:2}}]"),
            (
                "[]",
                "[{$set:5}]",
                "40272: $set specification stage must be an object, got int",
            ),
        ]);
    }
}
