//! `$replaceRoot` and `$replaceWith`: replace the document with one that is computed from it.

use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spread::Spread;
use super::{Stage, Transform};
use crate::context::QueryContext;
use crate::expr::arena::with_arena;
use crate::expr::{EvalContext, Expr};
use crate::running::Work;
use muniment_value::{Doc, Elem, Error, Result, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$replaceRoot",
    doc: "Replaces each document by one computed from it.",
    place: Place::UPDATE,
    spread: Spread::Each,
    rights: Rights::Input,
    parse: parse_root,
};

pub(crate) const WITH: Spec = Spec {
    name: "$replaceWith",
    doc: "Replaces each document by one computed from it; $replaceRoot without its newRoot.",
    place: Place::UPDATE,
    spread: Spread::Each,
    rights: Rights::Input,
    parse: parse_with,
};

#[derive(Debug)]
struct ReplaceRoot {
    expr: Expr,
    /// The name of the expression in messages.
    what: &'static str,
}

fn parse_root(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::location(
            40229,
            format!(
                "expected an object as specification for $replaceRoot stage, got {}",
                e.value().type_name()
            ),
        ));
    };
    if let Some(other) = d.iter().find(|o| o.name() != "newRoot") {
        return Err(Error::location(
            40415,
            format!(
                "BSON field '$replaceRoot.{}' is an unknown field.",
                other.name()
            ),
        ));
    }
    let Some(v) = d.get("newRoot") else {
        return Err(Error::location(
            40414,
            "BSON field '$replaceRoot.newRoot' is missing but a required field",
        ));
    };
    push(v, "'newRoot' expression ", ctx, stages)
}

fn parse_with(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    push(e.value(), "'replacement document' expression ", ctx, stages)
}

fn push(
    v: Value<'_>,
    what: &'static str,
    ctx: &QueryContext,
    stages: &mut Vec<Stage>,
) -> Result<()> {
    stages.push(Stage::Map(Arc::new(ReplaceRoot {
        expr: Expr::parse(v, ctx)?,
        what,
    })));
    Ok(())
}

impl Transform for ReplaceRoot {
    fn transform(&self, doc: Doc<'_>, out: &mut Vec<u8>, work: Work<'_>) -> Result<()> {
        with_arena(work, |arena| {
            let cx = EvalContext::new(doc, arena);
            match self.expr.eval(&cx)? {
                Some(Value::Document(new)) => {
                    out.extend_from_slice(new.as_bytes());
                    Ok(())
                }
                other => Err(Error::location(
                    40228,
                    format!(
                        "{} must evaluate to an object, but resulting value was: {}. Type of \
                         resulting value: '{}'. Input document: {}",
                        self.what,
                        other.map_or("MISSING".to_string(), |v| v.to_display()),
                        other.map_or("missing", |v| v.type_name()),
                        Value::Document(doc).to_display()
                    ),
                )),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_replace_root() {
        table(&[
            ("[{a:{x:1}}]", "[{$replaceRoot:{newRoot:'$a'}}]", "[{x:1}]"),
            ("[{a:{x:1}}]", "[{$replaceWith:{y:'$a.x'}}]", "[{y:1}]"),
            (
                "[{a:1}]",
                "[{$replaceWith:'$a'}]",
                "40228: 'replacement document' expression  must evaluate to an object, but resulting \
              value was: 1. Type of resulting value: 'int'. Input document: { a: 1 }",
            ),
            (
                "[{a:1}]",
                "[{$replaceRoot:{newRoot:'$b'}}]",
                "40228: 'newRoot' expression  must evaluate to an object, but resulting value was: \
              MISSING. Type of resulting value: 'missing'. Input document: { a: 1 }",
            ),
            (
                "[]",
                "[{$replaceRoot:1}]",
                "40229: expected an object as specification for $replaceRoot stage, got int",
            ),
            (
                "[]",
                "[{$replaceRoot:{x:1}}]",
                "40415: BSON field '$replaceRoot.x' is an unknown field.",
            ),
            (
                "[]",
                "[{$replaceRoot:{}}]",
                "40414: BSON field '$replaceRoot.newRoot' is missing but a required field",
            ),
        ]);
    }
}
