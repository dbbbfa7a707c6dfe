//! `$match`: keeps the documents that a filter matches.

use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spread::Spread;
use super::{DocStream, Stage, Ticker};
use crate::context::{QueryContext, Runtime};
use crate::filter::Filter;
use bytes::Bytes;
use muniment_value::{Doc, Elem, Error, Result, Value};

pub(crate) const SPEC: Spec = Spec {
    name: "$match",
    doc: "Keeps the documents that a filter matches.",
    place: Place::ANYWHERE,
    spread: Spread::Each,
    rights: Rights::Input,
    parse,
};

fn parse(e: Elem<'_>, ctx: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::location(
            15959,
            "the match filter must be an expression in an object",
        ));
    };
    let first = stages.is_empty() && !ctx.in_facet;
    stages.push(Stage::Match(Filter::parse_match(d, ctx, first)?));
    Ok(())
}

/// The documents of a stream that match.
pub(crate) struct MatchStream {
    source: Box<dyn DocStream>,
    filter: Filter,
    ticker: Ticker,
}

impl MatchStream {
    pub(crate) fn new(source: Box<dyn DocStream>, filter: Filter, rt: &Runtime) -> MatchStream {
        MatchStream {
            source,
            filter,
            ticker: Ticker::new(rt),
        }
    }
}

impl DocStream for MatchStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            self.ticker.tick()?;
            let Some(doc) = self.source.next()? else {
                return Ok(None);
            };
            if self.filter.matches(Doc::new(&doc), self.ticker.work())? {
                return Ok(Some(doc));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_match() {
        table(&[
            ("[{a:1},{a:2},{b:2}]", "[{$match:{a:2}}]", "[{a:2}]"),
            ("[{a:1},{a:2}]", "[{$match:{}}]", "[{a:1},{a:2}]"),
            (
                "[{a:1,b:1},{a:1,b:2}]",
                "[{$match:{a:1}},{$match:{b:2}}]",
                "[{a:1,b:2}]",
            ),
            (
                "[{a:2,b:1},{a:1,b:1},{a:0}]",
                "[{$sort:{a:1}},{$match:{b:1}}]",
                "[{a:1,b:1},{a:2,b:1}]",
            ),
            (
                "[]",
                "[{$match:5}]",
                "15959: the match filter must be an expression in an object",
            ),
        ]);
    }
}
