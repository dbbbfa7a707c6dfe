//! `$meta`: the metadata that a query has collected about a document.

use crate::expr::Expr;
use crate::expr::{Arity, OpSpec, Parser};
use crate::meta::Meta;
use muniment_value::{Error, Result, Value};

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec {
    name: NAME,
    arity: Arity::Custom(parse),
    doc: "Metadata of the document: textScore, indexKey, …",
    pure: false,
    eval: |args, ctx| {
        let kind = args.first().and_then(Expr::as_constant);
        let kind = kind.and_then(|v| v.as_str()).and_then(Meta::parse);
        Ok(kind.and_then(|m| m.of(ctx.root)))
    },
};

/// The operator's name.
pub(crate) const NAME: &str = "$meta";

fn parse(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let Value::String(name) = operand else {
        return Err(Error::location(
            17307,
            format!(
                "$meta only supports string arguments, not {}",
                operand.type_name()
            ),
        ));
    };
    let kind = Meta::parse(name)
        .ok_or_else(|| Error::location(17308, format!("Unsupported argument to $meta: {name}")))?;
    p.context().metadata.ask(kind)?;
    Ok(vec![Expr::constant(operand)])
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
