//! `$meta`: what a query found out about a document beside its fields. No plan hands such metadata
//! on yet: what MongoDB demands of the query is an error, what may be absent is missing.

use crate::expr::Expr;
use crate::expr::{Arity, OpSpec, Parser};
use muniment_value::{Error, Result, Value};

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec {
    name: "$meta",
    arity: Arity::Custom(parse),
    doc: "Metadata of the document: textScore, indexKey, …",
    pure: false,
    eval: |_, _| Ok(None),
};

/// The kinds that a query may lack.
const OPTIONAL: [&str; 12] = [
    "indexKey",
    "randVal",
    "recordId",
    "score",
    "scoreDetails",
    "searchHighlights",
    "searchScore",
    "searchScoreDetails",
    "searchSequenceToken",
    "sortKey",
    "stream",
    "vectorSearchScore",
];

fn parse(operand: Value<'_>, _: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let Value::String(name) = operand else {
        return Err(Error::location(
            17307,
            format!(
                "$meta only supports string arguments, not {}",
                operand.type_name()
            ),
        ));
    };
    match name {
        "textScore" => unavailable("text score"),
        "geoNearDistance" => unavailable("$geoNear distance"),
        "geoNearPoint" => unavailable("$geoNear point"),
        "timeseriesBucketMinTime" => unavailable("timeseries bucket min time"),
        "timeseriesBucketMaxTime" => unavailable("timeseries bucket max time"),
        name if OPTIONAL.contains(&name) => Ok(Vec::new()),
        name => Err(Error::location(
            17308,
            format!("Unsupported argument to $meta: {name}"),
        )),
    }
}

fn unavailable(what: &str) -> Result<Vec<Expr>> {
    Err(Error::location(
        40218,
        format!("query requires {what} metadata, but it is not available"),
    ))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{}",
            &[
                ("{'$meta': 'indexKey'}", Missing),
                ("{'$meta': 'randVal'}", Missing),
                ("{'$meta': 'textScore'}", Fails(40218)),
                ("{'$meta': 'nope'}", Fails(17308)),
                ("{'$meta': '$x'}", Fails(17308)),
                ("{'$meta': 1}", Fails(17307)),
                ("{'$meta': {'a': 1}}", Fails(17307)),
            ],
        );
    }
}
