//! `$documents`: the documents of an array expression, instead of a collection's.

use super::registry::{Place, Spec};
use super::{DocStream, Stage, StageOp, Ticker};
use crate::context::{QueryContext, Runtime};
use crate::expr::arena::with_arena;
use crate::expr::{EvalContext, Expr};
use bytes::Bytes;
use muniment_value::{Doc, Elem, Error, Result, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$documents",
    doc: "The documents of an array expression, instead of a collection's.",
    place: Place::SOURCE,
    parse,
};

#[derive(Debug)]
struct Documents {
    docs: Vec<Bytes>,
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let expr = Expr::parse(e.value(), ctx)?;
    let docs = with_arena(|arena| {
        let Some(Value::Array(a)) = expr.eval(&EvalContext::new(Doc::EMPTY, arena))? else {
            return Err(Error::location(
                5_858_203,
                "an array is expected for the $documents stage",
            ));
        };
        a.values()
            .map(|v| match v {
                Value::Document(d) => Ok(Bytes::copy_from_slice(d.as_bytes())),
                other => Err(Error::location(
                    40228,
                    format!(
                        "all elements of $documents must be objects, but found {}",
                        other.to_display()
                    ),
                )),
            })
            .collect::<Result<Vec<Bytes>>>()
    })?;
    stages.push(Stage::Other(Arc::new(Documents { docs })));
    Ok(())
}

impl StageOp for Documents {
    fn open(self: Arc<Self>, _: Box<dyn DocStream>, rt: &Runtime) -> Result<Box<dyn DocStream>> {
        Ok(Box::new(DocumentsStream {
            spec: self,
            at: 0,
            ticker: Ticker::new(rt),
        }))
    }
}

struct DocumentsStream {
    spec: Arc<Documents>,
    at: usize,
    ticker: Ticker,
}

impl DocStream for DocumentsStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        self.ticker.tick()?;
        let next = self.spec.docs.get(self.at).cloned();
        self.at += usize::from(next.is_some());
        Ok(next)
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
