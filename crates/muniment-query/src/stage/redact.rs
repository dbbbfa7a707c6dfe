//! `$redact`: for each level of a document, an expression decides to keep it, remove it, or look into it.

use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spread::Spread;
use super::{DocStream, Stage, StageOp, Ticker};
use crate::bytes::{IndexName, close, head, open, put};
use crate::context::{QueryContext, Runtime};
use crate::expr::arena::with_arena;
use crate::expr::{EvalContext, Expr};
use crate::meta::carry;
use crate::running::Work;
use bytes::Bytes;
use muniment_value::{Doc, Elem, Error, Result, Type, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$redact",
    doc: "Keeps, cuts out or looks into each level of a document.",
    place: Place::ANYWHERE,
    spread: Spread::Each,
    rights: Rights::Input,
    parse,
};

/// The variables of the expression, in the order in which they are bound. CURRENT is the level.
const VARIABLES: [&str; 4] = ["DESCEND", "PRUNE", "KEEP", "CURRENT"];

#[derive(Debug)]
struct Redact {
    expr: Expr,
}

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    stages.push(Stage::Other(Arc::new(Redact {
        expr: Expr::parse_with(e.value(), &VARIABLES, ctx)?,
    })));
    Ok(())
}

/// The expression's decision about a level.
enum Verdict {
    Keep,
    Prune,
    Descend,
}

impl Redact {
    fn verdict(&self, root: Doc<'_>, level: Doc<'_>, work: Work<'_>) -> Result<Verdict> {
        with_arena(work, |arena| {
            let cx = EvalContext::new(root, arena)
                .bind(Some(Value::String("descend")))
                .bind(Some(Value::String("prune")))
                .bind(Some(Value::String("keep")))
                .bind(Some(Value::Document(level)));
            match self.expr.eval(&cx)? {
                Some(Value::String("keep")) => Ok(Verdict::Keep),
                Some(Value::String("prune")) => Ok(Verdict::Prune),
                Some(Value::String("descend")) => Ok(Verdict::Descend),
                other => Err(Error::location(
                    17053,
                    format!(
                        "$redact's expression should not return anything aside from the variables \
                         $$KEEP, $$DESCEND, and $$PRUNE, but returned {}",
                        other.map_or("MISSING".to_string(), |v| v.to_display())
                    ),
                )),
            }
        })
    }

    /// Appends the remaining part of `level`. Returns false (and appends nothing) if it is removed.
    fn level(
        &self,
        root: Doc<'_>,
        level: Doc<'_>,
        out: &mut Vec<u8>,
        work: Work<'_>,
    ) -> Result<bool> {
        match self.verdict(root, level, work)? {
            Verdict::Prune => return Ok(false),
            Verdict::Keep => {
                out.extend_from_slice(level.as_bytes());
                return Ok(true);
            }
            Verdict::Descend => {}
        }
        let start = open(out);
        for e in level {
            self.element(root, e.name_bytes(), e.value(), out, work)?;
        }
        close(out, start);
        Ok(true)
    }

    /// Appends the remaining part of an element. Returns false if it is removed.
    fn element(
        &self,
        root: Doc<'_>,
        name: &[u8],
        value: Value<'_>,
        out: &mut Vec<u8>,
        work: Work<'_>,
    ) -> Result<bool> {
        let before = out.len();
        match value {
            Value::Document(d) => {
                head(out, Type::Document, name);
                if !self.level(root, d, out, work)? {
                    out.truncate(before);
                    return Ok(false);
                }
            }
            Value::Array(a) => {
                head(out, Type::Array, name);
                let start = open(out);
                let mut n = 0;
                for v in a.values() {
                    if self.element(root, IndexName::new(n).as_bytes(), v, out, work)? {
                        n += 1;
                    }
                }
                close(out, start);
            }
            v => put(out, name, &v),
        }
        Ok(true)
    }
}

impl StageOp for Redact {
    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        Ok(Box::new(RedactStream {
            source,
            spec: self,
            ticker: Ticker::new(rt),
        }))
    }
}

struct RedactStream {
    source: Box<dyn DocStream>,
    spec: Arc<Redact>,
    ticker: Ticker,
}

impl DocStream for RedactStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            self.ticker.tick()?;
            let Some(bytes) = self.source.next()? else {
                return Ok(None);
            };
            let doc = Doc::new(&bytes);
            let mut out = Vec::with_capacity(bytes.len());
            if self.spec.level(doc, doc, &mut out, self.ticker.work())? {
                carry(doc, &mut out);
                return Ok(Some(out.into()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_redact() {
        let drop = "[{$redact:{$cond:[{$eq:['$drop',true]},'$$PRUNE','$$DESCEND']}}]";
        table(&[
            ("[{a:1}]", "[{$redact:'$$KEEP'}]", "[{a:1}]"),
            ("[{a:1}]", "[{$redact:'$$PRUNE'}]", "[]"),
            (
                "[{a:1,b:{drop:true},c:{d:{drop:true},e:2}},{drop:true}]",
                drop,
                "[{a:1,c:{e:2}}]",
            ),
            (
                "[{a:[1,{drop:true},[{drop:true},{x:1}],{y:2}]}]",
                drop,
                "[{a:[1,[{x:1}],{y:2}]}]",
            ),
            (
                "[{top:1,c:{drop:true,d:{drop:true}}}]",
                "[{$redact:{$cond:[{$eq:['$$ROOT.top',1]},'$$DESCEND','$$PRUNE']}}]",
                "[{top:1,c:{drop:true,d:{drop:true}}}]",
            ),
            (
                "[{a:1}]",
                "[{$redact:'$a'}]",
                "17053: $redact's expression should not return anything aside from the variables \
                 $$KEEP, $$DESCEND, and $$PRUNE, but returned 1",
            ),
            (
                "[]",
                "[{$project:{x:'$$KEEP'}}]",
                "17276: Invalid $project :: caused by :: Use of undefined variable: KEEP",
            ),
        ]);
    }
}
