//! `$documents`: literal documents.

use super::registry::{Input, Place, Spec};
use super::report::Documents;
use super::rights::Rights;
use super::spread::Spread;
use super::{DocStream, Stage, StageOp};
use crate::context::{QueryContext, Runtime};
use crate::expr::{EvalContext, Expr, arena};
use crate::running::Task;
use bytes::Bytes;
use muniment_value::{Doc, Elem, Error, Result, Value};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$documents",
    doc: "Gives the documents that an expression makes.",
    place: Place::SOURCE.needs(Input::Nothing),
    spread: Spread::Alone,
    rights: Rights::Instead(|_, _| {}),
    parse,
};

#[derive(Debug)]
struct Literal(Expr);

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let expr = Expr::parse(e.value(), ctx)?;
    // A constant of the wrong type is refused at once.
    if let Some(v) = expr.as_constant() {
        documents(Some(v))?;
    }
    stages.push(Stage::Other(Arc::new(Literal(expr))));
    Ok(())
}

fn documents(v: Option<Value<'_>>) -> Result<VecDeque<Bytes>> {
    let Some(Value::Array(items)) = v else {
        return Err(Error::location(
            5_858_203,
            "an array is expected for the $documents stage",
        ));
    };
    items
        .values()
        .map(|v| match v {
            Value::Document(d) => Ok(Bytes::copy_from_slice(d.as_bytes())),
            v => Err(Error::location(
                40228,
                format!(
                    "all elements of $documents must be objects, but found {}",
                    v.to_display()
                ),
            )),
        })
        .collect()
}

impl StageOp for Literal {
    fn open(self: Arc<Self>, _: Box<dyn DocStream>, rt: &Runtime) -> Result<Box<dyn DocStream>> {
        let task = Task::of(rt.interrupt.clone());
        let docs = arena::with_arena(task.work(), |a| {
            let eval = EvalContext::new(Doc::EMPTY, a);
            documents(self.0.eval(&eval)?)
        })?;
        Ok(Box::new(Documents(docs)))
    }

    fn is_source(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_documents() {
        table(&[
            ("[]", "[{$documents:[{a:1},{a:2}]}]", "[{a:1},{a:2}]"),
            (
                "[]",
                "[{$documents:{$map:{input:[1,2],in:{x:'$$this'}}}},{$match:{x:2}}]",
                "[{x:2}]",
            ),
            (
                "[]",
                "[{$documents:5}]",
                "5858203: an array is expected for the $documents stage",
            ),
            (
                "[]",
                "[{$documents:[1]}]",
                "40228: all elements of $documents must be objects, but found 1",
            ),
        ]);
    }
}
