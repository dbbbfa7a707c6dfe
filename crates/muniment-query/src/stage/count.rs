//! `$count`: one document with the number of documents.

use super::parts;
use super::registry::{Place, Spec};
use super::rights::Rights;
use super::spread::Spread;
use super::{CountOnly, DocStream, Stage, Ticker};
use crate::context::{QueryContext, Runtime};
use bytes::Bytes;
use muniment_value::{Elem, Error, Result, Value};

pub(crate) const SPEC: Spec = Spec {
    name: "$count",
    doc: "One document that holds the number of documents.",
    place: Place::ANYWHERE,
    spread: Spread::Halves(parts::of_count),
    rights: Rights::Input,
    parse,
};

fn parse(e: Elem<'_>, _: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let bad = |code, text: &str| Err(Error::location(code, text));
    let Value::String(name) = e.value() else {
        return bad(40156, "the count field must be a non-empty string");
    };
    if name.is_empty() {
        return bad(40157, "the count field must be a non-empty string");
    }
    if name.starts_with('$') {
        return bad(40158, "the count field cannot be a $-prefixed path");
    }
    if name.contains('\0') {
        return bad(40159, "the count field cannot contain a null byte");
    }
    if name == "_id" {
        return bad(9_039_800, "the count field cannot be '_id'");
    }
    if name.contains('.') {
        return bad(40160, "the count field cannot contain '.'");
    }
    stages.push(Stage::Count(name.to_string()));
    Ok(())
}

/// Counts a stream.
pub(crate) struct CountStream {
    source: Option<Box<dyn DocStream>>,
    result: CountOnly,
    ticker: Ticker,
}

impl CountStream {
    pub(crate) fn new(source: Box<dyn DocStream>, name: String, rt: &Runtime) -> CountStream {
        CountStream {
            source: Some(source),
            result: CountOnly {
                id: None,
                fields: vec![name],
            },
            ticker: Ticker::new(rt),
        }
    }
}

impl DocStream for CountStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(mut source) = self.source.take() else {
            return Ok(None);
        };
        let mut n = 0u64;
        while source.next()?.is_some() {
            self.ticker.tick()?;
            n += 1;
        }
        Ok(self.result.result(n).map(|d| d.into_bytes().into()))
    }
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_count() {
        table(&[
            ("[{a:1},{a:2}]", "[{$count:'n'}]", "[{n:2}]"),
            ("[]", "[{$count:'n'}]", "[]"),
            (
                "[]",
                "[{$count:1}]",
                "40156: the count field must be a non-empty string",
            ),
            (
                "[]",
                "[{$count:''}]",
                "40157: the count field must be a non-empty string",
            ),
            (
                "[]",
                "[{$count:'$a'}]",
                "40158: the count field cannot be a $-prefixed path",
            ),
            (
                "[]",
                "[{$count:'a.b'}]",
                "40160: the count field cannot contain '.'",
            ),
        ]);
    }
}
