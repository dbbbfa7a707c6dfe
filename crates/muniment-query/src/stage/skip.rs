//! `$skip`: leaves out a number of documents at the beginning.

use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spread::Spread;
use super::{DocStream, Stage, Ticker};
use crate::context::{QueryContext, Runtime};
use bytes::Bytes;
use muniment_value::{Elem, Result};

pub(crate) const SPEC: Spec = Spec {
    name: "$skip",
    doc: "Leaves out the first documents.",
    place: Place::ANYWHERE,
    spread: Spread::Range,
    rights: Rights::Input,
    parse,
};

fn parse(e: Elem<'_>, _: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    stages.push(Stage::Skip(super::limit::whole(e, 5_107_200)?));
    Ok(())
}

/// A stream without its first documents.
pub(crate) struct SkipStream {
    source: Box<dyn DocStream>,
    left: u64,
    ticker: Ticker,
}

impl SkipStream {
    pub(crate) fn new(source: Box<dyn DocStream>, n: u64, rt: &Runtime) -> SkipStream {
        SkipStream {
            source,
            left: n,
            ticker: Ticker::new(rt),
        }
    }
}

impl DocStream for SkipStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        while self.left > 0 {
            self.ticker.tick()?;
            if self.source.next()?.is_none() {
                self.left = 0;
                return Ok(None);
            }
            self.left -= 1;
        }
        self.source.next()
    }
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_skip() {
        table(&[
            ("[{a:1},{a:2}]", "[{$skip:1}]", "[{a:2}]"),
            ("[{a:1},{a:2}]", "[{$skip:0}]", "[{a:1},{a:2}]"),
            ("[{a:1},{a:2}]", "[{$skip:9}]", "[]"),
            ("[{a:1},{a:2},{a:3}]", "[{$skip:1},{$limit:1}]", "[{a:2}]"),
            (
                "[]",
                "[{$skip:-1}]",
                "5107200: invalid argument to $skip stage: Expected a non-negative number in: $skip: -1",
            ),
        ]);
    }
}
